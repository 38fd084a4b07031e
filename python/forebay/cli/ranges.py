"""`forebay design` for a range of links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._native import ScenarioError
from forebay.cli import options
from forebay.control.spans import ends

if TYPE_CHECKING:
    from forebay.control.robust import Robust

#: The law and the pictures.
LAW, PICTURES = "law.toml", ("gains", "bode", "nichols", "step")


def design(
    law: str,
    rate: str,
    rtt: str,
    flows: str,
    packet: str,
    target: str | None,
    interval: str | None,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    """One PI for every corner of the ranges: shown, or as JSON, and written to `out`."""
    from forebay.control import robust
    from forebay.report import place
    from forebay.run.scenario import Law

    counts = []
    for text in ends("--flows", flows):
        try:
            counts.append(float(text))
        except ValueError:
            raise ScenarioError(f'--flows: found "{flows}", allowed: such as 10..400') from None
    if out is None and not as_json:
        out = Path("results") / f"design-{law}"
    if out is not None:
        place.check(out)
    found = robust.design(
        law, ends("--rate", rate), ends("--rtt", rtt), counts, packet, target, interval
    )
    table = Law(law, found.params).text()
    if out is not None:
        drawn = _pictures(found)
        out.mkdir(parents=True, exist_ok=True)
        (out / LAW).write_text(table + "\n")
        for name, png in drawn.items():
            (out / f"{name}.png").write_bytes(png)
    if as_json:
        print(json.dumps(found.as_json()))
        return
    _show(found, table)
    print(f"\nWritten: {out}/{{{LAW},{','.join(f'{name}.png' for name in PICTURES)}}}")


def _pictures(found: Robust) -> dict[str, bytes]:
    from forebay.control import bands, pictures

    every, title = [*found.loops, *found.inside], f"{found.law} over the range"
    figures = (
        pictures.regions(found),
        bands.bode(every, found.middle, title),
        bands.nichols(every, found.middle, title),
        bands.step(found.loops, found.middle, title),
    )
    return {name: one.png() for name, one in zip(PICTURES, figures, strict=True)}


def _show(found: Robust, table: str) -> None:
    from rich.table import Table

    from forebay.control import robust

    shown = Table(title=f"{found.law} for every corner", title_justify="left", box=None)
    for title in ("rate", "RTT", "flows", "S", "settles in", "own K_i"):
        shown.add_column(title, justify="right")
    for one, loop, own in zip(found.corners, found.loops, found.own, strict=True):
        shown.add_row(
            one.place.rate,
            one.place.rtt,
            f"{one.place.flows:g}",
            f"{robust.peak(loop):.2f}",
            f"{loop.settling_s:.3g} s",
            f"{own.k_i / found.gains.k_i:.3g} times",
        )
    console = options.console(80)
    console.print(shown)
    for line in found.left_out:
        console.print(f"left out: {line}", markup=False)
    gains = found.gains
    console.print(
        f"\nK_p = {gains.k_p:.4g}, K_i = {gains.k_i:.4g}/s every {1e3 * gains.interval_s:.3g} ms: "
        "the largest K_i with |1/(1 + L)| at most 2 at every corner."
    )
    if not found.suffices:
        console.print(
            "One set of gains does not suffice: some corners alone could bear more than "
            f"{robust.SLOW:g} times the integral. Gains by the load and the rate:"
        )
        for one, own in zip(found.corners, found.own, strict=True):
            console.print(
                f"    {one.place.rate}, {one.place.rtt}, {one.place.flows:g} flows: "
                + " ".join(f"{name}={value}" for name, value in found.written(own)),
                markup=False,
            )
        console.print("A law that tunes itself follows them: `forebay laws` names those.")
    console.print()
    for line in table.splitlines():
        console.print(f"    {line}", markup=False)
