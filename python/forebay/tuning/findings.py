"""What a tuning tells: one table of plain values. `--json` prints it, and the sentences of
`tune_reasons.txt.j2`, the tables of the page and the terminal are made of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import forebay._native as _native
from forebay._base import statistics
from forebay._base.metrics import with_interval
from forebay._base.registries import baseline
from forebay.control import pi_forms
from forebay.control.pi_stabilising_set import SLOW
from forebay.report.templates import paragraphs
from forebay.scenario import router
from forebay.tuning import calm_regions, router_laws
from forebay.tuning.calm_regions import Region
from forebay.tuning.candidates import Candidate, set_point
from forebay.tuning.check import SETTLED_S, best_of_laws
from forebay.tuning.local_models import SENSITIVITY, counted

if TYPE_CHECKING:
    from forebay.tuning.check import Checked
    from forebay.tuning.local_models import LocalModel
    from forebay.tuning.ranges import Condition
    from forebay.tuning.state import Against, TuningState

#: A part of what is told, by name.
Findings = dict[str, Any]

#: Rows of the table of choices.
MOST_CHOICES = 8
#: Set-points that are told of on either side of the chosen one.
BESIDE = 2


def findings(tuning: TuningState) -> Findings:
    """Everything that a tuning tells; numbers may be infinite, or nan where they are not known."""
    told = numbers(tuning)
    return told | {"reasons": reasons(tuning, told)}


def reasons(tuning: TuningState, told: Findings) -> list[str]:
    """Why this law is recommended, in paragraphs, out of `numbers`."""
    context = {"goal_limits": tuning.goal, "range_text": str(tuning.ranges)}
    return paragraphs("tune_reasons.txt.j2", **context, **told, **FORMS)


def numbers(tuning: TuningState) -> Findings:
    """`findings` without its sentences."""
    chosen, ranges = tuning.chosen, tuning.ranges
    told: Findings = {
        "law": chosen and chosen.candidate.law,
        "params": dict(chosen.candidate.params) if chosen else {},
        "toml": tuning.toml() + "\n" if chosen else None,
        "router": _router(tuning, chosen) if chosen else [],
        "attach": _attach(tuning, chosen) if chosen else None,
        "for": tuning.ranges.router or None,
        "allowed": router_laws.CHOICES.get(tuning.ranges.router),
        "goal": tuning.goal.name,
        "least_goodput": 1 - tuning.goal.give_up,
        "meets_goal": tuning.meets_goal,
        "keeps_margins": _keeps_margins(chosen.candidate) if chosen else None,
        "settled_s": SETTLED_S,
        "ranges": {
            "rate_bps": list(ranges.rates_bps),
            "rtt_s": list(ranges.rtts_s),
            "flows": list(ranges.flows),
            "packet_bytes": ranges.packet_bytes,
            "buffer_pkts": ranges.buffer_pkts,
            "tcp": ranges.tcp,
            "trace": ranges.trace and vars(ranges.trace),
            "sets": dict(ranges.overrides),
        },
        "gains": tuning.gains,
        "reference": tuning.reference,
        "choice": _choice(tuning, chosen) if chosen else None,
        "places": _places(tuning),
        "worst_deviation_s": None,
        "seeds": tuning.seeds,
        "inside": _inside(tuning),
        "one_set": _one_set(tuning),
        "against": [_against(row, tuning) for row in tuning.against()],
        "test": _test(tuning) if tuning.tested else None,
        "untested": _untested(tuning),
        "rivals": _rivals(tuning),
        "candidates": [_candidate(one, tuning) for one in tuning.screened],
        "searched": [_searched(one) for one in tuning.searched],
        "left_out": [
            {"law": one.label, "origin": one.origin, "why": why} for one, why in tuning.left_out
        ],
        "partial": tuning.interrupted or bool(tuning.faults),
    }
    if tuning.tested:
        told["worst_deviation_s"] = told["test"]["deviation_s"]
    return told


def choices(candidates: Sequence[Findings]) -> list[Findings]:
    """What stands first, on the page and in a terminal: the choice, then what else was tried, the
    steadiest first."""
    rows = sorted(candidates, key=lambda row: (not row["chosen"], row["worst_deviation_s"]))
    return rows[:MOST_CHOICES]


#: What the names of candidates are made of.
NAMES_SAY = (
    'A name has the goal of the search that found it. "at 0.5": the set-point is half of that '
    'search\'s. "fastest": with the largest integral gain that keeps the margins.'
)


def choices_are(told: Mapping[str, Any]) -> str:
    """What the table of choices is of, and which of them may be chosen."""
    least = FORMS["percent"](told["least_goodput"])
    return f"at the worst place of each; {told['goal']} asks for {least} of the best goodput"


def _router(tuning: TuningState, chosen: Checked) -> list[str]:
    """Commands for a router at the fastest link; empty for a law that Linux has no qdisc of."""
    slowest, fastest = tuning.ranges.rates_bps
    law = chosen.candidate
    found = list(
        router.lines(
            law.law,
            law.params,
            rate_bps=fastest,
            packet_bytes=round(tuning.ranges.packet_bytes),
            buffer_pkts=tuning.ranges.buffer_pkts,
        )
    )
    if found and slowest < fastest:
        found.append("# with the rate of the link in place of that of the fastest")
    return found


def _attach(tuning: TuningState, chosen: Checked) -> str | None:
    """Return the command that installs the chosen law in a kernel; None if there is none."""
    candidate = chosen.candidate
    return router_laws.attach_line(candidate.law, candidate.params, tuning.ranges)


def _keeps_margins(candidate: Candidate) -> bool | None:
    """Return whether a candidate keeps its margins; None without a linear model that has any."""
    return candidate.keeps if candidate.local or candidate.keeps else None


def _untested(tuning: TuningState) -> list[str]:
    """Return the laws with their usual parameters that give up too much goodput to be tested."""
    tested = {checked.candidate.label for checked in tuning.tested}
    usual = [
        checked.candidate for checked in tuning.screened if checked.candidate.origin == "default"
    ]
    return list(
        dict.fromkeys(
            candidate.law for candidate in usual if tested and candidate.label not in tested
        )
    )


def _candidate(one: Checked, tuning: TuningState) -> Findings:
    share = one.relative(tuning.best)
    places = tuning.ranges.places
    return {
        "label": one.candidate.label,
        "law": one.candidate.law,
        "set_point": "".join(value for _, value in set_point(one.candidate))
        or ("–" if one.candidate.params else "default"),
        "params": dict(one.candidate.params),
        "origin": one.candidate.origin,
        "modelled": bool(one.candidate.local),
        "keeps_margins": _keeps_margins(one.candidate),
        "worst_deviation_s": one.worst_of(one.deviation_s),
        "worst_deviation_at": str(places[one.worst]),
        "worst_delay_p95_s": one.worst_of(one.delay_p95_s),
        "goodput_of_best": float(share.min()),
        "goodput_at": str(places[int(np.argmin(share))]),
        "chosen": one is tuning.chosen,
    }


def _choice(tuning: TuningState, chosen: Checked) -> Findings:
    """The chosen law over the seeds that chose it, what its model says, and its set-points.

    odd_rtt: the round trip that a self-tuning law takes for its own, where it is none of the
    range's.
    """
    rtt = dict(chosen.candidate.params).get("rtt", "")
    low_s, high_s = tuning.ranges.rtts_s
    odd = rtt and not low_s <= _native.quantity("rtt", rtt, "time") <= high_s
    return _candidate(chosen, tuning) | {
        "packet": tuning.ranges.packet,
        "odd_rtt": rtt if odd else "",
        "margins": _margins(tuning, chosen.candidate.local),
        "set_points": _set_points(tuning, chosen),
    }


def _set_points(tuning: TuningState, chosen: Checked) -> list[Findings]:
    """Of the chosen law, those next to the choice that no other beats, by their goodput; one where
    no other was tried. "fastest": with the largest integral of the calm set."""
    least = f"worst_{tuning.goal.least}"
    tried = [
        _candidate(one, tuning)
        | {"set_point": _set_point(one.candidate), "fastest": one.candidate.fastest}
        for one in tuning.screened
        if one.candidate.first_label == chosen.candidate.first_label
    ]
    # With more goodput, and less of the goal's number.
    good = [
        row
        for row in tried
        if not any(
            other["goodput_of_best"] > row["goodput_of_best"] and other[least] < row[least]
            for other in tried
        )
    ]
    good.sort(key=lambda row: row["goodput_of_best"])
    mine = float(chosen.relative(tuning.best).min())
    at = min(range(len(good)), key=lambda i: abs(good[i]["goodput_of_best"] - mine), default=0)
    return good[max(0, at - BESIDE) : at + BESIDE + 1]


def _set_point(candidate: Candidate) -> str:
    """As the parameter that has it, which thresholds do not."""
    for name, value in set_point(candidate):
        return f"{name} {value}"
    return f"{candidate.share:g} times the search's own"


def _margins(tuning: TuningState, local: Sequence[LocalModel | None]) -> Findings | None:
    """What the linear model says of the chosen law.

    few_flows, long_rtt: whether the tightest corner has the fewest flows of the range, the longest
    RTT. thresholds: whether the gain is the inverse of the distance between two thresholds. rough:
    places at which flows have fewer than ten packets in flight.
    """
    there, ranges = counted(local), tuning.ranges
    if not there:
        return None
    rtts_s = [one.rtt_s for one in ranges.corners]
    tight = max(there, key=lambda one: one.sensitivity)
    slow = max(there, key=lambda one: one.loop.settling_s)
    return {
        "tight_at": _at(tight),
        "few_flows": tight.condition.flows == ranges.flows[0] < ranges.flows[1],
        "long_rtt": min(rtts_s) < max(rtts_s) == tight.condition.rtt_s,
        "phase_deg": tight.loop.margins.phase_deg,
        "gain_db": tight.loop.margins.gain_db,
        "amplified": tight.sensitivity,
        "amplified_limit": SENSITIVITY,
        "slow_at": _at(slow),
        "settling_s": slow.loop.settling_s,
        "thresholds": all(one.loop.model["direct"] for one in there),
        "rough": sum(one is not None and one.timeouts for one in local),
        "places": len(local),
    }


def _at(local: LocalModel) -> str:
    """A place, and how many of its flows the model counts there."""
    place = str(local.condition)
    return f"{place} (with {local.flows:.0f} of them)" if local.timeouts else place


def _place(condition: Condition, local: LocalModel | None) -> Findings:
    return {
        "place": str(condition),
        "rate_bps": condition.rate_bps,
        "rtt_s": condition.rtt_s,
        "flows": condition.flows,
        "before": condition.before
        and {"rate_bps": condition.before.rate_bps, "flows": condition.before.flows},
        "model": None if local is None else _model(local),
    }


def _model(local: LocalModel) -> Findings:
    margins = local.loop.margins
    return {
        "flows": local.flows,
        "timeouts": local.timeouts,
        "window_pkts": local.loop.point.rtt_s * local.capacity_pkts_per_s / local.condition.flows,
        "queue_pkts": local.queue_pkts,
        "stable": local.stable,
        "phase_deg": margins.phase_deg,
        "gain_db": margins.gain_db,
        "sensitivity_peak": margins.sensitivity,
        "crossover_rad_s": margins.crossover_rad_s,
        "settling_s": local.loop.settling_s,
        "deviation_s": local.noise_delay_s,
    }


def _places(tuning: TuningState) -> list[Findings]:
    """A row per place: the model's numbers and the packets' for the chosen law."""
    one = tuning.tested[0] if tuning.tested else tuning.chosen
    if one is None:
        return []
    places, share = tuning.ranges.places, one.relative(tuning.best)
    rows = []
    for i, (condition, local) in enumerate(zip(places, one.locals(places), strict=True)):
        deviation_s, ci95_s = statistics.mean_and_interval(one.deviation_s[i])
        simulated = {
            "deviation_s": deviation_s,
            "deviation_ci95_s": ci95_s,
            "delay_mean_s": float(np.nanmean(one.delay_s[i])),
            "delay_p95_s": float(np.nanmean(one.delay_p95_s[i])),
            "goodput_bps": float(np.nanmean(one.goodput[i])) * condition.rate_bps,
            "goodput_of_best": float(share[i]),
            "utilisation": float(np.nanmean(one.utilisation[i])),
        }
        rows.append(_place(condition, local) | {"simulated": simulated})
    return rows


def _inside(tuning: TuningState) -> Findings | None:
    """The place between the corners with the least margin."""
    if tuning.inside is None:
        return None
    local, run = tuning.inside
    deviation_s, ci95_s = statistics.mean_and_interval(run.deviation_s[0])
    return _place(local.condition, local) | {
        "deviation_s": deviation_s,
        "deviation_ci95_s": ci95_s,
        "amplified": local.sensitivity,
    }


def _one_set(tuning: TuningState) -> Findings | None:
    """Of the best PI by the goal's number that keeps its margins, and its gains; the chosen law
    before others. "scheduled": the best of laws whose gains follow the load by themselves."""
    goal = tuning.goal
    able = [one for one in tuning.screened if one.candidate.keeps]
    best = min(
        (one for one in able if "k_i" in one.candidate.point),
        key=lambda one: (one is not tuning.chosen, one.number_of(goal)),
        default=None,
    )
    if best is None:
        return None
    candidate = best.candidate
    space = calm_regions.space_of(candidate, tuning.ranges)
    own = space.own(candidate.point) if isinstance(space, Region) else []
    if not own:
        return None
    most_at, most, _ = max(own, key=lambda place_gains: place_gains[1].k_i)
    times = most.k_i / candidate.point["k_i"]
    scheduled = best_of_laws(
        [
            one
            for one in able
            if one.candidate.law != candidate.law
            and pi_forms.integrates_differently(
                [local.loop.model for local in counted(one.candidate.local)]
            )
        ],
        lambda one: one.number_of(goal),
    )
    return {
        "law": candidate.law,
        "params": dict(candidate.params),
        "k_i": candidate.point["k_i"],
        "suffices": times <= SLOW,
        "times": times,
        "most_at": str(most_at),
        "scheduled": sorted(
            (_candidate(one, tuning) for one in scheduled),
            key=lambda told: float(told["worst_deviation_s"]),
        ),
        "own": [
            {
                "rate_bps": place.rate_bps,
                "rtt_s": place.rtt_s,
                "flows": place.flows,
                "params": dict(params),
                **vars(gains),
            }
            for place, gains, params in own
        ],
    }


def _rivals(tuning: TuningState) -> Findings:
    """What the searches found, and of other laws those with the least and the largest deviation.
    "broken": laws without any gains that keep their margins."""
    searched: dict[str, list[Candidate]] = {}
    for one in tuning.searched:
        searched.setdefault(one.law, []).append(one)
    own = tuning.chosen.candidate.law if tuning.chosen else ""
    able = [o for o in tuning.screened if o.candidate.keeps and o.candidate.law != own]
    best = best_of_laws(able, lambda one: one.worst_of(one.deviation_s))
    return {
        "laws": len(searched),
        "keep_margins": sum(one.keeps for one in tuning.searched),
        "broken": [law for law, some in searched.items() if not any(one.keeps for one in some)],
        "next": _rival(tuning, best[0]) if best else None,
        "last": _rival(tuning, best[-1]) if len(best) > 1 else None,
    }


def _rival(tuning: TuningState, one: Checked) -> Findings:
    """With how long it takes at its slowest place; None without a linear model."""
    there = [local for local in one.candidate.local if local is not None]
    slowest = max(there, key=lambda local: local.loop.settling_s, default=None)
    return _candidate(one, tuning) | {
        "settling_s": slowest.loop.settling_s if slowest else None,
        "settling_at": str(slowest.condition) if slowest else "",
    }


def _against(row: Against, tuning: TuningState) -> Findings:
    deviation_s, ci95_s = statistics.mean_and_interval(row.other.worst_s)
    return _candidate(row.other, tuning) | {
        "seeds": row.seeds,
        "worst_deviation_s": deviation_s,
        "worst_deviation_ci95_s": ci95_s,
        "difference_s": row.difference_s,
        "difference_ci95_s": row.ci95_s,
        "p": row.p,
        "significant": row.significant,
        "baseline": row.other.candidate.law == baseline()["name"],
    }


def _test(tuning: TuningState) -> Findings:
    """The test of the choice with other seeds."""
    mine = tuning.tested[0]
    deviation_s, ci95_s = statistics.mean_and_interval(mine.worst_s)
    return {
        "deviation_s": deviation_s,
        "deviation_ci95_s": ci95_s,
        "goodput_of_best": float(mine.relative(tuning.best).min()),
        "baseline_title": baseline()["short_title"],
    }


def _searched(one: Candidate) -> Findings:
    there = [local for local in one.local if local is not None]
    return {
        "label": one.label,
        "law": one.law,
        "params": dict(one.params),
        "keeps_margins": one.keeps,
        "sensitivity_peak": max((o.sensitivity for o in counted(one.local)), default=None),
        "delay_p95_s": max((o.delay_p95_s for o in there), default=None),
    }


# --- how numbers are written --------------------------------------------------------------------


def _listed(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _duration(value_s: float) -> str:
    """Two figures in the unit that reads best."""
    if not math.isfinite(value_s):
        return "an unlimited time"
    if value_s < 120:
        return f"{value_s:.2g} s" if value_s < 10 else f"{value_s:.0f} s"
    return f"{value_s / 60:.2g} min" if value_s < 7200 else f"{value_s / 3600:.2g} h"


def _or_else(form: str) -> Callable[..., str]:
    def text(value: float, otherwise: str = "unlimited") -> str:
        return form.format(value) if math.isfinite(value) else otherwise

    return text


def _in_ms(mean_s: float, half_s: float) -> str:
    return with_interval(1e3 * mean_s, 1e3 * half_s)


def _three_ms(value_s: float) -> str:
    """Three figures, or all of a larger number."""
    value_ms = 1e3 * value_s
    return f"{value_ms:.3g}" if abs(value_ms) < 999.5 else f"{value_ms:.0f}"


#: What the templates write numbers with.
FORMS: dict[str, Callable[..., str]] = {
    "decibels": _or_else("{:.1f} dB"),
    "degrees": _or_else("{:.0f}°"),
    "duration": _duration,
    "listed": _listed,
    "ms": lambda value_s: f"{_three_ms(value_s)} ms",
    "ms_with_interval": lambda *mean_and_half_s: f"{_in_ms(*mean_and_half_s)} ms",
    "in_ms": _in_ms,
    "three_ms": _three_ms,
    "percent": lambda share: f"{100 * share:.0f} %",
    "tenths": lambda share: f"{100 * share:.1f}",
}
