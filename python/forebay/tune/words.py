"""A tuning in words and numbers: the reasons, the table of conditions, and what `--json` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay import _native
from forebay.report.words import quantity
from forebay.run import stats
from forebay.run.metrics import with_interval
from forebay.run.scenario import Law
from forebay.tune.search import SENSITIVITY, counted

if TYPE_CHECKING:
    from forebay.tune.check import Checked
    from forebay.tune.theory import Local
    from forebay.tune.tuning import Against, Tuning


TEST = (
    "(Paired t-tests over common seeds at the 5 % level, p adjusted for their number by Holm's "
    "method.)"
)


def law_toml(one: Checked) -> str:
    """The chosen [[law]], without a label."""
    return Law(one.candidate.law, one.candidate.params).text()


def reasons(tuning: Tuning) -> list[str]:
    """Paragraphs, from what is recommended to what it gains."""
    chosen = tuning.chosen
    if chosen is None:
        return ["No candidate finished its runs at every place, so nothing can be recommended."]
    parts = [_choice(tuning, chosen)]
    if chosen.candidate.local:
        parts.append(_margins(tuning, chosen))
    parts.append(_others(tuning))
    if tuning.tested:
        parts.append(_tested(tuning))
    return parts


def _choice(tuning: Tuning, chosen: Checked) -> str:
    goal, law = tuning.goal, chosen.candidate.law
    params = ", ".join(f"{key} = {quantity(value)}" for key, value in chosen.candidate.params)
    where = tuning.ranges.conditions[chosen.worst]
    least = chosen.relative(tuning.best)
    worst = tuning.ranges.conditions[int(np.argmin(least))]
    text = (
        f"For {tuning.ranges}, with packets of {quantity(tuning.ranges.packet)} and a buffer of "
        f"{tuning.ranges.buffer_pkts} packets, take {law} with {params}. "
    )
    if tuning.meets_goal:
        what = "its queuing delay moves least" if goal.least == "deviation_s" else "it delays least"
        text += (
            f"Of the candidates that keep their margins and at least "
            f"{100 * (1 - goal.give_up):.0f} % of the best goodput at every corner and in the "
            f'middle, as the goal "{goal.name}" asks, {what}: '
        )
    else:
        text += (
            f"No candidate that keeps its margins keeps {100 * (1 - goal.give_up):.0f} % of the "
            f'best goodput everywhere, as the goal "{goal.name}" asks; this one comes nearest: '
        )
    return (
        f"{text}95 % of the packets wait less than "
        f"{1e3 * chosen.worst_of(chosen.delay_p95_s):.3g} ms everywhere, the queuing delay moves "
        f"by {1e3 * chosen.worst_of(chosen.deviation_s):.3g} ms at worst (its standard deviation, "
        f"at {where}), and the goodput is {100 * least.min():.0f} % of the best at worst, at "
        f"{worst}."
    )


def _margins(tuning: Tuning, chosen: Checked) -> str:
    local = chosen.candidate.local
    there = counted(local)
    if not there:
        return "It has no equilibrium that the linear model knows: packets alone have judged."
    tight = max(there, key=lambda one: one.sensitivity)
    slow = max(there, key=lambda one: one.loop.settling_s)
    margins = tight.loop.margins
    gain = f"{margins.gain_db:.1f} dB" if math.isfinite(margins.gain_db) else "no limit"
    phase = f"{margins.phase_deg:.0f}°" if math.isfinite(margins.phase_deg) else "no limit"
    text = (
        f"The corner that binds is {_place(tight)}{_why(tight, tuning)}: a phase margin of "
        f"{phase}, a gain margin of {gain}, and a disturbance amplified {tight.sensitivity:.2f} "
        f"times at worst, of at most {SENSITIVITY:g} allowed. Higher gains would make the queue "
        f"swing there. The slowest is {_place(slow)}, where a disturbance falls to 2 % in "
        f"{_seconds(slow.loop.settling_s)}. {_set_point(there)}"
    )
    rough = [one for one in local if one is not None and one.timeouts]
    if rough:
        text += (
            f" At {len(rough)} of {len(local)} places flows have fewer than ten packets in flight, "
            "and timeouts count: margins are kept up to the flows that have ten, and beyond, "
            "packets alone judge."
        )
    return text


def _set_point(there: list[Local]) -> str:
    """What decides where the queue is held."""
    emptiest = max(there, key=lambda one: one.idle)
    if emptiest.idle > 0.01:
        return (
            f"The set-point is as low as the goodput allows: by the model the queue is empty for "
            f"{100 * emptiest.idle:.2g} % of the time at {_place(emptiest)}, and less elsewhere."
        )
    if all(one.loop.model["direct"] for one in there):  # the slope between two thresholds
        return (
            "Its thresholds are further apart than the goodput needs, since its gain is their "
            "inverse: the margins ask for them."
        )
    return "By the model, the queue is empty nowhere for more than 1 % of the time."


def _why(tight: Local, tuning: Tuning) -> str:
    ranges, condition = tuning.ranges, tight.condition
    few = condition.flows == ranges.flows[0] < ranges.flows[1]
    late = ranges.rtts_s[0] < ranges.rtts_s[1] == condition.rtt_s
    causes = ["few flows make the gain of TCP highest"] if few else []
    causes += ["the RTT makes its answer latest"] if late else []
    return f", where {' and '.join(causes)}" if causes else ""


def _place(local: Local) -> str:
    """A condition, and how many of its flows the model counts there."""
    return (
        f"{local.condition} (with {local.flows:.0f} of them)"
        if local.timeouts
        else str(local.condition)
    )


def _inside(tuning: Tuning) -> str:
    if tuning.inside is None:
        return ""
    local, run = tuning.inside
    verdict = (
        f"a disturbance amplified {local.sensitivity:.2f} times"
        if local.stable
        else "a loop that is not stable"
    )
    mean, half = stats.mean_and_interval(run.deviation_s[0])
    return (
        f"Between the corners the model likes {local.condition} least, with {verdict}; there "
        f"packets give {_ms(mean, half)} where {1e3 * local.noise_delay_s:.3g} ms were predicted. "
    )


def _others(tuning: Tuning) -> str:
    """Why not another law: by the model, and by packets."""
    searched = {c.law: [o for o in tuning.searched if o.law == c.law] for c in tuning.searched}
    broken = [law for law, some in searched.items() if not any(o.keeps for o in some)]
    parts = [
        f"{len(tuning.searched)} searches over {len(searched)} "
        f"{'laws' if len(searched) > 1 else 'law'} with a linear model gave "
        f"{sum(o.keeps for o in tuning.searched)} candidates that keep their margins."
    ]
    if broken:
        parts.append(f"No gains of {_listed(broken)} keep them over all of the range.")
    rows = [o for o in tuning.screened if o.candidate.keeps and o is not tuning.chosen]
    best: dict[str, Checked] = {}
    for one in rows:
        law = one.candidate.law
        if law not in best or one.worst_of(one.deviation_s) < best[law].worst_of(
            best[law].deviation_s
        ):
            best[law] = one
    own = tuning.chosen.candidate.law if tuning.chosen else ""
    worst = {law: 1e3 * o.worst_of(o.deviation_s) for law, o in best.items() if law != own}
    if worst:
        ordered = sorted(worst, key=lambda law: worst[law])
        near, far = ordered[0], ordered[-1]
        one = best[near]
        parts.append(
            f"The next law is {near}, with {worst[near]:.3g} ms and "
            f"{100 * one.relative(tuning.best).min():.0f} % of the goodput at worst."
        )
        slow = [o for o in best[far].candidate.local if o is not None]
        if far != near and slow:
            slowest = max(slow, key=lambda o: o.loop.settling_s)
            parts.append(
                f"The last is {far}, with {worst[far]:.3g} ms: gains that keep its margins where "
                f"they bind settle in {_seconds(slowest.loop.settling_s)} at {slowest.condition}."
            )
    return " ".join(parts)


def _tested(tuning: Tuning) -> str:
    mine = tuning.tested[0]
    mean, half = stats.mean_and_interval(mine.worst_s)
    seeds = tuning.seeds
    text = (
        f"Tested with {seeds} {'seeds' if seeds > 1 else 'seed'} that had no part in the choice, "
        f"its worst deviation of the queuing delay is {_ms(mean, half)}"
    )
    there = [
        (local, float(np.nanmean(row)))
        for local, row in zip(mine.candidate.local, mine.deviation_s, strict=False)
        if local is not None and not local.timeouts
    ]
    if there:
        local, simulated_s = max(there, key=lambda pair: pair[1])
        text += (
            f"; at {local.condition}, where of those with a model it moves most, "
            f"{1e3 * simulated_s:.3g} ms where {1e3 * local.noise_delay_s:.3g} ms were predicted"
        )
    text += f". {_inside(tuning)}"
    rows = tuning.against()
    if not rows:
        return text
    if seeds < 2:
        return text + "One seed tells nothing about chance."
    baseline = next(law for law in _native.laws() if law["baseline"])
    plain = next((row for row in rows if row.other.candidate.law == baseline["name"]), None)
    if plain is not None:
        text += f"{baseline['short_title']}'s is {_beside(plain)}. "
    same = next((row for row in rows if row.other.candidate.origin == "retargeted"), None)
    if same is not None:
        text += f"With its set-point and the papers' gains it would be {_beside(same)}. "
    refused = [label for label, _ in tuning.left_out if label.endswith("(papers)")]
    if refused:
        text += f"{_listed(refused)} cannot run with this buffer. "
    papers = [row for row in rows if row.other.candidate.origin == "default" and row is not plain]
    if not papers:
        return text + TEST
    better = [row for row in papers if row.significant and row.difference_s > 0]
    chance = [row for row in papers if not row.significant]
    worse = [row for row in papers if row.significant and row.difference_s < 0]
    if better:
        count = f"{len(better)} of the {len(papers)} laws" if len(papers) > 1 else _laws(better)
        least = min(better, key=lambda row: row.difference_s)
        by = _ms(least.difference_s, least.ci95_s)
        text += (
            f"It is below that of {count} as the papers have "
            f"{'them' if len(papers) > 1 else 'it'}, by {by}"
            f"{f' and more (the least: {_laws([least])})' if len(better) > 1 else ''}. "
        )
    for row in chance:
        text += f"Against {_papers(row, tuning)} the difference may be chance. "
    for row in worse:
        text += (
            f"Only {_papers(row, tuning)} moves less, by {-1e3 * row.difference_s:.3g} ms. "
            if len(worse) == 1
            else f"{_papers(row, tuning)} moves less, by {-1e3 * row.difference_s:.3g} ms. "
        )
    return text + TEST


def conditions(tuning: Tuning) -> list[dict[str, Any]]:
    """A row per condition: the model's numbers and the packets' for the chosen law."""
    one = tuning.tested[0] if tuning.tested else tuning.chosen
    if one is None:
        return []
    rows = []
    locals_ = one.candidate.local or (None,) * len(tuning.ranges.conditions)
    for i, (condition, local) in enumerate(zip(tuning.ranges.conditions, locals_, strict=True)):
        deviation_s, ci95_s = stats.mean_and_interval(one.deviation_s[i])
        row: dict[str, Any] = {
            "rate_bps": condition.rate_bps,
            "rtt_s": condition.rtt_s,
            "flows": condition.flows,
            "model": None if local is None else _local(local),
            "simulated": {
                "deviation_s": deviation_s,
                "deviation_ci95_s": ci95_s,
                "delay_mean_s": float(np.nanmean(one.delay_s[i])),
                "delay_p95_s": float(np.nanmean(one.delay_p95_s[i])),
                "goodput_bps": float(np.nanmean(one.goodput[i])) * condition.rate_bps,
                "goodput_of_best": float(one.relative(tuning.best)[i]),
                "utilisation": float(np.nanmean(one.utilisation[i])),
            },
        }
        rows.append(row)
    return rows


def _local(local: Local) -> dict[str, Any]:
    margins = local.loop.margins
    return {
        "flows": local.flows,
        "timeouts": local.timeouts,
        "window_pkts": local.loop.point.window_pkts * local.flows / local.condition.flows,
        "queue_pkts": local.queue_pkts,
        "stable": local.stable,
        "phase_deg": margins.phase_deg,
        "gain_db": margins.gain_db,
        "sensitivity_peak": margins.sensitivity,
        "crossover_rad_s": margins.crossover_rad_s,
        "settling_s": local.loop.settling_s,
        "deviation_s": local.noise_delay_s,
    }


def as_json(tuning: Tuning) -> dict[str, Any]:
    """All of it for machines; what is not finite is None."""
    chosen = tuning.chosen
    ranges = tuning.ranges
    mine = tuning.tested[0] if tuning.tested else None
    values: dict[str, Any] = {
        "law": chosen and chosen.candidate.law,
        "params": dict(chosen.candidate.params) if chosen else {},
        "toml": law_toml(chosen) + "\n" if chosen else None,
        "goal": tuning.goal.name,
        "meets_goal": tuning.meets_goal,
        "keeps_margins": bool(chosen and chosen.candidate.keeps),
        "ranges": {
            "rate_bps": list(ranges.rates_bps),
            "rtt_s": list(ranges.rtts_s),
            "flows": list(ranges.flows),
            "packet_bytes": ranges.packet_bytes,
            "buffer_pkts": ranges.buffer_pkts,
        },
        "reasons": reasons(tuning),
        "places": conditions(tuning),
        "worst_deviation_s": float(np.nanmean(mine.worst_s)) if mine else None,
        "seeds": tuning.seeds,
        "inside": None
        if tuning.inside is None
        else {
            "rate_bps": tuning.inside[0].condition.rate_bps,
            "rtt_s": tuning.inside[0].condition.rtt_s,
            "flows": tuning.inside[0].condition.flows,
            "model": _local(tuning.inside[0]),
            "deviation_s": float(np.nanmean(tuning.inside[1].deviation_s)),
        },
        "against": [_against(row, tuning) for row in tuning.against()],
        "candidates": [_candidate(one, tuning) for one in tuning.screened],
        "searched": [
            {
                "label": one.label,
                "law": one.law,
                "params": dict(one.params),
                "keeps_margins": one.keeps,
                "sensitivity_peak": max((o.sensitivity for o in counted(one.local)), default=None),
                "delay_p95_s": max((o.delay_p95_s for o in one.local if o), default=None),
            }
            for one in tuning.searched
        ],
        "left_out": [{"law": law, "why": why} for law, why in tuning.left_out],
        "partial": tuning.interrupted or bool(tuning.faults),
    }
    return {key: _finite(value) for key, value in values.items()}


def _against(row: Against, tuning: Tuning) -> dict[str, Any]:
    return {
        "law": row.other.candidate.law,
        "label": row.other.candidate.label,
        "seeds": row.seeds,
        "worst_deviation_s": float(np.nanmean(row.other.worst_s)),
        "difference_s": row.difference_s,
        "difference_ci95_s": row.ci95_s,
        "p": row.p,
        "significant": row.significant,
        "goodput_of_best": float(row.other.relative(tuning.best).min()),
    }


def _candidate(one: Checked, tuning: Tuning) -> dict[str, Any]:
    return {
        "label": one.candidate.label,
        "law": one.candidate.law,
        "params": dict(one.candidate.params),
        "origin": one.candidate.origin,
        "keeps_margins": one.candidate.keeps,
        "worst_deviation_s": one.worst_of(one.deviation_s),
        "worst_delay_p95_s": one.worst_of(one.delay_p95_s),
        "goodput_of_best": float(one.relative(tuning.best).min()),
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


def _beside(row: Against) -> str:
    """The other's deviation, and by how much it is more or less than the chosen law's."""
    sign = "more" if row.difference_s > 0 else "less"
    own = 1e3 * float(np.nanmean(row.other.worst_s))
    text = f"{own:.3g} ms, {_ms(abs(row.difference_s), row.ci95_s)} {sign}"
    return text if row.significant else f"{text}, which may be chance"


def _papers(row: Against, tuning: Tuning) -> str:
    """A law as the papers have it, and its goodput."""
    share = row.other.relative(tuning.best)
    where = tuning.ranges.conditions[int(np.argmin(share))]
    return (
        f"{row.other.candidate.law} as the papers have it (which has {100 * share.min():.0f} % of "
        f"the best goodput at {where})"
    )


def _laws(rows: list[Against]) -> str:
    return _listed([row.other.candidate.law for row in rows])


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _ms(mean_s: float, half_s: float) -> str:
    return f"{with_interval(1e3 * mean_s, 1e3 * half_s)} ms"


def _seconds(value: float) -> str:
    if not math.isfinite(value):
        return "for ever"
    if value < 120:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:.2g} min" if value < 7200 else f"{value / 3600:.2g} h"
