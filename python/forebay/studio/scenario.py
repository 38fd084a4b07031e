"""The experiment of a state: the scenario that the studio was started with, and its changes.

Everything that the page does not show stays as in the file. A state without changes is the file, at
its sweep's first point and with its first two laws.
"""

from __future__ import annotations

import copy
import os
import re
import tomllib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forebay._native as _native
from forebay._base import quantities, registries
from forebay._native import ScenarioError
from forebay.experiment import automatic_gains, experiment
from forebay.scenario.builder import ACCESS_BPS, Law, typed
from forebay.studio.state import BY_KEY, SIDES, LawChoice, State

if TYPE_CHECKING:
    from forebay._native import Plan, PointInfo

Tables = MutableMapping[str, Any]
#: The parameters of each side's law.
Laws = Mapping[str, list[tuple[str, str]]]

START = Path(__file__).with_name("start.toml")
#: Number of round trips over which a spread is distributed.
ROUND_TRIPS = 5
MICE = "mice"
#: Kinds of traffic whose flows end by themselves.
SHORT = (MICE, "web", "pages", "video")
#: Keys of a `[[law]]` that are no parameters.
NOT_PARAMS = ("kind", "label", "queue")
#: The quantity that each event of the state changes, and the factor.
CHANGES = {
    "more-flows": ("flows", 2.0),
    "fewer-flows": ("flows", 0.5),
    "slower": ("rate", 0.5),
    "faster": ("rate", 2.0),
}


@dataclass(frozen=True)
class BaseScenario:
    """The scenario that the studio was started with.

    Attributes
    ----------
    name : str
        Name of its file.
    main : int
        Index of the traffic that the page sets.
    remark : str
        What of the scenario the page leaves out.
    designed : frozenset of int
        Indices of the laws that ask for a design.
    """

    name: str
    text: str
    tables: Mapping[str, Any]
    point: PointInfo
    main: int
    remark: str
    designed: frozenset[int]

    @staticmethod
    def from_source(source: str | os.PathLike[str] | None) -> BaseScenario:
        """Read a scenario file, or the studio's own. Raises `ScenarioError`."""
        name, contents = experiment.text_of(source or START)
        # It reads the file with all its rules; what follows takes the same tables.
        plan = _native.plan(contents, name, read=experiment.FilesBeside(name))
        text = contents.decode()
        if plan.designed:
            # The page has the first point.
            first = [design for design in plan.designed if 0 in design.points]
            text = automatic_gains.written(text, first)
        tables = tomllib.loads(text)
        designed = frozenset(law.law for law in plan.designed)
        point = plan.points[0]
        mains = [
            i
            for i, traffic in enumerate(point.traffic)
            if traffic.tcp is not None and traffic.kind not in SHORT
        ]
        if not mains:
            raise ScenarioError(f"{name}: traffic: the studio needs long-lived TCP flows; add some")
        left_out = []
        if len(plan.points) > 1:
            left_out.append(f"the sweep's other {len(plan.points) - 1} points")
        if len(plan.laws) > len(SIDES):
            left_out.append(f"{len(plan.laws) - len(SIDES)} more laws")
        remark = f"Not shown: {' and '.join(left_out)}." if left_out else ""
        if "sweep" in tables:
            tables["sweep"] = {}
        for key, value in point.settings.items():
            _place(tables, key, value)
        if "sweep" in tables and not tables["sweep"]:
            del tables["sweep"]
        return BaseScenario(name, text, tables, point, mains[0], remark, designed)

    @property
    def label(self) -> str:
        """Name of the file without its folder; empty for the studio's own scenario."""
        return "" if self.name == os.fspath(START) else Path(self.name).name

    @cached_property
    def start(self) -> State:
        """The initial state of the page."""
        link, main = self.point.links[0], self.point.traffic[self.main]
        buffer = link.buffer_pkts or (link.buffer_bytes or 0) / main.packet_bytes
        low, high = min(main.rtts_s), max(main.rtts_s)
        mice = [traffic.flows for traffic in self.point.traffic if traffic.kind == MICE]
        laws = [self._choice(i) for i in range(len(self.tables["law"][: len(SIDES)]))]
        state = State(
            rate=link.rate_bps,
            rtt=round(0.5 * (low + high), 9),
            buffer=max(1, round(buffer)),
            packet=main.packet_bytes,
            flows=main.flows,
            spread=round((high - low) / (high + low), 6) if high else 0.0,
            tcp=str(main.tcp),
            ecn=main.ecn != "off",
            mice=mice[0] if mice else 0,
            event="none",
            duration=self.point.duration_s,
            seed=1,
            a=laws[0],
            b=laws[1] if len(laws) > 1 else None,
        )
        for key, control in BY_KEY.items():
            value, low, high = getattr(state, key), control.low, control.high
            if control.kind not in ("choice", "flag") and not low <= value <= high:
                text, lowest, highest = map(control.write, (value, low, high))
                raise ScenarioError(
                    f'{self.name}: {key}: "{text}" is out of the studio\'s range; expected '
                    f"{lowest} to {highest}"
                )
        return state

    def _choice(self, index: int) -> LawChoice:
        table = self.tables["law"][index]
        if table["kind"] not in registries.laws():
            raise ScenarioError(
                f'{self.name}: law: the studio cannot show "{table["kind"]}"; expected a built-in '
                "law"
            )
        params = [(k, quantities.plain(v)) for k, v in table.items() if k not in NOT_PARAMS]
        designed = index in self.designed and registries.law(table["kind"])["has_rule"]
        return LawChoice(table["kind"], designed, tuple(sorted(params)))

    def tables_of(self, state: State, laws: Laws) -> Tables:
        """Return the scenario of a state; `laws` has the parameters of each side."""
        return self._apply(copy.deepcopy(dict(self.tables)), state, laws)

    def toml(self, state: State, laws: Laws) -> str:
        """Return the scenario of a state as a file, with the comments of the original."""
        import tomlkit

        document = tomlkit.parse(self.text)
        for key in list(document):
            # A sweep was resolved: its first values stand where they belong.
            if key not in self.tables:
                del document[key]
        if "sweep" in document:
            document["sweep"] = tomlkit.table()
        for key, value in self.point.settings.items():
            _place(document, key, value)
        text = tomlkit.dumps(self._apply(document, state, laws))
        # Tables that were added stand apart as those of the file do.
        return re.sub(r"^([^#\n].*)\n(?=\[\[)", r"\1\n\n", text, flags=re.MULTILINE)

    def text_of(self, state: State, laws: Laws) -> bytes:
        """Return the scenario without comments, to be run."""
        from forebay.scenario.builder import toml

        return toml(self.tables_of(state, laws)).encode()

    def alone(self, state: State, laws: Laws) -> dict[str, bytes]:
        """Return a scenario for each side, with its law alone."""
        return {
            side: self.text_of(replace(state, a=choice, b=None), {SIDES[0]: laws[side]})
            for side, choice in state.choices
        }

    def plan(self, state: State, laws: Laws) -> Plan:
        """Return the plan of a state. Raises `ScenarioError`."""
        text = self.text_of(state, laws)
        try:
            return _native.plan(text, self.name, read=experiment.FilesBeside(self.name))
        except ScenarioError as error:
            # The line is one of a text that nobody sees.
            line = str(error).removeprefix(f"{self.name}:")
            raise ScenarioError(line.lstrip("0123456789: ")) from None

    def _apply(self, doc: Tables, state: State, laws: Laws) -> Tables:
        start = self.start
        write = {key: control.write(getattr(state, key)) for key, control in BY_KEY.items()}
        new = {key for key in BY_KEY if getattr(state, key) != getattr(start, key)}
        link, main = doc["bottleneck"], doc["traffic"][self.main]
        for key in new & {"rate", "buffer"}:
            link[key] = write[key]
        if "rate" in new and 2 * state.rate > self.point.traffic[self.main].access_bps:
            main["access"] = quantities.rate(max(ACCESS_BPS, 4 * state.rate))
        if new & {"rtt", "spread"}:
            main["rtt"] = _round_trips(state)
            least_s = state.rtt * (1 - state.spread)
            if 2 * self.point.links[0].delay_s[1] > least_s:
                link["delay"] = quantities.time(least_s / 4)
        for key in new & {"packet", "tcp"}:
            main[key] = write[key]
        if "flows" in new:
            main["flows"] = state.flows
        if "ecn" in new:
            main["ecn"] = state.ecn
            if state.ecn:
                link["ecn"] = True
        if "mice" in new:
            self._mice(doc, state, write)
        if "duration" in new:
            doc["duration"] = write["duration"]
            doc["measure"] = [quantities.time(state.duration / 3), write["duration"]]
        if "seed" in new:
            doc["seeds"] = state.seed
        if state.event in CHANGES:
            key, factor = CHANGES[state.event]
            change: dict[str, int | str]
            if key == "flows":
                change = {f"traffic.{self.main}.flows": max(1, round(factor * state.flows))}
            else:
                change = {"bottleneck.rate": quantities.rate(factor * state.rate)}
            at = {"time": quantities.time(0.5 * state.duration), "set": change}
            doc["at"] = [*doc.get("at", []), at]
        if state.choices != start.choices or laws or len(doc["law"]) > len(SIDES):
            doc["law"] = self._laws(doc, state, laws)
        return doc

    def _mice(self, doc: Tables, state: State, write: Mapping[str, str]) -> None:
        mice = [i for i, traffic in enumerate(doc["traffic"]) if traffic["kind"] == MICE]
        if mice and state.mice:
            doc["traffic"][mice[0]]["flows"] = state.mice
        elif mice:
            del doc["traffic"][mice[0]]
        else:
            main = doc["traffic"][self.main]
            doc["traffic"].append(
                {"kind": MICE, "flows": state.mice, "rtt": write["rtt"], "packet": write["packet"]}
                | {key: main[key] for key in ("access",) if key in main}
            )

    def _laws(self, doc: Tables, state: State, laws: Laws) -> list[dict[str, Any]]:
        tables, labels = [], []
        for index, (side, choice) in enumerate(state.choices):
            before = doc["law"][index] if index < len(doc["law"]) else {}
            same = before.get("kind") == choice.kind
            own = {k: before[k] for k in ("label", "queue") if same and k in before}
            label = own.get("label") or choice.kind
            if label in labels:
                own["label"] = f"{label} {side.upper()}"
            labels.append(label)
            params = laws.get(side, list(choice.params))
            tables.append(Law(choice.kind, ()).table() | own | {k: typed(v) for k, v in params})
        return tables

    def python(self, state: State, laws: Laws) -> str:
        """Return a snippet that runs the scenario from Python."""
        text = self.toml(state, laws).strip("\n").replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        return (
            f'import forebay\n\nSCENARIO = """\n{text}\n"""\n\nresult = forebay.run(SCENARIO)\n'
            'print(result)\nresult.plot().savefig("queue.png")\n'
        )


def _round_trips(state: State) -> str | list[str]:
    if not state.spread:
        return quantities.time(state.rtt)
    steps = [state.spread * (2 * i / (ROUND_TRIPS - 1) - 1) for i in range(ROUND_TRIPS)]
    return [quantities.time(round(state.rtt * (1 + step), 9)) for step in steps]


def _place(tables: Tables, key: str, value: Any) -> None:
    """Set the first value of a sweep in the tables, and remove it from the sweep.

    A key whose table is not in the file stays in the sweep as its only value.
    """
    section, _, rest = key.partition(".")
    if section == "bottleneck" and rest in BY_KEY:
        tables["bottleneck"][rest] = value
    elif not rest:
        tables[key] = value
    else:
        name, _, last = rest.rpartition(".")
        entries = tables.get(section)
        if not isinstance(entries, list):
            tables["sweep"][key] = [value]
            return
        matching = [
            entry
            for i, entry in enumerate(entries)
            if name in (str(i), entry.get("label"), entry.get("kind"))
        ]
        if not matching or "." in last:
            tables["sweep"][key] = [value]
            return
        for entry in matching:
            entry[last] = value
    if key in tables.get("sweep", {}):
        del tables["sweep"][key]
