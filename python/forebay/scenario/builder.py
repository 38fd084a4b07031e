"""Scenarios written from Python: the only module that turns values into TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Writes TOML with comments; the standard library only reads it.
import tomlkit

from forebay._native import ScenarioError, quantity

#: A value of a scenario; a quantity is a text with its unit.
Value = bool | int | float | str

#: Lowest rate of the access links in bit/s; they are also at least twice as fast as the bottleneck.
ACCESS_BPS = 10**8


def toml(tables: Mapping[str, Any]) -> str:
    """Return a scenario in TOML from its tables.

    Raises
    ------
    ScenarioError
        If a value has no form in TOML.
    """
    try:
        return tomlkit.dumps(tables)
    except (TypeError, ValueError) as error:
        # The message of tomlkit names the type.
        raise ScenarioError(f"scenario: TOML cannot hold this value: {error}") from error


def typed(text: str) -> Value:
    """Return a text as the number or boolean that TOML reads from it, or else the text itself."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float) else text


@dataclass(frozen=True)
class Law:
    """A table `[[law]]` of a scenario.

    Attributes
    ----------
    kind : str
        Name of the law in `forebay laws`.
    params : Iterable[tuple[str, str]], default ()
        Names of parameters, with values as texts such as "200p" or "0.5"; others have their
        defaults.
    label : str, default ''
        Name in reports; `kind` if it is empty.
    """

    kind: str
    params: Iterable[tuple[str, str]] = ()
    label: str = ""

    def table(self) -> dict[str, Value]:
        """Return the table."""
        label: dict[str, Value] = {"label": self.label} if self.label else {}
        return {"kind": self.kind, **label, **{name: typed(text) for name, text in self.params}}

    def text(self) -> str:
        """Return the table as TOML, to be added to a scenario."""
        return tomlkit.dumps({"law": [self.table()]}).strip()


@dataclass(frozen=True)
class Group:
    """A group of flows with the same sender and round trip.

    Attributes
    ----------
    tcp : str
        The sender, by its name in `--tcp`.
    flows : float
        Number of flows.
    rtt : str
        Propagation round trip, as a text with a unit.
    """

    tcp: str
    flows: float
    rtt: str

    @property
    def rtt_s(self) -> float:
        """The propagation round trip in seconds."""
        return quantity("--rtt", self.rtt, "time")


@dataclass(frozen=True)
class Dumbbell:
    """A scenario with long-lived flows over one bottleneck.

    Attributes
    ----------
    title : str
        Title of the scenario.
    duration_s : float
        Duration of a run in seconds.
    measure_from_s : float
        Start of the measurement, which ends with the run.
    rate : str
        Rate of the bottleneck, as a text with a unit.
    fastest_bps : float
        Largest rate of the bottleneck if a sweep changes it.
    delay_s : float
        One-way delay of the bottleneck; the rest of the round trip is in the access links.
    buffer_pkts : int
        Buffer of the bottleneck in packets.
    flows : int
        Number of flows, whose sender is Reno.
    packet : str
        Packet size, as a text with a unit.
    rtt : str
        Propagation round trip, as a text with a unit.
    laws : Sequence[Law]
        The laws.
    target_pkts : float, optional
        Set-point for QACD; None uses that of each law.
    sweep : Mapping[str, Sequence[Value] | Sequence[Sequence[Value]]]
        The values of a key, or of several keys separated by commas.
    l4s_flows : int, default 0
        Number of additional flows of Prague with ECT(1); the bottleneck then marks.
    groups : Sequence[tuple[Group, str, str | bool]], default ()
        Groups that replace `flows` and `rtt`, each with the name of its sender in scenarios and the
        value of `ecn` that the sender needs.
    rate_trace : str, optional
        File of a recorded link; `rate` is then the rate that its law assumes.
    changes : Sequence[tuple[float, Mapping[str, Value]]], default ()
        Times in seconds, each with the keys that change and their new values.
    """

    title: str
    duration_s: float
    measure_from_s: float
    rate: str
    fastest_bps: float
    delay_s: float
    buffer_pkts: int
    flows: int
    packet: str
    rtt: str
    laws: Sequence[Law]
    target_pkts: float | None = None
    sweep: Mapping[str, Sequence[Value] | Sequence[Sequence[Value]]] = field(default_factory=dict)
    l4s_flows: int = 0
    groups: Sequence[tuple[Group, str, str | bool]] = ()
    rate_trace: str | None = None
    changes: Sequence[tuple[float, Mapping[str, Value]]] = ()

    def text(self) -> str:
        """Return the scenario in TOML."""
        end = f"{self.duration_s:g}s"
        bottleneck: dict[str, Value] = {
            "rate": self.rate,
            "delay": f"{1e3 * self.delay_s:.6g}ms",
            "buffer": f"{self.buffer_pkts}p",
        }
        traffic = self._traffic()
        if any("ecn" in flows for flows in traffic):
            bottleneck["ecn"] = True
        if self.rate_trace is not None:
            bottleneck["rate_trace"] = self.rate_trace
        document: dict[str, Any] = {
            "title": self.title,
            "duration": end,
            "measure": [f"{self.measure_from_s:.6g}s", end],
        }
        if self.target_pkts is not None:
            document["target"] = f"{self.target_pkts:.6g}p"
        laws = [law.table() for law in self.laws]
        document |= {"bottleneck": bottleneck, "traffic": traffic, "law": laws}
        if self.changes:
            document["at"] = [
                {"time": f"{time_s:g}s", "set": dict(settings)} for time_s, settings in self.changes
            ]
        if self.sweep:
            document["sweep"] = {key: list(values) for key, values in self.sweep.items()}
        return tomlkit.dumps(document)

    def _traffic(self) -> list[dict[str, Any]]:
        """Return the tables of the flows."""
        access_mbps = 1e-6 * max(ACCESS_BPS, 2 * self.fastest_bps)
        start = tomlkit.inline_table()
        start["uniform"] = ["0s", "1s"]
        plain = {
            "kind": "ftp",
            "flows": self.flows,
            "packet": self.packet,
            "rtt": self.rtt,
            "access": f"{access_mbps:.12g}Mbit/s",
            "start": start,
        }
        traffic = [
            plain
            | {"flows": max(1, round(group.flows)), "rtt": group.rtt, "tcp": sender}
            | ({"ecn": ecn} if ecn else {})
            for group, sender, ecn in self.groups
        ]
        if self.l4s_flows:
            l4s = {"flows": self.l4s_flows, "tcp": "prague", "ecn": "l4s", "label": "l4s"}
            return [plain, plain | l4s]
        return traffic or [plain]
