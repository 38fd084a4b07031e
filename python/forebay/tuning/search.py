"""The search for the gains of each law and goal: the shortest delay within margins at every corner.

If a law is a PI, whatever the names of its gains (`pi_forms`), no search is needed:
`pi_stabilising_set` has the exact set of gains with |1/(1 + L)| ≤ 2 at every point. `Region`
chooses from it, over set-points and intervals, the gains with the smallest number of the goal at
the worst point. Other laws are searched by differential evolution.

A search holds the interpreter's lock, so searches run in processes of their own. A search
depends on its law, goal, ranges and seed alone, and every process has one thread of BLAS: the
result is the same with any number of processes.
"""

from __future__ import annotations

import math
import queue
import sys
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from forebay._base import quantities, signals
from forebay._base.publication import digest_of
from forebay._base.worker_process import Worker, WorkerError
from forebay._native import ScenarioError
from forebay.control import pi_forms, pi_stabilising_set
from forebay.control.design import LONGEST
from forebay.control.link import replaced
from forebay.control.loop import DISTURBANCE_TURNS, Loop, densities
from forebay.control.pi_forms import PiLaw
from forebay.control.pi_stabilising_set import TAKEN, Corner, PiGains
from forebay.control.plants import plant_on
from forebay.experiment import execution
from forebay.experiment.store import Designs
from forebay.tuning import candidates
from forebay.tuning.candidates import (
    GOALS,
    NEARLY_ALL,
    SENSITIVITY,
    Candidate,
    Goal,
    LocalModels,
    Params,
    Point,
    Space,
    counted,
    keeps_margins,
)
from forebay.tuning.ranges import LinkRange, OperatingPoint

if TYPE_CHECKING:
    from forebay.experiment.store import Store

Floats = NDArray[np.float64]
#: A law, and the name of a goal.
Task = tuple[str, str]

#: Number of set-points that are tried first, and of bisections around the best one.
TARGETS, CLOSER = 9, 2
#: Number of values of K_p, from a thousandth of the largest, and fractions of the largest K_i at
#: each.
TRIED, SHARES = 28, (1.0, 0.6, 0.3, 0.1)
#: Shortest sampling interval, in s.
SHORTEST_S = 5e-4
#: Factor by which the gains are inside the set, since the grid of frequencies misses extremes
#: between two of them; and largest number of further reductions while the exact peak exceeds its
#: bound.
INSIDE, STEPS = 0.99, 12
#: Number of generations of differential evolution, and of points per axis in each.
GENERATIONS, POINTS = 40, 6
#: Weight of the delay next to the goal's number.
TIE = 1e-3
#: Smallest cost of a broken constraint.
BROKEN = 1e3
#: Environment variables of the number of threads of a BLAS.
_BLAS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


# --- exact gains of a PI ------------------------------------------------------------------------


@dataclass(frozen=True)
class RobustCorner(Corner):
    """A corner of the range, with the spectra of the two disturbances that move its queue.

    Attributes
    ----------
    flows : float
        Number of flows.
    queue_pkts : float
        Queue at the equilibrium in packets.
    noise, load : array of shape (n,)
        Variance of the queue, without the law, in the band of each frequency, in packets squared:
        by the random losses of TCP, and by changes of the load.
    """

    flows: float
    queue_pkts: float
    noise: Floats
    load: Floats

    def deviations(self, k_p: Floats, k_i: Floats) -> tuple[Floats, Floats]:
        """Return the queue's standard deviation by TCP's losses and by the load, in packets.

        Parameters
        ----------
        k_p, k_i : array of shape (n,)
            Gains.
        """
        law = k_p[:, None] - 1j * self.integral * k_i[:, None]
        square = 1 / np.abs(1 + law * self.response) ** 2
        # Sums of BLAS would depend on its number of threads.
        noise, load = (np.einsum("ij,j->i", square, part) for part in (self.noise, self.load))
        return np.sqrt(noise), np.sqrt(load)


@dataclass(frozen=True)
class RobustSet:
    """The gains with a bounded sensitivity peak at one set-point and interval."""

    corners: list[RobustCorner]
    #: True for the corners whose margins count.
    counts: list[bool]
    #: The largest K_i at each K_p.
    k_p: Floats
    k_i: Floats

    @property
    def counted(self) -> list[RobustCorner]:
        """The corners whose margins count."""
        return [corner for corner, counts in zip(self.corners, self.counts, strict=True) if counts]

    def most_k_i(self, k_p: float) -> float:
        """Return the largest K_i with this K_p."""
        return min(float(corner.robust_k_i(np.array([k_p]))[0]) for corner in self.counted)


@dataclass(frozen=True)
class _Choice:
    """The best gains so far, with their cost."""

    cost: float
    target: float
    gains: PiGains


@dataclass(frozen=True)
class Region(Space):
    """The robust gains of a law that is a PI.

    A point has "target" in packets on the fastest link (of a range of rates the set-point is a
    time), "k_p", "k_i" and "interval" in s.
    """

    ranges: LinkRange
    form: PiLaw

    @property
    def timed(self) -> bool:
        """True if the set-point is a time: a queue is another delay at each rate."""
        return self.ranges.rates_bps[0] < self.ranges.rates_bps[1]

    def params(self, point: Point) -> Params:
        """Return the parameters at a point. Raises `ScenarioError` if the law cannot have them."""
        gains = PiGains(point["k_p"], point["k_i"], point["interval"])
        values = self.form.params(gains.a, gains.b)
        if values is None:
            raise ScenarioError(f"{self.law}: the law cannot have these gains")
        return (
            (self.form.keys[0], self._target_text(point["target"])),
            *((name, self.form.text(value, gains.a, gains.b)) for name, value in values),
            (self.form.keys[1], quantities.time(point["interval"])),
            *self.fixed,
        )

    def queue_pkts(self, point: Point, at: OperatingPoint) -> float:
        """Return the set-point in packets."""
        return self._target_pkts(point["target"], at)

    def moved(self, point: Point, share: float) -> dict[str, float] | None:
        """Return the point at `share` of its set-point, with gains of the same relative speed.

        Parameters
        ----------
        point : dict
            A point of the region.
        share : float
            Factor on the set-point.
        """
        before, after = point["target"], share * point["target"]
        if after < self._least_target():
            return None
        old, new = (self.robust(target, point["interval"]) for target in (before, after))
        if old is None or new is None:
            return None
        k_p = new.k_p[np.argmin(np.abs(new.k_p / new.k_p[-1] - point["k_p"] / old.k_p[-1]))]
        old_k_i, new_k_i = old.most_k_i(point["k_p"]), new.most_k_i(k_p)
        if new_k_i <= 0 or old_k_i <= 0:
            return None
        k_i = new_k_i * min(1.0, point["k_i"] / old_k_i)
        return self._inside(after, PiGains(float(k_p), float(k_i), point["interval"]))

    def fastest(self, target: float, interval_s: float) -> dict[str, float] | None:
        """Return the gains with the largest robust K_i, which reject disturbances best.

        See Åström and Hägglund (2006).

        Parameters
        ----------
        target : float
            Set-point in packets.
        interval_s : float
            Sampling interval in seconds.
        """
        gains = self.robust(target, interval_s) if target >= self._least_target() else None
        if gains is None:
            return None
        k_i = np.where(2 * gains.k_p > gains.k_i * interval_s, gains.k_i, 0.0)
        i = int(k_i.argmax())
        if k_i[i] <= 0:
            return None
        return self._inside(target, PiGains(float(gains.k_p[i]), float(k_i[i]), interval_s))

    def best(self, goal: Goal) -> Candidate | None:
        """Return the gains with the smallest number of the goal.

        Returns
        -------
        Candidate or None
            None if no gains are robust at every corner, or none keeps the goodput.
        """
        low, high = self._targets()
        choice: _Choice | None = None
        for target in np.geomspace(low, high, TARGETS):
            for interval_s in self._intervals(target):
                choice = self._better(choice, float(target), interval_s, goal)
        step = (high / low) ** (1 / (TARGETS - 1))
        for _ in range(CLOSER):
            if choice is None:
                return None
            step = math.sqrt(step)
            centre, interval_s = choice.target, choice.gains.interval_s
            for target in (centre / step, centre * step):
                if low <= target <= high:
                    choice = self._better(choice, target, interval_s, goal)
        point = None if choice is None else self._inside(choice.target, choice.gains)
        if point is None:
            return None
        return self.candidate(goal, point, self.local(point, self.ranges, self.ranges.conditions))

    def robust(self, target: float, interval_s: float) -> RobustSet | None:
        """Return the robust gains; None if a corner has no equilibrium.

        Parameters
        ----------
        target : float
            Set-point in packets.
        interval_s : float
            Sampling interval in seconds.
        """
        corners = []
        for point in self.ranges.conditions:
            corner = self._corner(point, target, interval_s)
            if corner is None:
                return None
            corners.append(corner)
        in_range = [corner.flows > NEARLY_ALL * self.ranges.flows[0] for corner in corners]
        in_range = in_range if any(in_range) else [True] * len(in_range)
        counted = [corner for corner, counts in zip(corners, in_range, strict=True) if counts]
        highest = min(corner.most_k_p() for corner in counted)
        k_p = np.geomspace(1e-3 * highest, highest, TRIED + 1)[:-1]
        k_i = np.min([corner.robust_k_i(k_p) for corner in counted], axis=0)
        return RobustSet(corners, in_range, k_p, k_i)

    def _better(
        self, choice: _Choice | None, target: float, interval_s: float, goal: Goal
    ) -> _Choice | None:
        """Return the choice so far, or a better one with this set-point and interval."""
        gains = self.robust(target, interval_s)
        if gains is None or not (gains.k_i > 0).any():
            return choice
        k_p = np.repeat(gains.k_p, len(SHARES))
        k_i = np.outer(gains.k_i, SHARES).ravel()
        usable = (k_i > 0) & (k_p > 0.5 * k_i * interval_s)
        k_p, k_i = k_p[usable], k_i[usable]
        if not len(k_p):
            return choice
        cost = self.cost(gains, k_p, k_i, goal)
        for i in np.argsort(cost)[:3]:
            pair = PiGains(float(k_p[i]), float(k_i[i]), interval_s)
            if choice is not None and cost[i] >= choice.cost:
                break
            if math.isfinite(cost[i]) and self.form.params(pair.a, pair.b) is not None:
                return _Choice(float(cost[i]), target, pair)
        return choice

    def cost(self, gains: RobustSet, k_p: Floats, k_i: Floats, goal: Goal) -> Floats:
        """Return the goal's number at the worst point with each pair of gains, like `loss`.

        It is infinite if the queue would be empty too often.

        Parameters
        ----------
        gains : RobustSet
            The robust gains.
        k_p, k_i : array of shape (n,)
            Pairs of gains.
        goal : Goal
            The goal.
        """
        worst = np.zeros(len(k_p))
        for corner, counts in zip(gains.corners, gains.counts, strict=True):
            noise, load = corner.deviations(k_p, k_i)
            per_s = corner.point.capacity_pkts_per_s
            both = np.hypot(noise, load)
            p95_s = (corner.queue_pkts + 1.645 * both) / per_s
            number = p95_s if goal.least == "delay_p95_s" else both / per_s
            idle = 0.5 * special.erfc(corner.queue_pkts / np.maximum(noise, 1e-12) / math.sqrt(2))
            number = np.where(counts & (idle > goal.give_up), math.inf, number + TIE * p95_s)
            worst = np.maximum(worst, number)
        return worst

    def own(self, point: Point) -> list[tuple[OperatingPoint, PiGains, Params]]:
        """Return the fastest robust PI of each corner alone, where margins count.

        Its parameters are empty where the law cannot have them.
        """
        gains = self.robust(point["target"], point["interval"])
        rows = []
        for corner in gains.counted if gains else []:
            alone = pi_stabilising_set.choose([corner], point["interval"])
            try:
                params = self.params({**point, "k_p": alone.k_p, "k_i": alone.k_i})
            except ScenarioError:
                params = ()
            assert isinstance(corner.place, OperatingPoint)
            rows.append((corner.place, alone, params))
        return rows

    def _inside(self, target: float, gains: PiGains) -> dict[str, float] | None:
        """Return these gains, moved inside the set until the exact peaks keep their bound."""
        k_p, k_i = gains.k_p, gains.k_i
        for _ in range(STEPS):
            point = {"target": target, "k_p": k_p, "k_i": INSIDE * k_i}
            point["interval"] = gains.interval_s
            try:
                local = self.local(point, self.ranges, self.ranges.conditions)
            except ScenarioError:
                return None
            if keeps_margins(local):
                return point
            k_p, k_i = 0.97 * k_p, 0.95 * k_i
        return None

    def _corner(self, at: OperatingPoint, target: float, interval_s: float) -> RobustCorner | None:
        """Return a point behind the law's path, in equilibrium with the flows that count."""
        flows = self.ranges.native.active_flows(at.plain, self._target_pkts(target, at))
        any_gains = self.form.params(*pi_stabilising_set.ANY)
        assert any_gains is not None
        params = [
            (self.form.keys[0], self._target_text(target)),
            *any_gains,
            (self.form.keys[1], quantities.time(interval_s)),
        ]
        plant = plant_on(self.ranges.link(at, flows), self.law, params)
        equilibrium = plant.equilibrium(flows, at.rtt_s)
        if equilibrium is None or equilibrium.model["queue_pkts"] > self.ranges.buffer_pkts:
            return None
        path = pi_forms.law_path(equilibrium.model, *pi_stabilising_set.ANY)
        if path is None:
            return None
        return _robust_corner(at, flows, plant.loop(equilibrium), interval_s, path)

    def _target_text(self, target: float) -> str:
        """Return a set-point in the notation of the law."""
        if not self.timed:
            return f"{target:.4g}p"
        fastest = self.ranges.rates_bps[1] / (8 * self.ranges.packet_bytes)
        return f"{1e3 * target / fastest:.4g}ms"

    def _target_pkts(self, target: float, at: OperatingPoint) -> float:
        return target * at.rate_bps / self.ranges.rates_bps[1] if self.timed else target

    def _least_target(self) -> float:
        """Return one packet on the slowest link, in packets on the fastest link.

        A set-point below the time of a packet signals whenever a packet waits (RFC 8290 section
        5.2.1), and real packets come in bursts.
        """
        low, high = self.ranges.rates_bps
        return high / low if self.timed else 1.0

    def _targets(self) -> tuple[float, float]:
        """Return the smallest and the largest set-point of the search."""
        low = max(5.0, 1.5 * self._least_target()) if self.timed else 5.0
        return low, max(1.2 * low, 0.5 * self.ranges.buffer_pkts)

    def _intervals(self, target: float) -> list[float]:
        """Return the default interval, and others that suit the shortest RTT with its queue."""
        shortest_s = min(
            min(group.rtt_s for group in self.ranges.groups(point))
            + self._target_pkts(target, point) / self.ranges.capacity_pkts_per_s(point)
            for point in self.ranges.conditions
        )
        intervals_s = (self.form.interval_s, TAKEN * shortest_s, 0.5 * TAKEN * shortest_s)
        longest = max(LONGEST * shortest_s, SHORTEST_S)
        rounded = [float(f"{interval_s:.2g}") for interval_s in intervals_s]
        fits = [min(max(short, SHORTEST_S), longest) for short in rounded if short <= longest]
        return list(dict.fromkeys(fits or [SHORTEST_S]))


def _robust_corner(
    at: OperatingPoint, flows: float, loop: Loop, interval_s: float, path: Floats
) -> RobustCorner:
    """Evaluate an operating point at the frequencies of its disturbances.

    These are the frequencies of `loop.queue_deviations`.
    """
    high, rtt_s = math.pi / interval_s, loop.point.rtt_s
    omega = DISTURBANCE_TURNS / rtt_s
    omega = np.append(omega[omega < high], high)
    corner = pi_stabilising_set.corner(
        at, loop.point, interval_s, path, omega=omega, plant=loop.to_queue
    )
    width = np.gradient(omega)
    width[[0, -1]] *= 0.5
    # Frequencies above the last one of that function do not count.
    width[omega > 1.01 * DISTURBANCE_TURNS[-1] / rtt_s] = 0.0
    noise, load = (width / math.pi * part for part in densities(loop, omega))
    response, integral, queue_pkts = corner.response, corner.integral, loop.model["queue_pkts"]
    return RobustCorner(at, loop.point, omega, response, integral, flows, queue_pkts, noise, load)


def region_of(law: str, ranges: LinkRange) -> Region | None:
    """Return the robust gains of a law; None for a law that is not a PI.

    Parameters
    ----------
    law : str
        Name of the law.
    ranges : LinkRange
        The range of links.
    """
    space = candidates.space(law, ranges)
    form = pi_forms.pi_law(law)
    if space is None or form is None:
        return None
    return Region(law, (), space.native, ranges, form, fixed=space.fixed)


def space_of(candidate: Candidate, ranges: LinkRange) -> Space | None:
    """Return the region or the search space of a candidate.

    Parameters
    ----------
    candidate : Candidate
        The candidate.
    ranges : LinkRange
        The range of links.
    """
    if "k_i" in candidate.point:
        return region_of(candidate.law, ranges)
    return candidates.space(candidate.law, ranges)


# --- search by evolution ------------------------------------------------------------------------


def search(space: Space, goal: Goal, ranges: LinkRange, seed: int) -> Candidate:
    """Search a law's best candidate for a goal by the linear model.

    The search minimises the goal's number at the worst point, as the model predicts it. At each
    point the sensitivity peak must be at most `SENSITIVITY`. The queue, taken as Gaussian, may be
    empty for at most the fraction of time that the goal gives up; packets move this set-point
    later. If no candidate keeps the margins, the closest one is returned.

    Parameters
    ----------
    space : Space
        The search space.
    goal : Goal
        The goal.
    ranges : LinkRange
        The range of links.
    seed : int
        Seed of the search.
    """

    def point(x: Floats) -> dict[str, float]:
        return {axis.name: math.exp(value) for axis, value in zip(space.axes, x, strict=True)}

    def cost(x: Floats) -> float:
        try:
            return loss(space.local(point(x), ranges, ranges.conditions), goal)
        except ScenarioError:
            return 1e9

    # scipy's own differential evolution: few axes, no gradient across the constraints' edges.
    optimum = optimize.differential_evolution(
        cost,
        optimize.Bounds(*np.log([(axis.low, axis.high) for axis in space.axes]).T),
        maxiter=GENERATIONS,
        popsize=POINTS,
        tol=1e-4,
        init="sobol",
        polish=False,
        rng=np.random.default_rng([seed, *space.law.encode(), *goal.name.encode()]),
    )
    best = point(optimum.x)
    return space.candidate(goal, best, _local(space, best, ranges))


def _local(space: Space, point: Point, ranges: LinkRange) -> LocalModels:
    """Return the models of a point; empty if the law cannot have its parameters."""
    try:
        return space.local(point, ranges, ranges.conditions)
    except ScenarioError:  # `runnable` says why
        return ()


def loss(local: LocalModels, goal: Goal) -> float:
    """Return the goal's number at the worst point in seconds; `BROKEN` or more beyond a bound.

    The cost of a broken bound grows with the distance to it, which guides the search.

    Parameters
    ----------
    local : sequence of LocalModel or None
        The models at all points.
    goal : Goal
        The goal.
    """
    models = [model for model in local if model is not None]
    within = counted(local)
    # Reduction of the gain that makes the loop stable, in dB; peak above its bound.
    unstable_db = sum(max(1.0, -model.gain_db) for model in within if not model.stable)
    peak = max((model.sensitivity for model in within), default=SENSITIVITY)
    idle = max((model.idle for model in within), default=0.0)
    broken = (
        100.0 * (len(local) - len(models))
        + unstable_db
        + 10 * max(0.0, math.log(peak / SENSITIVITY))
        + 10 * max(0.0, idle - goal.give_up)
    )
    if broken > 0:
        return BROKEN + broken
    # Of equal deviations, the one with the shorter queue is better.
    return max(float(getattr(model, goal.least)) + TIE * model.delay_p95_s for model in models)


# --- all searches -------------------------------------------------------------------------------


def best_candidate(task: Task, ranges: LinkRange, seed: int) -> Candidate:
    """Return the best candidate of a law for a goal: from the region of a PI, or else by search.

    Parameters
    ----------
    task : (law, goal)
        Names of the law and of the goal.
    ranges : LinkRange
        The range of links.
    seed : int
        Seed of the search.
    """
    law, goal = task[0], GOALS[task[1]]
    region = region_of(law, ranges)
    candidate = region.best(goal) if region is not None else None
    if candidate is not None:
        return candidate
    space = candidates.space(law, ranges)
    assert space is not None
    return search(space, goal, ranges, seed)


def unmodelled_candidate(task: Task, ranges: LinkRange, seed: int) -> Candidate:
    """Return the best candidate without its linear models, which are not sent between processes.

    Parameters
    ----------
    task : (law, goal)
        Names of the law and of the goal.
    ranges : LinkRange
        The range of links.
    seed : int
        Seed of the search.
    """
    return replace(best_candidate(task, ranges, seed), local=())


def search_all(
    tasks: Sequence[Task],
    ranges: LinkRange,
    seed: int,
    processes: int | None = None,
    store: Store | None = None,
) -> Generator[tuple[int, Candidate]]:
    """Yield the index and the best candidate of each task, as searches end.

    Parameters
    ----------
    tasks : sequence of (law, goal)
        Names of laws and goals.
    ranges : LinkRange
        The range of links.
    seed : int
        Seed of the searches.
    processes : int, optional
        Number of searches at a time; one for each core by default. A single one runs in this
        process.
    store : Store, optional
        Store of earlier candidates, which come first; new ones are added.

    Raises
    ------
    ScenarioError
        If a search refuses its law.
    """
    if store is None:
        yield from _search(dict(enumerate(tasks)), ranges, seed, processes)
        return
    designs = Designs(store)
    digests = [digest_of({"task": task, "ranges": repr(ranges), "seed": seed}) for task in tasks]
    missing = {}
    try:
        for number, digest in enumerate(digests):
            numbers = designs.get(digest)
            if numbers is None:
                missing[number] = tasks[number]
                continue
            params = tuple((name, text) for name, text in numbers.pop("params"))
            yield number, _with_models(Candidate(**numbers, params=params), ranges)
        for number, candidate in _search(missing, ranges, seed, processes):
            numbers = vars(candidate) | {"local": (), "point": dict(candidate.point)}
            designs.put(digests[number], numbers)
            designs.tick()
            yield number, candidate
    finally:
        designs.flush()


def _search(
    tasks: dict[int, Task], ranges: LinkRange, seed: int, processes: int | None
) -> Generator[tuple[int, Candidate]]:
    count = min(processes or execution.cores(), len(tasks))
    if count < 2 or not sys.executable:
        for number, task in tasks.items():
            yield number, best_candidate(task, ranges, seed)
        return
    # The copy has no cached values, which need not be sent.
    plain = replaced(ranges)
    # The processes end first, also during a search, so that nothing waits for them.
    with ThreadPoolExecutor(count) as pool, _workers(count) as workers:
        idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in workers:
            idle.put(worker)

        def ask(task: Task) -> Candidate:
            worker = idle.get()
            try:
                candidate: Candidate = worker.ask(task, plain, seed)
                return candidate
            except WorkerError as error:
                raise RuntimeError("a process that searched for gains has ended") from error
            finally:
                idle.put(worker)

        searches = {pool.submit(ask, task): number for number, task in tasks.items()}
        signals.end_waits()
        for done in as_completed(searches):
            yield searches[done], _with_models(done.result(), ranges)
            # The consumer of the candidate may have loaded polars.
            signals.end_waits()


@contextmanager
def _workers(number: int) -> Iterator[list[Worker]]:
    """Start processes that search, each with one thread of BLAS, and end them afterwards."""
    workers: list[Worker] = []
    try:
        for _ in range(number):
            # An interruption while a process starts would leave the process running.
            with signals.held(checkpoints=True):
                function = f"{__name__}:{unmodelled_candidate.__name__}"
                workers.append(Worker(function, dict.fromkeys(_BLAS, "1")))
                signals.checkpoint()
        yield workers
    finally:
        for worker in workers:
            worker.end()


def _with_models(candidate: Candidate, ranges: LinkRange) -> Candidate:
    """Return a candidate with its linear models, which are neither stored nor sent."""
    space = space_of(candidate, ranges)
    assert space is not None
    return replace(candidate, local=tuple(_local(space, candidate.point, ranges)))
