"""A law designed for a link: operating point, gains, margins, and a file that runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Any

from forebay import _native, units
from forebay._native import LawModel, OperatingPoint, ScenarioError
from forebay.control import cycle, expected, margins, plant
from forebay.control.classes import Classes, Coupled
from forebay.control.cycle import Cycle
from forebay.control.expected import Expected
from forebay.control.link import Link, scenario
from forebay.control.loop import Loop
from forebay.control.margins import CALM, Margins
from forebay.control.mix import Mix, Rested
from forebay.control.rates import RateLoop
from forebay.control.sawtooth import Rest, Sawtooth

#: A rule is asked for at most so many times more or fewer flows of Reno; and halvings of the
#: factor between what is calm and what is not.
FARTHEST, CLOSER = 2.0**12, 5


@dataclass(frozen=True)
class Advice:
    """A loop whose |1/(1 + L)| rises above what is calm, and the setting that brings it below.

    peak: as it is. key, value: the setting; None where none of those tried does. then: the peak
    with it; loop: the loop with it.
    """

    peak: float
    key: str | None = None
    value: str | None = None
    then: float | None = None
    loop: Loop | None = field(default=None, repr=False, compare=False)

    @property
    def phase_deg(self) -> float | None:
        """The phase margin with the setting."""
        return None if self.loop is None else self.loop.margins.phase_deg

    def as_json(self) -> dict[str, Any]:
        return {
            "sensitivity_peak": self.peak,
            "set": self.key and f"{self.key}={self.value}",
            "sensitivity_peak_then": self.then,
            "phase_deg_then": self.phase_deg,
        }


@dataclass(frozen=True)
class Design:
    """A designed law on its link.

    gains: the designed numbers, under the papers' names.
    params: the law's parameters, name and value as a text.
    point: the network at the queue where the law settles.
    loop: None for laws of rates, which have no loop of queue and probability.
    published: the same law at the sampling interval that it has by itself, where that is too
        long for the link's RTT and the design takes another.
    impossible_s: that interval, where the rule has no gains for it at all.
    advice: what would make a loop calmer that amplifies too much.
    classes: both classes at rest, where there are L4S flows; `point` is then that of as many
        flows of Reno as need the same probability.
    rested: all senders at rest, where they are not Reno's of one RTT; `point` likewise.
    """

    law: str
    link: Link
    gains: dict[str, float]
    params: list[tuple[str, str]]
    notes: list[str]
    point: OperatingPoint
    loop: Loop | None
    rates: RateLoop | None = None
    published: Loop | None = None
    impossible_s: float | None = None
    advice: Advice | None = None
    classes: Classes | None = None
    rested: Rested | None = None

    @cached_property
    def sawtooth(self) -> Loop | None:
        """The same law with ACKs as the flows' clock and windows in sawteeth, which is nearer to
        packets than the published plant of `loop`; None where such flows do not settle, for laws
        of rates, and for flows other than Reno's with one RTT."""
        if self.loop is None or self.classes is not None or self.rested is not None:
            return None
        return Sawtooth(self.model()).at(self.link.flows, self.link.rtt_s)

    @cached_property
    def expected(self) -> Expected | None:
        """How far TCP's own losses move the queue of `sawtooth`; None where that is none, or not
        stable."""
        return None if self.sawtooth is None else expected.expected(self.sawtooth)

    @cached_property
    def cycle(self) -> Cycle | None:
        """How the queue of `sawtooth` swings where that is not stable."""
        return None if self.sawtooth is None else cycle.of(self.sawtooth)

    @property
    def queue_pkts(self) -> float:
        """Where the queue settles."""
        if self.classes is not None:
            return self.classes.queue_pkts
        return self.held_pkts

    @property
    def window_pkts(self) -> float:
        """Of a flow; the mean of several classes."""
        if self.rested is None:
            return self.point.window_pkts
        of = self.rested.classes
        return sum(one.flows * one.window_pkts for one in of) / sum(one.flows for one in of)

    @property
    def held_pkts(self) -> float:
        """The queuing delay that the law holds, as what the link sends in it."""
        return self.link.target_pkts if self.loop is None else self.loop.model["queue_pkts"]

    @property
    def stable(self) -> bool:
        """By the exact test: every root of the loop decays."""
        if self.loop is not None:
            return self.loop.stable
        assert self.rates is not None
        return self.rates.system.stable()

    @property
    def margins(self) -> Margins | None:
        return None if self.loop is None else self.loop.margins

    @property
    def settling_s(self) -> float:
        """4/|Re s| of the slowest root: 2 % of a disturbance are left."""
        if self.loop is not None:
            return self.loop.settling_s
        assert self.rates is not None
        root = self.rates.system.rightmost().real
        return -4 / root if root < 0 else math.inf

    def as_json(self) -> dict[str, Any]:
        """What `forebay design --json` prints; what is not finite is None."""
        margins = self.margins
        values: dict[str, Any] = {
            "law": self.law,
            "gains": {name: _finite(gain) for name, gain in self.gains.items()},
            "params": dict(self.params),
            "operating_point": {
                "window_pkts": self.window_pkts,
                "probability": self.point.probability,
                "rtt_s": self.point.rtt_s,
                "queue_pkts": self.queue_pkts,
            },
            "classes": self.classes and self.classes.as_json(),
            "senders": self.rested and self.rested.as_json(),
            "margins": _margins(margins),
            "crossover_rad_s": margins and _finite(margins.crossover_rad_s),
            "settling_s": _finite(self.settling_s),
            "stable": self.stable,
            "interval_s": self.loop and self.loop.interval_s,
            "at_published_interval": self.published
            and {"interval_s": self.published.interval_s, "stable": self.published.stable}
            | _margins(self.published.margins),
            "advice": self.advice and self.advice.as_json(),
            "sawtooth": self._sawtooth_json(),
        }
        return values

    def _sawtooth_json(self) -> dict[str, Any] | None:
        loop = self.sawtooth
        if loop is None:
            return None
        rest = Rest.signalled(loop.point.probability)
        return {
            "operating_point": {
                "window_pkts": rest.window_pkts,
                "probability": rest.probability,
                "rtt_s": loop.point.rtt_s,
                "queue_pkts": loop.model["queue_pkts"],
            },
            "margins": _margins(loop.margins),
            "crossover_rad_s": _finite(loop.margins.crossover_rad_s),
            "settling_s": _finite(loop.settling_s),
            "stable": loop.stable,
            "expected": self.expected and asdict(self.expected),
            "limit_cycle": self.cycle and asdict(self.cycle),
        }

    def toml(self) -> str:
        """A scenario with the designed law, ready for `forebay run`."""
        title = f"{self.law} designed for {self.link.flows:g} flows"
        target_pkts = self.queue_pkts
        return f"# {self.law}.toml\n" + scenario(
            self.link, self.law, self.params, title, target_pkts
        )

    def commands(self) -> list[str]:
        """Command lines that use the gains; the first runs the file of `toml`."""
        name = f"{self.law}.toml"
        sets = " ".join(f"--set {key}={value}" for key, value in self.params)
        link = self.link
        beside = f"--l4s-flows {link.l4s_flows:g} " if link.l4s_flows else ""
        few, many = max(1, round(link.flows / 4)), max(2, round(link.flows * 4))
        more = " ".join(
            f"--set traffic.{i}.flows={max(1, round(4 * one.flows))}"
            for i, one in enumerate(link.groups)
        )
        commands = [
            f"forebay run {name}",
            # A result is not replaced: this one has a place of its own.
            f"forebay run {name} {more or f'--set traffic.0.flows={many}'} --seeds 5 "
            f"--out results/{self.law}-{many}",
        ]
        if self.loop is not None:
            rate, rtt = link.rate, f"{_scaled(link.rtt_s, 0.25)}..{_scaled(link.rtt_s, 4)}"
            if len(link.groups) > 1:
                beside = f"--tcp {link.senders} "
                few_bps, rtt = round(link.rate_bps / 4), link.rtts
                rate = f"{units.rate(few_bps)}..{units.rate(4 * link.rate_bps)}"
            elif link.groups:
                beside = f"--tcp {link.senders} "
            commands.append(
                f"forebay map {self.law} --rate {rate} --packet {link.packet} "
                f"--flows {few}..{many} --rtt {rtt} --buffer {link.buffer_pkts}p {beside}{sets}"
            )
        return commands

    def model(self) -> LawModel:
        """The law with its parameters on the link."""
        return self.link.model(self.law, self.params)

    def among(self) -> Coupled | Mix:
        """The same among the link's flows."""
        return plant.on(self.link, self.law, self.params)


def once(law: str, link: Link, given: Mapping[str, str]) -> Design:
    """A law designed for a link with these goals and parameters, without second thoughts."""
    names = [name for name, _, _ in link.model(law, []).goals]
    _known(law, names, given)
    params = [(key, value) for key, value in given.items() if key not in names]
    if _has(law, "target"):
        params.append(("target", f"{link.target_pkts:.12g}p"))
    base = link.model(law, params)
    capacity = base.capacity_pkts_per_s
    # A design rule knows flows of Reno: as many as need the same probability.
    of = plant.on(link, law, params)
    flows = of.alike(link.flows, link.rtt_s, link.target_pkts)
    wanted = OperatingPoint(flows, link.rtt_s + link.target_pkts / capacity, capacity)
    if wanted.probability >= 1 and isinstance(of, Mix):
        raise ScenarioError(
            f"--flows: found {link.flows:g}, which need a probability of {wanted.probability:.3g}, "
            "allowed: fewer, so that it is below 1"
        )
    if wanted.probability >= 1:
        most = 2**-0.5 * capacity * wanted.rtt_s
        if link.l4s_flows:
            raise ScenarioError(
                f"--l4s-flows: found {link.l4s_flows:g} beside {link.flows:g} of --flows, together "
                f"as {flows:.3g} flows of Reno, allowed: fewer, so that it is at most {most:.3g} "
                "with this rate, RTT and target"
            )
        raise ScenarioError(
            f"--flows: found {flows:g}, allowed: at most {most:.3g} with this rate, RTT and "
            "target; with windows below √2 packets no signal slows TCP down enough"
        )
    goals = [(key, value) for key, value in given.items() if key in names]
    rule = wanted
    if isinstance(of, Mix):
        rule = _as_reno(law, link, tuple(params)) or wanted
    designed = base.design(rule, link.target_pkts, goals)
    values = dict(params)
    if designed is not None:
        values |= dict(designed["params"])
        # What was set by hand stays, even where the rule has its own opinion.
        values |= {key: value for key, value in given.items() if key not in names}
    final = link.model(law, list(values.items()))
    shown = list(values.items())
    gains = designed["gains"] if designed is not None else {}
    notes = (
        designed["notes"]
        if designed is not None
        else ["The law has no design rule: these are its parameters as they are."]
    )
    there = plant.on(link, law, shown)
    found = there.operate(link.flows, link.rtt_s)
    if found is not None:
        loop = there.loop(found)
        if isinstance(there, Mix):
            if designed is not None:
                notes = [_told(rule, wanted), *notes]
            rested = there.split(found)
            return Design(law, link, gains, shown, notes, found[0], loop, rested=rested)
        classes = there.split(found)
        return Design(law, link, gains, shown, notes, found[0], loop, classes=classes)
    if final.rate_control is not None and isinstance(there, Mix):
        raise ScenarioError(
            f'--tcp: found "{link.senders}" with {law}, which acts on rates, allowed: reno with '
            "one RTT"
        )
    if designed is not None and final.rate_control is not None:
        utilisation, k_p, k_i, k_d = final.rate_control
        rates = RateLoop(capacity, flows, wanted.rtt_s, k_i, k_p, k_d, utilisation)
        return Design(law, link, gains, shown, notes, wanted, None, rates)
    if final.linear(wanted) is None and designed is None:
        raise ScenarioError(
            f'law: found "{law}", which has neither a design rule nor a linear model, allowed: '
            f"{', '.join(_designable(wanted))}"
        )
    raise ScenarioError(_no_rest(law, link, there))


@lru_cache(maxsize=1 << 10)
def _as_reno(law: str, link: Link, params: tuple[tuple[str, str], ...]) -> OperatingPoint | None:
    """As how many flows of Reno a design rule sees this link, with the defaults of its goals: as
    the most with which the loop of the link's own senders stays calm. None for a law that has no
    rule or does not integrate, whose rule asks for the p at which it rests."""
    base, per_s = link.model(law, params), link.rate_bps / (8 * link.packet_bytes)
    rtt_s = link.rtt_s + link.target_pkts / per_s
    known: dict[float, bool] = {}

    def calm(flows: float) -> bool:
        if flows not in known:
            known[flows] = _peak(flows) <= CALM
        return known[flows]

    def _peak(flows: float) -> float:
        point = OperatingPoint(flows, rtt_s, per_s)
        try:
            made = base.design(point, link.target_pkts, [])
            assert made is not None
            values = dict(params) | dict(made["params"]) | dict(params)
            loop = plant.on(link, law, list(values.items())).at(link.flows, link.rtt_s)
        except ScenarioError:
            return math.inf
        if loop is None or not loop.stable:
            return math.inf
        return margins.peak(loop.terms, loop.grid)

    alike = plant.on(link, law, params).alike(link.flows, link.rtt_s, link.target_pkts)
    start = OperatingPoint(alike, rtt_s, per_s)
    model = base.linear(start)
    if model is None or not model["integrates"] or base.design(start, link.target_pkts, []) is None:
        return None
    # More flows of Reno have less gain: the rule then gives the law more.
    good, bad, step = alike, alike, 2.0
    while calm(good) and good < FARTHEST * alike:
        bad = good * step
        if not calm(bad):
            break
        good = bad
    else:
        while not calm(good):
            good, bad = good / step, good
            if good < alike / FARTHEST:
                return None
    for _ in range(CLOSER):
        middle = math.sqrt(good * bad)
        good, bad = (middle, bad) if calm(middle) else (good, middle)
    return OperatingPoint(good, rtt_s, per_s)


def _told(rule: OperatingPoint, wanted: OperatingPoint) -> str:
    """What a rule for Reno was asked."""
    if rule is wanted:
        return (
            f"The law's rule knows Reno alone: it was asked for {wanted.flows:.3g} flows of Reno, "
            "which need the same p0. Of those it says:"
        )
    return (
        f"The law's rule knows Reno alone: it was asked for {rule.flows:.3g} flows of Reno, the "
        f"most with which, by the usual goals, |1/(1 + L)| of the plant here is at most {CALM:g} "
        f"({wanted.flows:.3g} need the same p0). Of those it says:"
    )


def _no_rest(law: str, link: Link, model: Coupled | Mix) -> str:
    """Why there is no operating point, in one line."""
    how, queue_pkts, p = model.rest(link.flows, link.rtt_s)
    one = link.flows == 1
    flows = f"{link.flows:g} flow{'' if one else 's'}"
    need, settle = ("needs", "settles") if one else ("need", "settle")
    at = f" at the {queue_pkts:.4g} packets where {law} rests" if queue_pkts is not None else ""
    if how == "small":
        return (
            f"--flows: found {link.flows:g}, whose windows would be below the least that "
            f"{link.senders} keeps{at}, allowed: fewer"
        )
    if how == "saturated":
        return (
            f"--flows: found {link.flows:g}, which need a probability of {p:.3g}{at}, allowed: "
            "fewer, so that it is below 1"
        )
    if how == "full":
        return (
            f'--buffer: found "{link.buffer_pkts}p", which overflows first: {flows} {settle}{at}, '
            f'allowed: at least "{math.ceil(queue_pkts or 0)}p", fewer flows, or other parameters'
        )
    if how == "jump":
        return (
            f"law: found {law} with a jump of its probability{at}, past the {p:.3g} that {flows} "
            f"{need}: it switches to and fro there, allowed: fewer flows, or other parameters"
        )
    if how == "empty":
        return (
            f"law: found {law} with a probability above the {p:.3g} that {flows} {need}, when the "
            "queue is empty: the link runs dry, allowed: a lower --target, more flows, or other "
            "parameters"
        )
    return (
        f"law: found {law} without a linear model at any queue for {flows}, allowed: fewer flows "
        "or other parameters"
    )


def _designable(point: OperatingPoint) -> list[str]:
    """Laws with a design rule or a linear model, on a link large enough for their defaults."""
    found = []
    for law in (entry["name"] for entry in _native.laws()):
        model = LawModel(law, [], 10**9, 1000, 1e6)
        if model.linear(point) is not None or model.design(point, 1e3, []) is not None:
            found.append(law)
    return found


def _params(law: str) -> list[str]:
    """The law's parameters; none of a law that is not known."""
    laws = {entry["name"]: entry for entry in _native.laws()}
    return [spec["name"] for spec in laws[law]["params"]] if law in laws else []


def _has(law: str, param: str) -> bool:
    return param in _params(law)


def _known(law: str, goals: list[str], given: Mapping[str, str]) -> None:
    """Raises `ScenarioError` for a key that is neither a goal nor a parameter."""
    allowed = [*goals, *(name for name in _params(law) if name not in goals)]
    for key in given:
        if key not in allowed:
            near = get_close_matches(key, allowed, 1)
            hint = f' (did you mean "{near[0]}"?)' if near else ""
            raise ScenarioError(
                f'--set: found "{key}", which {law} does not have, allowed: '
                f"{', '.join(allowed)}{hint}"
            )


def _margins(margins: Margins | None) -> dict[str, float | None]:
    def value(name: str) -> float | None:
        return None if margins is None else _finite(getattr(margins, name))

    return {
        "phase_deg": value("phase_deg"),
        "gain_db": value("gain_db"),
        "delay_s": value("delay_s"),
        "sensitivity_peak": value("sensitivity"),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _scaled(seconds: float, factor: float) -> str:
    return f"{1e3 * seconds * factor:.4g}ms"
