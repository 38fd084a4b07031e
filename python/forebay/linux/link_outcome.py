"""What came of a run on a link, and its tables, figures and report as of any other run."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from forebay._base import quantities
from forebay._base.words import in_figures
from forebay._native import Plan, PointInfo, Run, ScenarioError
from forebay.experiment import descriptions
from forebay.experiment.execution import Execution
from forebay.experiment.experiment import Description, Experiment
from forebay.linux import congestion
from forebay.linux.link_settings import Settings, words

if TYPE_CHECKING:
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

#: What the tables call each direction.
DIRECTIONS = ["up", "down"]
#: Utilisation below which an overview leaves a direction out.
IDLE = 0.05
#: Number of changes by hand that a report lists; link.json has all.
MOST_CHANGES = 8
#: The file that a link leaves besides those of every run.
LINK = "link.json"


class LinkExperiment(Experiment):
    """Two runs: each direction with its own law."""

    @property
    def made_by(self) -> str:
        """No engine has run it: whatever the command sent was observed on a link."""
        return "link"

    @property
    def runs(self) -> int:
        return len(DIRECTIONS)


class Direction(NamedTuple):
    """A direction of a link: what was asked for, and what was observed."""

    name: str
    settings: LinkDirectionSettings
    observed: LinkDirection

    @property
    def run(self) -> Observed:
        """Its metrics and samples, as of a simulated run."""
        return self.observed.observed

    def as_json(self) -> dict[str, Any]:
        """All that is not a metric, but for its changes."""
        link, params = self.settings.link, self.settings.params
        return {
            **quantities.finite(
                {"achieved_bps": self.observed.achieved_bps, "asked_bps": self.observed.asked_bps}
            ),
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


@dataclass(frozen=True)
class Outcome:
    """What was observed while a command ran behind a link.

    server: what ran at the far end, as a line for the shell. observed: its status, its times, how
    late packets were, and each direction. congestion_control: the kernel's default; a program may
    have chosen another. Empty where it is not known.
    """

    settings: Settings
    command: list[str]
    server: str | None
    observed: LinkOutcome
    congestion_control: str = field(default_factory=congestion.default)

    def __post_init__(self) -> None:
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
        """Exit status of the command, 128 + n where signal n killed it; None where there was
        none."""
        return self.observed.status

    @property
    def lateness(self) -> LinkLateness:
        """How late packets were released."""
        return self.observed.lateness

    @property
    def void(self) -> list[str]:
        """Why the run is void; empty where it is sound."""
        return self.observed.void

    @property
    def directions(self) -> list[Direction]:
        """Client to server, and back."""
        settings = [self.settings.up, self.settings.down]
        both = zip(DIRECTIONS, settings, self.observed.directions, strict=True)
        return [Direction(*each) for each in both]

    @property
    def measured(self) -> bool:
        """Whether there is a sample within the time of measurement."""
        start, end = self.observed.measure_s
        times_s = self.directions[0].run.samples["time_s"]
        return bool(np.any((times_s > start) & (times_s <= end)))

    @property
    def changed(self) -> str:
        """What was changed by hand, and when; empty where nothing was."""
        texts = [
            f"{point.links[0].name} {' '.join(descriptions.what_changes(point, change))} "
            f"at {change.time_s:g} s"
            for point in map(self._point, self.directions)
            for change in point.changes
        ]
        left = len(texts) - MOST_CHANGES
        return "; ".join([*texts[:MOST_CHANGES], *([f"{left} more"] if left > 0 else [])])

    def result(self) -> Result:
        """Tables, figures and report; the directions are its points.

        Raises `ScenarioError` where the run ended before anything was measured.
        """
        from forebay.experiment.result import Result

        if not self.measured:
            raise ScenarioError(
                f"link: measure: found {self.settings.measure}, allowed: a time within the run, "
                f"which took {in_figures(self.observed.duration_s)} s, and at least one sample"
            )
        directions = self.directions
        laws = [it.settings.law for it in directions]
        by_hand = [" (changed)" if it.observed.changes else "" for it in directions]
        labels = list(
            dict.fromkeys(law.label + hand for law, hand in zip(laws, by_hand, strict=True))
        )
        # A plan has a law once; where both directions have the same kind, the one with other
        # parameters is told apart.
        if len(labels) == 1 and laws[0].params != laws[1].params:
            labels = [f"{labels[0]} {direction}" for direction in DIRECTIONS]
        both = len(labels) > 1
        plan = Plan(
            title=f"Real traffic: {shlex.join(self.command) or 'no command'}",
            source="",
            laws=labels,
            seeds=[self.settings.seed],
            points=tuple(self._point(it, laws if both else laws[:1]) for it in directions),
        )
        runs = [
            Run(index, index if both else 0, self.settings.seed, it.run)
            for index, it in enumerate(directions)
        ]
        server = ["--server", self.server] if self.server else []
        command = shlex.join(["forebay", "link", *words(self.settings), *server, "--"])
        experiment = LinkExperiment(
            plan=plan,
            path="link",
            text=json.dumps(self.table(), indent=1),
            command=f"{command} {shlex.join(self.command)}".rstrip()
            + ("  # as it started; it was then changed by hand" if any(by_hand) else ""),
            description=self._description(),
            # Those that hardly carried anything, such as ACKs alone.
            idle=[i for i, run in enumerate(runs) if not run.metrics["utilisation"] >= IDLE],
            warning=" ".join(self._warnings()),
        )
        return Result(experiment, Execution(runs, [], False, self.observed.duration_s))

    def plot(self, kind: PlotKind = "queue", direction: str = "up", **options: Any) -> Plot:
        """A figure of one direction, "up" or "down"; kinds as of `forebay.Result.plot`."""
        if direction not in DIRECTIONS:
            raise ValueError(f'direction: found "{direction}", allowed: {", ".join(DIRECTIONS)}')
        return self.result().plot(kind, point=DIRECTIONS.index(direction), **options)

    def _repr_html_(self) -> str:
        if self.measured:
            return self.result()._repr_html_()
        return f"<p>Nothing was measured in {in_figures(self.observed.duration_s)} s.</p>"

    def write(self, out: str | os.PathLike[str], *, report: bool = True) -> None:
        """Writes what `Result.report` does, and link.json, to the directory `out`."""
        from forebay._base.publication import publish
        from forebay.report import result_files

        result_files.write_all(self.result(), out, report=report)
        publish(out, {LINK: self.table(bins=True)})

    def table(self, *, bins: bool = False) -> dict[str, Any]:
        """All that is not a metric, for JSON."""
        late = self.lateness
        times = {name: getattr(late, name) for name in ("p50_s", "p99_s", "p999_s", "max_s")}
        by_hand = [(change, it.name) for it in self.directions for change in it.observed.changes]
        changes = [
            {
                "time_s": change.time_s,
                "way": way,
                **(
                    {"rate": quantities.rate(change.rate_bps)}
                    if change.rate_bps
                    else {"aqm": change.aqm, "set": _texts(change.params)}
                ),
            }
            for change, way in sorted(by_hand, key=lambda it: it[0].time_s)
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
            "ways": {it.name: it.as_json() for it in self.directions},
        }

    def _point(self, direction: Direction, laws: list[Any] | None = None) -> PointInfo:
        """A direction as a place where something was observed."""
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
            yield f"Void: {'; '.join(self.void)}."
        if self.changed:
            yield (
                f"Changed by hand while it ran: {self.changed}. Metrics are taken over all of it, "
                "not under one law and rate; what is said of laws and set-points below is how it "
                "started."
            )

    def _description(self) -> Description:
        from forebay.report.templates import paragraphs

        first, *directions, rest = paragraphs(
            "link.txt.j2", outcome=self, observed=self.observed, size=quantities.size
        )
        return Description(first, directions, rest)


def _texts(params: list[tuple[str, Parameter]]) -> list[tuple[str, str]]:
    return [(name, quantities.plain(value)) for name, value in params]
