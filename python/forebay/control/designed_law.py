"""A law designed for a link: operating point, gains, margins, and a file that runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from forebay._base import quantities, registries
from forebay._base.words import hint
from forebay._native import LawModel, OperatingPoint, ScenarioError
from forebay.control import expected_queue as expected
from forebay.control import limit_cycle, margins
from forebay.control.ack_clocking import AckClockedEquilibrium, AckClockedPlant
from forebay.control.class_equilibria import CoupledEquilibrium, MixedEquilibrium
from forebay.control.expected_queue import Expected
from forebay.control.gain_steps import step_within, swing_of_classes
from forebay.control.limit_cycle import LimitCycle
from forebay.control.loaded_link import LoadedLink, scenario_toml
from forebay.control.loop import Loop
from forebay.control.margins import CALM, Margins
from forebay.control.plant import Equilibrium, Plant
from forebay.control.plants import plant_on
from forebay.control.senders import SENDERS
from forebay.control.virtual_queue import RateLoop

#: A rule is asked for at most so many times more flows of Reno, and so many times fewer: a plant
#: that needs less than that is of another kind. Halvings of the factor between what is calm and
#: what is not.
MORE, FEWER, CLOSER = 2.0**12, 2.0**4, 5
#: The least share of gains that are calm which is taken to keep the queue's own moves within one
#: step of a law's gains.
SLOWER = 1 / 4
#: Coefficients of a controller, which belong together.
COEFFICIENTS = ({"a", "b"}, {"k_p", "k_i", "k_d"}, {"alpha", "beta"}, {"gamma", "alpha"})


@dataclass(frozen=True)
class CalmerSetting:
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
    unstable_goal: the setting that was taken, where the rule's own goals made no stable loop.
    gain_params: the parameters that the rule has chosen, but for set-point and interval.
    classes: both classes at rest, where there are L4S flows; `point` is then that of as many
        flows of Reno as need the same probability.
    senders: all of them at rest, where they are not Reno's of one RTT; `point` likewise.
    """

    law: str
    link: LoadedLink
    gains: dict[str, float]
    params: list[tuple[str, str]]
    notes: list[str]
    point: OperatingPoint
    loop: Loop | None
    rates: RateLoop | None = None
    published: Loop | None = None
    impossible_s: float | None = None
    advice: CalmerSetting | None = None
    unstable_goal: CalmerSetting | None = None
    gain_params: tuple[str, ...] = ()
    classes: CoupledEquilibrium | None = None
    senders: MixedEquilibrium | None = None

    @property
    def kind(self) -> str:
        """The law as a scenario names it."""
        return self.law

    @property
    def modelled_elsewhere(self) -> bool:
        """True if the law's linear model is known for other loads and links, too."""
        return True

    @cached_property
    def sawtooth(self) -> Loop | None:
        """The same law with ACKs as the flows' clock and windows in sawteeth, which is nearer to
        packets than the published plant of `loop`; None where such flows do not settle, for laws
        of rates, and for flows other than Reno's with one RTT."""
        if self.loop is None or self.classes is not None or self.senders is not None:
            return None
        return AckClockedPlant(self.model()).loop_at(self.link.flows, self.link.rtt_s)

    @cached_property
    def expected(self) -> Expected | None:
        """How far TCP's own losses move the queue of `sawtooth`; None where that is none, or not
        stable."""
        return None if self.sawtooth is None else expected.expected(self.sawtooth)

    @cached_property
    def cycle(self) -> LimitCycle | None:
        """How the queue of `sawtooth` swings where that is not stable."""
        return None if self.sawtooth is None else limit_cycle.limit_cycle(self.sawtooth)

    @property
    def queue_pkts(self) -> float:
        """Where the queue settles."""
        if self.classes is not None:
            return self.classes.queue_pkts
        return self.held_pkts

    @property
    def window_pkts(self) -> float:
        """Of a flow; the mean of several classes."""
        if self.senders is None:
            return self.point.window_pkts
        classes = self.senders.classes
        windows = sum(each.flows * each.window_pkts for each in classes)
        return windows / sum(each.flows for each in classes)

    @property
    def held_pkts(self) -> float:
        """The queuing delay that the law holds, as what the link sends in it."""
        return self.link.target_pkts if self.loop is None else self.loop.model["queue_pkts"]

    @property
    def stable(self) -> bool:
        """By the exact test: every root of the loop decays."""
        return self._closed.stable

    @property
    def margins(self) -> Margins | None:
        return None if self.loop is None else self.loop.margins

    @property
    def settling_s(self) -> float:
        """4/|Re s| of the slowest root: 2 % of a disturbance are left."""
        return self._closed.settling_s

    @property
    def _closed(self) -> Loop | RateLoop:
        """The loop of the queue, or of the rates."""
        closed = self.loop or self.rates
        assert closed is not None
        return closed

    def as_json(self) -> dict[str, Any]:
        """What `forebay design --json` prints; what is not finite is None."""
        margins = self.margins
        values: dict[str, Any] = {
            "law": self.law,
            "gains": {name: quantities.finite(gain) for name, gain in self.gains.items()},
            "params": dict(self.params),
            "operating_point": {
                "window_pkts": self.window_pkts,
                "probability": self.point.probability,
                "rtt_s": self.point.rtt_s,
                "queue_pkts": self.queue_pkts,
            },
            "classes": self.classes and self.classes.as_json(),
            "senders": self.senders and self.senders.as_json(),
            "margins": _margins(margins),
            "crossover_rad_s": margins and quantities.finite(margins.crossover_rad_s),
            "settling_s": quantities.finite(self.settling_s),
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
        rest = AckClockedEquilibrium.at_probability(loop.point.probability)
        return {
            "operating_point": {
                "window_pkts": rest.window_pkts,
                "probability": rest.probability,
                "rtt_s": loop.point.rtt_s,
                "queue_pkts": loop.model["queue_pkts"],
            },
            "margins": _margins(loop.margins),
            "crossover_rad_s": quantities.finite(loop.margins.crossover_rad_s),
            "settling_s": quantities.finite(loop.settling_s),
            "stable": loop.stable,
            "expected": self.expected and asdict(self.expected),
            "limit_cycle": self.cycle and asdict(self.cycle),
        }

    def toml(self) -> str:
        """A scenario with the designed law, ready for `forebay run`."""
        title = f"{self.law} designed for {self.link.flows:g} flows"
        target_pkts = self.queue_pkts
        return f"# {self.law}.toml\n" + scenario_toml(
            self.link, self.kind, self.params, title, target_pkts
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
            if link.groups:
                beside += f"--tcp {link.senders} "
            if len(link.groups) > 1:
                few_bps, rtt = round(link.rate_bps / 4), link.rtts
                rate = f"{quantities.rate(few_bps)}..{quantities.rate(4 * link.rate_bps)}"
            commands.append(
                f"forebay map {self.law} --rate {rate} --packet {link.packet} "
                f"--flows {few}..{many} --rtt {rtt} --buffer {link.buffer_pkts}p {beside}{sets}"
            )
        return commands

    def model(self) -> LawModel:
        """The law with its parameters on the link."""
        return self.link.model(self.law, self.params)

    def among_flows(self) -> Plant:
        """The same among the link's flows."""
        return plant_on(self.link, self.law, self.params)


def design_once(law: str, link: LoadedLink, given: Mapping[str, str]) -> Design:
    """A law designed for a link with these goals and parameters, without second thoughts. Raises
    `ScenarioError`."""
    names = [name for name, _, _ in link.model(law, []).goals]
    _check_keys(law, names, given)
    # What was set by hand stays, even where the rule has its own opinion.
    by_hand = {key: value for key, value in given.items() if key not in names}
    params = [*by_hand.items()]
    if "target" in _params(law):
        params.append(("target", f"{link.target_pkts:.12g}p"))
    base, plant = link.model(law, params), plant_on(link, law, params)
    wanted = _wanted_point(link, plant, base)
    rule = wanted if plant.published else _as_reno(law, link, tuple(params)) or wanted
    goals = [(key, value) for key, value in given.items() if key in names]
    marked = any(SENDERS[one.tcp].ecn for one in link.groups)
    designed = base.design(rule, link.target_pkts, goals, wanted.probability, marked=marked)
    gains: dict[str, float] = {}
    notes = ["The law has no design rule: these are its parameters as they are."]
    values: dict[str, str] = {}
    settings: dict[str, str] = {}
    if designed is not None:
        gains, notes, values = designed["gains"], designed["notes"], dict(designed["params"])
        settings = dict(designed["settings"])
        if not plant.published:
            notes = [_asked_of_rule(rule, wanted), *notes]
    gain_params = gain_params_of(values.items())
    fixed = [name for name in gain_params if name in by_hand]
    if fixed:
        check_all_gains(law, gain_params, by_hand)
        if goals and len(fixed) == len(gain_params):
            raise ScenarioError(
                f"--set: found {goals[0][0]}, which asks {law}'s rule for its gains, beside "
                f"{', '.join(fixed)}, allowed: the one or the others"
            )
        gains, notes = {}, [f"{', '.join(fixed)} as given: the rule's own numbers are not used."]
    shown = list((dict(params) | values | settings | by_hand).items())
    try:
        plant = plant_on(link, law, shown)
    except ScenarioError as error:
        raise _impossible_gains(law, gain_params, by_hand, error) from None
    there = plant.equilibrium(link.flows, link.rtt_s)
    if there is not None:
        return Design(
            law,
            link,
            gains,
            shown,
            notes,
            there.point,
            plant.loop(there),
            gain_params=gain_params,
            classes=plant.coupled_classes(there),
            senders=plant.mixed_senders(there),
        )
    control = link.model(law, shown).rate_control
    if control is not None and not plant.published:
        raise ScenarioError(
            f'--tcp: found "{link.senders}" with {law}, which acts on rates, allowed: reno with '
            "one RTT"
        )
    if control is not None and designed is not None:
        utilisation, k_p, k_i, k_d = control
        capacity = base.capacity_pkts_per_s
        rates = RateLoop(capacity, wanted.flows, wanted.rtt_s, k_i, k_p, k_d, utilisation)
        return Design(law, link, gains, shown, notes, wanted, None, rates, gain_params=gain_params)
    if designed is None and link.model(law, shown).linear(wanted) is None:
        allowed = [
            name
            for name, entry in registries.laws().items()
            if entry["has_rule"] or entry["modelled"]
        ]
        raise ScenarioError(
            f'law: found "{law}", which has neither a design rule nor a linear model, allowed: '
            f"{', '.join(allowed)}"
        )
    raise ScenarioError(_why_no_equilibrium(law, link, plant))


def _wanted_point(link: LoadedLink, plant: Plant, base: LawModel) -> OperatingPoint:
    """The point at the wanted queue, of as many flows of Reno as need the same probability: design
    rules know these. Raises `ScenarioError` where that is 1 or more."""
    flows = plant.reno_flows(link.flows, link.rtt_s, link.target_pkts)
    capacity = base.capacity_pkts_per_s
    wanted = OperatingPoint(flows, link.rtt_s + link.target_pkts / capacity, capacity)
    if wanted.probability < 1:
        return wanted
    if not plant.published:
        raise ScenarioError(
            f"--flows: found {link.flows:g}, which need a probability of {wanted.probability:.3g}, "
            "allowed: fewer, so that it is below 1"
        )
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


@lru_cache(maxsize=1 << 10)
def _as_reno(
    law: str, link: LoadedLink, params: tuple[tuple[str, str], ...]
) -> OperatingPoint | None:
    """As how many flows of Reno a design rule sees this link, with the defaults of its goals: as
    the most with which the loop of the link's own senders stays calm. None for a law that has no
    rule or does not integrate, whose rule asks for the p at which it rests."""
    base, per_s = link.model(law, params), link.rate_bps / (8 * link.packet_bytes)
    rtt_s = link.rtt_s + link.target_pkts / per_s
    known: dict[float, bool] = {}

    def calm(flows: float) -> bool:
        if flows not in known:
            found = asked(flows)
            known[flows] = (
                found is not None
                and found[1].stable
                and margins.peak(found[1].terms, found[1].grid) <= CALM
            )
        return known[flows]

    def asked(flows: float) -> tuple[Plant, Loop] | None:
        """What closes the loop if the rule is asked for so many."""
        point = OperatingPoint(flows, rtt_s, per_s)
        try:
            made = base.design(point, link.target_pkts, [], start.probability)
            assert made is not None
            values = dict(params) | dict(made["params"]) | dict(params)
            plant = plant_on(link, law, [*values.items()])
            there = plant.equilibrium(link.flows, link.rtt_s)
        except ScenarioError:
            return None
        return None if there is None else (plant, plant.loop(there))

    def clear_of_steps(flows: float) -> bool:
        """Whether the queue's own moves leave the gains as they are."""
        found = asked(flows)
        if found is None:
            return True
        plant, loop = found
        rests = plant.mixed_senders(Equilibrium(loop.point, loop.model))
        return rests is None or step_within(plant.law, loop, swing_of_classes(rests)) is None

    alike = plant_on(link, law, params).reno_flows(link.flows, link.rtt_s, link.target_pkts)
    start = OperatingPoint(alike, rtt_s, per_s)
    model = base.linear(start)
    if model is None or not model["integrates"] or base.design(start, link.target_pkts, []) is None:
        return None
    # More flows of Reno have less gain: the rule then gives the law more.
    good, bad, step = alike, alike, 2.0
    while calm(good) and good < MORE * alike:
        bad = good * step
        if not calm(bad):
            break
        good = bad
    else:
        if calm(good):
            # What the rule answers does not matter: the law finds the load by itself.
            return None
        while not calm(good):
            good, bad = good / step, good
            if good < alike / FEWER:
                return None
    for _ in range(CLOSER):
        middle = math.sqrt(good * bad)
        good, bad = (middle, bad) if calm(middle) else (good, middle)
    # Gains that much smaller would cost more than the steps of PIE's do.
    shares = [SLOWER ** (i / CLOSER) for i in range(CLOSER + 1)]
    clear = (good * one for one in shares if calm(good * one) and clear_of_steps(good * one))
    return OperatingPoint(next(clear, good), rtt_s, per_s)


def _asked_of_rule(rule: OperatingPoint, wanted: OperatingPoint) -> str:
    """What a rule for Reno was asked."""
    if rule is wanted:
        return (
            "The law's design rule is for Reno alone: it was applied to "
            f"{wanted.flows:.3g} flows of Reno, which need the same p0. What the rule says of "
            "those:"
        )
    return (
        "The law's design rule is for Reno alone: it was applied to "
        f"{rule.flows:.3g} flows of Reno, the most for which its gains keep the sensitivity peak "
        f"of the loop here at or below {CALM:g} ({wanted.flows:.3g} flows of Reno need the same "
        "p0). "
        "What the rule says of those:"
    )


def _why_no_equilibrium(law: str, link: LoadedLink, plant: Plant) -> str:
    """Why there is no operating point, in one line."""
    how, queue_pkts, p, _ = plant.settle(link.flows, link.rtt_s)
    one = link.flows == 1
    flows = f"{link.flows:g} flow{'' if one else 's'}"
    need, settle = ("needs", "settles") if one else ("need", "settle")
    at = f" at the {queue_pkts:.4g} packets where {law} rests" if queue_pkts else ""
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


def _params(law: str) -> list[str]:
    """The law's parameters; none of a law that is not known."""
    known = registries.laws()
    return [spec["name"] for spec in known[law]["params"]] if law in known else []


def _check_keys(law: str, goals: list[str], given: Mapping[str, str]) -> None:
    """Raises `ScenarioError` for a key that is neither a goal nor a parameter."""
    allowed = [*goals, *(name for name in _params(law) if name not in goals)]
    for key in given:
        if key not in allowed:
            raise ScenarioError(
                f'--set: found "{key}", which {law} does not have, allowed: '
                f"{', '.join(allowed)}{hint(key, allowed)}"
            )


def _impossible_gains(
    law: str, gain_params: Sequence[str], by_hand: Mapping[str, str], error: ScenarioError
) -> ScenarioError:
    """What is wrong with parameters of which the rule's are none that the law takes: what was asked
    of the rule, and not the rule's answer."""
    name, _, wrong = str(error).partition(": ")
    if name not in gain_params or name in by_hand:
        return error
    asked = by_hand.get("interval")
    if asked is None:
        return ScenarioError(f"law: found {law}, whose rule gives {name} here: {wrong}")
    return ScenarioError(
        f'--set: found interval="{asked}", with which {law}\'s rule gives {name}: {wrong}; '
        "allowed: a shorter interval"
    )


class LoneGainError(ScenarioError):
    """Some of a controller's coefficients are given, and not the others."""


def gain_params_of(params: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The parameters of a rule's answer, but for set-point and interval."""
    return tuple(name for name, _ in params if name not in ("target", "interval"))


def check_all_gains(law: str, gain_params: Sequence[str], by_hand: Mapping[str, str]) -> None:
    """Raises `LoneGainError` where some of a controller's coefficients are given and not the
    others: a rule's are for each other."""
    for together in COEFFICIENTS:
        wanted = [name for name in gain_params if name in together]
        missing = [name for name in wanted if name not in by_hand]
        if len(wanted) > 1 and 0 < len(missing) < len(wanted):
            given = ", ".join(name for name in wanted if name in by_hand)
            raise LoneGainError(
                f"--set: found {given} without {', '.join(missing)}, allowed: all of "
                f"{', '.join(wanted)} of {law}, or none"
            )


def _margins(margins: Margins | None) -> dict[str, float | None]:
    def value(name: str) -> float | None:
        return None if margins is None else quantities.finite(getattr(margins, name))

    return {
        "phase_deg": value("phase_deg"),
        "gain_db": value("gain_db"),
        "delay_s": value("delay_s"),
        "sensitivity_peak": value("sensitivity"),
    }


def _scaled(seconds: float, factor: float) -> str:
    return f"{1e3 * seconds * factor:.4g}ms"
