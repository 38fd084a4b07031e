"""Values of a run over a part of its time, and the expressions that claims are made of.

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

from forebay._native import ScenarioError, quantity

if TYPE_CHECKING:
    from forebay._native import PointInfo, Run
    from forebay.replay.claims import Window
    from forebay.result import Result

Floats = NDArray[np.float64]

#: Times are compared with this much slack.
TINY_S = 1e-9


class Slice:
    """The samples of a run in a window, (start, end]."""

    def __init__(self, run: Run, point: PointInfo, law: int, window: Window) -> None:
        self.run = run
        self.point = point
        self.start_s, self.end_s = window
        self.target_pkts = (
            point.laws[law].target_pkts if point.target_pkts is None else point.target_pkts
        )
        time_s = run.samples["time_s"]
        inside = (time_s > self.start_s + TINY_S) & (time_s < self.end_s + TINY_S)
        self._rows = slice(int(np.argmax(inside)), int(len(inside) - np.argmax(inside[::-1])))
        if not inside.any():
            self._rows = slice(0, 0)

    def __getitem__(self, column: str) -> Floats:
        return np.asarray(self.run.samples[column][self._rows], dtype=float)

    @property
    def drops(self) -> Floats:
        return self["early_drops"] + self["forced_drops"] + self["overflow_drops"]

    def per_second(self, column: Floats) -> Floats:
        """Sums over whole seconds."""
        rows = max(1, round(1.0 / self.point.sample_s))
        whole = len(column) // rows * rows
        return np.asarray(column[:whole].reshape(-1, rows).sum(axis=1))


def _mean(s: Slice) -> float:
    """Mean queue, in packets."""
    return float(s["queue_pkts"].mean())


def _std(s: Slice) -> float:
    """Standard deviation of the queue, in packets."""
    return float(s["queue_pkts"].std())


def _largest(s: Slice) -> float:
    """Longest queue seen, in packets."""
    return float(s["queue_pkts"].max())


def _qacd(s: Slice) -> float:
    """Quadratic average of control deviation, pi-pd eq. (17): over n + 1."""
    if s.target_pkts is None:
        return math.nan
    error = s["queue_pkts"] - s.target_pkts
    return float(np.sqrt((error**2).sum() / (len(error) + 1)))


def _below_target(s: Slice) -> float:
    """Share of samples with the queue below the set-point."""
    return math.nan if s.target_pkts is None else float((s["queue_pkts"] < s.target_pkts).mean())


def _empty(s: Slice) -> float:
    """Share of samples with an empty queue."""
    return float((s["queue_pkts"] == 0).mean())


def _half_s(s: Slice) -> float:
    """Time with the queue above half of the longest in the whole run."""
    half = 0.5 * float(np.max(s.run.samples["queue_pkts"]))
    return float((s["queue_pkts"] > half).sum() * s.point.sample_s)


def _drop_rate(s: Slice) -> float:
    """Packets dropped, of those that arrived."""
    return float(s.drops.sum() / s["arrivals"].sum())


def _mark_rate(s: Slice) -> float:
    """Packets marked, of those that arrived."""
    return float(s["marks"].sum() / s["arrivals"].sum())


def _drop_rate_std(s: Slice) -> float:
    """Standard deviation of the loss rates of whole seconds: how bursty loss is."""
    arrivals = s.per_second(s["arrivals"])
    return float((s.per_second(s.drops)[arrivals > 0] / arrivals[arrivals > 0]).std())


def _high_loss(s: Slice) -> float:
    """Share of the seconds in which more than 7 % of the packets are lost."""
    arrivals = s.per_second(s["arrivals"])
    return float((s.per_second(s.drops)[arrivals > 0] / arrivals[arrivals > 0] > 0.07).mean())


def _utilisation(s: Slice) -> float:
    """Bits sent, of those the link could carry."""
    return float(8 * s["departed_bytes"].sum() / s["capacity_bits"].sum())


def _throughput(s: Slice) -> float:
    """Bits per second that left the queue."""
    return float(8 * s["departed_bytes"].sum() / (s.end_s - s.start_s))


def _delay_std_ms(s: Slice) -> float:
    """Standard deviation of what an arrival waits, in ms: the backlog over the link's rate."""
    rate_bps = s["capacity_bits"] / s.point.sample_s
    return float((1e3 * 8 * s["queue_bytes"] / rate_bps).std())


def _backlog_std_ms(s: Slice) -> float:
    """Standard deviation of the backlog, as time at the rate that the link starts with."""
    rate_bps = s.run.samples["capacity_bits"][0] / s.point.sample_s
    return float((1e3 * 8 * s["queue_bytes"] / rate_bps).std())


def _delay_mean_ms(s: Slice) -> float:
    """Mean of what an arrival waits, in ms."""
    rate_bps = s["capacity_bits"] / s.point.sample_s
    return float((1e3 * 8 * s["queue_bytes"] / rate_bps).mean())


def _settling_s(s: Slice) -> float:
    """Time from the window's start until the 1 s mean of the queue stays near its last half.

    Near is within a quarter of that half's mean, and never closer than 5 packets.
    """
    rows = max(1, round(1.0 / s.point.sample_s))
    smooth = np.convolve(s["queue_pkts"], np.ones(rows) / rows, mode="valid")
    rest = float(smooth[len(smooth) // 2 :].mean())
    away = np.flatnonzero(np.abs(smooth - rest) > max(5.0, rest / 4))
    return float((away[-1] + 1 if len(away) else 0) * s.point.sample_s)


def _column_std(name: str) -> Callable[[Slice], float]:
    """Standard deviation of what the law reports of its inner state."""
    return lambda s: float(np.nanstd(s[name]))


def _tcp_goodput_bps(s: Slice) -> float:
    """Data over the queue to TCP's receivers, in the whole measurement whatever the window."""
    tcp = [i for i, traffic in enumerate(s.point.traffic) if traffic.tcp is not None]
    return float(s.run.flow_goodput_bps[np.isin(s.run.flow_traffic, tcp)].sum())


def _transfer_delay_s(s: Slice) -> float:
    """bigdeli eq. (9): delay from sender to receiver, weighted by what each flow got.

    A flow's delay is half its propagation round trip and the mean wait in the queue; flows take
    their traffic's list of round trips in turn.
    """
    goodput_bps, of = s.run.flow_goodput_bps, s.run.flow_traffic
    one_way_s = np.zeros(len(of))
    for i, traffic in enumerate(s.point.traffic):
        rtt_s = np.array([quantity("rtt", text, "time") for text in traffic.rtts])
        flows = np.flatnonzero(of == i)
        one_way_s[flows] = rtt_s[np.arange(len(flows)) % len(rtt_s)] / 2
    return float(goodput_bps @ one_way_s / goodput_bps.sum() + s.run.metrics["delay_mean_s"])


def _jitter_s3(s: Slice) -> float:
    """bigdeli eq. (10) as printed: variance of the delay times its mean, in s³."""
    return (_delay_std_ms(s) / 1e3) ** 2 * _transfer_delay_s(s)


def _jitter(s: Slice) -> float:
    """bigdeli eq. (10) as its text has it: coefficient of variation of the delay."""
    return _delay_std_ms(s) / 1e3 / _transfer_delay_s(s)


def _column(name: str) -> Callable[[Slice], float]:
    """Mean of what the law reports of its inner state."""
    return lambda s: float(np.nanmean(s[name]))


def _metric(name: str) -> Callable[[Slice], float]:
    """A metric of the whole measurement, whatever the window."""
    return lambda s: s.run.metrics[name]


MEASURES: Mapping[str, Callable[[Slice], float]] = {
    "mean": _mean,
    "std": _std,
    "largest": _largest,
    "qacd": _qacd,
    "below_target": _below_target,
    "empty": _empty,
    "half_s": _half_s,
    "drop_rate": _drop_rate,
    "mark_rate": _mark_rate,
    "drop_rate_std": _drop_rate_std,
    "high_loss": _high_loss,
    "utilisation": _utilisation,
    "throughput": _throughput,
    "delay_std_ms": _delay_std_ms,
    "backlog_std_ms": _backlog_std_ms,
    "delay_mean_ms": _delay_mean_ms,
    "settling_s": _settling_s,
    "probability": _column("p"),
    "probability_std": _column_std("p"),
    "max_p_std": _column_std("max_p"),
    "capacity_pkts_per_s": _column("capacity_pkts_per_s"),
    "flows": _column("flows"),
    "tcp_goodput_bps": _tcp_goodput_bps,
    "transfer_delay_s": _transfer_delay_s,
    "jitter_s3": _jitter_s3,
    "jitter": _jitter,
    "jain": _metric("jain"),
    "goodput_bps": _metric("goodput_bps"),
}

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
        if measure not in MEASURES:
            raise ScenarioError(f"measure: found {measure}, allowed: {', '.join(MEASURES)}")
        if point and point not in self.points:
            raise ScenarioError(f"point: found {point}, allowed: {', '.join(self.points)}")
        p, i = self.points[point] if point else 0, self.law(law)
        info = self.result.plan.points[p]
        slices = (Slice(run, info, i, window or info.measure_s) for run in self.result.of(p, i))
        return np.array([MEASURES[measure](one) for one in slices])

    def anova(self, measure: str, law: str, window: Window | None) -> tuple[float, float]:
        """F and p of a one-way analysis of variance of a measure over the points."""
        if measure not in MEASURES:
            raise ScenarioError(f"measure: found {measure}, allowed: {', '.join(MEASURES)}")
        i = self.law(law)
        return one_way(
            [
                [
                    MEASURES[measure](Slice(run, info, i, window or info.measure_s))
                    for run in self.result.of(p, i)
                ]
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
        """Of a comparison a < b: b − a per seed, so that it holds where it is positive."""
        tree = ast.parse(text, mode="eval").body
        if not isinstance(tree, ast.Compare) or not isinstance(tree.ops[0], ast.Lt | ast.Gt):
            raise ScenarioError(f"{text}: allowed: a comparison with < or >")
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
