"""The loop of TCP, a queue and a law: its frequency response, margins and roots.

The plant is the linearised fluid model of TCP and the queue with its delay,
P(s) = C²/(2N)/((s + 2N/(R²C))(s + 1/R))·e^{−sR} (pi-pd eq. 1, with the numerators of its Example
1); the law is its own linear model, measured against the law in crates/forebay-aqm/tests.
Delay, sampler and zero-order hold are exact, and so is what the sampler folds: see
`forebay.control.frequency_response`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forebay._native import OperatingPoint
from forebay.control import closed_loop_poles as roots
from forebay.control import frequency_response as gain
from forebay.control import margins, time_response
from forebay.control.frequency_response import Complexes, Terms
from forebay.control.margins import Margins

if TYPE_CHECKING:
    from forebay._native import LinearModel

Floats = NDArray[np.float64]


class Loop:
    """A law around a plant; its loop gain L is positive at rest, and the feedback negative.

    point: where flows settle.
    model: the law there, from `LawModel.operate` or `LawModel.linear`.
    terms: both as numbers for `forebay.control.frequency_response`.
    held: what the law holds, in packets.
    """

    held = "Queue"

    def __init__(
        self, point: OperatingPoint, model: LinearModel, terms: Terms | None = None
    ) -> None:
        self.point = point
        self.model = model
        self.terms = gain.terms([(point, model)]) if terms is None else terms

    def changed(self, gain: float = 1.0, delay_s: float = 0.0) -> Loop:
        """The same law around a plant with `gain` times the gain, and with more delay."""
        return Loop(self.point, self.model, self.terms.changed(gain, delay_s))

    @cached_property
    def to_queue(self) -> Terms:
        """The plant from the probability to the queue that a law sees, before it averages it."""
        point = self.point
        poles = gain.apart((point.tcp_pole, point.queue_pole))
        return Terms(point.plant_gain, poles, point.rtt_s + self.model["age_s"], 0.0)

    @property
    def signal_paths(self) -> list[tuple[Terms, float]]:
        """The paths from p to the queue, one for each RTT, with the share of all signals that the
        flows on it get."""
        return [(self.to_queue, 1.0)]

    @property
    def window_pkts(self) -> float:
        """Of a flow."""
        return self.point.window_pkts

    @property
    def interval_s(self) -> float | None:
        """Of the sampler, if there is one."""
        sampled = self.model["sampled"]
        return None if sampled is None else sampled[0]

    @property
    def highest_rad_s(self) -> float:
        """Half the sampling frequency, or where a continuous loop has long been quiet."""
        if self.terms.interval_s is not None:
            return math.pi / float(self.terms.interval_s)
        fastest = max(float(np.abs(pole)) for path in self.terms.paths for pole in path.poles)
        return max(100 / float(self.terms.shortest_s), 10 * fastest)

    def response(self, omega: ArrayLike) -> Complexes:
        """L(jω), with what a sampler folds down from above half its frequency."""
        return gain.loop(self.terms, np.asarray(1j * np.asarray(omega, float), complex))

    @cached_property
    def grid(self) -> Floats:
        """Frequencies that show all of the loop, in rad/s."""
        return margins.grid(self.terms, self.highest_rad_s)

    @cached_property
    def margins(self) -> Margins:
        """Of the loop as it is; of an unstable one, phase and gain are what it lacks, below 0."""
        return margins.margins(self.terms, self.grid, self.stable)

    @cached_property
    def peak(self) -> float:
        """The largest |1/(1 + L)|."""
        return margins.peak(self.terms, self.grid)

    @cached_property
    def stable(self) -> bool:
        """Whether every root decays, by Nyquist's count: no root is approximated."""
        return margins.stable(self.terms)

    @cached_property
    def roots(self) -> Complexes:
        """Closed-loop roots in s, from right to left; of a sampled loop, ln z/T.

        Of a sampled loop with a delay of a moderate number of intervals all of them; else the
        rightmost ones.
        """
        return roots.roots(self.terms)

    @property
    def settling_s(self) -> float:
        """Time in which the slowest root falls to 2 %, 4/|Re s|; inf where it does not."""
        if not self.stable:
            return math.inf
        found = [float(root.real) for root in self.roots if root.real < 0]
        return -4 / found[0] if found else math.nan

    def probability_step(self) -> float:
        """The change of p that a tenth more flows ask for: p is as their square."""
        return 0.2 * self.point.probability

    def step(self, duration_s: float, points: int = 2000) -> tuple[Floats, Floats]:
        """Deviation of the queue, in packets, after a tenth more flows have come: (t, q).

        The flows act on TCP as the opposite change of the probability would. The response is that
        of the linear loop to that step, in small steps that hold its delay exactly.
        """
        time_s, seen = time_response.step_response(
            self.model,
            self.terms,
            self._before_average(),
            self.probability_step(),
            duration_s,
            points,
        )
        time_s = time_s - self.model["age_s"]
        return time_s[time_s >= 0], seen[time_s >= 0]

    def _before_average(self) -> Terms:
        """The plant without a law's average, which is the last of its poles."""
        if gain.average_pole(self.model) is None:
            return self.terms
        last = float(np.asarray(self.terms.poles[-1]).real)
        return replace(self.terms, gain=float(self.terms.gain) / last, poles=self.terms.poles[:-1])
