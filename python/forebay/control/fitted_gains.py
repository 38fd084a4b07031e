"""Numbers of a law for the link that it stands on: the one place where a law that is only named
gets its gains, set-point and sampling interval. `experiment.automatic_gains` asks here, for
scenarios, studies, suites and links.

A law is designed for the fewest flows and the longest RTT of what is expected, where its loop has
the most gain and the most delay (Hollot et al. 2002, section IV), and is then slowed, or sampled
more often, until the loop is calm: |1/(1 + L)| at most 2. Given numbers always win.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import forebay._native as _native
from forebay._base import quantities, registries
from forebay._native import LawModel, OperatingPoint, ScenarioError
from forebay.control import disturbances, pi_forms, pi_stabilising_set
from forebay.control import robust_settings as calmer_settings
from forebay.control.design import design
from forebay.control.designed_law import (
    SLOWER,
    Design,
    LoneGainError,
    check_all_gains,
    gain_params_of,
)
from forebay.control.gain_steps import ROOM
from forebay.control.headroom import gain_step
from forebay.control.loaded_link import LEAST_TARGET_PKTS, PLAIN, TARGET_SHARE
from forebay.control.pi_stabilising_set import ANY, PiGains
from forebay.control.plants import plant_on

#: Fewest long-lived flows that are assumed where nobody says how many there are.
ASSUMED_FLOWS = 4.0
#: Least window per flow to design for: below √2 packets no signal slows TCP down, and with fewer
#: than four there is no fast retransmission.
LEAST_WINDOW_PKTS = 4.0
#: Most of the buffer that a set-point takes: the other half is for what it does not hold.
MOST_OF_BUFFER = 0.5
#: Buffers without a bound in packets, and very deep ones, hold no more than this many RTTs.
MOST_RTTS = 50.0
#: Steps until a loop is calm.
ROUNDS = 10
#: A set-point is at least so many standard deviations of the queue above empty.
ABOVE_EMPTY = 2.5
#: Largest deviation of the probability, as a share of its mean: one that falls to zero now and
#: then, and cannot fall below, is higher on average, and the queue below its set-point.
MOST_NOISE = 0.25
#: What does not listen takes at most this share of the link from a design: TCP sends something.
MOST_OTHER = 0.95
#: The window that signals can still halve: flows with less are not counted on.
CONTROLLED_WINDOW_PKTS = 2.0
#: Least share of a goal's default that this asks for: a loop that hardly acts helps nobody.
SLOWEST = 0.15
#: A loop that takes longer to settle does not follow a load that moves: the bound that a design has
#: to meet where calm gains can, as `tune` asks of packets.
SETTLED_S = 10.0
#: Shares of the largest calm integral, the calmest first.
INTEGRALS = (0.35, 0.5, 0.7, 1.0)
#: Goals that slow a rule down, of laws that name none.
SLOWING = ("tuning", "beta")


@dataclass(frozen=True)
class OperatingRange:
    """Where a law stands.

    rtt_s: least and most propagation both ways. flows: fewest and most long-lived ones; None where
    nobody knows. room_pkts: the buffer, in packets of packet_bytes. one_loop: whether the law
    controls one queue of all flows. tcp: their sender, as of `forebay design --tcp`. short_flows:
    that send beside them at a time. other_bps: rate beside them of what does not listen, or ends
    before it could.
    """

    rate_bps: int
    packet_bytes: int
    rtt_s: tuple[float, float]
    room_pkts: float
    flows: tuple[float, float] | None = None
    one_loop: bool = True
    tcp: str = PLAIN
    short_flows: float = 0.0
    other_bps: float = 0.0

    def counted(self, flows: float, target_pkts: float) -> float:
        """As many long-lived flows on the whole link as have the windows that these have beside
        all others.

        A short flow is one more while it sends. What takes a share of the link leaves windows of
        W = R(C − u)/N: those of N·C/(C − u) flows on all of it, with the same probability, the same
        pole of TCP and the same gain at rest. No window is counted below `CONTROLLED_WINDOW_PKTS`.
        """
        free = 1 - min(MOST_OTHER, self.other_bps / self.rate_bps)
        able = (self.product_pkts + target_pkts) / CONTROLLED_WINDOW_PKTS
        return max(flows, min((flows + self.short_flows) / free, able))

    @property
    def capacity_pkts_per_s(self) -> float:
        return self.rate_bps / (8 * self.packet_bytes)

    @property
    def product_pkts(self) -> float:
        """Of the capacity and the longest RTT."""
        return self.capacity_pkts_per_s * self.rtt_s[1]


@dataclass(frozen=True)
class Fitted:
    """A law's numbers for its place.

    params: those that were chosen, name and value as a text; given ones are not among them.
    line: how, in a sentence. flows, target_pkts: what it was designed for; None without a design.
    """

    law: str
    params: tuple[tuple[str, str], ...]
    line: str
    flows: tuple[float, float] | None = None
    target_pkts: float | None = None
    #: of the loop at what it was designed for
    sensitivity: float | None = None
    settling_s: float | None = None
    design: Design | None = field(default=None, repr=False, compare=False)


def fit(law: str, place: OperatingRange, given: Mapping[str, Any] | None = None) -> Fitted:
    """The numbers of a law for its place, with `given` ones as they are.

    Raises `ScenarioError` for an unknown law and a given number that is wrong.
    """
    texts = {key: quantities.plain(value) for key, value in (given or {}).items()}
    return _fit(law, place, tuple(sorted(texts.items())))


@lru_cache(maxsize=1 << 14)
def _fit(law: str, place: OperatingRange, given: tuple[tuple[str, str], ...]) -> Fitted:
    """A study has each link with several senders."""
    texts = dict(given)
    buffer_pkts = place.room_pkts
    model = LawModel(
        law, list(texts.items()), place.rate_bps, place.packet_bytes, max(buffer_pkts, 1)
    )
    why = (
        "has no design rule"
        if place.one_loop
        else "runs in a queue for each flow, for which there is no design rule"
    )
    if place.one_loop:
        try:
            try:
                found = _designed(law, place, texts, model)
            except LoneGainError:
                raise
            except ScenarioError:
                # What suits no other sender may suit Reno, whose rule it is.
                place = replace(place, tcp=PLAIN)
                found = _designed(law, place, texts, model)
        except LoneGainError:
            raise
        except ScenarioError as error:
            # A given number that no law takes was refused before.
            found, why = None, f"is not designed ({error})"
        if found is not None:
            return found
    return _scaled(law, place, texts, model, why)


# --- with a rule --------------------------------------------------------------------------------


def _designed(
    law: str, place: OperatingRange, given: Mapping[str, str], model: LawModel
) -> Fitted | None:
    """By the law's own rule, made calm; None for a law without one."""
    flows, target = _expected(law, place, given)
    packets_s = place.capacity_pkts_per_s
    target_pkts = _native.set_point_pkts("target", target, place.rate_bps, place.packet_bytes)
    counted = place.counted(flows[0], target_pkts)
    wanted = OperatingPoint(counted, place.rtt_s[1] + target_pkts / packets_s, packets_s)
    rule = model.design(wanted, target_pkts, [])
    if rule is None:
        return None
    check_all_gains(law, gain_params_of(rule["params"]), given)
    # A design for the whole of a buffer of seconds is one for no buffer.
    room_pkts = max(min(place.room_pkts, MOST_RTTS * (place.product_pkts + target_pkts)), 1.0)
    overrides = {key: value for key, value in given.items() if key != "target"}
    goals = {name for name, _, _ in model.goals}
    # What may still be moved: a set-point that nobody has chosen, nor the law as a delay.
    free = _own_set_point(law, given) != target

    def made_with(target: str, overrides: Mapping[str, str]) -> Design:
        return design(
            law,
            quantities.rate(place.rate_bps),
            counted,
            quantities.time(place.rtt_s[1]),
            quantities.size(place.packet_bytes),
            target,
            f"{math.floor(room_pkts)}p",
            overrides,
            tcp=place.tcp,
        )

    made = made_with(target, overrides)
    for _ in range(ROUNDS):
        key, value = _calmer(made, overrides, free, MOST_OF_BUFFER * room_pkts)
        if key is None or key in given:
            break
        before, made = made, made_with(*(_with(target, overrides, key, value)))
        if not made.stable and before.stable:
            made = before
            break
        target, overrides = _with(target, overrides, key, value)
        # Once: a slower loop moves the queue more, which would ask for more again.
        free = free and key != "target"
    # Where the load moves, calm is not enough.
    many = place.counted(flows[1], target_pkts) if flows[1] > flows[0] else None
    if many is not None and not _given_gains(law, given):
        # Gains that are given take no goal of the rule's.
        others = {key: value for key, value in overrides.items() if key not in goals}
        made = _settling(made, many, lambda gains: made_with(target, {**others, **gains}))
    # A delay that is the law's default follows the rate, if the rate changes.
    kept = {*given, *goals} | ({"target"} if target == _own_set_point(law, {}) else set())
    params = tuple((name, value) for name, value in made.params if name not in kept)
    loop = made.loop
    peak = None if loop is None else calmer_settings.peak_of(made)
    peak = quantities.finite(peak)
    return Fitted(
        law,
        params,
        _line(law, place, flows, params, made, peak),
        flows,
        made.queue_pkts,
        peak,
        quantities.finite(made.settling_s),
        made,
    )


def _given_gains(law: str, given: Mapping[str, str]) -> list[str]:
    """The gains of a PI that are given."""
    form = pi_forms.pi_law(law)
    names = [] if form is None else [name for name, _ in form.params(*ANY) or []]
    return [name for name in names if name in given]


def unwinding_s(made: Design, many: float) -> float:
    """How long the law takes to give back the probability of so many flows, once those are left
    that it is designed for and the queue is empty; 0 where it does not integrate.

    The integral falls by K_i times the set-point; between both loads K_i is a power of the
    probability, as of laws with a square.
    """
    if made.loop is None:
        return 0.0
    link = made.link.with_load(many, made.link.rtt_s)
    there = plant_on(link, made.law, made.params).equilibrium(many, link.rtt_s)
    fast = pi_forms.integral(made.loop.model)
    slow = None if there is None else pi_forms.integral(there.model)
    if there is None or not fast or not slow:
        return 0.0
    low, high = made.loop.point.probability, min(1.0, there.point.probability)
    if not high > low:
        return 0.0
    power = math.log(slow / fast) / math.log(high / low)
    way = (
        math.log(high / low)
        if abs(power - 1) < 1e-6
        else (((high / low) ** (1 - power) - 1) / (1 - power))
    )
    return low / fast * way / made.link.target_pkts


def _settled_s(made: Design, many: float) -> float:
    """After a disturbance, and after most flows have left."""
    return max(made.settling_s, unwinding_s(made, many))


def _settling(
    made: Design, many: float, made_with: Callable[[Mapping[str, str]], Design]
) -> Design:
    """A PI that settles within the bound, also from `many` flows, by gains from its calm set where
    its rule is slower; the fastest, where none does. Rules cancel the pole of TCP, which few flows
    with long round trips make slow."""
    form, loop = pi_forms.pi_law(made.law), made.loop
    if form is None or loop is None or loop.interval_s is None:
        return made
    if _settled_s(made, many) <= SETTLED_S:
        return made
    interval_s = loop.interval_s
    some = {name: form.text(value, *ANY) for name, value in form.params(*ANY) or []}
    plant = plant_on(made.link, made.law, list((dict(made.params) | some).items()))
    there = plant.equilibrium(made.link.flows, made.link.rtt_s)
    path = None if there is None else pi_forms.law_path(there.model, *ANY)
    if there is None or path is None:
        return made
    around = plant.loop(there)
    try:
        corner = pi_stabilising_set.corner(
            made.link, around.point, interval_s, path, plant=around.to_queue
        )
        most = pi_stabilising_set.choose([corner], interval_s)
    except ScenarioError:
        return made
    best = made
    for share in INTEGRALS:
        gains = PiGains(most.k_p, share * most.k_i, interval_s)
        written = form.params(gains.a, gains.b)
        if written is None:
            continue
        try:
            other = made_with({name: form.text(it, gains.a, gains.b) for name, it in written})
        except ScenarioError:
            continue
        if not other.stable or not calmer_settings.peak_of(other) <= calmer_settings.CALM:
            continue
        if _settled_s(other, many) < _settled_s(best, many):
            best = other
        if _settled_s(best, many) <= SETTLED_S:
            break
    return best


def _with(
    target: str, overrides: Mapping[str, str], key: str, value: str
) -> tuple[str, dict[str, str]]:
    if key == "target":
        return value, dict(overrides)
    return target, {**overrides, key: value}


def _calmer(
    made: Design, overrides: Mapping[str, str], free: bool, most_pkts: float
) -> tuple[str | None, str]:
    """A goal, or the set-point, and another value for it, where the loop is not calm: it
    amplifies, or TCP's own losses move the probability to zero or the queue to empty."""
    better = made.advice
    if better is not None and better.value is not None and (better.key != "target" or free):
        return better.key, better.value
    # How far losses move the queue is known of Reno.
    if made.loop is None or not made.stable or made.senders is not None:
        return None, ""
    queue_pkts, share = disturbances.at_constant_load(made.loop)
    target_pkts = made.link.target_pkts
    needed_pkts = min(ABOVE_EMPTY * queue_pkts, most_pkts)
    if free and target_pkts < 0.9 * needed_pkts and "target" in dict(made.params):
        return "target", f"{_rounded(needed_pkts):g}p"
    slower = 0.9 * MOST_NOISE / share if share > MOST_NOISE else 1.0
    step = gain_step(made)
    # The reach is as K_p, which is about as the goal.
    needed = step.room_pkts / (ROOM * step.swing_pkts) if step is not None else 1.0
    # A loop that is slow already would only be slower to come back from empty.
    if needed > SLOWER and made.settling_s <= SETTLED_S:
        slower = min(slower, 0.9 * needed if needed < 1 else 1.0)
    if slower < 1:
        model = made.model()
        values = {name: value for name, value, _ in model.goals}
        slowed = model.slowed_by
        keys = [slowed] if slowed in values else [key for key in SLOWING if key in values]
        for key in keys:
            assert key is not None
            now, slowest = float(overrides.get(key, values[key])), SLOWEST * float(values[key])
            if now > 1.01 * slowest:
                return key, f"{max(slowest, slower * now):.3g}"
    return None, ""


def _expected(
    law: str, place: OperatingRange, given: Mapping[str, str]
) -> tuple[tuple[float, float], str]:
    """Flows to design for, and the set-point as a text.

    The set-point is a quarter of the product of capacity and RTT, at least five packets and what
    leaves each flow a window of four; a delay that the law has by default stays where it fits.
    At most half of the buffer, and then for fewer flows, if nobody gave their number.
    """
    product_pkts = place.product_pkts
    most_pkts = MOST_OF_BUFFER * place.room_pkts
    fewest, most = place.flows or (ASSUMED_FLOWS, ASSUMED_FLOWS)

    def target_pkts_for(flows: float) -> float:
        least = max(LEAST_TARGET_PKTS, LEAST_WINDOW_PKTS * flows - product_pkts)
        return max(1.0, min(max(TARGET_SHARE * product_pkts, least), most_pkts))

    own = _own_set_point(law, given)
    target = own
    if target is None:
        target = f"{_rounded(target_pkts_for(fewest)):g}p"
    target_pkts = _native.set_point_pkts("target", target, place.rate_bps, place.packet_bytes)
    if own is not None and "target" not in given:
        least = max(LEAST_TARGET_PKTS, LEAST_WINDOW_PKTS * fewest - product_pkts)
        if not min(least, most_pkts) <= target_pkts <= most_pkts:
            target = f"{_rounded(target_pkts_for(fewest)):g}p"
            target_pkts = float(target.removesuffix("p"))
    if place.flows is None:
        # An assumption gives way to the link.
        able = (product_pkts + target_pkts) / LEAST_WINDOW_PKTS
        fewest = most = max(1.0, min(fewest, math.floor(able)))
    return (fewest, most), target


def _own_set_point(law: str, given: Mapping[str, str]) -> str | None:
    """The set-point that was given, or a delay that is the law's default; None for a number of
    packets, which is that of another link."""
    if "target" in given:
        text = given["target"]
        return text if text[-1:].isalpha() else f"{text}p"
    spec = registries.parameter(law, "target")
    if spec is None or registries.law(law)["set_point"] != "target":
        return None
    default: object = spec["default"]
    return default if isinstance(default, str) else None


def _rounded(packets: float) -> float:
    return float(round(packets)) if packets >= 2 else round(packets, 2)


def _line(
    law: str,
    place: OperatingRange,
    flows: tuple[float, float],
    params: Sequence[tuple[str, str]],
    made: Design,
    peak: float | None,
) -> str:
    few, many = flows
    count = (
        f"{few:g} flow{'' if many == 1 else 's'}" if few == many else f"{few:g} to {many:g} flows"
    )
    if place.flows is None:
        count = f"{few:g} flow{'' if few == 1 else 's'} or more (assumed)"
    count += "" if place.tcp == PLAIN else f" of {place.tcp}"
    if place.short_flows:
        short = float(f"{place.short_flows:.3g}")
        count += f" and {short:g} short one{'' if short == 1 else 's'} at a time"
    if place.other_bps:
        count += f" beside {quantities.rate(float(f'{place.other_bps:.3g}'))} of other packets"
    rtt = _rtt(place)
    words = f"{law} designed for {quantities.rate(place.rate_bps)}, {rtt}, {count}: "
    words += _values(params) or "every number was given"
    if made.loop is None:
        return words
    if peak is None:
        return words + "; unstable by the linear model"
    words += f"; S {peak:.2g}"
    if peak > calmer_settings.CALM:
        words += ", above 2: expect oscillation"
    step = gain_step(made)
    if step is not None:
        words += (
            f", whose gains step {step.room_pkts:.2g} packets from the set-point: expect the queue "
            "above it, or take pi2"
        )
    if math.isfinite(made.settling_s):
        words += f", settles in {made.settling_s:.2g} s"
    if many > few:
        after_s = unwinding_s(made, place.counted(many, made.link.target_pkts))
        if after_s > made.settling_s:
            words += f", and in {after_s:.2g} s once {many - few:g} flows have left"
        if max(after_s, made.settling_s) > SETTLED_S:
            words += f" (more than {SETTLED_S:g} s)"
    return words


# --- without a rule -----------------------------------------------------------------------------


def _scaled(
    law: str, place: OperatingRange, given: Mapping[str, str], model: LawModel, why: str
) -> Fitted:
    """The defaults, with what does not fit the link by its authors' advice, and queues that the
    buffer does not hold in proportion to it."""
    chosen = {name: text for name, text in model.fitted(place.rtt_s[1]) if name not in given}
    entry = registries.law(law)
    queues = {}
    for spec in entry["params"]:
        name, default = spec["name"], spec["default"]
        if spec["unit"] != "p" or name in given or name in chosen:
            continue
        text = default if isinstance(default, str) else f"{default:g}p"
        queues[name] = _native.set_point_pkts(name, text, place.rate_bps, place.packet_bytes)
    longest = max(queues.values(), default=0.0)
    if longest > place.room_pkts:
        share = MOST_OF_BUFFER * place.room_pkts / longest
        chosen |= {name: f"{share * pkts:.4g}p" for name, pkts in queues.items() if pkts > 0}
    params = tuple(chosen.items())
    line = f"{law} {why}: it keeps its defaults"
    if params:
        link = f"{quantities.rate(place.rate_bps)} and {_rtt(place)}"
        line += f", but for {_values(params)}, which fits {link}"
    return Fitted(law, params, line)


def _values(params: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name}={_short(text)}" for name, text in params)


def _short(text: str) -> str:
    parts = re.fullmatch(r"([\d.]+(?:[eE][-+]?\d+)?)([a-zA-Z]*)", text)
    return text if parts is None else f"{float(parts[1]):.4g}{parts[2]}"


def _rtt(place: OperatingRange) -> str:
    least, most = place.rtt_s
    if least == most:
        return quantities.time(most)
    return f"{quantities.time(least)} to {quantities.time(most)}"
