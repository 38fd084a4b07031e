"""Design of a law for a link: the rule's gains, then an interval and goals that suit the link.

`design` takes these steps, each of which may replace the draft of the previous one:

1. The rule's gains at the law's default interval (`design_rule.design_once`), or at an interval
that suits the RTT if the rule has no gains for the default.
2. An interval that suits the RTT, if the default interval gives a worse loop.
3. Advice, if the loop is not robust.
4. A stable loop by the advice, or by the exact set of robust gains of a PI, if the rule's default
goals give none.
5. Goals whose gains are in the range of Linux's qdisc of the law.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import forebay._native as _native
from forebay._base import registries
from forebay._base.errors import ParameterError
from forebay._base.quantities import Overrides
from forebay._base.registries import law_pairs
from forebay._native import ScenarioError
from forebay.control import margins, measured_law, pi_forms, pi_stabilising_set
from forebay.control.design_rule import SLOWER, design_once
from forebay.control.designed_law import DEVIATIONS, Design, RobustSetting
from forebay.control.link import Link, Quantity, text_of
from forebay.control.margins import ROBUST_PEAK
from forebay.control.pi_stabilising_set import TAKEN, PiGains
from forebay.scenario import router

if TYPE_CHECKING:
    from forebay.scenario.python_laws import Prototype

#: Largest ratio of sampling interval and RTT: a longer interval costs more phase than the rules
#: leave. PI-PD's rule has the same bound.
LONGEST = 0.25
#: Factors on a goal that are tried, the nearest ones first.
LESS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
MORE = (1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)


def design(
    law: str | Prototype,
    link: Link,
    *,
    target: Quantity | None = None,
    overrides: Overrides = (),
) -> Design:
    """Design a law for a link.

    Parameters
    ----------
    law : str or class
        A name of `forebay laws`; or a law written in Python, as ``"FILE.py:NAME"`` or as its class,
        whose linear model is measured with its parameters unchanged.
    link : Link
        The link and its flows.
    target : str or float, optional
        The queue length or queuing delay to hold, such as ``"175p"`` or ``"40ms"``; a quarter of
        the bandwidth-delay product by default. ``"target"`` in `overrides` means the same.
    overrides : dict, str or sequence, optional
        Goals of the design rule (``{"beta": 0.3}``), and parameters of the law that the design
        leaves alone (``{"interval": "10ms"}``).

    Returns
    -------
    Design
        The law with its parameters, operating point, loop and margins. A law without a design rule
        is analysed with its parameters unchanged.

    Raises
    ------
    ScenarioError
        If the law, a quantity or a parameter is wrong, if the law has neither a design rule nor a
        linear model, or if no goal of its rule gives a stable loop.

    Notes
    -----
    Where the rule's default goals give an unstable loop, the design chooses a slower goal
    (`Design.unstable_goal`). Where Linux has the law, and the default goals give gains outside the
    range of Linux's qdisc, the design chooses the nearest goals that give a robust loop within that
    range, and a note says so. Goals and gains in `overrides` are never changed.

    Examples
    --------
    >>> link = forebay.Link(rate="50Mbit/s", rtt="40ms", flows=30)
    >>> forebay.design("pi", link, target="20ms").params
    """
    settings = dict(law_pairs(law, overrides))
    target = _one_target(target, settings.pop("target", None))
    target_pkts = link.set_point_pkts(target)
    link = link.with_buffer_for(target_pkts, default=target is None)
    if measured_law.is_python(law):
        return _measured(law, link, target_pkts, settings, target)
    assert isinstance(law, str)
    draft = _at_fitting_interval(law, link, target_pkts, settings)
    if draft.loop is None:
        return _stable_rates(draft, settings)
    draft = _with_interval(draft, settings)
    draft = replace(draft, advice=_robust_setting(draft, settings))
    return _within_linux(_stable(draft, settings), settings)


def _one_target(target: Quantity | None, override: str | None) -> str | None:
    """Return the set-point, which is an argument or a parameter of the law.

    Raises `ParameterError` if both are given and differ.
    """
    text = None if target is None else text_of(target, "queue")
    if text is not None and override is not None and text != override:
        reason = f'the overrides have another set-point, "{override}"'
        raise ParameterError("target", text, "one of them", reason=reason)
    return text if override is None else override


def _measured(
    law: str | Prototype,
    link: Link,
    target_pkts: float,
    settings: dict[str, Any],
    target: str | None,
) -> Design:
    """Return a Python law with its parameters on a link, with its measured loop.

    Raises `ScenarioError` if the law cannot be read, or has no linear model there.
    """
    name, source, params, notes, equilibrium = measured_law.measure(law, link, settings, target)
    plant = measured_law.flows_on(link)
    if target is None:
        target_pkts = equilibrium.model["queue_pkts"]
    return Design(
        name,
        link,
        target_pkts,
        {},
        params,
        notes,
        equilibrium.point,
        plant.loop(equilibrium),
        senders=plant.mixed_senders(equilibrium),
        source=source,
    )


# --- the sampling interval ----------------------------------------------------------------------


def _at_fitting_interval(
    law: str, link: Link, target_pkts: float, settings: Mapping[str, str]
) -> Design:
    """Return the design at the law's default interval, or at one that suits the RTT.

    A rule may have no gains at the default, such as 6.25 ms on a path of 0.1 ms. Raises
    `ScenarioError`.
    """
    try:
        return design_once(law, link, target_pkts, settings)
    except ScenarioError:
        own_s = None if "interval" in settings else _own_interval_s(law)
        rtt_s = link.rtt_s + 8 * link.packet_bytes * target_pkts / link.rate_bps
        if own_s is None or own_s <= LONGEST * rtt_s:
            raise
        interval = _fitting_interval(law, rtt_s)
        draft = _attempt(law, link, target_pkts, {**settings, "interval": interval})
        if draft is None or draft.loop is None or draft.loop.interval_s is None or not draft.stable:
            raise
        return replace(draft, impossible_s=own_s)


def _with_interval(draft: Design, settings: Mapping[str, str]) -> Design:
    """Return the design at an interval that suits the RTT, if the default interval does not.

    An interval that is given stays.
    """
    loop, own_s = draft.loop, _own_interval_s(draft.law)
    if loop is None or loop.interval_s is None or own_s is None or "interval" in settings:
        return draft
    rtt_s = draft.point.rtt_s
    # Rules that choose the interval consider the RTT, and other clocks sample no queue.
    if abs(loop.interval_s - own_s) > 1e-6 * own_s or own_s <= LONGEST * rtt_s:
        return draft
    interval = _fitting_interval(draft.law, rtt_s)
    variant = _again(draft, {**settings, "interval": interval})
    if variant is None or variant.loop is None or peak_of(variant) > 0.95 * peak_of(draft):
        return draft
    return replace(variant, published=loop)


def _attempt(
    law: str, link: Link, target_pkts: float, settings: Mapping[str, str]
) -> Design | None:
    """Return the design by the rule alone; None where there is none."""
    try:
        return design_once(law, link, target_pkts, settings)
    except ScenarioError:
        return None


def _again(draft: Design, settings: Mapping[str, str]) -> Design | None:
    """Return a draft's law and link designed with other settings; None where that fails."""
    return _attempt(draft.law, draft.link, draft.target_pkts, settings)


def _own_interval_s(law: str) -> float | None:
    spec = _interval_spec(law)
    if spec is None:
        return None
    own = spec["default"]
    return own if isinstance(own, float) else _native.quantity("interval", own, "time")


def _fitting_interval(law: str, rtt_s: float) -> str:
    """Return a fifth of the RTT, or the shortest interval that the law accepts."""
    spec = _interval_spec(law)
    least_s = 0.0 if spec is None else spec["min"] or 0.0
    return f"{1e3 * max(TAKEN * rtt_s, least_s):.2g}ms"


def _interval_spec(law: str) -> Any:
    return registries.parameter(law, "interval") if law in registries.laws() else None


def _kept_interval(draft: Design) -> dict[str, str]:
    """Return the interval of a draft that does not have the law's default one."""
    if draft.published is None and draft.impossible_s is None:
        return {}
    return {"interval": dict(draft.params)["interval"]}


# --- robustness ---------------------------------------------------------------------------------


def peak_of(draft: Design, enough: float = math.inf) -> float:
    """Return the sensitivity peak |1/(1 + L)| of a design; ``inf`` for an unstable loop.

    Parameters
    ----------
    draft : Design
        The design.
    enough : float, optional
        A peak above this value is approximate, which is much faster.
    """
    if draft.loop is None or not draft.loop.stable:
        return math.inf
    if math.isfinite(enough):
        return margins.peak(draft.loop.terms, draft.loop.grid, enough)
    return draft.loop.peak


def _robust_setting(draft: Design, settings: Mapping[str, str]) -> RobustSetting | None:
    """Return the nearest setting that makes the loop robust; None for a robust loop."""
    peak = peak_of(draft)
    if peak <= ROBUST_PEAK:
        return None
    for key, value in _tried(draft, settings):
        target_pkts = draft.target_pkts
        if key == "target":
            target_pkts = float(value.removesuffix("p"))
        varied = {**settings, **_kept_interval(draft), key: value}
        variant = _attempt(draft.law, draft.link, target_pkts, varied)
        if variant is None:
            continue
        then = peak_of(variant, ROBUST_PEAK)
        if then <= ROBUST_PEAK and variant.loop is not None:
            return RobustSetting(peak, key, value, then, variant.loop)
    return RobustSetting(peak)


def _tried(draft: Design, settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield settings from the nearest on.

    The goal that slows the law comes first, then its other goals, its interval, and the set-point.
    """
    model = draft.model()
    values = {name: value for name, value, _ in model.goals}
    slowed = model.slowed_by
    if slowed is not None and slowed not in values:
        values[slowed] = dict(draft.params)[slowed]
    if draft.gain_params and all(name in settings for name in draft.gain_params):
        # The rule is not used.
        values = {}
    for key in sorted(values, key=lambda key: key != slowed):
        try:
            now = float(settings.get(key, values[key]))
        except ValueError:
            continue
        for factor in LESS if key == slowed else (*LESS, *MORE):
            yield key, f"{factor * now:.3g}"
    if draft.loop is not None and draft.loop.interval_s is not None:
        for share in (0.1, 0.05):
            if share * draft.point.rtt_s < 0.9 * draft.loop.interval_s:
                yield "interval", f"{1e3 * share * draft.point.rtt_s:.2g}ms"
    if "target" in dict(draft.params):
        for factor in (1.5, 2.0, 3.0, 4.0):
            if factor * draft.target_pkts < 0.9 * draft.link.buffer_pkts:
                yield "target", f"{factor * draft.target_pkts:.4g}p"


def _rule_keys(draft: Design) -> set[str]:
    """Return the goals and the gains of a law's rule."""
    return {name for name, _, _ in draft.model().goals} | set(draft.gain_params)


def _stable(draft: Design, settings: Mapping[str, str]) -> Design:
    """Return the draft if it is stable or has fixed gains, or else the nearest stable design.

    That design is the one that the advice names, or a PI of the robust set, since a rule may refuse
    gains that its own margins call unstable. Raises `ParameterError` if there is none.
    """
    by_hand = any(key in settings for key in _rule_keys(draft))
    if draft.stable or by_hand or not draft.gains:
        return draft
    advice = draft.advice
    key, value = (advice.key, advice.value) if advice is not None else (None, None)
    # The rule does not choose the set-point.
    if key is not None and value is not None and key != "target":
        varied = {**settings, **_kept_interval(draft), key: value}
        variant = design_once(draft.law, draft.link, draft.target_pkts, varied)
        return replace(variant, published=draft.published, unstable_goal=advice)
    robust = _of_robust_set(draft, settings)
    if robust is not None and robust.stable:
        return robust
    alternative = f"the set-point {value}" if key == "target" else "another set-point"
    expected = f"{alternative}, or another law"
    reason = "its rule gives no stable loop on this link with any of its goals"
    raise ParameterError("law", draft.law, expected, reason=reason)


def _stable_rates(draft: Design, settings: Mapping[str, str]) -> Design:
    """Return the loop of a law that acts on rates, if it is stable or has fixed gains.

    Raises `ParameterError` otherwise, since such a rule has no goals.
    """
    if draft.stable or any(key in settings for key in _rule_keys(draft)):
        return draft
    moved = " and ".join(name for name in draft.gain_params if name in draft.gains)
    expected = f"smaller windows, another law, or a given {moved}, to see the roots"
    reason = (
        f"its loop of rates is stable with no {moved}: with {draft.point.window_pkts:.3g} packets "
        "a flow, the rate depends on marks too steeply"
    )
    raise ParameterError("law", draft.law, expected, reason=reason)


def _of_robust_set(draft: Design, settings: Mapping[str, str]) -> Design | None:
    """Return a PI with gains of its exact robust set; None for other laws or without gains."""
    form, loop = pi_forms.pi_law(draft.law), draft.loop
    if form is None or loop is None or loop.interval_s is None:
        return None
    target = dict(draft.params)[form.keys[0]]
    corner = pi_stabilising_set.corner_on(form, draft.link, target, loop.interval_s)
    if isinstance(corner, str):
        return None

    def with_gains(gains: PiGains) -> Design:
        texts = dict(form.texts(gains.a, gains.b))
        varied = {**settings, **_kept_interval(draft), **texts}
        return design_once(draft.law, draft.link, draft.target_pkts, varied)

    try:
        gains = pi_stabilising_set.choose([corner], loop.interval_s)
        robust = with_gains(gains)
        headroom, step = robust.headroom, robust.gain_step
        # The largest integral has a K_p by which the queue's own oscillation takes p to zero, or
        # past a step of its gains.
        cut = headroom is not None and not headroom.suffices
        share = 1.0
        if headroom is not None and cut:
            share = headroom.headroom_pkts / (DEVIATIONS * headroom.deviation_pkts)
        if step is not None:
            within = step.headroom_pkts / (DEVIATIONS * step.deviation_pkts)
            share = min(share, max(within, SLOWER))
        if share < 1:
            gains = pi_stabilising_set.choose([corner], loop.interval_s, share * gains.k_p)
            robust = with_gains(gains)
    except ScenarioError:
        return None
    clear = step is not None and robust.gain_step is None
    note = (
        "The law's rule has no stable gains on this link. These have the largest integral gain "
        f"with which |1/(1 + L)| is at most {ROBUST_PEAK:g}"
        + (", and the queue's own oscillation does not take the probability to zero" if cut else "")
        + (", and they stay within one step of the law's gains" if clear else "")
        + "."
    )
    values = {"k_p": gains.k_p, "k_i": gains.k_i}
    return replace(robust, gains=values, notes=[note], published=draft.published)


# --- the range of Linux's qdisc -----------------------------------------------------------------


def _within_linux(draft: Design, settings: Mapping[str, str]) -> Design:
    """Return a robust design whose gains are in the range of Linux's qdisc, if there is one.

    The draft itself is returned if Linux has no such qdisc, if its gains are in range, if gains or
    goals are fixed, and if no robust design is in range.
    """
    if draft.loop is None or any(key in settings for key in _rule_keys(draft)):
        return draft
    beyond = _beyond_linux(draft)
    model = draft.model()
    goals = {name: value for name, value, _ in model.goals}
    goal = model.slowed_by
    if beyond is None or goal not in goals:
        return draft
    try:
        usual = float(goals[goal])
    except ValueError:
        return draft
    # At least as robust as the rule's own design.
    largest_peak = max(ROBUST_PEAK, peak_of(draft))
    if not math.isfinite(largest_peak):
        return draft
    for factor in sorted((*LESS, *MORE), key=lambda factor: abs(math.log(factor))):
        value = f"{factor * usual:.3g}"
        varied = {**settings, **_kept_interval(draft), goal: value}
        variant = _again(draft, varied)
        if variant is None:
            continue
        if peak_of(variant, largest_peak) <= largest_peak and _beyond_linux(variant) is None:
            note = (
                f"The rule's default goal, {goal} = {goals[goal]}, gives {beyond}, outside the "
                f"range of Linux's {draft.law}; {goal} = {value} gives gains within it."
            )
            return replace(variant, notes=[note, *variant.notes], published=draft.published)
    return draft


def _beyond_linux(draft: Design) -> str | None:
    """Return the first gain outside the range of Linux's qdisc, such as "beta = 3.1"."""
    link = draft.link
    try:
        router.settings(
            draft.law,
            draft.params,
            rate_bps=link.rate_bps,
            packet_bytes=link.packet_bytes,
            buffer_pkts=max(1, round(link.buffer_pkts)),
        )
    except ScenarioError as error:
        params = dict(draft.params)
        for name in draft.gain_params:
            if f" {name}: " in f" {error}":
                return f"{name} = {params[name]}"
    return None
