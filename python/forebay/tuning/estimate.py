"""How long a tuning takes: an estimate from speed that is measured beforehand, and what is left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from forebay._base.progress import Progress
from forebay._native import ScenarioError
from forebay.tuning import calm_regions, candidates, check, gain_search
from forebay.tuning.candidates import Candidate
from forebay.tuning.ranges import Ranges

#: Time for a trial of packet runs, in s.
TRIAL_S = 0.5
#: A law whose gains come from an exact set takes about as long as so many evaluations of a model.
EVALUATIONS_OF_REGION = 40
#: Candidates with other set-points that the packets are likely to try, in all rounds.
MOVED = 12

SEARCHES, SCREENING, MOVING, TEST, INSIDE = (
    "searches", "screening runs", "set-point runs", "test runs", "runs inside",
)  # fmt: skip


@dataclass(frozen=True)
class Estimate:
    """The work of a tuning, and about how long it takes on this machine.

    Attributes
    ----------
    laws : int
        Laws that are compared.
    searches : int
        Searches by the linear model that are made beforehand.
    runs : int
        Packet runs, about; how many set-points are tried depends on what is found.
    simulated_s : float
        Simulated time of a run.
    cores : int
        Processor cores that are used.
    stages_s : dict
        Expected time of each stage, in s.
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
        return sum(self.stages_s.values())


def estimate(
    ranges: Ranges,
    tasks: Sequence[tuple[str, str]],
    screened: Sequence[Candidate],
    seeds: int,
    cores: int,
) -> Estimate:
    """Measure how fast models and packets are here, and add up what is to be done.

    Parameters
    ----------
    tasks : sequence of (law, goal)
        The searches.
    screened : sequence of Candidate
        What the packets screen besides the outcome of the searches.
    seeds : int
        Seeds of the test.
    """
    search_s = _searches_s(ranges, tasks)
    run_s = _run_s(
        ranges, [candidate for candidate in screened if candidate.origin == "default"], cores
    )
    places = len(ranges.places)
    number = {
        SCREENING: (len(screened) + len(tasks)) * places * check.SCREENING_SEEDS,
        MOVING: MOVED * places * check.SCREENING_SEEDS,
        TEST: (1 + sum(candidate.origin == "default" for candidate in screened)) * places * seeds,
    }
    stages_s = {stage: runs * run_s / cores for stage, runs in number.items()}
    stages_s[SEARCHES] = sum(search_s) / min(cores, len(search_s)) if search_s else 0.0
    laws = len({candidate.law for candidate in screened})
    return Estimate(
        laws, len(tasks), sum(number.values()), check.duration_s(ranges), cores, run_s, stages_s
    )


def _searches_s(ranges: Ranges, tasks: Sequence[tuple[str, str]]) -> list[float]:
    """Return the processor time of each search, from a few evaluations of its model."""
    once: dict[str, float] = {}
    for law, _ in tasks:
        space = candidates.space(law, ranges)
        if law in once or space is None:
            continue
        middle = {axis.name: math.sqrt(axis.low * axis.high) for axis in space.axes}
        start = time.perf_counter()
        try:
            space.local(middle, ranges, ranges.conditions)
        except ScenarioError:
            continue
        once[law] = time.perf_counter() - start
    usual = sorted(once.values())[len(once) // 2] if once else 0.0
    return [_evaluations(law, ranges) * max(once.get(law, usual), 0.3 * usual) for law, _ in tasks]


def _evaluations(law: str, ranges: Ranges) -> int:
    """Return how often a search evaluates its model."""
    space = candidates.space(law, ranges)
    if space is None or calm_regions.region_of(law, ranges) is not None:
        return EVALUATIONS_OF_REGION
    # Sobol's sequence has a power of two of points.
    points = 1 << (gain_search.POINTS * len(space.axes) - 1).bit_length()
    return points * (gain_search.GENERATIONS + 1)


def _run_s(ranges: Ranges, defaults: Sequence[Candidate], cores: int) -> float:
    """Return the time of a core for a run: some are begun at the corners, and given up."""
    from forebay.experiment.experiment import Experiment

    text = check.scenario(defaults, ranges, "")
    plan = check.plan(text, "check.toml", ranges, 1)
    experiment = Experiment(plan, "check.toml", text, "")
    every = {(p, law, 1) for p in range(len(plan.points)) for law in range(len(plan.laws))}
    batch = experiment.engine.start(experiment, cores, samples=False, only=every)
    start = time.monotonic()
    while not batch.done and time.monotonic() - start < TRIAL_S:
        time.sleep(0.005)
    share, elapsed_s = batch.progress(), time.monotonic() - start
    while not batch.done:
        batch.cancel()
        time.sleep(0.005)
    return elapsed_s * cores / (share * len(every)) if share > 0 else 0.0


@dataclass
class Course:
    """The course of a tuning: `watch` hears how far the whole is, in the words of each stage."""

    watch: Callable[[str, Progress], None]
    #: Stages to come, and how long each is likely to take, in s.
    ahead_s: dict[str, float] = field(default_factory=dict)
    passed_s: float = 0.0
    began_s: float = field(default_factory=time.monotonic)

    def stage(self, name: str, expected_s: float | None = None) -> Callable[[Progress], None]:
        """Begin a stage, and return what hears of its progress.

        expected_s: how long it is likely to take, where more is known of it now.
        """
        ahead_s = self.ahead_s.pop(name, 0.0)
        stage_s = ahead_s if expected_s is None else expected_s
        before_s = self.passed_s
        self.passed_s += stage_s
        total_s = max(self.passed_s + sum(self.ahead_s.values()), 1e-9)

        def hear(now: Progress) -> None:
            fraction = (before_s + stage_s * now.fraction) / total_s
            elapsed_s = time.monotonic() - self.began_s
            self.watch(name, Progress(fraction, now.ended, now.runs, elapsed_s, now.more))

        return hear
