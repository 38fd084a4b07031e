"""Why simulated and real flows differ: what applies to the scenarios, with their numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from forebay import _native
from forebay.validate.comparison import SHORT, Comparison, Side
from forebay.validate.mapping import LEAD_S

#: How the names of senders begin that are modelled on the kernel's.
KERNEL_LIKE = "linux-"
STD = "queue_std_pkts"
#: How full a link has to be for its goodput to show the headers.
FULL = 0.98
#: A goodput that is off by less is not worth a line.
LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Cause:
    """One reason; code stands between backticks."""

    title: str
    text: str


def of_senders(found: Sequence[Comparison]) -> list[Cause]:
    """What the simulated sender is told, and what it lacks."""
    short = any(SHORT.name in one.metrics for one in found)
    senders = _senders(found)
    kernel_like = {name for name in senders if name.startswith(KERNEL_LIKE)}
    return [*_of_kernel_like(kernel_like), *_of_others(senders - kernel_like, short)]


def of_the_rest(found: Sequence[Comparison]) -> list[Cause]:
    """What no setting covers."""
    return [*_of_laws(found), *_of_numbers(found), *_of_transfers(found), *_of_runs(found)]


def _senders(found: Sequence[Comparison]) -> set[str]:
    """The simulated ones."""
    return {t.tcp for one in found for point in one.points for t in point.traffic if t.tcp}


def _of_kernel_like(senders: set[str]) -> Iterator[Cause]:
    if not senders:
        return
    yield Cause(
        "Sender",
        f"{' and '.join(f'`{name}`' for name in sorted(senders))} follow the kernel's recovery "
        "(RACK, tail loss probes, PRR, F-RTO), timers, growth, HyStart and deferral of segments; "
        "undo by DSACK or timestamps, pacing and windows that receivers tune are left out.",
    )
    yield Cause(
        "Delayed ACKs",
        "the simulated receiver waits for a second packet as long as `ack_delay` says; the "
        "kernel's for 40 to 200 ms, by the times between its packets.",
    )


def _of_others(senders: set[str], short: bool) -> Iterator[Cause]:
    if not senders:
        return
    yield Cause(
        "Initial window",
        "the kernel begins with 10 packets (RFC 6928), the simulator with 2 unless "
        '`initial_window = "10p"` says otherwise.',
    )
    yield Cause(
        "Recovery",
        "the kernel always has SACK, with RACK (RFC 8985) and PRR (RFC 6937) on top. The "
        "simulator's `sack` and `cubic` recover with SACK; they have neither RACK's timer nor PRR, "
        "and halve at once where PRR lets the packets under way fall over a round trip.",
    )
    if senders - {"cubic"}:
        yield Cause(
            "Growth under delayed ACKs",
            "the kernel's Reno adds one packet per window of *acknowledged packets* (as RFC 3465 "
            "allows), the simulator's one per window of *ACKs* (RFC 5681, as ns-2 counts). With "
            "`delayed_ack = false` the growth is the same; the bursts of two packets per ACK are "
            "not.",
        )
    if "cubic" in senders:
        yield Cause(
            "CUBIC's slow start",
            "the kernel's leaves slow start when the RTT rises (HyStart), the simulator's at the "
            "first loss.",
        )
        yield Cause(
            "CUBIC above its last window",
            "RFC 9438 (section 4.3) lets the Reno-friendly window grow with α = 1 from the size at "
            "which it was last reduced; the simulator does so, the kernel keeps α = 0.53 and so "
            "loses less.",
        )
        yield Cause(
            "CUBIC's β and arithmetic",
            "β is 717/1024 in the kernel, 0.7 in RFC 9438. The kernel's windows are whole packets.",
        )
    if short:
        yield Cause(
            "Lost SYNs",
            "the kernel sends another after 1 s (RFC 6298), the simulator after 3 s, as ns-2 does. "
            "It counts where many packets of short transfers are lost.",
        )
    yield Cause(
        "ACK timing",
        "the kernel's receiver acknowledges every packet at first, and waits 40 to 200 ms for a "
        "second packet; the simulator's acknowledges every packet, or with `delayed_ack` waits "
        "100 ms.",
    )


def _of_laws(found: Sequence[Comparison]) -> Iterator[Cause]:
    laws = {entry["name"]: entry for entry in _native.laws()}
    known = [
        (one, row, row.info, laws[row.info.kind])
        for one in found
        for row in one.rows
        if row.info and row.info.kind
    ]
    plain = next(law for law in laws.values() if law["baseline"])
    tails = [
        f"{row.simulated.mean(STD):.1f} packets simulated, {row.real.mean(STD):.1f} real"
        for one, row, _, law in known
        if law is plain
        and not any(name.startswith(KERNEL_LIKE) for name in _senders([one]))
        and not row.agrees
        and row.real.mean(STD) < row.simulated.mean(STD)
    ]
    if tails:
        yield Cause(
            f"Synchronisation under {plain['short_title']}",
            "flows of one RTT lose in the same overflow and halve together, in the simulator to "
            "the packet. Threads and stalls of a real machine spread them, so that the queue "
            f"swings less: its deviation is {'; '.join(tails)}.",
        )
    low = []
    for one, row, info, _ in known:
        if not info.integrates:
            continue
        target = info.target_pkts
        cut = [_without_signal(one, row.simulated, 0), _without_signal(one, row.real, LEAD_S)]
        queues = [side.mean("queue_mean_pkts") for side in (row.simulated, row.real)]
        if target and max(queues) < target and min(cut) > 0:
            low.append(
                f"{row.name} {queues[0]:.1f} packets simulated and {queues[1]:.1f} real, with no "
                f"signal for {100 * cut[0]:.1f} % and {100 * cut[1]:.1f} % of the time"
            )
    if low:
        yield Cause(
            "Below the set-point",
            "a small probability is cut at zero when the queue is short, and what is cut off is "
            "missing from the integral: the queue settles below the set-point, on both sides, and "
            f"lower where it swings further. Here {'; '.join(low)}.",
        )
    reasons: dict[tuple[str, str], set[str]] = {}
    for _, row, _, law in known:
        if law["reality"] and not row.agrees:
            reasons.setdefault(law["reality"], set()).add(row.law)
    for (title, text), rows in reasons.items():
        yield Cause(f"{title} under {' and '.join(sorted(rows))}", text)


def _of_numbers(found: Sequence[Comparison]) -> Iterator[Cause]:
    shares = [
        _per_capacity(row.real) / _per_capacity(row.simulated)
        for one in found
        for row in one.rows
        if min(row.real.mean("utilisation"), row.simulated.mean("utilisation")) > FULL
    ]
    if shares and 1 - statistics.median(shares) > LEAST_SHARE:
        less = 100 * (1 - statistics.median(shares))
        yield Cause(
            "Headers",
            "the simulator's goodput leaves out what `header` says; the kernel's packets carry "
            "52 bytes of it, timestamps included. On a full link the real goodput is "
            f"{less:.1f} % less in the median; utilisation is the number to compare.",
        )


def _of_transfers(found: Sequence[Comparison]) -> Iterator[Cause]:
    if any(SHORT.name in one.metrics for one in found):
        yield Cause(
            "Short transfers",
            "a real connection sends two small packets more than the simulated one, the last of "
            "its handshake and its FIN, and up to two packets of data after its mouse has closed. "
            "The link's goodput leaves out flows that got less than 15 kB within the window; that "
            "of the short transfers is counted at their senders, and leaves out none.",
        )


def _of_runs(found: Sequence[Comparison]) -> Iterator[Cause]:
    yield Cause(
        "Start",
        "flows draw their start times from the same interval, and short transfers their times and "
        "sizes from the same distributions, but not the same ones; the processes of a busy machine "
        "start late.",
    )
    void = sum(row.void for one in found for row in one.rows)
    if void:
        yield Cause(
            "Lateness",
            f"{void} of the runs shown {'is' if void == 1 else 'are'} void. A stall of the "
            "emulator holds the queue still, often while senders and receivers wait for the same "
            "processor; what was due meanwhile is then sent at once, as a burst.",
        )


def _per_capacity(side: Side) -> float:
    return side.mean("goodput_bps") / side.mean("utilisation")


def _without_signal(found: Comparison, side: Side, zero_s: float) -> float:
    """Share of the measured samples with a probability of zero."""
    start_s, end_s = found.points[0].measure_s
    shares = []
    for one in side.observed:
        time_s = one.samples["time_s"] - zero_s
        p = one.samples["p"][(time_s > start_s) & (time_s <= end_s)]
        shares.append(float(np.mean(p <= 0)))
    return statistics.mean(shares)
