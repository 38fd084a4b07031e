"""A tuning as plain values: the table of places, and what `--json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.base import quantities, statistics
from forebay.scenarios.builder import Law
from forebay.tuning import calm_regions, facts, words
from forebay.tuning.gain_search import counted

if TYPE_CHECKING:
    from forebay.tuning.check import Checked
    from forebay.tuning.local_models import LocalModel
    from forebay.tuning.tuning import Against, Tuning


def law_toml(one: Checked) -> str:
    """The chosen [[law]], without a label."""
    return Law(one.candidate.law, one.candidate.params).text()


def conditions(tuning: Tuning) -> list[dict[str, Any]]:
    """A row per place: the model's numbers and the packets' for the chosen law."""
    one = tuning.tested[0] if tuning.tested else tuning.chosen
    if one is None:
        return []
    rows = []
    places = tuning.ranges.places
    for i, (condition, local) in enumerate(zip(places, one.locals(places), strict=True)):
        deviation_s, ci95_s = statistics.mean_and_interval(one.deviation_s[i])
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


def _local(local: LocalModel) -> dict[str, Any]:
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


def as_json(tuning: Tuning) -> dict[str, Any]:
    """The whole tuning for `--json`; values that are not finite are None."""
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
            "tcp": ranges.tcp,
            "trace": ranges.trace and vars(ranges.trace),
        },
        "reasons": words.reasons(tuning),
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
        "one_set": _one_set(tuning),
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
        "left_out": [{"law": one.label, "why": why} for one, why in tuning.left_out],
        "partial": tuning.interrupted or bool(tuning.faults),
    }
    return {key: quantities.finite(value) for key, value in values.items()}


def _one_set(tuning: Tuning) -> dict[str, Any] | None:
    found = facts.one_set(tuning)
    if found is None:
        return None
    candidate, gains = found
    return {
        "law": candidate.law,
        "params": dict(candidate.params),
        "k_i": gains.k_i,
        "suffices": gains.suffices,
        "own": [
            {
                "rate_bps": place.rate_bps,
                "rtt_s": place.rtt_s,
                "flows": place.flows,
                "params": dict(calm_regions.own_params(candidate, own, tuning.ranges)),
                **vars(own),
            }
            for place, own in gains.own
        ],
    }


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
