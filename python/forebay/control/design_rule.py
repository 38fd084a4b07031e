"""A law's design rule, applied to a link with any senders: from goals to a `Design`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from forebay._base import registries
from forebay._base.errors import ParameterError
from forebay._base.words import one_of
from forebay._native import LawModel, OperatingPoint, ScenarioError
from forebay.control import margins
from forebay.control.delay_system import RateLoop
from forebay.control.designed_law import Design, deviation_of_classes, step_within
from forebay.control.link import Link, whole
from forebay.control.loop import Loop
from forebay.control.margins import ROBUST_PEAK
from forebay.control.plant import Equilibrium, Plant
from forebay.control.plants import plant_on
from forebay.control.senders import SENDERS

if TYPE_CHECKING:
    from forebay._native import DesignedLaw

#: Largest factors by which a rule is asked for more and for fewer Reno flows; a plant beyond them
#: is of another kind. Number of bisections between a robust loop and one that is not.
MORE, FEWER, HALVINGS = 2.0**12, 2.0**4, 5
#: Smallest fraction of the robust gains that is used to keep the queue's own oscillation within one
#: step of a law's gains.
SLOWER = 1 / 4
#: Sets of coefficients of a controller, which belong together.
COEFFICIENTS = ({"a", "b"}, {"k_p", "k_i", "k_d"}, {"alpha", "beta"}, {"gamma", "alpha"})


def design_once(law: str, link: Link, target_pkts: float, settings: Mapping[str, str]) -> Design:
    """Return a law designed for a link by its rule alone.

    Parameters
    ----------
    law : str
        Name of the law in `forebay laws`.
    link : Link
        The link and its flows.
    target_pkts : float
        The set-point in packets.
    settings : dict
        Goals of the rule and parameters of the law, as texts.

    Raises
    ------
    ScenarioError
        If a goal or parameter is wrong, or the flows have no equilibrium under the law.
    """
    names = [name for name, _, _ in link.model(law, []).goals]
    _check_keys(law, names, settings)
    goals = [(key, value) for key, value in settings.items() if key in names]
    # Fixed values stay, even if the rule has others.
    by_hand = {key: value for key, value in settings.items() if key not in names}
    params = [*by_hand.items()]
    if "target" in _params(law):
        params.append(("target", f"{target_pkts:.12g}p"))
    base, plant = link.model(law, params), plant_on(link, law, params)
    target = _target_point(link, target_pkts, plant, base)
    rule_point = target
    if not plant.published:
        rule_point = reno_equivalent(law, link, target_pkts, tuple(params)) or target
    marked = any(SENDERS[group.tcp].ecn for group in link.groups)
    answer = base.design(rule_point, target_pkts, goals, target.probability, marked=marked)
    values = dict(answer["params"]) | dict(answer["settings"]) if answer is not None else {}
    gain_params = gain_params_of(answer["params"] if answer is not None else ())
    notes = _notes(answer, plant, rule_point, target)
    gains = {} if answer is None else answer["gains"]
    if fixed := _fixed_gains(law, gain_params, by_hand, goals):
        gains, notes = {}, [f"{', '.join(fixed)} as given: the rule's own numbers are not used."]
    params = list((dict(params) | values | by_hand).items())
    try:
        plant = plant_on(link, law, params)
    except ScenarioError as error:
        raise _impossible_gains(law, gain_params, by_hand, error) from None
    design = Design(
        law, link, target_pkts, gains, params, notes, target, None, gain_params=gain_params
    )
    equilibrium = plant.equilibrium(link.flows, link.rtt_s)
    if equilibrium is None:
        rates = _rate_loop(law, link, plant, target, ruled=answer is not None)
        return replace(design, rates=rates)
    return replace(
        design, point=equilibrium.point, loop=plant.loop(equilibrium),
        classes=plant.coupled_classes(equilibrium), senders=plant.mixed_senders(equilibrium),
    )  # fmt: skip


def _fixed_gains(
    law: str,
    gain_params: Sequence[str],
    by_hand: Mapping[str, str],
    goals: Sequence[tuple[str, str]],
) -> list[str]:
    """Return the gains that are given. Raises `ScenarioError` for some of them, or with goals."""
    fixed = [name for name in gain_params if name in by_hand]
    if fixed:
        check_all_gains(law, gain_params, by_hand)
    if goals and fixed and len(fixed) == len(gain_params):
        reason = f"it is a goal of {law}'s rule, but its gains {', '.join(fixed)} are given, too"
        raise ParameterError("overrides", goals[0][0], "goals, or gains", reason=reason)
    return fixed


def _target_point(link: Link, target_pkts: float, plant: Plant, base: LawModel) -> OperatingPoint:
    """Return the operating point at the target queue, with Reno flows, for which rules are made.

    Raises `ParameterError` if the flows would need a probability of 1 or more.
    """
    flows = plant.reno_flows(link.flows, link.rtt_s, target_pkts)
    capacity = base.capacity_pkts_per_s
    target = OperatingPoint(flows, link.rtt_s + target_pkts / capacity, capacity)
    if target.probability < 1:
        return target
    if not plant.published:
        reason = f"these flows need a probability of {target.probability:.3g}"
        raise _too_many(link, reason, "fewer flows, so that it is below 1")
    limit = 2**-0.5 * capacity * target.rtt_s
    if link.l4s_flows:
        raise ParameterError(
            "l4s_flows",
            whole(link.l4s_flows),
            f"the equivalent of at most {limit:.3g} Reno flows at this rate, RTT and set-point",
            reason=f"with {link.flows:g} classic flows they equal {flows:.3g} Reno flows",
        )
    raise ParameterError(
        "flows", whole(flows), f"at most {limit:.3g} at this rate, RTT and set-point"
    )


def _too_many(link: Link, reason: str, expected: str) -> ParameterError:
    """Return the error of a number of flows for which there is no equilibrium."""
    return ParameterError("flows", whole(link.flows), expected, reason=reason)


def _rate_loop(
    law: str, link: Link, plant: Plant, target: OperatingPoint, *, ruled: bool
) -> RateLoop:
    """Return the loop of a law that acts on rates. Raises `ScenarioError` for other laws."""
    control = plant.law.rate_control
    if control is not None and not plant.published:
        reason = f"{law} acts on rates"
        raise ParameterError("senders", link.senders, "reno with one RTT", reason=reason)
    if control is not None and ruled:
        utilisation, k_p, k_i, k_d = control
        capacity = plant.law.capacity_pkts_per_s
        return RateLoop(capacity, target.flows, target.rtt_s, k_i, k_p, k_d, utilisation)
    if not ruled and plant.law.linear(target) is None:
        laws = registries.laws().items()
        modelled = [name for name, entry in laws if entry["has_rule"] or entry["modelled"]]
        reason = "it has neither a design rule nor a linear model"
        raise ParameterError("law", law, ", ".join(modelled), reason=reason)
    raise _no_equilibrium(law, link, plant)


# --- senders other than Reno --------------------------------------------------------------------


@lru_cache(maxsize=1 << 10)
def reno_equivalent(
    law: str, link: Link, target_pkts: float, params: tuple[tuple[str, str], ...]
) -> OperatingPoint | None:
    """Return the Reno-equivalent operating point for a link, with the rule's default goals.

    It has the largest number of Reno flows for which the rule's gains keep Ms ≤ 2 with the link's
    actual senders, or a smaller one with which the queue's own oscillation crosses no step of the
    law's gains.

    Parameters
    ----------
    law : str
        Name of the law.
    link : Link
        The link and its flows.
    target_pkts : float
        The set-point in packets.
    params : tuple of (name, value)
        Parameters of the law.

    Returns
    -------
    OperatingPoint or None
        None for a law without a rule, and for a law that does not integrate: its rule needs the
        equilibrium p.
    """
    base, capacity = link.model(law, params), link.rate_bps / (8 * link.packet_bytes)
    rtt_s = link.rtt_s + target_pkts / capacity

    def point(flows: float) -> OperatingPoint:
        return OperatingPoint(flows, rtt_s, capacity)

    alike = plant_on(link, law, params).reno_flows(link.flows, link.rtt_s, target_pkts)
    start = point(alike)
    model = base.linear(start)
    if model is None or not model["integrates"] or base.design(start, target_pkts, []) is None:
        return None

    @cache
    def by_rule(flows: float) -> tuple[Plant, Loop] | None:
        return _by_rule(law, link, target_pkts, params, point(flows), start.probability)

    @cache
    def robust(flows: float) -> bool:
        plant_and_loop = by_rule(flows)
        if plant_and_loop is None:
            return False
        loop = plant_and_loop[1]
        return loop.stable and margins.peak(loop.terms, loop.grid) <= ROBUST_PEAK

    good = _most_robust(robust, alike)
    if good is None:
        return None
    # Smaller gains would cost more than steps of the gain schedule do.
    candidates = (good * SLOWER ** (i / HALVINGS) for i in range(HALVINGS + 1))
    clear = (flows for flows in candidates if robust(flows) and not _crosses_step(by_rule(flows)))
    return point(next(clear, good))


def _by_rule(
    law: str,
    link: Link,
    target_pkts: float,
    params: tuple[tuple[str, str], ...],
    point: OperatingPoint,
    probability: float,
) -> tuple[Plant, Loop] | None:
    """Return the plant and loop of a link with the rule's gains for another operating point."""
    try:
        answer = link.model(law, params).design(point, target_pkts, [], probability)
        assert answer is not None
        values = dict(params) | dict(answer["params"]) | dict(params)
        plant = plant_on(link, law, [*values.items()])
        loop = plant.loop_at(link.flows, link.rtt_s)
    except ScenarioError:
        return None
    return None if loop is None else (plant, loop)


def _bracket(robust: Callable[[float], bool], alike: float) -> tuple[float, float] | None:
    """Return a number of flows with a robust loop and one without; None if there is no edge.

    The rule compensates the lower plant gain of more Reno flows by a larger gain of the law.
    """
    good, step = alike, 2.0
    if not robust(good):
        while not robust(good):
            good, bad = good / step, good
            if good < alike / FEWER:
                return None
        return good, bad
    while good < MORE * alike:
        bad = good * step
        if not robust(bad):
            return good, bad
        good = bad
    # The rule's gains do not matter, since the law adapts to the load.
    return None


def _most_robust(robust: Callable[[float], bool], alike: float) -> float | None:
    """Return the largest number of flows that is robust, by bisection; None as in `_bracket`."""
    bracket = _bracket(robust, alike)
    if bracket is None:
        return None
    good, bad = bracket
    for _ in range(HALVINGS):
        middle = math.sqrt(good * bad)
        good, bad = (middle, bad) if robust(middle) else (good, middle)
    return good


def _crosses_step(plant_and_loop: tuple[Plant, Loop] | None) -> bool:
    """Return True if the queue's own oscillation crosses a step of the law's gains."""
    if plant_and_loop is None:
        return False
    plant, loop = plant_and_loop
    senders = plant.mixed_senders(Equilibrium(loop.point, loop.model))
    if senders is None:
        return False
    return step_within(plant.law, loop, deviation_of_classes(senders)) is not None


# --- words --------------------------------------------------------------------------------------


def _notes(
    answer: DesignedLaw | None, plant: Plant, rule_point: OperatingPoint, target: OperatingPoint
) -> list[str]:
    """Return the rule's notes, and the operating point that it was asked for if that differs."""
    if answer is None:
        return ["The law has no design rule: its parameters are unchanged."]
    if plant.published:
        return answer["notes"]
    if rule_point is target:
        why = f"{target.flows:.3g} flows of Reno, which need the same p0"
    else:
        why = (
            f"{rule_point.flows:.3g} flows of Reno, the most for which its gains keep the "
            f"sensitivity peak of the actual loop at or below {ROBUST_PEAK:g} "
            f"({target.flows:.3g} flows of Reno need the same p0)"
        )
    note = f"The law's design rule is for Reno alone: it was applied to {why}. "
    return [note + "Its notes for those:", *answer["notes"]]


def _no_equilibrium(law: str, link: Link, plant: Plant) -> ParameterError:
    """Return the error of flows that have no equilibrium under a law, with the reason."""
    how, queue_pkts, p, _ = plant.settle(link.flows, link.rtt_s)
    one_flow = link.flows == 1
    flows = f"{link.flows:g} flow{'' if one_flow else 's'}"
    need = "needs" if one_flow else "need"
    at = f" at a queue of {queue_pkts:.4g} packets" if queue_pkts else ""
    if how == "small":
        least = f"the windows would be below the smallest that {link.senders} keeps{at}"
        return _too_many(link, least, "fewer flows")
    if how == "saturated":
        reason = f"these flows need a probability of {p:.3g}{at}"
        return _too_many(link, reason, "fewer flows, so that it is below 1")
    if how == "full":
        return ParameterError(
            "buffer",
            f"{link.buffer_pkts}p",
            f'at least "{math.ceil(queue_pkts or 0)}p", fewer flows, or other parameters',
            reason=f"it overflows before the equilibrium of {flows}{at}",
        )
    reason, expected = {
        "jump": (
            f"its probability jumps{at} past the {p:.3g} that {flows} {need}, so the loop "
            "limit-cycles across the discontinuity",
            "fewer flows, or other parameters",
        ),
        "empty": (
            f"its probability at an empty queue is above the {p:.3g} that {flows} {need}, so "
            "the link is not fully used",
            "a lower set-point, more flows, or other parameters",
        ),
    }.get(
        how,
        (f"it has no linear model at any queue for {flows}", "fewer flows, or other parameters"),
    )
    return ParameterError("law", law, expected, reason=reason)


def _params(law: str) -> list[str]:
    """Return the names of a law's parameters; an empty list for an unknown law."""
    laws = registries.laws()
    return [spec["name"] for spec in laws[law]["params"]] if law in laws else []


def _check_keys(law: str, goals: list[str], settings: Mapping[str, str]) -> None:
    """Raise `ParameterError` for a key that is neither a goal nor a parameter."""
    names = [*goals, *(name for name in _params(law) if name not in goals)]
    for key in settings:
        if key not in names:
            reason = f"{law} has no such goal or parameter"
            raise ParameterError("overrides", key, one_of(names, key), reason=reason)


def _impossible_gains(
    law: str, gain_params: Sequence[str], by_hand: Mapping[str, str], error: ScenarioError
) -> ScenarioError:
    """Return the error to raise if the law refuses a gain that its design rule computed.

    If the user chose the sampling interval, the error names this interval as the cause; otherwise
    it names the gain. An error about a gain that the user gave is returned unchanged.
    """
    name, _, wrong = str(error).partition(": ")
    if name not in gain_params or name in by_hand:
        return error
    interval = by_hand.get("interval")
    if interval is None:
        return ScenarioError(f"law: the rule of {law} gives {name} on this link: {wrong}")
    return ParameterError(
        "overrides",
        interval,
        "a shorter interval",
        item="interval",
        reason=f"the rule of {law} then gives {name}: {wrong}",
    )


class LoneGainError(ParameterError):
    """Only some of a controller's coefficients are given."""


def gain_params_of(params: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the names of the parameters of a rule's answer, without set-point and interval."""
    return tuple(name for name, _ in params if name not in ("target", "interval"))


def check_all_gains(law: str, gain_params: Sequence[str], by_hand: Mapping[str, str]) -> None:
    """Raise an error if only some of a controller's coefficients are fixed.

    The coefficients of a rule belong together.

    Parameters
    ----------
    law : str
        Name of the law.
    gain_params : sequence of str
        Parameters that the rule chooses.
    by_hand : dict
        Parameters that are fixed.

    Raises
    ------
    LoneGainError
        If some of the coefficients are missing.
    """
    for together in COEFFICIENTS:
        names = [name for name in gain_params if name in together]
        missing = [name for name in names if name not in by_hand]
        if len(names) > 1 and 0 < len(missing) < len(names):
            chosen = ", ".join(name for name in names if name in by_hand)
            expected = f"all of {', '.join(names)} of {law}, or none"
            reason = f"{', '.join(missing)} missing"
            raise LoneGainError("overrides", chosen, expected, reason=reason)
