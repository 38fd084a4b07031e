"""The loop of TCP, a queue and a law: frequency response, margins, roots and step response.

The plant is the linearised fluid model of TCP and the queue with its delay, P(s) = C²/(2N)/((s +
2N/(R²C))(s + 1/R))·e^{−sR} (equation 1 of the PI-PD paper, with the numerators of its Example 1).
The law is represented by its own linear model, which tests compare with the law
(crates/forebay-aqm/tests). Delay, sampler, zero-order hold and the alias terms of the sampler are
exact; see `forebay.control.frequency_response`.
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
    held : str
        The quantity that the law controls, in packets.
    """

    held = "Queue"

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
    model: LinearModel,
    terms: Terms,
    plant: Terms,
    change: float,
    duration_s: float,
    points: int,
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
    modes = []
    for path in plant.paths:
        whole, rest_s = frequency_response.whole_intervals(path.delay_s, dt)
        for residue, pole in frequency_response.partial_fractions(path):
            new, old = frequency_response.gammas(pole, dt, rest_s)
            modes.append((np.exp(-pole * dt), residue * new, residue * old, int(whole)))
    decays, news, olds, delays = zip(*modes, strict=True)
    average = frequency_response.average_pole(model)
    queue = _native.step_response(
        np.array(decays, complex),
        np.array(news, complex),
        np.array(olds, complex),
        delays,
        smoothing=None if average is None else -math.expm1(-average * dt),
        direct=model["direct"],
        sampled=(per_sample, *sampled[1:]) if sampled else None,
        change=change,
        steps=steps,
    )
    return np.arange(steps + 1, dtype=float) * dt, queue


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
