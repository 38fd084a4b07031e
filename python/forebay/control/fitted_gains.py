"""Automatic gain design: set-point, gains and sampling interval of a law for its link and load.

`experiment.automatic_gains` asks this module for all laws with `gains = "auto"`.

A law is designed for the fewest flows and the longest RTT that are expected, where its loop has the
largest gain and the longest delay (Hollot et al. 2002, section IV). It is then slowed down, or
sampled more often, until the loop is robust: the sensitivity peak |1/(1 + L)| is at most 2.
Parameters whose values are fixed are never changed.
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
from forebay.control import pi_forms, pi_stabilising_set
from forebay.control.design import design, peak_of
from forebay.control.design_rule import SLOWER, LoneGainError, check_all_gains, gain_params_of
from forebay.control.designed_law import DEVIATIONS, Design
from forebay.control.link import LEAST_TARGET_PKTS, PLAIN, TARGET_SHARE, Link
from forebay.control.loop import at_constant_load
from forebay.control.margins import ROBUST_PEAK
from forebay.control.pi_stabilising_set import ANY, PiGains
from forebay.control.plants import plant_on

#: Number of long-lived flows that is assumed where it is unknown.
ASSUMED_FLOWS = 4.0
#: Smallest window of a flow to design for, in packets. Below √2 packets no signal slows TCP down,
#: and below four there is no fast retransmission.
LEAST_WINDOW_PKTS = 4.0
#: Largest fraction of the buffer that a set-point takes. The rest absorbs bursts.
MOST_OF_BUFFER = 0.5
#: Deeper buffers, and buffers without a bound in packets, count as this many RTTs.
MOST_RTTS = 50.0
#: Largest number of changes that make a loop robust.
ROUNDS = 10
#: Distance of a set-point from the empty queue, in standard deviations of the queue.
ABOVE_EMPTY = 2.5
#: Largest standard deviation of the probability, as a fraction of its mean. A probability that is
#: cut at zero now and then is larger on average, and keeps the queue below its set-point.
MOST_NOISE = 0.25
#: Largest fraction of the link that traffic without congestion control takes from a design.
MOST_OTHER = 0.95
#: Smallest window that signals can halve, in packets; no design counts on smaller ones.
CONTROLLED_WINDOW_PKTS = 2.0
#: Smallest fraction of a goal's default: a slower loop would hardly act.
SLOWEST = 0.15
#: Longest settling time in seconds, where robust gains allow it: a slower loop does not follow a
#: load that varies. `tune` asks the same of packets.
SETTLED_S = 10.0
#: Fractions of the largest robust integral gain, the most robust first.
INTEGRALS = (0.35, 0.5, 0.7, 1.0)
#: Goals that slow a rule down, for laws that name none.
SLOWING = ("tuning", "beta")


@dataclass(frozen=True)
class OperatingRange:
    """The range of operating points of a law's link.

    Attributes
    ----------
    rate_bps : int
        Rate of the link.
    packet_bytes : int
        Size of a packet.
    rtt_s : (float, float)
        Shortest and longest propagation RTT.
    room_pkts : float
        Size of the buffer in packets of `packet_bytes`.
    flows : (float, float) or None
        Smallest and largest number of long-lived flows; None where it is unknown.
    one_loop : bool
        True if the law controls one queue with all flows.
    tcp : str
        Congestion control of the flows, by its name in `control.senders`.
    short_flows : float
        Mean number of short flows that send at a time.
    other_bps : float
        Rate of traffic that ignores signals, or ends before it could follow them.
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
        """Return the number of flows that would have the same windows with the link to themselves.

        A short flow counts as one flow while it sends. Traffic of rate u that ignores signals
        leaves windows of W = R(C − u)/N, which are those of N·C/(C − u) flows on the whole link:
        probability, TCP's pole and steady-state gain are the same. Windows are not counted below
        `CONTROLLED_WINDOW_PKTS`.

        Parameters
        ----------
        flows : float
            Number of long-lived flows.
        target_pkts : float
            The set-point in packets.
        """
        free = 1 - min(MOST_OTHER, self.other_bps / self.rate_bps)
        able = (self.product_pkts + target_pkts) / CONTROLLED_WINDOW_PKTS
        return max(flows, min((flows + self.short_flows) / free, able))

    @property
    def capacity_pkts_per_s(self) -> float:
        """Rate of the link in packets per second."""
        return self.rate_bps / (8 * self.packet_bytes)

    @property
    def product_pkts(self) -> float:
        """Bandwidth-delay product of the longest RTT, in packets."""
        return self.capacity_pkts_per_s * self.rtt_s[1]


@dataclass(frozen=True)
class Fitted:
    """The designed parameters of a law.

    Attributes
    ----------
    law : str
        Name of the law.
    params : tuple of (name, value)
        The designed parameters; those with a fixed value are omitted.
    line : str
        A sentence on the design.
    flows : (float, float) or None
        Number of flows that the design is for; None without a design.
    target_pkts : float or None
        The queue at the equilibrium; None without a design.
    sensitivity, settling_s : float or None
        Sensitivity peak and settling time of the loop at its design point.
    design : Design or None
        The design with its loop.
    """

    law: str
    params: tuple[tuple[str, str], ...]
    line: str
    flows: tuple[float, float] | None = None
    target_pkts: float | None = None
    sensitivity: float | None = None
    settling_s: float | None = None
    design: Design | None = field(default=None, repr=False, compare=False)


def fit(law: str, place: OperatingRange, fixed: Mapping[str, Any] | None = None) -> Fitted:
    """Design the parameters of a law for the range of operating points of its link.

    Parameters
    ----------
    law : str
        Name of the law in `forebay laws`.
    place : OperatingRange
        The link and the load.
    fixed : dict, optional
        Parameters whose values are fixed.

    Returns
    -------
    Fitted
        The parameters. A law without a design rule keeps its defaults, but for those that do not
        fit the link.

    Raises
    ------
    ScenarioError
        If the law is unknown, or a fixed value is wrong.
    """
    texts = {key: quantities.plain(value) for key, value in (fixed or {}).items()}
    return _fit(law, place, tuple(sorted(texts.items())))


@lru_cache(maxsize=1 << 14)
def _fit(law: str, place: OperatingRange, fixed: tuple[tuple[str, str], ...]) -> Fitted:
    """Design like `fit`; the results are kept, since a study asks for the same link many times."""
    texts = dict(fixed)
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
                # A rule that suits no other sender may suit Reno, for which it was made.
                place = replace(place, tcp=PLAIN)
                fitted = _designed(law, place, texts, model)
        except LoneGainError:
            raise
        except ScenarioError as error:
            # A fixed value that the law does not take was refused before.
            fitted, why = None, f"is not designed ({error})"
        if fitted is not None:
            return fitted
    return _scaled(law, place, texts, model, why)


# --- with a rule --------------------------------------------------------------------------------


def _designed(
    law: str, place: OperatingRange, fixed: Mapping[str, str], model: LawModel
) -> Fitted | None:
    """Return the gains of the law's own rule, made robust; None for a law without a rule."""
    flows, target = _expected(law, place, fixed)
    capacity = place.capacity_pkts_per_s
    target_pkts = _native.set_point_pkts("target", target, place.rate_bps, place.packet_bytes)
    counted = place.counted(flows[0], target_pkts)
    point = OperatingPoint(counted, place.rtt_s[1] + target_pkts / capacity, capacity)
    rule = model.design(point, target_pkts, [])
    if rule is None:
        return None
    check_all_gains(law, gain_params_of(rule["params"]), fixed)
    # With a buffer of seconds the whole of it would be no bound at all.
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

    overrides = {key: value for key, value in fixed.items() if key != "target"}
    # A set-point that is neither fixed nor the law's own delay may still be moved.
    free = _own_set_point(law, fixed) != target
    most_pkts = MOST_OF_BUFFER * buffer_pkts
    result, overrides = _made_robust(
        design_with, target, overrides, fixed, free=free, most_pkts=most_pkts
    )
    goals = {name for name, _, _ in model.goals}
    # Where the load varies, robustness is not enough.
    many = place.counted(flows[1], target_pkts) if flows[1] > flows[0] else None
    if many is not None and not _fixed_gains(law, fixed):
        # Fixed gains leave no goal to the rule.
        fixed = {key: value for key, value in overrides.items() if key not in {*goals, "target"}}
        moved = overrides["target"]
        result = _settling(result, many, lambda gains: design_with(moved, {**fixed, **gains}))
    # A delay that is the law's default follows the rate, if the rate changes.
    omitted = {*fixed, *goals} | (
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
    fixed: Mapping[str, str],
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
        if key is None or key in fixed:
            break
        varied = {**overrides, "target": target, key: value}
        variant = design_with(varied.pop("target"), varied)
        if not variant.stable and result.stable:
            break
        result, overrides = variant, varied
        if key == "target":
            # The set-point moves once: a slower loop lets the queue vary more, which would move it
            # on.
            target, free = value, False
    return result, {**overrides, "target": target}


def _fixed_gains(law: str, fixed: Mapping[str, str]) -> list[str]:
    """Return the gains of a PI whose values are fixed."""
    form = pi_forms.pi_law(law)
    return [] if form is None else [name for name in form.form.names if name in fixed]


def unwinding_s(result: Design, many: float) -> float:
    """Return the time in which the law's integral follows a load that falls from `many` flows.

    The queue is empty meanwhile, so the integral falls by K_i times the set-point per second.
    Between both loads K_i is taken as a power of the probability, as in laws with a square.

    Parameters
    ----------
    result : Design
        The design; its link has the number of flows that remain.
    many : float
        Number of flows before the fall.

    Returns
    -------
    float
        Time in seconds; 0 for a law that does not integrate.
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
    """Return the longer of the settling times after a disturbance and after a fall of the load."""
    return max(result.settling_s, unwinding_s(result, many))


def _settling(
    result: Design, many: float, design_with: Callable[[Mapping[str, str]], Design]
) -> Design:
    """Return a PI that settles within `SETTLED_S`, also from `many` flows; else the fastest one.

    Rules cancel TCP's pole, which is slow with few flows and long RTTs. Where a rule's own gains
    are too slow, gains of the robust set take their place.
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
    """Return the goal or set-point to change next, with its value; None for a robust loop.

    A loop is not robust if its sensitivity peak exceeds 2, or if TCP's own losses move the
    probability to zero or the queue to empty.
    """
    advice = result.advice
    if advice is not None and advice.value is not None and (advice.key != "target" or free):
        return advice.key, advice.value
    # How far losses move the queue is only known for Reno.
    if result.loop is None or not result.stable or result.senders is not None:
        return None, ""
    queue_pkts, share = at_constant_load(result.loop)
    needed_pkts = min(ABOVE_EMPTY * queue_pkts, most_pkts)
    if free and result.target_pkts < 0.9 * needed_pkts and "target" in dict(result.params):
        return "target", f"{_rounded(needed_pkts):g}p"
    slower = 0.9 * MOST_NOISE / share if share > MOST_NOISE else 1.0
    step = result.gain_step
    # The change of p is proportional to K_p, which is about proportional to the goal.
    needed = step.headroom_pkts / (DEVIATIONS * step.deviation_pkts) if step is not None else 1.0
    # A loop that is slow already would only return from an empty queue more slowly.
    if needed > SLOWER and result.settling_s <= SETTLED_S:
        slower = min(slower, 0.9 * needed if needed < 1 else 1.0)
    return _slower_goal(result.model(), overrides, slower) if slower < 1 else (None, "")


def _slower_goal(
    model: LawModel, overrides: Mapping[str, str], slower: float
) -> tuple[str | None, str]:
    """Return the goal that slows a rule down, with this fraction of its value."""
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
    law: str, place: OperatingRange, fixed: Mapping[str, str]
) -> tuple[tuple[float, float], str]:
    """Return the numbers of flows to design for, and the set-point as a text.

    The set-point is a quarter of the bandwidth-delay product, but at least 5 packets, enough for a
    window of 4 packets per flow, and at most half of the buffer. A delay that is the law's default
    stays where it fits. An unknown number of flows is reduced until such windows fit.
    """
    product_pkts = place.product_pkts
    most_pkts = MOST_OF_BUFFER * place.room_pkts
    few, many = place.flows or (ASSUMED_FLOWS, ASSUMED_FLOWS)

    def target_pkts_for(flows: float) -> float:
        least = max(LEAST_TARGET_PKTS, LEAST_WINDOW_PKTS * flows - product_pkts)
        return max(1.0, min(max(TARGET_SHARE * product_pkts, least), most_pkts))

    own = _own_set_point(law, fixed)
    target = own
    if target is None:
        target = f"{_rounded(target_pkts_for(few)):g}p"
    target_pkts = _native.set_point_pkts("target", target, place.rate_bps, place.packet_bytes)
    if own is not None and "target" not in fixed:
        least = max(LEAST_TARGET_PKTS, LEAST_WINDOW_PKTS * few - product_pkts)
        if not min(least, most_pkts) <= target_pkts <= most_pkts:
            target = f"{_rounded(target_pkts_for(few)):g}p"
            target_pkts = float(target.removesuffix("p"))
    if place.flows is None:
        # An assumed number of flows gives way to the link.
        able = (product_pkts + target_pkts) / LEAST_WINDOW_PKTS
        few = many = max(1.0, min(few, math.floor(able)))
    return (few, many), target


def _own_set_point(law: str, fixed: Mapping[str, str]) -> str | None:
    """Return the fixed set-point, or a delay that is the law's default.

    None for a default in packets, which is meant for another link.
    """
    if "target" in fixed:
        text = fixed["target"]
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
    """Return a sentence on the design of a law for its link."""
    few, many = flows
    count = (
        f"{few:g} flow{'' if many == 1 else 's'}" if few == many else f"{few:g} to {many:g} flows"
    )
    if place.flows is None:
        count = f"{few:g} flow{'' if few == 1 else 's'} or more (assumed)"
    count += "" if place.tcp == PLAIN else f" of {place.tcp}"
    if place.short_flows:
        short = float(f"{place.short_flows:.3g}")
        count += f" and {short:g} short flow{'' if short == 1 else 's'} at a time"
    if place.other_bps:
        count += f" and {quantities.rate(float(f'{place.other_bps:.3g}'))} of other traffic"
    rtt = _rtt(place)
    words = f"{law} designed for {quantities.rate(place.rate_bps)}, {rtt}, {count}: "
    words += _values(params) or "all parameters were fixed"
    if result.loop is None:
        return words
    if peak is None:
        return words + "; unstable by the linear model"
    words += f"; peak sensitivity {peak:.2g}"
    if peak > ROBUST_PEAK:
        words += ", above 2: expect oscillation"
    step = result.gain_step
    if step is not None:
        words += (
            f"; the gain schedule switches within {step.headroom_pkts:.2g} packets of the "
            "set-point, so the mean queue exceeds it; consider pi2"
        )
    if math.isfinite(result.settling_s):
        words += f", settling time {result.settling_s:.2g} s"
    if many > few:
        after_s = unwinding_s(result, place.counted(many, result.target_pkts))
        if after_s > result.settling_s:
            words += f", {after_s:.2g} s after {many - few:g} flows have left"
        if max(after_s, result.settling_s) > SETTLED_S:
            words += f" (more than {SETTLED_S:g} s)"
    return words


# --- without a rule -----------------------------------------------------------------------------


def _scaled(
    law: str, place: OperatingRange, fixed: Mapping[str, str], model: LawModel, why: str
) -> Fitted:
    """Return the defaults of a law without a design, changed where they do not fit the link.

    Parameters follow the authors' advice for the link. If the largest threshold exceeds the
    buffer, all thresholds are scaled so that it is `MOST_OF_BUFFER` of the buffer.
    """
    chosen = {name: text for name, text in model.fitted(place.rtt_s[1]) if name not in fixed}
    entry = registries.law(law)
    queues = {}
    for spec in entry["params"]:
        name, default = spec["name"], spec["default"]
        if spec["unit"] != "p" or name in fixed or name in chosen:
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
    shortest, longest = place.rtt_s
    if shortest == longest:
        return quantities.time(longest)
    return f"{quantities.time(shortest)} to {quantities.time(longest)}"
