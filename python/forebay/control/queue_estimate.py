"""Identification of a link from samples of its queue: rate, signals, RTT, flows and loop gain.

All estimates have 95 % confidence intervals. `link_toml` writes the link for `forebay design
--from`, and `read_link` reads it.

The rate C is that of departures while packets wait. The RTT R is the time after which senders
respond to a signal: the arrivals per interval, as a function of the time since a random signal,
drop after one RTT and again after two, since ACKs clock packets and only a sender that has reduced
its window leaves a gap. The number N of flows is C·R over the window that TCP keeps at the measured
signal rate, by the model of Padhye et al. (1998) with timeouts. The intervals use blocks of the
record: batch means for C and the signals, resampled blocks for R, and the propagated intervals for
N.
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
from forebay._base.errors import ParameterError
from forebay._base.words import in_figures
from forebay._native import ScenarioError
from forebay.control.link import PLAIN, modelled_senders
from forebay.control.queue_records import Floats, QueueRecord
from forebay.control.senders import SENDERS

#: Number of blocks of the record, and of resamples.
BLOCKS, DRAWS = 24, 100
#: Two-sided 95 % quantile of the normal distribution.
NORMAL = 1.96
#: Smallest number of busy intervals and of signals for an estimate.
FEWEST_BUSY, FEWEST_SIGNALS = 50, 100
#: Smallest number of intervals in an RTT, and of RTTs in the record.
FEWEST_INTERVALS, FEWEST_TRIPS = 5.0, 200.0
#: Longest RTT of the search, in seconds.
LONGEST_S = 4.0
#: Largest error of the response to a signal relative to the fitted step.
ROUGH = 0.07
#: Widths of the step relative to the RTT that are tried.
WIDTHS = (0.03, 0.06, 0.12)
#: Smallest retransmission timeout of Linux and ns-2, in seconds.
TIMEOUT_S = 0.2
#: Relative error of the model of TCP over the random links of docs/evidence/identify.md.
LAW_ERROR = 0.2
#: Smallest fraction of the RTT that is propagation; a smaller one means that the step is not an
#: RTT.
LEAST_PROPAGATION = 0.1
#: Smallest relative error of C, since packets are whole.
WHOLE = 2e-3
#: Largest delay of the step after an RTT, relative to it, by the three duplicate ACKs of a loss;
#: over the same links.
LATE = 0.12


@dataclass(frozen=True)
class IntervalEstimate:
    """A number with its 95 % confidence interval.

    Attributes
    ----------
    value, low, high : float
        Estimate and interval; NaN if the number is not identified.
    why : str
        Reason why the number is not identified, or else empty.
    """

    value: float
    low: float
    high: float
    why: str = ""

    @staticmethod
    def unknown(why: str) -> IntervalEstimate:
        """Return an estimate that is not identified, with the reason."""
        return IntervalEstimate(math.nan, math.nan, math.nan, why)

    @staticmethod
    def around(value: float, half: float) -> IntervalEstimate:
        """Return an estimate with a symmetric interval."""
        return IntervalEstimate(value, value - half, value + half)

    @property
    def known(self) -> bool:
        """True if the number is identified."""
        return not self.why

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate for JSON."""
        if not self.known:
            return {"value": None, "why": self.why}
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Identified:
    """The quantities that are identified from the samples of a queue.

    Attributes
    ----------
    name : str
        Name of the record.
    rate_bps : IntervalEstimate
        Rate of the link.
    packet_bytes : float
        Mean size of departing packets.
    loss, signals : IntervalEstimate
        Drops, and drops and marks, per arriving packet.
    rtt_s, propagation_s : IntervalEstimate
        RTT with and without queueing.
    window_pkts : IntervalEstimate
        Window of a flow, by the model of TCP.
    flows : IntervalEstimate
        Number of flows.
    queue_pkts : IntervalEstimate
        Mean queue.
    busy : float
        Fraction of the intervals in which packets always wait.
    duration_s : float
        Duration of the record.
    assumed : str
        Assumptions that the samples cannot confirm.
    remarks : tuple of str
        Remarks on the record and its treatment.
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
        """Return the numbers for JSON."""
        return {
            key: value.to_dict()
            if isinstance(value, IntervalEstimate)
            else quantities.finite(value)
            for key, value in vars(self).items()
        }


def identify(
    series: QueueRecord, propagation_s: float | None = None, tcp: str = PLAIN
) -> Identified:
    """Identify the link, its flows and their RTT from the samples of a queue.

    Parameters
    ----------
    series : QueueRecord
        The samples.
    propagation_s : float, optional
        RTT without queueing, if it is known; R is estimated otherwise.
    tcp : str, optional
        Congestion control of the flows.

    Raises
    ------
    ParameterError
        If theory has no model of the congestion control.
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
    rtt = _rtt(series, propagation_s, queue, rate, per_s)
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


def _rtt(
    series: QueueRecord,
    propagation_s: float | None,
    queue: IntervalEstimate,
    rate: IntervalEstimate,
    pkts_per_s: float,
) -> IntervalEstimate:
    """Return the RTT with its queue, from the RTT without it or from the gaps after signals."""
    if propagation_s is None:
        rtt = round_trip(series)
        shortest_s = queue.value / pkts_per_s if rate.known else 0.0
        if rtt.known and rtt.value * (1 - LEAST_PROPAGATION) < shortest_s:
            return IntervalEstimate.unknown(
                "the gap after a signal comes sooner than a packet passes the queue: give the RTT"
            )
        return rtt
    if not rate.known:
        return IntervalEstimate.unknown(f"the queuing delay is unknown: {rate.why}")
    wait, least, longest = (pkts / pkts_per_s for pkts in (queue.value, queue.low, queue.high))
    return IntervalEstimate(propagation_s + wait, propagation_s + least, propagation_s + longest)


# --- the link -----------------------------------------------------------------------------------


def _busy(series: QueueRecord) -> Floats:
    """Return 1 for intervals at both ends of which packets wait, and 0 for others."""
    waits = series.queue_pkts > 0
    busy = np.concatenate([[False], waits[1:] & waits[:-1]]).astype(float)
    # The row before a part is from another time.
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
    # Between two samples with packets the queue may have run empty, unless it was as long as the
    # packets that the link sends in that time.
    before = np.concatenate([[0.0], series.queue_pkts[:-1]])
    sure = chosen & (before * packet_bytes >= series.sent_bytes[chosen].mean())
    if sure.sum() >= FEWEST_BUSY:
        chosen = sure
    mean = _mean(8 * series.sent_bytes[chosen] / series.interval_s)
    half = math.hypot(mean.high - mean.value, WHOLE * mean.value)
    if half >= mean.value:
        return IntervalEstimate.unknown(
            f"the rate of departures of the busy queue varies too much ({mean.value / 1e6:.4g} ± "
            f"{half / 1e6:.4g} Mbit/s): the rate changes, or the counters are wrong"
        )
    return IntervalEstimate.around(mean.value, half)


def _mean(values: Floats) -> IntervalEstimate:
    """Return a mean with a batch-means confidence interval, since samples are correlated."""
    means = np.array([block.mean() for block in np.array_split(values, BLOCKS)])
    half = NORMAL * float(means.std(ddof=1)) / math.sqrt(BLOCKS)
    return IntervalEstimate.around(float(values.mean()), half)


def _share(counts: Floats, of: Floats) -> IntervalEstimate:
    total = float(of.sum())
    if total <= 0:
        return IntervalEstimate.unknown("no packet arrived")
    mean = float(counts.sum()) / total
    blocks = zip(np.array_split(counts, BLOCKS), np.array_split(of, BLOCKS), strict=True)
    # The standard deviation of a ratio is that of the deviations of its blocks.
    deviations = np.array([float((c - mean * o).sum()) for c, o in blocks])
    half = NORMAL * math.sqrt(BLOCKS) * float(deviations.std(ddof=1)) / total
    return IntervalEstimate(mean, max(0.0, mean - half), min(1.0, mean + half))


# --- the round trip -----------------------------------------------------------------------------


def chance(series: QueueRecord) -> Floats:
    """Return the signals of each interval minus those that the law's probability predicts.

    The difference is random and independent of the past. Without a probability the mean is
    subtracted.
    """
    if series.p is None or not np.any(series.p > 0):
        return np.asarray(series.signals - series.signals.mean(), float)
    expected = held(series.p) * series.arrivals
    scale = series.signals.sum() / expected.sum()
    return np.asarray(series.signals - scale * expected, float)


def held(p: Floats) -> Floats:
    """Return the mean of the probabilities at both ends of each interval."""
    return np.asarray(0.5 * (p + np.concatenate([p[:1], p[:-1]])), float)


def round_trip(series: QueueRecord) -> IntervalEstimate:
    """Estimate R, which includes queueing."""
    count = float(series.signals.sum())
    if count < FEWEST_SIGNALS:
        return IntervalEstimate.unknown(
            f"{count:.0f} signals are too few for a response; at least {FEWEST_SIGNALS} are needed"
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
        return IntervalEstimate.unknown(
            "no clear gap in the arrivals follows a signal, which would show the RTT; give the RTT"
        )
    rtt_s = best[1]
    if rtt_s < FEWEST_INTERVALS * dt_s:
        return IntervalEstimate.unknown(
            f"samples of {1e3 * dt_s:g} ms are too far apart for a round trip of about "
            f"{in_figures(1e3 * rtt_s)} ms: sample more often, or give the RTT"
        )
    if series.duration_s < FEWEST_TRIPS * rtt_s:
        return IntervalEstimate.unknown(
            "the record is too short for an RTT as long as this one; record for longer"
        )
    # The resamples are always the same, so that an estimate is a function of the record.
    draws = np.random.default_rng(1).multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), DRAWS)
    ends = [
        fit[1]
        for weights in draws
        if (fit := _step(answer(weights.astype(float)), lag_s, 0.6 * rtt_s, 1.5 * rtt_s, 40))
    ]
    low, high = np.percentile(ends, [2.5, 97.5])
    # The time between two samples is not resolved.
    half_s = dt_s / math.sqrt(12) * NORMAL
    return IntervalEstimate(
        rtt_s,
        rtt_s - math.hypot(rtt_s - low, half_s, LATE * rtt_s),
        rtt_s + math.hypot(high - rtt_s, half_s),
    )


def _answers(by_chance: Floats, arrivals: Floats, lags: int) -> Floats:
    """Return Σ chance(t)·arrivals(t + lag) with a row for each block."""
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
    """Fit a smooth step down to the response over [0, 1.6R], and return its error and R.

    The error is relative to the height of the step. The step is caused by ACK clocking: a reduced
    window leaves a gap in the arrivals.
    """
    best: tuple[float, float] | None = None
    for rtt_s in np.geomspace(low_s, high_s, count):
        rows = lag_s <= 1.6 * rtt_s
        if rows.sum() < 6:
            continue
        lags, response = lag_s[rows], answer[rows]
        for width in WIDTHS:
            wide_s = math.hypot(width * rtt_s, 0.5 * (lag_s[1] - lag_s[0]))
            shape = 0.5 * (1 + np.tanh((lags - rtt_s) / wide_s))
            # The law responds slowly, which adds a slope to the step.
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
    """Return the mean window of a flow in packets, with timeouts.

    Reno follows Padhye et al. (1998, eq. 31 with an ACK for each packet). Other senders have their
    equilibrium window in place of its square-root law; senders that respond to marks have no
    timeouts.

    Parameters
    ----------
    p : float
        Signals per packet.
    rtt_s : float
        RTT with queueing, in seconds.
    tcp : str, optional
        Congestion control.
    """
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
    """Return the propagation RTT, the window and the number of flows."""
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
            f"{count:.0f} signals are too few for an estimate of the window: the queue hardly "
            "builds, or no law acts on it"
        )
        return propagation, unknown, unknown

    def per_flow(p: float, rtt_s: float) -> float:
        return window(max(p, 1e-9), rtt_s, tcp)

    wide = IntervalEstimate(
        per_flow(signals.value, rtt.value),
        per_flow(signals.high, rtt.low),
        per_flow(signals.low, rtt.high),
    )
    # Errors of p, R and the model are independent, so their squares add.
    flows = per_s * rtt.value / wide.value
    by_law = LAW_ERROR * flows
    ends = []
    for p, rtt_s in ((signals.low, rtt.low), (signals.high, rtt.high)):
        by_r = per_s * rtt_s / per_flow(signals.value, rtt_s) - flows
        by_p = per_s * rtt.value / per_flow(p, rtt.value) - flows
        ends.append(math.hypot(by_r, by_p, by_law))
    return propagation, wide, IntervalEstimate(flows, max(0.0, flows - ends[0]), flows + ends[1])


#: Number of RTTs in a segment, and of bands per decade of frequency.
TRIPS, BANDS = 60.0, 8
#: Smallest number of segments.
FEWEST_SEGMENTS = 6


@dataclass(frozen=True)
class IdentifiedResponse:
    """L over frequency, identified from a closed loop in steady state.

    A law has the probability p, and random draws turn it into the signals s = p·λ + e for arrivals
    λ. The random part e is independent of the past and thus separates cause from effect in a closed
    loop: with cross-spectra, L(jω) = −S_pe/S_se, both per packet (an instrumental variable;
    Söderström and Stoica 1983). TCP's own noise, which passes the same loop, cancels.

    Attributes
    ----------
    omega_rad_s : array of shape (n,)
        Centres of the frequency bands.
    gain : array of shape (n,)
        L at the centres.
    size_error : array of shape (n,)
        Half of the relative interval of |L|.
    phase_error_deg : array of shape (n,)
        Half of the interval of its angle.
    """

    omega_rad_s: Floats
    gain: NDArray[np.complexfloating]
    size_error: Floats
    phase_error_deg: Floats

    @property
    def crossover_rad_s(self) -> float:
        """Frequency at which |L| falls below one; NaN if no band shows it."""
        size = np.log(np.abs(self.gain))
        for i in range(len(size) - 1):
            if size[i] > 0 >= size[i + 1]:
                share = size[i] / (size[i] - size[i + 1])
                low, high = np.log(self.omega_rad_s[i : i + 2])
                return float(np.exp(low + share * (high - low)))
        return math.nan

    @property
    def phase_margin_deg(self) -> float:
        """Phase margin: 180° plus the angle of L at the crossover."""
        at = self.crossover_rad_s
        if math.isnan(at):
            return math.nan
        angle = np.degrees(np.unwrap(np.angle(self.gain)))
        # An integral and TCP's poles lag, so the first angle is between 0 and −360°.
        angle -= 360 * math.ceil(angle[0] / 360 - 1e-9)
        return 180 + float(np.interp(math.log(at), np.log(self.omega_rad_s), angle))


def loop_response(series: QueueRecord, rtt_s: float) -> IdentifiedResponse | None:
    """Identify the loop gain; None without a probability, or if the record has too few RTTs.

    Parameters
    ----------
    series : QueueRecord
        The samples.
    rtt_s : float
        RTT with queueing, in seconds.
    """
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
        # A law whose probability never changes has no response.
        if not power.any():
            continue
        coherence = abs(to_law.sum()) ** 2 / (power.sum() * (np.abs(by_draw[:, band]) ** 2).sum())
        # Jackknife over the segments; with an overlap of one half, half of them are independent.
        jackknife = -(to_law.sum() - to_law) / (to_signals.sum() - to_signals)
        deviations = jackknife - jackknife.mean()
        error = math.sqrt(
            2 * (len(jackknife) - 1) / len(jackknife) * float((np.abs(deviations) ** 2).sum()) / 2
        )
        if coherence * len(starts) * band.sum() > 3 and error < 0.5 * abs(gain):
            share = NORMAL * error / abs(gain)
            centre = float(omega[band].mean())
            rows.append((centre, gain, share, math.degrees(share)))
    if len(rows) < 3:
        return None
    return IdentifiedResponse(*(np.array(column) for column in zip(*rows, strict=True)))


#: Required keys of the file.
RATE, RTT, FLOWS, PACKET = "rate", "rtt", "flows", "packet"


@dataclass(frozen=True)
class IdentifiedLink:
    """A link as `forebay design --from` reads it.

    Attributes
    ----------
    rate, packet : str
        Rate and packet size as texts.
    rtt : (str, str)
        Interval of the propagation RTT.
    flows : (float, float)
        Interval of the number of flows.
    """

    rate: str
    packet: str
    rtt: tuple[str, str]
    flows: tuple[float, float]


def link_toml(identified: Identified) -> str:
    """Return the identified link in TOML; a comment gives the reason for each missing number."""
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
    """Read the file of an identified link.

    Raises
    ------
    ScenarioError
        If the file cannot be read, or lacks a number that a design needs.
    """
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = (error.strerror or "").lower() if isinstance(error, OSError) else str(error)
        expected = "a file of `forebay identify`"
        raise ParameterError("from", path, expected, reason=reason) from error
    for key in (RATE, PACKET, RTT, FLOWS):
        if key not in values:
            raise ScenarioError(
                f"{path}: {key} is missing; expected a file of `forebay identify` with rate, "
                "packet, rtt and flows; a comment in the file says why it lacks one"
            )
    interval = {key: values.get(f"{key}_interval", [values[key]] * 2) for key in (RTT, FLOWS)}
    for key, kind in [(RATE, "rate"), (PACKET, "size"), (RTT, "time")]:
        _native.quantity(f"--from {path}: {key}", str(values[key]), kind)
    try:
        low, high = (float(end) for end in interval[FLOWS])
        shortest, longest = (str(end) for end in interval[RTT])
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"{path}: {error}; expected two values") from error
    for end in (shortest, longest):
        _native.quantity(f"{path}: rtt_interval", end, "time")
    return IdentifiedLink(str(values[RATE]), str(values[PACKET]), (shortest, longest), (low, high))
