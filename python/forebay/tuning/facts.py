"""The facts behind a recommendation, as plain values. `words` puts them into sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import forebay._native as _native
from forebay.base import statistics
from forebay.base.registries import baseline
from forebay.theory.design import pi_forms
from forebay.tuning import calm_regions
from forebay.tuning.calm_regions import OneSet
from forebay.tuning.candidates import Candidate, Goal, set_point
from forebay.tuning.gain_search import SENSITIVITY, counted

if TYPE_CHECKING:
    from forebay.tuning.check import Checked
    from forebay.tuning.local_models import LocalModel
    from forebay.tuning.tuning import Against, Tuning


#: Set-points that are told of on either side of the chosen one.
BESIDE = 2


@dataclass(frozen=True)
class Choice:
    """The chosen law and its worst values over the seeds that chose it."""

    law: str
    params: tuple[tuple[str, str], ...]
    delay_p95_s: float
    deviation_s: float
    deviation_at: str
    #: as a share of the best candidate's
    goodput: float
    goodput_at: str


@dataclass(frozen=True)
class Margins:
    """What the linear model says of the chosen law.

    few_flows, long_rtt: whether the tightest corner has the fewest flows of the range, the
        longest RTT.
    thresholds: whether the gain is the inverse of the distance between two thresholds.
    rough: places at which flows have fewer than ten packets in flight.
    """

    tight_at: str
    few_flows: bool
    long_rtt: bool
    phase_deg: float
    gain_db: float
    amplified: float
    amplified_limit: float
    slow_at: str
    settling_s: float
    thresholds: bool
    rough: int
    places: int


@dataclass(frozen=True)
class SetPoint:
    """A set-point of the chosen law that packets have tried, as its parameter."""

    param: str
    goodput: float
    delay_p95_s: float
    deviation_s: float
    #: whether with the largest integral of the calm set
    fastest: bool


@dataclass(frozen=True)
class Rival:
    """The best candidate of another law."""

    law: str
    deviation_s: float
    goodput: float
    #: at its slowest place; None without a linear model
    settling_s: float | None
    settling_at: str


@dataclass(frozen=True)
class Searched:
    """What the searches found, and the rivals with the least and the largest deviation."""

    searches: int
    laws: int
    keep_margins: int
    #: laws without any gains that keep their margins
    broken: list[str]
    next: Rival | None
    last: Rival | None


@dataclass(frozen=True)
class Gains:
    """What one set of a PI's gains costs over the range.

    times: how many times their integral the place `at` could bear alone.
    scheduled: the best candidates of laws whose gains follow the load by themselves.
    """

    law: str
    times: float
    at: str
    suffices: bool
    scheduled: list[Rival]


@dataclass(frozen=True)
class Predicted:
    """A place at which the model and packets give a deviation."""

    at: str
    simulated_s: tuple[float, float]
    predicted_s: float
    amplified: float
    stable: bool


@dataclass(frozen=True)
class Beside:
    """Another law beside the chosen one: difference_s is its deviation less the chosen law's."""

    law: str
    deviation_s: float
    difference_s: float
    ci95_s: float
    significant: bool
    goodput: float
    goodput_at: str


@dataclass(frozen=True)
class Tested:
    """The test of the choice with other seeds.

    goodput: at the worst place, as a share of the best candidate's.
    widest: the place with a model at which the chosen law's delay varies most.
    inside: the place between the corners with the least margin.
    retargeted: the papers' gains with the chosen set-point.
    refused: laws of the papers that refuse this buffer.
    """

    seeds: int
    deviation_s: tuple[float, float]
    goodput: float
    widest: Predicted | None
    inside: Predicted | None
    baseline_title: str
    baseline: Beside | None
    retargeted: Beside | None
    refused: list[str]
    #: laws with the papers' parameters, by whether they are worse, equal by chance, or better
    papers_worse: list[Beside]
    papers_alike: list[Beside]
    papers_better: list[Beside]

    @property
    def papers(self) -> int:
        return len(self.papers_worse) + len(self.papers_alike) + len(self.papers_better)


@dataclass(frozen=True)
class Facts:
    """All of them; what does not apply is None."""

    ranges: str
    packet: str
    buffer_pkts: int
    goal: Goal
    meets_goal: bool
    choice: Choice | None
    #: whether the chosen law has a linear model
    modelled: bool
    margins: Margins | None
    #: of the chosen law, those next to the choice that no other beats, by their goodput; one where
    #: no other was tried
    set_points: list[SetPoint]
    #: the round trip that a self-tuning law takes for its own, where it is none of the range's
    odd_rtt: str
    #: None where no law is a PI
    gains: Gains | None
    searched: Searched
    tested: Tested | None


def of(tuning: Tuning) -> Facts:
    """The facts of a tuning."""
    chosen = tuning.chosen
    local = chosen.candidate.local if chosen else ()
    return Facts(
        ranges=str(tuning.ranges),
        packet=tuning.ranges.packet,
        buffer_pkts=tuning.ranges.buffer_pkts,
        goal=tuning.goal,
        meets_goal=tuning.meets_goal,
        choice=_choice(tuning, chosen) if chosen else None,
        modelled=bool(local),
        margins=_margins(tuning, local) if counted(local) else None,
        set_points=_set_points(tuning, chosen) if chosen else [],
        odd_rtt=_odd_rtt(tuning, chosen) if chosen else "",
        gains=_gains(tuning),
        searched=_searched(tuning),
        tested=_tested(tuning) if tuning.tested else None,
    )


def _choice(tuning: Tuning, chosen: Checked) -> Choice:
    share = chosen.relative(tuning.best)
    places = tuning.ranges.places
    return Choice(
        chosen.candidate.law,
        chosen.candidate.params,
        chosen.worst_of(chosen.delay_p95_s),
        chosen.worst_of(chosen.deviation_s),
        str(places[chosen.worst]),
        float(share.min()),
        str(places[int(np.argmin(share))]),
    )


def _set_points(tuning: Tuning, chosen: Checked) -> list[SetPoint]:
    law = chosen.candidate.label.split(" at ")[0]
    tried = [one for one in tuning.screened if one.candidate.label.split(" at ")[0] == law]
    found = [
        SetPoint(
            _set_point(one.candidate),
            float(one.relative(tuning.best).min()),
            one.worst_of(one.delay_p95_s),
            one.worst_of(one.deviation_s),
            one.candidate.label.endswith(" fastest"),
        )
        for one in tried
    ]
    least = tuning.goal.least
    # With more goodput, and less of the goal's number.
    good = [
        one
        for one in dict.fromkeys(found)
        if not any(
            o.goodput > one.goodput and getattr(o, least) < getattr(one, least) for o in found
        )
    ]
    good.sort(key=lambda one: one.goodput)
    mine = float(chosen.relative(tuning.best).min())
    at = min(range(len(good)), key=lambda i: abs(good[i].goodput - mine), default=0)
    return good[max(0, at - BESIDE) : at + BESIDE + 1]


def _set_point(candidate: Candidate) -> str:
    """As the parameter that has it, which thresholds do not."""
    for name, value in set_point(candidate):
        return f"{name} {value}"
    return f"{candidate.share:g} times the search's own"


def _odd_rtt(tuning: Tuning, chosen: Checked) -> str:
    text = dict(chosen.candidate.params).get("rtt")
    if text is None:
        return ""
    rtt_s = _native.quantity("rtt", text, "time")
    low_s, high_s = tuning.ranges.rtts_s
    return "" if low_s <= rtt_s <= high_s else text


def _margins(tuning: Tuning, local: Sequence[LocalModel | None]) -> Margins:
    there, ranges = counted(local), tuning.ranges
    rtts_s = [one.rtt_s for one in ranges.corners]
    tight = max(there, key=lambda one: one.sensitivity)
    slow = max(there, key=lambda one: one.loop.settling_s)
    return Margins(
        tight_at=_at(tight),
        few_flows=tight.condition.flows == ranges.flows[0] < ranges.flows[1],
        long_rtt=min(rtts_s) < max(rtts_s) == tight.condition.rtt_s,
        phase_deg=tight.loop.margins.phase_deg,
        gain_db=tight.loop.margins.gain_db,
        amplified=tight.sensitivity,
        amplified_limit=SENSITIVITY,
        slow_at=_at(slow),
        settling_s=slow.loop.settling_s,
        thresholds=all(one.loop.model["direct"] for one in there),
        rough=sum(one is not None and one.timeouts for one in local),
        places=len(local),
    )


def _at(local: LocalModel) -> str:
    """A place, and how many of its flows the model counts there."""
    return (
        f"{local.condition} (with {local.flows:.0f} of them)"
        if local.timeouts
        else str(local.condition)
    )


def _searched(tuning: Tuning) -> Searched:
    searched = {c.law: [o for o in tuning.searched if o.law == c.law] for c in tuning.searched}
    best: dict[str, Checked] = {}
    for one in tuning.screened:
        law = one.candidate.law
        if one.candidate.keeps and (
            law not in best
            or one.worst_of(one.deviation_s) < best[law].worst_of(best[law].deviation_s)
        ):
            best[law] = one
    own = tuning.chosen.candidate.law if tuning.chosen else ""
    rivals = [_rival(tuning, one) for law, one in best.items() if law != own]
    rivals.sort(key=lambda rival: rival.deviation_s)
    return Searched(
        searches=len(tuning.searched),
        laws=len(searched),
        keep_margins=sum(one.keeps for one in tuning.searched),
        broken=[law for law, some in searched.items() if not any(one.keeps for one in some)],
        next=rivals[0] if rivals else None,
        last=rivals[-1] if len(rivals) > 1 else None,
    )


def one_set(tuning: Tuning) -> tuple[Candidate, OneSet] | None:
    """Of the best PI by the goal's number that keeps its margins, and its gains; the chosen law
    before others."""
    able = [o for o in tuning.screened if o.candidate.keeps and "k_i" in o.candidate.point]
    best = min(
        able,
        key=lambda o: (o is not tuning.chosen, o.worst_of(getattr(o, tuning.goal.least))),
        default=None,
    )
    if best is None:
        return None
    found = calm_regions.one_set(best.candidate, tuning.ranges)
    return None if found is None else (best.candidate, found)


def _gains(tuning: Tuning) -> Gains | None:
    found = one_set(tuning)
    if found is None:
        return None
    candidate, gains = found
    best: dict[str, Checked] = {}
    for one in tuning.screened:
        models = [local.loop.model for local in counted(one.candidate.local)]
        if one.candidate.law == candidate.law or not one.candidate.keeps:
            continue
        if not pi_forms.integrates_differently(models):
            continue
        law, least = one.candidate.law, tuning.goal.least
        if law not in best or (
            one.worst_of(getattr(one, least)) < best[law].worst_of(getattr(best[law], least))
        ):
            best[law] = one
    rivals = [_rival(tuning, one) for one in best.values()]
    return Gains(
        candidate.law,
        gains.times,
        str(gains.most[0]),
        gains.suffices,
        sorted(rivals, key=lambda rival: rival.deviation_s),
    )


def _rival(tuning: Tuning, one: Checked) -> Rival:
    there = [local for local in one.candidate.local if local is not None]
    slowest = max(there, key=lambda local: local.loop.settling_s, default=None)
    return Rival(
        one.candidate.law,
        one.worst_of(one.deviation_s),
        float(one.relative(tuning.best).min()),
        slowest.loop.settling_s if slowest else None,
        str(slowest.condition) if slowest else "",
    )


def _tested(tuning: Tuning) -> Tested:
    mine, rows = tuning.tested[0], tuning.against() if tuning.seeds > 1 else []
    reference = baseline()
    plain = next((row for row in rows if row.other.candidate.law == reference["name"]), None)
    again = next((row for row in rows if row.other.candidate.origin == "retargeted"), None)
    papers = [row for row in rows if row.other.candidate.origin == "default" and row is not plain]

    def beside(some: Iterable[Against]) -> list[Beside]:
        return [_beside(tuning, row) for row in some]

    return Tested(
        seeds=tuning.seeds,
        deviation_s=statistics.mean_and_interval(mine.worst_s),
        goodput=float(mine.relative(tuning.best).min()),
        widest=_widest(tuning, mine),
        inside=_inside(tuning),
        baseline_title=reference["short_title"],
        baseline=_beside(tuning, plain) if plain else None,
        retargeted=_beside(tuning, again) if again else None,
        refused=[one.label for one, _ in tuning.left_out if one.origin == "default"],
        papers_worse=beside(row for row in papers if row.significant and row.difference_s > 0),
        papers_alike=beside(row for row in papers if not row.significant),
        papers_better=beside(row for row in papers if row.significant and row.difference_s < 0),
    )


def _widest(tuning: Tuning, mine: Checked) -> Predicted | None:
    seen = [
        Predicted(
            str(local.condition),
            statistics.mean_and_interval(row),
            local.noise_delay_s,
            local.sensitivity,
            local.stable,
        )
        for local, row in zip(mine.locals(tuning.ranges.places), mine.deviation_s, strict=True)
        if local is not None and not local.timeouts
    ]
    return max(seen, key=lambda one: one.simulated_s[0], default=None)


def _inside(tuning: Tuning) -> Predicted | None:
    if tuning.inside is None:
        return None
    local, run = tuning.inside
    return Predicted(
        str(local.condition),
        statistics.mean_and_interval(run.deviation_s[0]),
        local.noise_delay_s,
        local.sensitivity,
        local.stable,
    )


def _beside(tuning: Tuning, row: Against) -> Beside:
    share = row.other.relative(tuning.best)
    return Beside(
        row.other.candidate.law,
        float(np.nanmean(row.other.worst_s)),
        row.difference_s,
        row.ci95_s,
        row.significant,
        float(share.min()),
        str(tuning.ranges.places[int(np.argmin(share))]),
    )
