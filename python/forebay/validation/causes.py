"""Why simulated and real flows differ: what applies to the scenarios, with their numbers.

`Facts` has the plain facts of a comparison. A `Rule` is a sentence over them, and the condition
under which it applies; code in a sentence stands between backticks.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from forebay.base import registries
from forebay.base.registries import baseline
from forebay.validation.comparison import SHORT, Comparison, Row, Side
from forebay.validation.mapping import LEAD_S

#: How the names of senders begin that are modelled on the kernel's.
KERNEL_LIKE = "linux-"
STD = "queue_std_pkts"
#: A link above this utilisation is full: its goodput shows the headers.
FULL = 0.98
#: A goodput that is off by less is not worth a line.
LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Cause:
    """One reason."""

    title: str
    text: str


@dataclass(frozen=True)
class Facts:
    """What the causes depend on; lists are empty where there is nothing to say.

    tails: deviations of the queue under the baseline, where real flows make it swing less.
    low: laws whose queue settles below the set-point on both sides.
    short: whether there are short transfers.
    less_goodput: how much less the real goodput of full links is, in %; None where it is not.
    """

    kernel_like: list[str]
    others: list[str]
    short: bool
    baseline: str
    tails: list[str]
    low: list[str]
    less_goodput: float | None
    void: int


@dataclass(frozen=True)
class Rule:
    """A cause: its sentences are filled in with the facts' fields."""

    applies: Callable[[Facts], object]
    title: str
    text: str

    def cause(self, facts: Facts) -> Cause:
        fields = {
            **vars(facts),
            "kernel_like": ", ".join(f"`{name}`" for name in facts.kernel_like),
            "tails": "; ".join(facts.tails),
            "low": "; ".join(facts.low),
        }
        return Cause(self.title.format(**fields), self.text.format(**fields))


#: Differences between the simulated sender and the kernel's.
SENDERS = [
    Rule(
        lambda facts: facts.kernel_like,
        "Sender",
        "senders after the kernel's ({kernel_like}) have its recovery (RACK, tail loss probes, "
        "PRR, F-RTO), timers, growth, HyStart and deferral of segments. They leave out undo by "
        "DSACK or timestamps, the restart after idle and receive windows that tune themselves.",
    ),
    Rule(
        lambda facts: facts.kernel_like,
        "Delayed ACKs",
        "the simulated receiver waits `ack_delay` for a second packet. The kernel's receiver "
        "waits 40 to 200 ms, depending on the times between its packets.",
    ),
    Rule(
        lambda facts: facts.others,
        "Initial window",
        "the kernel begins with 10 packets (RFC 6928), the simulator with 2 unless "
        '`initial_window = "10p"` says otherwise.',
    ),
    Rule(
        lambda facts: facts.others,
        "Recovery",
        "the kernel always has SACK, with RACK (RFC 8985) and PRR (RFC 6937) on top. The "
        "simulator's `sack` and `cubic` recover with SACK, without RACK's timer and without PRR. "
        "They halve at once; PRR lets the packets under way fall over a round trip.",
    ),
    Rule(
        lambda facts: set(facts.others) - {"cubic"},
        "Growth under delayed ACKs",
        "the kernel's Reno adds one packet per window of *acknowledged packets* (as RFC 3465 "
        "allows), the simulator's one per window of *ACKs* (RFC 5681, as ns-2 counts). With "
        "`delayed_ack = false` the growth is the same, but the simulator then lacks the bursts of "
        "two packets per ACK.",
    ),
    Rule(
        lambda facts: "cubic" in facts.others,
        "CUBIC's slow start",
        "the kernel's leaves slow start when the RTT rises (HyStart), the simulator's at the "
        "first loss.",
    ),
    Rule(
        lambda facts: "cubic" in facts.others,
        "CUBIC above its last window",
        "RFC 9438 (section 4.3) lets the Reno-friendly window grow with α = 1 from the size at "
        "which it was last reduced. The simulator does so; the kernel keeps α = 0.53 and "
        "therefore loses less.",
    ),
    Rule(
        lambda facts: "cubic" in facts.others,
        "CUBIC's β and arithmetic",
        "β is 717/1024 in the kernel, 0.7 in RFC 9438. The kernel's windows are whole packets.",
    ),
    Rule(
        lambda facts: facts.others and facts.short,
        "Lost SYNs",
        "the kernel sends another SYN after 1 s (RFC 6298), the simulator after 3 s, as ns-2 does. "
        "The difference matters where many packets of short transfers are lost.",
    ),
    Rule(
        lambda facts: facts.others,
        "ACK timing",
        "the kernel's receiver acknowledges every packet at first, and then waits 40 to 200 ms "
        "for a second packet. The simulator's acknowledges every packet, or with `delayed_ack` "
        "waits 100 ms.",
    ),
]

#: Differences that no setting covers, of queues and of runs; the laws' own reasons come between.
QUEUES = [
    Rule(
        lambda facts: facts.tails,
        "Synchronisation under {baseline}",
        "flows of one RTT lose in the same overflow and halve together, in the simulator to "
        "the packet. Threads and stalls of a real machine spread them, so the queue swings less. "
        "Its deviation is {tails}.",
    ),
    Rule(
        lambda facts: facts.low,
        "Below the set-point",
        "a law cuts a probability at zero when the queue is short, and the integral lacks what it "
        "cut off. The queue settles below the set-point on both sides, and lower where it swings "
        "further. Here {low}.",
    ),
]
RUNS = [
    Rule(
        lambda facts: facts.less_goodput,
        "Headers",
        "the simulator's goodput leaves out the bytes of `header`. The kernel's packets carry "
        "headers of 52 bytes, timestamps included. On a full link the real goodput is "
        "{less_goodput:.1f} % less in the median; compare utilisations instead.",
    ),
    Rule(
        lambda facts: facts.short,
        "Short transfers",
        "a real connection sends two small packets more than the simulated one, the last of "
        "its handshake and its FIN, and up to two packets of data after its mouse has closed. "
        "The link's goodput leaves out flows that got less than 15 kB within the window. The "
        "goodput of the short transfers is counted at their senders and leaves out none.",
    ),
    Rule(
        lambda _: True,
        "Start",
        "flows draw their start times from the same interval, and short transfers their times and "
        "sizes from the same distributions, but the drawn values differ. The processes of a busy "
        "machine start late.",
    ),
    Rule(
        lambda facts: facts.void,
        "Lateness",
        "void runs among those shown: {void}. A stall of the emulator holds the queue still, "
        "often while senders and receivers wait for the same processor. Afterwards it sends the "
        "packets that became due as a burst.",
    ),
]


def of_senders(found: Sequence[Comparison]) -> list[Cause]:
    """Differences between the simulated sender and the kernel's."""
    return _apply(SENDERS, _facts(found))


def of_the_rest(found: Sequence[Comparison]) -> list[Cause]:
    """Differences that no setting covers."""
    facts = _facts(found)
    return [*_apply(QUEUES, facts), *_of_laws(found), *_apply(RUNS, facts)]


def _apply(rules: Sequence[Rule], facts: Facts) -> list[Cause]:
    return [rule.cause(facts) for rule in rules if rule.applies(facts)]


def _facts(found: Sequence[Comparison]) -> Facts:
    senders = sorted(_senders(found))
    reference = baseline()
    rows = [(one, row) for one in found for row in one.rows]
    return Facts(
        kernel_like=[name for name in senders if name.startswith(KERNEL_LIKE)],
        others=[name for name in senders if not name.startswith(KERNEL_LIKE)],
        short=any(SHORT.name in one.metrics for one in found),
        baseline=reference["short_title"],
        tails=[
            "{:.1f} packets simulated, {:.1f} real".format(
                *(side.mean(STD) for side in _sides(row))
            )
            for one, row in rows
            if row.info and row.info.kind == reference["name"] and _swings_less(one, row)
        ],
        low=[text for one, row in rows if (text := _below_set_point(one, row))],
        less_goodput=_less_goodput([row for _, row in rows]),
        void=sum(row.void for _, row in rows),
    )


def _senders(found: Sequence[Comparison]) -> set[str]:
    """The simulated ones."""
    return {t.tcp for one in found for point in one.points for t in point.traffic if t.tcp}


def _sides(row: Row) -> tuple[Side, Side]:
    return row.simulated, row.real


def _swings_less(found: Comparison, row: Row) -> bool:
    """Whether real flows make the queue swing less than simulated ones of another sender."""
    simulated, real = (side.mean(STD) for side in _sides(row))
    kernel_like = any(name.startswith(KERNEL_LIKE) for name in _senders([found]))
    return not kernel_like and not row.agrees and real < simulated


def _below_set_point(found: Comparison, row: Row) -> str:
    """The queues of a law that integrates and settles below its set-point; "" elsewhere."""
    if not row.info or not row.info.kind or not row.info.integrates:
        return ""
    cut = _without_signal(found, row.simulated, 0), _without_signal(found, row.real, LEAD_S)
    queues = [side.mean("queue_mean_pkts") for side in _sides(row)]
    if not row.info.target_pkts or max(queues) >= row.info.target_pkts or min(cut) <= 0:
        return ""
    return (
        f"{row.name} {queues[0]:.1f} packets simulated and {queues[1]:.1f} real, with no "
        f"signal for {100 * cut[0]:.1f} % and {100 * cut[1]:.1f} % of the time"
    )


def _of_laws(found: Sequence[Comparison]) -> list[Cause]:
    """The reasons that laws give in their own files, for those that differ."""
    laws: dict[tuple[str, str], set[str]] = {}
    for row in (row for one in found for row in one.rows):
        reason = registries.law(row.info.kind)["reality"] if row.info and row.info.kind else None
        if reason and not row.agrees:
            laws.setdefault(reason, set()).add(row.law)
    return [
        Cause(f"{title} under {' and '.join(sorted(rows))}", text)
        for (title, text), rows in laws.items()
    ]


def _less_goodput(rows: Sequence[Row]) -> float | None:
    """How much less the real goodput of full links is in the median, in %."""
    shares = [
        _per_capacity(row.real) / _per_capacity(row.simulated)
        for row in rows
        if min(side.mean("utilisation") for side in _sides(row)) > FULL
    ]
    less = 1 - statistics.median(shares) if shares else 0.0
    return 100 * less if less > LEAST_SHARE else None


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
