"""`forebay map`: where a law is stable."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay._base import signals
from forebay._base.quantities import DOTS
from forebay._base.words import in_figures
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation
from forebay.cli.options import (
    L4sFlows,
    LawKind,
    OutputOptions,
    Packet,
    Settings,
    StoreOptions,
    Tcp,
    console,
    settings,
)

if TYPE_CHECKING:
    from forebay.control.stability_map import StabilityMap


@with_options
def stability_map(
    law: LawKind,
    /,
    *,
    rate: str,
    flows: str,
    rtt: str,
    tcp: Tcp = "reno",
    l4s_flows: L4sFlows = 0.0,
    packet: Packet = "1000B",
    buffer: str | None = None,
    set_: Settings = None,
    windows: str = "published",
    points: Annotated[int, typer.Option(min=2, max=2000)] = 200,
    simulate: Annotated[int, typer.Option(min=0, max=20)] = 5,
    output: OutputOptions,
    kept: StoreOptions,
) -> None:
    """Map where a law is stable, over flows and RTT or flows and rate.

    Cells without equilibrium have a colour for each reason, and the table says which.

    rate: Rate of the link, or a range 5..50Mbit/s.
    flows: Range of long-lived TCP flows, such as 10..400.
    rtt: Propagation both ways, a range 20..500ms, or of classes 20ms,80ms.
    buffer: Buffer size in packets, such as 500p; the largest bandwidth-delay product if it is left
        out.
    set_: A parameter of the law, such as a=1e-5, target=50p or target=40ms.
    windows NAME: How flows are described: published, as in the papers; sawtooth, nearer to
        packets, with ACKs as the clock and windows in sawteeth.
    points: Cells along an axis.
    simulate: Packet simulations along an axis; 0 for none.
    out: Folder for the map; results/map-LAW if it is left out.
    """
    from forebay.control import stability_map as mapped
    from forebay.experiment import store_choice as choice

    call = Invocation.begun(output, f"map-{law.rpartition(':')[2]}")
    out = call.folder
    axis = "rate" if DOTS in rate else "rtt"
    runs = choice.store(kept.store, without=kept.no_store) if simulate else None
    drawn = mapped.stability_map(
        law, rate, flows, rtt, packet=packet, buffer=buffer, overrides=settings(set_),
        l4s_flows=l4s_flows, points=points, simulate=simulate, store=runs, windows=windows, tcp=tcp,
    )  # fmt: skip
    if out is not None:
        _write(drawn, axis, out)
    if call.as_json:
        print(json.dumps(_json(drawn, axis)))
        _end(drawn)
        return
    cells = drawn.stable.size
    counted = drawn.counts()
    flows_are = "" if drawn.windows == "published" else f", {drawn.windows} windows"
    print(f"{law}{flows_are}: stable in {100 * counted['stable'] / cells:.0f} % of the map")
    for what, number in counted.items():
        print(f"  {number:,} of {cells:,} cells: {what}")
    if drawn.oscillation:
        print(f"Packets, {drawn.simulated_s:.0f} s each: the queue's deviation over its mean")
        _show_packets(drawn, axis)
    print(f"Map: {out}/map.png")
    _end(drawn)


def _show_packets(drawn: StabilityMap, axis: str) -> None:
    from forebay._base import terminal_table
    from forebay._base.terminal_table import Column, RowGroup

    per_unit = 1e-6 if axis == "rate" else 1e3
    columns = [
        Column("Flows"),
        Column("Rate", "Mbit/s") if axis == "rate" else Column("RTT", "ms"),
        Column("Deviation / mean"),
        Column("By theory", sentence=True),
    ]
    rows = [
        [
            f"{flows:g}",
            in_figures(value * per_unit),
            f"{deviation:.2f}",
            drawn.verdict(flows, value) + drawn.unsettled(flows, value),
        ]
        for flows, value, deviation in drawn.oscillation
    ]
    terminal_table.show(console(), columns, [RowGroup(rows)], keys=2)


def _end(drawn: StabilityMap) -> None:
    if drawn.interrupted:
        print("interrupted: the map has no packets", file=sys.stderr)
        raise typer.Exit(signals.status())


def _json(drawn: StabilityMap, axis: str) -> dict[str, Any]:
    """Counts of cells, and the packets of those that were simulated."""
    return {
        "law": drawn.law,
        "windows": drawn.windows,
        "cells": drawn.stable.size,
        "counts": drawn.counts(),
        "simulated_s": drawn.simulated_s if drawn.oscillation else None,
        "packets": [
            {
                "flows": flows,
                "rate_bps" if axis == "rate" else "rtt_s": value,
                "by_theory": drawn.verdict(flows, value),
                "deviation_over_mean": deviation,
            }
            for flows, value, deviation in drawn.oscillation
        ],
        "interrupted": drawn.interrupted,
    }


def _write(drawn: StabilityMap, axis: str, out: Path) -> None:
    """The picture and the cells."""
    import polars as pl

    from forebay._base.publication import publish

    rows, columns = drawn.stable.shape
    table = pl.DataFrame(
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
    )
    publish(out, {**drawn.plot().files("map"), "map.parquet": table})
