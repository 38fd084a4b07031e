"""A queue as an environment of Gymnasium. Importing this module registers `forebay-v0`.

    import gymnasium
    import forebay.env.gym
    env = gymnasium.make("forebay-v0")

The extra `gym` of the wheel installs gymnasium; so does pip install "gymnasium>=1,<2".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

try:
    import gymnasium
except ImportError as error:
    raise ImportError('forebay.env.gym needs gymnasium: pip install "gymnasium>=1,<2"') from error

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from forebay._base.errors import ParameterError
from forebay._base.words import check_choice
from forebay._native import Observed, ScenarioError, Session, Step
from forebay.env.network import session
from forebay.experiment.experiment import Source

__all__ = ["ACTIONS", "DEFAULT", "ENVIRONMENT", "OBSERVED", "REWARDS", "AqmEnv", "QueueStep"]

#: Name of the environment for `gymnasium.make`.
ENVIRONMENT = "forebay-v0"


@dataclass(frozen=True)
class QueueStep:
    """The state of the queue after one step.

    Attributes
    ----------
    time_s : float
        End of the step in seconds.
    queue_pkts : float
        Queue in packets.
    delay_s : float
        Time to send the queue at the link's rate during the step, in seconds.
    utilisation : float
        Share of the link's capacity that was used.
    arrivals : int
        Number of packets that arrived.
    dropped : float
        Share of the arrivals that were dropped.
    marked : float
        Share of the arrivals that were marked.
    goodput_bps : float
        Rate at which receivers passed data to their applications, in bit/s.
    p : float
        Signal probability of the law.
    target_pkts : float
        Set-point in packets.
    target_s : float
        The set-point as a delay at the link's initial rate, in seconds.
    """

    time_s: float
    queue_pkts: float
    delay_s: float
    utilisation: float
    arrivals: int
    dropped: float
    marked: float
    goodput_bps: float
    p: float
    target_pkts: float
    target_s: float


Reward = Callable[[QueueStep], float]


def power(state: QueueStep) -> float:
    """Return utilisation over delay, from 0 to 1.

    The delay at the set-point halves the reward. This is the power of Kleinrock (1979) with the
    delay at the set-point in place of the path's delay.
    """
    return min(1.0, state.utilisation) * state.target_s / (state.target_s + state.delay_s)


def delay(state: QueueStep) -> float:
    """Return minus the delay in set-points, less ten times the idle share of the link."""
    return -state.delay_s / state.target_s - 10.0 * max(0.0, 1.0 - state.utilisation)


def set_point(state: QueueStep) -> float:
    """Return minus the distance to the set-point, in set-points."""
    return -abs(state.queue_pkts - state.target_pkts) / state.target_pkts


#: Rewards by their keyword; the first is the default.
REWARDS: Mapping[str, Reward] = {"power": power, "delay": delay, "set_point": set_point}

#: The default scenario: 20 long flows.
DEFAULT = """
title    = "An agent at a bottleneck"
duration = "30s"

[bottleneck]
rate   = "10Mbit/s"
delay  = "5ms"
buffer = "200p"

[[traffic]]
kind  = "ftp"
flows = 20
rtt   = ["40ms", "60ms", "80ms", "100ms"]
start = { uniform = ["0s", "1s"] }
"""

#: Quantities of an observation in order: packets; seconds; share of the link's capacity; shares of
#: the arrivals (dropped, marked); the law's probability.
OBSERVED = ("queue_pkts", "delay_s", "utilisation", "dropped", "marked", "p")
#: Kinds of actions.
ACTIONS = ("p", "gains")
#: Smallest and largest K_P per packet, and K_I per packet and second.
GAINS = ((1e-6, 1e-2), (1e-6, 1e-1))
#: Longest delay in an observation, in seconds; longer ones are equal to it.
MOST_DELAY_S = 60.0

Values = NDArray[np.float32]


class AqmEnv(gymnasium.Env[Values, Values]):
    """A queue that an agent observes and controls once per `step`.

    An observation has the quantities of `OBSERVED`. An episode is a run of the scenario, and is
    truncated at its end. `reset(seed=...)` draws the seed of the run; `reset(options={"run_seed":
    3})` sets it. `info` has every field of `QueueStep`.

    Parameters
    ----------
    scenario : file, text of TOML or dict
        The scenario, as for `forebay.run`. Its first point is run, without its laws. By default 20
        long flows at 10 Mbit/s for 30 s.
    overrides : mapping, optional
        Keys to set on top of the scenario, such as {"traffic.0.flows": 50}.
    step : str, default "100ms"
        Time between two actions.
    target : str, default "40p"
        Set-point of the controller and of the rewards, "50p" or "15ms".
    action : str, default "p"
        "p": an action is the signal probability, of shape (1,) from 0 to 1. "gains": an action has
        shape (2,) from -1 to 1 and selects K_P and K_I of a PI controller on a logarithmic scale
        over `gains`.
    gains : pairs of float
        Smallest and largest K_P (per packet), and smallest and largest K_I (per packet and second).
    interval : str, default "10ms"
        Sampling time of the PI controller.
    reward : str or callable, default "power"
        "power", "delay", "set_point", or a function of a `QueueStep`.

    Raises
    ------
    ScenarioError
        If a setting is wrong.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        scenario: Source = DEFAULT,
        *,
        overrides: Mapping[str, Any] | None = None,
        step: str = "100ms",
        target: str = "40p",
        action: str = "p",
        gains: Sequence[tuple[float, float]] = GAINS,
        interval: str = "10ms",
        reward: str | Reward = "power",
        render_mode: None = None,
    ) -> None:
        self.render_mode = render_mode
        self._scenario, self._overrides = scenario, {**(overrides or {}), "sample": step}
        self._target, self._interval = target, interval
        self._action = _checked("action", action, ACTIONS)
        self._gains = np.log(np.array(gains, dtype=np.float64))
        self._reward = reward if callable(reward) else REWARDS[_checked("reward", reward, REWARDS)]
        # This session checks the settings and has the properties of the link.
        self._session = self._new_session(seed=1)
        high = [self._session.buffer_pkts, MOST_DELAY_S, 2.0, 1.0, 1.0, 1.0]
        high_values = np.array(high, dtype=np.float32)
        self.observation_space = spaces.Box(np.zeros_like(high_values), high_values)
        self.action_space = (
            spaces.Box(0.0, 1.0, (1,), np.float32)
            if self._action == "p"
            else spaces.Box(-1.0, 1.0, (2,), np.float32)
        )

    def _new_session(self, seed: int) -> Session:
        """Return a session of the scenario with this seed."""
        try:
            return session(
                self._scenario,
                seed=seed,
                overrides=self._overrides,
                target=self._target,
                interval=self._interval,
            )
        except ScenarioError as error:
            # The step is an argument of this environment.
            if error.key != "sample":
                raise
            raise ParameterError("step", self._overrides["sample"], error.expected) from None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Values, dict[str, Any]]:
        """Start another run.

        Parameters
        ----------
        seed : int, optional
            Seed of the generator that draws the seed of the run.
        options : dict[str, Any], optional
            May have the seed of the run as `run_seed`.

        Returns
        -------
        tuple[Values, dict[str, Any]]
            The first observation, and the fields of `QueueStep` with `run_seed`.
        """
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(1, 2**31))
        run_seed = int((options or {}).get("run_seed", drawn))
        self._session = self._new_session(run_seed)
        state = QueueStep(0.0, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0, 0.0, *self._set_point())
        return self._observation(state), {**vars(state), "run_seed": run_seed}

    def step(self, action: Values) -> tuple[Values, float, bool, bool, dict[str, Any]]:
        """Apply an action and run until the next one.

        Parameters
        ----------
        action : Values
            The action.

        Returns
        -------
        tuple[Values, float, bool, bool, dict[str, Any]]
            Observation, reward, False (no terminal state), True at the end of the run, and the
            fields of `QueueStep`.

        Raises
        ------
        RuntimeError
            If the run has ended.
        """
        if self._action == "p":
            self._session.hold(float(np.asarray(action).reshape(1)[0]))
        else:
            self._session.control(*self.gains(action))
        state = self._seen(self._session.step())
        return (
            self._observation(state),
            float(self._reward(state)),
            False,
            self._session.done,
            dict(vars(state)),
        )

    def gains(self, action: Values) -> tuple[float, float]:
        """Return K_P per packet and K_I per packet and second of an action from -1 to 1."""
        share = (np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0) + 1.0) / 2.0
        low, high = self._gains.T
        k_p, k_i = np.exp(low + share * (high - low))
        return float(k_p), float(k_i)

    def finish(self) -> Observed:
        """Run to the end under the last action, and return the whole run as `forebay.run` has it.

        The environment then needs a `reset`.
        """
        return self._session.finish()

    def _set_point(self) -> tuple[float, float]:
        """Return the set-point in packets and in seconds."""
        session = self._session
        target_pkts = session.target_pkts or 1.0
        return target_pkts, 8.0 * session.packet_bytes * target_pkts / session.rate_bps

    def _seen(self, step: Step) -> QueueStep:
        """Return the state of the queue after a step of the session."""
        interval_s = self._session.interval_s
        rate_bps = step.capacity_bits / interval_s
        target_pkts, target_s = self._set_point()
        arrivals = max(step.arrivals, 1)
        return QueueStep(
            time_s=step.time_s,
            queue_pkts=step.queue_pkts,
            delay_s=8.0 * step.queue_bytes / rate_bps if rate_bps > 0 else MOST_DELAY_S,
            utilisation=8.0 * step.departed_bytes / max(step.capacity_bits, 1.0),
            arrivals=step.arrivals,
            dropped=step.drops / arrivals,
            marked=step.marks / arrivals,
            goodput_bps=8.0 * step.delivered_bytes / interval_s,
            p=step.p,
            target_pkts=target_pkts,
            target_s=target_s,
        )

    def _observation(self, state: QueueStep) -> Values:
        """Return the observation of a state, within the bounds of the observation space."""
        values = np.array([getattr(state, name) for name in OBSERVED], dtype=np.float32)
        high: Values = self.observation_space.high  # type: ignore[attr-defined]
        return np.minimum(values, high)


def _checked(key: str, value: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    """Return a value that must be one of several."""
    check_choice(key, value, names)
    return value


gymnasium.register(id=ENVIRONMENT, entry_point="forebay.env.gym:AqmEnv")
