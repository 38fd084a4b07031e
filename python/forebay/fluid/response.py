"""Measure the response of a queue to a step, with its spread over several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Floats = NDArray[np.float64]

#: The natural frequencies (rad/s) and damping ratios from which fits start.
STARTS = tuple((w, z) for w in (0.3, 0.8, 2.0) for z in (0.1, 0.4, 0.9))

#: Damping ratio above which the overshoot is below 5 %, so that a period means little.
SWINGS = 0.7


@dataclass(frozen=True)
class Response:
    """The return of a queue after a step, from its largest deviation on.

    Attributes
    ----------
    half_s : float
        Time until the deviation has halved, in seconds.
    frequency : float
        Natural frequency of the best second-order response, in rad/s.
    damping : float
        Damping ratio of the best second-order response.
    """

    half_s: float
    frequency: float
    damping: float

    @property
    def period_s(self) -> float | None:
        """The period in seconds; None if the response does not oscillate."""
        return self.turn_s if self.damping < SWINGS else None

    @property
    def turn_s(self) -> float:
        """The period in seconds at any damping; infinite from a damping ratio of 1 on."""
        if self.damping >= 1:
            return float("inf")
        return float(2 * np.pi / (self.frequency * np.sqrt(1 - self.damping**2)))


@dataclass(frozen=True)
class Spread:
    """Bootstrap intervals (2.5 % to 97.5 %) of a response; `period_s` may be infinite.

    Attributes
    ----------
    half_s : tuple[float, float]
        Interval of the halving time, in seconds.
    period_s : tuple[float, float]
        Interval of the period, in seconds.
    damping : tuple[float, float]
        Interval of the damping ratio.
    """

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
    """Measure the response to a step.

    The queue need not return to its former length: its final value is the mean over the last tenth.

    Parameters
    ----------
    time_s : Floats
        Times in seconds.
    queue_pkts : Floats
        Queue at these times, in packets.
    start_s : float
        Time of the step in seconds.
    end_s : float
        End of the response in seconds.
    starts : Sequence[tuple[float, float]], default STARTS
        Natural frequencies (rad/s) and damping ratios from which the fit starts.
    """
    part = (time_s > start_s) & (time_s <= end_s)
    time_s, queue_pkts = time_s[part], queue_pkts[part]
    away = queue_pkts - queue_pkts[-max(len(queue_pkts) // 10, 1) :].mean()
    # The first quarter holds the excursion that the step causes; later quarters oscillate.
    first = int(np.argmax(np.abs(away[: max(len(away) // 4, 1)])))
    time_s, away = time_s[first:] - time_s[first], away[first:]
    half_s = float(time_s[np.argmax(away / away[0] < 0.5)])
    return Response(half_s, *_second_order(time_s, away, starts))


def spread(
    time_s: Floats, runs_pkts: Floats, start_s: float, end_s: float, *, draws: int = 200
) -> Spread:
    """Return how much the response of the mean over runs varies by chance.

    Runs are drawn with replacement (Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
    chapter 13), always with the same seed.

    Parameters
    ----------
    time_s : Floats
        Times in seconds.
    runs_pkts : Floats
        Queue of each run at these times, one row per run.
    start_s : float
        Time of the step in seconds.
    end_s : float
        End of the response in seconds.
    draws : int, default 200
        Number of bootstrap samples.
    """
    rng = np.random.default_rng(1)
    whole = response(time_s, runs_pkts.mean(axis=0), start_s, end_s)
    starts = [(whole.frequency, whole.damping), (whole.frequency, 0.4)]
    redrawn = []
    for _ in range(draws):
        drawn = runs_pkts[rng.integers(len(runs_pkts), size=len(runs_pkts))]
        fit = response(time_s, drawn.mean(axis=0), start_s, end_s, starts)
        redrawn.append((fit.half_s, fit.turn_s, fit.damping))
    # "nearest" avoids an average of an infinite period and a finite one.
    low, high = np.quantile(np.array(redrawn), [0.025, 0.975], axis=0, method="nearest")
    pairs = [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
    return Spread(*pairs)


def _second_order(
    time_s: Floats, away: Floats, starts: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Return natural frequency (rad/s) and damping ratio of the least-squares fit.

    The two amplitudes and the offset are linear, so that only frequency and damping are searched.
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
