"""`forebay map`: where a law is stable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay._native import ScenarioError
from forebay.cli import options
from forebay.cli.options import L4sFlows, LawKind, NoStore, Packet, StoreAt, settings
from forebay.control.spans import DOTS, ends


def stability_map(
    law: LawKind,
    rate: Annotated[str, typer.Option(help="Rate of the link, or a range 5..50Mbit/s.")],
    flows: Annotated[str, typer.Option(help="Range of long-lived TCP flows, such as 10..400.")],
    rtt: Annotated[str, typer.Option(help="Propagation both ways, or a range 20..500ms.")],
    l4s_flows: L4sFlows = 0.0,
    packet: Packet = "1000B",
    buffer: Annotated[str | None, options.buffer("the largest bandwidth-delay product")] = None,
    set_: Annotated[
        list[str] | None,
        options.sets("A parameter of the law, such as a=1e-5, target=50p or target=40ms."),
    ] = None,
    points: Annotated[int, typer.Option(help="Cells along an axis.", min=2, max=2000)] = 200,
    simulate: Annotated[
        int, typer.Option(help="Packet simulations along an axis; 0 for none.", min=0, max=20)
    ] = 5,
    out: Annotated[Path | None, options.out("the map", "results/map-LAW")] = None,
    store: StoreAt = None,
    no_store: NoStore = False,
) -> None:
    """Map where a law is stable, over flows and RTT or flows and rate.

    Where there is no equilibrium, the map has another colour for each reason, and the table says
    which: TCP would need a probability of 1 or more, the buffer overflows first, or the law's
    probability jumps past the one that TCP needs.
    """
    import polars as pl

    from forebay import _native
    from forebay.control import maps
    from forebay.control.figures import draw_map
    from forebay.control.link import Link
    from forebay.report import place
    from forebay.run import progress
    from forebay.store import choice

    out = out or Path("results") / f"map-{law}"
    place.check(out)
    fewest, most = _range("--flows", flows)
    if DOTS in rate and DOTS in rtt:
        raise ScenarioError("--rate and --rtt: found two ranges, allowed: one")
    if DOTS not in rate and DOTS not in rtt:
        raise ScenarioError(f'--rtt: found "{rtt}", allowed: a range here or in --rate')
    axis = "rate" if DOTS in rate else "rtt"
    low, high = _range(f"--{axis}", rate if axis == "rate" else rtt)
    quantity = "rate" if axis == "rate" else "time"
    bounds = tuple(_native.quantity(f"--{axis}", text, quantity) for text in (low, high))
    counts = (float(_number("--flows", fewest)), float(_number("--flows", most)))
    for key, text, (a, b) in [
        ("--flows", flows, counts),
        (f"--{axis}", rate if axis == "rate" else rtt, bounds),
    ]:
        if not 0 < a < b:
            raise ScenarioError(f'{key}: found "{text}", allowed: from less to more, above zero')
    given = settings(set_)
    # The set-point matters only where the law has none among its parameters.
    link = Link.of(
        high if axis == "rate" else rate,
        packet,
        counts[1],
        high if axis == "rtt" else rtt,
        given.get("target", "1p"),
        buffer,
        l4s_flows,
    )
    with progress.status("finding where the loop is stable"):
        drawn = maps.stability_map(
            law, link, list(given.items()), counts, axis, (bounds[0], bounds[1]), points
        )
    if simulate:
        runs = choice.store(store, without=no_store)
        with progress.status("running packets at some of the cells"):
            drawn = maps.simulate(drawn, list(given.items()), simulate, store=runs)
    png = draw_map(drawn).png()
    out.mkdir(parents=True, exist_ok=True)
    (out / "map.png").write_bytes(png)
    rows, columns = drawn.stable.shape
    pl.DataFrame(
        {
            "flows": list(drawn.flows) * rows,
            "rate_bps" if axis == "rate" else "rtt_s": [
                v for v in drawn.values for _ in range(columns)
            ],
            "gain_margin_db": drawn.gain_margin_db.ravel(),
            "stable": drawn.stable.ravel(),
            "rest": drawn.rest.ravel(),
        }
    ).with_columns(
        pl.col("gain_margin_db").fill_nan(None),
        pl.when(pl.col("gain_margin_db").is_not_nan()).then("stable"),
    ).write_parquet(out / "map.parquet")
    cells = drawn.stable.size
    counted = drawn.counts()
    print(f"{law}: stable in {100 * counted['stable'] / cells:.0f} % of the map")
    for what, number in counted.items():
        print(f"  {number:,} of {cells:,} cells: {what}")
    if drawn.oscillation:
        print(f"Packets, {drawn.simulated_s:.0f} s each:")
    for count, value, deviation in drawn.oscillation:
        where = f"{value * 1e-6:.3g} Mbit/s" if axis == "rate" else f"{value * 1e3:.3g} ms"
        print(
            f"  {count:g} flows, {where}: {drawn.verdict(count, value)} by theory"
            f"{drawn.unsettled(count, value)}; in packets, standard deviation of the queue over "
            f"its mean {deviation:.2f}"
        )
    print(f"Map: {out / 'map.png'}")


def _range(key: str, text: str) -> tuple[str, str]:
    if DOTS not in text:
        raise ScenarioError(f'{key}: found "{text}", allowed: a range such as 10..400')
    return ends(key, text)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ScenarioError(f'{key}: found "{text}", allowed: a number') from None
