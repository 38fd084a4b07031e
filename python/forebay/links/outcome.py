"""What came of a run on a link, and its tables, figures and report as of any other run."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay._native import Plan, PointInfo, Run, ScenarioError, __version__
from forebay.base import quantities, words
from forebay.links import congestion
from forebay.links.settings import Settings
from forebay.links.settings import words as words_of
from forebay.runs import descriptions
from forebay.runs.execution import Execution
from forebay.runs.experiment import Description, Experiment

if TYPE_CHECKING:
    from forebay._native import (
        ChangeInfo,
        LawInfo,
        LinkDirectionSettings,
        LinkLateness,
        LinkOutcome,
        Observed,
        Parameter,
    )
    from forebay.figures.plot import Plot
    from forebay.results.result import Result

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
    def runs(self) -> int:
        return len(DIRECTIONS)


@dataclass(frozen=True)
class Outcome:
    """What was observed while a command ran behind a link."""

    settings: Settings
    command: list[str]
    #: What ran at the far end, as a line for the shell.
    server: str | None
    #: Exit status of the command, 128 + n where signal n killed it; None where there was none.
    status: int | None
    #: Why the command could not be started: the number of the error.
    not_started: int | None
    #: The same for the server's command; None while it runs.
    server_status: int | None
    duration_s: float
    measure_s: tuple[float, float]
    sample_s: float
    lateness: LinkLateness
    #: Why the run is void; empty where it is sound.
    void: list[str]
    #: Observations of each direction: up, then down.
    runs: list[Observed]
    #: Rates while the link was busy: released, and due, in bit/s.
    achieved_bps: list[float]
    asked_bps: list[float]
    #: Packets lost after the queue on request.
    lost_packets: list[int]
    #: Changes by keys of the live view, for each direction.
    changes: list[list[ChangeInfo]]
    #: TCP flows that carried data; and by congestion control, those of them that were seen.
    tcp_flows: list[int]
    congestion_controls: list[dict[str, int]]
    #: The kernel's default; a program may have chosen another. Empty where it is not known.
    congestion_control: str

    @property
    def up(self) -> dict[str, float]:
        """Metrics from client to server."""
        return self.runs[0].metrics

    @property
    def down(self) -> dict[str, float]:
        """Metrics from server to client."""
        return self.runs[1].metrics

    @property
    def measured(self) -> bool:
        """Whether there is a sample within the time of measurement."""
        start, end = self.measure_s
        times_s = self.runs[0].samples["time_s"]
        return bool(np.any((times_s > start) & (times_s <= end)))

    @property
    def changed(self) -> str:
        """What was changed by hand, and when; empty where nothing was."""
        texts = [
            f"{point.links[0].name} {' '.join(descriptions.what_changes(point, change))} "
            f"at {change.time_s:g} s"
            for point in self._points()
            for change in point.changes
        ]
        left = len(texts) - MOST_CHANGES
        return "; ".join([*texts[:MOST_CHANGES], *([f"{left} more"] if left > 0 else [])])

    def result(self) -> Result:
        """Tables, figures and report; the directions are its points.

        Raises `ScenarioError` where the run ended before anything was measured.
        """
        from forebay.results.result import Result

        if not self.measured:
            raise ScenarioError(
                f"link: measure: found {self.settings.measure}, allowed: a time within the run, "
                f"which took {self.duration_s:.3g} s, and at least one sample"
            )
        laws = [self.settings.up.law, self.settings.down.law]
        by_hand = [" (changed)" if changes else "" for changes in self.changes]
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
            points=tuple(self._points(laws if both else laws[:1])),
        )
        runs = [
            Run(index, index if both else 0, self.settings.seed, observed)
            for index, observed in enumerate(self.runs)
        ]
        experiment = LinkExperiment(
            plan=plan,
            path="link",
            text=json.dumps(self.table(), indent=1),
            command=shlex.join(["forebay", "link", *self._options(), "--", *self.command])
            + ("  # as it started; it was then changed by hand" if any(self.changes) else ""),
            description=self._description(),
            idle=self._idle(),
            warning=" ".join(self._warnings()),
        )
        execution = Execution(runs, [], False, self.duration_s)
        return Result(experiment, execution)

    def plot(self, kind: str = "queue", direction: str = "up", **options: Any) -> Plot:
        """A figure of one direction, "up" or "down"; kinds as of `forebay.Result.plot`."""
        if direction not in DIRECTIONS:
            raise ValueError(f'direction: found "{direction}", allowed: {", ".join(DIRECTIONS)}')
        return self.result().plot(kind, point=DIRECTIONS.index(direction), **options)

    def _repr_html_(self) -> str:
        if self.measured:
            return self.result()._repr_html_()
        return f"<p>Nothing was measured in {self.duration_s:.3g} s.</p>"

    def write(self, out: str | os.PathLike[str], *, report: bool = True) -> None:
        """Writes what `Result.report` does, and link.json, to the directory `out`."""
        from forebay.base.publication import publish
        from forebay.pages import result_files

        result_files.write_all(self.result(), out, report=report)
        publish(out, {LINK: self.table(bins=True)})

    def _warnings(self) -> Iterator[str]:
        if self.void:
            yield f"Void: {'; '.join(self.void)}."
        if any(self.changes):
            yield (
                f"Changed by hand while it ran: {self.changed}. Metrics are taken over all of it, "
                "not under one law and rate; what is said of laws and set-points below is how it "
                "started."
            )

    def table(self, *, bins: bool = False) -> dict[str, Any]:
        """All that is not a metric, for JSON."""
        from forebay.pages.result_files import finite

        late = self.lateness
        lateness = {"p50_s": late.p50_s, "p99_s": late.p99_s, "p999_s": late.p999_s}
        ways = {
            name: {
                **finite({"achieved_bps": achieved, "asked_bps": asked}),
                "lost_packets": lost,
                "tcp_flows": tcp_flows,
                "congestion_controls": controls,
                **_settings(one),
            }
            for name, one, achieved, asked, lost, tcp_flows, controls in zip(
                DIRECTIONS,
                [self.settings.up, self.settings.down],
                self.achieved_bps,
                self.asked_bps,
                self.lost_packets,
                self.tcp_flows,
                self.congestion_controls,
                strict=True,
            )
        }
        by_hand = [
            (change, name)
            for name, changes in zip(DIRECTIONS, self.changes, strict=True)
            for change in changes
        ]
        by_hand.sort(key=lambda one: one[0].time_s)
        changes = [
            {
                "time_s": change.time_s,
                "way": name,
                **(
                    {"rate": quantities.rate(change.rate_bps)}
                    if change.rate_bps
                    else {"aqm": change.aqm, "set": _texts(change.params)}
                ),
            }
            for change, name in by_hand
        ]
        return {
            "command": self.command,
            "server": self.server,
            "status": self.status,
            "duration_s": self.duration_s,
            "void": self.void,
            "changed_by_hand": changes,
            "default_congestion_control": self.congestion_control,
            "lateness": finite({**lateness, "max_s": late.max_s})
            | ({"bins": late.bins} if bins else {}),
            "ways": ways,
        }

    def _options(self) -> list[str]:
        """Arguments of `forebay link` for the same run."""
        return words_of(self.settings) + (["--server", self.server] if self.server else [])

    def _points(self, laws: Sequence[LawInfo] = ()) -> list[PointInfo]:
        """Where it was observed: up, then down."""
        both = [self.settings.up, self.settings.down]
        return [
            PointInfo(
                label=f"{one.link.name} ({one.link.from_node} to {one.link.to_node})",
                settings={},
                duration_s=self.duration_s,
                measure_s=self.measure_s,
                sample_s=self.sample_s,
                target_pkts=one.law.target_pkts,
                links=[one.link],
                laws=list(laws),
                traffic=[],
                changes=changes,
            )
            for one, changes in zip(both, self.changes, strict=True)
        ]

    def _idle(self) -> list[int]:
        """Directions that hardly carried anything, such as ACKs alone."""
        return [i for i, run in enumerate(self.runs) if not run.metrics["utilisation"] >= IDLE]

    def _description(self) -> Description:
        start, end = self.measure_s
        both = [self.settings.up, self.settings.down]
        directions = [
            f"{point.label}: {_capacity(one)}, {words.delay(one.link.delay_s)}"
            f"{' by flow' if len(set(one.link.delay_s)) > 1 else ''} one way after the queue, "
            f"a buffer of {words.buffer(one.link.buffer_pkts, one.link.buffer_bytes)}, "
            f"under {one.aqm}"
            + (f", and {100 * one.loss:g} % of the packets lost after it" if one.loss else "")
            + "."
            for point, one in zip(self._points(), both, strict=True)
        ]
        late = self.lateness
        kept = (
            f"Packets were released {words.short_time(late.p50_s)} late in the median, "
            f"{words.short_time(late.p99_s)} at the 99th percentile. "
            if late.p50_s == late.p50_s
            else "No packet crossed the link. "
        )
        sender = (
            f"The kernel's default congestion control is {self.congestion_control}, for programs "
            "that choose no other. "
            if self.congestion_control
            else ""
        )
        seen = [
            f"{sum(of.values())} seen {name}: "
            + ", ".join(f"{flows} of {control}" for control, flows in sorted(of.items()))
            for name, of in zip(DIRECTIONS, self.congestion_controls, strict=True)
            if of
        ]
        if seen:
            sender += f"Of TCP flows with data {'; '.join(seen)}. "
        return Description(
            "Real packets of the kernel's own TCP, between two network namespaces over a link "
            "that was kept in real time. Its directions:",
            directions,
            f"{sender}{kept}Metrics are taken from {start:.4g} s to {end:.4g} s of "
            f"{self.duration_s:.4g} s, with the queue sampled every {1e3 * self.sample_s:g} ms. A "
            "TCP flow's goodput is what its receiver acknowledged; flows below 15 kB are left out. "
            f"Made with Forebay {__version__}.",
        )


def outcome_of_run(
    settings: Settings, command: Sequence[str], server: str | None, found: LinkOutcome
) -> Outcome:
    """The outcome from what `_native.link_run` gives."""
    observed = [one.observed for one in found.directions]
    for one in observed:
        one.metrics["user_cpu_s"] = found.user_cpu_s
        one.metrics["lateness_p99_s"] = found.lateness.p99_s
        one.metrics["void"] = bool(found.void)
    return Outcome(
        settings=settings,
        command=list(command),
        server=server,
        status=found.status,
        not_started=found.not_started,
        server_status=found.server_status,
        duration_s=found.duration_s,
        measure_s=found.measure_s,
        sample_s=found.sample_s,
        lateness=found.lateness,
        void=found.void,
        runs=observed,
        achieved_bps=[one.achieved_bps for one in found.directions],
        asked_bps=[one.asked_bps for one in found.directions],
        lost_packets=[one.lost_packets for one in found.directions],
        changes=[one.changes for one in found.directions],
        tcp_flows=[one.tcp_flows for one in found.directions],
        congestion_controls=[one.congestion_controls for one in found.directions],
        congestion_control=congestion.default(),
    )


def _settings(one: LinkDirectionSettings) -> dict[str, Any]:
    """Settings of a direction for link.json."""
    link = one.link
    return {
        "rate": None if one.trace else quantities.rate(link.rate_bps),
        "trace": one.trace,
        "burst": quantities.size(link.burst_bytes),
        "delay": "..".join(quantities.time(end) for end in dict.fromkeys(link.delay_s)),
        "buffer": quantities.buffer(link.buffer_pkts, link.buffer_bytes),
        "loss": one.loss,
        "ecn": link.ecn,
        "aqm": one.aqm,
        "set": _texts(one.params),
    }


def _texts(params: Sequence[tuple[str, Parameter]]) -> list[tuple[str, str]]:
    return [(name, quantities.plain(value)) for name, value in params]


def _capacity(one: LinkDirectionSettings) -> str:
    if one.trace:
        return f"as recorded in {Path(one.trace).name}"
    burst = one.link.burst_bytes
    return words.rate(one.link.rate_bps) + (
        f" (bursts of {quantities.size(burst)})" if burst else ""
    )
