"""Scenarios written from Python: values and quantities become TOML here, and nowhere else."""

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

#: Least rate of the access links; they are also twice as fast as any bottleneck.
ACCESS_BPS = 10**8


def toml(tables: Mapping[str, Any]) -> str:
    """A scenario from its tables, as `tomllib` would read it. Raises `ScenarioError`."""
    try:
        return tomlkit.dumps(tables)
    except (TypeError, ValueError) as error:
        # tomlkit names the type.
        raise ScenarioError(
            f"scenario: {error} is not valid; expected what TOML can hold"
        ) from error


def typed(text: str) -> Value:
    """A text as TOML reads it where it is a number, true or false; else the text itself."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float) else text


@dataclass(frozen=True)
class Law:
    """A `[[law]]`.

    kind: its name in `forebay laws`.
    params: name and value as a text such as "200p" or "0.5"; the others have their defaults.
    label: its name in reports; `kind` where it is empty.
    """

    kind: str
    params: Iterable[tuple[str, str]] = ()
    label: str = ""

    def table(self) -> dict[str, Value]:
        label: dict[str, Value] = {"label": self.label} if self.label else {}
        return {"kind": self.kind, **label, **{name: typed(text) for name, text in self.params}}

    def text(self) -> str:
        """The table alone, to be put into a scenario."""
        return tomlkit.dumps({"law": [self.table()]}).strip()


@dataclass(frozen=True)
class Group:
    """A class of flows: their sender by its name in `--tcp`, how many, and their propagation both
    ways as a text."""

    tcp: str
    flows: float
    rtt: str

    @property
    def rtt_s(self) -> float:
        return quantity("--rtt", self.rtt, "time")


@dataclass(frozen=True)
class Dumbbell:
    """Long-lived flows, of Reno if nothing else is said, over one bottleneck, from their start on.

    rate, packet, rtt: texts with units; rtt is propagation, both ways.
    delay_s: of the bottleneck, one way; the rest of the RTT is in the access links.
    measure_from_s: when measuring begins; it ends with the run.
    fastest_bps: greatest rate of the bottleneck, where a sweep changes it.
    groups: classes of flows in place of `flows` and `rtt`, each with its sender's name in scenarios
        and what that asks for as `ecn`.
    rate_trace: file of a recorded link; `rate` is then what its law is told.
    l4s_flows: of Prague with ECT(1) beside them; the bottleneck then marks.
    target_pkts: set-point for QACD; each law's own where it is None.
    changes: keys with the values that they get at a time in s.
    sweep: key of the scenario, or several with commas between them, to the values that it takes.
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
        """The scenario file."""
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
        """The tables of the flows."""
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
