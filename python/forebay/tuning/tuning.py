"""Tuning from ranges to one recommended law: search, screen with packets, choose, test."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

import forebay._native as _native
from forebay._base import progress, quantities, registries, statistics
from forebay._base.progress import Progress
from forebay._base.quantities import Overrides
from forebay._base.words import in_figures
from forebay._native import ScenarioError
from forebay.control.loaded_link import PLAIN
from forebay.experiment import execution
from forebay.experiment.experiment import check_seeds
from forebay.tuning import calm_regions, router_laws
from forebay.tuning import candidates as known
from forebay.tuning.candidates import GOALS, Candidate, Params, distinct_label
from forebay.tuning.check import (
    SCREENING_SEEDS,
    Check,
    Checked,
    Floats,
    best_of_laws,
    check,
    runnable,
)
from forebay.tuning.estimate import (
    INSIDE,
    MOVING,
    SCREENING,
    SEARCHES,
    TEST,
    Course,
    Estimate,
    estimate,
)
from forebay.tuning.local_models import keeps
from forebay.tuning.parallel_search import search_all
from forebay.tuning.ranges import Ranges
from forebay.tuning.state import REFERENCES, TuningState

if TYPE_CHECKING:
    from forebay.experiment.store import Store
    from forebay.report.plot import Plot

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


class Tuning(TuningState):
    """The outcome of a tuning, which draws and explains itself."""

    def plot(self, kind: str = "trade") -> Plot:
        """A picture: "trade" (delay against goodput), "places" (corner by corner) or "defaults"
        (beside the papers' defaults). The latter two need a law that was tested."""
        from forebay.tuning import picture

        if kind not in picture.KINDS:
            raise ValueError(f'kind: found "{kind}", allowed: {", ".join(picture.KINDS)}')
        if not (self.screened if kind == "trade" else self.tested):
            raise ValueError(f'kind: found "{kind}", which has nothing to show: it was interrupted')
        return picture.KINDS[kind].draw(self)

    def findings(self) -> dict[str, Any]:
        """All that it tells, as `forebay tune --json` prints it, with what is not finite as it
        is."""
        from forebay.tuning import findings  # sentences load the templates

        return findings.findings(self)

    def as_json(self) -> dict[str, Any]:
        """`findings`, with None for what is not finite."""
        found: dict[str, Any] = quantities.finite(self.findings())
        return found

    def reasons(self) -> list[str]:
        """Why this law is recommended, in paragraphs."""
        paragraphs: list[str] = self.findings()["reasons"]
        return paragraphs

    def _repr_html_(self) -> str:
        from forebay.report import notebook

        rows = [
            [
                one.candidate.label,
                one.candidate.settings,
                in_figures(1e3 * one.worst_of(one.deviation_s)),
                in_figures(1e3 * one.worst_of(one.delay_p95_s)),
            ]
            for one in self.tested or self.screened
        ]
        heads = ["law", "parameters", "worst deviation [ms]", "worst delay, 95 % [ms]"]
        figure = self.plot() if self.screened and len(self.best) else None
        return notebook.html(f"Tuning for {self.ranges}", heads, rows, figure)


def tune(
    rate: str | None,
    rtt: str,
    flows: str,
    goal: str = "balance",
    laws: str | Sequence[str] = (),
    packet: str = "1000B",
    buffer: str | None = None,
    seeds: int = 10,
    seed: int = 1,
    threads: int | None = None,
    trace: str | None = None,
    tcp: str = PLAIN,
    overrides: Overrides = (),
    gains: str = "paper",
    *,
    for_: str = "",
    thorough: bool = False,
    watch: Watch | None = None,
    announce: Callable[[Estimate], None] | None = None,
    store: Store | None = None,
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
    laws: one or several names to choose from; all if empty.
    packet: usual size. buffer: such as "1250p"; the largest bandwidth-delay product if None.
    seeds: of the test of the chosen law; seed: of the search. Threads do not change the result.
    overrides: keys of the runs' scenarios, such as {"bottleneck.ecn": True}.
    gains: what the laws beside the choice have, "paper" for those of their papers, or "auto" for
        what their design rules give for the ranges.
    for_: "linux" to choose among the qdiscs that a router with Linux has, with parameters that
        they can have; "attach" also among the laws that `forebay attach` installs there.
    thorough: True to search each law for all three goals, so that packets judge three times as many
        candidates that the model found.
    watch: hears of the progress; a terminal shows it if None.
    announce: hears how long it is likely to take, before the long part begins.
    store: has runs that were made before, and keeps those that are made.

    Ctrl-C ends it; the result has the finished part, and `interrupted` is true. So does a fault
    after the first runs, which `faults` names. Raises `ScenarioError` for bad input.
    """
    if goal not in GOALS:
        raise ScenarioError(f'--goal: found "{goal}", allowed: {", ".join(GOALS)}')
    check_seeds(seeds)
    if not 1 <= seeds <= 1000:
        raise ScenarioError(f"--seeds: found {seeds}, allowed: 1 to 1000")
    if gains not in REFERENCES:
        raise ScenarioError(f'--gains: found "{gains}", allowed: {", ".join(REFERENCES)}')
    if for_ and for_ not in router_laws.CHOICES:
        raise ScenarioError(f'--for: found "{for_}", allowed: {", ".join(router_laws.CHOICES)}')
    ranges = Ranges.from_texts(rate, rtt, flows, packet, buffer, trace, tcp, overrides)
    ranges = replace(ranges, router=for_)
    names = _laws(quantities.listed(laws), ranges)
    tuning = Tuning(ranges, GOALS[goal], names, seed, gains, thorough=thorough)
    if watch is not None:
        _Search(tuning, threads, Course(watch), store, announce).run(seeds)
        return tuning
    with progress.stages(only_on_terminal=True) as stages:
        _Search(tuning, threads, Course(stages), store, announce).run(seeds)
    if tuning.interrupted or tuning.faults:
        why = tuning.faults[0] if tuning.faults else "interrupted"
        warnings.warn(f"{why}; the tuning is partial", stacklevel=2)
    return tuning


def _laws(laws: Sequence[str], ranges: Ranges) -> list[str]:
    """The laws to choose from. Raises `ScenarioError` where these ranges have nothing to tune."""
    names = known.known(laws, ranges)
    baseline = registries.baseline()["name"]
    if names == [baseline]:
        raise ScenarioError(f'--law: found "{baseline}", allowed: a law with something to tune')
    for law in laws:
        if known.is_coupled(law) and ranges.l4s:
            raise ScenarioError(
                f'--tcp: found "{ranges.tcp}" with {law}, which signals flows of L4S otherwise, '
                "allowed: other laws"
            )
    if laws and not ranges.router and all(known.space(law, ranges) is None for law in names):
        modelled = [entry["name"] for entry in _native.laws() if entry["modelled"]]
        raise ScenarioError(
            f'--law: found "{", ".join(names)}", allowed: with it at least one law that has a '
            f"linear model to search by: {', '.join(modelled)}"
        )
    why = runnable(known.default(baseline), ranges)
    if why:  # the ranges are at fault, and no law
        raise ScenarioError(why)
    return names


@dataclass
class _Search:
    """The stages of a tuning, which they fill in."""

    tuning: TuningState
    threads: int | None
    course: Course
    store: Store | None
    announce: Callable[[Estimate], None] | None = None
    #: Time of a core for a packet run, in s.
    run_s: float = 0.0

    @property
    def stopped(self) -> bool:
        return self.tuning.interrupted or bool(self.tuning.faults)

    def run(self, seeds: int) -> None:
        """All stages. A fault after the first runs loses none of what was found before it."""
        try:
            self._stages(seeds)
        except Exception as error:
            if not self.tuning.screened:
                raise
            self.tuning.error = error
            self.tuning.faults.append(f"{type(error).__name__}: {error}")

    def _stages(self, seeds: int) -> None:
        tuning, ranges = self.tuning, self.tuning.ranges
        goals = GOALS if tuning.thorough else [tuning.goal.name]
        modelled = [law for law in self._names if known.space(law, ranges) is not None]
        tasks = [(law, goal) for law in modelled for goal in goals]
        unsearched = self._runnable(
            [
                *map(self._reference, self._names),
                *(candidate for law in self._names for candidate in self._settings(law)),
            ]
        )
        self._estimate(tasks, unsearched, seeds)
        self._search(tasks)
        if tuning.interrupted:
            return
        candidates = distinct([*unsearched, *self._runnable(tuning.searched)])
        self._screen(candidates, SCREENING)
        for _ in range(ROUNDS):
            if not self._move_set_points():
                break
        if tuning.chosen is None or self.stopped:
            return
        finalists = [tuning.chosen.candidate, *self._rivals()]
        again = None if ranges.router else known.retargeted(finalists[0])
        finalists += [again] if again is not None and not runnable(again, ranges) else []
        self._test(distinct(finalists), seeds)

    def _estimate(
        self, tasks: Sequence[tuple[str, str]], unsearched: Sequence[Candidate], seeds: int
    ) -> None:
        """Measure how fast this machine is, and announce how long it will take."""
        cores = self.threads or execution.cores()
        expected = estimate(self.tuning.ranges, tasks, unsearched, seeds, cores)
        self.run_s, self.course.ahead_s = expected.run_s, dict(expected.stages_s)
        if self.announce is not None:
            self.announce(expected)

    def _rivals(self) -> list[Candidate]:
        """Return what the choice is tested against: laws with their usual parameters.

        Those that give up more goodput than the goal allows are no rivals, and are not tested
        again; the queue without a law is always tested, and so is the chosen law's own default.
        """
        tuning = self.tuning
        assert tuning.chosen is not None
        always = (registries.baseline()["name"], tuning.chosen.candidate.law)
        usual = [checked for checked in tuning.screened if checked.candidate.origin == "default"]
        least = 1 - tuning.goal.give_up
        return [
            checked.candidate
            for checked in usual
            if checked.candidate.law in always
            or not tuning.meets_goal
            or _goodput(checked, tuning) >= least
        ]

    def _settings(self, law: str) -> list[Candidate]:
        """Return the settings of a law that packets try without a search."""
        ranges = self.tuning.ranges
        more = known.other_targets(law, ranges) if ranges.router else []
        return [*known.listed(law, ranges), *more]

    def _reference(self, law: str) -> Candidate:
        """Return a law with the parameters with which the choice is compared."""
        if self.tuning.ranges.router:
            return known.stock(law, self.tuning.ranges)
        if self.tuning.gains == "paper":
            return known.default(law)
        return known.designed(law, self.tuning.ranges)

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys([registries.baseline()["name"], *self.tuning.laws]))

    def _search(self, tasks: Sequence[tuple[str, str]]) -> None:
        """Search the gains of every law that has a model."""
        tuning = self.tuning
        candidates: dict[int, Candidate] = {}
        start, watch = time.monotonic(), self.course.stage(SEARCHES)
        try:
            searched = search_all(tasks, tuning.ranges, tuning.seed, self.threads, self.store)
            with closing(searched) as searches:
                for number, candidate in searches:
                    candidates[number] = candidate
                    done, elapsed_s = len(candidates), time.monotonic() - start
                    watch(Progress(done / len(tasks), done, len(tasks), elapsed_s))
        except KeyboardInterrupt:
            tuning.interrupted = True
        tuning.searched = [candidates[number] for number in sorted(candidates)]

    def _runnable(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those that take their parameters here; the others are left out, with the reason."""
        ranges, able = self.tuning.ranges, []
        for candidate in candidates:
            try:
                installed = known.as_installed(candidate, ranges)
                why = runnable(installed, ranges)
            except ScenarioError as error:
                installed, why = candidate, str(error).split(": ", 1)[1]
            if why:
                self.tuning.left_out.append((candidate, why))
            else:
                able.append(installed)
        return able

    def _check(
        self, candidates: Sequence[Candidate], seeds: int, stage: str, ranges: Ranges | None = None
    ) -> Check:
        tested_ranges = ranges or self.tuning.ranges
        runs = len(candidates) * len(tested_ranges.places) * seeds
        expected_s = runs * self.run_s / (self.threads or execution.cores())
        watch = self.course.stage(stage, expected_s)
        done = check(candidates, tested_ranges, seeds, self.threads, watch, self.store)
        self.tuning.interrupted = self.tuning.interrupted or done.interrupted
        self.tuning.faults += done.faults
        return done

    def _screen(self, wanted: Sequence[Candidate], what: str) -> None:
        """Runs candidates with the seeds that choose, and chooses among all so far."""
        done = self._check(wanted, SCREENING_SEEDS, what)
        self.tuning.screened += [one for one in done.checked if one.complete]
        _choose(self.tuning)

    def _move_set_points(self) -> bool:
        """Tries other set-points with packets: the share of time with an empty queue that the model
        predicts is a poor measure of the goodput. Says whether to go on from there."""
        tuning = self.tuning
        before, met = tuning.chosen, tuning.sure
        if before is None or self.stopped:
            return False
        starts = [(before.candidate, LOWER if met else HIGHER)]
        starts += [(one.candidate, HIGHER) for one in _misses(tuning)]
        starts += [(one.candidate, LOWER) for one in _next(tuning)]
        tried: list[Candidate] = []
        for candidate, shares in starts:
            tried += self._runnable(_moved(tuning, candidate, shares, tried))
        if not tried:
            return False
        self._screen(tried, MOVING)
        now = tuning.chosen
        if now is before or now is None:
            return False
        least = LOWER[-1] * before.candidate.share
        same_law = now.candidate.law == before.candidate.law
        return not (met and same_law) or now.candidate.share <= least

    def _test(self, finalists: Sequence[Candidate], seeds: int) -> None:
        """Runs the chosen law and others with seeds that took no part in the choice."""
        done = self._check(finalists, SCREENING_SEEDS + seeds, TEST)
        tested = [one.with_seeds(slice(SCREENING_SEEDS, None)) for one in done.checked]
        if not tested[0].complete:
            return
        self.tuning.tested = [one for one in tested if one.complete]
        if not self.tuning.interrupted:
            self._test_inside(seeds)

    def _test_inside(self, seeds: int) -> None:
        """Evaluates the model on a grid between the corners, and runs packets at its worst
        place."""
        candidate, ranges = self.tuning.tested[0].candidate, self.tuning.ranges
        space = calm_regions.space_of(candidate, ranges)
        if space is None or not candidate.point or ranges.trace is not None:
            return
        grid = [one for one in ranges.grid(GRID) if one not in ranges.corners]
        there = [o for o in space.local(candidate.point, ranges, grid) if o and not o.timeouts]
        if not there:
            return
        tight = max(there, key=lambda one: one.sensitivity if one.stable else math.inf)
        done = self._check([candidate], seeds, INSIDE, ranges.only(tight.condition))
        if done.checked[0].complete:
            self.tuning.inside = tight, done.checked[0]


def distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates without those that have a law and parameters of an earlier one.

    Rounded to the steps of a router, several may be the same.
    """
    first: dict[tuple[str, Params], Candidate] = {}
    for candidate in candidates:
        first.setdefault((candidate.law, candidate.params), candidate)
    return list(first.values())


def _goodput(one: Checked, tuning: TuningState) -> float:
    """At the worst place, as a share of the best candidate's."""
    return float(one.relative(tuning.best).min())


def _others(tuning: TuningState) -> list[Checked]:
    """Candidates of laws other than the chosen one that keep their margins and can be moved."""
    assert tuning.chosen is not None
    law = tuning.chosen.candidate.law
    able = (one for one in tuning.screened if one.candidate.keeps and one.candidate.point)
    return [one for one in able if one.candidate.law != law]


def _next(tuning: TuningState) -> list[Checked]:
    """Of other laws, the best candidates with goodput to spare, as the goal has them; a law without
    a model that is best now cannot be moved itself."""
    spare = 1 - tuning.goal.give_up + SPARE * tuning.goal.give_up
    able = [one for one in _others(tuning) if _goodput(one, tuning) >= spare]
    return best_of_laws(able, lambda one: one.number_of(tuning.goal))[:NEXT]


def _misses(tuning: TuningState) -> list[Checked]:
    """Of other laws, the candidate that comes closest to the goal's goodput, if it is better than
    the chosen law in the goal's number; the closest laws first."""
    goal, chosen = tuning.goal, tuning.chosen
    assert chosen is not None
    closest: dict[str, Checked] = {}
    for one in sorted(_others(tuning), key=lambda one: -_goodput(one, tuning)):
        if not tuning.sure or one.number_of(goal) < chosen.number_of(goal):
            closest.setdefault(one.candidate.law, one)
    least = 1 - goal.give_up - MISSED
    return [one for one in closest.values() if _goodput(one, tuning) >= least][:MISSES]


def _moved(
    tuning: TuningState, one: Candidate, shares: Sequence[float], tried: Sequence[Candidate]
) -> list[Candidate]:
    """A candidate at other set-points, those that keep its margins and are not tried yet."""
    ranges = tuning.ranges
    space = calm_regions.space_of(one, ranges) if one.point else None
    if space is None:
        return []
    wanted = [(share, False, space.moved(one.point, share)) for share in shares]
    if isinstance(space, calm_regions.Region):
        # Slow starts and timeouts are no noise of the model: packets may ask for a faster law.
        wanted += [
            (share, True, space.fastest(share * one.point["target"], one.point["interval"]))
            for share in (1.0, *shares)
        ]
    before = [*(other.candidate for other in tuning.screened), *tried]
    params_before = {(other.law, other.params) for other in before}
    labels = {other.label for other in before}
    moved: list[Candidate] = []
    for share, fastest, point in wanted:
        if point is None:
            continue
        try:
            local = tuple(space.local(point, ranges, ranges.conditions))
        except ScenarioError:
            continue
        params = space.params(point)
        if (one.keeps and not keeps(local)) or (one.law, params) in params_before:
            continue
        params_before.add((one.law, params))
        # Shares are of the search's own set-point.
        whole = float(f"{share * one.share:.3g}")
        label = f"{one.searched_as} at {whole:g}{' fastest' if fastest else ''}"
        label = distinct_label(label, labels)
        labels.add(label)
        moved.append(
            replace(
                one,
                label=label,
                params=params,
                point=point,
                local=local,
                keeps=keeps(local),
                share=whole,
                fastest=fastest,
            )
        )
    return moved


def _choose(tuning: TuningState) -> None:
    """Chooses the candidate with the least of the goal's number that keeps margins and goodput.

    A law without a model has no margins to keep. With so few seeds a goodput at the limit is below
    it with others as often as not: it has to be above by what chance may add. If no candidate is,
    those at the limit count; if none keeps the goodput, the closest one is chosen; if none keeps
    the margins, they do not count.
    """
    if not tuning.screened:
        return
    goodput = np.array([np.nanmean(checked.goodput, axis=1) for checked in tuning.screened])
    # In-order goodput can pass the rate for a while, when a hole in the sequence is filled.
    tuning.best = np.minimum(1.0, goodput.max(axis=0))
    # Whoever sets up a router may leave a law as it is.
    origins = ("tuned", "listed", *(["default"] if tuning.ranges.router else []))
    tuned = [checked for checked in tuning.screened if checked.candidate.origin in origins]
    able = [checked for checked in tuned if _may_be_chosen(checked.candidate)] or tuned
    if not able:
        return
    least = 1 - tuning.goal.give_up
    room = _chance(able) / tuning.best
    enough = [checked for checked in able if (checked.relative(tuning.best) - room).min() >= least]
    tuning.sure = bool(enough)
    enough = enough or [checked for checked in able if _goodput(checked, tuning) >= least]
    tuning.meets_goal = bool(enough)
    if enough:
        tuning.chosen = min(enough, key=lambda checked: checked.number_of(tuning.goal))
    else:
        tuning.chosen = max(able, key=lambda checked: _goodput(checked, tuning))


def _may_be_chosen(candidate: Candidate) -> bool:
    """Return True if a candidate keeps its margins, or has no linear model that could have any."""
    unmodelled = candidate.origin != "tuned" and not candidate.local
    return candidate.keeps or unmodelled


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
