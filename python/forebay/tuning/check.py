"""The check of candidates with packets, all of them with the same seeds, and its expected time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import forebay._native as _native
from forebay._base import statistics
from forebay._base.progress import Progress
from forebay._native import ScenarioError
from forebay.control.senders import SENDERS
from forebay.experiment import execution, experiment
from forebay.experiment.experiment import Experiment
from forebay.scenario.builder import Dumbbell, Value
from forebay.tuning import candidates, search
from forebay.tuning.candidates import Candidate, Goal, LocalModels
from forebay.tuning.ranges import LinkRange, OperatingPoint

if TYPE_CHECKING:
    from forebay._native import Plan
    from forebay.experiment.store import Store

#: Number of seeds of the runs that choose. The runs that test the choice have other seeds: with the
#: same seeds, luck in the choice would count as merit.
SCREENING_SEEDS = 2
#: Simulated time of a run, and start of the measurement: a law settles before it.
DURATION_S, MEASURE_S = 60.0, 20.0
#: Time of a step of the rate or of the load, and time after it at which the measurement begins.
STEP_S, SETTLED_S = 20.0, 10.0
#: Longest run on a recorded link.
LONGEST_S = 140.0
#: Time for a trial of packet runs, in s.
TRIAL_S = 0.5
#: Cost of gains from an exact set, in evaluations of a model.
EVALUATIONS_OF_REGION = 40
#: Expected number of candidates with other set-points, in all rounds.
MOVED = 12
#: The stages of a tuning, by what each counts.
SEARCHES, SCREENING, MOVING, TEST, INSIDE = (
    "searches", "screening runs", "set-point runs", "test runs", "runs inside the range",
)  # fmt: skip
#: Name of a check's scenario in messages.
FILE = "check.toml"

Floats = NDArray[np.float64]


@dataclass
class Checked:
    """The runs of a candidate: arrays with a row per point and a column per seed, or NaN."""

    candidate: Candidate
    #: Standard deviation and mean of the queuing delay over time, and its 95th percentile.
    deviation_s: Floats
    delay_s: Floats
    delay_p95_s: Floats
    #: In-order goodput as a share of the link's rate.
    goodput: Floats
    utilisation: Floats

    @property
    def worst(self) -> int:
        """Index of the point with the largest mean deviation."""
        return int(np.argmax(np.nanmean(self.deviation_s, axis=1)))

    @property
    def worst_s(self) -> Floats:
        """Largest deviation of any point, for each seed."""
        return np.asarray(self.deviation_s.max(axis=0), float)

    @property
    def complete(self) -> bool:
        """True if at least one seed ran at every point."""
        return bool(np.isfinite(self.deviation_s).any(axis=1).all())

    def worst_of(self, values: Floats) -> float:
        """Return the largest mean over the seeds of any point."""
        return float(np.nanmean(values, axis=1).max())

    def number_of(self, goal: Goal) -> float:
        """Return the number that the goal minimises, at its worst point."""
        return self.worst_of(getattr(self, goal.least))

    def relative(self, best: Floats) -> Floats:
        """Return the mean goodput at each point as a fraction of `best`."""
        return np.asarray(np.nanmean(self.goodput, axis=1) / best, float)

    def locals(self, points: Sequence[OperatingPoint]) -> LocalModels:
        """Return the linear model at each point; None on a recorded link, which has several."""
        models = {model.point: model for model in self.candidate.local if model is not None}
        return [models.get(point) for point in points]

    def with_seeds(self, seeds: slice) -> Checked:
        """Return the runs with some of the seeds."""
        names = [attribute.name for attribute in fields(self)[1:]]
        return replace(self, **{name: getattr(self, name)[:, seeds] for name in names})


def best_of_laws(checked: Sequence[Checked], number: Callable[[Checked], float]) -> list[Checked]:
    """Return the best candidate of each law, the best law first.

    Parameters
    ----------
    checked : sequence of Checked
        Runs of candidates.
    number : callable
        The number to minimise.
    """
    best: dict[str, Checked] = {}
    for runs in sorted(checked, key=number):
        best.setdefault(runs.candidate.law, runs)
    return list(best.values())


@dataclass(frozen=True)
class Against:
    """The chosen law compared with another over the common seeds; less deviation is better."""

    rival: Checked
    seeds: int
    #: Mean of the other law's worst deviation minus the chosen law's, and half its 95 % interval.
    difference_s: float
    ci95_s: float
    #: p value of a paired t-test, adjusted by Holm's method for the number of other laws.
    p: float

    @property
    def significant(self) -> bool:
        """True if the difference is unlikely to be chance."""
        return self.p < 1 - statistics.LEVEL


@dataclass
class Check:
    """The runs of several candidates; after an interruption, missing values are nan."""

    checked: list[Checked]
    interrupted: bool
    faults: list[str] = field(default_factory=list)


def scenario(
    laws: Sequence[Candidate], ranges: LinkRange, title: str, point: OperatingPoint | None = None
) -> str:
    """Return the scenario of a check in TOML, at one point or in a sweep over the corners.

    Parameters
    ----------
    laws : sequence of Candidate
        The candidates.
    ranges : LinkRange
        The range of links.
    title : str
        Title of the scenario.
    point : OperatingPoint, optional
        The operating point; the corners by default.
    """
    step = None if point is None else point.before
    first = step or point or ranges.swept[0]
    fastest_bps = max(place.rate_bps for place in ranges.conditions)
    if ranges.trace is not None:
        fastest_bps = max(fastest_bps, ranges.trace.peak_bps)
    groups = () if ranges.plain else ranges.groups(first)
    return Dumbbell(
        title=title,
        duration_s=duration_s(ranges),
        measure_from_s=MEASURE_S if step is None else STEP_S + SETTLED_S,
        changes=[] if step is None or point is None else [(STEP_S, _change(ranges, point))],
        rate=first.rate,
        fastest_bps=fastest_bps,
        delay_s=ranges.rtts_s[0] / 4,
        buffer_pkts=ranges.buffer_pkts,
        flows=first.flows,
        packet=ranges.packet,
        rtt=first.rtt,
        laws=[candidate.table for candidate in laws],
        sweep=_sweep(ranges) if point is None else {},
        groups=[(group, SENDERS[group.tcp].kind, SENDERS[group.tcp].ecn) for group in groups],
        rate_trace=None if ranges.trace is None else ranges.trace.path,
    ).text()


def _change(ranges: LinkRange, after: OperatingPoint) -> dict[str, Value]:
    """Return the settings after a step."""
    flows = {
        f"traffic.{i}.flows": max(1, round(group.flows))
        for i, group in enumerate(ranges.groups(after))
    }
    return {"bottleneck.rate": after.rate, **flows}


def _sweep(ranges: LinkRange) -> dict[str, list[Any]]:
    """Return the sweep over rates, RTTs and numbers of flows, of all classes together."""
    groups = [ranges.groups(point) for point in ranges.swept]

    def keys(name: str) -> str:
        return ", ".join(f"traffic.{i}.{name}" for i in range(len(ranges.spans)))

    columns: dict[str, list[tuple[Value, ...]]] = {
        "bottleneck.rate": [(point.rate,) for point in ranges.swept],
        keys("rtt"): [tuple(group.rtt for group in classes) for classes in groups],
        keys("flows"): [tuple(round(group.flows) for group in classes) for classes in groups],
    }
    return {
        key: [list(row) if len(row) > 1 else row[0] for row in dict.fromkeys(rows)]
        for key, rows in columns.items()
    }


def duration_s(ranges: LinkRange) -> float:
    """Return the simulated time of a run, which covers a recorded link up to a limit."""
    if ranges.trace is None:
        return DURATION_S
    return float(min(max(DURATION_S, MEASURE_S + ranges.trace.round_s), LONGEST_S))


def runnable(candidate: Candidate, ranges: LinkRange) -> str:
    """Return the reason why a law refuses its parameters, such as a small buffer; else "".

    Parameters
    ----------
    candidate : Candidate
        The candidate.
    ranges : LinkRange
        The range of links.
    """
    try:
        text = scenario([candidate], ranges, "", ranges.centre or ranges.swept[0])
        _plan(text, candidate.label, ranges)
    except ScenarioError as error:
        return str(error).split(": ", 1)[1]
    return ""


def _plan(text: str, name: str, ranges: LinkRange, seeds: int | None = None) -> Plan:
    # The path of a trace is absolute.
    files, overrides = experiment.FilesBeside(FILE), list(ranges.overrides)
    return _native.plan(text.encode(), name, overrides=overrides, seeds=seeds, read=files)


def _experiment(
    laws: Sequence[Candidate], ranges: LinkRange, seeds: int, point: OperatingPoint | None
) -> Experiment:
    text = scenario(laws, ranges, "", point)
    return Experiment(_plan(text, FILE, ranges, seeds), FILE, text, "")


def check(
    laws: Sequence[Candidate],
    ranges: LinkRange,
    seeds: int,
    threads: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    store: Store | None = None,
) -> Check:
    """Run every candidate at every operating point with seeds 1 to `seeds`.

    Ctrl-C ends the check, which keeps the finished runs.

    Parameters
    ----------
    laws : sequence of Candidate
        The candidates.
    ranges : LinkRange
        The range of links.
    seeds : int
        Number of seeds.
    threads : int, optional
        Number of threads; all cores by default.
    watch : callable, optional
        Called with the progress.
    store : Store, optional
        Store of runs.
    """
    values = np.full((len(laws), 5, len(ranges.places), seeds), np.nan)
    interrupted, faults = False, list[str]()
    # The corners in one experiment, and each other point in one of its own.
    swept = len(ranges.swept)
    parts = [_experiment(laws, ranges, seeds, point) for point in [None, *ranges.places[swept:]]]
    for number, done in execution.execute_all(parts, threads, watch, samples=False, store=store):
        offset = 0 if number == 0 else swept + number - 1
        for run in done.runs:
            at = offset + run.point
            rate_bps = ranges.places[at].rate_bps
            packet_s, metrics = 8 * ranges.packet_bytes / rate_bps, run.metrics
            values[run.law, :, at, run.seed - 1] = [
                metrics["queue_std_pkts"] * packet_s,
                metrics["queue_mean_pkts"] * packet_s,
                metrics["delay_p95_s"],
                metrics["goodput_bps"] / rate_bps,
                metrics["utilisation"],
            ]
        faults += [execution.fault_in_words(parts[number].plan, fault) for fault in done.faults]
        interrupted = interrupted or done.interrupted
    checked = [Checked(candidate, *values[i]) for i, candidate in enumerate(laws)]
    return Check(checked, interrupted, faults)


# --- how long a tuning takes --------------------------------------------------------------------


@dataclass(frozen=True)
class TuningEstimate:
    """The work of a tuning, and its expected time on this machine.

    Attributes
    ----------
    laws : int
        Number of laws that are compared.
    searches : int
        Number of searches by the linear model.
    runs : int
        Expected number of packet runs; how many set-points are tried depends on the results.
    simulated_s : float
        Simulated time of a run.
    cores : int
        Number of processor cores.
    run_s : float
        Core time of a run.
    stages_s : dict
        Expected time of each stage, in seconds.
    """

    laws: int
    searches: int
    runs: int
    simulated_s: float
    cores: int
    run_s: float
    stages_s: dict[str, float]

    @property
    def total_s(self) -> float:
        """Expected time of all stages."""
        return sum(self.stages_s.values())


def estimate(
    ranges: LinkRange,
    tasks: Sequence[search.Task],
    screened: Sequence[Candidate],
    seeds: int,
    cores: int,
) -> TuningEstimate:
    """Measure the speed of models and packets on this machine, and estimate a tuning's time.

    Parameters
    ----------
    ranges : LinkRange
        The range of links.
    tasks : sequence of (law, goal)
        The searches.
    screened : sequence of Candidate
        Candidates that packets screen in addition to the results of the searches.
    seeds : int
        Number of seeds of the test.
    cores : int
        Number of processor cores.
    """
    defaults = [candidate for candidate in screened if candidate.origin == "default"]
    search_s, run_s = _searches_s(ranges, tasks), _run_s(ranges, defaults, cores)
    points = len(ranges.places)
    number = {
        SCREENING: (len(screened) + len(tasks)) * points * SCREENING_SEEDS,
        MOVING: MOVED * points * SCREENING_SEEDS,
        TEST: (1 + len(defaults)) * points * seeds,
    }
    stages_s = {stage: runs * run_s / cores for stage, runs in number.items()}
    stages_s[SEARCHES] = sum(search_s) / min(cores, len(search_s)) if search_s else 0.0
    laws, runs = len({candidate.law for candidate in screened}), sum(number.values())
    return TuningEstimate(laws, len(tasks), runs, duration_s(ranges), cores, run_s, stages_s)


def _searches_s(ranges: LinkRange, tasks: Sequence[search.Task]) -> list[float]:
    """Return the processor time of each search, from one evaluation of each law's model."""
    spaces = {law: candidates.space(law, ranges) for law, _ in tasks}
    once_s: dict[str, float] = {}
    for law, space in spaces.items():
        if space is not None:
            middle = {axis.name: math.sqrt(axis.low * axis.high) for axis in space.axes}
            start = time.perf_counter()
            try:
                space.local(middle, ranges, ranges.conditions)
            except ScenarioError:
                continue
            once_s[law] = time.perf_counter() - start
    usual_s = sorted(once_s.values())[len(once_s) // 2] if once_s else 0.0

    def evaluations(law: str) -> int:
        space = spaces[law]
        if space is None or search.region_of(law, ranges) is not None:
            return EVALUATIONS_OF_REGION
        # Sobol's sequence has a power of two of points.
        points = 1 << (search.POINTS * len(space.axes) - 1).bit_length()
        return points * (search.GENERATIONS + 1)

    return [evaluations(law) * max(once_s.get(law, usual_s), 0.3 * usual_s) for law, _ in tasks]


def _run_s(ranges: LinkRange, defaults: Sequence[Candidate], cores: int) -> float:
    """Return the core time of a run: runs at the corners are started, and then cancelled."""
    trial = _experiment(defaults, ranges, 1, None)
    laws, points = range(len(trial.plan.laws)), range(len(trial.plan.points))
    keys = {(point, law, 1) for point in points for law in laws}
    batch = trial.engine.start(trial, cores, samples=False, only=keys)
    start = time.monotonic()
    while not batch.done and time.monotonic() - start < TRIAL_S:
        time.sleep(0.005)
    share, elapsed_s = batch.progress(), time.monotonic() - start
    while not batch.done:
        batch.cancel()
        time.sleep(0.005)
    return elapsed_s * cores / (share * len(keys)) if share > 0 else 0.0


@dataclass
class Course:
    """The course of a tuning; `watch` receives the progress of the whole in each stage."""

    watch: Callable[[str, Progress], None]
    #: Expected time of the remaining stages, in seconds.
    ahead_s: dict[str, float] = field(default_factory=dict)
    passed_s: float = 0.0
    began_s: float = field(default_factory=time.monotonic)

    def stage(self, name: str, expected_s: float | None = None) -> Callable[[Progress], None]:
        """Begin a stage, and return the function that receives its progress.

        Parameters
        ----------
        name : str
            Name of the stage.
        expected_s : float, optional
            Expected time of the stage, if it is known better by now.
        """
        ahead_s = self.ahead_s.pop(name, 0.0)
        stage_s = ahead_s if expected_s is None else expected_s
        before_s = self.passed_s
        self.passed_s += stage_s
        total_s = max(self.passed_s + sum(self.ahead_s.values()), 1e-9)

        def receive(now: Progress) -> None:
            fraction = (before_s + stage_s * now.fraction) / total_s
            elapsed_s = time.monotonic() - self.began_s
            self.watch(name, Progress(fraction, now.ended_runs, now.runs, elapsed_s, now.more))

        return receive
