"""Candidates for a range of links, and the goal that chooses among them.

The file of each law declares its search space: axes, searched in the logarithm, and the parameters
at a point on them. The search moves only the numbers that the papers' design rules set; the others
keep their defaults. A law without a linear model has a short list of settings instead; only packets
can judge them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from forebay import _native
from forebay._base import registries
from forebay._base.registries import baseline
from forebay._native import ScenarioError, SearchSpace
from forebay.control import fitted_gains
from forebay.control.fitted_gains import OperatingRange
from forebay.control.loaded_link import PLAIN
from forebay.scenario.builder import Law
from forebay.tuning import local_models, router_laws
from forebay.tuning.ranges import Condition, Ranges

Params = tuple[tuple[str, str], ...]

#: Axes that are a set-point: a queue, or a delay.
SET_POINTS = ("target", "delay")
Point = Mapping[str, float]
#: Shares of a law's usual set-point that a router may have, too.
TARGET_SHARES = (1 / 3, 2 / 3, 2.0)


@dataclass(frozen=True)
class Goal:
    """A goal of the user.

    give_up: largest share of the goodput to give up, anywhere in the range.
    least: the number to minimise under the worst condition, "delay_p95_s" or "deviation_s".
    """

    name: str
    give_up: float
    least: str


GOALS = {
    goal.name: goal
    for goal in [
        Goal("delay", 0.2, "delay_p95_s"),
        Goal("balance", 0.1, "deviation_s"),
        Goal("throughput", 0.05, "deviation_s"),
    ]
}


@dataclass(frozen=True)
class Candidate:
    """A law with its parameters.

    origin: "tuned" by the model, "listed" where only packets can judge, "default" for the papers'
        parameters or a design rule's, "retargeted" for the papers' gains with a tuned set-point.
    point: on the axes of its space, where it was searched.
    local: the linear model under each condition; empty for a law without one.
    keeps: whether it keeps the margins everywhere.
    share: its set-point as a share of the one that the search gave, and searched_as: the label of
    what that gave. fastest: whether with the largest integral of the calm set.
    """

    law: str
    label: str
    params: Params
    origin: str
    point: Mapping[str, float] = field(default_factory=dict)
    local: tuple[local_models.LocalModel | None, ...] = ()
    keeps: bool = False
    share: float = 1.0
    searched_as: str = ""
    fastest: bool = False

    @property
    def first_label(self) -> str:
        """Its label before its set-point was moved."""
        return self.searched_as or self.label

    @property
    def settings(self) -> str:
        """Its parameters in a line; empty for the defaults."""
        return ", ".join(f"{name} = {value}" for name, value in self.params)

    @property
    def table(self) -> Law:
        """Its [[law]] of a scenario."""
        return Law(self.law, self.params, self.label)


@dataclass(frozen=True)
class SearchAxis:
    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Space:
    """The search space of a law: axes, and the parameters at a point on them; no axes where a
    region takes its place."""

    law: str
    axes: tuple[SearchAxis, ...]
    native: SearchSpace
    #: Parameters that do not move: what a router has otherwise than the law's defaults.
    fixed: Params = field(default=(), kw_only=True)

    def params(self, point: Point) -> Params:
        return _texts(self.native.params(self._values(point))) + self.fixed

    def queue_pkts(self, point: Point, condition: Condition) -> float:  # noqa: ARG002
        """About where the queue settles."""
        return self.native.queue_pkts(self._values(point))

    def adapted(self, point: Point, condition: Condition, flows: float) -> Params:
        """The parameters that the law sets by itself, with this number of flows."""
        return _texts(self.native.adapted(self._values(point), condition.plain, flows))

    def local(
        self, point: Point, ranges: Ranges, conditions: Sequence[Condition]
    ) -> list[local_models.LocalModel | None]:
        """The linear model of a point under each condition."""
        fixed = self.params(point)

        def params_at(condition: Condition, flows: float) -> Params:
            return fixed + self.adapted(point, condition, flows) if self.axes else fixed

        def about(condition: Condition) -> float:
            return self.queue_pkts(point, condition)

        return local_models.local_models_at(self.law, params_at, about, ranges, conditions)

    def moved(self, point: Point, share: float) -> dict[str, float] | None:
        """The point with `share` of its set-point; None for a space without an axis of it."""
        for axis in self.axes:
            if axis.name in SET_POINTS:
                return {**point, axis.name: share * point[axis.name]}
        return None

    def _values(self, point: Point) -> list[float]:
        return [point[axis.name] for axis in self.axes]


def distinct_label(label: str, taken: Collection[str]) -> str:
    """The label, or with a number where another candidate has it: shares of set-points round
    alike, and a label is what a candidate is found by."""
    numbered = (f"{label} #{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([label], numbered) if one not in taken)


def known(laws: Sequence[str], ranges: Ranges | None = None) -> list[str]:
    """Return the laws asked for, or all that the ranges allow.

    Raises
    ------
    ScenarioError
        If a law does not exist, or is none of the router that it is for.
    """
    names = list(registries.laws())
    for law in laws:
        if law not in names:
            raise ScenarioError(f'--law: found "{law}", allowed: {", ".join(names)}')
    if ranges is not None and ranges.router:
        names = [law for law in names if router_laws.is_known(law, ranges)]
        for law in laws:
            if law not in names:
                raise ScenarioError(
                    f'--law: "{law}" is none of {router_laws.CHOICES[ranges.router]}; '
                    f"choose among {', '.join(names)}"
                )
    return list(dict.fromkeys(laws)) or names


def is_coupled(law: str) -> bool:
    """Whether a law tells classic flows and those of L4S apart."""
    return law in registries.laws() and registries.law(law)["coupled"]


def space(law: str, ranges: Ranges) -> Space | None:
    """The search space of a law; None for a law without a linear model, and for one that
    tells these flows from others: its model here is that of classic ones."""
    if is_coupled(law) and ranges.l4s:
        return None
    native = ranges.alike.space(law)
    if native is None:
        return None
    axes = tuple(SearchAxis(*axis) for axis in native.axes)
    return Space(law, axes, native, fixed=fixed(law, ranges))


def fixed(law: str, ranges: Ranges) -> Params:
    """Return what a router has otherwise than the law's defaults."""
    return (router_laws.stock_params(law, ranges) or ()) if ranges.router else ()


def default(law: str) -> Candidate:
    """A law with the papers' parameters."""
    label = law if law == baseline()["name"] else f"{law} (papers)"
    return Candidate(law, label, (), "default")


def stock(law: str, ranges: Ranges) -> Candidate:
    """Return a law as a router has it unasked, with its linear model if it has one."""
    label = law if law == baseline()["name"] else f"{law} (default)"
    return with_model(Candidate(law, label, fixed(law, ranges), "default"), ranges)


def other_targets(law: str, ranges: Ranges) -> list[Candidate]:
    """Return a law that has a linear model with its usual gains and other set-points.

    Gains that the model asks for may lie between the steps of a qdisc, or below the least.
    """
    key = registries.law(law)["set_point"]
    if key is None or space(law, ranges) is None:
        return []
    entry = registries.parameter(law, key)
    assert entry is not None
    candidates = []
    for share in TARGET_SHARES:
        text = _scaled(entry["default_text"], share)
        params = ((key, text), *fixed(law, ranges))
        candidates.append(with_model(Candidate(law, f"{law} at {text}", params, "listed"), ranges))
    return candidates


def _scaled(quantity: str, share: float) -> str:
    """Return a quantity with its unit, times a factor."""
    number = re.match(r"[\d.]+", quantity)
    assert number is not None
    return f"{share * float(number[0]):.3g}{quantity[number.end() :]}"


def with_model(candidate: Candidate, ranges: Ranges) -> Candidate:
    """Return a candidate that no search has found with its linear model; as it is without one."""
    law = candidate.law
    if space(law, ranges) is None:
        return candidate
    target = dict(candidate.params).get(registries.law(law)["set_point"] or "")

    def queue_pkts(condition: Condition) -> float:
        if target is None:
            return 0.0
        if target.endswith("p"):
            return _native.quantity("target", target, "queue")
        seconds = _native.quantity("target", target, "time")
        return seconds * ranges.capacity_pkts_per_s(condition)

    try:
        local = local_models.local_models_at(
            law, lambda _condition, _flows: candidate.params, queue_pkts, ranges, ranges.conditions
        )
    except ScenarioError:  # no such parameters here; `runnable` says why
        return candidate
    return replace(candidate, local=tuple(local), keeps=local_models.keeps(local))


def as_installed(candidate: Candidate, ranges: Ranges) -> Candidate:
    """Return a candidate as the router has it, with the margins that are left.

    Raises
    ------
    ScenarioError
        If the router cannot have it.
    """
    if not ranges.router:
        return candidate
    params = router_laws.as_installed(candidate.law, candidate.params, ranges)
    if params == candidate.params or not candidate.local:
        return replace(candidate, params=params)
    return with_model(replace(candidate, params=params), ranges)


def designed(law: str, ranges: Ranges) -> Candidate:
    """A law as `gains = "auto"` has it, designed once for all of the ranges."""
    if law == baseline()["name"]:
        return default(law)
    place = OperatingRange(
        ranges.rates_bps[1],
        round(ranges.packet_bytes),
        ranges.rtts_s,
        ranges.buffer_pkts,
        ranges.flows,
        one_loop=not registries.law(law)["per_flow"],
        # As scenarios have it: Reno's for senders that differ.
        tcp=PLAIN if "," in ranges.tcp else ranges.tcp,
    )
    return Candidate(law, f"{law} (auto)", fitted_gains.fit(law, place).params, "default")


def set_point(candidate: Candidate) -> Params:
    """The parameter that has its set-point; none of a law of thresholds."""
    key = registries.law(candidate.law)["set_point"]
    return tuple((name, value) for name, value in candidate.params if name == key)


def retargeted(chosen: Candidate) -> Candidate | None:
    """The papers' gains with the set-point of a tuned law; None for a law without one."""
    params = set_point(chosen)
    if not params or params == chosen.params:
        return None
    return Candidate(chosen.law, f"{chosen.law} (papers' gains)", params, "retargeted")


def searched(
    space: Space, goal: Goal, point: Point, local: Sequence[local_models.LocalModel | None]
) -> Candidate:
    """What the search of a law for a goal has found."""
    label = f"{space.law} for {goal.name}"
    params = space.params(point)
    keeps = local_models.keeps(local)
    return Candidate(
        space.law, label, params, "tuned", point, tuple(local), keeps, searched_as=label
    )


def listed(law: str, ranges: Ranges) -> list[Candidate]:
    """Settings of a law that only packets can judge; none for a law with a model."""
    # Those of RTTs that are the same come twice.
    settings = dict.fromkeys(
        _texts(params) + fixed(law, ranges) for params in ranges.native.listed(law)
    )
    return [Candidate(law, f"{law} {i}", params, "listed") for i, params in enumerate(settings, 1)]


def _texts(params: Sequence[tuple[str, float | str]]) -> Params:
    """Values as a scenario and `--set` have them."""
    # The space has rounded its numbers: where a small difference matters, to more digits.
    return tuple((name, it if isinstance(it, str) else f"{it:.15g}") for name, it in params)
