"""The laws that can be tuned: what is searched of each, and what follows from it.

A `Space` has axes, all searched in the logarithm, and turns a point on them into parameters. Only
the numbers that the papers' design rules set are searched; the others keep their defaults. Laws
without a linear model have a short list of settings instead, which only packets can judge.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from forebay import _native
from forebay._native import OperatingPoint, ScenarioError
from forebay.control.design import toml_value
from forebay.tune import theory
from forebay.tune.ranges import Place, Ranges

Params = tuple[tuple[str, str], ...]
Point = Mapping[str, float]

#: What sets where the queue is held.
SET_POINTS = ("target", "target_delay")

#: Sampling times: the papers', which are the laws' defaults.
PI_S, PID_S = 6.25e-3, 1 / 29.5
#: TCP sees two thirds of the probability where signals are spaced (Floyd and Jacobson 1993).
SPACED = 2 / 3


@dataclass(frozen=True)
class Goal:
    """What the user wants.

    give_up: share of the goodput that may be given up, anywhere in the range.
    least: what is to be least at the worst place, "delay_p95_s" or "deviation_s".
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
        parameters, "retargeted" for the papers' gains with a tuned set-point.
    point: on the axes of its space, where it was searched.
    local: what the model says at each place; empty where it was not asked.
    keeps: whether it keeps the margins everywhere, and the queue from being empty too long.
    """

    law: str
    label: str
    params: Params
    origin: str
    point: Mapping[str, float] = field(default_factory=dict)
    local: tuple[theory.Local | None, ...] = ()
    keeps: bool = False

    def toml(self) -> str:
        """Its [[law]] of a scenario."""
        lines = ["[[law]]", f'kind  = "{self.law}"', f'label = "{self.label}"']
        return "\n".join(
            [*lines, *(f"{name} = {toml_value(value)}" for name, value in self.params)]
        )


@dataclass(frozen=True)
class Axis:
    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Space:
    """axes: what is searched; params: what a point on them means."""

    law: str
    axes: tuple[Axis, ...]
    params: Callable[[Point], Params]
    #: about where the queue settles, for a point
    queue_pkts: Callable[[Point], float]
    #: what the law adapts by itself at a place with so many flows
    adapts: Callable[[Point, Place, float], Params] | None = None

    def local(
        self, point: Point, ranges: Ranges, places: Sequence[Place]
    ) -> list[theory.Local | None]:
        """What the model says of a point at each place."""
        fixed = self.params(point)

        def params_at(place: Place, flows: float) -> Params:
            return fixed if self.adapts is None else fixed + self.adapts(point, place, flows)

        return theory.at(self.law, params_at, self.queue_pkts(point), ranges, places)


def known(laws: Sequence[str]) -> list[str]:
    """The laws asked for, or all. Raises `ScenarioError` for one that does not exist."""
    names = [entry["name"] for entry in _native.laws()]
    for law in laws:
        if law not in names:
            raise ScenarioError(f'--law: found "{law}", allowed: {", ".join(names)}')
    return list(dict.fromkeys(laws)) or names


def space(law: str, ranges: Ranges) -> Space | None:
    """What is searched of a law; None for laws without a linear model."""
    make = SPACES.get(law)
    return None if make is None else make(law, _Scales.of(ranges))


def default(law: str) -> Candidate:
    """A law as the papers have it."""
    label = law if law == "droptail" else f"{law} (papers)"
    return Candidate(law, label, (), "default")


def retargeted(chosen: Candidate) -> Candidate | None:
    """The papers' gains with the set-point of a tuned law; None for a law without one."""
    params = tuple((name, value) for name, value in chosen.params if name in SET_POINTS)
    if not params or params == chosen.params:
        return None
    return Candidate(chosen.law, f"{chosen.law} (papers' gains)", params, "retargeted")


def listed(law: str, ranges: Ranges) -> list[Candidate]:
    """Settings of a law that only packets can judge; none for DropTail, which has no parameters."""
    settings: list[Params] = []
    if law == "blue":
        settings = [
            (("increment", _number(up)), ("decrement", _number(up / 10)), ("freeze_time", time))
            for up, time in itertools.product((0.0025, 0.02), ("30ms", "300ms"))
        ]
    elif law in ("avq", "e-avq"):
        sizes = [max(5.0, share * ranges.buffer_pkts) for share in (0.03, 0.1)]
        settings = [(("gamma", "1"), ("virtual_buffer", _packets(size))) for size in sizes]
    return [Candidate(law, f"{law} {i}", params, "listed") for i, params in enumerate(settings, 1)]


@dataclass(frozen=True)
class _Scales:
    """What bounds the axes: the design rules at the corners, an order of magnitude further."""

    ranges: Ranges
    target: Axis
    k_p: Axis
    zero_rad_s: Axis

    @staticmethod
    def of(ranges: Ranges) -> _Scales:
        target = Axis("target", 5.0, max(6.0, 0.5 * ranges.buffer_pkts))
        gains, poles = [], []
        for place in ranges.places:
            capacity = ranges.capacity_pkts_per_s(place)
            for queue_pkts in (target.low, target.high):
                rtt_s = place.rtt_s + queue_pkts / capacity
                flows = theory.active_flows(ranges, place, queue_pkts)
                point = OperatingPoint(flows, rtt_s, capacity)
                # staqm (4) with β = 0.5
                gains.append(math.sqrt(1.25) * flows / (rtt_s * capacity) ** 2)
                poles += [point.tcp_pole, point.queue_pole]
        return _Scales(
            ranges,
            target,
            Axis("k_p", 0.1 * min(gains), 3 * max(gains)),
            Axis("zero", 0.1 * min(poles), max(poles)),
        )

    @property
    def weight(self) -> Axis:
        """Weight of an arrival in an average."""
        slowest = self.ranges.capacity_pkts_per_s(self.ranges.corners[0])
        fastest = self.ranges.capacity_pkts_per_s(self.ranges.corners[-1])
        # From an average over ten seconds to one over half a millisecond, but at most half.
        return Axis("w_q", 0.1 / fastest, min(0.5, 2000 / slowest))

    @property
    def lead_s(self) -> Axis:
        """K_D/K_P, up to the longest RTT."""
        return Axis("lead", 1e-3 * self.ranges.rtts_s[1], self.ranges.rtts_s[1])


def _target(point: Point) -> float:
    return point["target"]


def _pi(law: str, scales: _Scales) -> Space:
    def params(x: Point) -> Params:
        half = 0.5 * x["k_p"] * x["zero"] * PI_S  # Tustin's rule, as staqm's design has it
        return (
            ("target", _packets(x["target"])),
            ("a", _number(min(1.0, x["k_p"] + half))),
            ("b", _number(min(1.0, max(0.0, x["k_p"] - half)))),
        )

    return Space(law, (scales.target, scales.k_p, scales.zero_rad_s), params, _target)


def _pid(law: str, scales: _Scales) -> Space:
    def params(x: Point) -> Params:
        return (
            ("target", _packets(x["target"])),
            ("k_p", _number(x["k_p"])),
            ("k_i", _number(x["k_p"] * x["zero"])),
            ("k_d", _number(x["k_p"] * x["lead"])),
        )

    return Space(
        law, (scales.target, scales.k_p, scales.zero_rad_s, scales.lead_s), params, _target
    )


def _averaged(law: str, scales: _Scales) -> Space:
    """P, PI, PD and PID on the average, whose gains multiply an error relative to the buffer."""
    buffer_pkts = scales.ranges.buffer_pkts
    integral, derivative = "i" in law.split("-")[0], "d" in law.split("-")[0]
    axes = [scales.target, scales.k_p, scales.weight]
    axes += [scales.zero_rad_s] if integral else []
    axes += [scales.lead_s] if derivative else []

    def params(x: Point) -> Params:
        k_p = x["k_p"] * buffer_pkts
        gains = [("k_p", k_p)]
        gains += [("k_i", k_p * x["zero"])] if integral else []
        gains += [("k_d", k_p * x["lead"])] if derivative else []
        return (
            ("target", _packets(x["target"])),
            ("w_q", _number(x["w_q"])),
            *((name, _number(gain)) for name, gain in gains),
        )

    return Space(law, tuple(axes), params, _target)


def _pi_pd(law: str, scales: _Scales) -> Space:
    fastest = max(map(scales.ranges.capacity_pkts_per_s, scales.ranges.places))

    def params(x: Point) -> Params:
        # As the design rule has it: the queue must not empty between two samples.
        interval_s = min(0.9375 * x["target"] / fastest, 0.25 * scales.ranges.rtts_s[0], 0.05)
        return (
            ("target", _packets(x["target"])),
            ("alpha", _number(min(1.0, x["k_p"] * x["target"]))),
            ("interval", f"{1e3 * max(interval_s, 1e-3):.4g}ms"),
        )

    return Space(law, (scales.target, scales.k_p), params, _target)


def _red(law: str, scales: _Scales) -> Space:
    axes = (
        Axis("min_th", 1.0, max(2.0, 0.25 * scales.ranges.buffer_pkts)),
        Axis("ratio", 1.2, 20.0),
        Axis("max_p", 0.01, 1.0),
        scales.weight,
    )

    def params(x: Point) -> Params:
        return (
            ("min_th", _packets(x["min_th"])),
            ("max_th", _packets(x["min_th"] * x["ratio"])),
            ("max_p", _number(x["max_p"])),
            ("w_q", _number(x["w_q"])),
        )

    return Space(law, axes, params, lambda x: 0.5 * x["min_th"] * (1 + x["ratio"]))


def _ared(law: str, scales: _Scales) -> Space:
    ranges = scales.ranges
    slowest = ranges.rates_bps[0] / (8 * ranges.packet_bytes)
    longest_s = max(0.002, min(0.5 * ranges.buffer_pkts / slowest, ranges.rtts_s[1]))
    axes = (Axis("delay", 0.001, longest_s), scales.weight)

    def params(x: Point) -> Params:
        return (("target_delay", f"{1e3 * x['delay']:.4g}ms"), ("w_q", _number(x["w_q"])))

    def adapts(x: Point, place: Place, flows: float) -> Params:
        """max_p comes to where the average is midway between the thresholds."""
        capacity = ranges.capacity_pkts_per_s(place)
        queue_pkts = 2 * max(5.0, 0.5 * x["delay"] * capacity)
        point = OperatingPoint(flows, place.rtt_s + queue_pkts / capacity, capacity)
        bottom = min(0.01, 8e4 / place.rate_bps)
        return (("max_p", _number(min(0.5, max(bottom, 2 * point.probability / SPACED)))),)

    return Space(law, axes, params, lambda x: max(10.0, x["delay"] * slowest), adapts)


def _pd_red(law: str, scales: _Scales) -> Space:
    buffer_pkts = scales.ranges.buffer_pkts
    interval_s = 0.01
    axes = (scales.target, scales.k_p, scales.zero_rad_s, scales.weight)

    def params(x: Point) -> Params:
        # The design rule's: thresholds as the paper's 15 and 785 about 400, and its integral.
        min_th = (15 / 400) * x["target"]
        path = SPACED * 0.5 / buffer_pkts
        return (
            ("target", _packets(x["target"])),
            ("k_p", _number(x["k_p"] * x["zero"] * interval_s / path)),
            ("k_d", _number(x["k_p"] / path)),
            ("min_th", _packets(min_th)),
            ("max_th", _packets(2 * x["target"] - min_th)),
            ("w_q", _number(x["w_q"])),
        )

    return Space(law, axes, params, _target)


def _rem(law: str, scales: _Scales) -> Space:
    interval_s, ln_phi = 2e-3, math.log(1.001)

    def params(x: Point) -> Params:
        # p ≈ ln φ·price, whose step is γ(α(q − target) + Δq): PI with K_P = γ·ln φ.
        return (
            ("target", _packets(x["target"])),
            ("gamma", _number(min(1000.0, x["k_p"] / ln_phi))),
            ("alpha", _number(x["zero"] * interval_s)),
        )

    return Space(law, (scales.target, scales.k_p, scales.zero_rad_s), params, _target)


def _stpi(law: str, scales: _Scales) -> Space:
    ranges = scales.ranges
    longest_s = min(60.0, 2 * ranges.rtts_s[1])
    axes = (scales.target, Axis("beta", 0.02, 0.84), Axis("rtt", 0.5 * ranges.rtts_s[0], longest_s))

    def params(x: Point) -> Params:
        return (
            ("target", _packets(x["target"])),
            ("beta", _number(x["beta"])),
            ("rtt", f"{1e3 * x['rtt']:.5g}ms"),
            # The first design is for the middle of the range, and makes way for the estimates
            # as soon as that of the capacity has had its time constant.
            ("flows", str(ranges.middle.flows)),
            ("tune_after", "5s"),
        )

    return Space(law, axes, params, _target)


def _stred(law: str, scales: _Scales) -> Space:
    ranges = scales.ranges
    axes = (
        Axis("max_th", 10.0, float(ranges.buffer_pkts)),
        Axis("phase", 30.0, 89.0),
        Axis("crossover", 0.01, 0.5),
        Axis("rtt", 0.5 * ranges.rtts_s[0], min(60.0, 2 * ranges.rtts_s[1])),
    )

    def params(x: Point) -> Params:
        return (
            ("max_th", _packets(x["max_th"])),
            ("phase_margin", _number(x["phase"])),
            ("crossover", _number(x["crossover"])),
            ("rtt", f"{1e3 * x['rtt']:.5g}ms"),
            ("flows", str(ranges.middle.flows)),
            ("tune_after", "5s"),
        )

    return Space(law, axes, params, lambda x: 0.5 * x["max_th"])


#: One line per law with a linear model.
SPACES: dict[str, Callable[[str, _Scales], Space]] = {
    "red": _red,
    "pi": _pi,
    "pid": _pid,
    "pi-pd": _pi_pd,
    "p-avg": _averaged,
    "pi-avg": _averaged,
    "pd-avg": _averaged,
    "pid-avg": _averaged,
    "ared": _ared,
    "pd-red": _pd_red,
    "stpi": _stpi,
    "stred": _stred,
    "rem": _rem,
}


def _number(value: float) -> str:
    return f"{value:.6g}"


def _packets(value: float) -> str:
    return f"{value:.4g}p"
