"""What a design does about an interval that does not suit its link, and advises about a loop that
amplifies too much."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import forebay._native as _native
from forebay._base import registries
from forebay._native import ScenarioError
from forebay.control import margins, pi_forms, pi_stabilising_set
from forebay.control.designed_law import SLOWER, CalmerSetting, Design, design_once
from forebay.control.gain_steps import ROOM
from forebay.control.headroom import gain_step, room
from forebay.control.loaded_link import LoadedLink
from forebay.control.margins import CALM as CALM
from forebay.control.pi_stabilising_set import TAKEN, PiGains
from forebay.scenario import router

#: A sampling interval beyond this share of the RTT costs a loop more phase than its rule gives
#: away: PI-PD's rule has the same bound.
LONGEST = 0.25
#: Factors on a goal, nearest first.
LESS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
MORE = (1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)


def design_at_fitting_interval(law: str, link: LoadedLink, given: Mapping[str, str]) -> Design:
    """The design at the law's own interval; at one that suits the RTT where the rule has no gains
    for the law's own, as with 6.25 ms on a path of 0.1 ms. Raises `ScenarioError`."""
    try:
        return design_once(law, link, given)
    except ScenarioError:
        own_s = None if "interval" in given else _own_interval_s(law)
        rtt_s = link.rtt_s + 8 * link.packet_bytes * link.target_pkts / link.rate_bps
        if own_s is None or own_s <= LONGEST * rtt_s:
            raise
        try:
            made = design_once(law, link, {**given, "interval": _taken(law, rtt_s)})
        except ScenarioError:
            made = None
        if made is None or made.loop is None or made.loop.interval_s is None or not made.stable:
            raise
        return replace(made, impossible_s=own_s)


def with_interval(made: Design, given: Mapping[str, str]) -> Design:
    """The design at an interval that suits the RTT, where the law's own does not and nobody has
    asked for it."""
    loop = made.loop
    assert loop is not None
    own_s = _own_interval_s(made.law)
    if loop.interval_s is None or own_s is None or "interval" in given:
        return made
    rtt_s = made.point.rtt_s
    # A rule that chooses the interval has thought of the RTT; other clocks sample no queue.
    if abs(loop.interval_s - own_s) > 1e-6 * own_s or own_s <= LONGEST * rtt_s:
        return made
    taken = _taken(made.law, rtt_s)
    try:
        other = design_once(made.law, made.link, {**given, "interval": taken})
    except ScenarioError:
        return made
    if other.loop is None or peak_of(other) > 0.95 * peak_of(made):
        return made
    return replace(other, published=loop)


def calmer_setting(made: Design, given: Mapping[str, str]) -> CalmerSetting | None:
    """None for a loop that is calm."""
    peak = peak_of(made)
    if peak <= CALM:
        return None
    for key, value in _tried(made, given):
        settings = {**given, **_interval(made), key: value}
        try:
            other = design_once(made.law, _link(made, key, value), settings)
        except ScenarioError:
            continue
        then = peak_of(other, CALM)
        if then <= CALM and other.loop is not None:
            return CalmerSetting(peak, key, value, then, other.loop)
    return CalmerSetting(peak)


def stable(made: Design, given: Mapping[str, str]) -> Design:
    """The design itself where it is stable, or what was asked of the rule by hand; else the one
    that its advice names, or a PI of the calm set, as a rule may not give gains that its own
    margins call unstable. Raises `ScenarioError` where there is none."""
    by_hand = any(key in given for key in _rules_keys(made))
    if made.stable or by_hand or not made.gains:
        return made
    advice = made.advice
    key, value = (advice.key, advice.value) if advice is not None else (None, None)
    # The set-point is not the rule's to move.
    if key is not None and value is not None and key != "target":
        calmer = design_once(made.law, made.link, {**given, **_interval(made), key: value})
        return replace(calmer, published=made.published, unstable_goal=advice)
    calm = _of_calm_set(made, given)
    if calm is not None and calm.stable:
        return calm
    wanted = f"--target {value}" if key == "target" else "another --target"
    raise ScenarioError(
        f"law: found {made.law}, whose rule gives no stable loop on this link with any of its "
        f"goals, allowed: {wanted}, or another law"
    )


def stable_rates(made: Design, given: Mapping[str, str]) -> Design:
    """`stable` for a loop of rates, whose rule has nothing to be asked for. Raises
    `ScenarioError`."""
    if made.stable or any(key in given for key in _rules_keys(made)):
        return made
    moved = " and ".join(name for name in made.gain_params if name in made.gains)
    raise ScenarioError(
        f"law: found {made.law}, whose loop of rates is stable with no {moved}: with "
        f"{made.point.window_pkts:.3g} packets a flow, marking answers the rate too steeply, "
        f"allowed: smaller windows, another law, or --set {moved}=… to see its roots"
    )


def _of_calm_set(made: Design, given: Mapping[str, str]) -> Design | None:
    """A PI by the exact set of its calm gains, for a link on which its rule has none; None of any
    other law, and where no gains are calm."""
    form, loop = pi_forms.pi_law(made.law), made.loop
    if form is None or loop is None or loop.interval_s is None:
        return None
    target = dict(made.params)[form.keys[0]]
    place = pi_stabilising_set.corner_on(form, made.link, target, loop.interval_s)
    if isinstance(place, str):
        return None

    def made_with(gains: PiGains) -> Design:
        params = form.params(gains.a, gains.b) or ()
        texts = {name: form.text(value, gains.a, gains.b) for name, value in params}
        return design_once(made.law, made.link, {**given, **_interval(made), **texts})

    try:
        gains = pi_stabilising_set.choose([place], loop.interval_s)
        found = made_with(gains)
        there, step = room(found), gain_step(found)
        # The largest integral has a K_p by which the queue's own moves take p to zero, or past a
        # step of its gains.
        moves = there is not None and not there.suffices
        share = there.room_pkts / (ROOM * there.swing_pkts) if there is not None and moves else 1.0
        if step is not None:
            share = min(share, max(step.room_pkts / (ROOM * step.swing_pkts), SLOWER))
        if share < 1:
            most_k_p = share * gains.k_p
            gains = pi_stabilising_set.choose([place], loop.interval_s, most_k_p)
            found = made_with(gains)
    except ScenarioError:
        return None
    clear = step is not None and gain_step(found) is None
    note = (
        "The law's rule has no gains that are stable here. These have the largest integral of all "
        f"with which |1/(1 + L)| is at most {CALM:g}"
        + (", and the queue's own moves do not take the probability to zero" if moves else "")
        + (", and they stay within one step of the law's gains" if clear else "")
        + "."
    )
    values = {"k_p": gains.k_p, "k_i": gains.k_i}
    return replace(found, gains=values, notes=[note], published=made.published)


def within_linux(design: Design, settings: Mapping[str, str]) -> Design:
    """Return a robust design whose gains Linux's qdisc of the law can have, where there is one.

    The design itself is returned where Linux has no such qdisc, where its gains are within the
    qdisc's range, where gains or goals were given by hand, and where no robust design is in range.
    """
    if design.loop is None or any(key in settings for key in _rules_keys(design)):
        return design
    beyond = _beyond_linux(design)
    model = design.model()
    goals = {name: value for name, value, _ in model.goals}
    goal = model.slowed_by
    if beyond is None or goal not in goals:
        return design
    try:
        usual = float(goals[goal])
    except ValueError:
        return design
    # As robust as the rule's own design, at least.
    largest_peak = max(CALM, peak_of(design))
    if not math.isfinite(largest_peak):
        return design
    for factor in sorted((*LESS, *MORE), key=lambda factor: abs(math.log(factor))):
        value = f"{factor * usual:.3g}"
        try:
            variant = design_once(
                design.law, design.link, {**settings, **_interval(design), goal: value}
            )
        except ScenarioError:
            continue
        if peak_of(variant, largest_peak) <= largest_peak and _beyond_linux(variant) is None:
            note = (
                f"The rule's own goal, {goal} = {goals[goal]}, gives {beyond}, which Linux's "
                f"{design.law} cannot have; {goal} = {value} gives gains that it can."
            )
            return replace(variant, notes=[note, *variant.notes], published=design.published)
    return design


def _beyond_linux(design: Design) -> str | None:
    """Return the first gain that is outside of the range of Linux's qdisc, as "beta = 3.1"."""
    buffer_pkts = max(1, round(design.link.buffer_pkts))
    link = design.link
    try:
        router.settings(
            design.law,
            design.params,
            rate_bps=link.rate_bps,
            packet_bytes=link.packet_bytes,
            buffer_pkts=buffer_pkts,
        )
    except ScenarioError as error:
        params = dict(design.params)
        for name in design.gain_params:
            if f" {name}: " in f" {error}":
                return f"{name} = {params[name]}"
    return None


def _rules_keys(made: Design) -> set[str]:
    """What a rule is asked for and what it answers, but for set-point and interval."""
    return {name for name, _, _ in made.model().goals} | set(made.gain_params)


def _link(made: Design, key: str, value: str) -> LoadedLink:
    if key != "target":
        return made.link
    return replace(made.link, target_pkts=float(value.removesuffix("p")))


def _tried(made: Design, given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Settings from the nearest on: the goal that slows the law, its other goals, its interval,
    and the set-point."""
    model = made.model()
    values = {name: value for name, value, _ in model.goals}
    slowed = model.slowed_by
    if slowed is not None and slowed not in values:
        values[slowed] = dict(made.params)[slowed]
    if made.gain_params and all(name in given for name in made.gain_params):
        # The rule is not asked.
        values = {}
    for key in sorted(values, key=lambda key: key != slowed):
        try:
            now = float(given.get(key, values[key]))
        except ValueError:
            continue
        for factor in LESS if key == slowed else (*LESS, *MORE):
            yield key, f"{factor * now:.3g}"
    if made.loop is not None and made.loop.interval_s is not None:
        for share in (0.1, 0.05):
            if share * made.point.rtt_s < 0.9 * made.loop.interval_s:
                yield "interval", f"{1e3 * share * made.point.rtt_s:.2g}ms"
    if "target" in dict(made.params):
        for factor in (1.5, 2.0, 3.0, 4.0):
            if factor * made.link.target_pkts < 0.9 * made.link.buffer_pkts:
                yield "target", f"{factor * made.link.target_pkts:.4g}p"


def _interval(made: Design) -> dict[str, str]:
    """The interval of a design that has taken one, to stay."""
    if made.published is None and made.impossible_s is None:
        return {}
    return {"interval": dict(made.params)["interval"]}


def peak_of(made: Design, enough: float = math.inf) -> float:
    """Of |1/(1 + L)|; infinite for a loop that is not stable. Above `enough` it is rough, and many
    times quicker."""
    if made.loop is None or not made.loop.stable:
        return math.inf
    if math.isfinite(enough):
        return margins.peak(made.loop.terms, made.loop.grid, enough)
    return made.loop.peak


def _own_interval_s(law: str) -> float | None:
    spec = _interval_spec(law)
    if spec is None:
        return None
    own = spec["default"]
    return own if isinstance(own, float) else _native.quantity("interval", own, "time")


def _taken(law: str, rtt_s: float) -> str:
    """A fifth of R, or the least that the law takes."""
    spec = _interval_spec(law)
    least_s = 0.0 if spec is None else spec["min"] or 0.0
    return f"{1e3 * max(TAKEN * rtt_s, least_s):.2g}ms"


def _interval_spec(law: str) -> Any:
    return registries.parameter(law, "interval") if law in registries.laws() else None
