"""The files of a design: the scenario, the numbers and the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base import words
from forebay._base.publication import publish
from forebay.control import measured_law
from forebay.control.designed_law import Design
from forebay.control.pi_stabilising_set import RangeDesign
from forebay.report import loops
from forebay.scenario.builder import Law

if TYPE_CHECKING:
    from forebay._base.publication import Content

#: Of a design for a range: the law and the pictures.
LAW, PICTURES = "law.toml", ("gains", "bode", "nichols", "step")


def write(result: Design, out: Path) -> list[Path]:
    """Write a design for one link to `out`, and return its files.

    A law written in Python is copied next to the scenario, which may load code only from its own
    folder.
    """
    contents: dict[str, Content] = {"design.json": result.as_json()}
    scenario = result.toml()
    if measured_law.is_python(result.kind):
        file, _, name = result.kind.rpartition(":")
        contents[Path(file).name] = Path(file).read_bytes()
        scenario = scenario.replace(result.kind, f"{Path(file).name}:{name}")
    contents[f"{result.law}.toml"] = scenario
    if result.loop is not None:
        link = result.link
        beside = f" and {link.l4s_flows:g} of L4S" if link.l4s_flows else ""
        beside += f" of {link.senders}" if link.groups else ""
        title = f"{result.law} for {words.quantity(link.rate)}, {link.flows:g} flows{beside}"
        for name, draw in [
            ("bode", loops.bode),
            ("step", loops.step),
            ("nyquist", loops.nyquist),
            ("nichols", loops.nichols),
            ("roots", loops.roots),
        ]:
            contents |= draw(result.loop, title).files(name)
    return publish(out, contents)


def write_range(found: RangeDesign, out: Path) -> list[Path]:
    """Writes a design for a range of links to `out`, and returns its files."""
    every, title = [*found.loops, *found.inside], f"{found.law} over the range"
    figures = (
        loops.regions(found),
        loops.bode_of_range(every, found.middle, title),
        loops.nichols_of_range(every, found.middle, title),
        loops.step_of_range(found.loops, found.middle, title),
    )
    contents: dict[str, Content] = {LAW: Law(found.law, found.params).text() + "\n"}
    contents |= {f"{name}.png": one.png() for name, one in zip(PICTURES, figures, strict=True)}
    return publish(out, contents)
