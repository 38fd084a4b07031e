"""The result of a tuning: its candidates with their runs, the choice, its test, and the reasons.

`Tuning.findings` is one table of plain values. `--json` prints it; the sentences of
`tune_reasons.txt.j2`, the tables of the page and the terminal are derived from it.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

import forebay._native as _native
from forebay._base import quantities, statistics
from forebay._base.errors import ParameterError
from forebay._base.metrics import with_interval
from forebay._base.publication import publication, publish
from forebay._base.publication import write as write_file
from forebay._base.registries import baseline, title_of
from forebay._base.words import check_choice, in_figures
from forebay.control import pi_forms
from forebay.control.pi_stabilising_set import SLOW
from forebay.scenario import router
from forebay.scenario.builder import Law
from forebay.tuning import candidates, check
from forebay.tuning.candidates import (
    SENSITIVITY,
    Candidate,
    Goal,
    LocalModel,
    LocalModels,
    ReferenceGains,
    TuningPicture,
    counted,
)
from forebay.tuning.check import Against, Checked, Floats, best_of_laws
from forebay.tuning.ranges import LinkRange, OperatingPoint
from forebay.tuning.search import Region, space_of

if TYPE_CHECKING:
    import polars as pl

    from forebay.report.pages import PageFigure
    from forebay.report.plot import Plot

#: A part of the findings, by name.
Findings = dict[str, Any]

#: Parameters of the laws that a choice is compared with, in words.
REFERENCES: dict[ReferenceGains, str] = {
    "paper": "the papers' parameters",
    "auto": "gains that are designed for the ranges",
}
#: Largest number of rows of the table of choices.
MOST_CHOICES = 8
#: Number of set-points that are reported on either side of the chosen one.
NEIGHBOURS = 2
PAGE, LAW, CORNERS, JSON = "tune.html", "tuned.toml", "corners.toml", "tune.json"
#: Files that a tuning may write; those of a former tuning are replaced or removed.
NAMES = [PAGE, LAW, CORNERS, JSON, "trade.p*", "places.p*", "defaults.p*"]
#: How the names of candidates are formed.
NAMES_SAY = (
    'A candidate is named after the goal of its search. "at 0.5" has half of that search\'s '
    'target; "fastest" has the largest integral gain that keeps the margins.'
)


@dataclass(repr=False)
class Tuning:
    """The result of a tuning.

    Attributes
    ----------
    ranges : LinkRange
        The range of links.
    goal : Goal
        The goal.
    laws : list of str
        Names of the laws to choose from.
    seed : int
        Seed of the search.
    gains : {"paper", "auto"}
        Gains of the laws that the choice is compared with.
    thorough : bool
        True if each law was searched for every goal, and not only for the requested one.
    searched : list of Candidate
        Results of the searches.
    screened : list of Checked
        Every candidate, with few seeds.
    chosen : Checked or None
        The choice; None if nothing could be compared.
    meets_goal : bool
        True if the choice keeps the goodput of the goal.
    sure : bool
        True if it does so with headroom for the chance of few seeds.
    best : array
        Goodput of the best candidate at each point, relative to the rate.
    tested : list of Checked
        The choice, then other laws, with seeds that took no part in the choice.
    inside : (LocalModel, Checked) or None
        The point between the corners with the smallest margin by the model, with its runs.
    left_out : list of (Candidate, str)
        Candidates that refuse their parameters, with the reason.
    interrupted : bool
        True after Ctrl-C.
    faults : list of str
        Reasons why the tuning ended early.
    error : Exception or None
        An internal error.
    """

    ranges: LinkRange
    goal: Goal
    laws: list[str]
    seed: int
    gains: ReferenceGains = "paper"
    thorough: bool = False
    searched: list[Candidate] = field(default_factory=list)
    screened: list[Checked] = field(default_factory=list)
    chosen: Checked | None = None
    meets_goal: bool = False
    sure: bool = False
    best: Floats = field(default_factory=lambda: np.empty(0))
    tested: list[Checked] = field(default_factory=list)
    inside: tuple[LocalModel, Checked] | None = None
    left_out: list[tuple[Candidate, str]] = field(default_factory=list)
    interrupted: bool = False
    faults: list[str] = field(default_factory=list)
    error: Exception | None = None

    def __repr__(self) -> str:
        """Return the choice in one line."""
        if self.chosen is None:
            return f"<Tuning for {self.ranges}: no law chosen, {len(self.screened)} checked>"
        chosen = self.chosen.candidate
        return f"<Tuning for {self.ranges}: {chosen.law} with {chosen.settings or 'its defaults'}>"

    @property
    def seeds(self) -> int:
        """Number of seeds with which the chosen law was tested at every point."""
        return int(np.isfinite(self.tested[0].worst_s).sum()) if self.tested else 0

    @property
    def reference(self) -> str:
        """Parameters of the laws that the choice is compared with, in words."""
        return "the defaults of a router" if self.ranges.router else REFERENCES[self.gains]

    def goodput_of(self, runs: Checked) -> float:
        """Return the goodput at the worst point, relative to the best candidate's there."""
        return float(runs.relative(self.best).min())

    def against(self) -> list[Against]:
        """Return the chosen law compared with each of the other laws."""
        if not self.tested:
            return []
        by_number = {str(i): dict(enumerate(runs.worst_s)) for i, runs in enumerate(self.tested)}
        p_of = {pair.first: pair.p for pair in statistics.compare_with("0", by_number)}
        rows = []
        for number, rival in enumerate(self.tested[1:], 1):
            difference = rival.worst_s - self.tested[0].worst_s
            common = int(np.isfinite(difference).sum())
            interval = statistics.mean_and_interval(difference)
            rows.append(Against(rival, common, *interval, p_of.get(str(number), math.nan)))
        return rows

    def toml(self) -> str:
        """Return the chosen law in the notation of a scenario; empty without a choice."""
        if self.chosen is None:
            return ""
        return Law(self.chosen.candidate.law, self.chosen.candidate.params).text()

    def findings(self) -> Findings:
        """Return all facts as `forebay tune --json` prints them; numbers may be infinite or NaN."""
        facts = numbers(self)
        return facts | {"reasons": reasons(self, facts)}

    def to_dict(self) -> Findings:
        """Return `findings`, with None in place of numbers that are not finite."""
        finite: Findings = quantities.finite(self.findings())
        return finite

    def reasons(self) -> list[str]:
        """Return why this law is recommended, in paragraphs."""
        return reasons(self, numbers(self))

    def plot(self, kind: TuningPicture = "trade") -> Plot:
        """Draw a figure of the tuning.

        Parameters
        ----------
        kind : {"trade", "places", "defaults"}
            Delay against goodput, point by point, or compared with the papers' defaults. The latter
            two need a law that was tested.

        Raises
        ------
        ParameterError
            If there is no such figure, or the tuning ended before it had anything to show.
        """
        from forebay.tuning import figures

        check_choice("kind", kind, get_args(TuningPicture))
        if not (self.screened if kind == "trade" else self.tested):
            reason = "there are no runs to draw, since the tuning was interrupted"
            raise ParameterError("kind", kind, "a tuning that has ended", reason=reason)
        if kind == "trade":
            return figures.trade(self.screened, self.chosen, self.goal, self.best)
        if kind == "places":
            return figures.points(self.tested, self.ranges.places, self.reference)
        return figures.defaults(self.tested, self.against(), self.goodput_of, self.reference)

    def frame(self) -> pl.DataFrame:
        """Return a table with a row for each candidate that packets have judged.

        It has the label, law, set-point, origin, worst deviation and delay, and goodput.
        """
        import polars as pl

        rows = [_candidate(runs, self) for runs in self.screened]
        columns = [name for name in (rows[0] if rows else {}) if name != "params"]
        return pl.DataFrame({name: [row[name] for row in rows] for name in columns})

    def report(self, out: str | os.PathLike[str]) -> Path:
        """Write the numbers, the page, its figures and scenarios to a folder; return the page."""
        folder, facts = Path(out), numbers(self)
        facts["reasons"] = reasons(self, facts)
        command = "forebay.tune"
        write_numbers(facts, folder, command)
        write_files(self, facts, folder, command)
        return folder / PAGE

    def __str__(self) -> str:
        """Return the reasons in words, or the fields if nothing was screened."""
        return "\n\n".join(self.reasons()) if self.screened else repr(self)

    def _repr_html_(self) -> str:
        from forebay.report import notebook

        rows = [
            [
                runs.candidate.label,
                runs.candidate.settings,
                in_figures(1e3 * runs.worst_of(runs.deviation_s)),
                in_figures(1e3 * runs.worst_of(runs.delay_p95_s)),
            ]
            for runs in self.tested or self.screened
        ]
        heads = ["law", "parameters", "worst deviation [ms]", "worst delay, 95 % [ms]"]
        figure = self.plot() if self.screened and len(self.best) else None
        return notebook.html(f"Tuning for {self.ranges}", heads, rows, figure)


# --- facts --------------------------------------------------------------------------------------


def reasons(tuning: Tuning, facts: Findings) -> list[str]:
    """Return why a law is recommended, in paragraphs.

    Parameters
    ----------
    tuning : Tuning
        The tuning.
    facts : dict
        The facts of `numbers`.
    """
    from forebay.report import templates

    context = {"goal_limits": tuning.goal, "range_text": str(tuning.ranges)}
    return templates.paragraphs("tune_reasons.txt.j2", **context, **facts, **FORMS)


def numbers(tuning: Tuning) -> Findings:
    """Return `Tuning.findings` without its sentences."""
    test = _test(tuning) if tuning.tested else None
    return {
        **_recommendation(tuning),
        "for": tuning.ranges.router or None,
        "allowed": candidates.CHOICES.get(tuning.ranges.router),
        "goal": tuning.goal.name,
        "least_goodput": 1 - tuning.goal.give_up,
        "meets_goal": tuning.meets_goal,
        "keeps_margins": _keeps_margins(tuning.chosen.candidate) if tuning.chosen else None,
        "settled_s": check.SETTLED_S,
        "ranges": _ranges(tuning.ranges),
        "gains": tuning.gains,
        "reference": tuning.reference,
        "choice": _choice(tuning, tuning.chosen) if tuning.chosen else None,
        "places": _points(tuning),
        "worst_deviation_s": test and test["deviation_s"],
        "seeds": tuning.seeds,
        "inside": _inside(tuning),
        "one_set": _one_set(tuning),
        "against": [_against(row, tuning) for row in tuning.against()],
        "test": test,
        "untested": _untested(tuning),
        "rivals": _rivals(tuning),
        "candidates": [_candidate(runs, tuning) for runs in tuning.screened],
        "searched": [_searched(candidate) for candidate in tuning.searched],
        "left_out": [
            {"law": candidate.label, "origin": candidate.origin, "why": why}
            for candidate, why in tuning.left_out
        ],
        "partial": tuning.interrupted or bool(tuning.faults),
    }


def choices(rows: Sequence[Findings]) -> list[Findings]:
    """Return the first candidates of a table: the choice, then the steadiest others."""
    return sorted(rows, key=lambda row: (not row["chosen"], row["worst_deviation_s"]))[
        :MOST_CHOICES
    ]


def choices_are(facts: Mapping[str, Any]) -> str:
    """Return what the table of choices shows, and which of them may be chosen."""
    least = FORMS["percent"](facts["least_goodput"])
    return f"the goal {facts['goal']} requires {least} of the best goodput"


def _recommendation(tuning: Tuning) -> Findings:
    """Return the chosen law, in a scenario's notation, and the commands that set up a router."""
    if tuning.chosen is None:
        return {"law": None, "params": {}, "toml": None, "router": [], "attach": None}
    law, (slowest, fastest) = tuning.chosen.candidate, tuning.ranges.rates_bps
    lines = list(
        router.lines(
            law.law,
            law.params,
            rate_bps=fastest,
            packet_bytes=round(tuning.ranges.packet_bytes),
            buffer_pkts=tuning.ranges.buffer_pkts,
        )
    )
    if slowest < fastest and any(not line.startswith("#") for line in lines):
        lines.append("# These rates are for the fastest link; replace them by those of your link.")
    return {
        "law": law.law,
        "params": dict(law.params),
        "toml": tuning.toml() + "\n",
        "router": lines,
        "attach": candidates.attach_line(law.law, law.params, tuning.ranges),
    }


def _ranges(ranges: LinkRange) -> Findings:
    return {
        "rate_bps": list(ranges.rates_bps),
        "rtt_s": list(ranges.rtts_s),
        "flows": list(ranges.flows),
        "packet_bytes": ranges.packet_bytes,
        "buffer_pkts": ranges.buffer_pkts,
        "tcp": ranges.tcp,
        "trace": ranges.trace and vars(ranges.trace),
        "sets": dict(ranges.overrides),
    }


def _keeps_margins(candidate: Candidate) -> bool | None:
    """Return whether a candidate keeps its margins; None without a linear model that has any."""
    return candidate.keeps if candidate.local or candidate.keeps else None


def _untested(tuning: Tuning) -> list[str]:
    """Return the laws with their usual parameters that give up too much goodput to be tested."""
    tested = {runs.candidate.label for runs in tuning.tested}
    usual = [runs.candidate for runs in tuning.screened if runs.candidate.origin == "default"]
    return list(dict.fromkeys(law.law for law in usual if tested and law.label not in tested))


def _candidate(runs: Checked, tuning: Tuning) -> Findings:
    share, candidate = runs.relative(tuning.best), runs.candidate
    points = tuning.ranges.places
    return {
        "label": candidate.label,
        "law": candidate.law,
        "set_point": "".join(value for _, value in candidate.set_point)
        or ("–" if candidate.params else "default"),
        "params": dict(candidate.params),
        "origin": candidate.origin,
        "modelled": bool(candidate.local),
        "keeps_margins": _keeps_margins(candidate),
        "worst_deviation_s": runs.worst_of(runs.deviation_s),
        "worst_deviation_at": str(points[runs.worst]),
        "worst_delay_p95_s": runs.worst_of(runs.delay_p95_s),
        "goodput_of_best": float(share.min()),
        "goodput_at": str(points[int(np.argmin(share))]),
        "chosen": runs is tuning.chosen,
    }


def _choice(tuning: Tuning, chosen: Checked) -> Findings:
    """Return the chosen law over the seeds that chose it, its margins, and its set-points.

    "odd_rtt" is the RTT that a self-tuning law is set to, where it is outside the range.
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


def _set_points(tuning: Tuning, chosen: Checked) -> list[Findings]:
    """Return the chosen law's set-points next to the choice that no other dominates.

    They are in the order of their goodput; a single one where no other was tried.
    """
    least = f"worst_{tuning.goal.least}"
    rows = [
        _candidate(runs, tuning)
        | {"set_point": _set_point(runs.candidate), "fastest": runs.candidate.fastest}
        for runs in tuning.screened
        if runs.candidate.first_label == chosen.candidate.first_label
    ]

    def dominated(row: Findings) -> bool:
        """Return True if another has more goodput and less of the goal's number."""
        goodput, number = row["goodput_of_best"], row[least]
        return any(rival["goodput_of_best"] > goodput and rival[least] < number for rival in rows)

    good = [row for row in rows if not dominated(row)]
    good.sort(key=lambda row: row["goodput_of_best"])
    own = tuning.goodput_of(chosen)
    at = min(range(len(good)), key=lambda i: abs(good[i]["goodput_of_best"] - own), default=0)
    return good[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1]


def _set_point(candidate: Candidate) -> str:
    """Return the set-point as its parameter has it; thresholds have none."""
    for name, value in candidate.set_point:
        return f"{name} {value}"
    return f"{candidate.share:g} times the search's own"


def _margins(tuning: Tuning, local: LocalModels) -> Findings | None:
    """Return the margins of the chosen law by the linear model.

    "few_flows" and "long_rtt" say whether the tightest corner has the fewest flows and the longest
    RTT; "thresholds" whether the gain is the inverse of the distance between two thresholds;
    "rough" counts points at which flows have fewer than ten packets in flight.
    """
    models, ranges = counted(local), tuning.ranges
    if not models:
        return None
    rtts_s = [point.rtt_s for point in ranges.corners]
    tight = max(models, key=lambda model: model.sensitivity)
    slow = max(models, key=lambda model: model.loop.settling_s)
    return {
        "tight_at": _at(tight),
        "few_flows": tight.point.flows == ranges.flows[0] < ranges.flows[1],
        "long_rtt": min(rtts_s) < max(rtts_s) == tight.point.rtt_s,
        "phase_deg": tight.loop.margins.phase_deg,
        "gain_db": tight.loop.margins.gain_db,
        "amplified": tight.sensitivity,
        "amplified_limit": SENSITIVITY,
        "slow_at": _at(slow),
        "settling_s": slow.loop.settling_s,
        "thresholds": all(model.loop.model["direct"] for model in models),
        "rough": sum(model is not None and model.timeouts for model in local),
        "places": len(local),
    }


def _at(model: LocalModel) -> str:
    """Return an operating point, with the number of flows that the model counts there."""
    return f"{model.point} (with {model.flows:.0f} of them)" if model.timeouts else str(model.point)


def _point(point: OperatingPoint, model: LocalModel | None) -> Findings:
    before = point.before
    return {
        "place": str(point),
        "rate_bps": point.rate_bps,
        "rtt_s": point.rtt_s,
        "flows": point.flows,
        "before": before and {"rate_bps": before.rate_bps, "flows": before.flows},
        "model": model and _model(model),
    }


def _model(local: LocalModel) -> Findings:
    margins = local.loop.margins
    return {
        "flows": local.flows,
        "timeouts": local.timeouts,
        "window_pkts": local.loop.point.rtt_s * local.capacity_pkts_per_s / local.point.flows,
        "queue_pkts": local.queue_pkts,
        "stable": local.stable,
        "phase_deg": margins.phase_deg,
        "gain_db": margins.gain_db,
        "sensitivity_peak": margins.sensitivity,
        "crossover_rad_s": margins.crossover_rad_s,
        "settling_s": local.loop.settling_s,
        "deviation_s": local.noise_delay_s,
    }


def _with_interval(values_s: Floats, prefix: str = "") -> Findings:
    """Return the mean of deviations and half its 95 % confidence interval."""
    names = f"{prefix}deviation_s", f"{prefix}deviation_ci95_s"
    return dict(zip(names, statistics.mean_and_interval(values_s), strict=True))


def _points(tuning: Tuning) -> list[Findings]:
    """Return a row per point: the model's numbers and the packets' for the chosen law."""
    runs = tuning.tested[0] if tuning.tested else tuning.chosen
    if runs is None:
        return []
    points, share = tuning.ranges.places, runs.relative(tuning.best)
    rows = []
    for i, (point, model) in enumerate(zip(points, runs.locals(points), strict=True)):
        simulated = _with_interval(runs.deviation_s[i]) | {
            "delay_mean_s": float(np.nanmean(runs.delay_s[i])),
            "delay_p95_s": float(np.nanmean(runs.delay_p95_s[i])),
            "goodput_bps": float(np.nanmean(runs.goodput[i])) * point.rate_bps,
            "goodput_of_best": float(share[i]),
            "utilisation": float(np.nanmean(runs.utilisation[i])),
        }
        rows.append(_point(point, model) | {"simulated": simulated})
    return rows


def _inside(tuning: Tuning) -> Findings | None:
    """Return the point between the corners with the least margin."""
    if tuning.inside is None:
        return None
    model, runs = tuning.inside
    amplified = {"amplified": model.sensitivity}
    return _point(model.point, model) | _with_interval(runs.deviation_s[0]) | amplified


def _one_set(tuning: Tuning) -> Findings | None:
    """Return whether one set of gains suffices, by the best PI that keeps its margins.

    The chosen law comes before others. "scheduled" are the best of the laws whose gains follow the
    load by themselves.
    """
    goal = tuning.goal
    robust = [runs for runs in tuning.screened if runs.candidate.keeps]
    best = min(
        (runs for runs in robust if "k_i" in runs.candidate.point),
        key=lambda runs: (runs is not tuning.chosen, runs.number_of(goal)),
        default=None,
    )
    if best is None:
        return None
    candidate = best.candidate
    space = space_of(candidate, tuning.ranges)
    own = space.own(candidate.point) if isinstance(space, Region) else []
    if not own:
        return None
    fastest_at, fastest, _ = max(own, key=lambda row: row[1].k_i)
    times = fastest.k_i / candidate.point["k_i"]
    scheduled = [
        runs
        for runs in robust
        if runs.candidate.law != candidate.law
        and pi_forms.integrates_differently(
            [model.loop.model for model in counted(runs.candidate.local)]
        )
    ]
    rows = [
        _candidate(runs, tuning)
        for runs in best_of_laws(scheduled, lambda runs: runs.number_of(goal))
    ]
    return {
        "law": candidate.law,
        "params": dict(candidate.params),
        "k_i": candidate.point["k_i"],
        "suffices": times <= SLOW,
        "times": times,
        "fastest_at": str(fastest_at),
        "scheduled": sorted(rows, key=lambda row: float(row["worst_deviation_s"])),
        "own": [
            {
                "rate_bps": point.rate_bps,
                "rtt_s": point.rtt_s,
                "flows": point.flows,
                "params": dict(params),
                **vars(gains),
            }
            for point, gains, params in own
        ],
    }


def _rivals(tuning: Tuning) -> Findings:
    """Return what the searches found, and the other laws with the least and the largest deviation.

    "broken" are the laws without any gains that keep their margins.
    """
    searched: dict[str, list[Candidate]] = {}
    for candidate in tuning.searched:
        searched.setdefault(candidate.law, []).append(candidate)
    own = tuning.chosen.candidate.law if tuning.chosen else ""
    rivals = [
        runs for runs in tuning.screened if runs.candidate.keeps and runs.candidate.law != own
    ]
    best = best_of_laws(rivals, lambda runs: runs.worst_of(runs.deviation_s))
    return {
        "laws": len(searched),
        "keep_margins": sum(candidate.keeps for candidate in tuning.searched),
        "broken": [law for law, rows in searched.items() if not any(row.keeps for row in rows)],
        "next": _rival(tuning, best[0]) if best else None,
        "last": _rival(tuning, best[-1]) if len(best) > 1 else None,
    }


def _rival(tuning: Tuning, runs: Checked) -> Findings:
    """Return a candidate with its settling time at the slowest point; None without a model."""
    models = [model for model in runs.candidate.local if model is not None]
    slowest = max(models, key=lambda model: model.loop.settling_s, default=None)
    return _candidate(runs, tuning) | {
        "settling_s": slowest.loop.settling_s if slowest else None,
        "settling_at": str(slowest.point) if slowest else "",
    }


def _against(row: Against, tuning: Tuning) -> Findings:
    facts = _candidate(row.rival, tuning) | {"seeds": row.seeds}
    return (facts | _with_interval(row.rival.worst_s, "worst_")) | {
        "difference_s": row.difference_s,
        "difference_ci95_s": row.ci95_s,
        "p": row.p,
        "significant": row.significant,
        "baseline": row.rival.candidate.law == baseline()["name"],
    }


def _test(tuning: Tuning) -> Findings:
    """Return the test of the choice with other seeds."""
    return _with_interval(tuning.tested[0].worst_s) | {
        "goodput_of_best": tuning.goodput_of(tuning.tested[0]),
        "baseline_title": baseline()["short_title"],
    }


def _searched(candidate: Candidate) -> Findings:
    models = [model for model in candidate.local if model is not None]
    return {
        "label": candidate.label,
        "law": candidate.law,
        "params": dict(candidate.params),
        "keeps_margins": candidate.keeps,
        "sensitivity_peak": max(
            (model.sensitivity for model in counted(candidate.local)), default=None
        ),
        "delay_p95_s": max((model.delay_p95_s for model in models), default=None),
    }


# --- how numbers are written --------------------------------------------------------------------


def _listed(names: Sequence[str]) -> str:
    """Join names as "a", "a and b", "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _duration(value_s: float) -> str:
    """Write two figures of a time in the unit that reads best."""
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
    """Return a time in ms with three significant figures, or with all of a larger number."""
    value_ms = 1e3 * value_s
    return f"{value_ms:#.3g}".rstrip(".") if 1e-3 < abs(value_ms) < 999.5 else f"{value_ms:.0f}"


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


# --- files --------------------------------------------------------------------------------------


def write_numbers(facts: Mapping[str, Any], out: Path, command: str) -> None:
    """Write the facts of a tuning to a folder, which is created, and remove a former page.

    Parameters
    ----------
    facts : dict
        The facts of `numbers`.
    out : Path
        The folder.
    command : str
        The command that made them.
    """
    publish(out, {JSON: {"command": command, **quantities.finite(facts)}}, replaces=NAMES)


def write_files(tuning: Tuning, facts: Mapping[str, Any], out: Path, command: str) -> None:
    """Write all other files of a tuning: the page, its figures, and scenarios.

    Parameters
    ----------
    tuning : Tuning
        The tuning.
    facts : dict
        The facts of `numbers`.
    out : Path
        The folder.
    command : str
        The command that made them.
    """
    from forebay.report.pages import render_all
    from forebay.report.templates import html, paragraphs

    drawn = page_figures(tuning)
    summary = {"range_text": str(tuning.ranges), "this_for": facts["for"], **facts, **FORMS}
    with publication(out) as unfinished:
        render_all(drawn, unfinished)
        page = html(
            "tune.html.j2",
            **facts,
            **FORMS,
            choices=choices(facts["candidates"]),
            choices_are=choices_are(facts),
            names_say=NAMES_SAY,
            answers=paragraphs("tune_summary.txt.j2", **summary)[:1],
            title=f"{title_of(facts['law'] or 'Tuning')} for {tuning.ranges}",
            interrupted=_partial(tuning),
            commands=commands(tuning, out),
            figures=drawn,
            command=command,
            duration_s=check.DURATION_S,
            measure_s=check.MEASURE_S,
            step_s=check.STEP_S,
        )
        write_file(unfinished / PAGE, page)
        for name, text in scenarios(tuning).items():
            write_file(unfinished / name, text)


def scenarios(tuning: Tuning) -> dict[str, str]:
    """Return scenarios of the chosen law: in the middle of the ranges, and with the other laws."""
    if tuning.chosen is None:
        return {}
    law, ranges = tuning.chosen.candidate.law, tuning.ranges
    chosen = replace(tuning.chosen.candidate, label=f"{law} (tuned)")
    finalists = [chosen, *(runs.candidate for runs in tuning.tested[1:])]
    title = f"{title_of(law)}, tuned"
    comparison = f"{title}, compared with {tuning.reference}"
    return {
        LAW: f"# {LAW}\n" + check.scenario([chosen], ranges, title, ranges.middle),
        CORNERS: f"# {CORNERS}\n" + check.scenario(finalists, ranges, comparison),
    }


def page_figures(tuning: Tuning) -> list[PageFigure]:
    """Return the figures that have data."""
    from forebay.report.pages import PageFigure
    from forebay.tuning import figures  # which takes a while to load

    return [
        PageFigure(name, partial(tuning.plot, name), title, caption.format(seeds=tuning.seeds))
        for name, (title, caption) in figures.KINDS.items()
        if (len(tuning.best) if name == "trade" else tuning.tested)
    ]


def commands(tuning: Tuning, out: Path) -> list[str]:
    """Return command lines that run the chosen law: in the middle of the range, and at all corners.

    Parameters
    ----------
    tuning : Tuning
        The tuning.
    out : Path
        Folder of the scenarios.
    """
    if tuning.chosen is None:
        return []
    overrides = [
        word for key, value in tuning.ranges.overrides for word in ("--set", f"{key}={value}")
    ]
    return [
        shlex.join(["forebay", "run", str(out / LAW), *overrides]),
        shlex.join(["forebay", "run", str(out / CORNERS), "--seeds", "3", *overrides]),
    ]


def _partial(tuning: Tuning) -> str:
    if tuning.faults:
        return f"Partial result: {tuning.faults[0]}"
    if not tuning.interrupted:
        return ""
    if not tuning.tested:
        return "Partial result: stopped before the chosen law could be tested."
    return f"Partial result: stopped while testing; {tuning.seeds} seeds were complete."
