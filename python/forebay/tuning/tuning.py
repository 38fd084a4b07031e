"""Tuning from ranges to one recommended law: search, screen with packets, choose, test."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

import forebay._native as _native
from forebay._native import ScenarioError
from forebay.base import registries, statistics
from forebay.base.progress import Progress
from forebay.theory.plant.loaded_link import PLAIN
from forebay.tuning import calm_regions
from forebay.tuning import candidates as known
from forebay.tuning.candidates import GOALS, Candidate, Goal
from forebay.tuning.check import Check, Checked, Floats, check, runnable
from forebay.tuning.gain_search import keeps
from forebay.tuning.local_models import LocalModel
from forebay.tuning.parallel_search import search_all
from forebay.tuning.ranges import Ranges

if TYPE_CHECKING:
    from forebay.store.store import Store

#: Seeds of the runs that choose. The runs that test the choice have other seeds: with the same
#: ones, luck in the choice would count as merit.
SCREENING_SEEDS = 2

#: Shares of a set-point that packets try: lower ones where the goodput allows more, and higher ones
#: where the goal is not met.
LOWER, HIGHER = (0.7, 0.5, 0.35, 0.25), (1.4, 2.0, 2.8)

#: Laws other than the chosen one that get other set-points, too, and how much more of the goodput
#: than the goal allows they may give up.
MISSES, MISSED = 3, 0.15

#: Other laws whose set-points go down, and the share of the goal's limit that they have left.
NEXT, SPARE = 2, 0.3

#: How often that is done: again from where it ended, while the goal is not met or the least of the
#: shares is the best.
ROUNDS = 3

#: Points along each range at which the model is evaluated again.
GRID = 5

#: Called with the name of what a stage counts, and its progress.
Watch = Callable[[str, Progress], None]


@dataclass(frozen=True)
class Against:
    """The chosen law beside another, over the common seeds; less deviation is better.

    difference_s: mean of the other's worst deviation less the chosen law's; ci95_s: half its 95 %
    confidence interval; p: of a paired t-test, adjusted for the number of others by Holm's method.
    """

    other: Checked
    seeds: int
    difference_s: float
    ci95_s: float
    p: float

    @property
    def significant(self) -> bool:
        return self.p < 1 - statistics.LEVEL


@dataclass(repr=False)
class Tuning:
    """The outcome of a tuning.

    screened: every candidate, with few seeds. chosen: None where nothing could be compared.
    sure: whether it meets the goal with room for the chance of so few seeds.
    tested: the chosen law, then the papers' defaults, with seeds of their own.
    best: the goodput of the best candidate under each condition, as a share of the rate.
    inside: between the corners, where the model leaves the chosen law least margin, and its runs
    there. left_out: candidates that refuse their parameters here, and why.
    """

    ranges: Ranges
    goal: Goal
    laws: list[str]
    seed: int
    searched: list[Candidate] = field(default_factory=list)
    screened: list[Checked] = field(default_factory=list)
    chosen: Checked | None = None
    meets_goal: bool = False
    sure: bool = False
    best: Floats = field(default_factory=lambda: np.empty(0))
    tested: list[Checked] = field(default_factory=list)
    inside: tuple[LocalModel, Checked] | None = None
    left_out: list[tuple[Candidate, str]] = field(default_factory=list)
    interrupted: bool = False
    faults: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        """The choice; `forebay.tuning.words.reasons` says why."""
        if self.chosen is None:
            return f"<Tuning for {self.ranges}: no law chosen, {len(self.screened)} checked>"
        one = self.chosen.candidate
        params = ", ".join(f"{name} = {value}" for name, value in one.params)
        return f"<Tuning for {self.ranges}: {one.law} with {params or 'its defaults'}>"

    @property
    def seeds(self) -> int:
        """Seeds with which the chosen law was tested under every condition."""
        return int(np.isfinite(self.tested[0].worst_s).sum()) if self.tested else 0

    def against(self) -> list[Against]:
        """The chosen law beside each of the others."""
        if not self.tested:
            return []
        mine, *others = self.tested
        rows = []
        for other in others:
            both = np.isfinite(mine.worst_s) & np.isfinite(other.worst_s)
            difference = (other.worst_s - mine.worst_s)[both]
            pair = statistics.compare(
                {
                    "other": dict(enumerate(other.worst_s[both])),
                    "mine": dict(enumerate(mine.worst_s[both])),
                }
            )
            p = pair[0].p if pair else float("nan")
            mean_s, half_s = statistics.mean_and_interval(difference)
            rows.append(Against(other, int(both.sum()), mean_s, half_s, p))
        known_p = [row.p for row in rows if row.p == row.p]
        adjusted = iter(statistics.holm(known_p))
        return [
            Against(
                row.other,
                row.seeds,
                row.difference_s,
                row.ci95_s,
                next(adjusted) if row.p == row.p else row.p,
            )
            for row in rows
        ]


def tune(
    rate: str | None,
    rtt: str,
    flows: str,
    goal: str = "balance",
    laws: Sequence[str] = (),
    packet: str = "1000B",
    buffer: str | None = None,
    seeds: int = 10,
    seed: int = 1,
    threads: int | None = None,
    watch: Watch | None = None,
    store: Store | None = None,
    trace: str | None = None,
    tcp: str = PLAIN,
) -> Tuning:
    """Tunes laws for ranges of rate, RTT and load, and recommends one.

    rate, rtt, flows: such as "5..50Mbit/s", "20..200ms" (propagation, both ways), "10..400"; or
        one value each. trace: a file of a recorded link, over which packets then run; the range of
        rates is the trace's own where `rate` is None. tcp: sender of the flows, as `--tcp` has it.
        Classes of flows have commas between them: rtt "20ms,80..200ms", tcp "cubic,reno"; one
        number of flows is divided equally.
    goal: "delay": least worst 95th percentile of the queuing delay, giving up at most 20 %
        of the best candidate's goodput under any condition; "balance" or "throughput": least worst
        deviation of the queuing delay, giving up at most 10 % or 5 %.
    laws: names to choose from; all if empty.
    buffer: such as "1250p"; the largest bandwidth-delay product if None.
    seeds: of the test of the chosen law; seed: of the search. Threads do not change the result.
    store: has runs that were made before, and keeps those that are made.

    Ctrl-C ends it; the result has the finished part, and `interrupted` is true. Raises
    `ScenarioError` for bad input.
    """
    if goal not in GOALS:
        raise ScenarioError(f'--goal: found "{goal}", allowed: {", ".join(GOALS)}')
    if not 1 <= seeds <= 1000:
        raise ScenarioError(f"--seeds: found {seeds}, allowed: 1 to 1000")
    ranges = Ranges.from_texts(rate, rtt, flows, packet, buffer, trace, tcp)
    names = known.known(laws)
    baseline = registries.baseline()["name"]
    if names == [baseline]:
        raise ScenarioError(f'--law: found "{baseline}", allowed: a law with something to tune')
    for law in laws:
        if known.is_coupled(law) and ranges.l4s:
            raise ScenarioError(
                f'--tcp: found "{tcp}" with {law}, which signals flows of L4S otherwise, allowed: '
                "other laws"
            )
    if laws and all(known.space(law, ranges) is None for law in names):
        modelled = [entry["name"] for entry in _native.laws() if entry["modelled"]]
        raise ScenarioError(
            f'--law: found "{", ".join(names)}", allowed: with it at least one law that has a '
            f"linear model to search by: {', '.join(modelled)}"
        )
    why = runnable(known.default(baseline), ranges)
    if why:  # the ranges are at fault, and no law
        raise ScenarioError(why)
    tuning = Tuning(ranges, GOALS[goal], names, seed)
    wanted = _search(tuning, threads, watch)
    if tuning.interrupted:
        return tuning
    screening = check(
        wanted, ranges, SCREENING_SEEDS, threads, _named(watch, "screening runs"), store
    )
    _keep(tuning, screening)
    tuning.screened = [one for one in screening.checked if one.complete]
    _choose(tuning)
    for _ in range(ROUNDS):
        if not _move_set_points(tuning, threads, watch, store):
            break
    if tuning.chosen is None or tuning.interrupted or tuning.faults:
        return tuning
    finalists = [tuning.chosen.candidate]
    again = known.retargeted(finalists[0])
    finalists += [one for one in wanted if one.origin == "default"]
    finalists += [again] if again is not None and not runnable(again, ranges) else []
    test = check(
        finalists, ranges, SCREENING_SEEDS + seeds, threads, _named(watch, "test runs"), store
    )
    _keep(tuning, test)
    tested = [one.of(slice(SCREENING_SEEDS, None)) for one in test.checked]
    tuning.tested = [one for one in tested if one.complete]
    if not tuning.tested or tuning.tested[0].candidate is not finalists[0]:
        tuning.tested = []
    elif not tuning.interrupted:
        _inside(tuning, seeds, threads, store)
    return tuning


def _search(tuning: Tuning, threads: int | None, watch: Watch | None) -> list[Candidate]:
    """Every candidate that runs here."""
    names = list(dict.fromkeys([registries.baseline()["name"], *tuning.laws]))
    spaces = [s for s in (known.space(law, tuning.ranges) for law in names) if s is not None]
    tasks = [(space.law, goal) for space in spaces for goal in GOALS]
    ended: dict[int, Candidate] = {}
    start = time.monotonic()
    try:
        with closing(search_all(tasks, tuning.ranges, tuning.seed, threads)) as searches:
            for number, candidate in searches:
                ended[number] = candidate
                if watch:
                    done, elapsed_s = len(ended), time.monotonic() - start
                    watch("searches", Progress(done / len(tasks), done, len(tasks), elapsed_s))
    except KeyboardInterrupt:
        tuning.interrupted = True
    tuning.searched = [ended[number] for number in sorted(ended)]
    found = [*map(known.default, names), *tuning.searched]
    found += [one for law in names for one in known.listed(law, tuning.ranges)]
    wanted = []
    for candidate in found:
        why = runnable(candidate, tuning.ranges)
        if why:
            tuning.left_out.append((candidate, why))
        else:
            wanted.append(candidate)
    return wanted


def _move_set_points(
    tuning: Tuning, threads: int | None, watch: Watch | None, store: Store | None
) -> bool:
    """Tries other set-points with packets: the share of time with an empty queue that the model
    predicts is a poor measure of the goodput. Says whether to go on from there."""
    before, met = tuning.chosen, tuning.sure
    if before is None or tuning.interrupted or tuning.faults:
        return False
    starts = [(before.candidate, LOWER if met else HIGHER)]
    starts += [(one.candidate, HIGHER) for one in _misses(tuning)]
    starts += [(one.candidate, LOWER) for one in _next(tuning)]
    tried = [moved for one, shares in starts for moved in _moved(tuning, one, shares)]
    if not tried:
        return False
    found = check(
        tried, tuning.ranges, SCREENING_SEEDS, threads, _named(watch, "set-point runs"), store
    )
    _keep(tuning, found)
    tuning.screened += [one for one in found.checked if one.complete]
    _choose(tuning)
    now = tuning.chosen
    if now is before or now is None:
        return False
    least = LOWER[-1] * before.candidate.share
    return not (met and now.candidate.law == before.candidate.law) or now.candidate.share <= least


def _next(tuning: Tuning) -> list[Checked]:
    """Of other laws, the best candidates with goodput to spare, as the goal has them; a law without
    a model that is best now cannot be moved itself."""
    chosen, goal = tuning.chosen, tuning.goal
    assert chosen is not None
    spare = 1 - goal.give_up + SPARE * goal.give_up
    able = [
        one
        for one in tuning.screened
        if one.candidate.keeps
        and one.candidate.point
        and one.candidate.law != chosen.candidate.law
        and one.relative(tuning.best).min() >= spare
    ]
    able.sort(key=lambda one: one.worst_of(getattr(one, goal.least)))
    best: dict[str, Checked] = {}
    for one in able:
        best.setdefault(one.candidate.law, one)
    return list(best.values())[:NEXT]


def _misses(tuning: Tuning) -> list[Checked]:
    """Of other laws, the candidate that comes closest to the goal's goodput, if it is better than
    the chosen law in the goal's number; the closest laws first."""
    chosen, goal = tuning.chosen, tuning.goal
    assert chosen is not None
    closest: dict[str, Checked] = {}

    def goodput(one: Checked) -> float:
        return float(one.relative(tuning.best).min())

    for one in tuning.screened:
        law, least = one.candidate.law, goal.least
        if not one.candidate.keeps or not one.candidate.point or law == chosen.candidate.law:
            continue
        better = one.worst_of(getattr(one, least)) < chosen.worst_of(getattr(chosen, least))
        if (better or not tuning.sure) and (
            law not in closest or goodput(one) > goodput(closest[law])
        ):
            closest[law] = one
    within = [one for one in closest.values() if goodput(one) >= 1 - goal.give_up - MISSED]
    return sorted(within, key=goodput, reverse=True)[:MISSES]


def _moved(tuning: Tuning, one: Candidate, shares: Sequence[float]) -> list[Candidate]:
    """A candidate at other set-points, those that keep its margins and run here."""
    ranges = tuning.ranges
    space = calm_regions.space_of(one, ranges) if one.point else None
    if space is None:
        return []
    wanted = [(share, "", space.moved(one.point, share)) for share in shares]
    if isinstance(space, calm_regions.Region):
        # Slow starts and timeouts are no noise of the model: packets may ask for a faster law.
        wanted += [
            (share, " fastest", space.fastest(share * one.point["target"], one.point["interval"]))
            for share in (1.0, *shares)
        ]
    known_already = {(o.candidate.law, o.candidate.params) for o in tuning.screened}
    tried = []
    for share, how, point in wanted:
        if point is None:
            continue
        try:
            local = tuple(space.local(point, ranges, ranges.conditions))
        except ScenarioError:
            continue
        # A label has no comma. Shares are of the search's own set-point.
        whole = float(f"{share * one.share:.3g}")
        label = f"{one.label.split(' at ')[0]} at {whole:g}{how}"
        params = space.params(point)
        moved = Candidate(one.law, label, params, "tuned", point, local, keeps(local), whole)
        if (not moved.keeps and one.keeps) or (one.law, params) in known_already:
            continue
        known_already.add((one.law, params))
        why = runnable(moved, ranges)
        if why:
            tuning.left_out.append((moved, why))
        else:
            tried.append(moved)
    return tried


def _inside(tuning: Tuning, seeds: int, threads: int | None, store: Store | None) -> None:
    """Evaluates the model on a grid between the corners, and runs packets at its worst place."""
    candidate, ranges = tuning.tested[0].candidate, tuning.ranges
    space = calm_regions.space_of(candidate, ranges)
    if space is None or not candidate.point:
        return
    if ranges.trace is not None:
        return
    grid = [one for one in ranges.grid(GRID) if one not in ranges.corners]
    there = [o for o in space.local(candidate.point, ranges, grid) if o and not o.timeouts]
    if not there:
        return
    tight = max(there, key=lambda one: one.sensitivity if one.stable else math.inf)
    run = check([candidate], ranges.only(tight.condition), seeds, threads, store=store)
    _keep(tuning, run)
    if run.checked[0].complete:
        tuning.inside = tight, run.checked[0]


def _choose(tuning: Tuning) -> None:
    """Chooses the candidate with the least of the goal's number that keeps margins and goodput.

    A law without a model has no margins to keep. With so few seeds a goodput at the limit is below
    it with others as often as not: it has to be above by what chance may add. If no candidate is,
    those at the limit count; if none keeps the goodput, the closest one is chosen; if none keeps
    the margins, they do not count.
    """
    if not tuning.screened:
        return
    goodput = np.array([np.nanmean(one.goodput, axis=1) for one in tuning.screened])
    # In-order goodput can pass the rate for a while, when a hole in the sequence is filled.
    tuning.best = np.minimum(1.0, goodput.max(axis=0))
    tuned = [one for one in tuning.screened if one.candidate.origin in ("tuned", "listed")]
    able = [one for one in tuned if one.candidate.keeps or one.candidate.origin == "listed"]
    able = able or tuned
    if not able:
        return
    least = 1 - tuning.goal.give_up
    room = _chance(able) / tuning.best
    enough = [one for one in able if (one.relative(tuning.best) - room).min() >= least]
    tuning.sure = bool(enough)
    enough = enough or [one for one in able if one.relative(tuning.best).min() >= least]
    tuning.meets_goal = bool(enough)
    if enough:
        least_of = tuning.goal.least
        tuning.chosen = min(enough, key=lambda one: one.worst_of(getattr(one, least_of)))
    else:
        tuning.chosen = max(able, key=lambda one: float(one.relative(tuning.best).min()))


def _chance(able: Sequence[Checked]) -> Floats:
    """What a goodput at each place may be above its mean by chance, at the one-sided level: by the
    median spread of all candidates, as two seeds say little of one."""
    seeds = np.array([np.isfinite(one.goodput).sum(axis=1) for one in able]).min(axis=0)
    if seeds.min() < 2:
        return np.zeros(len(seeds))
    variance = np.median([np.nanvar(one.goodput, axis=1, ddof=1) for one in able], axis=0)
    # The median of chi-squared over its mean; with more seeds it is nearer to 1.
    variance = variance / special.chdtri(seeds - 1, 0.5) * (seeds - 1)
    return np.asarray(special.ndtri(statistics.LEVEL) * np.sqrt(variance / seeds), float)


def _keep(tuning: Tuning, done: Check) -> None:
    tuning.interrupted = tuning.interrupted or done.interrupted
    tuning.faults += done.faults


def _named(watch: Watch | None, what: str) -> Callable[[Progress], None] | None:
    if watch is None:
        return None

    def relay(now: Progress) -> None:
        watch(what, now)

    return relay
