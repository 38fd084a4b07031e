"""`forebay.design`: a design that draws itself, and goes to other tools."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay._native import ScenarioError
from forebay.control import design as designs
from forebay.control import export, pictures
from forebay.control.designed import Design

if TYPE_CHECKING:
    from forebay.control.loop import Loop
    from forebay.report.plots import Plot


@dataclass(frozen=True)
class Drawn(Design):
    """A `Design` with its figures; each is a `Plot`, which a notebook shows."""

    @property
    def title(self) -> str:
        return f"{self.law} for {self.link.rate}, {self.link.flows:g} flows"

    @property
    def plant(self) -> tuple[Any, Any]:
        """Numerator and denominator in s of TCP, queue and average, without their delay of
        `point.rtt_s`."""
        return export.plant(self._acting())

    def bode(self) -> Plot:
        """|L| and its angle over frequency, with the margins."""
        return pictures.bode(self._acting(), self.title)

    def nichols(self) -> Plot:
        """|L| over its angle, with |1/(1 + L)| = 2."""
        return pictures.nichols(self._acting(), self.title)

    def step(self) -> Plot:
        """The queue after a tenth more flows have come."""
        return pictures.step(self._acting(), self.title)

    def to_control(self, order: int = export.ORDER) -> dict[str, Any]:
        """Plant, law, loop and response for python-control; see `forebay.control.export`."""
        return export.to_control(self._acting(), order)

    def to_mat(self, path: str | os.PathLike[str]) -> None:
        """A file for MATLAB, Octave and Simulink; .json and .csv by the ending."""
        export.save(self._acting(), Path(path))

    def _acting(self) -> Loop:
        if self.loop is None:
            raise ScenarioError(
                f'law: found "{self.law}", which acts on rates, allowed: one with a loop of the '
                "queue"
            )
        return self.loop


def design(
    law: str,
    rate: str,
    flows: float,
    rtt: str,
    packet: str = "1000B",
    target: str | None = None,
    buffer: str | None = None,
    sets: Mapping[str, Any] | None = None,
    l4s_flows: float = 0.0,
) -> Drawn:
    """Designs a law for a link; arguments and errors as of `forebay.control.design.design`."""
    made = designs.design(law, rate, flows, rtt, packet, target, buffer, sets, l4s_flows)
    return Drawn(**{one.name: getattr(made, one.name) for one in fields(made)})
