"""`forebay.design`: a design that draws itself, and goes to other tools."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from forebay._native import ScenarioError
from forebay.control import design as designs
from forebay.control import export
from forebay.control.designed_law import Design

if TYPE_CHECKING:
    from forebay.control.loop import Loop
    from forebay.report.plot import Plot

P = ParamSpec("P")


@dataclass(frozen=True)
class DrawnDesign(Design):
    """A `Design` with its figures; each is a `Plot`, which a notebook shows."""

    @property
    def title(self) -> str:
        return f"{self.law} for {self.link.rate}, {self.link.flows:g} flows"

    @property
    def plant(self) -> tuple[Any, Any]:
        """Numerator and denominator in s of TCP, queue and average, without their delay of
        `point.rtt_s`."""
        return export.plant(self._acting())

    def plot(self, kind: str = "bode") -> Plot:
        """A picture of the loop: "bode", "nichols", "step", "nyquist" or "roots".

        Raises `ScenarioError` for a law of rates, which has no loop of queue and probability.
        """
        from forebay.report import loops

        drawn = {
            "bode": loops.bode,
            "nichols": loops.nichols,
            "step": loops.step,
            "nyquist": loops.nyquist,
            "roots": loops.roots,
        }
        if kind not in drawn:
            raise ScenarioError(f'kind: found "{kind}", allowed: {", ".join(drawn)}')
        return drawn[kind](self._acting(), self.title)

    def bode(self) -> Plot:
        """|L| and its angle over frequency, with the margins."""
        return self.plot("bode")

    def nichols(self) -> Plot:
        """|L| over its angle, with |1/(1 + L)| = 2."""
        return self.plot("nichols")

    def step(self) -> Plot:
        """The queue after a tenth more flows have come."""
        return self.plot("step")

    def to_control(self, order: int = export.ORDER) -> dict[str, Any]:
        """Plant, law, loop and response for python-control; see `forebay.control.export`."""
        return export.to_control(self._acting(), order)

    def to_mat(self, path: str | os.PathLike[str]) -> None:
        """A file for MATLAB, Octave and Simulink; .json and .csv by the ending."""
        export.save(self._acting(), Path(path))

    def _repr_html_(self) -> str:
        from forebay.report import notebook

        margins = self.margins
        rows = [[name, value] for name, value in self.params]
        rows.append(["queue", f"{self.queue_pkts:.4g} packets"])
        if margins is not None:
            rows += [
                ["phase margin", f"{margins.phase_deg:.1f}°"],
                ["gain margin", f"{margins.gain_db:.1f} dB"],
                ["delay margin", f"{1e3 * margins.delay_s:.4g} ms"],
                ["sensitivity peak", f"{margins.sensitivity:.3g}"],
            ]
        rows.append(["settling time", f"{self.settling_s:.3g} s"])
        rows.append(["stable", "yes" if self.stable else "no"])
        link = f"{self.link.rate}, {self.link.flows:g} flows, RTT {self.link.rtts}"
        figure = self.plot() if self.loop is not None else None
        return notebook.html(f"{self.law} for {link}", [], rows, figure)

    def _acting(self) -> Loop:
        if self.loop is None:
            raise ScenarioError(
                f'law: found "{self.law}", which acts on rates, allowed: one with a loop of the '
                "queue"
            )
        return self.loop


def _drawn(designed: Callable[P, Design]) -> Callable[P, DrawnDesign]:
    """The same function, of designs with their figures."""

    @functools.wraps(designed)
    def drawn(*args: P.args, **keywords: P.kwargs) -> DrawnDesign:
        made = designed(*args, **keywords)
        return DrawnDesign(**{one.name: getattr(made, one.name) for one in fields(made)})

    says = inspect.signature(designed)
    drawn.__signature__ = says.replace(return_annotation="DrawnDesign")  # type: ignore[attr-defined]
    drawn.__annotations__ = designed.__annotations__ | {"return": "DrawnDesign"}
    drawn.__module__ = __name__
    return drawn


design = _drawn(designs.design)
