"""A design in words: from the link to the margins, and what to change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.base.words import quantity as spaced
from forebay.theory.design.calmer_settings import CALM
from forebay.theory.loop.loop import Loop

if TYPE_CHECKING:
    from forebay.theory.design.designed_law import Design
    from forebay.theory.plant.classes_at_rest import MixedEquilibrium

#: Fast retransmit needs three packets after the lost one.
LEAST_WINDOW_PKTS = 4.0
#: Standard deviation of a window that moves evenly between 2/3 and 4/3 of its mean.
SAWTOOTH_SHARE = 1 / (3 * math.sqrt(3))
#: With room for this number of standard deviations of the queue, the probability seldom reaches
#: zero.
ROOM = 4.0


def paragraph(design: Design) -> str:
    """One paragraph from the link to the margins."""
    link = design.link
    sentences = [
        *(_reno(design) if design.senders is None else _mixed(design, design.senders)),
        *_classes(design),
        *design.notes,
    ]
    if design.window_pkts < LEAST_WINDOW_PKTS:
        sentences.append(
            "With windows this small TCP lives on timeouts, which the model does not know: "
            "believe the packets."
        )
    if abs(design.held_pkts - link.target_pkts) > 0.01 * link.target_pkts:
        sentences.append(
            f"The law does not hold the wanted {link.target_pkts:g} packets: where TCP has its "
            f"p0, the queue is at {design.queue_pkts:.1f}."
        )
    if design.loop is None:
        sentences.append(_rate_reasons(design))
    else:
        sentences += _loop_reasons(design, design.loop)
        sentences += _sawtooth(design)
    return " ".join(sentences)


def _reno(design: Design) -> list[str]:
    """Operating point and plant as published."""
    link, point = design.link, design.point
    per_s = point.capacity_pkts_per_s
    share = "has" if design.link.flows == 1 and design.classes is None else "share"
    return [
        f"{_who(design)} with {spaced(link.rtt)} of propagation {share} "
        f"{per_s:,.0f} packets per second. With {design.queue_pkts:.1f} packets in the queue the "
        f"RTT is R = {1e3 * point.rtt_s:.4g} ms, so a flow has W0 = RC/N = "
        f"{point.window_pkts:.2f} packets under way, for which TCP needs a signal for one "
        f"packet in {1 / point.probability:.0f}: p0 = 2/W0² = {100 * point.probability:.4g} %.",
        f"Near this point TCP's windows answer with a pole at 2N/(R²C) = {point.tcp_pole:.3g} "
        f"rad/s and the queue with one at 1/R = {point.queue_pole:.3g} rad/s, after a delay of "
        "R.",
    ]


def _mixed(design: Design, senders: MixedEquilibrium) -> list[str]:
    """Senders at rest and their plant."""
    point = design.point
    sentences = [
        f"{design.link.flows:g} flows share {point.capacity_pkts_per_s:,.0f} packets per second "
        f"with {design.queue_pkts:.1f} packets in the queue, and need a signal for one packet in "
        f"{1 / senders.probability:.0f}: p0 = {100 * senders.probability:.4g} %."
    ]
    for one in senders.classes:
        region = f", {one.region}" if one.region else ""
        sentences.append(
            f"{one.flows:g} of {one.tcp} with {1e3 * one.propagation_s:.4g} ms of propagation and "
            f"{1e3 * one.rtt_s:.4g} ms in all have {one.window_pkts:.2f} packets under way, and "
            f"{one.rate_pkts_per_s:.4g} packets per second each{region}."
        )
    many = len({one.rtt_s for one in senders.classes}) > 1
    sentences.append(
        "The plant is the sum of their paths from p to the queue, each with its own delay."
        if many
        else "The plant is that of their windows and the queue, after a delay of R."
    )
    return sentences


def _who(design: Design) -> str:
    both = design.classes
    if both is None:
        return f"{design.link.flows:g} flow{'' if design.link.flows == 1 else 's'}"
    return (
        f"{both.classic_flows:g} classic flows and {both.l4s_flows:g} of L4S, which need as much "
        f"signal as {design.point.flows:.3g} classic ones together,"
    )


def _classes(design: Design) -> list[str]:
    """Both classes at rest, where there are two."""
    both = design.classes
    if both is None:
        return []
    return [
        f"All this is of the classic flows: p0 is p'², with p' = {both.root:.4g}. L4S packets are "
        f"marked with k·p' = {both.probability_l4s:.4g}. A flow of L4S has "
        f"{both.window_l4s_pkts:.2f} packets under way in {1e3 * both.rtt_l4s_s:.4g} ms, and so "
        f"{both.rate_l4s_pkts_per_s:.0f} packets per second, beside "
        f"{both.rate_classic_pkts_per_s:.0f} of a classic one. The loop has the paths of both "
        "through the delay that the law sees."
    ]


def _rate_reasons(design: Design) -> str:
    assert design.rates is not None
    root = design.rates.system.rightmost()
    verdict = "stable" if design.stable else "unstable"
    return (
        f"The law acts on rates, not on the queue: its loop is {verdict}, with the rightmost "
        f"root at {root.real:.3g} ± {root.imag:.3g}j rad/s."
    )


def _loop_reasons(design: Design, loop: Loop) -> list[str]:
    margins = loop.margins
    sampled = (
        f"With the sampler at {1e3 * loop.interval_s:.4g} ms counted exactly, the"
        if loop.interval_s
        else "The"
    )
    if math.isnan(margins.crossover_rad_s) and margins.most_gain < 1:
        cross = f"{sampled} loop gain stays below one, at {margins.most_gain:.3g} or less,"
    elif math.isnan(margins.crossover_rad_s):
        cross = (
            f"{sampled} loop gain stays above one, at {margins.least_gain:.4g} or more up to half "
            "the sampling frequency,"
        )
    else:
        cross = (
            f"{sampled} loop gain falls through one at {margins.crossover_rad_s:.3g} rad/s "
            f"with a phase margin of {margins.phase_deg:.1f}°"
        )
    gain = (
        f"a gain margin of {margins.gain_db:.1f} dB"
        if math.isfinite(margins.gain_db)
        else "no gain that would make it oscillate"
    )
    sentences = [*_interval(design, loop), f"{cross} and {gain}."]
    if not loop.stable:
        root = loop.roots[0]
        sentences.append(
            f"The loop is unstable: its rightmost root, {root.real:.3g} ± "
            f"{abs(root.imag):.3g}j rad/s, grows."
        )
    else:
        delay = (
            f"It would bear {1e3 * margins.delay_s:.3g} ms more delay. "
            if math.isfinite(margins.delay_s)
            else ""
        )
        sentences.append(
            f"{delay}A disturbance is amplified {margins.sensitivity:.2f} times at worst, and "
            f"falls to 2 % in about {loop.settling_s:.3g} s."
        )
        sentences.append(_reach(design))
        sentences += _cut(design, loop)
    sentences += _advice(design)
    if loop.model["one_sided"]:
        sentences.append(
            "All this holds while the queue stays on one side of its set-point; samples in "
            "which it crosses are predictive, and nonlinear."
        )
    return sentences


def _sawtooth(design: Design) -> list[str]:
    """What is another with the plant that is nearer to packets."""
    loop = design.sawtooth
    if loop is None:
        return []
    margins = loop.margins
    closer = (
        "With ACKs as the flows' clock and windows in sawteeth, as in packets and `forebay fluid "
        "--sawtooth`,"
    )
    if not loop.stable:
        said = f"{closer} the loop has {-margins.gain_db:.2g} dB too much gain, and oscillates"
        swing = design.cycle
        if swing is None:
            return [f"{said}."]
        return [
            f"{said}: by ±{swing.amplitude_pkts:.3g} packets every {swing.period_s:.3g} s, and "
            "TCP's own losses on top."
        ]
    said = (
        f"{closer} the gain margin is {_or_none(margins.gain_db, ' dB')}, the phase margin "
        f"{_or_none(margins.phase_deg, '°')} and the sensitivity peak {margins.sensitivity:.3g}."
    )
    moves = design.expected
    if moves is None:
        return [said]
    return [
        f"{said} At constant load TCP's own losses move the queue by ±{moves.deviation_pkts:.3g} "
        f"packets and the probability by {100 * moves.share:.0f} % of its mean (standard "
        "deviations)."
    ]


def _interval(design: Design, loop: Loop) -> list[str]:
    """Why the design has another sampling interval than the law."""
    usual = design.published
    if design.impossible_s is not None and loop.interval_s is not None:
        return [
            f"The rule has no gains for the law's usual interval of "
            f"{1e3 * design.impossible_s:.4g} ms, which is long beside "
            f"R = {1e3 * design.point.rtt_s:.4g} ms, so the interval becomes part of the design: "
            f"{1e3 * loop.interval_s:.4g} ms."
        ]
    if usual is None or usual.interval_s is None or loop.interval_s is None:
        return []
    margins = usual.margins
    would = (
        f"its phase margin would be {_or_none(margins.phase_deg, '°')}, its gain margin "
        f"{_or_none(margins.gain_db, ' dB')}, its sensitivity peak {margins.sensitivity:.3g}"
        if usual.stable
        else f"it would be unstable, with {-margins.gain_db:.2g} dB too much gain"
    )
    share = loop.interval_s / design.point.rtt_s
    taken = "a fifth of R" if share < 0.25 else "the least that the law takes"
    key = f"`--set interval={1e3 * usual.interval_s:.9g}ms`"
    return [
        f"The law's usual interval of {1e3 * usual.interval_s:.4g} ms is long beside "
        f"R = {1e3 * design.point.rtt_s:.4g} ms ({would}), so the interval becomes part of the "
        f"design: {1e3 * loop.interval_s:.4g} ms, {taken}. {key} keeps the usual one."
    ]


def _advice(design: Design) -> list[str]:
    """What would make the loop calm."""
    advice = design.advice
    if advice is None:
        return []
    much = (
        f"A sensitivity peak of {advice.peak:.3g} is more than {CALM:g}, up to which a loop is calm"
        if math.isfinite(advice.peak)
        else "A stable loop needs other numbers"
    )
    if advice.key is None:
        return [
            f"{much}; none of the law's goals, its interval or its set-point alone brings it "
            "there on this link."
        ]
    return [
        f"{much}: `--set {advice.key}={advice.value}` would bring it to {advice.then:.2f}, with a "
        f"phase margin of {_or_none(advice.phase_deg or math.inf, '°')}."
    ]


def _or_none(value: float, unit: str) -> str:
    return f"{value:.1f}{unit}" if math.isfinite(value) else "unlimited"


def _cut(design: Design, loop: Loop) -> list[str]:
    """Whether the sawteeth of the windows take the probability of a law that integrates the
    queue itself to zero, where the integral loses what is cut off, and the queue settles lower.
    """
    model = loop.model
    if (
        design.senders is not None
        or not model["integrates"]
        or model["average"] is not None
        or model["one_sided"]
    ):
        return []
    swing_pkts = SAWTOOTH_SHARE * design.point.window_pkts * math.sqrt(design.link.flows)
    room_pkts = design.point.probability / model["proportional"]
    if room_pkts >= ROOM * swing_pkts:
        return []
    key = design.model().slowed_by
    slower = f" A smaller {key} (`--set {key}=…`) leaves more room." if key else ""
    return [
        f"Beware: {room_pkts:.0f} packets below the set-point the probability is cut at zero, "
        f"and the flows' sawteeth alone swing the queue by ±{swing_pkts:.0f}: it will settle "
        f"below the set-point.{slower}"
    ]


def _reach(design: Design) -> str:
    """How far the load and the RTT may move before these gains oscillate."""
    plant, link = design.among_flows(), design.link

    def stable(flows: float, rtt_s: float) -> bool:
        loop = plant.loop_at(flows, rtt_s)
        return loop is not None and loop.stable

    fewest = _edge(lambda factor: stable(link.flows * factor, link.rtt_s), 1e-3)
    longest = _edge(lambda factor: stable(link.flows, link.rtt_s * factor), 1e3)
    parts = []
    if fewest is not None:
        parts.append(f"down to {link.flows * fewest:.3g} flows")
    if longest is not None:
        parts.append(f"up to {1e3 * link.rtt_s * longest:.3g} ms of propagation")
    if not parts:
        return "The same parameters stay stable at any load and RTT that is not absurd."
    return f"At the other numbers as given, they stay stable {' or '.join(parts)}."


def _edge(stable: Callable[[float], bool], far: float) -> float | None:
    """The factor between 1 and `far` at which stability ends; None where it does not."""
    good, step = 1.0, far ** (1 / 24)
    while stable(good * step):
        good *= step
        if abs(math.log(good)) >= abs(math.log(far)) - 1e-9:
            return None
    bad = good * step
    for _ in range(12):
        middle = math.sqrt(good * bad)
        if stable(middle):
            good = middle
        else:
            bad = middle
    return good
