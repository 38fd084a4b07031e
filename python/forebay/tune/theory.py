"""The linear model of a law at each corner: margins, and the deviation of the queue.

Two disturbances move the queue. The first is TCP's own losses: signals come at random, p·C of them
per second, which acts as white noise of intensity p/C on p. Of Reno, which halves one of N windows,
that is N·(W/2)²·pW/R = C/2 packets² per second on the sum of the windows, with pW² = 2. The second
is the load: once a minute it changes so that TCP needs twice the p. Both pass the queue's closed
loop. A gain too high and a gain too low both raise the deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from forebay._native import LawModel
from forebay.control import gain, maps, mix
from forebay.control.gain import Floats
from forebay.control.loop import Loop
from forebay.control.mix import Mix, MixedLoop
from forebay.tune.ranges import Condition, Ranges

#: Time between two changes of the load that a law is designed to bear.
LOAD_EVERY_S = 60.0
#: Frequencies times R; outside this range the disturbances hardly move the queue.
TURNS = np.union1d(np.geomspace(1e-4, 1, 120), np.arange(1, 40, 0.2))

Params = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Local:
    """A law under one condition, by the linear model.

    flows: those that the model counts, at most as many as have ten packets in flight each.
    held: whether that load is within the range, so that margins count.
    queue_pkts: where the queue settles.
    gain_db: least change of the gain to oscillation; below 0 where the loop is unstable.
    sensitivity: largest |1/(1 + L)|; 2 leaves at least 6 dB and 29°.
    noise_pkts, load_pkts: deviation of the queue by TCP's own losses, and by changes of the load.
    """

    condition: Condition
    flows: float
    held: bool
    queue_pkts: float
    capacity_pkts_per_s: float
    stable: bool
    gain_db: float
    sensitivity: float
    noise_pkts: float
    load_pkts: float
    #: for its exact margins
    loop: Loop

    @property
    def deviation_pkts(self) -> float:
        return math.hypot(self.noise_pkts, self.load_pkts)

    @property
    def timeouts(self) -> bool:
        """Whether there are more flows than the model counts."""
        return self.flows < (1 - 1e-6) * self.condition.flows

    @property
    def idle(self) -> float:
        """Share of time at which the queue is empty at constant load, were it Gaussian."""
        if self.noise_pkts == 0:
            return 0.0
        return 0.5 * math.erfc(self.queue_pkts / self.noise_pkts / math.sqrt(2))

    @property
    def delay_p95_s(self) -> float:
        return (self.queue_pkts + 1.645 * self.deviation_pkts) / self.capacity_pkts_per_s

    @property
    def deviation_s(self) -> float:
        """Of the queuing delay, by TCP's own losses and by changes of the load."""
        return self.deviation_pkts / self.capacity_pkts_per_s

    @property
    def noise_delay_s(self) -> float:
        """Deviation of the queuing delay at constant load."""
        return self.noise_pkts / self.capacity_pkts_per_s


def at(
    law: str,
    params_at: Callable[[Condition, float], Params],
    queue_pkts: float | Callable[[Condition], float],
    ranges: Ranges,
    conditions: Sequence[Condition],
) -> list[Local | None]:
    """The law under each condition; None where it has no equilibrium within the buffer.

    params_at: parameters under a condition with a number of flows; they differ only in what a law
    adapts by itself. queue_pkts: about where the queue settles, everywhere or under each condition.

    Raises `ScenarioError` for a parameter that is wrong.
    """
    buffer_pkts = float(ranges.buffer_pkts)
    packet_bytes = round(ranges.packet_bytes)
    plains: list[LawModel] = []
    mixes: list[Mix] = []
    counts = []
    for condition in conditions:
        about = queue_pkts(condition) if callable(queue_pkts) else queue_pkts
        flows = ranges.native.active_flows(condition.plain, about)
        # A law that estimates the load takes the flows for Reno's.
        params = list(params_at(condition, ranges.reno_flows(condition, flows, about)))
        counts.append(flows)
        if ranges.plain:
            plains.append(LawModel(law, params, condition.rate_bps, packet_bytes, buffer_pkts))
        else:
            mixes.append(Mix.on(ranges.link(condition, flows), law, params))
    rtts_s = [condition.rtt_s for condition in conditions]
    if mixes:
        found = mix.operate(mixes, counts, rtts_s)
    else:
        asked = zip(plains, counts, rtts_s, strict=True)
        found = [model.operate(flows, rtt_s) for model, flows, rtt_s in asked]
    cells = [
        None if cell is None or cell[1]["queue_pkts"] > buffer_pkts else cell for cell in found
    ]
    verdicts = _counted(cells, mixes)
    result: list[Local | None] = []
    for i, (condition, cell, flows) in enumerate(zip(conditions, cells, counts, strict=True)):
        if cell is None:
            result.append(None)
            continue
        gain_db, stable = verdicts[i]
        loop = mixes[i].loop(cell) if mixes else Loop(*cell)
        sensitivity, noise_pkts, load_pkts = moved(loop)
        result.append(
            Local(
                condition,
                flows,
                flows > (1 - 1e-6) * ranges.flows[0],
                cell[1]["queue_pkts"],
                cell[0].capacity_pkts_per_s,
                stable,
                gain_db,
                sensitivity,
                noise_pkts,
                load_pkts,
                loop,
            )
        )
    return result


def _counted(
    cells: Sequence[mix.Cell | None], mixes: Sequence[Mix]
) -> dict[int, tuple[float, bool]]:
    """Gain margin in dB of each cell, and whether it is stable: all at once that have the same
    classes."""
    alike: dict[object, list[int]] = {}
    for i, cell in enumerate(cells):
        if cell is not None:
            key = (mixes[i].shares, mixes[i].ratios) if mixes else None
            alike.setdefault(key, []).append(i)
    found: dict[int, tuple[float, bool]] = {}
    for rows in alike.values():
        there = [cell for i in rows if (cell := cells[i]) is not None]
        margins, stable = maps.count(there, mixes[rows[0]] if mixes else None)
        found |= dict(zip(rows, zip(margins.tolist(), stable.tolist(), strict=True), strict=True))
    return found


def disturbed(loop: Loop, omega: Floats) -> tuple[Floats, Floats]:
    """π times the density of the queue, without the law, by losses and by load: packets² s."""
    point = loop.point
    square = np.abs(gain.plant(loop.to_queue, 1j * omega)) ** 2
    # Signals of p·C per second that come at random, as a noise of p; with RTTs of their own, as one
    # of each RTT that its share of the signals makes.
    apart = loop.parts if isinstance(loop, MixedLoop) and loop.to_queue.beside else []
    heard = [np.abs(gain.plant(path, 1j * omega)) ** 2 / share for path, share in apart]
    signals = np.sum(heard, axis=0) if heard else square
    noise = signals * point.probability / point.capacity_pkts_per_s
    # Steps of p0 at the plant's input, one in LOAD_EVERY_S.
    load = square * (point.probability / omega) ** 2 / LOAD_EVERY_S
    return noise, load


def moved(loop: Loop) -> tuple[float, float, float]:
    """Largest |1/(1 + L)|, and the queue's deviation by losses and by load, in packets."""
    point = loop.point
    omega = TURNS / point.rtt_s
    omega = np.union1d(omega[omega < loop.highest_rad_s], loop.highest_rad_s)
    omega = omega[omega <= 1.01 * TURNS[-1] / point.rtt_s]
    sensitivity = np.abs(gain.sensitivity(loop.terms, 1j * omega))
    # The peak itself, between two of these frequencies.
    k = int(sensitivity.argmax())
    near = np.linspace(omega[max(k - 1, 0)], omega[min(k + 1, len(omega) - 1)], 33)
    peak = np.abs(gain.sensitivity(loop.terms, 1j * near)).max()
    noise, load = (sensitivity**2 * part for part in disturbed(loop, omega))
    return (
        float(max(peak, sensitivity[k])),
        math.sqrt(float(np.trapezoid(noise, omega)) / math.pi),
        math.sqrt(float(np.trapezoid(load, omega)) / math.pi),
    )
