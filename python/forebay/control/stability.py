"""Where a law is stable: maps over the load and the RTT, or over the load and the rate.

Theory decides every cell by counting how often the loop gain, with delay, sampler and hold exact,
passes −1 on its left. Packet simulation, at a few points, says how much the queue moves.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import forebay._native as _native
from forebay._base import signals
from forebay._native import ScenarioError
from forebay.control import many_loops, measured_law
from forebay.control.loaded_link import LoadedLink, scenario_toml
from forebay.control.plant import REASONS, Plant
from forebay.control.plants import WINDOWS, plant_on

if TYPE_CHECKING:
    from forebay._native import LinearModel
    from forebay.experiment.store import Store

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Words = NDArray[np.str_]

#: Most packets that all simulations of a map forward: some twenty minutes of a core.
MOST_PACKETS = 2e9
#: A simulation lasts this many settling times, and is measured after the first of them.
SETTLED = 3.0
SHORTEST_S = 30.0


@dataclass(frozen=True)
class Map:
    """A map of one law. Columns go with `flows`, rows with `values`.

    axis: "rtt" or "rate"; values in s (propagation, both ways) or bit/s.
    gain_margin_db: least rise of the gain to −1; below 0 where the loop is unstable, nan where
        there is no equilibrium.
    stable: by the count.
    rest: how the flows settle, as `LawModel.rest` has it: "linear" where there is an equilibrium.
    oscillation: of simulated points (flows, value, standard deviation over mean of the queue).
    simulated_s: how long each was simulated; settling_s: how long each would need, by theory.
    windows: one of `WINDOWS`.
    interrupted: whether Ctrl-C came while packets ran, so that it has none.
    """

    law: str
    link: LoadedLink
    axis: str
    flows: Floats
    values: Floats
    gain_margin_db: Floats
    stable: Flags
    rest: Words
    oscillation: Sequence[tuple[float, float, float]] = ()
    simulated_s: float = 0.0
    settling_s: Mapping[tuple[float, float], float] = field(default_factory=dict)
    windows: str = WINDOWS[0]
    #: the measured model of a law in Python
    measured: LinearModel | None = None
    interrupted: bool = False

    def rate_and_rtt(self, value: float) -> tuple[float, float]:
        """In bit/s and s, at a value of the axis."""
        if self.axis == "rate":
            return value, self.link.rtt_s
        return self.link.rate_bps, value

    def counts(self) -> dict[str, int]:
        """Cells that are stable, unstable, and without equilibrium by reason."""
        there = self.rest == "linear"
        found = {
            "stable": int(self.stable.sum()),
            "unstable": int((there & ~self.stable).sum()),
        }
        for how, words in REASONS.items():
            number = int((self.rest == how).sum())
            if number:
                found[f"no equilibrium: {words}"] = number
        return found

    def unsettled(self, flows: float, value: float) -> str:
        """A remark on a simulated point that needs longer than it was simulated."""
        needs_s = self.settling_s.get((flows, value), 0.0)
        if SETTLED * needs_s <= self.simulated_s:
            return ""
        return f" (which needs {needs_s:.0f} s to settle: this is its start)"

    def verdict(self, flows: float, value: float) -> str:
        """Theory's word on the cell nearest to a number of flows and an RTT or rate."""
        column = int(np.abs(np.log(self.flows / flows)).argmin())
        row = int(np.abs(np.log(self.values / value)).argmin())
        if np.isnan(self.gain_margin_db[row, column]):
            return f"no equilibrium ({REASONS[str(self.rest[row, column])]})"
        return "stable" if self.stable[row, column] else "unstable"


def stability_map(
    law: str,
    link: LoadedLink,
    params: Sequence[tuple[str, str]],
    flows: tuple[float, float],
    axis: str,
    values: tuple[float, float],
    points: int = 200,
    windows: str = WINDOWS[0],
) -> Map:
    """Theory's map on `points` × `points` cells, evenly spaced in the logarithm.

    link: what the axes leave fixed. params: of the law, as texts. windows: one of `WINDOWS`.

    Raises `ScenarioError` for a law or parameter that is wrong.
    """
    columns = np.geomspace(*flows, points)
    rows = np.geomspace(*values, points)
    rates_bps = [round(rate) for rate in rows] if axis == "rate" else [link.rate_bps] * points
    links = [replace(link, rate=f"{rate_bps}bit/s") for rate_bps in rates_bps]
    rtts = [link.rtt_s] * points if axis == "rate" else [float(value) for value in rows]
    measured = None
    plants: list[Plant]
    if measured_law.is_python(law):
        measured = measured_law.common_model(law, links, rtts, flows, dict(params))
        plants = [measured_law.plant_of(row_link, measured) for row_link in links]
    else:
        plants = [plant_on(row_link, law, params, windows) for row_link in links]
    signals.end_waits()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = list(pool.map(_line, plants, rtts, [columns] * points))
    rest = [how for found, _, _ in lines for how in found]
    if set(rest) == {"unmodelled"}:
        modelled = [entry["name"] for entry in _native.laws() if entry["modelled"]]
        raise ScenarioError(
            f'law: found "{law}", which has no linear model with these parameters, allowed: '
            f"{', '.join(modelled)}"
        )
    shape = (points, points)
    return Map(
        law,
        link,
        axis,
        columns,
        rows,
        np.concatenate([margin for _, margin, _ in lines]).reshape(shape),
        np.concatenate([stable for _, _, stable in lines]).reshape(shape),
        np.array(rest).reshape(shape),
        windows=windows,
        measured=measured,
    )


def _line(plant: Plant, rtt_s: float, flows: Floats) -> tuple[list[str], Floats, Flags]:
    """How each number of flows rests at one RTT and rate, its margin and whether it is stable."""
    line = plant.load_line(flows, rtt_s)
    margin, stable = np.full(len(flows), np.nan), np.zeros(len(flows), bool)
    for loads, terms in line.loops:
        margin[loads], stable[loads] = many_loops.count_columns(terms, len(loads))
    for i in map(int, np.flatnonzero(many_loops.is_near_edge(margin))):
        loop = plant.loop_at(float(flows[i]), rtt_s)
        assert loop is not None
        margin[i], stable[i] = many_loops.exact(loop, margin[i])
    return line.how, margin, stable


def simulate(
    drawn: Map,
    params: Sequence[tuple[str, str]],
    points: int = 5,
    longest_s: float = 300.0,
    store: Store | None = None,
) -> Map:
    """The map with `points` × `points` packet simulations on it, of long-lived flows.

    They last as long as the slowest of their cells that is stable needs to settle, by theory, and
    twice that long again, within `longest_s` and within `MOST_PACKETS` in all. On links so fast
    that the shortest simulations exceed that, there are none, and a warning says so. What `store`
    has is taken from there.
    """
    from forebay.experiment import execution, experiment

    flows = sorted({max(1, round(n)) for n in _inner(drawn.flows, points)})
    cells = [(float(n), value) for n in flows for value in _inner(drawn.values, points)]
    bits_per_s = sum(drawn.rate_and_rtt(value)[0] for _, value in cells)
    packets_per_s = bits_per_s / (8 * drawn.link.packet_bytes)
    if packets_per_s * SHORTEST_S > MOST_PACKETS:
        print(
            f"warning: the map has no packet simulations: {len(cells)} of {SHORTEST_S:g} s at such "
            f"rates would forward {packets_per_s * SHORTEST_S:.1g} packets, and the limit is "
            f"{MOST_PACKETS:.0e}; ask for fewer with --simulate",
            file=sys.stderr,
        )
        return drawn
    settling_s = {cell: _settling_s(drawn, params, *cell) for cell in cells}
    duration_s = min(longest_s, max(SHORTEST_S, SETTLED * max(settling_s.values())))
    duration_s = max(SHORTEST_S, min(duration_s, MOST_PACKETS / packets_per_s))
    reads = []
    for n, value in cells:
        rate_bps, rtt_s = drawn.rate_and_rtt(value)
        link = replace(drawn.link.with_load(n, rtt_s), rate=f"{round(rate_bps)}bit/s")
        target_pkts = link.target_pkts
        text = scenario_toml(link, drawn.law, params, "Oscillation", target_pkts, duration_s)
        reads.append(experiment.read(text))
    found = []
    for number, done in execution.execute_all(reads, samples=False, store=store):
        execution.check_whole(reads[number], done)
        for run in done.runs:
            mean = run.metrics["queue_mean_pkts"]
            deviation = run.metrics["queue_std_pkts"] / mean if mean > 0 else math.inf
            found.append((*cells[number], deviation))
    return replace(drawn, oscillation=sorted(found), simulated_s=duration_s, settling_s=settling_s)


def _settling_s(drawn: Map, params: Sequence[tuple[str, str]], flows: float, value: float) -> float:
    """Of the loop there; 0 for one that is not stable, or that is not."""
    rate_bps, rtt_s = drawn.rate_and_rtt(value)
    link = replace(drawn.link, rate=f"{round(rate_bps)}bit/s")
    plant = (
        plant_on(link, drawn.law, params, drawn.windows)
        if drawn.measured is None
        else measured_law.plant_of(link, drawn.measured)
    )
    loop = plant.loop_at(flows, rtt_s)
    return loop.settling_s if loop is not None and loop.stable else 0.0


def _inner(axis: Floats, points: int) -> list[float]:
    """Points within an axis that is even in the logarithm, half a step from its ends."""
    low, high = math.log(axis[0]), math.log(axis[-1])
    step = (high - low) / points
    return [math.exp(low + (i + 0.5) * step) for i in range(points)]
