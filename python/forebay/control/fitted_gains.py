"""Numbers of a law for its link: the one place where a law that is only named
gets its gains, set-point and sampling interval. `experiment.automatic_gains` asks here, for
scenarios, studies, suites and links.

A law is designed for the fewest flows and the longest RTT of what is expected, where its loop has
the most gain and the most delay (Hollot et al. 2002, section IV), and is then slowed, or sampled
more often, until the loop is robust: |1/(1 + L)| at most 2. Given numbers always win.
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
from forebay.control.design import design, peak_of
from forebay.control.design_rule import SLOWER, LoneGainError, check_all_gains, gain_params_of
from forebay.control.designed_law import DEVIATIONS, Design
from forebay.control.link import LEAST_TARGET_PKTS, PLAIN, TARGET_SHARE, Link
from forebay.control.margins import ROBUST_PEAK
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
#: Steps until a loop is robust.
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
#: to meet where robust gains can, as `tune` asks of packets.
SETTLED_S = 10.0
#: Shares of the largest robust integral, the most robust first.
INTEGRALS = (0.35, 0.5, 0.7, 1.0)
#: Goals that slow a rule down, of laws that name none.
SLOWING = ("tuning", "beta")


@dataclass(frozen=True)
class OperatingRange:
    """The range of operating points of a law's link.

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
        """Return the number of flows that would have the same windows on the whole link alone.

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
        """The product of the capacity and the longest RTT."""
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
                fitted = _designed(law, place, texts, model)
            except LoneGainError:
                raise
            except ScenarioError:
                # What suits no other sender may suit Reno, whose rule it is.
                place = replace(place, tcp=PLAIN)
                fitted = _designed(law, place, texts, model)
        except LoneGainError:
            raise
        except ScenarioError as error:
            # A given number that no law takes was refused before.
            fitted, why = None, f"is not designed ({error})"
        if fitted is not None:
            return fitted
    return _scaled(law, place, texts, model, why)


# --- with a rule --------------------------------------------------------------------------------


def _designed(
    law: str, place: OperatingRange, given: Mapping[str, str], model: LawModel
) -> Fitted | None:
    """Return the numbers of the law's own rule, made robust; None for a law without a rule."""
    flows, target = _expected(law, place, given)
    capacity = place.capacity_pkts_per_s
    target_pkts = _native.set_point_pkts("target", target, place.rate_bps, place.packet_bytes)
    counted = place.counted(flows[0], target_pkts)
    point = OperatingPoint(counted, place.rtt_s[1] + target_pkts / capacity, capacity)
    rule = model.design(point, target_pkts, [])
    if rule is None:
        return None
    check_all_gains(law, gain_params_of(rule["params"]), given)
    # A design for the whole of a buffer of seconds is one for no buffer.
    buffer_pkts = max(min(place.room_pkts, MOST_RTTS * (place.product_pkts + target_pkts)), 1.0)

    def design_with(target: str, overrides: Mapping[str, str]) -> Design:
        link = Link(
            place.rate_bps,
            place.rtt_s[1],
            flows=counted,
            packet=place.packet_bytes,
            buffer=f"{math.floor(buffer_pkts)}p",
            senders=place.tcp,
        )
        return design(law, link, target=target, overrides=overrides)

    overrides = {key: value for key, value in given.items() if key != "target"}
    # A set-point that nobody has chosen may still be moved, unless it is the law's, as a delay.
    free = _own_set_point(law, given) != target
    most_pkts = MOST_OF_BUFFER * buffer_pkts
    result, overrides = _made_robust(
        design_with, target, overrides, given, free=free, most_pkts=most_pkts
    )
    goals = {name for name, _, _ in model.goals}
    # Where the load moves, robustness is not enough.
    many = place.counted(flows[1], target_pkts) if flows[1] > flows[0] else None
    if many is not None and not _given_gains(law, given):
        # Gains that are given take no goal of the rule's.
        fixed = {key: value for key, value in overrides.items() if key not in {*goals, "target"}}
        moved = overrides["target"]
        result = _settling(result, many, lambda gains: design_with(moved, {**fixed, **gains}))
    # A delay that is the law's default follows the rate, if the rate changes.
    omitted = {*given, *goals} | (
        {"target"} if overrides["target"] == _own_set_point(law, {}) else set()
    )
    params = tuple((name, value) for name, value in result.params if name not in omitted)
    peak = None if result.loop is None else quantities.finite(peak_of(result))
    return Fitted(
        law,
        params,
        _line(law, place, flows, params, result, peak),
        flows,
        result.queue_pkts,
        peak,
        quantities.finite(result.settling_s),
        result,
    )


def _made_robust(
    design_with: Callable[[str, Mapping[str, str]], Design],
    target: str,
    overrides: Mapping[str, str],
    given: Mapping[str, str],
    *,
    free: bool,
    most_pkts: float,
) -> tuple[Design, dict[str, str]]:
    """Return a design that is robust, or the last of some rounds, and its settings with "target".

    free: True if the set-point may be moved, to at most `most_pkts`.
    """
    result, overrides = design_with(target, overrides), dict(overrides)
    for _ in range(ROUNDS):
        key, value = _next_setting(result, overrides, free, most_pkts)
        if key is None or key in given:
            break
        varied = {**overrides, "target": target, key: value}
        variant = design_with(varied.pop("target"), varied)
        if not variant.stable and result.stable:
            break
        result, overrides = variant, varied
        if key == "target":
            # Once: a slower loop moves the queue more, which would ask for more again.
            target, free = value, False
    return result, {**overrides, "target": target}


def _given_gains(law: str, given: Mapping[str, str]) -> list[str]:
    """Return the gains of a PI that are given."""
    form = pi_forms.pi_law(law)
    return [] if form is None else [name for name in form.form.names if name in given]


def unwinding_s(result: Design, many: float) -> float:
    """Return the time in which the law's integral follows a load that falls from `many` flows.

    The design's own flows are left, and the queue is empty; 0 for a law that does not integrate.
    The integral falls by K_i times the set-point; between both loads K_i is a power of the
    probability, as of laws with a square.
    """
    if result.loop is None:
        return 0.0
    link = result.link.with_load(many, result.link.rtt_s)
    loaded = plant_on(link, result.law, result.params).equilibrium(many, link.rtt_s)
    fast = pi_forms.integral(result.loop.model)
    slow = None if loaded is None else pi_forms.integral(loaded.model)
    if loaded is None or not fast or not slow:
        return 0.0
    low, high = result.loop.point.probability, min(1.0, loaded.point.probability)
    if not high > low:
        return 0.0
    power = math.log(slow / fast) / math.log(high / low)
    way = (
        math.log(high / low)
        if abs(power - 1) < 1e-6
        else (((high / low) ** (1 - power) - 1) / (1 - power))
    )
    return low / fast * way / result.target_pkts


def _settled_s(result: Design, many: float) -> float:
    """Return the longer of the settling times after a disturbance and after most flows left."""
    return max(result.settling_s, unwinding_s(result, many))


def _settling(
    result: Design, many: float, design_with: Callable[[Mapping[str, str]], Design]
) -> Design:
    """Return a PI that settles within the bound, also from `many` flows; else the fastest.

    Where its rule is slower, the gains are from its robust set. Rules cancel the pole of TCP, which
    few flows with long round trips make slow.
    """
    form, loop = pi_forms.pi_law(result.law), result.loop
    if form is None or loop is None or loop.interval_s is None:
        return result
    if _settled_s(result, many) <= SETTLED_S:
        return result
    interval_s = loop.interval_s
    params = dict(result.params) | dict(form.texts(*ANY))
    plant = plant_on(result.link, result.law, list(params.items()))
    equilibrium = plant.equilibrium(result.link.flows, result.link.rtt_s)
    path = None if equilibrium is None else pi_forms.law_path(equilibrium.model, *ANY)
    if equilibrium is None or path is None:
        return result
    around = plant.loop(equilibrium)
    try:
        corner = pi_stabilising_set.corner(
            result.link, around.point, interval_s, path, plant=around.to_queue
        )
        largest = pi_stabilising_set.choose([corner], interval_s)
    except ScenarioError:
        return result
    best = result
    for share in INTEGRALS:
        gains = PiGains(largest.k_p, share * largest.k_i, interval_s)
        texts = form.texts(gains.a, gains.b)
        if not texts:
            continue
        try:
            variant = design_with(dict(texts))
        except ScenarioError:
            continue
        if not variant.stable or not peak_of(variant) <= ROBUST_PEAK:
            continue
        if _settled_s(variant, many) < _settled_s(best, many):
            best = variant
        if _settled_s(best, many) <= SETTLED_S:
            break
    return best


def _next_setting(
    result: Design, overrides: Mapping[str, str], free: bool, most_pkts: float
) -> tuple[str | None, str]:
    """Return a goal or the set-point with another value, where the loop is not robust.

    It amplifies, or TCP's own losses move the probability to zero or the queue to empty.
    """
    advice = result.advice
    if advice is not None and advice.value is not None and (advice.key != "target" or free):
        return advice.key, advice.value
    # How far losses move the queue is known of Reno.
    if result.loop is None or not result.stable or result.senders is not None:
        return None, ""
    queue_pkts, share = disturbances.at_constant_load(result.loop)
    needed_pkts = min(ABOVE_EMPTY * queue_pkts, most_pkts)
    if free and result.target_pkts < 0.9 * needed_pkts and "target" in dict(result.params):
        return "target", f"{_rounded(needed_pkts):g}p"
    slower = 0.9 * MOST_NOISE / share if share > MOST_NOISE else 1.0
    step = result.gain_step
    # The reach is as K_p, which is about as the goal.
    needed = step.headroom_pkts / (DEVIATIONS * step.deviation_pkts) if step is not None else 1.0
    # A loop that is slow already would only be slower to come back from empty.
    if needed > SLOWER and result.settling_s <= SETTLED_S:
        slower = min(slower, 0.9 * needed if needed < 1 else 1.0)
    return _slower_goal(result.model(), overrides, slower) if slower < 1 else (None, "")


def _slower_goal(
    model: LawModel, overrides: Mapping[str, str], slower: float
) -> tuple[str | None, str]:
    """Return the goal that slows a rule down, with this share of its value."""
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
    result: Design,
    peak: float | None,
) -> str:
    """Return one line on the design of a law for its link."""
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
    if result.loop is None:
        return words
    if peak is None:
        return words + "; unstable by the linear model"
    words += f"; S {peak:.2g}"
    if peak > ROBUST_PEAK:
        words += ", above 2: expect oscillation"
    step = result.gain_step
    if step is not None:
        words += (
            f", whose gains step {step.headroom_pkts:.2g} packets from the set-point: expect the "
            "queue above it, or take pi2"
        )
    if math.isfinite(result.settling_s):
        words += f", settles in {result.settling_s:.2g} s"
    if many > few:
        after_s = unwinding_s(result, place.counted(many, result.target_pkts))
        if after_s > result.settling_s:
            words += f", and in {after_s:.2g} s once {many - few:g} flows have left"
        if max(after_s, result.settling_s) > SETTLED_S:
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
