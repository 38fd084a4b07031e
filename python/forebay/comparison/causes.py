"""Why engines differ: the facts of a comparison. The sentences, and when each
applies, stand in `validate_causes.txt.j2`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay._base import registries
from forebay._base.registries import baseline
from forebay.comparison.engine_comparison import SHORT, Row, Side, ValidatedScenario
from forebay.report.templates import paragraphs

#: Engines on which the kernel's own senders send.
KERNELS = ("kernel", "link")

#: How the names of senders begin that are modelled on the kernel's.
KERNEL_LIKE = "linux-"
STD = "queue_std_pkts"
#: A link above this utilisation is full: its goodput shows the headers.
FULL = 0.98
#: A goodput that is off by less is not worth a line.
LEAST_SHARE = 0.01


def causes(found: Sequence[ValidatedScenario]) -> list[tuple[str, list[str]]]:
    """Paragraphs by what they are about, each with its title in bold."""
    facts = _facts(found)
    groups = [
        ("Between the simulated sender and the kernel's:", "senders"),
        ("Differences that no setting covers:", "the rest"),
    ]
    told = [(title, paragraphs("validate_causes.txt.j2", part=of, **facts)) for title, of in groups]
    return [(title, some) for title, some in told if some]


def _facts(found: Sequence[ValidatedScenario]) -> dict[str, Any]:
    """What the causes depend on; lists are empty where there is nothing to say.

    tails: deviations of the queue under the baseline, where real flows make it swing less.
    low: laws whose queue settles below the set-point on both sides. laws: their own reasons.
    short: whether there are short transfers. less_goodput: how much less the real goodput of full
    links is, in %; None where it is not. fluid, real: whether an engine is the fluid model, or in
    real time.
    """
    # Our packets beside the kernel's; of other engines only what no sender is the cause of.
    whole, found = found, [one for one in found if _is_ours_beside_a_kernels(one)]
    senders = sorted(_senders(found))
    reference = baseline()
    rows = [(one, row) for one in found for row in one.rows]
    return {
        "kernel_like": [name for name in senders if name.startswith(KERNEL_LIKE)],
        "others": [name for name in senders if not name.startswith(KERNEL_LIKE)],
        "short": any(SHORT.name in one.metrics for one in found),
        "baseline": reference["short_title"],
        "tails": [
            f"{row.tested.mean(STD):.1f} packets simulated, {row.reference.mean(STD):.1f} real"
            for one, row in rows
            if row.info and row.info.kind == reference["name"] and _swings_less(one, row)
        ],
        "low": [text for one, row in rows if (text := _below_set_point(one, row))],
        "laws": _of_laws([row for _, row in rows]),
        "less_goodput": _less_goodput([row for _, row in rows]),
        "fluid": any("fluid" in one.engines for one in whole),
        "real": any(one.in_real_time for one in whole),
        "void": sum(row.void for one in whole for row in one.rows),
    }


def _is_ours_beside_a_kernels(one: ValidatedScenario) -> bool:
    return one.engines[0] == "packets" and one.engines[1] in KERNELS


def _senders(found: Sequence[ValidatedScenario]) -> set[str]:
    """The simulated ones."""
    return {t.tcp for one in found for point in one.points for t in point.traffic if t.tcp}


def _swings_less(found: ValidatedScenario, row: Row) -> bool:
    """Whether real flows make the queue swing less than simulated ones of another sender."""
    simulated, real = row.tested.mean(STD), row.reference.mean(STD)
    kernel_like = any(name.startswith(KERNEL_LIKE) for name in _senders([found]))
    return not kernel_like and not row.agrees and real < simulated


def _below_set_point(found: ValidatedScenario, row: Row) -> str:
    """The queues of a law that integrates and settles below its set-point; "" elsewhere."""
    if not row.info or not row.info.kind or not row.info.integrates:
        return ""
    cut = _without_signal(found, row.tested), _without_signal(found, row.reference)
    queues = [side.mean("queue_mean_pkts") for side in row.sides]
    if not row.info.target_pkts or max(queues) >= row.info.target_pkts or min(cut) <= 0:
        return ""
    return (
        f"{row.name} {queues[0]:.1f} packets simulated and {queues[1]:.1f} real, with no "
        f"signal for {100 * cut[0]:.1f} % and {100 * cut[1]:.1f} % of the time"
    )


def _of_laws(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The reasons that laws give in their own files, for those that differ: title and text."""
    laws: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        reason = registries.law(row.info.kind)["reality"] if row.info and row.info.kind else None
        if reason and not row.agrees:
            laws.setdefault(reason, set()).add(row.law)
    return [
        (f"{title} under {' and '.join(sorted(names))}", text)
        for (title, text), names in laws.items()
    ]


def _less_goodput(rows: Sequence[Row]) -> float | None:
    """How much less the real goodput of full links is in the median, in %."""
    shares = [
        _per_capacity(row.reference) / _per_capacity(row.tested)
        for row in rows
        if min(side.mean("utilisation") for side in row.sides) > FULL
    ]
    less = 1 - statistics.median(shares) if shares else 0.0
    return 100 * less if less > LEAST_SHARE else None


def _per_capacity(side: Side) -> float:
    return side.mean("goodput_bps") / side.mean("utilisation")


def _without_signal(found: ValidatedScenario, side: Side) -> float:
    """Share of the measured samples with a probability of zero."""
    start_s, end_s = found.points[0].measure_s
    shares = []
    for one in side.observed:
        time_s = one.samples["time_s"]
        p = one.samples["p"][(time_s > start_s) & (time_s <= end_s)]
        shares.append(float(np.mean(p <= 0)))
    return statistics.mean(shares)
