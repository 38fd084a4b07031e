"""The response of a queue to a step, measured on a curve, with its spread over several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Floats = NDArray[np.float64]

#: Fits start from these natural frequencies (rad/s) and damping ratios.
STARTS = tuple((w, z) for w in (0.3, 0.8, 2.0) for z in (0.1, 0.4, 0.9))

#: Above this damping ratio, overshoot is under 5 % and a period means little.
SWINGS = 0.7


@dataclass(frozen=True)
class Response:
    """The return of a queue after a step, from its farthest point on.

    half_s: until half of the way is back.
    frequency: natural frequency of the second-order response that fits best, in rad/s.
    damping: its damping ratio.
    """

    half_s: float
    frequency: float
    damping: float

    @property
    def period_s(self) -> float | None:
        """None if the response does not oscillate (a damping ratio above 0.7)."""
        return self.turn_s if self.damping < SWINGS else None

    @property
    def turn_s(self) -> float:
        """The period however damped it is; infinite from a damping ratio of 1 on."""
        if self.damping >= 1:
            return float("inf")
        return float(2 * np.pi / (self.frequency * np.sqrt(1 - self.damping**2)))


@dataclass(frozen=True)
class Spread:
    """The range from 2.5 to 97.5 % of other seeds' responses; `period_s` may be infinite."""

    half_s: tuple[float, float]
    period_s: tuple[float, float]
    damping: tuple[float, float]


def response(
    time_s: Floats,
    queue_pkts: Floats,
    start_s: float,
    end_s: float,
    starts: Sequence[tuple[float, float]] = STARTS,
) -> Response:
    """Measure the response to a step at `start_s`, up to `end_s`.

    The queue need not return to where it was: its mean over the last tenth is the end. starts:
    natural frequencies (rad/s) and damping ratios from which the fit sets out.
    """
    part = (time_s > start_s) & (time_s <= end_s)
    time_s, queue_pkts = time_s[part], queue_pkts[part]
    away = queue_pkts - queue_pkts[-max(len(queue_pkts) // 10, 1) :].mean()
    # The first quarter has the step's own excursion, later ones its oscillation.
    first = int(np.argmax(np.abs(away[: max(len(away) // 4, 1)])))
    time_s, away = time_s[first:] - time_s[first], away[first:]
    half_s = float(time_s[np.argmax(away / away[0] < 0.5)])
    return Response(half_s, *_second_order(time_s, away, starts))


def spread(
    time_s: Floats, runs_pkts: Floats, start_s: float, end_s: float, *, draws: int = 200
) -> Spread:
    """Return how far chance moves the response of the mean over runs (a row each).

    As many runs are drawn again with replacement (Efron and Tibshirani, An Introduction to the
    Bootstrap, 1993, chapter 13), `draws` times with one seed.
    """
    rng = np.random.default_rng(1)
    whole = response(time_s, runs_pkts.mean(axis=0), start_s, end_s)
    starts = [(whole.frequency, whole.damping), (whole.frequency, 0.4)]
    redrawn = []
    for _ in range(draws):
        drawn = runs_pkts[rng.integers(len(runs_pkts), size=len(runs_pkts))]
        fit = response(time_s, drawn.mean(axis=0), start_s, end_s, starts)
        redrawn.append((fit.half_s, fit.turn_s, fit.damping))
    # No mean of an infinite period and a finite one.
    low, high = np.quantile(np.array(redrawn), [0.025, 0.975], axis=0, method="nearest")
    pairs = [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
    return Spread(*pairs)


def _second_order(
    time_s: Floats, away: Floats, starts: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Natural frequency (rad/s) and damping ratio of the best fit, by least squares.

    The two amplitudes and the rest are linear, so only frequency and damping are searched.
    """

    def cost(log: Floats) -> float:
        frequency, damping = np.exp(log)
        decay = np.exp(-damping * frequency * time_s)
        turn = frequency * np.sqrt(abs(1 - damping**2)) * time_s
        if damping < 1:
            pair = [decay * np.cos(turn), decay * np.sin(turn)]
        else:
            slow = np.exp(turn - damping * frequency * time_s)
            pair = [slow, decay * np.exp(-turn)]
        basis = np.column_stack([*pair, np.ones_like(time_s)])
        weights = np.linalg.lstsq(basis, away, rcond=None)[0]
        return float(np.mean((basis @ weights - away) ** 2))

    fits = [minimize(cost, np.log(start), method="Nelder-Mead") for start in starts]
    best = min(fits, key=lambda fit: float(fit.fun))
    frequency, damping = np.exp(best.x)
    return float(frequency), float(damping)
