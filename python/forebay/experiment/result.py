"""The result of an experiment: its runs, frames of what they observed, figures and report."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import polars as pl

from forebay._base import (
    metrics,
    progress,
    publication,
    quantities,
    signals,
    statistics,
    words,
)
from forebay._base.errors import Interrupted, ParameterError
from forebay._base.metrics import CLASS_METRICS, METRICS, TRAFFIC_METRICS
from forebay.experiment import engines, execution, experiment, steady_state
from forebay.experiment.table import EMPTY, Cell, RunTable, to_pandas
from forebay.scenario import axes

if TYPE_CHECKING:
    import pandas

    from forebay._base.quantities import Overrides
    from forebay._base.statistics import PairedDifference
    from forebay._native import (
        ClassObserved,
        LawInfo,
        Observed,
        Plan,
        PointInfo,
        Run,
        TrafficInfo,
    )
    from forebay.experiment.engines import Engine
    from forebay.experiment.execution import Execution
    from forebay.experiment.experiment import Experiment, Source
    from forebay.experiment.steady_state import Finding
    from forebay.experiment.store import Store
    from forebay.experiment.table import LawDifference
    from forebay.report.plot import Plot
    from forebay.scenario.python_laws import Prototype


#: Tables of a result, as their attributes are called.
FrameName = Literal[
    "metrics",
    "summary",
    "samples",
    "delays",
    "flows",
    "traffic",
    "classes",
    "class_delays",
    "transfers",
    "goodput",
]
#: Figures of a result.
PlotKind = Literal[
    "queue",
    "loss",
    "delay",
    "classes",
    "flows",
    "windows",
    "completion",
    "goodput",
    "qacd",
    "load",
]


class Result:
    """The finished runs of one experiment, in the order of points, laws and seeds.

    Printed, and in a notebook, it shows its summary as a table. What draws is loaded by the
    methods that draw: matplotlib takes longer to load than most runs take.
    """

    def __init__(self, experiment: Experiment, execution: Execution) -> None:
        self.experiment = experiment
        self.runs = execution.runs
        #: The metrics that tables show; the usual ones where none is named.
        self.chosen_metrics: Sequence[str] = ()
        self.elapsed_s = execution.elapsed_s
        #: How many runs were in the store.
        self.found = execution.found
        #: What a reader must know of some runs, by point, law and seed.
        self.remarks = execution.remarks
        #: What some runs leave beside their traces, likewise.
        self.extras = execution.extras
        self._groups: dict[tuple[int, int], list[Run]] = {}
        for run in self.runs:
            self._groups.setdefault((run.point, run.law), []).append(run)
        #: How many seeds any law has finished at any point.
        self.seeds = max((len(runs) for runs in self._groups.values()), default=0)
        #: Whether runs are missing, because they were interrupted or one of them failed.
        self.partial = len(self.runs) < experiment.runs

    @property
    def plan(self) -> Plan:
        """What was to be run: title, source, laws, points, seeds."""
        return self.experiment.plan

    @property
    def links(self) -> list[str]:
        """Names of the links at any point, the bottleneck first."""
        names = (link.name for point in self.plan.points for link in point.links)
        return list(dict.fromkeys(names))

    def runs_of(self, point: int, law: int) -> list[Run]:
        """The runs of one law at one point, by their indices in the plan."""
        return self._groups.get((point, law), [])

    def observed_at(self, point: int, law: int, link: int) -> list[Observed]:
        """What those runs observed at the link with this number; the bottleneck is 0."""
        return [run.links[link] for run in self.runs_of(point, law)]

    def points(self) -> Iterator[tuple[int, PointInfo]]:
        """Points at which something finished, with their indices."""
        seen = {point for point, _ in self._groups}
        return ((i, point) for i, point in enumerate(self.plan.points) if i in seen)

    def laws(self, point: int) -> Iterator[tuple[int, LawInfo]]:
        """Laws with finished runs at a point, with their indices."""
        laws = self.plan.points[point].laws
        return ((i, law) for i, law in enumerate(laws) if (point, i) in self._groups)

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """A row per run and link: law, point, what the sweep set, seed, link, the law's parameters
        as JSON, the engine, every metric.

        Texts that the sweep set, such as "100ms", sort by their value.
        """
        rows = [(run, link) for run in self.runs for link in run.links]
        points = [self.plan.points[run.point] for run, _ in rows]
        columns: dict[str, object] = {
            "law": [self.plan.laws[run.law] for run, _ in rows],
            "point": [point.label for point in points],
        }
        for key in self.plan.points[0].settings:
            columns[key] = _settings_column([point.settings[key] for point in points])
        columns["seed"] = pl.Series([run.seed for run, _ in rows], dtype=pl.UInt64)
        columns["link"] = [link.link for _, link in rows]
        columns["parameters"] = [
            json.dumps(dict(point.laws[run.law].params))
            for (run, _), point in zip(rows, points, strict=True)
        ]
        columns["engine"] = [self.experiment.made_by] * len(rows)
        for name in METRICS:
            columns[name] = [link.metrics.get(name) for _, link in rows]
        return self._keyed(pl.DataFrame(columns))

    @cached_property
    def costs(self) -> pl.DataFrame:
        """A row per run: law, point, seed, and user_cpu_s, which no two calls have alike."""
        columns = {
            "law": [self.plan.laws[run.law] for run in self.runs],
            "point": [self.plan.points[run.point].label for run in self.runs],
            "seed": pl.Series([run.seed for run in self.runs], dtype=pl.UInt64),
            metrics.COST: [run.metrics[metrics.COST] for run in self.runs],
        }
        return pl.DataFrame(columns).with_columns(*self._labels())

    @cached_property
    def warnings(self) -> list[tuple[Finding, int]]:
        """Facts that a reader must know of the means, each with the number of points that have it.

        They are the engine's remarks, and findings of `steady_state.warnings`.
        """
        found = steady_state.warnings(
            (p, point, law, self.runs_of(p, i))
            for p, point in self.points()
            for i, law in self.laws(p)
        )
        return [*self._remarked(), *found]

    def _remarked(self) -> Iterator[tuple[Finding, int]]:
        """The engine's remarks, one for each law at each point."""
        for p, _ in self.points():
            for i, law in self.laws(p):
                runs = self.runs_of(p, i)
                seen = [some for run in runs if (some := self.remarks.get((p, i, run.seed)))]
                if seen:
                    clauses = dict.fromkeys(str(remark) for some in seen for remark in some)
                    text = f"{len(seen)} of {len(runs)} runs: {'; '.join(clauses)}"
                    yield steady_state.Finding(law.label, p, "remark", text), 1

    @cached_property
    def samples(self) -> pl.DataFrame:
        """A row per sample of each link: law, point, seed, link, time_s and the trace's columns.

        `p`, and what else a law reports of its inner state, is null where it reports none.
        """
        return self._table(lambda link: pl.DataFrame(link.samples))

    @cached_property
    def delays(self) -> pl.DataFrame:
        """A row per bin of the queuing delay: its upper end delay_s, and packets in it."""
        return self._table(
            lambda link: pl.DataFrame({"delay_s": link.delay_s, "packets": link.delay_packets})
        )

    @cached_property
    def flows(self) -> pl.DataFrame:
        """A row per link and flow that crosses it: its traffic's index, its number within that
        traffic, its propagation round trip rtt_s, and its goodput_bps.

        The number counts from 0 in the order of the scenario; over a real link it is the order in
        which flows appear. `rtt_s` is null for packets from a file, which have none.
        """

        def rows(link: Observed, point: PointInfo) -> pl.DataFrame:
            numbered = pl.DataFrame(
                {"traffic": link.flow_traffic, "goodput_bps": link.flow_goodput_bps}
            ).with_columns(flow=pl.int_range(pl.len(), dtype=pl.UInt32).over("traffic"))
            frames = [
                of.with_columns(rtt_s=_round_trips_s(point.traffic[number : number + 1], len(of)))
                for (number,), of in numbered.group_by("traffic", maintain_order=True)
            ]
            none = numbered.with_columns(rtt_s=pl.lit(None, pl.Float64))
            return pl.concat(frames or [none]).select("traffic", "flow", "rtt_s", "goodput_bps")

        return self._table_of_points(rows)

    @cached_property
    def classes(self) -> pl.DataFrame:
        """A row per link and class of its queue: every metric of the class."""
        return self._of_classes(
            lambda one: pl.DataFrame({name: [one.metrics[name]] for name in CLASS_METRICS})
        )

    @cached_property
    def traffic(self) -> pl.DataFrame:
        """Who gets what: a row per link and traffic that crosses it, where several do, with its
        index, its label and every metric of it."""
        labels = [traffic.label for traffic in self.plan.points[0].traffic]
        schema: dict[str, Any] = {"traffic": pl.UInt32, "label": pl.Enum(labels)}
        schema |= dict.fromkeys(TRAFFIC_METRICS, pl.Float64)
        return self._table(
            lambda link: pl.DataFrame(
                [
                    {"traffic": it.traffic, "label": labels[it.traffic], **it.metrics}
                    for it in link.traffic
                ],
                schema,
            )
        )

    @cached_property
    def class_delays(self) -> pl.DataFrame:
        """A row per class and bin of its queuing delay, as `delays`."""
        return self._of_classes(
            lambda one: pl.DataFrame({"delay_s": one.delay_s, "packets": one.delay_packets})
        )

    @cached_property
    def transfers(self) -> pl.DataFrame:
        """A row per link and transfer that was done: its traffic's index, packets, and time.

        took_s is from the SYN to the last ACK.
        """
        return self._table(
            lambda link: pl.DataFrame(
                {
                    "traffic": link.transfer_traffic,
                    "packets": link.transfer_packets,
                    "took_s": link.transfer_s,
                }
            )
        )

    @cached_property
    def goodput(self) -> pl.DataFrame:
        """A row per link, interval and flow: the interval's end time_s, and goodput_bps in it.

        Traffic of few flows has a row for each `flow`, counted from 0; traffic of many has one for
        each `quantile` over its flows. The other of both is null.
        """
        schema = {
            "time_s": pl.Float64,
            "traffic": pl.UInt32,
            "flow": pl.UInt32,
            "quantile": pl.Float64,
            "goodput_bps": pl.Float32,
        }

        def rows(link: Observed) -> pl.DataFrame:
            frames = [pl.DataFrame(schema=schema)]
            for of in (one for one in link.goodput if one.columns):
                goodput_bps = np.array(of.columns)
                count, length = goodput_bps.shape
                numbers = np.repeat(np.arange(count), length)
                column = {
                    "time_s": np.tile(np.arange(1, length + 1) * of.interval_s, count),
                    "traffic": np.full(count * length, of.traffic),
                    "flow": None if of.quantiles else numbers,
                    "quantile": np.array(of.quantiles)[numbers] if of.quantiles else None,
                    "goodput_bps": goodput_bps.ravel(),
                }
                frames.append(pl.DataFrame(column, schema=schema))
            return pl.concat(frames)

        return self._table(rows)

    @cached_property
    def table(self) -> RunTable:
        """A row per run and link, with every metric."""
        return RunTable(self.metrics)

    @cached_property
    def _cells(self) -> Mapping[tuple[Any, ...], Cell]:
        return self.table.cell_of([*METRICS], "point", "link")

    @cached_property
    def _class_cells(self) -> Mapping[tuple[Any, ...], Cell]:
        return RunTable(self.classes).cell_of([*CLASS_METRICS], "point", "link", "class")

    @cached_property
    def _traffic_cells(self) -> Mapping[tuple[Any, ...], Cell]:
        return RunTable(self.traffic).cell_of([*TRAFFIC_METRICS], "point", "link", "label")

    def _place(self, point: int, law: int, link: int) -> tuple[str, str, str]:
        info = self.plan.points[point]
        return self.plan.laws[law], info.label, info.links[link].name

    def cell(self, point: int, law: int, metric: str, link: int = 0) -> Cell:
        """Mean and interval of a metric, by the indices of point, law and link. Raises
        `ScenarioError` for what is no metric."""
        metrics.check_metrics([metric])
        return self._cells.get((metric, *self._place(point, law, link)), EMPTY)

    def class_names(self, point: int, law: int, link: int = 0) -> list[str]:
        """The classes that packets left a queue in; none where that is one alone."""
        classes = [
            one for observed in self.observed_at(point, law, link) for one in observed.classes
        ]
        used = dict.fromkeys(one.name for one in classes if one.metrics["packet_share"] > 0)
        return list(used) if len(used) > 1 else []

    def class_cell(self, point: int, law: int, name: str, metric: str, link: int = 0) -> Cell:
        """As `cell`, of the class with this name."""
        metrics.check_metrics([metric], CLASS_METRICS)
        return self._class_cells.get((metric, *self._place(point, law, link), name), EMPTY)

    def traffic_cell(self, point: int, law: int, label: str, metric: str, link: int = 0) -> Cell:
        """As `cell`, of the traffic with this label."""
        return self._traffic_cells.get((metric, *self._place(point, law, link), label), EMPTY)

    def summary(self) -> pl.DataFrame:
        """Return a row per point, law, link and metric: mean, interval, seeds.

        `ci95` is half the width of Student's t interval over the seeds. It is NaN for a single
        seed, and where `alike` is true: all seeds gave the same value, which shows nothing of
        chance.
        """
        rows = [
            {
                "point": point.label,
                "law": law.label,
                "link": link.name,
                "metric": name,
                "mean": cell.mean,
                "ci95": cell.half_width,
                "seeds": cell.seeds,
                "alike": cell.alike,
            }
            for p, point in self.points()
            for law_index, law in self.laws(p)
            for k, link in enumerate(point.links)
            for name in METRICS
            for cell in [self.cell(p, law_index, name, k)]
        ]
        return self._keyed(pl.DataFrame(rows))

    def compared(self) -> list[str]:
        """Return the metrics worth a column: those that were chosen, or else those that any run
        has, and marks only where there are some."""
        if self.chosen_metrics:
            return list(self.chosen_metrics)
        links = [link for run in self.runs for link in run.links]
        return [
            name
            for name in metrics.COMPARED
            if any(link.metrics[name] == link.metrics[name] for link in links)
            and (name != "mark_rate" or any(link.metrics[name] > 0 for link in links))
        ]

    @cached_property
    def law_differences(self) -> list[LawDifference]:
        """Every pair of laws at each point of the bottleneck, in the metrics that tables show."""
        return self._at_bottleneck.differences(self.compared(), "point")

    @cached_property
    def overall_differences(self) -> list[LawDifference]:
        """Every pair of laws over all points together, in the metrics that tables show."""
        return self._at_bottleneck.differences(self.compared())

    @property
    def _at_bottleneck(self) -> RunTable:
        return RunTable(self.metrics.filter(pl.col("link") == self.links[0]))

    def comparisons(self, point: int, metric: str) -> list[PairedDifference]:
        """Every pair of laws at a point, by the bottleneck: see `statistics.compare`. Raises
        `ScenarioError` for what is no metric."""
        metrics.check_metrics([metric])
        return statistics.compare(
            {
                law.label: {run.seed: run.metrics[metric] for run in self.runs_of(point, i)}
                for i, law in self.laws(point)
            }
        )

    def _keyed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """As Enum the labels sort in the order of the plan, and take little room."""
        return frame.with_columns(
            *self._labels(),
            pl.col("link").cast(pl.Enum(self.links)),
        )

    def _labels(self) -> list[pl.Expr]:
        laws = pl.Enum(self.plan.laws)
        points = pl.Enum([point.label for point in self.plan.points])
        return [pl.col("law").cast(laws), pl.col("point").cast(points)]

    def _of_classes(self, rows_of: Callable[[ClassObserved], pl.DataFrame]) -> pl.DataFrame:
        def rows(link: Observed) -> pl.DataFrame:
            frames = [
                rows_of(one).select(pl.lit(one.name).alias("class"), pl.all())
                for one in link.classes
            ]
            # Of a law without classes, beside others that have some.
            none = pl.DataFrame(schema={"class": pl.String})
            return pl.concat(frames) if frames else none

        return self._table(rows)

    def _table(self, rows_of: Callable[[Observed], pl.DataFrame]) -> pl.DataFrame:
        return self._table_of_points(lambda link, _: rows_of(link))

    def _table_of_points(
        self, rows_of: Callable[[Observed, PointInfo], pl.DataFrame]
    ) -> pl.DataFrame:
        frames = []
        for run in self.runs:
            # Of ten thousand runs a table takes a minute.
            signals.checkpoint()
            law = pl.lit(self.plan.laws[run.law]).alias("law")
            point = pl.lit(self.plan.points[run.point].label).alias("point")
            seed = pl.lit(run.seed, pl.UInt64).alias("seed")
            for observed in run.links:
                link = pl.lit(observed.link).alias("link")
                rows = rows_of(observed, self.plan.points[run.point])
                rows = rows.select(law, point, seed, link, pl.all())
                frames.append(self._keyed(rows))
        return pl.concat(frames, how="diagonal")

    def plot(self, kind: PlotKind = "queue", *, point: int = 0, link: int = 0) -> Plot:
        """Return a figure of a link at a point, or of all points: "goodput", "qacd" and "load".

        point, link: indices in the plan; link 0 is the bottleneck. "classes" is empty where no
        queue tells classes apart, and "completion" where no transfer was done.
        """
        from forebay.report import kinds

        return kinds.draw(self, kind, point, link)

    def report(self, out: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write report.html, the figures, and the tables as Parquet and JSON to `out`.

        force: replaces the result of something else, which is refused otherwise. Raises
        `ParameterError`.
        """
        from forebay.report import result_files

        publication.check_folder(out, "report")
        command, digest = self.experiment.command, self.experiment.digest
        publication.claim(Path(out), command, digest, force=force, name="report", seeds=self.seeds)
        result_files.write_all(self, out)

    def to_dict(self) -> dict[str, Any]:
        """Return what metrics.json of a report has: every run with its metrics, and where from."""
        from forebay.report import result_files

        return result_files.as_json(self)

    def frame(self, table: FrameName = "metrics") -> pl.DataFrame:
        """Return a table of the result. Raises `ParameterError` for a name that is none."""
        if table not in (names := get_args(FrameName)):
            reason = words.hint(table, names).strip()
            raise ParameterError("table", table, ", ".join(names), reason=reason)
        frame: pl.DataFrame = self.summary() if table == "summary" else getattr(self, table)
        return frame

    def to_pandas(self, table: FrameName = "metrics") -> pandas.DataFrame:
        """Return a table of the result as a frame of pandas; pyarrow is not needed.

        Raises
        ------
        ParameterError
            If there is no such table.
        ImportError
            If pandas is not installed.
        """
        return to_pandas(self.frame(table))

    def __str__(self) -> str:
        """The table that `forebay run` prints."""
        from forebay._base.terminal_table import printed
        from forebay.report import tables

        return printed(lambda screen: tables.results(screen, self))

    def _repr_html_(self) -> str:
        from forebay.report import notebook

        return notebook.summary(self)


def _round_trips_s(traffics: Sequence[TrafficInfo], flows: int) -> pl.Series:
    """Return the propagation round trip of each flow of a traffic; null over a real link.

    Pairs of hosts take the list of round trips in turn. A real link has no traffic of a scenario,
    and `traffics` is empty then.
    """
    pairs, rtts_s = max(flows, 1), list[float]()
    for traffic in traffics:
        pairs, rtts_s = traffic.pairs or pairs, traffic.rtts_s
    values = [rtts_s[flow % pairs % len(rtts_s)] if rtts_s else None for flow in range(flows)]
    return pl.Series("rtt_s", values, pl.Float64)


def _settings_column(values: list[object]) -> pl.Series:
    """Numbers as they are; anything else as text, since a sweep may mix lists with texts."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return pl.Series(values=values, strict=False)
    texts = [quantities.toml(value) for value in values]
    if (order := axes.sorted_texts(texts)) is not None:
        return pl.Series(texts, dtype=pl.Enum(order))
    return pl.Series(texts)


def whole_result(read: Experiment, store: Store | None = None) -> Result:
    """Return the result of an experiment whose runs take a moment or are in the store.

    Raises like `execution.check_whole`.
    """
    executed = execution.execute(read, store=store)
    execution.check_whole(read, executed)
    return Result(read, executed)


def run(
    scenario: Source,
    laws: str | Prototype | Sequence[str | Prototype] | None = None,
    *,
    overrides: Overrides | None = None,
    seeds: int | None = None,
    threads: int | None = None,
    engine: str | Engine = engines.NAMES[0],
) -> Result:
    """Runs every law at every point with every seed, and returns the result.

    scenario: a file in TOML, a text of several lines of TOML, or its tables as a dict.
    laws: names of laws, and classes like `forebay.Controller`, one or several; the file's if None.
    overrides: keys to set on top of the file, {"bottleneck.rate": "20Mbit/s"} or ["KEY=VALUE"].
    seeds: number of seeds, 1 to `seeds`; the file's if None.
    threads: threads to run on; all cores if None. Results do not depend on it.
    engine: what makes the runs, "packets" being the simulator; docs/explanation/engines.md has the others. An
        engine of `forebay.experiment.engines` may also be given itself.

    Raises `ScenarioError` for a scenario that cannot be run, or not by this engine, and `RunError`
    where a run fails. An interruption keeps what has finished: an interactive session gets it as a
    partial result, a script as `Interrupted.result`.
    """
    read = experiment.read(
        scenario,
        laws=laws,
        overrides=overrides or (),
        seeds=seeds,
        engine=engines.named(engine, "engine"),
    )
    with progress.bar(only_on_terminal=True) as watch:
        executed = execution.execute(read, threads, watch)
    result = Result(read, executed)
    if executed.faults:
        raise execution.run_error(read.plan, executed.faults[0], result=result)
    if executed.interrupted:
        if not hasattr(sys, "ps1"):
            raise Interrupted(result)
        warnings.warn("interrupted; the result is partial", stacklevel=2)
    return result
