"""Identification: C, signals, R, N and the loop gain of a queue from its samples.

All have intervals of 95 %. `link_toml` writes the link for `forebay design --from`, and `read_link`
reads it.

C is what leaves while packets wait. R is the time after which a signal is answered: the arrivals
per interval, as a function of the time since a signal that came by chance, drop at one round trip
(and again at two), since ACKs clock packets and only a sender that has cut its window leaves a gap.
N is C·R over the window that TCP keeps at the measured rate of signals, by the model of Padhye et
al. (1998), with timeouts. Intervals are by blocks of the record: of means for C and the signals, by
resampling blocks for R, and N has those of what it is made of.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay._native as _native
from forebay._base import quantities
from forebay._base.words import in_figures
from forebay._native import ScenarioError
from forebay.control.link import PLAIN, modelled_senders
from forebay.control.queue_records import Floats, QueueRecord
from forebay.control.senders import SENDERS

#: Blocks of the record, and draws from them.
BLOCKS, DRAWS = 24, 100
#: Of a normal distribution, 95 % on both sides.
NORMAL = 1.96
#: Fewest busy intervals, and fewest signals, that say anything.
FEWEST_BUSY, FEWEST_SIGNALS = 50, 100
#: A round trip must have so many intervals, and the record so many round trips.
FEWEST_INTERVALS, FEWEST_TRIPS = 5.0, 200.0
#: Longest round trip that is looked for.
LONGEST_S = 4.0
#: Largest distance of the answer to a signal from a step, as a share of the step.
ROUGH = 0.07
#: Widths of the step, as shares of the round trip, that are tried.
WIDTHS = (0.03, 0.06, 0.12)
#: Least time until a timeout, Linux's and ns-2's.
TIMEOUT_S = 0.2
#: How far the law of TCP itself is off, to either side, over the drawn links of
#: docs/evidence/identify.md.
LAW_ERROR = 0.2
#: Of a round trip at least this share is no wait in the queue, or the step that was found is one of
#: something else.
LEAST_PROPAGATION = 0.1
#: Packets are whole, and where a busy time ends depends on when one has left: C is known no better.
WHOLE = 2e-3
#: How late the step comes after a round trip at most, as a share of it, by the three duplicate ACKs
#: that tell a sender of a loss, over the same links.
LATE = 0.12


@dataclass(frozen=True)
class IntervalEstimate:
    """A number with its interval of 95 %. Where it is not identified, `why` says so, and all are
    nan."""

    value: float
    low: float
    high: float
    why: str = ""

    @staticmethod
    def unknown(why: str) -> IntervalEstimate:
        return IntervalEstimate(math.nan, math.nan, math.nan, why)

    @staticmethod
    def around(value: float, half: float) -> IntervalEstimate:
        return IntervalEstimate(value, value - half, value + half)

    @property
    def known(self) -> bool:
        return not self.why

    def to_dict(self) -> dict[str, Any]:
        if not self.known:
            return {"value": None, "why": self.why}
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Identified:
    """The numbers identified from the samples of a queue.

    rate_bps: of the link. packet_bytes: mean size of what leaves. loss, signals: dropped, and
    dropped or marked, per packet that comes. rtt_s: with the wait in the queue; propagation_s
    without it. window_pkts: of a flow, by the law of TCP. queue_pkts: its mean. busy: share of the
    intervals in which packets wait all the time. assumed: what no sample says, in a sentence.
    remarks: what was met in the record, and what was done with it.
    """

    name: str
    rate_bps: IntervalEstimate
    packet_bytes: float
    loss: IntervalEstimate
    signals: IntervalEstimate
    rtt_s: IntervalEstimate
    propagation_s: IntervalEstimate
    window_pkts: IntervalEstimate
    flows: IntervalEstimate
    queue_pkts: IntervalEstimate
    busy: float
    duration_s: float
    assumed: str
    remarks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            key: value.to_dict()
            if isinstance(value, IntervalEstimate)
            else quantities.finite(value)
            for key, value in vars(self).items()
        }


def identify(
    series: QueueRecord, propagation_s: float | None = None, tcp: str = PLAIN
) -> Identified:
    """Identify the link, the flows and the round trip from the samples of a queue.

    propagation_s: the round trip without the queue, where it is known: R need not be found then.
    tcp: the flows' sender, as `--tcp` of designs names it. Raises `ScenarioError` for another.
    """
    [tcp] = modelled_senders([tcp])
    arrivals, sent = float(series.arrivals.sum()), float(series.sent_bytes.sum())
    departures = arrivals - float(series.drops.sum()) - series.growth_pkts
    packet_bytes = sent / departures if departures > 0 else math.nan
    loss, signals = (_share(counts, series.arrivals) for counts in (series.drops, series.signals))
    queue = _mean(series.queue_pkts)
    queue = IntervalEstimate(queue.value, max(0.0, queue.low), queue.high)
    busy = _busy(series)
    rate = _rate(series, busy, packet_bytes)
    per_s = rate.value / (8 * packet_bytes) if rate.known else math.nan
    if propagation_s is None:
        rtt = round_trip(series)
        if rtt.known and rate.known and rtt.value * (1 - LEAST_PROPAGATION) < queue.value / per_s:
            rtt = IntervalEstimate.unknown(
                "the gap that follows a signal comes sooner than the queue lets a packet through: "
                "give --rtt"
            )
    elif rate.known:
        wait, least, longest = (pkts / per_s for pkts in (queue.value, queue.low, queue.high))
        rtt = IntervalEstimate(propagation_s + wait, propagation_s + least, propagation_s + longest)
    else:
        rtt = IntervalEstimate.unknown(f"the wait in the queue is not known: {rate.why}")
    propagation, window, flows = _derived(
        rate, per_s, rtt, queue, signals, float(series.signals.sum()), tcp
    )
    if propagation_s is not None:
        propagation = IntervalEstimate.around(propagation_s, 0.0)
    return Identified(
        series.name,
        rate,
        packet_bytes,
        loss,
        signals,
        rtt,
        propagation,
        window,
        flows,
        queue,
        float(busy.mean()),
        series.duration_s,
        f"all packets are of long-lived flows of {tcp} that share one round trip",
        series.remarks,
    )


# --- the link -----------------------------------------------------------------------------------


def _busy(series: QueueRecord) -> Floats:
    """Return 1 for intervals at both ends of which packets wait, else 0."""
    waits = series.queue_pkts > 0
    busy = np.concatenate([[False], waits[1:] & waits[:-1]]).astype(float)
    # The row before the first of a part is of another time.
    busy[list(series.parts)] = 0.0
    return busy


def _rate(series: QueueRecord, busy: Floats, packet_bytes: float) -> IntervalEstimate:
    if busy.sum() < FEWEST_BUSY:
        least_bps = 8 * series.sent_bytes.max() / series.interval_s
        return IntervalEstimate.unknown(
            f"the queue is hardly ever busy ({100 * busy.mean():.1f} % of the time); the link has "
            f"at least {in_figures(least_bps / 1e6, 4)} Mbit/s"
        )
    chosen = busy > 0
    # Between two samples that both find packets the queue may have run empty, unless it was as
    # long as what the link sends in that time.
    before = np.concatenate([[0.0], series.queue_pkts[:-1]])
    sure = chosen & (before * packet_bytes >= series.sent_bytes[chosen].mean())
    if sure.sum() >= FEWEST_BUSY:
        chosen = sure
    mean = _mean(8 * series.sent_bytes[chosen] / series.interval_s)
    half = math.hypot(mean.high - mean.value, WHOLE * mean.value)
    if half >= mean.value:
        return IntervalEstimate.unknown(
            f"what leaves the busy queue varies too much ({mean.value / 1e6:.4g} ± "
            f"{half / 1e6:.4g} Mbit/s): a rate that changes, or counters that cannot be trusted"
        )
    return IntervalEstimate.around(mean.value, half)


def _mean(values: Floats) -> IntervalEstimate:
    """Return a mean with the interval of the means of blocks, as samples are correlated."""
    means = np.array([block.mean() for block in np.array_split(values, BLOCKS)])
    half = NORMAL * float(means.std(ddof=1)) / math.sqrt(BLOCKS)
    return IntervalEstimate.around(float(values.mean()), half)


def _share(counts: Floats, of: Floats) -> IntervalEstimate:
    total = float(of.sum())
    if total <= 0:
        return IntervalEstimate.unknown("no packet came")
    mean = float(counts.sum()) / total
    blocks = zip(np.array_split(counts, BLOCKS), np.array_split(of, BLOCKS), strict=True)
    # A ratio's deviation, of what its blocks are off.
    off = np.array([float((c - mean * o).sum()) for c, o in blocks])
    half = NORMAL * math.sqrt(BLOCKS) * float(off.std(ddof=1)) / total
    return IntervalEstimate(mean, max(0.0, mean - half), min(1.0, mean + half))


# --- the round trip -----------------------------------------------------------------------------


def chance(series: QueueRecord) -> Floats:
    """Signals in each interval less what the law's probability had asked for: what came by chance,
    and so depends on nothing before. Without a probability, less their mean."""
    if series.p is None or not np.any(series.p > 0):
        return np.asarray(series.signals - series.signals.mean(), float)
    expected = held(series.p) * series.arrivals
    scale = series.signals.sum() / expected.sum()
    return np.asarray(series.signals - scale * expected, float)


def held(p: Floats) -> Floats:
    """The probability within each interval: mean of both ends."""
    return np.asarray(0.5 * (p + np.concatenate([p[:1], p[:-1]])), float)


def round_trip(series: QueueRecord) -> IntervalEstimate:
    """R with the wait in the queue."""
    count = float(series.signals.sum())
    if count < FEWEST_SIGNALS:
        return IntervalEstimate.unknown(
            f"{count:.0f} signals are too few to see them answered (at least {FEWEST_SIGNALS})"
        )
    dt_s = series.interval_s
    lags = int(min(LONGEST_S / dt_s, len(series.arrivals) / 20, 2000))
    if lags < 3 * FEWEST_INTERVALS:
        return IntervalEstimate.unknown("the record is too short")
    by_chance, arrivals = chance(series), series.arrivals - series.arrivals.mean()
    blocks = _answers(by_chance, arrivals, lags)
    lag_s = np.asarray((np.arange(1, lags) + 0.5) * dt_s, float)
    power = np.array([float((block**2).sum()) for block in np.array_split(by_chance, BLOCKS)])

    def answer(weights: Floats) -> Floats:
        return np.asarray(np.cumsum((weights @ blocks)[1:] / (weights @ power)), float)

    best = _step(answer(np.ones(BLOCKS)), lag_s, lag_s[0] * 2, lag_s[-1] / 1.65)
    if best is None or best[0] > ROUGH:
        return IntervalEstimate.unknown("no clear gap follows a signal: give --rtt")
    rtt_s = best[1]
    if rtt_s < FEWEST_INTERVALS * dt_s:
        return IntervalEstimate.unknown(
            f"samples of {1e3 * dt_s:g} ms are too far apart for a round trip of about "
            f"{in_figures(1e3 * rtt_s)} ms: sample more often, or give --rtt"
        )
    if series.duration_s < FEWEST_TRIPS * rtt_s:
        return IntervalEstimate.unknown("the record is too short for a round trip this long")
    # The same draws on every call: an estimate is a function of the record.
    draws = np.random.default_rng(1).multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), DRAWS)
    ends = [
        fit[1]
        for weights in draws
        if (fit := _step(answer(weights.astype(float)), lag_s, 0.6 * rtt_s, 1.5 * rtt_s, 40))
    ]
    low, high = np.percentile(ends, [2.5, 97.5])
    # A sample's width is not resolved.
    half_s = dt_s / math.sqrt(12) * NORMAL
    return IntervalEstimate(
        rtt_s,
        rtt_s - math.hypot(rtt_s - low, half_s, LATE * rtt_s),
        rtt_s + math.hypot(high - rtt_s, half_s),
    )


def _answers(by_chance: Floats, arrivals: Floats, lags: int) -> Floats:
    """Σ chance(t)·arrivals(t + lag) of each block, a row for each."""
    edges = np.linspace(0, len(by_chance), BLOCKS + 1).astype(int)
    rows = []
    for start, end in itertools.pairwise(edges):
        signals = by_chance[start:end]
        after = arrivals[start : min(end + lags, len(arrivals))]
        size = 1 << (len(signals) + len(after)).bit_length()
        products = np.fft.irfft(np.fft.rfft(after, size) * np.fft.rfft(signals, size).conj(), size)
        rows.append(products[:lags])
    return np.array(rows)


def _step(
    answer: Floats, lag_s: Floats, low_s: float, high_s: float, count: int = 240
) -> tuple[float, float] | None:
    """The round trip R at which a smooth step down fits the answer best over [0, 1.6R]: how far it
    is off, as a share of the step, and R.

    The step is of ACK clocking: a cut window leaves a gap in what comes."""
    best: tuple[float, float] | None = None
    for rtt_s in np.geomspace(low_s, high_s, count):
        rows = lag_s <= 1.6 * rtt_s
        if rows.sum() < 6:
            continue
        lags, response = lag_s[rows], answer[rows]
        for width in WIDTHS:
            wide_s = math.hypot(width * rtt_s, 0.5 * (lag_s[1] - lag_s[0]))
            shape = 0.5 * (1 + np.tanh((lags - rtt_s) / wide_s))
            # The law answers, too, and slowly: a slope beside the step.
            by_shape, by_slope, both = shape @ shape, lags @ lags, shape @ lags
            det = by_shape * by_slope - both**2
            to_shape, to_slope = shape @ response, lags @ response
            depth = float((both * to_slope - by_slope * to_shape) / det)
            if depth <= 0:
                continue
            slope = float((by_shape * to_slope - both * to_shape) / det)
            residual = response + depth * shape - slope * lags
            off = math.sqrt(float((residual**2).mean())) / depth
            if best is None or off < best[0]:
                best = off, float(rtt_s)
    return best


# --- the flows ----------------------------------------------------------------------------------


def window(p: float, rtt_s: float, tcp: str = PLAIN) -> float:
    """Mean window of a flow that gets signals at a rate of p, in packets, with timeouts: of Reno by
    Padhye et al. (1998, eq. 31 with an ACK for each packet), of others their windows at rest in its
    place; those that live on marks have no timeouts."""
    timeout_s = max(TIMEOUT_S, 2 * rtt_s)
    late = min(1.0, 3 * math.sqrt(3 * p / 8)) * p * (1 + 32 * p**2)
    if tcp == PLAIN:
        return rtt_s / (rtt_s * math.sqrt(2 * p / 3) + timeout_s * late)
    sender = SENDERS[tcp]
    alone = float(sender.window(np.array(p), np.array(rtt_s)))
    return alone if sender.ecn else rtt_s / (rtt_s / alone + timeout_s * late)


def _derived(
    rate: IntervalEstimate,
    per_s: float,
    rtt: IntervalEstimate,
    queue: IntervalEstimate,
    signals: IntervalEstimate,
    count: float,
    tcp: str,
) -> tuple[IntervalEstimate, IntervalEstimate, IntervalEstimate]:
    """The propagation, the window and N."""
    why = rate.why or rtt.why
    if why:
        unknown = IntervalEstimate.unknown(why)
        return unknown, unknown, unknown
    propagation = IntervalEstimate(
        max(0.0, rtt.value - queue.value / per_s),
        max(0.0, rtt.low - queue.high / per_s),
        max(0.0, rtt.high - queue.low / per_s),
    )
    if count < FEWEST_SIGNALS:
        unknown = IntervalEstimate.unknown(
            f"{count:.0f} signals are too few to say what window they allow: the queue hardly "
            "builds, or nothing acts on it"
        )
        return propagation, unknown, unknown

    def per_flow(p: float, rtt_s: float) -> float:
        return window(max(p, 1e-9), rtt_s, tcp)

    wide = IntervalEstimate(
        per_flow(signals.value, rtt.value),
        per_flow(signals.high, rtt.low),
        per_flow(signals.low, rtt.high),
    )
    # Errors of p and R are told apart, so that they add in squares; that of the law is to either
    # side.
    flows = per_s * rtt.value / wide.value
    by_law = LAW_ERROR * flows
    ends = []
    for p, rtt_s in ((signals.low, rtt.low), (signals.high, rtt.high)):
        by_r = per_s * rtt_s / per_flow(signals.value, rtt_s) - flows
        by_p = per_s * rtt.value / per_flow(p, rtt.value) - flows
        ends.append(math.hypot(by_r, by_p, by_law))
    return propagation, wide, IntervalEstimate(flows, max(0.0, flows - ends[0]), flows + ends[1])


#: Round trips in a segment, and bands per decade of frequency.
TRIPS, BANDS = 60.0, 8
#: Fewest segments.
FEWEST_SEGMENTS = 6


@dataclass(frozen=True)
class IdentifiedResponse:
    """L over frequency, identified from a closed loop in its steady state.

    A law asks for a probability p, and chance makes of it the signals s = p·λ + e, with arrivals λ.
    What came by chance, e, depends on nothing before, and so separates cause from effect in a
    closed loop: with cross-spectra, L(jω) = −S_pe/S_se, both per packet (an instrumental variable;
    Söderström and Stoica 1983). TCP's own noise, which passes the same loop, drops out.

    omega_rad_s: centres of the bands. gain: L at them. size_error: half the interval of |L|, as a
    share; phase_error_deg: of its angle.
    """

    omega_rad_s: Floats
    gain: NDArray[np.complexfloating]
    size_error: Floats
    phase_error_deg: Floats

    @property
    def crossover_rad_s(self) -> float:
        """The frequency at which |L| falls through one; nan if no band shows it."""
        size = np.log(np.abs(self.gain))
        for i in range(len(size) - 1):
            if size[i] > 0 >= size[i + 1]:
                share = size[i] / (size[i] - size[i + 1])
                low, high = np.log(self.omega_rad_s[i : i + 2])
                return float(np.exp(low + share * (high - low)))
        return math.nan

    @property
    def phase_margin_deg(self) -> float:
        """The phase margin: 180° and the angle of L at the crossover."""
        at = self.crossover_rad_s
        if math.isnan(at):
            return math.nan
        angle = np.degrees(np.unwrap(np.angle(self.gain)))
        # An integral and TCP's poles lag: the first angle is between 0 and −360°.
        angle -= 360 * math.ceil(angle[0] / 360 - 1e-9)
        return 180 + float(np.interp(math.log(at), np.log(self.omega_rad_s), angle))


def loop_response(series: QueueRecord, rtt_s: float) -> IdentifiedResponse | None:
    """The loop's gain; None without a probability, and for a record of too few round trips."""
    if series.p is None or not np.any(series.p > 0) or not series.signals.sum() > 0:
        return None
    dt_s = series.interval_s
    length = 1 << math.ceil(math.log2(TRIPS * rtt_s / dt_s))
    starts = range(0, len(series.arrivals) - length + 1, length // 2)
    if len(starts) < FEWEST_SEGMENTS:
        return None
    law, by_chance = held(series.p), chance(series)
    per_packet = series.signals.sum() / (law * series.arrivals).sum() * series.arrivals.mean()
    window = np.hanning(length)

    def spectrum(values: Floats, start: int) -> NDArray[np.complexfloating]:
        part = values[start : start + length]
        return np.asarray(np.fft.rfft(window * (part - part.mean())))

    by_law = np.array([spectrum(law, i) for i in starts])
    by_draw = np.array([spectrum(by_chance / per_packet, i) for i in starts])
    by_signals = np.array([spectrum(series.signals / per_packet, i) for i in starts])
    omega = 2 * math.pi * np.fft.rfftfreq(length, dt_s)
    highest = min(4 / rtt_s, 0.5 * math.pi / dt_s)
    edges = np.geomspace(omega[2], highest, max(3, round(BANDS * math.log10(highest / omega[2]))))
    rows = []
    for low, high in itertools.pairwise(edges):
        band = (omega >= low) & (omega < high)
        if not band.any():
            continue
        to_law = (by_law[:, band] * by_draw[:, band].conj()).sum(1)
        to_signals = (by_signals[:, band] * by_draw[:, band].conj()).sum(1)
        gain = -to_law.sum() / to_signals.sum()
        power = np.abs(by_law[:, band]) ** 2
        # A law that never moves has no response.
        if not power.any():
            continue
        coherence = abs(to_law.sum()) ** 2 / (power.sum() * (np.abs(by_draw[:, band]) ** 2).sum())
        # Leaving out one segment after the other; half of them are new with half of overlap.
        left_out = -(to_law.sum() - to_law) / (to_signals.sum() - to_signals)
        apart = left_out - left_out.mean()
        error = math.sqrt(
            2 * (len(left_out) - 1) / len(left_out) * float((np.abs(apart) ** 2).sum()) / 2
        )
        if coherence * len(starts) * band.sum() > 3 and error < 0.5 * abs(gain):
            share = NORMAL * error / abs(gain)
            centre = float(omega[band].mean())
            rows.append((centre, gain, share, math.degrees(share)))
    if len(rows) < 3:
        return None
    return IdentifiedResponse(*(np.array(column) for column in zip(*rows, strict=True)))


#: Keys of the file that must be there, with their kinds of quantity; the others are for readers.
RATE, RTT, FLOWS, PACKET = "rate", "rtt", "flows", "packet"


@dataclass(frozen=True)
class IdentifiedLink:
    """rate, packet: texts. rtt: propagation both ways. least and most of their intervals."""

    rate: str
    packet: str
    rtt: tuple[str, str]
    flows: tuple[float, float]


def link_toml(identified: Identified) -> str:
    """The file, in TOML; numbers that are not identified are left out, with the reason."""
    import tomlkit

    document = tomlkit.document()
    document.add(tomlkit.comment(f"identified by forebay from {identified.name}"))

    document.add(tomlkit.comment(f"assumed: {identified.assumed}"))
    for remark in identified.remarks:
        document.add(tomlkit.comment(remark))

    def add(key: str, estimate: Any, write: Any) -> None:
        if estimate.known:
            document.add(key, write(estimate.value))
            document.add(f"{key}_interval", [write(estimate.low), write(estimate.high)])
        else:
            document.add(tomlkit.comment(f"{key}: {estimate.why}"))

    add(RATE, identified.rate_bps, lambda bps: quantities.rate(float(f"{bps:.4g}")))
    if math.isfinite(identified.packet_bytes):
        document.add(PACKET, quantities.size(round(identified.packet_bytes)))
    else:
        document.add(tomlkit.comment(f"{PACKET}: no packet left the queue"))
    add(RTT, identified.propagation_s, lambda s: quantities.time(round(s, 6)))
    add(FLOWS, identified.flows, lambda n: round(max(1.0, n), 2))
    add("signals", identified.signals, lambda p: float(f"{p:.4g}"))
    return tomlkit.dumps(document)


def read_link(path: Path) -> IdentifiedLink:
    """Raises `ScenarioError` for a file that lacks what a design needs."""
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = (error.strerror or "").lower() if isinstance(error, OSError) else str(error)
        raise ScenarioError(
            f'--from: found "{path}", {reason}, allowed: a file of `forebay identify`'
        ) from error
    for key in (RATE, PACKET, RTT, FLOWS):
        if key not in values:
            raise ScenarioError(
                f"--from {path}: found no {key}, allowed: a file of `forebay identify` with rate, "
                "packet, rtt and flows; a comment in it says why it lacks one"
            )
    interval = {key: values.get(f"{key}_interval", [values[key]] * 2) for key in (RTT, FLOWS)}
    for key, kind in [(RATE, "rate"), (PACKET, "size"), (RTT, "time")]:
        _native.quantity(f"--from {path}: {key}", str(values[key]), kind)
    try:
        low, high = (float(end) for end in interval[FLOWS])
        shortest, longest = (str(end) for end in interval[RTT])
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"--from {path}: found {error}, allowed: two values") from error
    for end in (shortest, longest):
        _native.quantity(f"--from {path}: rtt_interval", end, "time")
    return IdentifiedLink(str(values[RATE]), str(values[PACKET]), (shortest, longest), (low, high))
