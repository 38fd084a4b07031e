"""A queue as an environment of gymnasium: importing this module registers `forebay-v0`.

    import gymnasium
    import forebay.env.gym
    env = gymnasium.make("forebay-v0")

The extra `gym` of the wheel brings gymnasium; so does pip install "gymnasium>=1,<2".
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
from forebay._native import Observed, ScenarioError, Session, Step
from forebay.env.network import session
from forebay.experiment.experiment import Source

__all__ = ["ACTIONS", "DEFAULT", "ENVIRONMENT", "OBSERVED", "REWARDS", "AqmEnv", "Seen"]

#: Name of the environment for `gymnasium.make`.
ENVIRONMENT = "forebay-v0"


@dataclass(frozen=True)
class Seen:
    """One step at the queue, in the units of the names."""

    time_s: float
    queue_pkts: float
    #: what waits, at the rate that the link had in this step
    delay_s: float
    #: share of the link's capacity that was used
    utilisation: float
    #: packets that came; the shares of them that were dropped and marked
    arrivals: int
    dropped: float
    marked: float
    #: what receivers handed to their applications
    goodput_bps: float
    #: the law's probability of a signal
    p: float
    #: the set-point, also as the time that a packet waits there at the link's first rate
    target_pkts: float
    target_s: float


Reward = Callable[[Seen], float]


def power(seen: Seen) -> float:
    """Utilisation over delay, from 0 to 1: half of it is lost where a packet waits as long as at
    the set-point. The power of Kleinrock (1979), with that delay in place of the path's."""
    return min(1.0, seen.utilisation) * seen.target_s / (seen.target_s + seen.delay_s)


def delay(seen: Seen) -> float:
    """Minus the delay in set-points, and minus ten times the share of the link that is idle."""
    return -seen.delay_s / seen.target_s - 10.0 * max(0.0, 1.0 - seen.utilisation)


def set_point(seen: Seen) -> float:
    """Minus the distance to the set-point, in set-points."""
    return -abs(seen.queue_pkts - seen.target_pkts) / seen.target_pkts


#: Rewards by their keyword; the first is the default.
REWARDS: Mapping[str, Reward] = {"power": power, "delay": delay, "set_point": set_point}

#: Runs where no other scenario is given: 20 long flows.
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

#: What an observation has, in this order: packets; seconds; shares of the link's capacity, of
#: arrivals and of arrivals; the law's probability.
OBSERVED = ("queue_pkts", "delay_s", "utilisation", "dropped", "marked", "p")
#: What an action may be.
ACTIONS = ("p", "gains")
#: Least and most of K_P per packet, and of K_I per packet and second.
GAINS = ((1e-6, 1e-2), (1e-6, 1e-1))
#: Longest delay that an observation tells apart, in s.
MOST_DELAY_S = 60.0

Values = NDArray[np.float32]


class AqmEnv(gymnasium.Env[Values, Values]):
    """A queue, seen and steered once per `step`.

    scenario: a file, a text of TOML or a dict, as for `forebay.run`; its first point is run, and
        its laws are not. By default 20 long flows at 10 Mbit/s for 30 s.
    overrides: keys to set on top, {"traffic.0.flows": 50}.
    step: time between two actions, such as "100ms".
    target: set-point, "50p" or "15ms": that of the controller, and of the rewards.
    action: "p": an action is the probability of a signal, (1,) from 0 to 1; "gains": an action is
        (2,) from -1 to 1, on a logarithmic scale over `gains`, K_P and K_I of a PI controller that
        samples each `interval`.
    gains: least and most of K_P (per packet) and of K_I (per packet and second).
    interval: between two samples of that controller.
    reward: "power" (the default), "delay", "set_point", or a function of a `Seen`.

    An observation has `OBSERVED`. An episode is a run of the scenario; it is truncated at its end.
    `reset(seed=...)` draws the seed of the run; `reset(options={"run_seed": 3})` gives it. `info`
    has every field of `Seen`. Raises `ScenarioError` for a setting that is wrong.
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
        self._action = _one_of("action", action, ACTIONS)
        self._gains = np.log(np.array(gains, dtype=np.float64))
        self._reward = reward if callable(reward) else REWARDS[_one_of("reward", reward, REWARDS)]
        # Made to see that all fits, and for what it tells of the link.
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
        """Starts another run; `options` may have its `run_seed`."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(1, 2**31))
        run_seed = int((options or {}).get("run_seed", drawn))
        self._session = self._new_session(run_seed)
        seen = Seen(0.0, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0, 0.0, *self._set_point())
        return self._observation(seen), {**vars(seen), "run_seed": run_seed}

    def step(self, action: Values) -> tuple[Values, float, bool, bool, dict[str, Any]]:
        """Takes the action, and runs until the next one. Raises `RuntimeError` past the end."""
        if self._action == "p":
            self._session.hold(float(np.asarray(action).reshape(1)[0]))
        else:
            self._session.control(*self.gains(action))
        seen = self._seen(self._session.step())
        return (
            self._observation(seen),
            float(self._reward(seen)),
            False,
            self._session.done,
            dict(vars(seen)),
        )

    def gains(self, action: Values) -> tuple[float, float]:
        """K_P per packet and K_I per packet and second that an action from -1 to 1 means."""
        share = (np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0) + 1.0) / 2.0
        low, high = self._gains.T
        k_p, k_i = np.exp(low + share * (high - low))
        return float(k_p), float(k_i)

    def finish(self) -> Observed:
        """Runs to the end under the last action: the metrics and samples of the whole run, as
        `forebay.run` has them. The environment then needs a `reset`."""
        return self._session.finish()

    def _set_point(self) -> tuple[float, float]:
        session = self._session
        target_pkts = session.target_pkts or 1.0
        return target_pkts, 8.0 * session.packet_bytes * target_pkts / session.rate_bps

    def _seen(self, step: Step) -> Seen:
        interval_s = self._session.interval_s
        rate_bps = step.capacity_bits / interval_s
        target_pkts, target_s = self._set_point()
        arrivals = max(step.arrivals, 1)
        return Seen(
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

    def _observation(self, seen: Seen) -> Values:
        values = np.array([getattr(seen, name) for name in OBSERVED], dtype=np.float32)
        high: Values = self.observation_space.high  # type: ignore[attr-defined]
        return np.minimum(values, high)


def _one_of(key: str, value: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    if value not in known:
        raise ParameterError(key, value, ", ".join(known))
    return value


gymnasium.register(id=ENVIRONMENT, entry_point="forebay.env.gym:AqmEnv")
