"""The outcome of a run on a link: its tables, figures and report, and its summary in lines."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from forebay._base import quantities
from forebay._base.publication import digest_of
from forebay._base.words import check_choice, in_figures, short_time
from forebay._native import Plan, PointInfo, Run, ScenarioError
from forebay.experiment import descriptions, steady_state
from forebay.experiment.execution import Execution
from forebay.experiment.experiment import Description, Experiment
from forebay.experiment.steady_state import design_command
from forebay.linux.link_settings import Settings, words

if TYPE_CHECKING:
    import polars as pl

    from forebay._native import (
        LinkDirection,
        LinkDirectionSettings,
        LinkLateness,
        LinkOutcome,
        Observed,
        Parameter,
    )
    from forebay.experiment.result import PlotKind, Result
    from forebay.report.plot import Plot

#: What the tables call each direction: client to server, and back.
DIRECTIONS = ["up", "down"]
#: Utilisation below which an overview leaves a direction out.
IDLE = 0.05
#: Number of manual changes that a report lists; link.json has all.
MOST_CHANGES = 8
#: The file that a link leaves besides those of every run.
LINK = "link.json"
DEFAULT_CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
#: The congestion controls that slow down for every drop and mark.
RESPONSIVE = ("reno", "cubic")


# --- congestion control -------------------------------------------------------------------------


def default_congestion_control() -> str:
    """Return the kernel's default congestion control; empty where the kernel does not name it."""
    try:
        return DEFAULT_CONGESTION_CONTROL.read_text().strip()
    except OSError:
        return ""


def congestion_warning(name: str) -> str:
    """Return a warning on a default that hardly follows a law; empty for the others."""
    if not name or name in RESPONSIVE:
        return ""
    return (
        f"the kernel's default congestion control is {name}, which hardly reacts to marks "
        "and drops; let the program choose reno or cubic"
    )


def unresponsive_flows(reported: Mapping[str, int], tcp_flows: int, default: str) -> str:
    """Return a warning on TCP flows of a run that hardly followed its law; empty if none.

    Parameters
    ----------
    reported : dict
        Number of flows by congestion control, as the kernel reported it.
    tcp_flows : int
        Number of all flows with data, including short ones that the kernel did not report, which
        have the default.
    default : str
        The kernel's default congestion control.

    Returns
    -------
    str
        The warning.
    """
    unresponsive = {name: flows for name, flows in reported.items() if name not in RESPONSIVE}
    if unresponsive:
        used = ", ".join(f"{flows} {name}" for name, flows in sorted(unresponsive.items()))
        return (
            f"TCP flows that hardly follow the law, because they do not slow down for every drop: "
            f"{used}; use reno or cubic"
        )
    return congestion_warning(default) if tcp_flows and not reported else ""


# --- the outcome --------------------------------------------------------------------------------


class LinkExperiment(Experiment):
    """Two runs: each direction with its own law."""

    @property
    def made_by(self) -> str:
        """The name in place of an engine's: a command's traffic was observed on a link."""
        return "link"

    @property
    def runs(self) -> int:
        """The number of directions."""
        return len(DIRECTIONS)

    @cached_property
    def digest(self) -> str:
        """The digest of the command: real traffic has no points that could be resolved."""
        return digest_of([self.made_by, self.command])


class Direction(NamedTuple):
    """A direction of a link: its settings, and what was observed."""

    name: str
    settings: LinkDirectionSettings
    observed: LinkDirection

    @property
    def run(self) -> Observed:
        """Its metrics and samples, like those of a simulated run."""
        return self.observed.observed

    def as_json(self) -> dict[str, Any]:
        """Return all that is not a metric, except its changes."""
        link, params = self.settings.link, self.settings.params
        rates = {"achieved_bps": self.observed.achieved_bps, "asked_bps": self.observed.asked_bps}
        return {
            **quantities.finite(rates),
            "lost_packets": self.observed.lost_packets,
            "tcp_flows": self.observed.tcp_flows,
            "congestion_controls": self.observed.congestion_controls,
            "rate": None if self.settings.trace else quantities.rate(link.rate_bps),
            "trace": self.settings.trace,
            "burst": quantities.size(link.burst_bytes),
            "delay": "..".join(quantities.time(end) for end in dict.fromkeys(link.delay_s)),
            "buffer": quantities.buffer(link.buffer_pkts, link.buffer_bytes),
            "loss": self.settings.loss,
            "ecn": link.ecn,
            "aqm": self.settings.aqm,
            "set": _texts(params),
        }

    def summary(self, span_s: float) -> Iterator[str]:
        """Yield lines on the metrics over a measurement window of `span_s` seconds."""
        metrics = self.run.metrics
        yield (
            f"delay {1e3 * metrics['delay_mean_s']:.1f} ms (P95 "
            f"{1e3 * metrics['delay_p95_s']:.1f} ms), goodput {metrics['goodput_bps'] / 1e6:.2f} "
            f"Mbit/s in {in_figures(span_s)} s"
        )
        yield (
            f"queue {metrics['queue_mean_pkts']:.1f} packets (standard deviation "
            f"{metrics['queue_std_pkts']:.1f})"
        )
        yield (
            f"link {100 * metrics['utilisation']:.1f} % used, {100 * metrics['drop_rate']:.2f} % "
            f"dropped, {100 * metrics['mark_rate']:.2f} % marked"
        )


@dataclass(frozen=True)
class Outcome:
    """The observations while a command ran behind a link.

    Attributes
    ----------
    server : str or None
        What ran at the far end, as a line for the shell.
    observed : LinkOutcome
        The command's status, the times, how late packets were, and each direction.
    congestion_control : str
        The kernel's default, empty where it is not known; a program may have chosen another.
    """

    settings: Settings
    command: list[str]
    server: str | None
    observed: LinkOutcome
    congestion_control: str = field(default_factory=default_congestion_control)

    def __post_init__(self) -> None:
        """Add the metrics of real traffic to those of each direction."""
        for direction in self.directions:
            direction.run.metrics.update(
                user_cpu_s=self.observed.user_cpu_s,
                lateness_p99_s=self.lateness.p99_s,
                void=bool(self.void),
            )

    @property
    def up(self) -> dict[str, float]:
        """Metrics from client to server."""
        return self.directions[0].run.metrics

    @property
    def down(self) -> dict[str, float]:
        """Metrics from server to client."""
        return self.directions[1].run.metrics

    @property
    def status(self) -> int | None:
        """Exit status of the command, 128 + n where signal n killed it; None without a command."""
        return self.observed.status

    @property
    def lateness(self) -> LinkLateness:
        """The lateness of the packets' release."""
        return self.observed.lateness

    @property
    def void(self) -> list[str]:
        """The reasons why the run is void; empty where it is sound."""
        return self.observed.void

    @property
    def directions(self) -> list[Direction]:
        """Client to server, and back."""
        settings = [self.settings.up, self.settings.down]
        rows = zip(DIRECTIONS, settings, self.observed.directions, strict=True)
        return [Direction(*row) for row in rows]

    @property
    def measured(self) -> bool:
        """True if there is a sample within the time of measurement."""
        start, end = self.observed.measure_s
        times_s = self.directions[0].run.samples["time_s"]
        return bool(np.any((times_s > start) & (times_s <= end)))

    @property
    def changed(self) -> str:
        """The changes made by hand with their times; empty without any."""
        texts = [
            f"{point.links[0].name} {' '.join(descriptions.what_changes(point, change))} "
            f"at {change.time_s:g} s"
            for point in map(self._point, self.directions)
            for change in point.changes
        ]
        omitted = len(texts) - MOST_CHANGES
        return "; ".join([*texts[:MOST_CHANGES], *([f"{omitted} more"] if omitted > 0 else [])])

    def result(self) -> Result:
        """Return the result of the run, in which each direction of the link is a point.

        Raises
        ------
        ScenarioError
            If the run ended before anything was measured.
        """
        from forebay.experiment.result import Result

        if not self.measured:
            raise ScenarioError(
                f"link: measure: {self.settings.measure} has no sample of the run, which took "
                f"{in_figures(self.observed.duration_s)} s; run longer, or measure earlier"
            )
        directions = self.directions
        changed = [bool(direction.observed.changes) for direction in directions]
        labels = self._labels(changed)
        laws = [direction.settings.law for direction in directions]
        both, seed = len(labels) > 1, self.settings.seed
        plan = Plan(
            title=f"Real traffic: {shlex.join(self.command) or 'no command'}",
            source="",
            laws=labels,
            seeds=[seed],
            points=tuple(self._point(row, laws if both else laws[:1]) for row in directions),
        )
        runs = [
            Run(index, index if both else 0, seed, [direction.run])
            for index, direction in enumerate(directions)
        ]
        server = ["--server", self.server] if self.server else []
        command = shlex.join(["forebay", "link", *words(self.settings), *server, "--"])
        experiment = LinkExperiment(
            plan=plan,
            path="link",
            text=json.dumps(self.table(), indent=1),
            command=f"{command} {shlex.join(self.command)}".rstrip()
            + ("  # as it started; it was then changed by hand" if any(changed) else ""),
            description=self._description(),
            # Directions that carried hardly any data, such as ACKs alone.
            idle=[i for i, run in enumerate(runs) if not run.metrics["utilisation"] >= IDLE],
            warning=" ".join(self._warnings()),
        )
        return Result(experiment, Execution(runs, [], False, self.observed.duration_s))

    def _labels(self, changed: list[bool]) -> list[str]:
        """Return the labels of the laws: one where both directions have the same law."""
        laws = [direction.settings.law for direction in self.directions]
        texts = [
            f"{law.label}{' (changed)' if flag else ''}"
            for law, flag in zip(laws, changed, strict=True)
        ]
        labels = list(dict.fromkeys(texts))
        if len(labels) == 1 and laws[0].params != laws[1].params:
            return [f"{labels[0]} {direction}" for direction in DIRECTIONS]
        return labels

    def to_dict(self) -> dict[str, Any]:
        """Return settings, counts and metrics of both directions, for JSON."""
        return {**self.table(), "up": self.up, "down": self.down}

    def frame(self) -> pl.DataFrame:
        """Return the table of metrics, with a row for each direction; see `forebay.Result`."""
        return self.result().frame()

    def report(self, out: str | os.PathLike[str]) -> None:
        """Write the report of `forebay.Result`, and link.json, to a folder."""
        self.write(out)

    def __str__(self) -> str:
        """Return the lines of the summary."""
        return "\n".join(self.summary(None))

    def plot(self, kind: PlotKind = "queue", *, direction: str = "up", **options: Any) -> Plot:
        """Draw a figure of one direction.

        Parameters
        ----------
        kind : str, optional
            The figure, as for `forebay.Result.plot`.
        direction : {"up", "down"}, optional
            The direction.
        **options : int
            Further arguments of `forebay.Result.plot`.

        Raises
        ------
        ParameterError
            If there is no such figure or direction.
        """
        check_choice("direction", direction, DIRECTIONS)
        return self.result().plot(kind, point=DIRECTIONS.index(direction), **options)

    def _repr_html_(self) -> str:
        if self.measured:
            return self.result()._repr_html_()
        return f"<p>Nothing was measured in {in_figures(self.observed.duration_s)} s.</p>"

    def write(self, out: str | os.PathLike[str], *, report: bool = True) -> None:
        """Write what `Result.report` does, and link.json, to the folder `out`."""
        from forebay._base.publication import publish
        from forebay.report import result_files

        result_files.write_all(self.result(), out, report=report)
        publish(out, {LINK: self.table(bins=True)})

    def table(self, *, bins: bool = False) -> dict[str, Any]:
        """Return all that is not a metric, for JSON."""
        late = self.lateness
        times = {name: getattr(late, name) for name in ("p50_s", "p99_s", "p999_s", "max_s")}
        rows = [(change, row.name) for row in self.directions for change in row.observed.changes]
        changes = [
            {"time_s": change.time_s, "way": name}
            | (
                {"rate": quantities.rate(change.rate_bps)}
                if change.rate_bps
                else {"aqm": change.aqm, "set": _texts(change.params)}
            )
            for change, name in sorted(rows, key=lambda row: row[0].time_s)
        ]
        return {
            "command": self.command,
            "server": self.server,
            "status": self.status,
            "duration_s": self.observed.duration_s,
            "void": self.void,
            "changed_by_hand": changes,
            "default_congestion_control": self.congestion_control,
            "lateness": quantities.finite(times) | ({"bins": late.bins} if bins else {}),
            "ways": {direction.name: direction.as_json() for direction in self.directions},
        }

    def _point(self, direction: Direction, laws: list[Any] | None = None) -> PointInfo:
        """Return a direction as a point of a plan."""
        link = direction.settings.link
        return PointInfo(
            label=f"{link.name} ({link.from_node} to {link.to_node})",
            settings={},
            duration_s=self.observed.duration_s,
            measure_s=self.observed.measure_s,
            sample_s=self.observed.sample_s,
            target_pkts=direction.settings.law.target_pkts,
            links=[link],
            laws=laws or [],
            traffic=[],
            changes=direction.observed.changes,
        )

    def _warnings(self) -> Iterator[str]:
        if self.void:
            yield (
                f"Void: {'; '.join(self.void)}. The numbers are not those of the link; repeat "
                "the run with nothing else running."
            )
        if self.changed:
            yield (
                f"Changed by hand while it ran: {self.changed}. The metrics are over the whole "
                "run, not under one law and rate; laws and targets below are those at the start."
            )

    def _description(self) -> Description:
        from forebay.report.templates import paragraphs

        first, *directions, rest = paragraphs(
            "link.txt.j2", outcome=self, observed=self.observed, size=quantities.size
        )
        return Description(first, directions, rest)

    def summary(self, out: Path | None) -> Iterator[str]:
        """Yield lines on each direction's delay and queue, warnings, and the lateness of packets.

        Parameters
        ----------
        out : Path, optional
            Folder for the report, if one was asked for.
        """
        if not self.measured:
            yield (
                f"the run of {short_time(self.observed.duration_s)} was too short: it has no "
                f"sample within the measurement window {self.settings.measure}"
                + ("; no file was written" if out else "")
            )
            return
        if self.changed:
            yield f"changed by hand: {self.changed}; the metrics are over the whole run"
        start, end = self.observed.measure_s
        for direction in self.directions:
            observed = direction.observed
            if not direction.run.metrics["forwarded_packets"]:
                continue
            for line in direction.summary(end - start):
                yield f"{direction.name}: {line}"
            advice = unresponsive_flows(
                observed.congestion_controls, observed.tcp_flows, self.congestion_control
            ) or self._missed_target(direction)
            if advice:
                yield f"{direction.name}: warning: {advice}"
        if self.lateness.p99_s == self.lateness.p99_s:
            yield f"99 % of the packets left at most {short_time(self.lateness.p99_s)} late"

    def _missed_target(self, direction: Direction) -> str:
        """Return a warning on a missed target with a command that designs the law for this link.

        It is empty unless the link was full of TCP flows and the law had the default gains.
        """
        settings, flows = direction.settings, direction.observed.tcp_flows
        target_pkts = settings.law.target_pkts
        delays_s = [way.settings.link.delay_s for way in self.directions]
        # A design is for one RTT.
        spread = any(low_s < high_s for low_s, high_s in delays_s)
        rtt_s = 0.0 if spread else sum(high_s for _, high_s in delays_s)
        if self.changed or settings.law.per_flow or not (target_pkts and flows and rtt_s):
            return ""
        judged = steady_state.measured_set_point(settings.law, [direction.run.metrics])
        if not (judged and judged.missed):
            return ""
        designed, chosen = design_command(
            settings.aqm,
            settings.params,
            rate_bps=settings.link.rate_bps,
            packet_bytes=self.settings.mtu,
            rtt_s=rtt_s,
            flows=flows,
            target_pkts=target_pkts,
            room_pkts=settings.buffer_mtu_pkts,
            buffer_pkts=settings.link.buffer_pkts,
        )
        own = {name for name, _ in settings.params} - {"target", "interval"}
        if own & chosen or not designed:
            return ""
        return (
            f"mean {judged.what} {judged.measured_text}, target {judged.target_text}: the default "
            f"gains do not suit this link; to design the law for it: `{designed}`"
        )


def _texts(params: list[tuple[str, Parameter]]) -> list[tuple[str, str]]:
    return [(name, quantities.plain(value)) for name, value in params]
