"""The loop of TCP, a queue and a law: its margins, roots, step response and deviations.

The plant is the linearised fluid model of TCP and the queue with its delay, P(s) = C²/(2N)/((s +
2N/(R²C))(s + 1/R))·e^{−sR} (equation 1 of the PI-PD paper, with the numerators of its Example 1).
The law is represented by its own linear model, which tests compare with the law
(crates/forebay-aqm/tests). Delay, sampler, zero-order hold and the alias terms of the sampler are
exact; see `forebay.control.frequency_response`.

`tune` and automatic gain design use the standard deviations of queue and probability by the linear
loop, from losses and load changes; `expected_queue` is closer to packets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

import forebay._native as _native
from forebay._native import OperatingPoint
from forebay.control import closed_loop_poles, frequency_response, margins
from forebay.control.frequency_response import Complexes, Terms
from forebay.control.margins import Margins

if TYPE_CHECKING:
    from forebay._native import LinearModel

Floats = NDArray[np.float64]
#: A number for each mode of a plant.
Modes = NDArray[np.complex128]

#: Largest number of steps of a response. A longer response is inverted from its Laplace transform,
#: whose cost does not depend on the ratio of settling time and sampling interval.
MOST_STEPS = 1_000_000
#: Inversion of a Laplace transform: exponent of its discretisation error, and number of terms
#: before and within the average of partial sums (Abate and Whitt 1995, section 1).
ERROR_EXPONENT, TERMS, AVERAGED = 18.4, 38, 11
#: Number of times whose terms are evaluated together.
BATCH = 200


class Loop:
    """A law around a plant, with negative feedback.

    The loop gain L is positive at frequency zero.

    Attributes
    ----------
    point : OperatingPoint
        Operating point of the flows.
    model : LinearModel
        Linear model of the law there, from `LawModel.operate` or `LawModel.linear`.
    terms : Terms
        Both as numbers for `forebay.control.frequency_response`.
    controlled_quantity : str
        The quantity that the law controls, in packets.
    """

    controlled_quantity = "Queue"

    def __init__(
        self, point: OperatingPoint, model: LinearModel, terms: Terms | None = None
    ) -> None:
        self.point = point
        self.model = model
        self.terms = frequency_response.terms([(point, model)]) if terms is None else terms

    def changed(self, gain: float = 1.0, delay_s: float = 0.0) -> Loop:
        """Return the loop with another plant.

        Parameters
        ----------
        gain : float, optional
            Factor on the plant's gain.
        delay_s : float, optional
            Further delay in seconds.
        """
        return Loop(self.point, self.model, self.terms.changed(gain, delay_s))

    @cached_property
    def to_queue(self) -> Terms:
        """The plant from the probability to the queue that a law observes, before its average."""
        point = self.point
        poles = frequency_response.separate_repeated_poles((point.tcp_pole, point.queue_pole))
        return Terms(point.plant_gain, poles, point.rtt_s + self.model["age_s"], 0.0)

    @property
    def signal_paths(self) -> list[tuple[Terms, float]]:
        """The path from p to the queue for each RTT, with its share of all signals."""
        return [(self.to_queue, 1.0)]

    @property
    def window_pkts(self) -> float:
        """Window of a flow, in packets."""
        return self.point.window_pkts

    @property
    def interval_s(self) -> float | None:
        """Sampling interval in seconds; None without a sampler."""
        sampled = self.model["sampled"]
        return None if sampled is None else sampled[0]

    @property
    def highest_rad_s(self) -> float:
        """Half the sampling frequency, or a frequency at which a continuous loop is quiet."""
        if self.terms.interval_s is not None:
            return math.pi / float(self.terms.interval_s)
        fastest = max(float(np.abs(pole)) for path in self.terms.paths for pole in path.poles)
        return max(100 / float(self.terms.shortest_s), 10 * fastest)

    def response(self, omega: ArrayLike) -> Complexes:
        """Return L(jω), with the alias terms from above half the sampling frequency."""
        return frequency_response.loop(
            self.terms, np.asarray(1j * np.asarray(omega, float), complex)
        )

    @cached_property
    def grid(self) -> Floats:
        """Frequencies in rad/s that resolve the whole loop."""
        return margins.grid(self.terms, self.highest_rad_s)

    @cached_property
    def margins(self) -> Margins:
        """Margins of the loop; the gain margin of an unstable loop is negative."""
        return margins.margins(self.terms, self.grid, self.stable)

    @cached_property
    def peak(self) -> float:
        """Sensitivity peak, the largest |1/(1 + L)|."""
        return margins.peak(self.terms, self.grid)

    @cached_property
    def stable(self) -> bool:
        """True if every root decays, by Nyquist's count, which approximates no root."""
        return margins.stable(self.terms)

    def margin_near(self, near_db: float) -> tuple[float, bool]:
        """Return the signed gain margin in dB and the stability of a loop close to the edge.

        `near_db` is the margin by `margins.count_columns`. For a law that acts both ways it is
        exact, as the gain at which 1 + L is zero, so only its sign is decided here.
        """
        size = abs(near_db)
        if not self.terms.hybrid:
            db = margins.gain_db(self.terms, self.grid, self.stable)
            size = min(margins.MOST_DB, abs(db))
        return (size if self.stable else -size), self.stable

    @cached_property
    def roots(self) -> Complexes:
        """Closed-loop roots in s, from right to left; those of a sampled loop are ln z/T.

        A sampled loop with a delay of a moderate number of intervals has all of them, and any other
        loop the rightmost ones.
        """
        return closed_loop_poles.roots(self.terms)

    @property
    def settling_s(self) -> float:
        """Settling time of the slowest root to 2 %, 4/|Re s| in seconds; ``inf`` if unstable."""
        if not self.stable:
            return math.inf
        decays = (float(root.real) for root in self.roots if root.real < 0)
        return -4 / next(decays, math.nan)

    def probability_step(self) -> float:
        """Return the change of p that 10 % more flows need; p grows with their square."""
        return 0.2 * self.point.probability

    def step(self, duration_s: float, points: int = 2000) -> tuple[Floats, Floats]:
        """Return the response of the queue to 10 % more flows.

        They act on TCP like the opposite change of the probability. The response is that of the
        linear loop, in small steps with an exact delay.

        Parameters
        ----------
        duration_s : float
            Duration in seconds.
        points : int, optional
            Number of points, at least.

        Returns
        -------
        (array, array)
            Time in seconds, and deviation of the queue in packets.
        """
        plant, change = self._before_average(), self.probability_step()
        time_s, queue = step_response(self.model, self.terms, plant, change, duration_s, points)
        time_s = time_s - self.model["age_s"]
        return time_s[time_s >= 0], queue[time_s >= 0]

    def _before_average(self) -> Terms:
        """Return the plant without the law's average, which is its last pole."""
        if frequency_response.average_pole(self.model) is None:
            return self.terms
        last = float(np.asarray(self.terms.poles[-1]).real)
        return replace(self.terms, gain=float(self.terms.gain) / last, poles=self.terms.poles[:-1])


def count_loops(loops: Sequence[Loop]) -> list[tuple[float, bool]]:
    """Return the gain margin in dB of each loop, and True for a stable loop."""
    margin, stable = np.full(len(loops), np.nan), np.zeros(len(loops), bool)
    shapes: dict[object, list[int]] = {}
    for i, loop in enumerate(loops):
        shapes.setdefault(frequency_response.shape(loop.terms), []).append(i)
    for group in shapes.values():
        columns = frequency_response.stacked([loops[i].terms for i in group])
        margin[group], stable[group] = margins.count_columns(columns, len(group))
    for i in map(int, np.flatnonzero(margins.is_near_edge(margin))):
        margin[i], stable[i] = loops[i].margin_near(margin[i])
    return list(zip(margin.tolist(), stable.tolist(), strict=True))


def step_response(
    model: LinearModel, terms: Terms, plant: Terms, change: float, duration_s: float, points: int
) -> tuple[Floats, Floats]:
    """Return time and deviation of the queue after a step at the plant's input.

    Each mode of the plant is exact over steps with a held input. A stable loop that would need more
    than `MOST_STEPS` steps is inverted from its Laplace transform at `points` times; an unstable
    one is returned for as long as that number of steps lasts.

    A step of the probability acts without the plant's delay, so the response starts at t = R.

    Parameters
    ----------
    model : LinearModel
        The law.
    terms : Terms
        The loop.
    plant : Terms
        The plant of `terms`, without the law's average.
    change : float
        Height of the step of the probability.
    duration_s : float
        Duration in seconds.
    points : int
        Number of points, at least.
    """
    sampled = model["sampled"]
    fine_s = duration_s / points
    # Direct action is held for a step, which has to be short compared with the delay.
    if sampled is None:
        fine_s = min(fine_s, float(terms.shortest_s) / 20)
    elif terms.hybrid:
        fine_s = min(fine_s, float(terms.shortest_s) / 8)
    # Samples of the law fall on steps; a delay is a whole number of steps and a remainder.
    per_sample = max(1, math.ceil(sampled[0] / fine_s)) if sampled else 1
    dt = sampled[0] / per_sample if sampled else fine_s
    steps = math.ceil(duration_s / dt)
    if steps > MOST_STEPS:
        if margins.stable(terms):
            return _by_inversion(terms, plant, change, duration_s, points)
        steps = MOST_STEPS
    average = frequency_response.average_pole(model)
    queue = _native.step_response(
        *_modes(plant, dt),
        smoothing=None if average is None else -math.expm1(-average * dt),
        direct=model["direct"],
        sampled=(per_sample, *sampled[1:]) if sampled else None,
        change=change,
        steps=steps,
    )
    return np.arange(steps + 1, dtype=float) * dt, queue


def _modes(plant: Terms, dt: float) -> tuple[Modes, Modes, Modes, tuple[int, ...]]:
    """Return the modes of a plant over steps of `dt` seconds, for `_native.step_response`.

    They are the decay of each mode in a step, its gains from the newest input and the one before,
    and the whole number of steps of its delay.
    """
    modes = []
    for path in plant.paths:
        whole, rest_s = frequency_response.whole_intervals(path.delay_s, dt)
        for residue, pole in frequency_response.partial_fractions(path):
            new, old = frequency_response.gammas(pole, dt, rest_s)
            modes.append((np.exp(-pole * dt), residue * new, residue * old, int(whole)))
    decays, newest, former, delays = zip(*modes, strict=True)
    return np.array(decays, complex), np.array(newest, complex), np.array(former, complex), delays


def _by_inversion(
    terms: Terms, plant: Terms, change: float, duration_s: float, points: int
) -> tuple[Floats, Floats]:
    """Return the step response as the inverse of its Laplace transform.

    The method is Abate and Whitt's EULER ("Numerical inversion of Laplace transforms of probability
    distributions", 1995): a Fourier series on a line to the right of all roots, whose partial sums
    are averaged with binomial weights.
    """
    time_s = np.linspace(0.0, duration_s, points + 1)
    queue = np.zeros(points + 1)
    count = TERMS + AVERAGED
    orders = np.arange(count + 1)
    signs = np.where(orders % 2 == 0, 1.0, -1.0)
    binomials = np.array([math.comb(AVERAGED, k) for k in range(AVERAGED + 1)]) / 2.0**AVERAGED
    # Term k is in the partial sums from k on.
    factors = np.ones(count + 1)
    factors[TERMS + 1 :] = 1 - np.cumsum(binomials)[:-1]
    factors[0] = 0.5
    for start in range(1, points + 1, BATCH):
        at = time_s[start : start + BATCH]
        s = (ERROR_EXPONENT + 2j * math.pi * orders) / (2 * at[:, None])
        flat = s.ravel()
        moved = change / flat * frequency_response.plant(plant, flat)
        moved = moved * frequency_response.sensitivity(terms, flat)
        terms_of_sum = moved.reshape(s.shape).real * signs * factors
        queue[start : start + BATCH] = math.exp(ERROR_EXPONENT / 2) / at * terms_of_sum.sum(axis=1)
    return time_s, queue


# --- deviations ---------------------------------------------------------------------------------
#
# Signals come at random, p·C of them per second, which acts as white noise of intensity p/C on p.
# Reno halves one of N windows, which is N·(W/2)²·pW/R = C/2 packets² per second on the sum of the
# windows, with pW² = 2. Once a minute the load changes so that TCP needs twice the p. Both
# disturbances pass the closed loop of the queue, so too much gain and too little gain both
# raise the deviation. Bursts of arrivals are white in the samples, with the variance of a Poisson
# process in an interval.

#: Time in seconds between two changes of the load.
LOAD_EVERY_S = 60.0
#: Frequencies times R. Outside this range the disturbances hardly move the queue.
DISTURBANCE_TURNS = np.union1d(np.geomspace(1e-4, 1, 120), np.arange(1, 40, 0.2))
#: Lowest and highest frequency times R, where bursts are included.
BURST_TURNS = (1e-4, 60.0)


def densities(loop: Loop, omega: Floats) -> tuple[Floats, Floats]:
    """Return π times the spectral densities of the queue without the law.

    Parameters
    ----------
    loop : Loop
        The loop.
    omega : array of shape (n,)
        Frequencies in rad/s.

    Returns
    -------
    (array, array)
        Densities in packets²·s caused by losses and by load changes.
    """
    point = loop.point
    square = np.abs(frequency_response.plant(loop.to_queue, 1j * omega)) ** 2
    # Flows with several RTTs each receive their share of the signals, and of the noise.
    densities_of_paths = [
        np.abs(frequency_response.plant(path, 1j * omega)) ** 2 / share
        for path, share in loop.signal_paths
    ]
    noise = np.sum(densities_of_paths, axis=0) * point.probability / point.capacity_pkts_per_s
    # Steps of p0 at the plant's input, one in LOAD_EVERY_S.
    load = square * (point.probability / omega) ** 2 / LOAD_EVERY_S
    return noise, load


def queue_deviations(loop: Loop) -> tuple[float, float, float]:
    """Return the sensitivity peak, and the queue's standard deviations by losses and by the load.

    The deviations are in packets.
    """
    point = loop.point
    omega = DISTURBANCE_TURNS / point.rtt_s
    omega = np.union1d(omega[omega < loop.highest_rad_s], loop.highest_rad_s)
    omega = omega[omega <= 1.01 * DISTURBANCE_TURNS[-1] / point.rtt_s]
    sensitivity = np.abs(frequency_response.sensitivity(loop.terms, 1j * omega))
    # The peak is between two of these frequencies.
    k = int(sensitivity.argmax())
    near = np.linspace(omega[max(k - 1, 0)], omega[min(k + 1, len(omega) - 1)], 33)
    peak = np.abs(frequency_response.sensitivity(loop.terms, 1j * near)).max()
    noise, load = (sensitivity**2 * part for part in densities(loop, omega))
    return float(max(peak, sensitivity[k])), _deviation(noise, omega), _deviation(load, omega)


def at_constant_load(loop: Loop) -> tuple[float, float]:
    """Return the standard deviations of queue and probability caused by losses and bursts.

    The first is in packets; the second is relative to the mean probability.
    """
    point, t = loop.point, loop.terms
    low, high = (turn / point.rtt_s for turn in BURST_TURNS)
    high = min(high, loop.highest_rad_s)
    omega = np.union1d(np.geomspace(low, high, 600), np.linspace(low, high, 1500))
    s = 1j * omega
    square = np.abs(frequency_response.sensitivity(t, s)) ** 2
    queue = square * densities(loop, omega)[0]
    law = np.full_like(s, loop.model["direct"])
    bursts = np.zeros_like(omega)
    if t.interval_s is not None:
        law = law + frequency_response.law(t, s)
        interval_s = float(t.interval_s)
        arrivals = point.capacity_pkts_per_s * min(interval_s, point.rtt_s)
        bursts = np.where(omega < math.pi / interval_s, arrivals * interval_s, 0.0) * square
    pole = frequency_response.average_pole(loop.model)
    acts = np.abs(law if pole is None else law * pole / (s + pole)) ** 2
    p_deviation = _deviation((queue + bursts) * acts, omega)
    return _deviation(queue, omega), p_deviation / point.probability


def _deviation(density: Floats, omega: Floats) -> float:
    return math.sqrt(float(np.trapezoid(density, omega)) / math.pi)
