"""What came of a run on a link, and its tables, figures and report as of any other run."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from forebay import words
from forebay._native import LawInfo, ScenarioError, TrafficInfo, __version__
from forebay.emulator import congestion
from forebay.emulator.settings import Settings, Way
from forebay.experiment import Execution, Experiment

if TYPE_CHECKING:
    from forebay._native import Observed
    from forebay._native import Plan as NativePlan
    from forebay._native import Run as NativeRun
    from forebay.result import Result

#: What the tables call each direction.
WAYS = ["up", "down"]
#: Settings of the whole link that are options with a value.
PLAIN = ["device", "mtu", "seed", "sample", "measure", "void_lateness", "void_rate"]
#: A direction that is used less has no say in an overview.
IDLE = 0.05
#: So many changes by hand are told; link.json has all.
MOST_CHANGES = 8
#: What a link leaves besides what every run does.
LINK = "link.json"


@dataclass(frozen=True)
class Run:
    """One direction; has what `forebay._native.Run` has."""

    point: int
    law: int
    seed: int
    link: str
    metrics: dict[str, float]
    samples: dict[str, NDArray[Any]]
    delay_s: NDArray[np.float64]
    delay_packets: NDArray[np.uint64]
    flow_traffic: NDArray[np.uint32]
    flow_goodput_bps: NDArray[np.float64]
    others: Sequence[Observed] = ()


@dataclass(frozen=True)
class Link:
    """What a report asks of `forebay._native.LinkInfo`."""

    name: str
    law: LawInfo | None = None


@dataclass(frozen=True)
class Point:
    """Where it was observed; has what `forebay._native.PointInfo` has."""

    label: str
    settings: dict[str, Any]
    duration_s: float
    measure_s: tuple[float, float]
    sample_s: float
    target_pkts: float | None
    rate: str
    links: list[Link]
    laws: list[LawInfo]
    traffic: list[TrafficInfo]
    changes: list[tuple[float, str, str]]


@dataclass(frozen=True)
class Plan:
    """Has what `forebay._native.Plan` has to say."""

    title: str
    source: str
    laws: list[str]
    seeds: list[int]
    points: tuple[Point, ...]


class LinkExperiment(Experiment):
    """Two runs: each direction with its own law."""

    @property
    def runs(self) -> int:
        return len(WAYS)


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
    #: Of the release of packets: p50_s, p99_s, p999_s, max_s; and bins, each its upper end in s
    #: and its packets.
    lateness: dict[str, Any]
    #: Why the run is void; empty where it is sound.
    void: list[str]
    #: Up, then down.
    runs: list[Run]
    #: While the link was busy: what was released, and what was to be, in bit/s.
    achieved_bps: list[float]
    asked_bps: list[float]
    #: Lost after the queue, as was asked.
    lost_packets: list[int]
    #: What keys of the live view have changed, in order: time_s, way (0 is up), and rate, or aqm
    #: and set, its parameters.
    changes: list[dict[str, Any]]
    #: TCP flows that carried data; and by congestion control, those of them that were seen.
    tcp_flows: list[int]
    congestion_controls: list[dict[str, int]]
    #: The kernel's default; a program may have chosen another. Empty where it is not known.
    congestion_control: str

    @property
    def up(self) -> dict[str, float]:
        """Metrics of the way from client to server."""
        return self.runs[0].metrics

    @property
    def down(self) -> dict[str, float]:
        """Metrics of the way from server to client."""
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
            f"{WAYS[way]} {what} {words.quantity(value)} at {time_s:g} s"
            for way in range(len(WAYS))
            for time_s, what, value in self._changes(way)
        ]
        left = len(texts) - MOST_CHANGES
        return "; ".join([*texts[:MOST_CHANGES], *([f"{left} more"] if left > 0 else [])])

    def result(self) -> Result:
        """Tables, figures and report; the directions are its points.

        Raises `ScenarioError` where the run ended before anything was measured.
        """
        from forebay.result import Result

        if not self.measured:
            raise ScenarioError(
                f"link: measure: found {self.settings.measure}, allowed: a time within the run, "
                f"which took {self.duration_s:.3g} s, and at least one sample"
            )
        laws = [one.law for one in self.settings.check()]
        by_hand = [" (changed)" if self._changes(way) else "" for way in range(len(WAYS))]
        labels = list(
            dict.fromkeys(law.label + hand for law, hand in zip(laws, by_hand, strict=True))
        )
        # A plan has a law once; where both directions have the same kind, the one with other
        # parameters is told apart.
        if len(labels) == 1 and laws[0].params != laws[1].params:
            labels = [f"{labels[0]} {way}" for way in WAYS]
        points = tuple(
            self._point(index, law, laws if len(labels) > 1 else laws[:1])
            for index, law in enumerate(laws)
        )
        plan = Plan(
            title=f"Real traffic: {shlex.join(self.command) or 'no command'}",
            source="",
            laws=labels,
            seeds=[self.settings.seed],
            points=points,
        )
        runs = [
            Run(**{**vars(run), "law": run.point if len(labels) > 1 else 0}) for run in self.runs
        ]
        experiment = LinkExperiment(
            plan=cast("NativePlan", plan),
            path="link",
            text=json.dumps(self.table(), indent=1),
            command=shlex.join(["forebay", "link", *self.options(), "--", *self.command])
            + ("  # as it started; it was then changed by hand" if self.changes else ""),
            description=self._description(points),
            idle=self._idle(),
            warning=" ".join(self._warnings()),
        )
        execution = Execution(cast("list[NativeRun]", runs), [], False, self.duration_s)
        return Result(experiment, execution)

    def write(self, out: str | os.PathLike[str], *, report: bool = True) -> None:
        """Writes what `Result.report` does, and link.json, to the directory `out`."""
        from forebay import files

        files.write(self.result(), out, report=report)
        (Path(out) / LINK).write_text(json.dumps(self.table(bins=True), indent=1) + "\n")

    def _warnings(self) -> Iterator[str]:
        if self.void:
            yield f"Void: {'; '.join(self.void)}."
        if self.changes:
            yield (
                f"Changed by hand while it ran: {self.changed}. Metrics are taken over all of it, "
                "not under one law and rate; what is said of laws and set-points below is how it "
                "started."
            )

    def _changes(self, way: int) -> list[tuple[float, str, str]]:
        """Of one direction: time in s, what, to what."""
        return [
            (
                round(one["time_s"], 3),
                "rate" if "rate" in one else "law",
                one["rate"] if "rate" in one else _law(one["aqm"], one["set"]),
            )
            for one in self.changes
            if one["way"] == way
        ]

    def table(self, *, bins: bool = False) -> dict[str, Any]:
        """All that is not a metric, for JSON."""
        from forebay.files import finite

        lateness = {name: value for name, value in self.lateness.items() if name != "bins"}
        ways = {
            name: {
                **finite({"achieved_bps": achieved, "asked_bps": asked}),
                "lost_packets": lost,
                "tcp_flows": tcp_flows,
                "congestion_controls": controls,
                **{
                    key: value for key, value in vars(way).items() if key not in ("suffix", "trace")
                },
                "trace": way.trace and way.trace[0],
            }
            for name, way, achieved, asked, lost, tcp_flows, controls in zip(
                WAYS,
                [self.settings.up, self.settings.down],
                self.achieved_bps,
                self.asked_bps,
                self.lost_packets,
                self.tcp_flows,
                self.congestion_controls,
                strict=True,
            )
        }
        changes = [{**one, "way": WAYS[one["way"]]} for one in self.changes]
        return {
            "command": self.command,
            "server": self.server,
            "status": self.status,
            "duration_s": self.duration_s,
            "void": self.void,
            "changed_by_hand": changes,
            "default_congestion_control": self.congestion_control,
            "lateness": finite(lateness) | ({"bins": self.lateness["bins"]} if bins else {}),
            "ways": ways,
        }

    def options(self) -> list[str]:
        """What `forebay link` takes for the same run."""
        down, up = self.settings.down, self.settings.up
        options = _options(down, "")
        if up.suffix:
            options += _options(up, "-up")
        if not down.ecn:
            options.append("--no-ecn")
        if self.settings.super_packets is not None:
            options.append(f"--{'' if self.settings.super_packets else 'no-'}super-packets")
        for name in PLAIN:
            value = getattr(self.settings, name)
            if value != getattr(Settings(up, down), name):
                options += [f"--{name.replace('_', '-')}", str(value)]
        if self.server:
            options += ["--server", self.server]
        return options

    def _point(self, index: int, law: LawInfo, laws: Sequence[LawInfo]) -> Point:
        way, name = [self.settings.up, self.settings.down][index], WAYS[index]
        ends = "client to server" if name == "up" else "server to client"
        return Point(
            label=f"{name} ({ends})",
            settings={},
            duration_s=self.duration_s,
            measure_s=self.measure_s,
            sample_s=self.sample_s,
            target_pkts=law.target_pkts,
            rate=way.rate or "0bit/s",
            links=[Link(name)],
            laws=list(laws),
            traffic=[],
            changes=self._changes(index),
        )

    def _idle(self) -> list[int]:
        """Directions that hardly carried anything, such as ACKs alone."""
        return [i for i, run in enumerate(self.runs) if not run.metrics["utilisation"] >= IDLE]

    def _description(self, points: Sequence[Point]) -> words.Description:
        start, end = self.measure_s
        ways = [
            f"{point.label}: {_capacity(way)}, {_delay(way)} one way after the queue, a buffer of "
            f"{words.quantity(way.buffer)}, under {way.aqm}"
            + (f", and {way.loss} of the packets lost after it" if float_of(way.loss) else "")
            + "."
            for way, point in zip([self.settings.up, self.settings.down], points, strict=True)
        ]
        late = self.lateness
        kept = (
            f"Packets were released {words.short_time(late['p50_s'])} late in the median, "
            f"{words.short_time(late['p99_s'])} at the 99th percentile. "
            if late["p50_s"] == late["p50_s"]
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
            for name, of in zip(WAYS, self.congestion_controls, strict=True)
            if of
        ]
        if seen:
            sender += f"Of TCP flows with data {'; '.join(seen)}. "
        return words.Description(
            "Real packets of the kernel's own TCP, between two network namespaces over a link "
            "that was kept in real time. Its directions:",
            ways,
            f"{sender}{kept}Metrics are taken from {start:.4g} s to {end:.4g} s of "
            f"{self.duration_s:.4g} s, with the queue sampled every {1e3 * self.sample_s:g} ms. A "
            "TCP flow's goodput is what its receiver acknowledged; flows below 15 kB are left out. "
            f"Made with Forebay {__version__}.",
        )


def read(
    settings: Settings, command: Sequence[str], server: str | None, table: dict[str, Any]
) -> Outcome:
    """The outcome from what `_native.link_run` gives."""
    status, not_started = table["command"]
    runs = []
    for point, way in enumerate(table["ways"]):
        metrics = dict(way["metrics"])
        metrics["lateness_p99_s"] = table["lateness"]["p99_s"]
        metrics["void"] = bool(table["void"])
        columns = {name: way[name] for name in Run.__dataclass_fields__ if name in way}
        runs.append(
            Run(
                **{
                    **columns,
                    "point": point,
                    "law": 0,
                    "seed": settings.seed,
                    "link": WAYS[point],
                    "metrics": metrics,
                }
            )
        )
    return Outcome(
        settings=settings,
        command=list(command),
        server=server,
        status=status,
        not_started=not_started,
        server_status=table["server"][0],
        duration_s=table["duration_s"],
        measure_s=table["measure_s"],
        sample_s=table["sample_s"],
        lateness=table["lateness"],
        void=table["void"],
        runs=runs,
        achieved_bps=[way["achieved_bps"] for way in table["ways"]],
        asked_bps=[way["asked_bps"] for way in table["ways"]],
        lost_packets=[way["lost_packets"] for way in table["ways"]],
        changes=table["changes"],
        tcp_flows=[way["tcp_flows"] for way in table["ways"]],
        congestion_controls=[way["congestion_controls"] for way in table["ways"]],
        congestion_control=congestion.default(),
    )


def _options(way: Way, suffix: str) -> list[str]:
    options = []
    if way.trace:
        options += [f"--trace{suffix}", way.trace[0]]
    elif way.rate:
        options += [f"--rate{suffix}", way.rate]
    options += [f"--delay{suffix}", way.delay, f"--buffer{suffix}", way.buffer]
    options += [f"--aqm{suffix}", way.aqm]
    for name, text in way.set:
        options += [f"--set{suffix}", f"{name}={text}"]
    if suffix or float_of(way.loss):
        options += [f"--loss{suffix}", way.loss]
    return options


def _law(aqm: str, given: Sequence[tuple[str, str]]) -> str:
    params = ", ".join(f"{name}={text}" for name, text in given)
    return f"{aqm} ({params})" if params else aqm


def float_of(share: str) -> float:
    """A share as a number: "1%" is 0.01."""
    text = share.strip()
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _capacity(way: Way) -> str:
    if way.trace:
        return f"as recorded in {Path(way.trace[0]).name}"
    return words.quantity(way.rate or "")


def _delay(way: Way) -> str:
    least, separator, most = way.delay.partition("..")
    return f"{least} to {words.quantity(most)} by flow" if separator else words.quantity(least)
