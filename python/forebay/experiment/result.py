"""The result of an experiment: its runs, tables of what they observed, figures and the report."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import polars as pl

from forebay._base import metrics, progress, publication, quantities, signals, statistics
from forebay._base.errors import Interrupted, ParameterError
from forebay._base.metrics import CLASS_METRICS, METRICS, TRAFFIC_METRICS
from forebay._base.words import check_choice, one_of
from forebay.experiment import engines, execution, steady_state
from forebay.experiment import store as stores
from forebay.experiment.experiment import read as read_experiment
from forebay.experiment.table import EMPTY, Cell, RunTable, to_pandas
from forebay.scenario import axes

if TYPE_CHECKING:
    import pandas

    from forebay._base.quantities import Overrides
    from forebay._base.statistics import PairedDifference
    from forebay._native import ClassObserved, LawInfo, Observed, Plan, PointInfo, Run, TrafficInfo
    from forebay.experiment.engines import Engine
    from forebay.experiment.execution import Execution
    from forebay.experiment.experiment import Experiment, Source
    from forebay.experiment.steady_state import Finding
    from forebay.experiment.store import Store, StoreLike
    from forebay.experiment.table import LawDifference
    from forebay.report.plot import Plot
    from forebay.scenario.python_laws import Prototype


#: Names of a result's tables, which are also names of attributes.
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
#: Names of a result's figures.
PlotKind = Literal[
    "queue", "loss", "delay", "classes", "flows", "windows", "completion", "goodput", "qacd", "load"
]


class Result:
    """The finished runs of one experiment, in the order of points, laws and seeds.

    Printed, or shown in a notebook, a result is a table of its summary. Methods that draw import
    matplotlib when they are called: it takes longer to load than most runs take.

    Parameters
    ----------
    experiment : Experiment
        The experiment that was run.
    execution : Execution
        Its outcome.

    Attributes
    ----------
    experiment : Experiment
        The experiment.
    runs : list of Run
        The finished runs.
    chosen_metrics : sequence of str
        The metrics that tables show; empty selects the usual ones.
    elapsed_s : float
        Duration of the execution in seconds.
    from_store : int
        The number of runs that were in the store.
    remarks : mapping
        Facts that a reader must know about some runs, by point, law and seed.
    extras : mapping
        Files and program outcomes of some runs, by point, law and seed.
    seeds : int
        The largest number of seeds that any law has finished at any point.
    partial : bool
        True if runs are missing, because of an interruption or a failure.
    """

    def __init__(self, experiment: Experiment, execution: Execution) -> None:
        self.experiment = experiment
        self.runs = execution.runs
        self.chosen_metrics: Sequence[str] = ()
        self.elapsed_s = execution.elapsed_s
        self.from_store = execution.from_store
        self.remarks = execution.remarks
        self.extras = execution.extras
        self._groups: dict[tuple[int, int], list[Run]] = {}
        for run in self.runs:
            self._groups.setdefault((run.point, run.law), []).append(run)
        self.seeds = max((len(runs) for runs in self._groups.values()), default=0)
        self.partial = len(self.runs) < experiment.runs

    @property
    def plan(self) -> Plan:
        """The plan of the experiment: title, source, laws, points and seeds."""
        return self.experiment.plan

    @property
    def links(self) -> list[str]:
        """The names of the links at any point, the bottleneck first."""
        names = (link.name for point in self.plan.points for link in point.links)
        return list(dict.fromkeys(names))

    def runs_of(self, point: int, law: int) -> list[Run]:
        """Return the runs of one law at one point.

        Parameters
        ----------
        point : int
            Index of the point in the plan.
        law : int
            Index of the law in the plan.
        """
        return self._groups.get((point, law), [])

    def observed_at(self, point: int, law: int, link: int) -> list[Observed]:
        """Return the observations at one link in each run of one law at one point.

        Parameters
        ----------
        point : int
            Index of the point in the plan.
        law : int
            Index of the law in the plan.
        link : int
            Index of the link; the bottleneck is 0.
        """
        return [run.links[link] for run in self.runs_of(point, law)]

    def points(self) -> Iterator[tuple[int, PointInfo]]:
        """Yield the points with finished runs, with their indices."""
        finished = {point for point, _ in self._groups}
        return ((i, point) for i, point in enumerate(self.plan.points) if i in finished)

    def laws(self, point: int) -> Iterator[tuple[int, LawInfo]]:
        """Yield the laws with finished runs at a point, with their indices."""
        laws = self.plan.points[point].laws
        return ((i, law) for i, law in enumerate(laws) if (point, i) in self._groups)

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """Every metric of each run and link, with the settings of the sweep.

        The columns are law, point, the keys that the sweep set, seed, link, the law's parameters as
        JSON, the engine, and the metrics. Texts that the sweep set, such as "100ms", sort by their
        value.
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
        """The processor time of each run: law, point, seed and user_cpu_s.

        The processor time differs from call to call, and is therefore not among the metrics.
        """
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
        findings = steady_state.warnings(
            (p, point, law, self.runs_of(p, i))
            for p, point in self.points()
            for i, law in self.laws(p)
        )
        return [*self._remarked(), *findings]

    def _remarked(self) -> Iterator[tuple[Finding, int]]:
        """Yield the engine's remarks, one for each law at each point."""
        for p, _ in self.points():
            for i, law in self.laws(p):
                runs = self.runs_of(p, i)
                remarked = [
                    remarks for run in runs if (remarks := self.remarks.get((p, i, run.seed)))
                ]
                if remarked:
                    clauses = dict.fromkeys(
                        str(remark) for remarks in remarked for remark in remarks
                    )
                    text = f"{len(remarked)} of {len(runs)} runs: {'; '.join(clauses)}"
                    yield steady_state.Finding(law.label, p, "remark", text), 1

    @cached_property
    def samples(self) -> pl.DataFrame:
        """The samples of each link: law, point, seed, link, time_s and the columns of the trace.

        `p`, and every other column of a law's state, is null for a law that does not report it.
        """
        return self._table(lambda link: pl.DataFrame(link.samples))

    @cached_property
    def delays(self) -> pl.DataFrame:
        """Distribution of the queuing delay.

        A row is a bin, with its upper end delay_s and its number of packets.
        """
        return self._table(
            lambda link: pl.DataFrame({"delay_s": link.delay_s, "packets": link.delay_packets})
        )

    @cached_property
    def flows(self) -> pl.DataFrame:
        """The goodput of each flow on each link that it crosses.

        The columns are the index of its traffic, its number within the traffic, its propagation
        round trip rtt_s, and goodput_bps. The number counts from 0 in the order of the scenario;
        over a real link it counts flows in the order in which they appear. `rtt_s` is null for
        packets from a file, which have no round trip.
        """

        def rows(link: Observed, point: PointInfo) -> pl.DataFrame:
            numbered = pl.DataFrame(
                {"traffic": link.flow_traffic, "goodput_bps": link.flow_goodput_bps}
            ).with_columns(flow=pl.int_range(pl.len(), dtype=pl.UInt32).over("traffic"))
            frames = [
                flows_of_traffic.with_columns(
                    rtt_s=_round_trips_s(point.traffic[number : number + 1], len(flows_of_traffic))
                )
                for (number,), flows_of_traffic in numbered.group_by("traffic", maintain_order=True)
            ]
            none = numbered.with_columns(rtt_s=pl.lit(None, pl.Float64))
            return pl.concat(frames or [none]).select("traffic", "flow", "rtt_s", "goodput_bps")

        return self._table_of_points(rows)

    @cached_property
    def classes(self) -> pl.DataFrame:
        """Every metric of each class of each link's queue."""
        return self._of_classes(
            lambda of_class: pl.DataFrame(
                {name: [of_class.metrics[name]] for name in CLASS_METRICS}
            )
        )

    @cached_property
    def traffic(self) -> pl.DataFrame:
        """The results by traffic: every metric of each traffic on each link that it crosses.

        A link that only one traffic crosses has no row.
        """
        labels = [traffic.label for traffic in self.plan.points[0].traffic]
        schema: dict[str, Any] = {"traffic": pl.UInt32, "label": pl.Enum(labels)}
        schema |= dict.fromkeys(TRAFFIC_METRICS, pl.Float64)
        return self._table(
            lambda link: pl.DataFrame(
                [
                    {"traffic": row.traffic, "label": labels[row.traffic], **row.metrics}
                    for row in link.traffic
                ],
                schema,
            )
        )

    @cached_property
    def class_delays(self) -> pl.DataFrame:
        """The distribution of the queuing delay of each class, with columns as in `delays`."""
        return self._of_classes(
            lambda of_class: pl.DataFrame(
                {"delay_s": of_class.delay_s, "packets": of_class.delay_packets}
            )
        )

    @cached_property
    def transfers(self) -> pl.DataFrame:
        """The completed transfers on each link: the index of the traffic, packets, and took_s.

        took_s is the time from the SYN to the last ACK.
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
        """The goodput over time of each flow on each link.

        A row has the interval's end time_s and the goodput_bps in it. Traffic of few flows has a
        row for each `flow`, counted from 0, and a null `quantile`; traffic of many flows has a row
        for each `quantile` over its flows, and a null `flow`.
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
            for series in (series for series in link.goodput if series.columns):
                goodput_bps = np.array(series.columns)
                count, length = goodput_bps.shape
                numbers = np.repeat(np.arange(count), length)
                column = {
                    "time_s": np.tile(np.arange(1, length + 1) * series.interval_s, count),
                    "traffic": np.full(count * length, series.traffic),
                    "flow": None if series.quantiles else numbers,
                    "quantile": np.array(series.quantiles)[numbers] if series.quantiles else None,
                    "goodput_bps": goodput_bps.ravel(),
                }
                frames.append(pl.DataFrame(column, schema=schema))
            return pl.concat(frames)

        return self._table(rows)

    @cached_property
    def table(self) -> RunTable:
        """The metrics of each run and link as a `RunTable`."""
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
        """Return the labels of law, point and link at these indices."""
        info = self.plan.points[point]
        return self.plan.laws[law], info.label, info.links[link].name

    def cell(self, law: str, metric: str, *, link: str | None = None, **settings: object) -> Cell:
        """Return the mean and the interval of a metric for one law at one point.

        Parameters
        ----------
        law : str
            Label of the law.
        metric : str
            Name of the metric.
        link : str, optional
            Name of the link; the bottleneck by default.
        **settings : object
            Values that the sweep set at the point, by the last part of their key, such as
            ``flows=40`` for ``traffic.0.flows``. A quantity is a text with its unit or a number in
            the base unit. They may be omitted where the result has one point.

        Returns
        -------
        Cell
            The mean over the seeds; `EMPTY` if no run has the metric.

        Raises
        ------
        ParameterError
            If there is no such law, link or point, or several points have these values.
        ScenarioError
            If there is no such metric.

        Examples
        --------
        >>> result.cell(law="pi", metric="delay_p95_s", flows=40).mean  # doctest: +SKIP
        """
        check_choice("law", law, self.plan.laws)
        point = self._point_with(settings)
        names = [entry.name for entry in self.plan.points[point].links]
        if link is not None and link not in names:
            raise ParameterError("link", link, one_of(names, link))
        number = 0 if link is None else names.index(link)
        return self.cell_at(point, self.plan.laws.index(law), metric, number)

    def _point_with(self, settings: Mapping[str, object]) -> int:
        """Return the index of the only point whose sweep has these values."""
        points = self.plan.points
        keys = list(points[0].settings)
        chosen = {name: _key_ending_with(name, keys) for name in settings}
        matches = [
            index
            for index, point in enumerate(points)
            if all(_is_same(point.settings[chosen[name]], settings[name]) for name in settings)
        ]
        if len(matches) == 1:
            return matches[0]
        text = ", ".join(f"{name} = {value}" for name, value in settings.items()) or "none"
        values = {
            key: dict.fromkeys(quantities.toml(point.settings[key]) for point in points)
            for key in keys
        }
        expected = "; ".join(f"{key}: {', '.join(choices)}" for key, choices in values.items())
        reason = f"which {len(matches)} points have"
        raise ParameterError("settings", text, f"one point of {expected}", reason=reason)

    def cell_at(self, point: int, law: int, metric: str, link: int = 0) -> Cell:
        """Return the mean and the interval of a metric, by indices in the plan.

        Parameters
        ----------
        point : int
            Index of the point in the plan.
        law : int
            Index of the law in the plan.
        metric : str
            Name of the metric.
        link : int, default 0
            Index of the link; the bottleneck is 0.

        Returns
        -------
        Cell
            The mean over the seeds; `EMPTY` if no run has the metric.

        Raises
        ------
        ScenarioError
            If there is no such metric.
        """
        metrics.check_metrics([metric])
        return self._cells.get((metric, *self._place(point, law, link)), EMPTY)

    def class_names(self, point: int, law: int, link: int = 0) -> list[str]:
        """Return the classes in which packets left a queue; empty if there was only one.

        Parameters
        ----------
        point : int
            Index of the point in the plan.
        law : int
            Index of the law in the plan.
        link : int, default 0
            Index of the link; the bottleneck is 0.
        """
        classes = [
            class_ for observed in self.observed_at(point, law, link) for class_ in observed.classes
        ]
        used = dict.fromkeys(
            class_.name for class_ in classes if class_.metrics["packet_share"] > 0
        )
        return list(used) if len(used) > 1 else []

    def class_cell(self, point: int, law: int, name: str, metric: str, link: int = 0) -> Cell:
        """Return the mean and the interval of a metric of one class.

        Parameters
        ----------
        point : int
            Index of the point in the plan.
        law : int
            Index of the law in the plan.
        name : str
            Name of the class.
        metric : str
            Name of the metric.
        link : int, default 0
            Index of the link; the bottleneck is 0.

        Raises
        ------
        ScenarioError
            If there is no such metric of classes.
        """
        metrics.check_metrics([metric], CLASS_METRICS)
        return self._class_cells.get((metric, *self._place(point, law, link), name), EMPTY)

    def traffic_cell(self, point: int, law: int, label: str, metric: str, link: int = 0) -> Cell:
        """Return the mean and the interval of a metric of one traffic.

        Parameters
        ----------
        point : int
            Index of the point in the plan.
        law : int
            Index of the law in the plan.
        label : str
            Label of the traffic.
        metric : str
            Name of the metric.
        link : int, default 0
            Index of the link; the bottleneck is 0.
        """
        return self._traffic_cells.get((metric, *self._place(point, law, link), label), EMPTY)

    def summary(self) -> pl.DataFrame:
        """Return a row per point, law, link and metric: mean, interval and number of seeds.

        `ci95` is half the width of Student's t interval over the seeds. It is NaN for a single
        seed, and where `alike` is true: then all seeds gave the same value, so there is no
        spread to estimate.
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
            for cell in [self.cell_at(p, law_index, name, k)]
        ]
        return self._keyed(pl.DataFrame(rows))

    def compared(self) -> list[str]:
        """Return the metrics that tables show.

        They are the chosen ones, or else the usual ones that any run has; the rate of marks only if
        there are marks.
        """
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
        """The difference of every pair of laws at each point, at the bottleneck."""
        return self._at_bottleneck.differences(self.compared(), "point")

    @cached_property
    def overall_differences(self) -> list[LawDifference]:
        """The difference of every pair of laws over all points, at the bottleneck."""
        return self._at_bottleneck.differences(self.compared())

    @property
    def _at_bottleneck(self) -> RunTable:
        """The metrics at the bottleneck."""
        return RunTable(self.metrics.filter(pl.col("link") == self.links[0]))

    def comparisons(self, point: int, metric: str) -> list[PairedDifference]:
        """Return the difference of every pair of laws at a point, at the bottleneck.

        Parameters
        ----------
        point : int
            Index of the point in the plan.
        metric : str
            Name of the metric.

        Returns
        -------
        list[PairedDifference]
            Paired differences; see `statistics.compare`.

        Raises
        ------
        ScenarioError
            If there is no such metric.
        """
        metrics.check_metrics([metric])
        return statistics.compare(
            {
                law.label: {run.seed: run.metrics[metric] for run in self.runs_of(point, i)}
                for i, law in self.laws(point)
            }
        )

    def _keyed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Cast labels to `pl.Enum`, which sorts as the plan does and is stored compactly."""
        return frame.with_columns(*self._labels(), pl.col("link").cast(pl.Enum(self.links)))

    def _labels(self) -> list[pl.Expr]:
        """Return the expressions that cast the columns of law and point."""
        laws = pl.Enum(self.plan.laws)
        points = pl.Enum([point.label for point in self.plan.points])
        return [pl.col("law").cast(laws), pl.col("point").cast(points)]

    def _of_classes(self, rows_of: Callable[[ClassObserved], pl.DataFrame]) -> pl.DataFrame:
        """Return a table with rows for each class of each link."""

        def rows(link: Observed) -> pl.DataFrame:
            frames = [
                rows_of(class_).select(pl.lit(class_.name).alias("class"), pl.all())
                for class_ in link.classes
            ]
            # A law without classes needs the columns, too, if others have classes.
            none = pl.DataFrame(schema={"class": pl.String})
            return pl.concat(frames) if frames else none

        return self._table(rows)

    def _table(self, rows_of: Callable[[Observed], pl.DataFrame]) -> pl.DataFrame:
        """Return a table with rows for each link of each run."""
        return self._table_of_points(lambda link, _: rows_of(link))

    def _table_of_points(
        self, rows_of: Callable[[Observed, PointInfo], pl.DataFrame]
    ) -> pl.DataFrame:
        """Return a table with rows for each link of each run, made from the link and its point."""
        frames = []
        for run in self.runs:
            # The table of ten thousand runs takes a minute, which Ctrl-C must be able to end.
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
        """Return a figure of a link at a point, or of all points ("goodput", "qacd" and "load").

        Parameters
        ----------
        kind : PlotKind, default 'queue'
            The figure. "classes" is empty if no queue distinguishes classes, and "completion" if no
            transfer was completed.
        point : int, default 0
            Index of the point in the plan.
        link : int, default 0
            Index of the link; the bottleneck is 0.
        """
        from forebay.report import kinds

        return kinds.draw(self, kind, point, link)

    def report(self, out: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write report.html, the figures, and the tables as Parquet and JSON.

        Parameters
        ----------
        out : str | os.PathLike[str]
            The folder for the report.
        force : bool, default False
            True to replace the result of another experiment.

        Raises
        ------
        ParameterError
            If the folder holds the result of another experiment and `force` is false.
        """
        from forebay.report import result_files

        publication.check_folder(out, "report")
        command, digest = self.experiment.command, self.experiment.digest
        publication.claim(Path(out), command, digest, force=force, name="report", seeds=self.seeds)
        result_files.write_all(self, out)

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of a report's metrics.json: every run with its metrics and origin."""
        from forebay.report import result_files

        return result_files.as_json(self)

    def frame(self, table: FrameName = "metrics") -> pl.DataFrame:
        """Return a table of the result.

        Parameters
        ----------
        table : FrameName, default 'metrics'
            Name of the table.

        Raises
        ------
        ParameterError
            If there is no such table.
        """
        check_choice("table", table, get_args(FrameName))
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
        """Return the table that `forebay run` prints."""
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


def _key_ending_with(name: str, keys: Sequence[str]) -> str:
    """Return the key of a sweep that is `name`, or ends with it after a dot."""
    matches = [key for key in keys if key == name or key.endswith(f".{name}")]
    if len(matches) != 1:
        reason = "which several keys end with" if matches else "which the sweep does not set"
        expected = one_of(keys) if keys else "no settings, since there is no sweep"
        raise ParameterError("settings", name, expected, reason=reason)
    return matches[0]


def _is_same(first_value: object, second_value: object) -> bool:
    """Return True if two values of a setting are equal, whatever their units are written like."""
    if first_value == second_value:
        return True
    first, second = quantities.read(first_value), quantities.read(second_value)
    if first is None or second is None:
        return False
    same_unit = first[1] == second[1] or not (first[1] and second[1])
    return same_unit and math.isclose(first[0], second[0], rel_tol=1e-12)


def _settings_column(values: list[object]) -> pl.Series:
    """Return settings as a column of numbers, or of texts if any setting is not a number.

    A sweep may mix lists with texts. Texts of quantities sort by their value.
    """
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return pl.Series(values=values, strict=False)
    texts = [quantities.toml(value) for value in values]
    if (order := axes.sorted_texts(texts)) is not None:
        return pl.Series(texts, dtype=pl.Enum(order))
    return pl.Series(texts)


def whole_result(experiment: Experiment, store: Store | None = None) -> Result:
    """Return the result of an experiment whose runs take a moment or are in the store.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    store : Store, optional
        The store, if any.

    Raises
    ------
    KeyboardInterrupt
        If it was interrupted.
    RunError
        If a run failed.
    """
    executed = execution.execute(experiment, store=store)
    execution.check_whole(experiment, executed)
    return Result(experiment, executed)


def run(
    scenario: Source,
    laws: str | Prototype | Sequence[str | Prototype] | None = None,
    *,
    overrides: Overrides | None = None,
    seeds: int | None = None,
    threads: int | None = None,
    engine: str | Engine = engines.NAMES[0],
    store: StoreLike | None = None,
) -> Result:
    """Run every law at every point with every seed.

    On an interruption, an interactive session gets the finished runs as a partial result, with a
    warning.

    Parameters
    ----------
    scenario : Source
        A TOML file, a text of several lines of TOML, or the tables of a scenario as a dict.
    laws : str | Prototype | Sequence[str | Prototype], optional
        Names of laws, and classes like `forebay.Controller`, one or several; those of the file by
        default.
    overrides : Overrides, optional
        Keys to set on top of the file, such as {"bottleneck.rate": "20Mbit/s"} or ["KEY=VALUE"].
    seeds : int, optional
        Number of seeds, which are 1 to `seeds`; that of the file by default.
    threads : int, optional
        Number of threads; all cores by default. Results do not depend on it.
    engine : str | Engine, default engines.NAMES[0]
        The engine that makes the runs; "packets" is the simulator, and docs/explanation/engines.md
        has the others. An engine object of `forebay.experiment.engines` is accepted, too.
    store : Store | str | PathLike, optional
        Store of runs, or its address: finished runs are taken from it, and new ones are added. By
        default nothing is stored.

    Returns
    -------
    Result
        The result.

    Raises
    ------
    ScenarioError
        If the scenario cannot be run, or not by this engine.
    RunError
        If a run fails; the error carries the partial result.
    Interrupted
        If a script is interrupted; the error carries the partial result.
    """
    experiment = read_experiment(
        scenario, laws=laws, overrides=overrides or (), seeds=seeds,
        engine=engines.named(engine, "engine"),
    )  # fmt: skip
    with progress.bar(only_on_terminal=True) as watch:
        executed = execution.execute(experiment, threads, watch, store=stores.opened(store))
    return _whole_or_partial(Result(experiment, executed), executed)


def _whole_or_partial(result: Result, executed: Execution) -> Result:
    """Return a result, with a warning if it is partial in an interactive session.

    Raises `RunError` after a failed run, and `Interrupted` in a script that was interrupted.
    """
    if executed.faults:
        raise execution.run_error(result.plan, executed.faults[0], result=result)
    if executed.interrupted:
        if not hasattr(sys, "ps1"):
            raise Interrupted(result)
        warnings.warn("interrupted; the result is partial", stacklevel=2)
    return result
