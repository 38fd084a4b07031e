"""Maps of stability over the load and the RTT, or over the load and the rate.

Theory decides every cell by Nyquist's count, with delay, sampler and hold exact. Packet simulations
of a few cells measure how much the queue oscillates.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

import forebay._native as _native
from forebay._base import progress, signals
from forebay._base.errors import ParameterError
from forebay._base.publication import publish
from forebay._base.quantities import Overrides
from forebay._base.registries import law_pairs
from forebay._base.words import check_choice
from forebay._native import ScenarioError
from forebay.control import margins, measured_law
from forebay.control.link import Link, Span, quantity, scenario_toml, span_ends
from forebay.control.plant import REASONS, Plant
from forebay.control.plants import WINDOWS, Windows, plant_on

if TYPE_CHECKING:
    import polars as pl

    from forebay._base.publication import Content
    from forebay._native import LinearModel
    from forebay.experiment.store import StoreLike
    from forebay.report.plot import Plot

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Words = NDArray[np.str_]
Params = Sequence[tuple[str, str]]

#: Largest number of packets of all simulations of a map: about twenty minutes on one core.
MOST_PACKETS = 2e9
#: Duration of a simulation in settling times; it is measured after the first of them.
SETTLED = 3.0
#: Figures of a map.
MapPicture = Literal["map"]
#: Axis of a map next to the number of flows.
Axis = Literal["rtt", "rate"]
#: Shortest and longest duration of a simulation, in seconds.
SHORTEST_S, LONGEST_S = 30.0, 300.0


@dataclass(frozen=True)
class StabilityMap:
    """A map of where a law's loop is stable.

    Columns correspond to `flows`, and rows to `values`.

    Attributes
    ----------
    law : str
        Name of the law.
    link : Link
        The link, for everything that no axis varies.
    axis : {"rtt", "rate"}
        The axis of the rows.
    flows : array of shape (n,)
        Numbers of flows.
    values : array of shape (m,)
        Propagation RTTs in seconds, or rates in bit/s.
    gain_margin_db : array of shape (m, n)
        Gain margins; negative for an unstable loop, NaN without an equilibrium.
    stable : array of shape (m, n)
        True where the loop is stable.
    rest : array of shape (m, n)
        "linear" where there is an equilibrium, or else a key of `plant.REASONS`.
    oscillation : sequence of (flows, value, ratio)
        Standard deviation over mean of the queue of each simulated cell.
    simulated_s : float
        Duration of each simulation.
    settling_s : dict
        Settling time of each simulated cell, by theory.
    windows : {"published", "sawtooth"}
        Description of Reno flows.
    measured : LinearModel or None
        Measured model of a law written in Python.
    interrupted : bool
        True if Ctrl-C ended the simulations, so the map has none.
    target_pkts : float
        Set-point in packets, from which simulations measure deviations.
    """

    law: str
    link: Link
    axis: Axis
    flows: Floats
    values: Floats
    gain_margin_db: Floats
    stable: Flags
    rest: Words
    oscillation: Sequence[tuple[float, float, float]] = ()
    simulated_s: float = 0.0
    settling_s: Mapping[tuple[float, float], float] = field(default_factory=dict)
    windows: Windows = "published"
    measured: LinearModel | None = None
    interrupted: bool = False
    target_pkts: float = 1.0

    def rate_and_rtt(self, value: float) -> tuple[float, float]:
        """Return rate in bit/s and RTT in seconds at a value of the axis."""
        if self.axis == "rate":
            return value, self.link.rtt_s
        return self.link.rate_bps, value

    def counts(self) -> dict[str, int]:
        """Return the number of stable and unstable cells, and of those without equilibrium."""
        unstable = (self.rest == "linear") & ~self.stable
        missing = {
            f"no equilibrium: {words}": int((self.rest == how).sum())
            for how, words in REASONS.items()
            if (self.rest == how).any()
        }
        return {"stable": int(self.stable.sum()), "unstable": int(unstable.sum())} | missing

    def unsettled(self, flows: float, value: float) -> str:
        """Return a remark on a cell whose simulation was shorter than it needs to settle; else "".

        Parameters
        ----------
        flows : float
            Number of flows.
        value : float
            RTT or rate.
        """
        needs_s = self.settling_s.get((flows, value), 0.0)
        if SETTLED * needs_s <= self.simulated_s:
            return ""
        return f" (settling time {needs_s:.0f} s: the simulation shows the start)"

    def verdict(self, flows: float, value: float) -> str:
        """Return theory's verdict on the cell that is closest to an operating point.

        Parameters
        ----------
        flows : float
            Number of flows.
        value : float
            RTT or rate.
        """
        column = int(np.abs(np.log(self.flows / flows)).argmin())
        row = int(np.abs(np.log(self.values / value)).argmin())
        if np.isnan(self.gain_margin_db[row, column]):
            return f"no equilibrium ({REASONS[str(self.rest[row, column])]})"
        return "stable" if self.stable[row, column] else "unstable"

    @property
    def _axis_column(self) -> str:
        """Name of the axis' column in tables."""
        return "rate_bps" if self.axis == "rate" else "rtt_s"

    def to_dict(self) -> dict[str, Any]:
        """Return the counts of cells and the results of simulated cells, for JSON."""
        return {
            "law": self.law,
            "windows": self.windows,
            "cells": self.stable.size,
            "counts": self.counts(),
            "simulated_s": self.simulated_s if self.oscillation else None,
            "packets": [
                {
                    "flows": flows,
                    self._axis_column: value,
                    "by_theory": self.verdict(flows, value),
                    "deviation_over_mean": deviation,
                }
                for flows, value, deviation in self.oscillation
            ],
            "interrupted": self.interrupted,
        }

    def frame(self) -> pl.DataFrame:
        """Return a table with a row for each cell.

        Its columns are flows, rtt_s or rate_bps, gain_margin_db, stable and rest, which is how the
        flows settle. Without an equilibrium, gain_margin_db and stable are null.
        """
        import polars as pl

        rows, columns = self.stable.shape
        return pl.DataFrame(
            {
                "flows": list(self.flows) * rows,
                self._axis_column: [value for value in self.values for _ in range(columns)],
                "gain_margin_db": self.gain_margin_db.ravel(),
                "stable": self.stable.ravel(),
                "rest": self.rest.ravel(),
            }
        ).with_columns(
            pl.col("gain_margin_db").fill_nan(None),
            pl.when(pl.col("gain_margin_db").is_not_nan()).then("stable"),
        )

    def plot(self, kind: MapPicture = "map") -> Plot:
        """Draw the map, with the simulated points on it.

        Parameters
        ----------
        kind : {"map"}, optional
            The figure.

        Raises
        ------
        ParameterError
            If there is no such figure.
        """
        from forebay.report.loops import draw_map

        check_choice("kind", kind, get_args(MapPicture))
        return draw_map(self)

    def files(self) -> dict[str, Content]:
        """Return the contents of the files of a report, by name: the figure and the cells."""
        return {**self.plot().files("map"), "map.parquet": self.frame()}

    def report(self, out: str | os.PathLike[str]) -> list[Path]:
        """Write the figure and the table of cells to a folder, and return the files."""
        return publish(out, self.files())

    def __str__(self) -> str:
        """Return the number of cells of each kind in a few lines."""
        cells, counts = self.stable.size, self.counts()
        windows = "" if self.windows == WINDOWS[0] else f", {self.windows} windows"
        share = 100 * counts["stable"] / cells
        lines = [f"{self.law}{windows}: stable in {share:.0f} % of the map"]
        lines += [f"  {number:,} of {cells:,} cells: {kind}" for kind, number in counts.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from forebay.report import notebook

        rows = [
            [kind, f"{number:,}", f"{100 * number / self.stable.size:.0f} %"]
            for kind, number in self.counts().items()
        ]
        title = f"{self.law}: where its loop is stable"
        return notebook.html(title, ["", "cells", "share"], rows, self.plot())

    def __repr__(self) -> str:
        """Return the law and the number of cells of each kind in one line."""
        counted = ", ".join(f"{number:,} {kind}" for kind, number in self.counts().items())
        return f"<StabilityMap of {self.law}, {self.stable.size:,} cells: {counted}>"


def stability_map(
    law: str,
    link: Link,
    *,
    flows: Span,
    rtt: Span | None = None,
    rate: Span | None = None,
    overrides: Overrides = (),
    points: int = 100,
    simulate: int = 0,
    store: StoreLike | None = None,
    windows: Windows = "published",
) -> StabilityMap:
    """Map where a law is stable, over flows and RTT or over flows and rate.

    Theory decides each cell, with delay, sampler and hold exact. Ctrl-C while packets run gives the
    map without them, and sets its `interrupted`.

    Parameters
    ----------
    law : str
        A name of `forebay laws`; or a law written in Python, as ``"FILE.py:NAME"``, whose measured
        linear model is the same at every load.
    link : Link
        The link, for everything that no axis varies. Its default buffer is the largest
        bandwidth-delay product of the map.
    flows : pair or str
        Range of the number of long-lived TCP flows, such as ``(10, 400)`` or ``"10..400"``. The
        classes of flows keep their shares of it.
    rtt, rate : pair or str, optional
        Range of the other axis, such as ``("5ms", "300ms")`` or ``"5..50Mbit/s"``: one of the two.
        A map over the RTT needs a link whose flows have one RTT.
    overrides : dict, str or sequence, optional
        Parameters of the law, such as ``{"target": "40ms"}``.
    points : int, optional
        Cells along an axis.
    simulate : int, optional
        Packet simulations along an axis; none by default.
    store : Store, str or PathLike, optional
        Store of runs, or its address, which keeps simulations; nothing is stored by default.
    windows : {"published", "sawtooth"}, optional
        The plant of the papers, or one that is nearer to packets: ACKs are the flows' clock, and
        windows are sawteeth.

    Raises
    ------
    ScenarioError
        If a law, parameter or range is wrong, or the law has no linear model.

    Examples
    --------
    >>> link = forebay.Link(rate="50Mbit/s", rtt="40ms", flows=30)
    >>> smap = forebay.stability_map("pi", link, flows=(10, 400), rtt=("5ms", "300ms"))
    """
    params = dict(law_pairs(law, overrides))
    if measured_law.is_python(law) and windows != WINDOWS[0]:
        expected, reason = WINDOWS[0], "a law in Python has no equations for it"
        raise ParameterError("windows", windows, expected, reason=reason)
    axis, loads, values, longest = _ranges(link, flows, rtt, rate)
    if axis == "rtt":
        link = link.varied(rtt=longest, flows=loads[1])
    else:
        link = link.varied(rate=longest, flows=loads[1])
    # The set-point matters only where the law has none among its parameters.
    target_pkts = link.set_point_pkts(params.get("target", "1p"))
    link = link.with_buffer_for(target_pkts)
    with progress.status("finding where the loop is stable"), _naming_default_target(law, params):
        result = theory_map(law, link, [*params.items()], loads, axis, values, points, windows)
    result = replace(result, target_pkts=target_pkts)
    if not simulate:
        return result
    try:
        with progress.status("running packets at some of the cells"):
            return with_packets(result, [*params.items()], simulate, store)
    except KeyboardInterrupt:
        return replace(result, interrupted=True)


@contextmanager
def _naming_default_target(law: str, params: Mapping[str, str]) -> Iterator[None]:
    """Add to an error of the set-point that it is the law's default, if it is."""
    try:
        yield
    except ScenarioError as error:
        if "target" in params or not str(error).startswith("target: "):
            raise
        raise ScenarioError(
            f"{error}; it is the default set-point of {law}, and target=… sets another"
        ) from None


def _ranges(
    link: Link, flows: Span, rtt: Span | None, rate: Span | None
) -> tuple[Axis, tuple[float, float], tuple[float, float], str]:
    """Return the axis, the ends of flows and axis in base units, and the axis' upper end as text.

    Raises `ParameterError` unless exactly one of RTT and rate is a range.
    """
    loads = _bounds("flows", flows, None)
    if (rtt is None) == (rate is None):
        expected = "a range of the RTT or of the rate, and not both"
        raise ParameterError("rtt", rtt, expected)
    if rtt is not None and len({group.rtt for group in link.groups}) > 1:
        expected = "flows with one RTT, or a range of the rate"
        raise ParameterError("rtt", rtt, expected, reason=f"the flows have RTTs of {link.rtts}")
    if rtt is not None:
        return "rtt", loads, _bounds("rtt", rtt, "time"), span_ends("rtt", rtt, "time")[1]
    assert rate is not None
    return "rate", loads, _bounds("rate", rate, "rate"), span_ends("rate", rate, "rate")[1]


def _bounds(name: str, span: Span, kind: str | None) -> tuple[float, float]:
    """Return the ends of a range in base units; kind is None for plain numbers.

    Raises `ParameterError` unless it goes from less to more, above zero.
    """
    ends = span_ends(name, span, kind)
    low, high = (_number(name, end) if kind is None else quantity(name, end, kind) for end in ends)
    if not 0 < low < high:
        raise ParameterError(name, span, "from less to more, above zero")
    return low, high


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError(name, text, "a number") from None


# --- theory -------------------------------------------------------------------------------------


def theory_map(
    law: str,
    link: Link,
    params: Params,
    flows: tuple[float, float],
    axis: Axis,
    values: tuple[float, float],
    points: int = 200,
    windows: Windows = "published",
) -> StabilityMap:
    """Return theory's map on `points` × `points` cells, evenly spaced in the logarithm.

    Parameters
    ----------
    law : str
        Name of the law, or FILE.py:NAME.
    link : Link
        The link, for everything that no axis varies.
    params : sequence of (name, value)
        Parameters of the law.
    flows : (float, float)
        Range of the number of flows.
    axis : {"rtt", "rate"}
        The other axis.
    values : (float, float)
        Its range, in seconds or bit/s.
    points : int, optional
        Number of cells along an axis.
    windows : {"published", "sawtooth"}, optional
        Description of Reno flows.

    Raises
    ------
    ScenarioError
        If the law or a parameter is wrong.
    """
    columns, rows = np.geomspace(*flows, points), np.geomspace(*values, points)
    rates_bps = [round(rate) for rate in rows] if axis == "rate" else [link.rate_bps] * points
    links = [link.at_rate(rate_bps) for rate_bps in rates_bps]
    rtts = [link.rtt_s] * points if axis == "rate" else [float(value) for value in rows]
    measured = None
    if measured_law.is_python(law):
        measured = measured_law.common_model(law, links, rtts, flows, dict(params))
    plants = [_plant(row_link, law, params, windows, measured) for row_link in links]
    signals.end_waits()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = list(pool.map(_line, plants, rtts, [columns] * points))
    rest, margin, stable = (np.concatenate(cells) for cells in zip(*lines, strict=True))
    if set(rest) == {"unmodelled"}:
        modelled = [entry["name"] for entry in _native.laws() if entry["modelled"]]
        reason = "it has no linear model with these parameters"
        raise ParameterError("law", law, ", ".join(modelled), reason=reason)
    shape = (points, points)
    return StabilityMap(
        law, link, axis, columns, rows, margin.reshape(shape), stable.reshape(shape),
        rest.reshape(shape), windows=windows, measured=measured,
    )  # fmt: skip


def _plant(
    link: Link, law: str, params: Params, windows: Windows, measured: LinearModel | None
) -> Plant:
    """Return the plant of a law on a link; `measured` is the model of a law in Python."""
    if measured is None:
        return plant_on(link, law, params, windows)
    return measured_law.plant_of(link, measured)


def _line(plant: Plant, rtt_s: float, flows: Floats) -> tuple[list[str], Floats, Flags]:
    """Return outcome, margin and stability for each number of flows at one RTT and rate."""
    line = plant.load_line(flows, rtt_s)
    margin, stable = np.full(len(flows), np.nan), np.zeros(len(flows), bool)
    for loads, terms in line.loops:
        margin[loads], stable[loads] = margins.count_columns(terms, len(loads))
    for i in np.flatnonzero(margins.is_near_edge(margin)).tolist():
        loop = plant.loop_at(float(flows[i]), rtt_s)
        assert loop is not None
        margin[i], stable[i] = loop.margin_near(margin[i])
    return line.how, margin, stable


# --- packets ------------------------------------------------------------------------------------


def with_packets(
    theory: StabilityMap, params: Params, points: int, store: StoreLike | None
) -> StabilityMap:
    """Return the map with `points` × `points` packet simulations of long-lived flows.

    Each lasts three settling times of the slowest stable cell among them, within `LONGEST_S` and
    `MOST_PACKETS` in total. On links so fast that the shortest simulations exceed that, there are
    none, and a warning says so.

    Parameters
    ----------
    theory : StabilityMap
        The map.
    params : sequence of (name, value)
        Parameters of the law.
    points : int
        Number of simulations along an axis.
    store : Store, str or PathLike or None
        Store of runs, or its address.
    """
    from forebay.experiment import execution, experiment
    from forebay.experiment import store as stores

    flows = sorted({max(1, round(n)) for n in _inner(theory.flows, points)})
    cells = [(float(n), value) for n in flows for value in _inner(theory.values, points)]
    bits_per_s = sum(theory.rate_and_rtt(value)[0] for _, value in cells)
    packets_per_s = bits_per_s / (8 * theory.link.packet_bytes)
    if packets_per_s * SHORTEST_S > MOST_PACKETS:
        print(
            f"warning: the map has no packet simulations: {len(cells)} of {SHORTEST_S:g} s at such "
            f"rates would forward {packets_per_s * SHORTEST_S:.1g} packets, and the limit is "
            f"{MOST_PACKETS:.0e}; ask for fewer simulations",
            file=sys.stderr,
        )
        return theory
    settling_s = {cell: _settling_s(theory, params, *cell) for cell in cells}
    duration_s = min(LONGEST_S, max(SHORTEST_S, SETTLED * max(settling_s.values())))
    duration_s = max(SHORTEST_S, min(duration_s, MOST_PACKETS / packets_per_s))
    reads = []
    for n, value in cells:
        rate_bps, rtt_s = theory.rate_and_rtt(value)
        link = theory.link.with_load(n, rtt_s).at_rate(rate_bps)
        title, target_pkts = "Oscillation", theory.target_pkts
        text = scenario_toml(link, theory.law, params, title, target_pkts, duration_s)
        reads.append(experiment.read(text))
    oscillation, opened = [], stores.opened(store)
    for number, done in execution.execute_all(reads, samples=False, store=opened):
        execution.check_whole(reads[number], done)
        for run in done.runs:
            mean = run.metrics["queue_mean_pkts"]
            deviation = run.metrics["queue_std_pkts"] / mean if mean > 0 else math.inf
            oscillation.append((*cells[number], deviation))
    return replace(
        theory, oscillation=sorted(oscillation), simulated_s=duration_s, settling_s=settling_s
    )


def _settling_s(theory: StabilityMap, params: Params, flows: float, value: float) -> float:
    """Return the settling time of a cell's loop; 0 for a missing or unstable loop."""
    rate_bps, rtt_s = theory.rate_and_rtt(value)
    link = theory.link.at_rate(rate_bps)
    plant = _plant(link, theory.law, params, theory.windows, theory.measured)
    loop = plant.loop_at(flows, rtt_s)
    return loop.settling_s if loop is not None and loop.stable else 0.0


def _inner(axis: Floats, points: int) -> list[float]:
    """Return points within an axis, evenly spaced in the logarithm, half a step from its ends."""
    low, high = math.log(axis[0]), math.log(axis[-1])
    step = (high - low) / points
    return [math.exp(low + (i + 0.5) * step) for i in range(points)]
