"""Laws that are a PI controller of the queue, whatever the names of their gains.

A PI changes its probability at every sample by p(k) = p(k−1) + a·e(k) − b·e(k−1), with the error e
of the queue. Laws write a and b differently, measure the delay instead of the queue, sample it
late, or scale their output by the link or by the probability. Their linear models include all of
this: the numerator is F(z)·(a − b·z⁻¹) over 1 − z⁻¹, with a path F that does not depend on the
gains. One set of gains over F·G therefore represents each of these laws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import forebay._native as _native
from forebay._base import registries
from forebay._native import LawModel

if TYPE_CHECKING:
    from forebay._native import LawEntry, LinearModel

Floats = NDArray[np.float64]
#: Relative difference of numbers that are equal up to rounding.
ROUNDING = 1e-7


@dataclass(frozen=True)
class PiForm:
    """The parameters in which a law writes its gains.

    Attributes
    ----------
    names : (str, str)
        Names of the two parameters.
    values : callable
        Function from a and b to both parameters.
    apart : bool
        True if the integral gain is a parameter of its own, instead of a small difference of two.
    of_delay : bool
        True if the error is a delay in seconds, instead of a queue in packets.
    """

    names: tuple[str, str]
    values: Callable[[float, float], tuple[float, float]]
    apart: bool = True
    of_delay: bool = False


FORMS = (
    PiForm(("a", "b"), lambda a, b: (a, b), apart=False),
    # Gains of the error and of its change.
    PiForm(("alpha", "beta"), lambda a, b: (a - b, b), of_delay=True),
    # The gain of both, and that of the error relative to it.
    PiForm(("gamma", "alpha"), lambda a, b: (b, a / b - 1)),
)


@dataclass(frozen=True)
class PiLaw:
    """A law that is a PI.

    Attributes
    ----------
    law : str
        Name of the law.
    form : PiForm
        The form of its gains.
    limits : (float, float)
        Largest values of both parameters.
    interval_s : float
        Default sampling interval.
    keys : (str, str)
        Names of the set-point and of the sampling interval.
    """

    law: str
    form: PiForm
    limits: tuple[float, float]
    interval_s: float
    keys: tuple[str, str]

    def params(self, a: float, b: float) -> tuple[tuple[str, float], ...] | None:
        """Return both parameters; None for gains that the law cannot have.

        Parameters
        ----------
        a, b : float
            Gains of the error and of the previous error.
        """
        if not 0 < b < a:
            return None
        values = self.form.values(a, b)
        if any(not 0 <= value <= limit for value, limit in zip(values, self.limits, strict=True)):
            return None
        return tuple(zip(self.form.names, values, strict=True))

    def texts(self, a: float, b: float) -> list[tuple[str, str]]:
        """Return both parameters as texts; an empty list for gains that the law cannot have.

        Parameters
        ----------
        a, b : float
            Gains of the error and of the previous error.
        """
        return [(name, self.text(value, a, b)) for name, value in self.params(a, b) or ()]

    def text(self, value: float, a: float, b: float) -> str:
        """Return a parameter as a text with six significant digits of the integral gain.

        Parameters
        ----------
        value : float
            The parameter.
        a, b : float
            Gains of the error and of the previous error.
        """
        if self.form.apart:
            return f"{value:.6g}"
        smaller = min(max(math.ceil(math.log10(a / (a - b))), 0), 9)
        return f"{value:.{6 + smaller}g}"


@cache
def pi_law(law: str) -> PiLaw | None:
    """Return the form of a law that is a PI of the queue; None for any other."""
    entry = registries.laws().get(law)
    if entry is None or entry["set_point"] is None:
        return None
    limits = {spec["name"]: spec["max"] for spec in entry["params"]}
    for form in FORMS:
        if not {*form.names, "interval", entry["set_point"]} <= set(limits):
            continue
        first, second = (_most(limits[name]) for name in form.names)
        keys = entry["set_point"], "interval"
        pi = PiLaw(law, form, (first, second), _seconds(entry, "interval"), keys)
        if _is_pi(pi):
            return pi
    return None


def pi_laws() -> list[str]:
    """Return the laws that are a PI."""
    return [law for law in registries.laws() if pi_law(law) is not None]


def of_delay(law: str) -> bool:
    """Return True if the gains of a law that is a PI are per second of delay."""
    pi = pi_law(law)
    return pi is not None and pi.form.of_delay


def law_path(model: LinearModel, a: float, b: float) -> Floats | None:
    """Return F in powers of z⁻¹; None if the law is not a PI of the queue.

    Parameters
    ----------
    model : LinearModel
        The law's linear model with these gains.
    a, b : float
        Gains of the error and of the previous error.
    """
    integrator = _integrator(model)
    if integrator is None:
        return None
    _, numerator = integrator
    # From the lowest power on, as z⁻¹ = 0 is no root of a − b·z⁻¹.
    remainder, path = np.array(numerator, float), []
    for i in range(len(remainder) - 1):
        path.append(remainder[i] / a)
        remainder[i : i + 2] -= path[-1] * np.array([a, -b])
    if not path or abs(remainder[-1]) > ROUNDING * np.abs(numerator).max():
        return None
    return np.array(path)


def integrates_differently(models: Sequence[LinearModel]) -> bool:
    """Return True if a PI schedules its gains: they differ between operating points."""
    integrals = [integral(model) for model in models]
    numbers = [k_i for k_i in integrals if k_i is not None]
    return len(numbers) == len(integrals) > 0 and max(numbers) > 1.05 * min(numbers)


def integral(model: LinearModel) -> float | None:
    """Return K_i in 1/(packet·s) of a sampled law that only integrates; None for other laws."""
    integrator = _integrator(model)
    return None if integrator is None else float(sum(integrator[1])) / integrator[0]


def _integrator(model: LinearModel) -> tuple[float, Sequence[float]] | None:
    """Return interval and numerator over 1 − z⁻¹ of a sampled law that only integrates."""
    sampled = model["sampled"]
    if sampled is None or model["average"] is not None or model["direct"] != 0:
        return None
    interval_s, numerator, denominator = sampled
    if len(denominator) != 2 or not np.allclose(denominator, (1.0, -1.0), atol=ROUNDING):
        return None
    return interval_s, numerator


def _is_pi(law: PiLaw) -> bool:
    """Return True if a law's path and equilibrium queue do not depend on its gains.

    This is tested on a link of 10 Mbit/s.
    """
    paths = []
    for a, b in ((2e-3, 1.9e-3), (5e-3, 2e-3)):
        params = law.params(a, b)
        if params is None:
            return False
        model = LawModel(law.law, [(law.keys[0], "20ms"), *params], 10_000_000, 1000, 500.0)
        equilibrium = model.operate(10.0, 0.1)
        if equilibrium is None:
            return False
        path = law_path(equilibrium[1], a, b)
        if path is None:
            return False
        paths.append((equilibrium[1]["queue_pkts"], path))
    (queue, first), (other_queue, second) = paths
    return (
        abs(queue - other_queue) <= ROUNDING * queue
        and len(first) == len(second)
        and bool(np.allclose(first, second, rtol=ROUNDING))
    )


def _most(limit: float | None) -> float:
    return float("inf") if limit is None else float(limit)


def _seconds(entry: LawEntry, name: str) -> float:
    default = next(spec["default"] for spec in entry["params"] if spec["name"] == name)
    if isinstance(default, float):
        return default
    return _native.quantity(name, str(default), "time")
