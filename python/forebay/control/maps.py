"""Where a law is stable: maps over the load and the RTT, or over the load and the rate.

Theory decides every cell by counting how often the loop gain, with delay, sampler and hold exact,
passes −1 on its left. Packet simulation, at a few points, says how much the queue moves.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay import _native
from forebay._native import LawModel, ScenarioError
from forebay.control import gain, margins, plant
from forebay.control.classes import Coupled
from forebay.control.gain import Complexes, Terms
from forebay.control.link import Link, scenario
from forebay.control.loop import Loop
from forebay.control.mix import Mix
from forebay.control.sawtooth import Sawtooth

if TYPE_CHECKING:
    from forebay._native import LinearModel, OperatingPoint
    from forebay.store.store import Store

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Words = NDArray[np.str_]

#: A simulation lasts this many settling times, and is measured after the first of them.
SETTLED = 3.0
SHORTEST_S = 30.0
#: How flows are described: by the published plant, or by that of `forebay.control.sawtooth`.
WINDOWS = ("published", "sawtooth")
#: Why there is no equilibrium, by `LawModel.rest`.
REASONS = {
    "saturated": "TCP would need a probability of 1 or more",
    "full": "beyond the buffer",
    "jump": "the law's probability jumps past the one that TCP needs",
    "empty": "the law signals more than TCP needs with an empty queue",
    "unmodelled": "the law has no linear model there",
    "small": "TCP would need a window below the least that it keeps",
}
#: Frequencies of the count, as shares of the highest. The delay turns the curve by at most
#: `gain.QUIET` radians on the way, so the linear part is fine enough to follow it.
SHARES = np.union1d(np.geomspace(2e-6, 1, 200), np.linspace(0.02, 1, 320))
#: Loops that are counted at once, by whether the law acts both ways: what is known of these stays
#: in a processor's cache.
BLOCK = {False: 50, True: 16}
#: Nearer to the edge than this, in dB, each loop is counted by itself.
NEAR_DB = 0.02
#: Margins beyond this count as this.
MOST_DB = 60.0
#: Shares of half the sampling frequency from which crossings are looked for, and Newton's steps.
STARTS, ROUNDS = np.linspace(0.1, 1.0, 10), 12
#: Guesses so far from the nearest do not come before it.
AROUND_DB = 10.0
#: Newton's step of a difference, and |1 + L| that is zero.
SMALL, ENOUGH = 1e-6, 1e-11
#: Of a factor e.
DECIBELS = 20 / math.log(10)


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
    link: Link
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
    interrupted: bool = False

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
    link: Link,
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
    models = [_described(one, law, params, windows) for one in links]
    rtts = [link.rtt_s] * points if axis == "rate" else [float(value) for value in rows]

    def line(at: tuple[Coupled | Mix | Sawtooth, float]) -> tuple[list[str], Floats, Flags]:
        return _line(*at, columns)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = list(pool.map(line, zip(models, rtts, strict=True)))
    rest = [how for found, _, _ in lines for how in found]
    if set(rest) == {"unmodelled"}:
        raise ScenarioError(
            f'law: found "{law}", which has no linear model with these parameters, allowed: '
            f"{', '.join(modelled())}"
        )
    margin = np.concatenate([found for _, found, _ in lines])
    stable = np.concatenate([found for _, _, found in lines])
    shape = (points, points)
    return Map(
        law,
        link,
        axis,
        columns,
        rows,
        margin.reshape(shape),
        stable.reshape(shape),
        np.array(rest).reshape(shape),
        windows=windows,
    )


def _described(
    link: Link, law: str, params: Sequence[tuple[str, str]], windows: str
) -> Coupled | Mix | Sawtooth:
    """The law on the link, among flows of this description."""
    if windows not in WINDOWS:
        raise ScenarioError(f'--windows: found "{windows}", allowed: {", ".join(WINDOWS)}')
    if windows == WINDOWS[0]:
        return plant.on(link, law, params)
    other = (
        "--l4s-flows" if link.l4s_flows else "--tcp, or with several RTTs" if link.groups else ""
    )
    if other:
        raise ScenarioError(f'--windows: found "{windows}" with {other}, allowed: {WINDOWS[0]}')
    return Sawtooth(link.model(law, params))


def _line(
    model: Coupled | Mix | Sawtooth, rtt_s: float, columns: Floats
) -> tuple[list[str], Floats, Flags]:
    """How each number of flows rests at one RTT and rate, its margin and whether it is stable."""
    flows = columns.tolist()
    margin, stable = np.full(len(flows), np.nan), np.zeros(len(flows), bool)
    if isinstance(model, Mix):
        rest, there_cells = model.cells(columns, rtt_s)
        if there_cells:
            at = [i for i, how in enumerate(rest) if how == "linear"]
            margin[at], stable[at] = count(there_cells, model)
        return rest, margin, stable
    if isinstance(model, Coupled) and model.flows:
        cells = [model.operate(n, rtt_s) for n in flows]
        rest = [
            "linear" if cell else model.rest(n, rtt_s)[0]
            for cell, n in zip(cells, flows, strict=True)
        ]
        there = [i for i, cell in enumerate(cells) if cell is not None]
        if there:
            found = [cell for cell in cells if cell is not None]
            margin[there], stable[there] = count(found, model)
        return rest, margin, stable
    rest, rows = (model.law if isinstance(model, Coupled) else model).operate_all(flows, rtt_s)
    numbered = gain.numbered if isinstance(model, Coupled) else model.numbered
    there = [i for i, how in enumerate(rest) if how == "linear"]
    kinds: dict[tuple[int, bool, bool, bool], list[int]] = {}
    for k, row in enumerate(rows):
        kinds.setdefault(gain.numbered_kind(row), []).append(k)
    for group in kinds.values():
        at = [there[k] for k in group]
        built = numbered([rows[k] for k in group])
        margin[at], stable[at] = _count(built, len(group))
    for i in map(int, np.flatnonzero(np.abs(margin) < NEAR_DB)):
        loop = model.at(flows[i], rtt_s)
        assert loop is not None
        margin[i], stable[i] = exact(loop, margin[i])
    return rest, margin, stable


def modelled() -> list[str]:
    """Laws with a linear model, by their defaults on a link with room for them."""
    point = _native.OperatingPoint(100.0, 0.1, 125_000.0)
    laws = [entry["name"] for entry in _native.laws()]
    return [law for law in laws if LawModel(law, [], 10**9, 1000, 1e6).linear(point) is not None]


def count(
    cells: Sequence[tuple[OperatingPoint, LinearModel]], of: Coupled | Mix | None = None
) -> tuple[Floats, Flags]:
    """Gain margins in dB, and whether each loop is stable; all at once.

    By the formulas of `forebay.control.gain`, as `Loop` uses them. The laws themselves are stable
    or integrate, so a loop is stable where its gain crosses the real axis left of −1 as often
    upward as downward in phase (Nyquist). A cell too near to the edge for the frequencies of the
    count goes to `Loop`'s own.
    """
    build = gain.terms if of is None else of.terms
    margin, stable = np.full(len(cells), np.nan), np.zeros(len(cells), bool)
    kinds: dict[tuple[bool, bool, bool], list[int]] = {}
    for i, (_, model) in enumerate(cells):
        kinds.setdefault(gain.kind(model), []).append(i)
    for group in kinds.values():
        there = [cells[i] for i in group]
        margin[group], stable[group] = _count(build(there), len(there))
    for i in map(int, np.flatnonzero(np.abs(margin) < NEAR_DB)):
        margin[i], stable[i] = exact(Loop(*cells[i], build([cells[i]])), margin[i])
    return margin, stable


def exact(loop: Loop, near_db: float) -> tuple[float, bool]:
    """What `count` says of a cell, from the loop's margins. Of a law that acts both ways `near_db`
    is exact, as the margin where 1 + L is zero, and only its side is asked."""
    found = abs(near_db)
    if not loop.terms.hybrid:
        found = min(MOST_DB, abs(margins.gain_db(loop.terms, loop.grid, loop.stable)))
    return (found if loop.stable else -found), loop.stable


def _count(t: Terms, rows: int) -> tuple[Floats, Flags]:
    if t.hybrid:
        t = replace(t, folds=gain.folds(t, 1j * SHARES * gain.highest_rad_s(t)))
    most = BLOCK[t.hybrid]
    blocks = [np.arange(i, min(i + most, rows)) for i in range(0, rows, most)]
    counted = [_block(_rows(t, one) if len(blocks) > 1 else t, len(one)) for one in blocks]
    stable = np.concatenate([one[0] for one in counted])
    row = np.concatenate([first[0] + one[1] for first, one in zip(blocks, counted, strict=True)])
    db, omega = (np.concatenate([one[i] for one in counted]) for i in (2, 3))
    if t.hybrid:
        row, db = _both_ways(t, stable, row, db, omega)
    # Of a stable loop the least rise of the gain to −1; of an unstable one what it lacks. The
    # sign says which also where the curve comes back.
    rise, lack = _nearest(stable, row, db)
    return np.where(stable, rise, -np.abs(lack)), stable


def _nearest(stable: Flags, row: NDArray[np.intp], db: Floats) -> tuple[Floats, Floats]:
    """Of each row the least rise to a crossing, and the least of all."""
    rise, lack = np.full(len(stable), MOST_DB), np.full(len(stable), MOST_DB)
    np.minimum.at(rise, row, np.where(db > 0, db, MOST_DB))
    np.minimum.at(lack, row, db)
    return rise, lack


def _block(t: Terms, rows: int) -> tuple[Flags, NDArray[np.intp], Floats, Floats]:
    """Which loops are stable; and of each crossing of the negative real axis its row, how much
    more gain takes it to −1, in dB, and its frequency in rad/s, nan at z = −1."""
    # Loops that share delay and sampler share their frequencies: one line of them.
    high = np.atleast_2d(np.asarray(gain.highest_rad_s(t)))
    omega = SHARES * high
    wide = (rows, len(SHARES))
    net = np.zeros(rows, int)
    if t.interval_s is None or t.hybrid:
        inner = SHARES * np.atleast_2d(gain.QUIET / np.asarray(t.shortest_s))
        crossed = _crossings(np.broadcast_to(gain.inner(t, 1j * inner), wide))
        net += crossed[0]
    beyond = np.zeros(rows, bool)
    ended, end_db = np.zeros(0, np.intp), np.zeros(0)
    if t.interval_s is not None:
        # At z = −1 the curve is real, but for rounding.
        ends = _column(high >= (1 - 1e-12) * math.pi / np.asarray(t.interval_s), rows) > 0
        response = _whole(gain.outer(t, 1j * omega), wide)
        response[ends, -1] = response[ends, -1].real
        crossed = _crossings(response)
        net += crossed[0]
        beyond = ends & (response[:, -1].real < -1)
        if t.hybrid:
            response = _whole(gain.both(t, 1j * omega, response), wide)
            response[ends, -1] = response[ends, -1].real
            crossed = _crossings(response)
        end = response[:, -1].real
        ended = np.flatnonzero(ends & (end < 0))
        end_db = -20 * np.log10(-end[ended])
    _, row, at, k = crossed
    # A curve that ends left of −1 has an odd number of roots outside.
    return (
        (net == 0) & ~beyond,
        np.concatenate([row, ended]),
        np.concatenate([-20 * np.log10(-at), end_db]),
        np.concatenate([np.broadcast_to(omega, wide)[row, k], np.full(len(ended), np.nan)]),
    )


def _both_ways(
    t: Terms, stable: Flags, row: NDArray[np.intp], db: Floats, omega: Floats
) -> tuple[NDArray[np.intp], Floats]:
    """The crossings of loops whose law acts both ways: of these the gain enters what the sampler
    folds more than once, and those of `_block` are guesses."""
    rows = len(stable)
    slow = _column(t.interval_s, rows) > 0.25 * _column(t.shortest_s, rows)
    # With a slow sampler the crossing at another gain is another one: look from everywhere.
    row, db, omega = row[~slow[row]], db[~slow[row]], omega[~slow[row]]
    rise, lack = _nearest(stable, row, db)
    near = (db <= np.where(stable, rise, lack)[row] + AROUND_DB) & np.isfinite(omega)
    if near.any():
        db[near] = _refined(_rows(t, row[near]), omega[near], db[near])
    folded = np.flatnonzero(slow)
    if not len(folded):
        return row, db
    starts = np.tile(folded, len(STARTS))
    high = _column(gain.highest_rad_s(t), rows)[starts] * np.repeat(STARTS, len(folded))
    every = replace(_rows(t, starts), folds=None)
    found = _refined(every, high, np.full(len(starts), np.nan))
    keep = np.isfinite(found)
    return np.concatenate([row, starts[keep]]), np.concatenate([db, found[keep]])


def _whole(response: Complexes, shape: tuple[int, int]) -> Complexes:
    """An array of this shape that can be written to."""
    return response if response.shape == shape else np.broadcast_to(response, shape).copy()


def _crossings(
    loop: Complexes,
) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats, NDArray[np.intp]]:
    """Of the negative real axis: net number left of −1 by row; and of each its row, its place on
    the axis, and the frequency before it."""
    re, im = loop.real, loop.imag
    below = np.signbit(im)
    row, k = np.nonzero(below[:, 1:] != below[:, :-1])
    gap = im[row, k] - im[row, k + 1]
    share = im[row, k] / np.where(gap == 0, 1.0, gap)
    at = re[row, k] + share * (re[row, k + 1] - re[row, k])
    upward = np.where(below[row, k], 1, -1)
    left = at < 0
    row, k, at, upward = row[left], k[left], at[left], upward[left]
    net = np.bincount(row, np.where(at < -1, upward, 0), len(loop)).astype(int)
    return net, row, at, k


def _column(x: Any, rows: int) -> Floats:
    return np.broadcast_to(np.asarray(0.0 if x is None else x, float), (rows, 1))[:, 0]


def _rows(t: Terms, row: NDArray[Any]) -> Terms:
    def pick(x: Any) -> Any:
        return x[row] if isinstance(x, np.ndarray) else x

    return replace(
        t,
        gain=pick(t.gain),
        poles=tuple(map(pick, t.poles)),
        delay_s=pick(t.delay_s),
        direct=pick(t.direct),
        interval_s=pick(t.interval_s),
        numerator=tuple(map(pick, t.numerator)),
        denominator=tuple(map(pick, t.denominator)),
        beside=t.beside and _rows(t.beside, row),
        shares=None if t.shares is None else tuple(map(pick, t.shares)),
    )


def _refined(t: Terms, omega: Floats, db: Floats) -> Floats:
    """The plant's gain at which 1 + L is zero, by Newton's method on gain and frequency from a
    guess; without one, nan where there is none."""
    start = np.where(np.isnan(db), 1.0, db)
    x, w = start[:, None] / DECIBELS, np.log(omega)[:, None]

    good = np.zeros(len(x), bool)
    left = np.arange(len(x))
    with np.errstate(all="ignore"):
        for last in [*[False] * ROUNDS, True]:
            u, v = x[left], w[left]
            # As it is, with a little more gain, and a little quicker.
            log_gain, log_omega = (
                np.concatenate([u, u + SMALL, u]),
                np.concatenate([v, v, v + SMALL]),
            )
            here = _rows(t, np.tile(left, 3)).changed(gain=np.exp(log_gain))
            now, by_x, by_w = np.split(1 + gain.loop(here, 1j * np.exp(log_omega)), 3)
            done = (np.abs(now) < (1e-6 if last else ENOUGH))[:, 0]
            good[left[done]] = True
            by_x, by_w = (by_x - now) / SMALL, (by_w - now) / SMALL
            det = by_x.real * by_w.imag - by_x.imag * by_w.real
            dx = (-now.real * by_w.imag + now.imag * by_w.real) / det
            dw = (-by_x.real * now.imag + by_x.imag * now.real) / det
            if last:
                break
            left, dx, dw = left[~done], dx[~done], dw[~done]
            x[left] += np.clip(dx, -0.2, 0.2)
            w[left] += np.clip(dw, -0.2, 0.2)
            if not len(left):
                break
    found: Floats = np.where(good, DECIBELS * x[:, 0], db)
    return found


def simulate(
    drawn: Map,
    params: Sequence[tuple[str, str]],
    points: int = 5,
    longest_s: float = 300.0,
    store: Store | None = None,
) -> Map:
    """The map with `points` × `points` packet simulations on it, of long-lived Reno flows.

    They last as long as the slowest of their cells that is stable needs to settle, by theory, and
    twice that long again, within `longest_s`. What `store` has is taken from there.
    """
    from forebay.run import experiment
    from forebay.run.runs import Runs

    flows = sorted({max(1, round(n)) for n in _inner(drawn.flows, points)})
    values = _inner(drawn.values, points)
    if drawn.link.groups:
        return _simulate_classes(drawn, params, flows, values, longest_s, store)
    keys, unit = (["bottleneck.rate"], "bit/s")
    if drawn.axis == "rtt":
        keys, unit = [f"traffic.{i}.rtt" for i in range(2 if drawn.link.l4s_flows else 1)], "us"
    scale = 1.0 if drawn.axis == "rate" else 1e6
    texts = [f"{round(value * scale)}{unit}" for value in values]
    link = drawn.link
    if drawn.axis == "rtt":
        # The bottleneck's own delay has to fit into the shortest RTT.
        link = replace(link, rtt=f"{round(values[0] * 1e6)}us")
    else:
        link = replace(link, rate=f"{round(values[-1])}bit/s")
    settling_s = {
        (float(n), float(value)): _settling_s(drawn, params, n, value)
        for n in flows
        for value in values
    }
    duration_s = min(longest_s, max(SHORTEST_S, SETTLED * max(settling_s.values())))
    text = scenario(
        link,
        drawn.law,
        params,
        "Oscillation",
        link.target_pkts,
        duration_s,
        sweep={"traffic.0.flows": flows},
    )
    results = []
    for one in texts:
        # A sweep varies its keys one by one, and here the RTTs of both classes go together.
        read = experiment.read(text, sets=[f"{key}={one}" for key in keys])
        done = experiment.execute(read, samples=False, store=store)
        if done.interrupted:
            raise KeyboardInterrupt
        if done.faults:
            raise RuntimeError(experiment.fault_in_words(read.plan, done.faults[0]))
        results.append(Runs(read, done))
    found = []
    for value, result in zip(values, results, strict=True):
        for finished in result.runs:
            settings = result.plan.points[finished.point].settings
            mean = finished.metrics["queue_mean_pkts"]
            deviation = finished.metrics["queue_std_pkts"] / mean if mean > 0 else math.inf
            found.append((float(settings["traffic.0.flows"]), float(value), deviation))
    found.sort()
    return replace(drawn, oscillation=found, simulated_s=duration_s, settling_s=settling_s)


def _simulate_classes(
    drawn: Map,
    params: Sequence[tuple[str, str]],
    flows: Sequence[int],
    values: Sequence[float],
    longest_s: float,
    store: Store | None,
) -> Map:
    """`simulate` of classes of flows: a scenario for each point, as classes move together."""
    from forebay.run import experiment
    from forebay.run.runs import Runs

    at = [(float(n), float(value)) for n in flows for value in values]
    settling_s = {one: _settling_s(drawn, params, *one) for one in at}
    duration_s = min(longest_s, max(SHORTEST_S, SETTLED * max(settling_s.values())))
    found = []
    for n, value in at:
        link = drawn.link
        rate_bps, rtt_s = (value, link.rtt_s) if drawn.axis == "rate" else (link.rate_bps, value)
        link = replace(link.with_load(n, rtt_s), rate=f"{round(rate_bps)}bit/s")
        text = scenario(link, drawn.law, params, "Oscillation", link.target_pkts, duration_s)
        read = experiment.read(text)
        done = experiment.execute(read, samples=False, store=store)
        if done.interrupted:
            raise KeyboardInterrupt
        if done.faults:
            raise RuntimeError(experiment.fault_in_words(read.plan, done.faults[0]))
        for finished in Runs(read, done).runs:
            mean = finished.metrics["queue_mean_pkts"]
            deviation = finished.metrics["queue_std_pkts"] / mean if mean > 0 else math.inf
            found.append((n, value, deviation))
    found.sort()
    return replace(drawn, oscillation=found, simulated_s=duration_s, settling_s=settling_s)


def _settling_s(drawn: Map, params: Sequence[tuple[str, str]], flows: float, value: float) -> float:
    """Of the loop there; 0 for one that is not stable, or that is not."""
    link = drawn.link
    rate_bps, rtt_s = (value, link.rtt_s) if drawn.axis == "rate" else (link.rate_bps, value)
    here = replace(link, rate=f"{round(rate_bps)}bit/s")
    loop = _described(here, drawn.law, params, drawn.windows).at(flows, rtt_s)
    return loop.settling_s if loop is not None and loop.stable else 0.0


def _inner(axis: Floats, points: int) -> list[float]:
    """Points within an axis that is even in the logarithm, half a step from its ends."""
    low, high = math.log(axis[0]), math.log(axis[-1])
    step = (high - low) / points
    return [math.exp(low + (i + 0.5) * step) for i in range(points)]
