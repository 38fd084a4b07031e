"""The check: packets at the corners and in the middle, every candidate under the same seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import forebay._native as _native
from forebay._base.progress import Progress
from forebay._native import ScenarioError
from forebay.control.senders import SENDERS
from forebay.experiment import execution, experiment
from forebay.experiment.experiment import Experiment
from forebay.scenario.builder import Dumbbell, Value
from forebay.tuning.candidates import Candidate, Goal
from forebay.tuning.ranges import Condition, Ranges

if TYPE_CHECKING:
    from forebay._native import Plan
    from forebay.experiment.store import Store
    from forebay.tuning.local_models import LocalModel

#: Seeds of the runs that choose. The runs that test the choice have other seeds: with the same
#: ones, luck in the choice would count as merit.
SCREENING_SEEDS = 2
#: Simulated time of a run, and start of the measurement: a law settles before it.
DURATION_S, MEASURE_S = 60.0, 20.0
#: A step of the rate or of the load comes at this time, once the law has settled, and the law must
#: have settled again in so long: measuring begins then.
STEP_S, SETTLED_S = 20.0, 10.0
#: Longest run on a recorded link.
LONGEST_S = 140.0

Floats = NDArray[np.float64]


@dataclass
class Checked:
    """A candidate's runs: arrays with a row per condition and a column per seed, nan where missing.

    deviation_s, delay_s: standard deviation and mean of the queuing delay over time.
    delay_p95_s: 95 % of the packets wait less.
    goodput: as a share of the link's rate; packets in order only.
    """

    candidate: Candidate
    deviation_s: Floats
    delay_s: Floats
    delay_p95_s: Floats
    goodput: Floats
    utilisation: Floats

    @property
    def worst(self) -> int:
        """The place with the largest deviation, over all seeds."""
        return int(np.argmax(np.nanmean(self.deviation_s, axis=1)))

    @property
    def worst_s(self) -> Floats:
        """The largest deviation under any condition, seed by seed."""
        return np.asarray(self.deviation_s.max(axis=0), float)

    @property
    def complete(self) -> bool:
        """Whether some seed ran under every condition."""
        return bool(np.isfinite(self.deviation_s).any(axis=1).all())

    def worst_of(self, values: Floats) -> float:
        """The largest mean over the seeds, of any condition."""
        return float(np.nanmean(values, axis=1).max())

    def number_of(self, goal: Goal) -> float:
        """What the goal minimises, under the worst condition."""
        return self.worst_of(getattr(self, goal.least))

    def relative(self, best: Floats) -> Floats:
        """Goodput under each condition as a share of `best`, over all seeds."""
        return np.asarray(np.nanmean(self.goodput, axis=1) / best, float)

    def locals(self, places: Sequence[Condition]) -> list[LocalModel | None]:
        """The model at each place; None on a recorded link, which has no one model."""
        there = {one.condition: one for one in self.candidate.local if one is not None}
        return [there.get(place) for place in places]

    def with_seeds(self, seeds: slice) -> Checked:
        """The same with fewer seeds."""
        arrays = {one.name: getattr(self, one.name) for one in fields(self)[1:]}
        return replace(self, **{name: array[:, seeds] for name, array in arrays.items()})


def best_of_laws(checked: Sequence[Checked], number: Callable[[Checked], float]) -> list[Checked]:
    """Of each law the candidate with the least number, the least first."""
    best: dict[str, Checked] = {}
    for one in sorted(checked, key=number):
        best.setdefault(one.candidate.law, one)
    return list(best.values())


@dataclass
class Check:
    """Runs of several candidates; after an interruption, missing values are nan."""

    checked: list[Checked]
    interrupted: bool
    faults: list[str] = field(default_factory=list)


def scenario(
    candidates: Sequence[Candidate], ranges: Ranges, title: str, condition: Condition | None = None
) -> str:
    """The scenario of a check as TOML, under one condition or at every corner."""
    first = condition or ranges.swept[0]
    sweep = _sweep(ranges) if condition is None else {}
    fastest_bps = max(place.rate_bps for place in ranges.conditions)
    if ranges.trace is not None:
        fastest_bps = max(fastest_bps, ranges.trace.peak_bps)
    step = None if condition is None else condition.before
    first = step or first
    groups = () if ranges.plain else ranges.groups(first)
    return Dumbbell(
        title=title,
        duration_s=duration_s(ranges),
        measure_from_s=MEASURE_S if step is None else STEP_S + SETTLED_S,
        changes=[] if step is None or condition is None else [(STEP_S, _change(ranges, condition))],
        rate=first.rate,
        fastest_bps=fastest_bps,
        delay_s=ranges.rtts_s[0] / 4,
        buffer_pkts=ranges.buffer_pkts,
        flows=first.flows,
        packet=ranges.packet,
        rtt=first.rtt,
        laws=[candidate.table for candidate in candidates],
        sweep=sweep,
        groups=[(one, SENDERS[one.tcp].kind, SENDERS[one.tcp].ecn) for one in groups],
        rate_trace=None if ranges.trace is None else ranges.trace.path,
    ).text()


def _change(ranges: Ranges, after: Condition) -> dict[str, Value]:
    """What a step sets."""
    flows = {
        f"traffic.{i}.flows": max(1, round(one.flows)) for i, one in enumerate(ranges.groups(after))
    }
    return {"bottleneck.rate": after.rate, **flows}


def _sweep(ranges: Ranges) -> dict[str, list[Any]]:
    """Rates, RTTs and numbers of flows, of all classes together."""
    places = ranges.swept
    columns: dict[str, list[tuple[Value, ...]]] = {
        "bottleneck.rate": [(place.rate,) for place in places]
    }
    numbers = range(len(ranges.spans))
    groups = [ranges.groups(place) for place in places]
    columns[", ".join(f"traffic.{i}.rtt" for i in numbers)] = [
        tuple(one.rtt for one in each) for each in groups
    ]
    columns[", ".join(f"traffic.{i}.flows" for i in numbers)] = [
        tuple(round(one.flows) for one in each) for each in groups
    ]
    return {
        key: [list(row) if len(row) > 1 else row[0] for row in dict.fromkeys(rows)]
        for key, rows in columns.items()
    }


def duration_s(ranges: Ranges) -> float:
    """Simulated time of a run: a recorded link is measured for all of its round, up to a limit."""
    if ranges.trace is None:
        return DURATION_S
    return float(min(max(DURATION_S, MEASURE_S + ranges.trace.round_s), LONGEST_S))


def runnable(candidate: Candidate, ranges: Ranges) -> str:
    """Why a law refuses its parameters here, such as a set-point beyond the buffer; "" if not."""
    try:
        text = scenario([candidate], ranges, "", ranges.centre or ranges.swept[0])
        plan(text, candidate.label, ranges)
    except ScenarioError as error:
        return str(error).split(": ", 1)[1]
    return ""


def plan(text: str, name: str, ranges: Ranges, seeds: int | None = None) -> Plan:
    """Return the plan of a check's scenario."""
    # The name of a trace is absolute.
    read, overrides = experiment.FilesBeside("check.toml"), list(ranges.overrides)
    return _native.plan(text.encode(), name, overrides=overrides, seeds=seeds, read=read)


def check(
    candidates: Sequence[Candidate],
    ranges: Ranges,
    seeds: int,
    threads: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    store: Store | None = None,
) -> Check:
    """Runs every candidate under every condition with seeds 1 to `seeds`; what `store` has is
    taken from there.

    Ctrl-C ends the check; it keeps the finished runs.
    """
    values = np.full((len(candidates), 5, len(ranges.places), seeds), np.nan)
    interrupted, faults = False, list[str]()
    # The corners in one experiment, and each other place in one of its own.
    conditions = [None, *ranges.places[len(ranges.swept) :]]
    parts = []
    for condition in conditions:
        text = scenario(candidates, ranges, "", condition)
        parts.append(Experiment(plan(text, "check.toml", ranges, seeds), "check.toml", text, ""))
    for number, made in execution.execute_all(parts, threads, watch, samples=False, store=store):
        offset = 0 if number == 0 else len(ranges.swept) + number - 1
        for run in made.runs:
            where = offset + run.point
            rate_bps = ranges.places[where].rate_bps
            packet_s, metrics = 8 * ranges.packet_bytes / rate_bps, run.metrics
            values[run.law, :, where, run.seed - 1] = [
                metrics["queue_std_pkts"] * packet_s,
                metrics["queue_mean_pkts"] * packet_s,
                metrics["delay_p95_s"],
                metrics["goodput_bps"] / rate_bps,
                metrics["utilisation"],
            ]
        faults += [execution.fault_in_words(parts[number].plan, fault) for fault in made.faults]
        interrupted = interrupted or made.interrupted
    checked = [Checked(c, *values[i]) for i, c in enumerate(candidates)]
    return Check(checked, interrupted, faults)
