"""Papers replayed: measures, verdicts on claims, and `forebay.replay`."""

from __future__ import annotations

import ast
import json
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import forebay._native as _native
from forebay._base import progress, quantities, statistics
from forebay._base.metrics import Metric, with_interval
from forebay._base.temporary import temporary_folder
from forebay._native import ScenarioError
from forebay.campaign import claims
from forebay.campaign.claims import Claim, Paper, PaperExperiment
from forebay.experiment import engines, execution
from forebay.experiment import experiment as experiments
from forebay.experiment import store_choice as choice
from forebay.experiment.engines import PACKETS, check_repeatable
from forebay.experiment.experiment import Experiment
from forebay.experiment.result import Result, whole_result
from forebay.scenario import names

if TYPE_CHECKING:
    from forebay._base.progress import Progress
    from forebay._native import PointInfo, Run
    from forebay.campaign.claims import Window
    from forebay.experiment.engines import Engine
    from forebay.experiment.store import Store

Floats = NDArray[np.float64]

#: Every measure, by its name in a claim.
MEASURES: Mapping[str, Metric] = {
    entry["claim"]: Metric.from_entry(entry) for entry in _native.measures()
}


def _measure(name: str, run: Run, point: PointInfo, law: int, window: Window | None) -> float:
    """Return one measure of one run. Raises `ScenarioError`."""
    own_pkts = point.laws[law].target_pkts
    return _native.measure(
        name,
        run,
        sample_s=point.sample_s,
        window=window or point.measure_s,
        target_pkts=own_pkts if point.target_pkts is None else point.target_pkts,
        traffic=[(traffic.tcp is not None, traffic.rtts_s) for traffic in point.traffic],
    )


OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def one_way(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return F and p of a one-way analysis of variance; NaN where a group has fewer than two
    values."""
    if min(map(len, groups)) < 2:
        return math.nan, math.nan
    from scipy import stats

    test = stats.f_oneway(*groups)
    return float(test.statistic), float(test.pvalue)


class Measured:
    """The values of a result, by law, point and window."""

    def __init__(self, result: Result, points: Mapping[str, Mapping[str, Any]]) -> None:
        self.result = result
        self.points = {name: _index(result, name, settings) for name, settings in points.items()}

    def law(self, label: str) -> int:
        """Return the index of a law. Raises `ScenarioError`."""
        laws = self.result.plan.laws
        if label not in laws:
            raise ScenarioError(f"law: found {label}, allowed: {', '.join(laws)}")
        return laws.index(label)

    def values(self, measure: str, law: str, point: str, window: Window | None) -> Floats:
        """Return one value per seed, in their order; of no seed where the law has not run."""
        if point and point not in self.points:
            raise ScenarioError(f"point: found {point}, allowed: {', '.join(self.points)}")
        p, i = self.points[point] if point else 0, self.law(law)
        info = self.result.plan.points[p]
        runs = self.result.runs_of(p, i)
        return np.array([_measure(measure, run, info, i, window) for run in runs])

    def anova(self, measure: str, law: str, window: Window | None) -> tuple[float, float]:
        """Return F and p of a one-way analysis of variance of a measure over the points."""
        i = self.law(law)
        return one_way(
            [
                [_measure(measure, run, info, i, window) for run in self.result.runs_of(p, i)]
                for p, info in enumerate(self.result.plan.points)
            ]
        )

    def evaluate(self, text: str, point: str, window: Window | None) -> Floats:
        """Return the value of an expression, per seed; one value where it is over all seeds.

        Raises `ScenarioError`.
        """
        try:
            tree = ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise ScenarioError(f"{text}: {error.msg}") from error
        return np.atleast_1d(np.asarray(self._node(text, tree, point, window), dtype=float))

    def difference(self, text: str, point: str, window: Window | None) -> Floats:
        """Return the difference b − a of a comparison a < b, per seed: it holds where this is
        positive."""
        tree = ast.parse(text, mode="eval").body
        if not isinstance(tree, ast.Compare) or not isinstance(tree.ops[0], ast.Lt | ast.Gt):
            raise ScenarioError(f"{text}: found no comparison, allowed: one with < or >")
        left = self._node(text, tree.left, point, window)
        right = self._node(text, tree.comparators[0], point, window)
        difference = right - left if isinstance(tree.ops[0], ast.Lt) else left - right
        return np.atleast_1d(np.asarray(difference, dtype=float))

    def _node(self, text: str, node: ast.expr, point: str, window: Window | None) -> Any:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            left = self._node(text, node.left, point, window)
            right = self._node(text, node.right, point, window)
            with np.errstate(divide="ignore", invalid="ignore"):
                return OPERATORS[type(node.op)](left, right)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._node(text, node.operand, point, window)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            arguments: Any = [ast.literal_eval(one) for one in node.args]
            named = {str(one.arg): ast.literal_eval(one.value) for one in node.keywords}
            name, here = node.func.id, named.get("window", window)
            if name in ("anova_f", "anova_p"):
                measure, law = arguments
                f, p = self.anova(measure, law, here)
                return f if name == "anova_f" else p
            (law,) = arguments
            return self.values(name, law, named.get("point", point), here)
        raise ScenarioError(f"{text}: found {ast.unparse(node)}, allowed: numbers and measures")


def _index(result: Result, name: str, settings: Mapping[str, Any]) -> int:
    """Return the index of the point that a name stands for. Raises `ScenarioError`."""
    for i, point in enumerate(result.plan.points):
        if all(point.settings.get(key) == value for key, value in settings.items()):
            return i
    labels = "; ".join(point.label for point in result.plan.points)
    raise ScenarioError(f"points: {name}: found {dict(settings)}, allowed: one of {labels}")


REPRODUCED = "reproduced"
IN_DIRECTION = "reproduced in direction"
NOT_REPRODUCED = "not reproduced"


@dataclass(frozen=True)
class Verdict:
    """A claim and its verdict."""

    paper: str
    experiment: str
    claim: Claim
    ours: float
    #: Half the width of the 95 % interval; NaN for one seed, or where there is one value only.
    ci95: float
    verdict: str
    why: str

    @property
    def key(self) -> str:
        return f"{self.paper}/{self.experiment}/{self.claim.id}"

    def text(self) -> str:
        """Our value with its interval."""
        return with_interval(self.ours, self.ci95)

    def published(self) -> str:
        """The published number or bound, with the unit of ours."""
        number = self.claim.published
        text = number if isinstance(number, str) else f"{number:g}"
        return f"{text} {self.claim.unit}".rstrip()

    def line(self) -> str:
        """One line of JSON, as `forebay replay --json` prints it."""
        return json.dumps(
            {
                "paper": self.paper,
                "experiment": self.experiment,
                "claim": f"{self.claim.id}: {self.claim.where}: {self.claim.says}",
                "published": self.claim.published,
                "ours": quantities.finite(self.ours),
                "ci95": quantities.finite(self.ci95),
                "ns2": self.claim.ns2,
                "verdict": self.verdict,
                "why": self.why,
            },
            ensure_ascii=False,
        )


@dataclass
class PlannedReplay:
    """An experiment of a paper with its readings: the file as it is, "", and under each variant."""

    of: PaperExperiment
    readings: dict[str, Experiment]


def plan_readings(
    paper: Paper,
    *,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    engine: Engine = PACKETS,
) -> list[PlannedReplay]:
    """Read every scenario of a paper, for an engine. `overrides` are keys for all of them, to
    shorten runs."""
    planned = []
    for one in paper.experiments:
        readings = {"": _reading(one, overrides or {}, [], seeds, engine)}
        used = {name for claim in one.claims for name in claim.variants}
        used |= {figure.variant for figure in one.figures}
        for name, variant in one.variants.items():
            if name in used:
                both = {**variant.sets, **(overrides or {})}
                readings[name] = _reading(one, both, variant.laws, seeds, engine)
        planned.append(PlannedReplay(one, readings))
    return planned


def _reading(
    one: PaperExperiment,
    overrides: Mapping[str, Any],
    laws: list[str],
    seeds: int | None,
    engine: Engine,
) -> Experiment:
    texts = [f"{key}={quantities.toml(value)}" for key, value in overrides.items()]
    path = names.shown(one.scenario)
    return experiments.read(path, laws=laws or None, overrides=texts, seeds=seeds, engine=engine)


def results(planned: PlannedReplay, store: Store) -> dict[str, Result]:
    """Return the results by reading; runs that the store lacks are made."""
    return {name: whole_result(reading, store) for name, reading in planned.readings.items()}


def judge(paper: Paper, planned: PlannedReplay, of_reading: Mapping[str, Result]) -> list[Verdict]:
    """Return a verdict for every claim of an experiment. Raises `ScenarioError`."""
    one = planned.of
    measured = {name: Measured(result, one.points) for name, result in of_reading.items()}
    verdicts = []
    for claim in one.claims:
        try:
            ours, ci95 = _value(claim, measured[""])
            one_seed = of_reading[""].seeds == 1
            verdict = _verdict(claim, ours, ci95, measured[""], one_seed=one_seed)
            texts = {name: with_interval(*_value(claim, measured[name])) for name in claim.variants}
        except (ScenarioError, KeyError, ValueError, TypeError) as error:
            raise ScenarioError(f"{one.path}: claim {claim.id}: {error}") from error
        why = " ".join(text for text in (_why(claim, verdict, one_seed), claim.note) if text)
        for name, text in texts.items():
            why = why.replace(f"{{{name}}}", text)
        verdicts.append(Verdict(paper.name, one.name, claim, ours, ci95, verdict, why))
    return verdicts


def count(verdicts: Sequence[Verdict]) -> str:
    """Return how many claims got which verdict, in words."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    kinds = (REPRODUCED, IN_DIRECTION, NOT_REPRODUCED)
    return ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind])


def _value(claim: Claim, measured: Measured) -> tuple[float, float]:
    return statistics.mean_and_interval(measured.evaluate(claim.value, claim.point, claim.window))


def _verdict(claim: Claim, ours: float, ci95: float, measured: Measured, *, one_seed: bool) -> str:
    if math.isnan(ours):
        return NOT_REPRODUCED
    if claim.bound:
        sign, number = claim.bound
        margin = number - ours if sign == "<" else ours - number
        if margin <= 0:
            return NOT_REPRODUCED
        # Better than the bound, but is it more than chance? One seed cannot tell; a number that
        # is over all seeds has no interval of its own, and is itself a test.
        chance = one_seed if math.isnan(ci95) else margin < ci95
        return IN_DIRECTION if chance else REPRODUCED
    published = float(claim.published)
    if abs(ours - published) <= max(claim.within, claim.tolerance * abs(published)):
        return REPRODUCED
    if claim.direction:
        difference = measured.difference(claim.direction, claim.point, claim.window)
        mean, half = statistics.mean_and_interval(difference)
        return IN_DIRECTION if mean > (0 if math.isnan(half) else half) else NOT_REPRODUCED
    return NOT_REPRODUCED


def _why(claim: Claim, verdict: str, one_seed: bool) -> str:
    if verdict == REPRODUCED:
        return ""
    text = claim.why or ("No cause found." if verdict == NOT_REPRODUCED else "")
    if claim.bound and verdict == IN_DIRECTION:
        doubt = (
            "one seed has no interval" if one_seed else f"the interval includes {claim.bound[1]:g}"
        )
        text = f"May be chance: {doubt}. {text}".rstrip()
    return text


#: Stands for every paper.
ALL = "all"


@dataclass(frozen=True)
class ReplayedPaper:
    """A paper's experiments, each with its results by reading, and its claims beside them."""

    paper: Paper
    experiments: Sequence[tuple[PlannedReplay, dict[str, Result], list[Verdict]]]

    @property
    def verdicts(self) -> list[Verdict]:
        """Those of every claim, in the paper's order."""
        return [verdict for *_, judged in self.experiments for verdict in judged]


@dataclass(frozen=True)
class Replay:
    """Papers whose experiments have been read and checked."""

    papers: Sequence[Paper]
    planned: Mapping[str, Sequence[PlannedReplay]]

    @property
    def readings(self) -> list[Experiment]:
        """Every experiment that the claims need, under each variant."""
        return [
            reading
            for experiments in self.planned.values()
            for experiment in experiments
            for reading in experiment.readings.values()
        ]

    def run(
        self,
        store: Store,
        threads: int | None = None,
        watch: Callable[[Progress], None] = lambda _: None,
    ) -> Iterator[ReplayedPaper]:
        """Make the runs that `store` does not have, and judge paper after paper.

        Raises `RunError`; what had finished is in the store, also after Ctrl-C.
        """
        # The longest first, so that no core is left with one of them at the end.
        readings = sorted(self.readings, key=_longest, reverse=True)
        for number, made in execution.execute_all(readings, threads, watch, store=store):
            execution.check_whole(readings[number], made)
        for paper in self.papers:
            judged = []
            for experiment in self.planned[paper.name]:
                by_reading = results(experiment, store)
                verdicts = judge(paper, experiment, by_reading)
                judged.append((experiment, by_reading, verdicts))
            yield ReplayedPaper(paper, judged)


def _longest(experiment: Experiment) -> float:
    """Return the bits that its bottleneck can carry in its longest run."""
    return max(point.duration_s * point.links[0].rate_bps for point in experiment.plan.points)


def plan(
    paper: str,
    seeds: int | None = None,
    overrides: Mapping[str, str] | None = None,
    experiments: Path | None = None,
    engine: str = engines.NAMES[0],
) -> Replay:
    """Read and check what is to be replayed; arguments and errors as of `replay`.

    experiments: the folder of the papers' experiments; Forebay's own if None.
    """
    papers = claims.papers(experiments)
    chosen = [one for one in papers if paper in (ALL, one.name)]
    if not chosen:
        allowed = ", ".join([*(one.name for one in papers), ALL])
        raise ScenarioError(f'PAPER: found "{paper}", allowed: {allowed}')
    by = engines.named(engine)
    check_repeatable(by)
    return Replay(
        chosen,
        {
            one.name: plan_readings(one, seeds=seeds, overrides=overrides or {}, engine=by)
            for one in chosen
        },
    )


def replay(
    paper: str,
    *,
    seeds: int | None = None,
    overrides: Mapping[str, str] | None = None,
    threads: int | None = None,
    engine: str = engines.NAMES[0],
) -> list[ReplayedPaper]:
    """Run a paper's experiments, and lay what it published beside what comes of them.

    paper: its name, such as "pd-red", or "all".
    seeds: run with seeds 1 to `seeds`; as many as each experiment asks for if None.
    overrides: keys to set in every experiment, such as {"traffic.0.min_rto": "1s"}.
    threads: threads to run on; all cores if None.
    engine: what makes the runs: see `forebay.run`.

    Raises `ScenarioError`, and `RunError` for a run that fails.
    """
    wanted = plan(paper, seeds, overrides, engine=engine)
    # Claims need the samples of all runs, which are kept for this call alone.
    with (
        temporary_folder() as folder,
        progress.bar(only_on_terminal=True) as watch,
    ):
        return list(wanted.run(choice.at(folder), threads, watch))
