"""Replays of papers: measures, verdicts on claims, and `forebay.replay`."""

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
from forebay._base.errors import ParameterError
from forebay._base.metrics import Metric, with_interval
from forebay._base.temporary import temporary_folder
from forebay._base.words import one_of
from forebay._native import ScenarioError
from forebay.campaign import claims
from forebay.campaign.claims import Claim, Paper, PaperExperiment
from forebay.experiment import engines, execution
from forebay.experiment import experiment as experiments
from forebay.experiment import store as stores
from forebay.experiment.engines import PACKETS, check_repeatable
from forebay.experiment.experiment import Experiment
from forebay.experiment.result import Result, whole_result
from forebay.scenario import names

if TYPE_CHECKING:
    from forebay._base.progress import Progress
    from forebay._native import Run
    from forebay.campaign.claims import Window
    from forebay.experiment.engines import Engine
    from forebay.experiment.store import Store

Floats = NDArray[np.float64]

#: Every measure, by its name in a claim.
MEASURES: Mapping[str, Metric] = {
    entry["claim"]: Metric.from_entry(entry) for entry in _native.measures()
}
#: Operators of an expression.
OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def one_way(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return F and p of a one-way analysis of variance.

    Both are NaN if a group has fewer than two values.
    """
    if min(map(len, groups)) < 2:
        return math.nan, math.nan
    from scipy import stats

    test = stats.f_oneway(*groups)
    return float(test.statistic), float(test.pvalue)


class Measured:
    """The measures of a result, by law, point and time window.

    Parameters
    ----------
    result : Result
        The runs.
    points : mapping
        What the sweep sets at each named point.

    Raises
    ------
    ScenarioError
        If the sweep has no such point.
    """

    def __init__(self, result: Result, points: Mapping[str, Mapping[str, Any]]) -> None:
        self.result = result
        self.points = {name: _index(result, name, settings) for name, settings in points.items()}

    def law(self, label: str) -> int:
        """Return the index of a law, or raise `ScenarioError`."""
        laws = self.result.plan.laws
        if label not in laws:
            raise ParameterError("law", label, one_of(laws, label), reason="not in the scenario")
        return laws.index(label)

    def values(self, measure: str, law: str, point: str, window: Window | None) -> Floats:
        """Return a measure of a law: a value per seed, and none if the law has not run.

        Raises
        ------
        ScenarioError
            If there is no such measure, law or point.
        """
        if point and point not in self.points:
            names = ", ".join(self.points)
            raise ScenarioError(f'point: "{point}" is not in [points]; it has {names}')
        index = self.points[point] if point else 0
        return np.array(self._at(measure, index, self.law(law), window))

    def anova(self, measure: str, law: str, window: Window | None) -> tuple[float, float]:
        """Return F and p of a one-way analysis of variance of a measure over the points."""
        number = self.law(law)
        points = range(len(self.result.plan.points))
        return one_way([self._at(measure, point, number, window) for point in points])

    def _at(self, measure: str, point: int, law: int, window: Window | None) -> list[float]:
        """Return a measure of each run of a law at a point."""
        info = self.result.plan.points[point]
        target_pkts = info.target_pkts
        if target_pkts is None:
            target_pkts = info.laws[law].target_pkts

        def value(run: Run) -> float:
            return _native.measure(
                measure,
                run,
                sample_s=info.sample_s,
                window=window or info.measure_s,
                target_pkts=target_pkts,
                traffic=[(traffic.tcp is not None, traffic.rtts_s) for traffic in info.traffic],
            )

        return [value(run) for run in self.result.runs_of(point, law)]

    def evaluate(self, text: str, point: str, window: Window | None) -> Floats:
        """Return the value of an expression per seed; a single value if it is over all seeds.

        Raises
        ------
        ScenarioError
            If the expression is not of numbers and measures.
        """
        try:
            tree = ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise ScenarioError(f"{text}: {error.msg}") from error
        return np.atleast_1d(np.asarray(self._node(text, tree, point, window), dtype=float))

    def difference(self, text: str, point: str, window: Window | None) -> Floats:
        """Return b − a of a comparison a < b per seed: the comparison holds if it is positive.

        Raises
        ------
        ScenarioError
            If the text is no comparison of expressions.
        """
        tree = ast.parse(text, mode="eval").body
        if not isinstance(tree, ast.Compare) or not isinstance(tree.ops[0], ast.Lt | ast.Gt):
            raise ScenarioError(f"{text}: write a comparison with < or >")
        sides = [self._node(text, side, point, window) for side in (tree.left, *tree.comparators)]
        sign = 1 if isinstance(tree.ops[0], ast.Lt) else -1
        return np.atleast_1d(np.asarray(sign * (sides[1] - sides[0]), dtype=float))

    def _node(self, text: str, node: ast.expr, point: str, window: Window | None) -> Any:
        match node:
            case ast.BinOp() if type(node.op) in OPERATORS:
                first, second = (
                    self._node(text, n, point, window) for n in (node.left, node.right)
                )
                with np.errstate(divide="ignore", invalid="ignore"):
                    return OPERATORS[type(node.op)](first, second)
            case ast.UnaryOp(op=ast.USub()):
                return -self._node(text, node.operand, point, window)
            case ast.Constant(value=int() | float()):
                return node.value
            case ast.Call(func=ast.Name(id=name)):
                arguments: Any = [ast.literal_eval(argument) for argument in node.args]
                options = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
                window = options.get("window", window)
                if name in ("anova_f", "anova_p"):
                    measure, law = arguments
                    return self.anova(measure, law, window)[name == "anova_p"]
                (law,) = arguments
                return self.values(name, law, options.get("point", point), window)
        raise ScenarioError(f"{text}: {ast.unparse(node)} is neither a number nor a measure")


def _index(result: Result, name: str, settings: Mapping[str, Any]) -> int:
    """Return the index of the point that a name means, or raise `ScenarioError`."""
    for index, point in enumerate(result.plan.points):
        if all(point.settings.get(key) == value for key, value in settings.items()):
            return index
    labels = "; ".join(point.label for point in result.plan.points)
    raise ScenarioError(f"points: {name}: the sweep has no point {dict(settings)}; it has {labels}")


REPRODUCED = "reproduced"
IN_DIRECTION = "reproduced in direction"
NOT_REPRODUCED = "not reproduced"


@dataclass(frozen=True)
class Verdict:
    """A claim and its verdict.

    Attributes
    ----------
    paper, experiment : str
        Names of the paper and of its experiment.
    claim : Claim
        The claim.
    ours : float
        Our value.
    ci95 : float
        Half-width of its 95 % confidence interval; NaN for one seed, or if there is one value only.
    verdict : str
        `REPRODUCED`, `IN_DIRECTION` or `NOT_REPRODUCED`.
    why : str
        The reason in sentences; empty if there is nothing to say.
    """

    paper: str
    experiment: str
    claim: Claim
    ours: float
    ci95: float
    verdict: str
    why: str

    @property
    def key(self) -> str:
        """The name of the claim among all papers."""
        return f"{self.paper}/{self.experiment}/{self.claim.id}"

    def text(self) -> str:
        """Return our value with its interval."""
        return with_interval(self.ours, self.ci95)

    def published(self) -> str:
        """Return the published number or bound, with its unit."""
        number = self.claim.published
        text = number if isinstance(number, str) else f"{number:g}"
        return f"{text} {self.claim.unit}".rstrip()

    def line(self) -> str:
        """Return one line of JSON, as `forebay replay --json` prints it."""
        facts = {
            "paper": self.paper,
            "experiment": self.experiment,
            "claim": f"{self.claim.id}: {self.claim.where}: {self.claim.says}",
            "published": self.claim.published,
            "ours": quantities.finite(self.ours),
            "ci95": quantities.finite(self.ci95),
            "ns2": self.claim.ns2,
            "verdict": self.verdict,
            "why": self.why,
        }
        return json.dumps(facts, ensure_ascii=False)


@dataclass
class PlannedReplay:
    """An experiment of a paper: as the file has it, "", and under each variant that is used."""

    of: PaperExperiment
    readings: dict[str, Experiment]


def plan_readings(
    paper: Paper,
    *,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    engine: Engine = PACKETS,
) -> list[PlannedReplay]:
    """Read every scenario of a paper, also under the variants that claims and figures use.

    Parameters
    ----------
    paper : Paper
        The paper.
    seeds : int, optional
        Number of seeds. By default as many as each experiment asks for.
    overrides : mapping, optional
        Keys to set in every scenario.
    engine : Engine, optional
        What makes the runs.

    Raises
    ------
    ScenarioError
        If a scenario cannot be run, or not by this engine.
    """

    def read(experiment: PaperExperiment, sets: Mapping[str, Any], laws: list[str]) -> Experiment:
        texts = [
            f"{key}={quantities.toml(value)}"
            for key, value in {**sets, **(overrides or {})}.items()
        ]
        path = names.shown(experiment.scenario)
        return experiments.read(
            path, laws=laws or None, overrides=texts, seeds=seeds, engine=engine
        )

    planned = []
    for experiment in paper.experiments:
        used = {name for claim in experiment.claims for name in claim.variants}
        used |= {figure.variant for figure in experiment.figures}
        readings = {"": read(experiment, {}, [])} | {
            name: read(experiment, variant.sets, variant.laws)
            for name, variant in experiment.variants.items()
            if name in used
        }
        planned.append(PlannedReplay(experiment, readings))
    return planned


def _judge(paper: Paper, planned: PlannedReplay, results: Mapping[str, Result]) -> list[Verdict]:
    """Return a verdict for every claim of an experiment, or raise `ScenarioError`."""
    experiment, one_seed = planned.of, results[""].seeds == 1
    measured = {name: Measured(result, experiment.points) for name, result in results.items()}
    verdicts = []
    for claim in experiment.claims:
        try:
            ours, ci95 = _value(claim, measured[""])
            verdict = _verdict(claim, ours, ci95, measured[""], one_seed=one_seed)
            texts = {name: with_interval(*_value(claim, measured[name])) for name in claim.variants}
        except (ScenarioError, KeyError, ValueError, TypeError) as error:
            raise ScenarioError(f"{experiment.path}: claim {claim.id}: {error}") from error
        why = " ".join(text for text in (_why(claim, verdict, one_seed), claim.note) if text)
        for name, text in texts.items():
            why = why.replace(f"{{{name}}}", text)
        verdicts.append(Verdict(paper.name, experiment.name, claim, ours, ci95, verdict, why))
    return verdicts


def count(verdicts: Sequence[Verdict]) -> str:
    """Return the number of claims of each verdict, in words."""
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
        # The bound holds, but perhaps by chance: a single seed cannot tell. A number over all
        # seeds, such as a p value, has no interval of its own and is itself a test.
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


#: The name that stands for every paper.
ALL = "all"


@dataclass(frozen=True)
class ReplayedExperiment:
    """An experiment of a paper, with its results by reading and the verdicts on its claims."""

    of: PaperExperiment
    results: Mapping[str, Result]
    verdicts: Sequence[Verdict]


@dataclass(frozen=True)
class ReplayedPaper:
    """A paper whose experiments have been run."""

    paper: Paper
    experiments: Sequence[ReplayedExperiment]

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts on every claim, in the paper's order."""
        return [verdict for experiment in self.experiments for verdict in experiment.verdicts]


@dataclass(frozen=True)
class Replay:
    """Papers whose experiments have been read and checked."""

    papers: Sequence[Paper]
    planned: Sequence[Sequence[PlannedReplay]]

    @property
    def readings(self) -> list[Experiment]:
        """Every experiment that the claims need, under each variant."""
        return [
            reading
            for of_paper in self.planned
            for experiment in of_paper
            for reading in experiment.readings.values()
        ]

    def run(
        self,
        store: Store,
        threads: int | None = None,
        watch: Callable[[Progress], None] = lambda _: None,
    ) -> Iterator[ReplayedPaper]:
        """Make the runs that are not in the store, and judge paper after paper.

        What has finished is in the store, also after Ctrl-C.

        Raises
        ------
        RunError
            If a run fails.
        """
        # The longest first, so that no core waits for one of them at the end.
        readings = sorted(self.readings, key=_work_bits, reverse=True)
        for number, executed in execution.execute_all(readings, threads, watch, store=store):
            execution.check_whole(readings[number], executed)
        for paper, of_paper in zip(self.papers, self.planned, strict=True):
            replayed = []
            for experiment in of_paper:
                results = {
                    name: whole_result(reading, store)
                    for name, reading in experiment.readings.items()
                }
                verdicts = _judge(paper, experiment, results)
                replayed.append(ReplayedExperiment(experiment.of, results, verdicts))
            yield ReplayedPaper(paper, replayed)


def _work_bits(experiment: Experiment) -> float:
    """Return the bits that the bottleneck can carry in the longest run."""
    return max(point.duration_s * point.links[0].rate_bps for point in experiment.plan.points)


def plan(
    paper: str,
    seeds: int | None = None,
    overrides: Mapping[str, str] | None = None,
    experiments: Path | None = None,
    engine: str = engines.NAMES[0],
) -> Replay:
    """Read and check the experiments of a paper.

    Parameters
    ----------
    paper, seeds, overrides, engine
        The parameters of `replay`.
    experiments : Path, optional
        Folder of the papers' experiments. By default those here and those that come with Forebay.

    Raises
    ------
    ScenarioError
        If there is no such paper, or one of its experiments cannot be run.
    """
    papers = claims.papers(experiments)
    chosen = [candidate for candidate in papers if paper in (ALL, candidate.name)]
    if not chosen:
        names = [*(candidate.name for candidate in papers), ALL]
        raise ParameterError("PAPER", paper, one_of(names, paper))
    by = engines.named(engine)
    check_repeatable(by)
    planned = [
        plan_readings(candidate, seeds=seeds, overrides=overrides, engine=by)
        for candidate in chosen
    ]
    return Replay(chosen, planned)


def replay(
    paper: str,
    *,
    seeds: int | None = None,
    overrides: Mapping[str, str] | None = None,
    threads: int | None = None,
    engine: str = engines.NAMES[0],
) -> list[ReplayedPaper]:
    """Run the experiments of a paper, and compare published with reproduced results.

    Parameters
    ----------
    paper : str
        Name of the paper, such as "pd-red", or "all".
    seeds : int, optional
        Number of seeds. By default as many as each experiment asks for.
    overrides : mapping, optional
        Keys to set in every experiment, such as {"traffic.0.min_rto": "1s"}.
    threads : int, optional
        Number of threads. By default all cores.
    engine : str, optional
        What makes the runs: see `forebay.run`.

    Returns
    -------
    list of ReplayedPaper
        The papers, with results and verdicts.

    Raises
    ------
    ScenarioError
        If there is no such paper, or one of its experiments cannot be run.
    RunError
        If a run fails.
    """
    planned = plan(paper, seeds, overrides, engine=engine)
    # Claims need the samples of all runs, which are kept for this call alone.
    with (
        temporary_folder() as folder,
        progress.bar(only_on_terminal=True) as watch,
    ):
        return list(planned.run(stores.at(folder), threads, watch))
