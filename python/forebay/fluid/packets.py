"""Compare the fluid model with the packet simulator: means, and the response to a step.

`response` measures the return of a queue after a step, and `spread` its variation over runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import minimize

from forebay._base.errors import ParameterError
from forebay._base.registries import title_of
from forebay._native import ScenarioError
from forebay.experiment import descriptions, experiment
from forebay.experiment.engines import PACKETS
from forebay.experiment.result import whole_result
from forebay.fluid.engine import Fluid
from forebay.fluid.traces import Traces, with_windows
from forebay.report.over_time import target_pkts
from forebay.report.parts import TARGET
from forebay.report.plot import Plot, styled
from forebay.report.sheet import TINY_S
from forebay.report.style import COLOURS

if TYPE_CHECKING:
    from forebay._base.quantities import Overrides
    from forebay._native import FluidTrace, PointInfo
    from forebay.experiment.engines import Engine
    from forebay.experiment.experiment import Experiment, Source
    from forebay.experiment.result import Result
    from forebay.scenario.python_laws import Prototype

Floats = NDArray[np.float64]

NAMES = ("packets", "published", "sawtooth")
#: The models in a legend, in the order of `NAMES`.
LEGEND = ("packets, simulated", "fluid, published equations", "fluid, sawtooth windows")


@dataclass(frozen=True)
class Line:
    """The course of one law at one point of the sweep, in one fluid model or in packet runs.

    Attributes
    ----------
    name : str
        Name of the model, one of `NAMES`.
    time_s : Floats
        Times in seconds.
    queue_pkts : Floats
        Queue in packets; the mean over the runs for packet runs.
    probability : Floats
        Signal probability.
    in_flight_pkts : Floats
        Packets in flight per flow, the mean over all flows.
    runs_pkts : Floats, optional
        Queue in each packet run, one row per run; None for a fluid model.
    """

    name: str
    time_s: Floats
    queue_pkts: Floats
    probability: Floats
    in_flight_pkts: Floats
    runs_pkts: Floats | None = None


@dataclass(frozen=True)
class FluidAndPackets:
    """One law at one point: the mean of the packet runs, and two variants of the fluid.

    Attributes
    ----------
    law : str
        Label of the law.
    point : str
        Label of the point.
    lines : list[Line]
        The models.
    measure_s : tuple[float, float]
        Window in which means are taken, in seconds.
    duration_s : float
        Duration of a run in seconds.
    step_s : float | None
        Time of the step whose response is measured; None for no step.
    title : str
        The point in words; empty without a sweep.
    target_pkts : float | None
        Set-point of the law in packets; None if it has none.
    """

    law: str
    point: str
    lines: list[Line]
    measure_s: tuple[float, float]
    duration_s: float
    step_s: float | None
    title: str
    target_pkts: float | None

    def rows(self) -> list[dict[str, str | float | None]]:
        """Return a row per model with its means and, if there is a step, its response.

        The means are those of the queue, the probability and a flow's packets in flight.
        """
        rows: list[dict[str, str | float | None]] = []
        for line in self.lines:
            start_s, end_s = self.measure_s
            part = (line.time_s > start_s) & (line.time_s <= end_s)
            row: dict[str, str | float | None] = {
                "law": self.law,
                "point": self.point,
                "by": line.name,
                "queue_mean_pkts": float(line.queue_pkts[part].mean()),
                "probability": float(line.probability[part].mean()),
                "in_flight_pkts": float(np.nanmean(line.in_flight_pkts[part])),
            }
            if self.step_s is not None:
                after = response(line.time_s, line.queue_pkts, self.step_s, self.duration_s)
                row |= {
                    "half_s": after.half_s,
                    "period_s": after.period_s,
                    "damping": after.damping,
                }
            rows.append(row)
        return rows


def compare(
    path: Source,
    *,
    laws: Sequence[str | Prototype] = (),
    overrides: Overrides = (),
    seeds: int | None = None,
    step_s: float | None = None,
) -> list[FluidAndPackets]:
    """Run a scenario as packets and as a fluid, with published equations and with sawtooth windows.

    Parameters
    ----------
    path : Source
        The scenario.
    laws : Sequence[str | Prototype], default ()
        Laws that replace those of the scenario.
    overrides : Overrides, default ()
        Keys to set on top of the scenario.
    seeds : int, optional
        Number of seeds of the packet runs; that of the scenario by default.
    step_s : float, optional
        Time of a step in seconds, whose response is measured to the end of the run.

    Returns
    -------
    list[FluidAndPackets]
        A comparison for each law at each point.

    Raises
    ------
    ScenarioError
        If the scenario is wrong, the fluid cannot express it, or there is no step at `step_s`.
    """
    runs_of_models = experiments(path, laws, overrides, seeds)
    check_step(runs_of_models[0], step_s)
    return comparisons(
        [whole_result(experiment_of_model) for experiment_of_model in runs_of_models], step_s
    )


def experiments(
    path: Source, laws: Sequence[str | Prototype], overrides: Overrides, seeds: int | None
) -> list[Experiment]:
    """Return the experiments of `compare`: the scenario under each model of `NAMES`, in order.

    Parameters
    ----------
    path : Source
        The scenario.
    laws : Sequence[str | Prototype]
        Laws that replace those of the scenario.
    overrides : Overrides
        Keys to set on top of the scenario.
    seeds : int | None
        Number of seeds of the packet runs; that of the scenario by default.
    """
    engines: list[tuple[Engine, int | None]] = [
        (PACKETS, seeds),
        (Fluid(), 1),
        (Fluid(sawtooth=True), 1),
    ]
    return [
        experiment.read(
            path, laws=laws, overrides=with_windows(overrides), seeds=count, engine=engine
        )
        for engine, count in engines
    ]


def check_step(run: Experiment, step_s: float | None) -> None:
    """Check that the scenario has a step at a time within the run.

    A step is a change of the scenario (`[[at]]`), or traffic that starts or stops all at once.

    Parameters
    ----------
    run : Experiment
        The experiment.
    step_s : float | None
        Time of the step in seconds; None passes.

    Raises
    ------
    ScenarioError
        If the time is outside the run, or nothing changes then.
    """
    if step_s is None:
        return
    for point in run.plan.points:
        if not 0 < step_s < point.duration_s:
            expected = f"a time within the run, before {point.duration_s:g}s"
            raise ParameterError("step_at", f"{step_s:g}s", expected)
        steps = _steps_s(point)
        if not any(abs(step_s - time_s) < TINY_S for time_s in steps):
            times = ", ".join(f"{time_s:g}" for time_s in steps) or "the scenario has no step"
            raise ScenarioError(
                f"step_at: nothing changes at {step_s:g} s; "
                + (f"steps are at {times} s" if steps else f"{times}, which [[at]] would make")
            )


def _steps_s(point: PointInfo) -> list[float]:
    """Return the times within a run at which a link or a load changes, in order."""
    times = [change.time_s for change in point.changes]
    for traffic in point.traffic:
        for first, last in filter(None, [traffic.start_s, traffic.stop_s]):
            # Flows that start one after another do not make a step.
            times += [first] if first == last else []
    return sorted({time for time in times if 0 < time < point.duration_s})


def comparisons(results: Sequence[Result], step_s: float | None = None) -> list[FluidAndPackets]:
    """Return the comparison of each law at each point.

    Parameters
    ----------
    results : Sequence[Result]
        The results of `experiments`, in order.
    step_s : float, optional
        Time of a step in seconds, if any.
    """
    packets, *fluids = results
    points = {point.label: point for point in packets.plan.points}
    compared = []
    for pair in zip(*(Traces(result) for result in fluids), strict=True):
        point = points[pair[0].point]
        lines = [_packets(packets, pair[0])]
        lines += [fluid_line(name, trace) for name, trace in zip(NAMES[1:], pair, strict=True)]
        law = next(law for law in point.laws if law.label == pair[0].law)
        compared.append(
            FluidAndPackets(
                pair[0].law,
                pair[0].point,
                lines,
                point.measure_s,
                point.duration_s,
                step_s,
                descriptions.point(point),
                target_pkts(point, law, point.links[0]),
            )
        )
    return compared


def fluid_line(name: str, trace: FluidTrace) -> Line:
    """Return a run of the fluid at the first bottleneck.

    Parameters
    ----------
    name : str
        Name of the model.
    trace : FluidTrace
        The run.
    """
    queue_pkts, probability = trace.queue_pkts[0], trace.probability[0]
    return Line(name, trace.time_s, queue_pkts, probability, trace.in_flight_pkts)


def _packets(result: Result, like: FluidTrace) -> Line:
    """Return the mean of the packet runs; the probability is signals per arrival of each sample."""
    rows = result.samples.filter(
        pl.col("law") == like.law, pl.col("point") == like.point, pl.col("link") == result.links[0]
    ).sort("seed", "time_s")
    means = (
        rows.group_by("time_s")
        .agg(
            pl.mean("queue_pkts"),
            # group_by(...).mean() differs in its last bit from call to call: see `RunTable`.
            pl.col("in_flight_pkts").fill_nan(None),
            pl.sum("arrivals", "early_drops", "forced_drops", "marks"),
        )
        .with_columns(pl.col("in_flight_pkts").list.mean().fill_null(float("nan")))
        .sort("time_s")
    )
    signals = means.select(pl.sum_horizontal("early_drops", "forced_drops", "marks")).to_series()
    arrivals = means["arrivals"].clip(1)
    return Line(
        NAMES[0],
        means["time_s"].to_numpy(),
        means["queue_pkts"].to_numpy(),
        (signals / arrivals).to_numpy(),
        means["in_flight_pkts"].to_numpy(),
        rows["queue_pkts"].to_numpy().astype(float).reshape(-1, len(means)),
    )


@styled
def figure(comparisons: Sequence[FluidAndPackets]) -> Plot:
    """Draw queue and probability of one law, one column per point."""
    drawn = Plot(figsize=(3.6 * len(comparisons) + 0.8, 4.6), layout="constrained")
    axes = drawn.subplots(2, len(comparisons), squeeze=False, sharex="col")
    for comparison, (upper, lower) in zip(comparisons, axes.T, strict=True):
        for colour, line, name in zip(COLOURS, comparison.lines, LEGEND, strict=False):
            packets = line.name == NAMES[0]
            look: dict[str, Any] = {"color": colour, "linewidth": 0.7 if packets else 1.2}
            upper.plot(line.time_s, line.queue_pkts, label=name, **look)
            lower.plot(line.time_s, _smooth(line) if packets else line.probability, **look)
        if comparison.target_pkts is not None:
            upper.axhline(comparison.target_pkts, label="set-point", zorder=1, **TARGET)
        upper.set_title(comparison.title or title_of(comparison.law))
        upper.set_ylim(bottom=0)
        settled = max(float(np.median(line.probability)) for line in comparison.lines)
        lower.set_ylim(0, max(2.5 * settled, 1e-4))
        lower.set_xlabel("Time [s]")
        if comparison.step_s is not None:
            lower.set_xlim(0.8 * comparison.step_s, comparison.duration_s)
    axes[0, 0].set_ylabel("Queue [packets]")
    axes[1, 0].set_ylabel("Signal probability")
    axes[0, -1].legend()
    drawn.suptitle(
        f"{title_of(comparisons[0].law)}: packets, and two fluid models", x=0.01, ha="left"
    )
    return drawn


def _smooth(line: Line) -> Floats:
    """Return the mean probability over a second: a single sample has few signals."""
    step_s = line.time_s[1] - line.time_s[0]
    window = np.ones(max(int(1.0 / step_s), 1))
    counted = np.convolve(np.ones_like(line.time_s), window, mode="same")
    mean: Floats = np.convolve(line.probability, window, mode="same") / counted
    return mean


# --- the response to a step ---------------------------------------------------------------------

#: The natural frequencies (rad/s) and damping ratios from which fits start.
STARTS = tuple((w, z) for w in (0.3, 0.8, 2.0) for z in (0.1, 0.4, 0.9))

#: Damping ratio above which the overshoot is below 5 %, so a period means little.
SWINGS = 0.7


@dataclass(frozen=True)
class Response:
    """The return of a queue after a step, from its largest deviation on.

    Attributes
    ----------
    half_s : float
        Time until the deviation has halved, in seconds.
    frequency : float
        Natural frequency of the best second-order response, in rad/s.
    damping : float
        Damping ratio of the best second-order response.
    """

    half_s: float
    frequency: float
    damping: float

    @property
    def period_s(self) -> float | None:
        """The period in seconds; None if the response does not oscillate."""
        return self.turn_s if self.damping < SWINGS else None

    @property
    def turn_s(self) -> float:
        """The period in seconds at any damping; infinite from a damping ratio of 1 on."""
        if self.damping >= 1:
            return float("inf")
        return float(2 * np.pi / (self.frequency * np.sqrt(1 - self.damping**2)))


@dataclass(frozen=True)
class Spread:
    """Bootstrap intervals (2.5 % to 97.5 %) of a response; `period_s` may be infinite.

    Attributes
    ----------
    half_s : tuple[float, float]
        Interval of the halving time, in seconds.
    period_s : tuple[float, float]
        Interval of the period, in seconds.
    damping : tuple[float, float]
        Interval of the damping ratio.
    """

    half_s: tuple[float, float]
    period_s: tuple[float, float]
    damping: tuple[float, float]


def response(
    time_s: Floats,
    queue_pkts: Floats,
    start_s: float,
    end_s: float,
    starts: Sequence[tuple[float, float]] = STARTS,
) -> Response:
    """Measure the response to a step.

    The queue need not return to its former length: its final value is the mean over the last tenth.

    Parameters
    ----------
    time_s : Floats
        Times in seconds.
    queue_pkts : Floats
        Queue at these times, in packets.
    start_s : float
        Time of the step in seconds.
    end_s : float
        End of the response in seconds.
    starts : Sequence[tuple[float, float]], default STARTS
        Natural frequencies (rad/s) and damping ratios from which the fit starts.
    """
    part = (time_s > start_s) & (time_s <= end_s)
    time_s, queue_pkts = time_s[part], queue_pkts[part]
    away = queue_pkts - queue_pkts[-max(len(queue_pkts) // 10, 1) :].mean()
    # The first quarter holds the excursion that the step causes; later quarters oscillate.
    first = int(np.argmax(np.abs(away[: max(len(away) // 4, 1)])))
    time_s, away = time_s[first:] - time_s[first], away[first:]
    half_s = float(time_s[np.argmax(away / away[0] < 0.5)])
    return Response(half_s, *_second_order(time_s, away, starts))


def spread(
    time_s: Floats, runs_pkts: Floats, start_s: float, end_s: float, *, draws: int = 200
) -> Spread:
    """Return how much the response of the mean over runs varies by chance.

    Runs are drawn with replacement (Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
    chapter 13), always with the same seed.

    Parameters
    ----------
    time_s : Floats
        Times in seconds.
    runs_pkts : Floats
        Queue of each run at these times, one row per run.
    start_s : float
        Time of the step in seconds.
    end_s : float
        End of the response in seconds.
    draws : int, default 200
        Number of bootstrap samples.
    """
    rng = np.random.default_rng(1)
    whole = response(time_s, runs_pkts.mean(axis=0), start_s, end_s)
    starts = [(whole.frequency, whole.damping), (whole.frequency, 0.4)]
    redrawn = []
    for _ in range(draws):
        drawn = runs_pkts[rng.integers(len(runs_pkts), size=len(runs_pkts))]
        fit = response(time_s, drawn.mean(axis=0), start_s, end_s, starts)
        redrawn.append((fit.half_s, fit.turn_s, fit.damping))
    # "nearest" avoids an average of an infinite period and a finite one.
    low, high = np.quantile(np.array(redrawn), [0.025, 0.975], axis=0, method="nearest")
    pairs = [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
    return Spread(*pairs)


def _second_order(
    time_s: Floats, away: Floats, starts: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Return natural frequency (rad/s) and damping ratio of the least-squares fit.

    The two amplitudes and the offset are linear, so only frequency and damping are searched.
    """

    def cost(log: Floats) -> float:
        frequency, damping = np.exp(log)
        decay = np.exp(-damping * frequency * time_s)
        turn = frequency * np.sqrt(abs(1 - damping**2)) * time_s
        if damping < 1:
            pair = [decay * np.cos(turn), decay * np.sin(turn)]
        else:
            slow = np.exp(turn - damping * frequency * time_s)
            pair = [slow, decay * np.exp(-turn)]
        basis = np.column_stack([*pair, np.ones_like(time_s)])
        weights = np.linalg.lstsq(basis, away, rcond=None)[0]
        return float(np.mean((basis @ weights - away) ** 2))

    fits = [minimize(cost, np.log(start), method="Nelder-Mead") for start in starts]
    best = min(fits, key=lambda fit: float(fit.fun))
    frequency, damping = np.exp(best.x)
    return float(frequency), float(damping)
