"""Tuning from a range of links to one law: search, screen with packets, choose, test."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

import forebay._native as _native
from forebay._base import progress, quantities, registries, statistics
from forebay._base.errors import ParameterError
from forebay._base.progress import Progress
from forebay._base.quantities import Overrides
from forebay._base.words import check_choice
from forebay._native import ScenarioError
from forebay.experiment import execution
from forebay.experiment import store as stores
from forebay.experiment.experiment import check_seeds
from forebay.tuning import candidates
from forebay.tuning.candidates import (
    CHOICES,
    GOALS,
    Candidate,
    GoalName,
    Params,
    ReferenceGains,
    RouterLaws,
    distinct_label,
    keeps_margins,
)
from forebay.tuning.check import (
    INSIDE,
    MOVING,
    SCREENING,
    SCREENING_SEEDS,
    SEARCHES,
    TEST,
    Check,
    Checked,
    Course,
    Floats,
    TuningEstimate,
    best_of_laws,
    check,
    estimate,
    runnable,
)
from forebay.tuning.ranges import LinkRange
from forebay.tuning.recommendation import REFERENCES, Tuning
from forebay.tuning.search import Region, Task, search_all, space_of

if TYPE_CHECKING:
    from forebay.experiment.store import Store, StoreLike

__all__ = ["Tuning", "tune"]

#: Multiples of a set-point that packets try: lower ones if the goodput allows them, and higher ones
#: if the goal is not met.
LOWER, HIGHER = (0.7, 0.5, 0.35, 0.25), (1.4, 2.0, 2.8)
#: Largest number of other laws that get other set-points, too, and the goodput that they may lose
#: beyond the goal's limit.
MISSES, MISSED = 3, 0.15
#: Largest number of other laws whose set-points are lowered, and the fraction of the goal's limit
#: that they must have left.
NEXT, SPARE = 2, 0.3
#: Largest number of times that set-points are moved. It is repeated while the goal is not met, or
#: while the smallest multiple is the best one.
ROUNDS = 3
#: Number of points along each range at which the model is evaluated again.
GRID = 5

#: Called with the name of what a stage counts, and its progress.
Watch = Callable[[str, Progress], None]


def tune(
    ranges: LinkRange,
    *,
    laws: str | Sequence[str] | None = None,
    goal: GoalName = "balance",
    overrides: Overrides = (),
    seeds: int = 10,
    seed: int = 1,
    threads: int | None = None,
    store: StoreLike | None = None,
    gains: ReferenceGains = "paper",
    router: RouterLaws | None = None,
    thorough: bool = False,
    watch: Watch | None = None,
    announce: Callable[[TuningEstimate], None] | None = None,
) -> Tuning:
    """Tune laws for a range of links, and recommend one law with one set of parameters.

    Ctrl-C, or a fault after the first runs, ends the tuning early: see `Tuning.interrupted` and
    `Tuning.faults`.

    Parameters
    ----------
    ranges : LinkRange
        The range of rates, RTTs and numbers of flows.
    laws : str or sequence of str, optional
        Names of the laws to choose from; all laws by default.
    goal : {"balance", "delay", "throughput"}, optional
        "delay" minimises the largest 95th percentile of the delay, and gives up at most 20 % of the
        goodput at any operating point. "balance" and "throughput" minimise the largest standard
        deviation of the delay, and give up at most 10 % or 5 %.
    overrides : dict, str or sequence, optional
        Keys of the scenarios in which packets run, such as ``{"bottleneck.ecn": True}``.
    seeds : int, optional
        Number of seeds with which the chosen law is tested, 1 to 1000.
    seed : int, optional
        Seed of the search.
    threads : int, optional
        Number of threads; all cores by default. Results do not depend on it.
    store : Store, str or PathLike, optional
        Store of runs, or its address: finished runs are taken from it, and new ones are added. By
        default nothing is stored.
    gains : {"paper", "auto"}, optional
        The gains of the laws that the choice is compared with: those of their papers, or those of
        automatic gain design.
    router : {"linux", "attach"}, optional
        Choose among the qdiscs of Linux, or also among the laws that `forebay attach` installs; any
        law by default.
    thorough : bool, optional
        Search each law for all three goals, so packets judge three times as many candidates.
    watch, announce : callable, optional
        Called with the progress of each stage, and with the expected time.

    Returns
    -------
    Tuning
        The recommended law, the reasons, and all candidates.

    Raises
    ------
    ScenarioError
        If an argument is wrong, or there is nothing to tune.

    Examples
    --------
    >>> ranges = forebay.LinkRange(rate="5..50Mbit/s", rtt="20..200ms", flows=(10, 400))
    >>> tuning = forebay.tune(ranges, laws=["pi", "pie"], goal="balance")
    """
    _check_arguments(goal, seeds, gains, router)
    ranges = ranges.with_settings(overrides, router or "")
    names = _laws(quantities.listed(laws), ranges)
    tuning = Tuning(ranges, GOALS[goal], names, seed, gains, thorough=thorough)
    opened = stores.opened(store)
    if watch is not None:
        _Search(tuning, threads, Course(watch), opened, announce).run(seeds)
        return tuning
    with progress.stages(only_on_terminal=True) as stages:
        _Search(tuning, threads, Course(stages), opened, announce).run(seeds)
    if tuning.interrupted or tuning.faults:
        why = tuning.faults[0] if tuning.faults else "interrupted"
        warnings.warn(f"{why}; the tuning is partial", stacklevel=2)
    return tuning


def _check_arguments(goal: str, seeds: int, gains: str, router: str | None) -> None:
    """Raise `ParameterError` for a wrong argument of `tune`."""
    check_choice("goal", goal, GOALS)
    check_seeds(seeds)
    if not 1 <= seeds <= 1000:
        raise ParameterError("seeds", seeds, "1 to 1000")
    check_choice("gains", gains, REFERENCES)
    if router is not None:
        check_choice("router", router, CHOICES)


def _laws(laws: Sequence[str], ranges: LinkRange) -> list[str]:
    """Return the laws to choose from. Raises `ParameterError` if there is nothing to tune."""
    names = candidates.known(laws, ranges)
    baseline = registries.baseline()["name"]
    if names == [baseline]:
        raise ParameterError("laws", baseline, "a law with something to tune")
    for law in laws:
        if candidates.is_coupled(law) and ranges.l4s:
            reason = f"{law} signals these in another way than classic flows"
            raise ParameterError("senders", ranges.tcp, "other laws", reason=reason)
    if laws and not ranges.router and all(candidates.space(law, ranges) is None for law in names):
        modelled = [entry["name"] for entry in _native.laws() if entry["modelled"]]
        expected = f"at least one law that has a linear model: {', '.join(modelled)}"
        raise ParameterError("laws", ", ".join(names), expected)
    why = runnable(candidates.default(baseline), ranges)
    if why:  # the ranges are wrong, and not a law
        raise ScenarioError(why)
    return names


@dataclass
class _Search:
    """The stages of a tuning, which fill in its result."""

    tuning: Tuning
    threads: int | None
    course: Course
    store: Store | None
    announce: Callable[[TuningEstimate], None] | None = None
    #: Time of a core for a packet run, in s.
    run_s: float = 0.0

    @property
    def stopped(self) -> bool:
        """True after an interruption or a fault."""
        return self.tuning.interrupted or bool(self.tuning.faults)

    @property
    def cores(self) -> int:
        """Number of processor cores that are used."""
        return self.threads or execution.cores()

    def run(self, seeds: int) -> None:
        """Run all stages; an error after the first runs keeps the earlier results."""
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
        names = list(dict.fromkeys([registries.baseline()["name"], *tuning.laws]))
        modelled = [law for law in names if candidates.space(law, ranges) is not None]
        tasks = [(law, goal) for law in modelled for goal in goals]
        unsearched = self._runnable(
            [
                *map(self._reference, names),
                *(candidate for law in names for candidate in self._settings(law)),
            ]
        )
        expected = estimate(ranges, tasks, unsearched, seeds, self.cores)
        self.run_s, self.course.ahead_s = expected.run_s, dict(expected.stages_s)
        if self.announce is not None:
            self.announce(expected)
        self._search(tasks)
        if tuning.interrupted:
            return
        self._screen(distinct([*unsearched, *self._runnable(tuning.searched)]), SCREENING)
        for _ in range(ROUNDS):
            if not self._move_set_points():
                break
        if tuning.chosen is None or self.stopped:
            return
        finalists = [tuning.chosen.candidate, *self._rivals(tuning.chosen)]
        again = None if ranges.router else candidates.retargeted(finalists[0])
        finalists += [again] if again is not None and not runnable(again, ranges) else []
        self._test(distinct(finalists), seeds)

    def _rivals(self, chosen: Checked) -> list[Candidate]:
        """Return the rivals of the choice in the test: laws with their usual parameters.

        A law that gives up more goodput than the goal allows is no rival, and is not tested again.
        The queue without a law and the chosen law's own default are always tested.
        """
        tuning = self.tuning
        always = (registries.baseline()["name"], chosen.candidate.law)
        return [
            runs.candidate
            for runs in tuning.screened
            if runs.candidate.origin == "default"
            and (
                runs.candidate.law in always
                or not tuning.meets_goal
                or tuning.goodput_of(runs) >= 1 - tuning.goal.give_up
            )
        ]

    def _settings(self, law: str) -> list[Candidate]:
        """Return the settings of a law that packets try without a search."""
        ranges = self.tuning.ranges
        more = candidates.other_targets(law, ranges) if ranges.router else []
        return [*candidates.listed(law, ranges), *more]

    def _reference(self, law: str) -> Candidate:
        """Return a law with the parameters with which the choice is compared."""
        if self.tuning.ranges.router:
            return candidates.stock(law, self.tuning.ranges)
        if self.tuning.gains == "paper":
            return candidates.default(law)
        return candidates.designed(law, self.tuning.ranges)

    def _search(self, tasks: Sequence[Task]) -> None:
        """Search the gains of every law that has a model."""
        tuning = self.tuning
        searched: dict[int, Candidate] = {}
        start, watch = time.monotonic(), self.course.stage(SEARCHES)
        try:
            searches = search_all(tasks, tuning.ranges, tuning.seed, self.threads, self.store)
            with closing(searches):
                for number, candidate in searches:
                    searched[number] = candidate
                    done, elapsed_s = len(searched), time.monotonic() - start
                    watch(Progress(done / len(tasks), done, len(tasks), elapsed_s))
        except KeyboardInterrupt:
            tuning.interrupted = True
        tuning.searched = [searched[number] for number in sorted(searched)]

    def _runnable(self, laws: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that can run; record the others as left out."""
        ranges, able = self.tuning.ranges, []
        for candidate in laws:
            try:
                installed = candidates.as_installed(candidate, ranges)
                why = runnable(installed, ranges)
            except ScenarioError as error:
                installed, why = candidate, str(error).split(": ", 1)[1]
            if why:
                self.tuning.left_out.append((candidate, why))
            else:
                able.append(installed)
        return able

    def _check(
        self, laws: Sequence[Candidate], seeds: int, stage: str, ranges: LinkRange | None = None
    ) -> Check:
        tested_ranges = ranges or self.tuning.ranges
        runs = len(laws) * len(tested_ranges.places) * seeds
        watch = self.course.stage(stage, runs * self.run_s / self.cores)
        done = check(laws, tested_ranges, seeds, self.threads, watch, self.store)
        self.tuning.interrupted = self.tuning.interrupted or done.interrupted
        self.tuning.faults += done.faults
        return done

    def _screen(self, laws: Sequence[Candidate], stage: str) -> None:
        """Run candidates with the screening seeds, and choose among all candidates so far."""
        done = self._check(laws, SCREENING_SEEDS, stage)
        self.tuning.screened += [runs for runs in done.checked if runs.complete]
        _choose(self.tuning)

    def _move_set_points(self) -> bool:
        """Try other set-points with packets; return True to continue from the new choice.

        The model's share of time with an empty queue is a poor predictor of the goodput.
        """
        tuning = self.tuning
        before, meets_goal = tuning.chosen, tuning.sure
        if before is None or self.stopped:
            return False
        starts = [(before.candidate, LOWER if meets_goal else HIGHER)]
        starts += [(runs.candidate, HIGHER) for runs in _misses(tuning, before)]
        starts += [(runs.candidate, LOWER) for runs in _next(tuning)]
        moved: list[Candidate] = []
        for candidate, shares in starts:
            moved += self._runnable(_moved(tuning, candidate, shares, moved))
        if not moved:
            return False
        self._screen(moved, MOVING)
        now = tuning.chosen
        if now is before or now is None:
            return False
        least = LOWER[-1] * before.candidate.share
        same_law = now.candidate.law == before.candidate.law
        return not (meets_goal and same_law) or now.candidate.share <= least

    def _test(self, finalists: Sequence[Candidate], seeds: int) -> None:
        """Run the chosen law and others with seeds that took no part in the choice."""
        done = self._check(finalists, SCREENING_SEEDS + seeds, TEST)
        tested = [runs.with_seeds(slice(SCREENING_SEEDS, None)) for runs in done.checked]
        if not tested[0].complete:
            return
        self.tuning.tested = [runs for runs in tested if runs.complete]
        if not self.tuning.interrupted:
            self._test_inside(seeds)

    def _test_inside(self, seeds: int) -> None:
        """Evaluate the model on a grid between the corners, and run packets at its worst point."""
        candidate, ranges = self.tuning.tested[0].candidate, self.tuning.ranges
        space = space_of(candidate, ranges)
        if space is None or not candidate.point or ranges.trace is not None:
            return
        grid = [point for point in ranges.grid(GRID) if point not in ranges.corners]
        models = [
            model
            for model in space.local(candidate.point, ranges, grid)
            if model and not model.timeouts
        ]
        if not models:
            return
        tight = max(models, key=lambda model: model.sensitivity if model.stable else math.inf)
        done = self._check([candidate], seeds, INSIDE, ranges.only(tight.point))
        if done.checked[0].complete:
            self.tuning.inside = tight, done.checked[0]


def distinct(laws: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates without repetitions of law and parameters.

    Several candidates may be equal after rounding to the steps of a router.
    """
    first: dict[tuple[str, Params], Candidate] = {}
    for candidate in laws:
        first.setdefault((candidate.law, candidate.params), candidate)
    return list(first.values())


def _others(tuning: Tuning) -> list[Checked]:
    """Return candidates of other laws that keep their margins and whose set-point can be moved."""
    law = tuning.chosen and tuning.chosen.candidate.law
    return [
        runs
        for runs in tuning.screened
        if runs.candidate.keeps and runs.candidate.point and runs.candidate.law != law
    ]


def _next(tuning: Tuning) -> list[Checked]:
    """Return the best candidates of other laws with goodput to spare.

    The set-point of a law without a model cannot be moved.
    """
    least = 1 - tuning.goal.give_up + SPARE * tuning.goal.give_up
    able = [runs for runs in _others(tuning) if tuning.goodput_of(runs) >= least]
    return best_of_laws(able, lambda runs: runs.number_of(tuning.goal))[:NEXT]


def _misses(tuning: Tuning, chosen: Checked) -> list[Checked]:
    """Return the candidate of each other law that is closest to the goal's goodput.

    Only candidates with a better number of the goal than the chosen law are returned, the closest
    laws first.
    """
    goal = tuning.goal
    closest: dict[str, Checked] = {}
    for runs in sorted(_others(tuning), key=lambda runs: -tuning.goodput_of(runs)):
        if not tuning.sure or runs.number_of(goal) < chosen.number_of(goal):
            closest.setdefault(runs.candidate.law, runs)
    least = 1 - goal.give_up - MISSED
    return [runs for runs in closest.values() if tuning.goodput_of(runs) >= least][:MISSES]


def _moved(
    tuning: Tuning, start: Candidate, shares: Sequence[float], earlier: Sequence[Candidate]
) -> list[Candidate]:
    """Return a candidate at other set-points that keep its margins and are new."""
    ranges = tuning.ranges
    space = space_of(start, ranges) if start.point else None
    if space is None:
        return []
    points = [(share, False, space.moved(start.point, share)) for share in shares]
    if isinstance(space, Region):
        # The model has no slow starts and timeouts, for which packets may need a faster law.
        target, interval_s = start.point["target"], start.point["interval"]
        points += [
            (share, True, space.fastest(share * target, interval_s)) for share in (1.0, *shares)
        ]
    before = [*(runs.candidate for runs in tuning.screened), *earlier]
    params_before = {(candidate.law, candidate.params) for candidate in before}
    labels = {candidate.label for candidate in before}
    moved: list[Candidate] = []
    for share, fastest, point in points:
        if point is None:
            continue
        try:
            local = tuple(space.local(point, ranges, ranges.conditions))
        except ScenarioError:
            continue
        params, keeps = space.params(point), keeps_margins(local)
        if (start.keeps and not keeps) or (start.law, params) in params_before:
            continue
        params_before.add((start.law, params))
        # Multiples refer to the set-point of the search.
        total = float(f"{share * start.share:.3g}")
        label = f"{start.searched_as} at {total:g}{' fastest' if fastest else ''}"
        label = distinct_label(label, labels)
        labels.add(label)
        place = replace(start, params=params, point=point, local=local, keeps=keeps)
        moved.append(replace(place, label=label, share=total, fastest=fastest))
    return moved


def _choose(tuning: Tuning) -> None:
    """Choose the candidate with the smallest number of the goal that keeps margins and goodput.

    A law without a model has no margins to keep. With few seeds a goodput at the limit is often
    above it by chance, so it must exceed the limit by the size of such chance. If no candidate
    does, candidates at the limit count; if none keeps the goodput, the closest one is chosen; if
    none keeps the margins, margins do not count.
    """
    if not tuning.screened:
        return
    goodput = np.array([np.nanmean(runs.goodput, axis=1) for runs in tuning.screened])
    # In-order goodput can exceed the rate for a while, when a hole in the sequence is filled.
    tuning.best = np.minimum(1.0, goodput.max(axis=0))
    # A router may keep a law's default parameters.
    origins = ("tuned", "listed", *(["default"] if tuning.ranges.router else []))
    tuned = [runs for runs in tuning.screened if runs.candidate.origin in origins]
    able = [runs for runs in tuned if _may_be_chosen(runs.candidate)] or tuned
    if not able:
        return
    least = 1 - tuning.goal.give_up
    headroom = _chance(able) / tuning.best
    enough = [runs for runs in able if (runs.relative(tuning.best) - headroom).min() >= least]
    tuning.sure = bool(enough)
    enough = enough or [runs for runs in able if tuning.goodput_of(runs) >= least]
    tuning.meets_goal = bool(enough)
    if enough:
        tuning.chosen = min(enough, key=lambda runs: runs.number_of(tuning.goal))
    else:
        tuning.chosen = max(able, key=tuning.goodput_of)


def _may_be_chosen(candidate: Candidate) -> bool:
    """Return True if a candidate keeps its margins, or has no linear model with margins."""
    unmodelled = candidate.origin != "tuned" and not candidate.local
    return candidate.keeps or unmodelled


def _chance(able: Sequence[Checked]) -> Floats:
    """Return the one-sided size of chance in the mean goodput at each point.

    The variance is the median over all candidates, since two seeds say little about one of them.
    """
    seeds = np.array([np.isfinite(runs.goodput).sum(axis=1) for runs in able]).min(axis=0)
    if seeds.min() < 2:
        return np.zeros(len(seeds))
    variance = np.median([np.nanvar(runs.goodput, axis=1, ddof=1) for runs in able], axis=0)
    # Correction by the median of chi-squared over its mean, which approaches 1 with more seeds.
    variance = variance / special.chdtri(seeds - 1, 0.5) * (seeds - 1)
    return np.asarray(special.ndtri(statistics.LEVEL) * np.sqrt(variance / seeds), float)
