"""Maps of stability from Python: `forebay.stability_map`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import forebay._native as _native
from forebay._base import progress, quantities
from forebay._base.quantities import DOTS, range_ends
from forebay._native import ScenarioError
from forebay.control import measured_law, stability
from forebay.control.loaded_link import PLAIN, LoadedLink, PerClass
from forebay.control.plants import WINDOWS
from forebay.control.stability import Map

if TYPE_CHECKING:
    from forebay.experiment.store import Store
    from forebay.report.plot import Plot


class StabilityMap(Map):
    """A map of where a law is stable, which draws itself."""

    def plot(self) -> Plot:
        """The map, with the simulated points on it."""
        from forebay.report.map_picture import draw_map

        return draw_map(self)

    def _repr_html_(self) -> str:
        from forebay.report import notebook

        rows = [
            [what, f"{number:,}", f"{100 * number / self.stable.size:.0f} %"]
            for what, number in self.counts().items()
        ]
        title = f"{self.law}: where its loop is stable"
        return notebook.html(title, ["", "cells", "share"], rows, self.plot())

    def __repr__(self) -> str:
        counted = ", ".join(f"{number:,} {what}" for what, number in self.counts().items())
        return f"<StabilityMap of {self.law}, {self.stable.size:,} cells: {counted}>"


def stability_map(
    law: str,
    rate: str,
    flows: str,
    rtt: PerClass,
    *,
    packet: str = "1000B",
    buffer: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    l4s_flows: float = 0.0,
    points: int = 100,
    simulate: int = 0,
    store: Store | None = None,
    windows: str = WINDOWS[0],
    tcp: PerClass = PLAIN,
) -> StabilityMap:
    """Maps where a law is stable, over flows and RTT or over flows and rate.

    law: its name in `forebay laws`; or a law written in Python, as FILE.py:NAME, whose measured
        linear model is the same at every load.
    flows: a range of long-lived TCP flows, such as "10..400".
    rate, rtt: one of them a range, such as "5..50Mbit/s" or "20..500ms"; rtt is propagation, both
        ways.
    packet: size of a packet. buffer: such as "800p"; the largest bandwidth-delay product if None.
    overrides: parameters of the law, such as {"target": "40ms"}.
    l4s_flows: scalable flows beside the classic ones, under a law that couples both.
    points: cells along an axis. simulate: packet simulations along an axis; 0 for none. store:
        where these are kept; nowhere if None.
    windows: "published", the plant of the papers, or "sawtooth", which is nearer to packets: ACKs
        are the flows' clock, and windows sawteeth.
    tcp: sender of the flows, as of `forebay.design`. It or rtt may be a list, of classes of flows
        between which the flows are divided equally; the range is then of `rate`.

    Theory decides each cell, with delay, sampler and hold exact. A Ctrl-C while packets run leaves
    the map without them, and says so in its `interrupted`. Raises `ScenarioError` for bad input.
    """
    fewest, most = _range("--flows", flows)
    rtt = rtt if isinstance(rtt, str) else ",".join(_listed(rtt))
    if DOTS in rtt and "," in rtt:
        raise ScenarioError(
            f'--rtt: found "{rtt}", allowed: a range, or a list beside a range of rate'
        )
    if DOTS in rate and DOTS in rtt:
        raise ScenarioError("--rate and --rtt: found two ranges, allowed: one")
    if DOTS not in rate and DOTS not in rtt:
        for text in rtt.split(","):
            _native.quantity("--rtt", text, "time")
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
    if measured_law.is_python(law) and windows != WINDOWS[0]:
        raise ScenarioError(f"windows: {windows!r} with a law in Python; write {WINDOWS[0]!r}")
    given = {key: quantities.plain(value) for key, value in (overrides or {}).items()}
    # The set-point matters only where the law has none among its parameters.
    link = LoadedLink.from_texts(
        high if axis == "rate" else rate,
        packet,
        counts[1],
        high if axis == "rtt" else rtt,
        given.get("target", "1p"),
        buffer,
        l4s_flows,
        tcp,
    )
    params = list(given.items())
    try:
        with progress.status("finding where the loop is stable"):
            drawn = stability.stability_map(
                law, link, params, counts, axis, (bounds[0], bounds[1]), points, windows
            )
    except ScenarioError as error:
        if "target" in given or not str(error).startswith("target: "):
            raise
        raise ScenarioError(
            f"{error}; it is {law}'s own, and `--set target=…` gives another"
        ) from None
    if simulate:
        try:
            with progress.status("running packets at some of the cells"):
                drawn = stability.simulate(drawn, params, simulate, store=store)
        except KeyboardInterrupt:
            drawn = replace(drawn, interrupted=True)
    return StabilityMap(**vars(drawn))


def _listed(value: PerClass) -> list[str]:
    return [str(one) for one in value] if isinstance(value, Sequence) else [str(value)]


def _range(key: str, text: str) -> tuple[str, str]:
    if DOTS not in text:
        raise ScenarioError(f'{key}: found "{text}", allowed: a range such as 10..400')
    return range_ends(key, text)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ScenarioError(f'{key}: found "{text}", allowed: a number') from None
