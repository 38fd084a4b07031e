"""The expressions that claims are made of, over measures of `forebay-trace`.

An expression has numbers, + − × ÷, and measures of a law: `std('pd-red') / std('ared')`. A
measure takes the point and the window of its claim, or its own: `mean('pi', point='heavy',
window=(100, 150))`. It has one value per seed, so that a ratio is taken seed by seed.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import forebay._native as _native
from forebay._base.metrics import Metric
from forebay._native import ScenarioError

if TYPE_CHECKING:
    from forebay._native import PointInfo, Run
    from forebay.campaign.claims import Window
    from forebay.experiment.result import Result

Floats = NDArray[np.float64]

#: Every measure, by its name in a claim.
MEASURES: Mapping[str, Metric] = {
    entry["claim"]: Metric.from_entry(entry) for entry in _native.measures()
}


def _measure(name: str, run: Run, point: PointInfo, law: int, window: Window | None) -> float:
    """One measure of one run. Raises `ScenarioError`."""
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
    """F and p of a one-way analysis of variance; NaN where a group has fewer than two values."""
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
        """Index of a law. Raises `ScenarioError`."""
        laws = self.result.plan.laws
        if label not in laws:
            raise ScenarioError(f"law: found {label}, allowed: {', '.join(laws)}")
        return laws.index(label)

    def values(self, measure: str, law: str, point: str, window: Window | None) -> Floats:
        """One value per seed, in their order; of no seed where the law has not run."""
        if point and point not in self.points:
            raise ScenarioError(f"point: found {point}, allowed: {', '.join(self.points)}")
        p, i = self.points[point] if point else 0, self.law(law)
        info = self.result.plan.points[p]
        runs = self.result.runs_of(p, i)
        return np.array([_measure(measure, run, info, i, window) for run in runs])

    def anova(self, measure: str, law: str, window: Window | None) -> tuple[float, float]:
        """F and p of a one-way analysis of variance of a measure over the points."""
        i = self.law(law)
        return one_way(
            [
                [_measure(measure, run, info, i, window) for run in self.result.runs_of(p, i)]
                for p, info in enumerate(self.result.plan.points)
            ]
        )

    def evaluate(self, text: str, point: str, window: Window | None) -> Floats:
        """The value of an expression, per seed; one value where it is over all seeds.

        Raises `ScenarioError`.
        """
        try:
            tree = ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise ScenarioError(f"{text}: {error.msg}") from error
        return np.atleast_1d(np.asarray(self._node(text, tree, point, window), dtype=float))

    def difference(self, text: str, point: str, window: Window | None) -> Floats:
        """The difference b − a of a comparison a < b, per seed: it holds where this is positive."""
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
    """Index of the point that a name stands for. Raises `ScenarioError`."""
    for i, point in enumerate(result.plan.points):
        if all(point.settings.get(key) == value for key, value in settings.items()):
            return i
    labels = "; ".join(point.label for point in result.plan.points)
    raise ScenarioError(f"points: {name}: found {dict(settings)}, allowed: one of {labels}")
