"""Where a law is stable: maps over the load and the RTT, or over the load and the rate.

Theory decides every cell by counting how often the loop gain, with delay, sampler and hold exact,
passes −1 on its left. Packet simulation, at a few points, says how much the queue moves.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forebay._native import LawModel
from forebay.control.design import Link, scenario

if TYPE_CHECKING:
    from forebay._native import LinearModel, OperatingPoint

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Frequencies of the count, times R. Delay turns the curve by one radian per unit, so the linear
#: part is fine enough to follow it; beyond 40 every loop that is to be told stable is quiet.
TURNS = np.union1d(np.geomspace(1e-4, 1, 140), np.arange(1, 40, 0.12))
#: Cells in one go: what fits in a processor's cache best.
CHUNK = 500


@dataclass(frozen=True)
class Map:
    """A map of one law. Columns go with `flows`, rows with `values`.

    axis: "rtt" or "rate"; values in s (propagation, both ways) or bit/s.
    gain_margin_db: least change of the gain to −1; below 0 where the loop is unstable, nan where
        the law has no equilibrium within the buffer, or TCP none with a probability below 1.
    stable: by the count.
    oscillation: of simulated points (flows, value, standard deviation over mean of the queue).
    """

    law: str
    link: Link
    axis: str
    flows: Floats
    values: Floats
    gain_margin_db: Floats
    stable: Flags
    oscillation: Sequence[tuple[float, float, float]] = ()

    def verdict(self, flows: float, value: float) -> str:
        """Theory's word on the cell nearest to a number of flows and an RTT or rate."""
        column = int(np.abs(np.log(self.flows / flows)).argmin())
        row = int(np.abs(np.log(self.values / value)).argmin())
        if np.isnan(self.gain_margin_db[row, column]):
            return "without equilibrium"
        return "stable" if self.stable[row, column] else "unstable"


def stability_map(
    law: str,
    link: Link,
    params: Sequence[tuple[str, str]],
    flows: tuple[float, float],
    axis: str,
    values: tuple[float, float],
    points: int = 200,
) -> Map:
    """Theory's map on `points` × `points` cells, evenly spaced in the logarithm.

    link: what the axes leave fixed. params: of the law, as texts.

    Raises `ScenarioError` for a law or parameter that is wrong.
    """
    columns = np.geomspace(*flows, points)
    rows = np.geomspace(*values, points)
    buffer_pkts = float(link.buffer_pkts)
    rates_bps = [round(rate) for rate in rows] if axis == "rate" else [link.rate_bps] * points
    models = [
        LawModel(law, params, rate_bps, link.packet_bytes, buffer_pkts) for rate_bps in rates_bps
    ]
    rtts = [link.rtt_s] * points if axis == "rate" else [float(value) for value in rows]
    cells: list[tuple[OperatingPoint, LinearModel] | None] = [
        model.operate(float(n), rtt)
        for model, rtt in zip(models, rtts, strict=True)
        for n in columns
    ]
    there = [
        i
        for i, cell in enumerate(cells)
        if cell is not None and cell[1]["queue_pkts"] <= buffer_pkts and cell[0].probability < 1
    ]
    margin, stable = np.full(len(cells), np.nan), np.zeros(len(cells), bool)
    chunks = [there[i : i + CHUNK] for i in range(0, len(there), CHUNK)]

    def work(chunk: list[int]) -> tuple[Floats, Flags]:
        return count([cell for i in chunk if (cell := cells[i]) is not None])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for chunk, (of_chunk, flags) in zip(chunks, pool.map(work, chunks), strict=True):
            margin[chunk], stable[chunk] = of_chunk, flags
    shape = (points, points)
    return Map(law, link, axis, columns, rows, margin.reshape(shape), stable.reshape(shape))


def count(cells: Sequence[tuple[OperatingPoint, LinearModel]]) -> tuple[Floats, Flags]:
    """Gain margins in dB, and whether each loop is stable; all at once.

    The laws themselves are stable or integrate, so a loop is stable where its gain crosses the
    real axis left of −1 as often upward as downward in phase (Nyquist).
    """
    points = [point for point, _ in cells]
    models = [model for _, model in cells]
    rtt_s = _column([p.rtt_s for p in points])
    poles = [_column([p.tcp_pole for p in points]), _column([p.queue_pole for p in points])]
    # Poles that meet are held apart, for the partial fractions.
    poles[1] = np.where(
        np.abs(poles[1] - poles[0]) < 1e-6 * poles[0], poles[0] * 1.000002, poles[1]
    )
    gain = _column([p.plant_gain for p in points])
    averages = [model["average"] for model in models]
    if averages[0] is not None:
        pole = _column([-math.log1p(-a[0]) / a[1] if a and a[0] < 1 else 1e9 for a in averages])
        poles.append(pole)
        gain = gain * pole
    direct = _column([model["direct"] for model in models])
    sampled = [model["sampled"] for model in models]
    omega = TURNS / rtt_s
    if sampled[0] is None:
        return _crossings(direct * _plant(gain, poles, rtt_s, omega))
    intervals = _column([s[0] if s else 1.0 for s in sampled])
    sampler_only = not np.any(direct)
    omega = np.minimum(omega, math.pi / intervals) if sampler_only else omega
    z_1 = np.exp(-1j * omega * intervals)
    law = _series([s[1] if s else [0.0] for s in sampled], z_1)
    law /= _series([s[2] if s else [1.0] for s in sampled], z_1)
    if sampler_only:
        return _crossings(law * _pulse(gain, poles, rtt_s, intervals, omega, z_1))
    half = 0.5 * omega * intervals
    law *= np.exp(-1j * half) * np.sinc(half / math.pi)
    return _crossings((direct + law) * _plant(gain, poles, rtt_s, omega))


def _column(values: list[float]) -> Floats:
    return np.array(values)[:, None]


def _series(coefficients: list[list[float]], z_1: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Σ cᵢ z⁻ⁱ, each row with its own c."""
    total = np.zeros_like(z_1)
    for i in reversed(range(max(map(len, coefficients)))):
        total = total * z_1 + _column([c[i] if i < len(c) else 0.0 for c in coefficients])
    return total


def _plant(
    gain: Floats, poles: list[Floats], rtt_s: Floats, omega: Floats
) -> NDArray[np.complex128]:
    s = 1j * omega
    total = np.asarray(gain * np.exp(-s * rtt_s), complex)
    for pole in poles:
        total = total / (s + pole)
    return total


def _pulse(
    gain: Floats,
    poles: list[Floats],
    rtt_s: Floats,
    intervals: Floats,
    omega: Floats,
    z_1: NDArray[np.complex128],
) -> NDArray[np.complex128]:
    """`forebay.control.loop.pulse_response`, row by row."""
    whole = np.floor(rtt_s / intervals + 1e-9)
    rest = np.maximum(rtt_s - whole * intervals, 0)
    total = np.zeros_like(z_1)
    for i, pole in enumerate(poles):
        residue = gain
        for j, other in enumerate(poles):
            if i != j:
                residue = residue / (other - pole)
        late = np.exp(-pole * (intervals - rest))
        new, old = (1 - late) / pole, late * -np.expm1(-pole * rest) / pole
        total += residue * (new + old * z_1) / (1 - np.exp(-pole * intervals) * z_1)
    return np.asarray(total * np.exp(-1j * omega * intervals * (whole + 1)), complex)


def _crossings(loop: NDArray[np.complex128]) -> tuple[Floats, Flags]:
    re, im = loop.real, loop.imag
    below = np.signbit(im)
    turns = below[:, 1:] != below[:, :-1]
    row, k = np.nonzero(turns)
    share = im[row, k] / (im[row, k] - im[row, k + 1])
    at = re[row, k] + share * (re[row, k + 1] - re[row, k])
    downward = np.where(below[row, k], 1, -1)
    left = at < 0
    row, at, downward = row[left], at[left], downward[left]
    rows = len(loop)
    net = np.bincount(row, np.where(at < -1, downward, 0), rows)
    margin = np.full(rows, 60.0)
    np.minimum.at(margin, row, -20 * np.log10(-at))
    # A sampled curve that ends left of −1 has an odd number of roots outside.
    stable = (net == 0) & ~((re[:, -1] < -1) & (np.abs(im[:, -1]) < 1e-9))
    # The sign says stable or not also where the curve comes back.
    return np.where(stable, np.abs(margin), -np.abs(margin)), stable


def simulate(
    drawn: Map, params: Sequence[tuple[str, str]], points: int = 5, duration_s: float = 30.0
) -> Map:
    """The map with `points` × `points` packet simulations on it, of long-lived Reno flows."""
    from forebay.run.api import run

    flows = sorted({max(1, round(n)) for n in _inner(drawn.flows, points)})
    values = _inner(drawn.values, points)
    key, unit = ("bottleneck.rate", "bit/s") if drawn.axis == "rate" else ("traffic.0.rtt", "us")
    scale = 1.0 if drawn.axis == "rate" else 1e6
    texts = [f"{round(value * scale)}{unit}" for value in values]
    link = drawn.link
    if drawn.axis == "rtt":
        # The bottleneck's own delay has to fit into the shortest RTT.
        link = replace(link, rtt=f"{round(values[0] * 1e6)}us")
    else:
        link = replace(link, rate=f"{round(values[-1])}bit/s")
    text = scenario(
        link,
        drawn.law,
        params,
        "Oscillation",
        link.target_pkts,
        duration_s,
        sweep={"traffic.0.flows": flows, key: texts},
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "map.toml"
        path.write_text(text)
        result = run(path)
    found = []
    for finished in result.runs:
        settings = result.plan.points[finished.point].settings
        mean = finished.metrics["queue_mean_pkts"]
        deviation = finished.metrics["queue_std_pkts"] / mean if mean > 0 else math.inf
        value = values[texts.index(settings[key])]
        found.append((float(settings["traffic.0.flows"]), float(value), deviation))
    return replace(drawn, oscillation=found)


def _inner(axis: Floats, points: int) -> list[float]:
    """Points within an axis that is even in the logarithm, half a step from its ends."""
    low, high = math.log(axis[0]), math.log(axis[-1])
    step = (high - low) / points
    return [math.exp(low + (i + 0.5) * step) for i in range(points)]
