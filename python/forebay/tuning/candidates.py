"""The candidates of a tuning, the goal that chooses among them, and their linear models.

The file of each law declares its search space: axes, which are searched in the logarithm, and the
parameters at a point of them. A search varies only the numbers that the papers' design rules set;
the others keep their defaults. A law without a linear model has a short list of settings, which
only packets can judge.

A router has fewer laws and parameters: a qdisc rounds some of them to steps, and bounds others.
Candidates for a router are rounded to its steps before they are judged. Candidates that it cannot
have are left out, with the reason.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from forebay import _native
from forebay._base import quantities, registries
from forebay._base.errors import ParameterError
from forebay._base.registries import baseline
from forebay._base.words import check_choice, one_of
from forebay._native import ScenarioError, SearchSpace
from forebay.control.link import PLAIN
from forebay.control.loop import Loop, count_loops, queue_deviations
from forebay.control.plants import plant_on
from forebay.experiment import automatic_gains
from forebay.linux import programs
from forebay.scenario import router
from forebay.scenario.builder import Law
from forebay.tuning.ranges import LinkRange, OperatingPoint

if TYPE_CHECKING:
    from forebay._native import TcWords

Params = tuple[tuple[str, str], ...]
#: A point of a search space, by the names of its axes.
Point = Mapping[str, float]

#: Largest sensitivity peak |1/(1 + L)| at any operating point, which implies margins of at least 6
#: dB and 29° (Åström and Hägglund 2006).
SENSITIVITY = 2.0
#: Fraction of the range's fewest flows from which on margins count, and of a point's flows below
#: which some of them are in timeouts.
NEARLY_ALL = 1 - 1e-6
#: Names of axes that are a set-point.
SET_POINTS = ("target", "delay")
#: Multiples of a law's usual set-point that are candidates for a router.
TARGET_SHARES = (1 / 3, 2 / 3, 2.0)
#: The laws of a router: those of Linux, or also those of `forebay attach`.
RouterLaws = Literal["linux", "attach"]
#: The goals of a user.
GoalName = Literal["delay", "balance", "throughput"]
#: The gains of the laws with which a choice is compared.
ReferenceGains = Literal["paper", "auto"]
#: Figures of a tuning: delay against goodput, point by point, compared with the papers' defaults.
TuningPicture = Literal["trade", "places", "defaults"]
#: The laws that each kind of router has, in words.
CHOICES = {
    "linux": "the qdiscs of Linux",
    "attach": "the qdiscs of Linux and the laws that forebay attach installs",
}


@dataclass(frozen=True)
class Goal:
    """A goal of a tuning."""

    name: str
    #: Largest fraction of the goodput to give up at any operating point.
    give_up: float
    #: The number to minimise at the worst point: "delay_p95_s" or "deviation_s".
    least: str


GOALS = {
    goal.name: goal
    for goal in [
        Goal("delay", 0.2, "delay_p95_s"),
        Goal("balance", 0.1, "deviation_s"),
        Goal("throughput", 0.05, "deviation_s"),
    ]
}


# --- linear models ------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalModel:
    """The linear model of a law at one operating point.

    Attributes
    ----------
    point : OperatingPoint
        The operating point.
    flows : float
        Number of flows that the model counts: at most as many as have ten packets in flight each.
    in_range : bool
        True if that load is within the range, so margins count.
    queue_pkts : float
        Queue at the equilibrium.
    capacity_pkts_per_s : float
        Rate of the link.
    stable : bool
        True if the loop is stable.
    gain_db : float
        Gain margin; negative for an unstable loop.
    sensitivity : float
        Sensitivity peak, the largest |1/(1 + L)|.
    noise_pkts, load_pkts : float
        Standard deviation of the queue caused by TCP's own losses, and by changes of the load.
    loop : Loop
        The loop, for its exact margins.
    """

    point: OperatingPoint
    flows: float
    in_range: bool
    queue_pkts: float
    capacity_pkts_per_s: float
    stable: bool
    gain_db: float
    sensitivity: float
    noise_pkts: float
    load_pkts: float
    loop: Loop

    @property
    def deviation_pkts(self) -> float:
        """Standard deviation of the queue, by both causes."""
        return math.hypot(self.noise_pkts, self.load_pkts)

    @property
    def timeouts(self) -> bool:
        """True if there are more flows than the model counts."""
        return self.flows < NEARLY_ALL * self.point.flows

    @property
    def idle(self) -> float:
        """Share of time with an empty queue at constant load, for a Gaussian queue."""
        if self.noise_pkts == 0:
            return 0.0
        return 0.5 * math.erfc(self.queue_pkts / self.noise_pkts / math.sqrt(2))

    @property
    def delay_p95_s(self) -> float:
        """95th percentile of the queuing delay, for a Gaussian queue."""
        return (self.queue_pkts + 1.645 * self.deviation_pkts) / self.capacity_pkts_per_s

    @property
    def deviation_s(self) -> float:
        """Standard deviation of the queuing delay, by both causes."""
        return self.deviation_pkts / self.capacity_pkts_per_s

    @property
    def noise_delay_s(self) -> float:
        """Standard deviation of the queuing delay at constant load."""
        return self.noise_pkts / self.capacity_pkts_per_s


#: Models at several points; None where the law has no equilibrium within the buffer.
LocalModels = Sequence[LocalModel | None]


def local_models_at(
    law: str,
    params_at: Callable[[OperatingPoint, float], Sequence[tuple[str, str]]],
    queue_pkts: float | Callable[[OperatingPoint], float],
    ranges: LinkRange,
    points: Sequence[OperatingPoint],
) -> list[LocalModel | None]:
    """Return the linear model of a law at each operating point.

    Parameters
    ----------
    law : str
        Name of the law.
    params_at : callable
        Parameters at a point with a number of flows; they differ only in values that the law
        adapts.
    queue_pkts : float or callable
        Approximate equilibrium queue, for all points or for each.
    ranges : LinkRange
        The range of links.
    points : sequence of OperatingPoint
        The points.

    Returns
    -------
    list of LocalModel or None
        None if the law has no equilibrium within the buffer.

    Raises
    ------
    ScenarioError
        If a parameter is wrong.
    """
    loops: list[Loop | None] = []
    counts = []
    for point in points:
        about = queue_pkts(point) if callable(queue_pkts) else queue_pkts
        flows = ranges.native.active_flows(point.plain, about)
        # A law that estimates the load takes the flows for Reno's.
        params = list(params_at(point, ranges.reno_flows(point, flows, about)))
        counts.append(flows)
        loop = plant_on(ranges.link(point, flows), law, params).loop_at(flows, point.rtt_s)
        outside = loop is None or loop.model["queue_pkts"] > ranges.buffer_pkts
        loops.append(None if outside else loop)
    verdicts = iter(count_loops([loop for loop in loops if loop is not None]))

    def model(point: OperatingPoint, flows: float, loop: Loop) -> LocalModel:
        gain_db, stable = next(verdicts)
        in_range = flows > NEARLY_ALL * ranges.flows[0]
        queue, capacity = loop.model["queue_pkts"], loop.point.capacity_pkts_per_s
        deviations = queue_deviations(loop)
        return LocalModel(
            point, flows, in_range, queue, capacity, stable, gain_db, *deviations, loop=loop
        )

    rows = zip(points, counts, loops, strict=True)
    return [None if loop is None else model(point, flows, loop) for point, flows, loop in rows]


def keeps_margins(local: LocalModels) -> bool:
    """Return True if each point has a stable equilibrium with a bounded sensitivity peak."""
    if not local or None in local:
        return False
    return all(model.stable and model.sensitivity <= SENSITIVITY for model in counted(local))


def counted(local: LocalModels) -> list[LocalModel]:
    """Return the models whose margins count: loads within the range, or else all of them."""
    models = [model for model in local if model is not None]
    return [model for model in models if model.in_range] or models


# --- candidates ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A law with its parameters.

    Attributes
    ----------
    origin : str
        "tuned" by the model, "listed" where only packets can judge, "default" for the parameters
        of the papers or of a design rule, "retargeted" for the papers' gains with a tuned
        set-point.
    point : dict
        Its point of the search space; empty where it was not searched.
    local : tuple of LocalModel or None
        Its linear models at the ranges' points; empty for a law without one.
    keeps : bool
        True if it keeps its margins everywhere.
    share : float
        Its set-point as a multiple of the one that the search gave.
    searched_as : str
        Label of what the search gave.
    fastest : bool
        True with the largest integral gain that keeps the margins.
    """

    law: str
    label: str
    params: Params
    origin: str
    point: Point = field(default_factory=dict)
    local: tuple[LocalModel | None, ...] = ()
    keeps: bool = False
    share: float = 1.0
    searched_as: str = ""
    fastest: bool = False

    @property
    def first_label(self) -> str:
        """The label before the set-point was moved."""
        return self.searched_as or self.label

    @property
    def settings(self) -> str:
        """The parameters on one line; empty for the defaults."""
        return ", ".join(f"{name} = {value}" for name, value in self.params)

    @property
    def table(self) -> Law:
        """The `[[law]]` of a scenario."""
        return Law(self.law, self.params, self.label)

    @property
    def set_point(self) -> Params:
        """The parameter that has the set-point; none of a law of thresholds."""
        key = registries.law(self.law)["set_point"]
        return tuple((name, value) for name, value in self.params if name == key)


@dataclass(frozen=True)
class SearchAxis:
    """An axis of a search space, with its ends."""

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Space:
    """The search space of a law; without axes where a `Region` takes its place."""

    law: str
    axes: tuple[SearchAxis, ...]
    native: SearchSpace
    #: Parameters that do not move: what a router has otherwise than the law's defaults.
    fixed: Params = field(default=(), kw_only=True)

    def params(self, point: Point) -> Params:
        """Return the parameters at a point. Raises `ScenarioError` if the law cannot have them."""
        return _texts(self.native.params(self._values(point))) + self.fixed

    def queue_pkts(self, point: Point, at: OperatingPoint) -> float:  # noqa: ARG002
        """Return the approximate equilibrium queue in packets.

        Parameters
        ----------
        point : dict
            Point of the space.
        at : OperatingPoint
            The operating point.
        """
        return self.native.queue_pkts(self._values(point))

    def adapted(self, point: Point, at: OperatingPoint, flows: float) -> Params:
        """Return the parameters that the law adapts by itself.

        Parameters
        ----------
        point : dict
            Point of the space.
        at : OperatingPoint
            The operating point.
        flows : float
            Number of flows.
        """
        return _texts(self.native.adapted(self._values(point), at.plain, flows))

    def local(
        self, point: Point, ranges: LinkRange, points: Sequence[OperatingPoint]
    ) -> list[LocalModel | None]:
        """Return the linear models at operating points.

        Parameters
        ----------
        point : dict
            Point of the space.
        ranges : LinkRange
            The range of links.
        points : sequence of OperatingPoint
            The operating points.
        """
        fixed = self.params(point)

        def params_at(at: OperatingPoint, flows: float) -> Params:
            return fixed + self.adapted(point, at, flows) if self.axes else fixed

        return local_models_at(
            self.law, params_at, lambda at: self.queue_pkts(point, at), ranges, points
        )

    def moved(self, point: Point, share: float) -> dict[str, float] | None:
        """Return the point with `share` of its set-point; None for a space without a set-point.

        Parameters
        ----------
        point : dict
            Point of the space.
        share : float
            Factor on the set-point.
        """
        for axis in self.axes:
            if axis.name in SET_POINTS:
                return {**point, axis.name: share * point[axis.name]}
        return None

    def candidate(self, goal: Goal, point: Point, local: LocalModels) -> Candidate:
        """Return the result of a search: a point with its models.

        Parameters
        ----------
        goal : Goal
            The goal of the search.
        point : dict
            Point of the space.
        local : sequence of LocalModel or None
            Its models.
        """
        label, params = f"{self.law} for {goal.name}", self.params(point)
        return Candidate(
            *(self.law, label, params, "tuned", point, tuple(local)),
            keeps=keeps_margins(local),
            searched_as=label,
        )

    def _values(self, point: Point) -> list[float]:
        return [point[axis.name] for axis in self.axes]


def distinct_label(label: str, labels: Collection[str]) -> str:
    """Return a label that no other candidate has, numbered if necessary.

    Multiples of set-points may be rounded to the same text, and a label identifies a candidate.

    Parameters
    ----------
    label : str
        The label.
    labels : collection of str
        Labels of other candidates.
    """
    numbered = (f"{label} #{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([label], numbered) if name not in labels)


def known(laws: Sequence[str], ranges: LinkRange | None = None) -> list[str]:
    """Return the laws to choose from: the named ones, or all that the ranges allow.

    Parameters
    ----------
    laws : sequence of str
        Names of laws; empty for all.
    ranges : LinkRange, optional
        The range of links, which may be for a router.

    Raises
    ------
    ParameterError
        If a law does not exist, or the router does not have it.
    """
    names = list(registries.laws())
    for law in laws:
        check_choice("laws", law, names)
    if ranges is not None and ranges.router:
        names = [law for law in names if _router_has(law, ranges)]
        for law in laws:
            if law not in names:
                reason = f"it is not among {CHOICES[ranges.router]}"
                raise ParameterError("laws", law, one_of(names), reason=reason)
    return list(dict.fromkeys(laws)) or names


def is_coupled(law: str) -> bool:
    """Return True if a law distinguishes classic flows from L4S flows."""
    return law in registries.laws() and registries.law(law)["coupled"]


def space(law: str, ranges: LinkRange) -> Space | None:
    """Return the search space of a law.

    Parameters
    ----------
    law : str
        Name of the law.
    ranges : LinkRange
        The range of links.

    Returns
    -------
    Space or None
        None for a law without a linear model, and for a law that distinguishes L4S flows, whose
        model here is that of classic flows.
    """
    native = None if is_coupled(law) and ranges.l4s else ranges.alike.space(law)
    if native is None:
        return None
    axes = tuple(SearchAxis(*axis) for axis in native.axes)
    return Space(law, axes, native, fixed=fixed(law, ranges))


def fixed(law: str, ranges: LinkRange) -> Params:
    """Return the parameters in which a router's qdisc differs from the law's defaults.

    Parameters
    ----------
    law : str
        Name of the law.
    ranges : LinkRange
        The range of links.
    """
    return (_switches(law, ranges) or ()) if ranges.router else ()


def default(law: str) -> Candidate:
    """Return a law with the parameters of its paper."""
    return Candidate(law, law if law == baseline()["name"] else f"{law} (papers)", (), "default")


def stock(law: str, ranges: LinkRange) -> Candidate:
    """Return a law with a router's default parameters, and with its linear model if it has one.

    Parameters
    ----------
    law : str
        Name of the law.
    ranges : LinkRange
        The range of links.
    """
    label = law if law == baseline()["name"] else f"{law} (default)"
    return with_model(Candidate(law, label, fixed(law, ranges), "default"), ranges)


def other_targets(law: str, ranges: LinkRange) -> list[Candidate]:
    """Return a law that has a linear model with its usual gains and other set-points.

    Gains that the model asks for may lie between the steps of a qdisc, or below the smallest one.

    Parameters
    ----------
    law : str
        Name of the law.
    ranges : LinkRange
        The range of links.
    """
    key = registries.law(law)["set_point"]
    if key is None or space(law, ranges) is None:
        return []
    entry = registries.parameter(law, key)
    assert entry is not None
    number = re.match(r"[\d.]+", entry["default_text"])
    assert number is not None
    unit = entry["default_text"][number.end() :]
    texts = [f"{share * float(number[0]):.3g}{unit}" for share in TARGET_SHARES]
    return [
        with_model(
            Candidate(law, f"{law} at {text}", ((key, text), *fixed(law, ranges)), "listed"), ranges
        )
        for text in texts
    ]


def with_model(candidate: Candidate, ranges: LinkRange) -> Candidate:
    """Return a candidate that was not searched with its linear models, if its law has one.

    Parameters
    ----------
    candidate : Candidate
        The candidate.
    ranges : LinkRange
        The range of links.
    """
    law = candidate.law
    if space(law, ranges) is None:
        return candidate
    target = dict(candidate.params).get(registries.law(law)["set_point"] or "")

    def queue_pkts(point: OperatingPoint) -> float:
        if target is None:
            return 0.0
        if target.endswith("p"):
            return _native.quantity("target", target, "queue")
        return _native.quantity("target", target, "time") * ranges.capacity_pkts_per_s(point)

    try:
        local = local_models_at(
            law, lambda _point, _flows: candidate.params, queue_pkts, ranges, ranges.conditions
        )
    except ScenarioError:  # no such parameters here; `runnable` says why
        return candidate
    return replace(candidate, local=tuple(local), keeps=keeps_margins(local))


def designed(law: str, ranges: LinkRange) -> Candidate:
    """Return a law with the gains of automatic design, once for the whole range.

    Parameters
    ----------
    law : str
        Name of the law.
    ranges : LinkRange
        The range of links.
    """
    if law == baseline()["name"]:
        return default(law)
    place = {
        "rate_bps": ranges.rates_bps[1],
        "packet_bytes": round(ranges.packet_bytes),
        "rtt_s": ranges.rtts_s,
        "room_pkts": ranges.buffer_pkts,
        "flows": ranges.flows,
        "one_loop": not registries.law(law)["per_flow"],
        # As in scenarios, flows with different senders count as Reno flows.
        "tcp": PLAIN if "," in ranges.tcp else ranges.tcp,
    }
    params = automatic_gains.fitted((law, place, {})).params
    return Candidate(law, f"{law} (auto)", params, "default")


def retargeted(chosen: Candidate) -> Candidate | None:
    """Return the papers' gains with the set-point of a tuned law; None for a law without one."""
    params = chosen.set_point
    if not params or params == chosen.params:
        return None
    return Candidate(chosen.law, f"{chosen.law} (papers' gains)", params, "retargeted")


def listed(law: str, ranges: LinkRange) -> list[Candidate]:
    """Return settings of a law that only packets can judge; none for a law with a model.

    Parameters
    ----------
    law : str
        Name of the law.
    ranges : LinkRange
        The range of links.
    """
    # Settings for RTTs that are the same come twice.
    settings = dict.fromkeys(
        _texts(params) + fixed(law, ranges) for params in ranges.native.listed(law)
    )
    return [Candidate(law, f"{law} {i}", params, "listed") for i, params in enumerate(settings, 1)]


def _texts(params: Sequence[tuple[str, float | str]]) -> Params:
    """Return parameters in the notation of a scenario and of `--set`."""
    # The space has rounded its numbers: where a small difference matters, to more digits.
    return tuple(
        (name, value if isinstance(value, str) else f"{value:.15g}") for name, value in params
    )


# --- routers ------------------------------------------------------------------------------------


def as_installed(candidate: Candidate, ranges: LinkRange) -> Candidate:
    """Return a candidate as the router has it: rounded to its steps, with the resulting margins.

    Parameters
    ----------
    candidate : Candidate
        The candidate.
    ranges : LinkRange
        The range of links.

    Raises
    ------
    ScenarioError
        If the router cannot have it.
    """
    if not ranges.router:
        return candidate
    params = _rounded(candidate.law, candidate.params, ranges)
    if params == candidate.params or not candidate.local:
        return replace(candidate, params=params)
    return with_model(replace(candidate, params=params), ranges)


def attach_line(law: str, params: Params, ranges: LinkRange) -> str | None:
    """Return the command that installs a law with `forebay attach`; None if it cannot.

    Parameters
    ----------
    law : str
        Name of the law.
    params : tuple of (name, value)
        Parameters of the law.
    ranges : LinkRange
        The range of links.
    """
    try:
        in_linux = _tc_words(law, params, ranges) is not None
    except ScenarioError:
        in_linux = False
    if not in_linux and not _attach_has(law, params, ranges):
        return None
    words = ["sudo", "forebay", "attach", router.DEVICE, law]
    words += ["--rate", quantities.rate(ranges.rates_bps[1]), "--buffer", f"{ranges.buffer_pkts}p"]
    for name, value in params:
        words += ["--set", f"{name}={value}"]
    return shlex.join([*words, "--ecn"])


def _switches(law: str, ranges: LinkRange) -> Params | None:
    """Return the switches in which the qdisc of a law differs from the law's defaults.

    Returns
    -------
    tuple of (name, value) or None
        For example ``gentle = false`` for RED; None for a law that is not a qdisc of Linux.
    """
    switches = [
        (entry["name"], str(not entry["default"]).lower())
        for entry in registries.law(law)["params"]
        if isinstance(entry["default"], bool)
    ]
    for count in range(len(switches) + 1):
        for params in itertools.combinations(switches, count):
            try:
                return None if _tc_words(law, params, ranges) is None else params
            except ScenarioError:
                continue
    return None


def _router_has(law: str, ranges: LinkRange) -> bool:
    """Return True if the router of these ranges can have the law at all."""
    if _switches(law, ranges) is not None:
        return True
    return ranges.router == "attach" and programs.has_header(law)


def _attach_has(law: str, params: Params, ranges: LinkRange) -> bool:
    """Return True if `forebay attach` has the law in fixed point, with these parameters."""
    try:
        twin = _native.law_twin(
            law,
            params,
            rate_bps=ranges.rates_bps[1],
            buffer_pkts=ranges.buffer_pkts,
            packet_bytes=round(ranges.packet_bytes),
        )
    except ScenarioError:
        return False
    return twin is not None


def _rounded(law: str, params: Params, ranges: LinkRange) -> Params:
    """Return parameters rounded to the steps of the router's qdisc.

    Raises
    ------
    ScenarioError
        If the qdisc cannot have them, and `forebay attach` cannot install them either.
    """
    installable = ranges.router == "attach" and _attach_has(law, params, ranges)
    try:
        words = _tc_words(law, params, ranges)
    except ScenarioError:
        if not installable:
            raise
        return params
    if words is None:
        if installable:
            return params
        raise ScenarioError(f"{law}: not in this router, which has {CHOICES[ranges.router]}")
    rounded = {key: value for key, _, value in words.rounded if key != "buffer"}
    adjusted = [(name, rounded.pop(name, value)) for name, value in params]
    # Defaults of the law that lie between two steps are rounded, too.
    return (*adjusted, *rounded.items())


def _tc_words(law: str, params: Params, ranges: LinkRange) -> TcWords | None:
    """Return the qdisc of a law on the fastest link; None if Linux has none."""
    flags = {"true": True, "false": False}
    return _native.tc_words(
        law,
        [(name, flags.get(value, value)) for name, value in params],
        queue=None,
        rate_bps=ranges.rates_bps[1],
        buffer_pkts=ranges.buffer_pkts,
        buffer_bytes=None,
        packet_bytes=round(ranges.packet_bytes),
        ecn=True,
        header_bytes=router.HEADER_BYTES,
        held=registries.parameter(law, router.OWN_RATE) is None,
    )
