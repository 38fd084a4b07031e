"""What the page can set of a link and its traffic: each control is declared once, in
`controls.toml`.

A control reads the text that a reader types, as a scenario writes it, and writes it again. The
page draws its sliders from the same declarations; those of a law come from the law's own.

What the page is set to, as one typed value with one parser.

A state travels as texts by key, as `--set` takes them: in the page's address, and over its
socket. What an address leaves out is as in the scenario that the studio was started with.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import forebay._native as _native
from forebay._base import quantities, registries
from forebay._native import LawModel, ScenarioError
from forebay.control.loaded_link import PLAIN, LoadedLink
from forebay.scenario.builder import Group

if TYPE_CHECKING:
    from forebay._native import ParamInfo

#: Of each base unit, the unit that a slider counts in, and what one of that is in the base unit.
SLIDERS = {"bit/s": ("Mbit/s", 1e6), "s": ("ms", 1e-3), "p": ("p", 1.0), "B": ("B", 1.0)}
#: A slider of a law's parameter covers its default divided and multiplied by this.
SPAN = 300.0


class ControlKind(NamedTuple):
    """What a control sets: its base unit, whether it is a whole number, and how it is written."""

    unit: str = ""
    whole: bool = False
    write: Callable[[Any], str] = quantities.plain


KINDS = {
    "rate": ControlKind("bit/s", True, quantities.rate),
    "time": ControlKind("s", False, quantities.time),
    "queue": ControlKind("p", True, quantities.packets),
    "size": ControlKind("B", True, quantities.size),
    "whole": ControlKind(whole=True),
    "share": ControlKind(write=lambda share: f"{share:.6g}"),
    "choice": ControlKind(),
    "flag": ControlKind(),
}


@dataclass(frozen=True)
class Control:
    """A quantity, a number, a choice or a flag of the scenario.

    kind: one of `KINDS`; the first four are those of `forebay._native.quantity`.
    low, high: what is allowed, in base units; slider: the part of it that a slider covers.
    """

    key: str
    group: str
    label: str
    kind: str
    doc: str
    low: float = 0.0
    high: float = math.inf
    slider: tuple[float, float] | None = None
    options: Sequence[tuple[str, str]] = ()

    def read(self, text: str) -> Any:
        """The value of a text. Raises `ScenarioError` with the key, and what is allowed."""
        kind = KINDS[self.kind]
        if self.kind in ("choice", "flag"):
            names = [name for name, _ in self.options] if self.options else ["true", "false"]
            if text not in names:
                raise self._wrong(text, ", ".join(names) if self.options else "true or false")
            return text if self.options else text == "true"
        if kind.unit:
            value = _native.quantity(self.key, text, self.kind)
        else:
            try:
                value = float(text)
            except ValueError:
                raise self._wrong(text, "a number") from None
        if not self.low <= value <= self.high or (kind.whole and value != round(value)):
            of = "a whole number, " if self.kind == "whole" else ""
            allowed = f"{of}{self.write(self.low)} to {self.write(self.high)}"
            raise self._wrong(text, allowed)
        return round(value) if kind.whole else value

    def write(self, value: Any) -> str:
        """The text of a value."""
        kind = KINDS[self.kind]
        return kind.write(round(value) if kind.whole else value)

    def _wrong(self, text: str, allowed: str) -> ScenarioError:
        return ScenarioError(f'{self.key}: found "{text}", allowed: {allowed}')

    def as_json(self) -> dict[str, Any]:
        """What the page needs to draw it."""
        kind = KINDS[self.kind]
        unit, scale = SLIDERS.get(kind.unit, ("", 1.0))
        low, high = self.slider or (self.low, self.high)
        return _card(self.key, self.label, self.doc, unit) | {
            "group": self.group,
            "type": self.kind if self.kind in ("choice", "flag") else "range",
            "low": quantities.finite(low / scale),
            "high": quantities.finite(high / scale),
            # Quantities are compared by their ratios; a share is not, nor what may be none.
            "log": low > 0,
            "whole": kind.whole and self.kind != "rate",
            "options": list(self.options),
        }


def _card(key: str, label: str, doc: str, unit: str = "") -> dict[str, Any]:
    """What the page needs of everything that it can set."""
    return {
        "key": key,
        "label": label,
        "doc": doc,
        "unit": unit,
        "units": next((family for family in FAMILIES if (unit, 1.0) in family), []),
        "options": [],
        "whole": False,
    }


#: Units that a text may have, and how many of the slider's they are.
FAMILIES = [
    [("bit/s", 1e-6), ("kbit/s", 1e-3), ("Mbit/s", 1.0), ("Gbit/s", 1e3), ("Tbit/s", 1e6)],
    [("ns", 1e-6), ("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("min", 6e4), ("h", 3.6e6)],
    [("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("KiB", 1024.0), ("MiB", 1024.0**2)],
    [("p", 1.0)],
]
#: What happens half-way through a run.
EVENTS = [
    ("none", "nothing"),
    ("more-flows", "twice the flows"),
    ("fewer-flows", "half the flows"),
    ("slower", "half the rate"),
    ("faster", "twice the rate"),
]


def _control(key: str, kind: str, declared: dict[str, Any]) -> Control:
    def ends(of: Sequence[str | float]) -> tuple[float, float]:
        low, high = (_native.quantity(key, it, kind) if isinstance(it, str) else it for it in of)
        return low, high

    low, high = ends(declared.pop("allowed", (0.0, math.inf)))
    slider = ends(declared.pop("slider")) if "slider" in declared else None
    options = OPTIONS.get(key, ())
    return Control(key, **declared, low=low, high=high, slider=slider, options=options)


#: The choices of those that are a choice.
OPTIONS = {"tcp": [(name, name) for name in registries.senders()], "event": EVENTS}
DECLARED = tomllib.loads(Path(__file__).with_name("controls.toml").read_text("utf-8"))
CONTROLS = [_control(key, table["kind"], table) for key, table in DECLARED.items()]
BY_KEY = {control.key: control for control in CONTROLS}


def of_param(param: ParamInfo) -> dict[str, Any]:
    """A law's parameter for the page, from the law's own declaration."""
    unit, scale = SLIDERS.get(param["unit"], (param["unit"], 1.0))
    default = param["default"]
    found = _card(param["name"], param["name"], param["doc"], unit) | {
        "default": param["default_text"],
        "log": True,
    }
    if isinstance(default, bool):
        return found | {"type": "flag"}
    number = _number(param)
    if param["min"] is None or number is None:
        return found | {"type": "text"}
    least, most = param["min"], param["max"] or math.inf
    if number > 0:
        low, high = max(number / SPAN, least), min(number * SPAN, most)
    elif most <= 1:
        low, high = least, most
    else:
        return found | {"type": "text"}
    if unit == "p":
        # Of a queue or a delay: the page ends it at the buffer.
        low, high = 1.0, 5000.0
    return found | {
        "type": "range",
        "low": low / scale,
        "high": high / scale,
        "log": low > 0,
        "queue": unit == "p",
    }


def of_goal(name: str, default: str, doc: str) -> dict[str, Any]:
    """What a design rule can be asked for, for the page."""
    found = _card(f"goal.{name}", name, doc) | {"default": default, "type": "text"}
    try:
        number = float(default)
    except ValueError:
        return found
    return found | {"type": "range", "low": number / 20, "high": min(4 * number, 89.0), "log": True}


def _number(param: ParamInfo) -> float | None:
    """The default in base units; of a set-point that is a delay, any number will do."""
    default = param["default"]
    if isinstance(default, int | float):
        return float(default)
    return 1.0 if isinstance(default, str) and param["unit"] == "p" else None


Texts = Mapping[str, str]
Pairs = tuple[tuple[str, str], ...]

#: The two laws.
SIDES = ("a", "b")
#: Where gains come from.
BY = ("design", "hand")
#: Most packets that one run may send: two seconds or so of a processor.
MOST_PACKETS = 2e7
#: Characters of a value.
LONGEST = 200


@dataclass(frozen=True)
class LawChoice:
    """One of the two laws.

    designed: gains follow the law's design rule, which is asked for `goals`.
    params: those that were given, as texts; with a design, those that it leaves alone.
    """

    kind: str
    designed: bool
    params: Pairs = ()
    goals: Pairs = ()

    @property
    def target(self) -> str | None:
        """The set-point that was given, of a law that has one."""
        return dict(self.params).get(registries.laws()[self.kind]["set_point"] or "")


@dataclass(frozen=True)
class State:
    """A link, its traffic, how it runs, and one law or two."""

    rate: int
    rtt: float
    buffer: int
    packet: int
    flows: int
    spread: float
    tcp: str
    ecn: bool
    mice: int
    event: str
    duration: float
    seed: int
    a: LawChoice
    b: LawChoice | None

    @property
    def growth(self) -> str | None:
        """The flows' sender as theory names it; None of one that it does not have."""
        return registries.window_law(self.tcp, self.ecn)

    @property
    def link(self) -> LoadedLink:
        """As theory sees it, but for the set-point; with Reno where it has no such sender."""
        write = {key: BY_KEY[key].write(getattr(self, key)) for key in ("rate", "packet", "rtt")}
        tcp = self.growth or PLAIN
        groups = () if tcp == PLAIN else (Group(tcp, self.flows, write["rtt"]),)
        return LoadedLink(
            write["rate"],
            write["packet"],
            self.flows,
            write["rtt"],
            1.0,
            self.buffer,
            groups=groups,
        )

    @property
    def packets(self) -> float:
        """Most that a run can send."""
        return self.rate * self.duration / (8 * self.packet)

    @property
    def choices(self) -> list[tuple[str, LawChoice]]:
        """The laws that are shown, by side."""
        both = ((side, getattr(self, side)) for side in SIDES)
        return [(side, choice) for side, choice in both if choice is not None]

    def texts(self) -> dict[str, str]:
        """Every key with its value."""
        found = {it.key: it.write(getattr(self, it.key)) for it in CONTROLS}
        for side, choice in self.choices:
            found[side] = choice.kind
            found[f"{side}.by"] = BY[0] if choice.designed else BY[1]
            found |= {f"{side}.{name}": text for name, text in choice.params}
            found |= {f"{side}.goal.{name}": text for name, text in choice.goals}
        if self.b is None:
            found["b"] = ""
        return found

    def address(self, start: State) -> str:
        """What differs from where the studio started, for the page's address."""
        before = start.texts()
        now = self.texts()
        for side, choice in self.choices:
            if getattr(start, side) != choice:
                # A law is written as a whole: a parameter that is absent has its default.
                before = {k: v for k, v in before.items() if k.split(".")[0] != side}
        return urlencode({k: v for k, v in now.items() if before.get(k) != v}, safe="/,")


def parse(texts: object, start: State) -> State:
    """The state that these texts mean. Raises `ScenarioError` with the key that is wrong."""
    if not isinstance(texts, dict):
        raise ScenarioError("state: found no table, allowed: texts by key")
    for key, text in texts.items():
        if not isinstance(text, str) or len(text) > LONGEST:
            raise ScenarioError(f"{key[:LONGEST]}: allowed: a text of {LONGEST} characters at most")
        if key not in BY_KEY and key.split(".")[0] not in SIDES:
            raise ScenarioError(
                f'state: found "{key[:LONGEST]}", allowed: {", ".join(BY_KEY)}, a, b'
            )
    values = {
        it.key: it.read(texts[it.key]) if it.key in texts else getattr(start, it.key)
        for it in CONTROLS
    }
    state = State(**values, a=start.a, b=start.b)
    a, b = (_choice(side, texts, state) for side in SIDES)
    if a is None:
        raise ScenarioError('a: found "", allowed: a law of forebay laws')
    found = replace(state, a=a, b=b)
    # A file may ask for more.
    most = max(MOST_PACKETS, start.packets)
    if found.packets > most:
        longest = BY_KEY["duration"].write(round(most * 8 * found.packet / found.rate))
        raise ScenarioError(
            f'duration: found "{BY_KEY["duration"].write(found.duration)}", which is '
            f"{found.packets / 1e6:.3g} million packets at this rate, allowed: at most {longest}"
        )
    return found


def _choice(side: str, texts: Texts, state: State) -> LawChoice | None:
    """The law of one side; as at the start where nothing is said of it."""
    prefix = f"{side}."
    own = {key.removeprefix(prefix): text for key, text in texts.items() if key.startswith(prefix)}
    started: LawChoice | None = getattr(state, side)
    if side not in texts:
        if not own:
            return started
        if started is None:
            raise ScenarioError(
                f"{prefix}{next(iter(own))}: found without {side}, allowed: with it"
            )
    kind = texts.get(side, started.kind if started else "")
    if not kind:
        return None
    if kind not in registries.laws():
        raise ScenarioError(f'{side}: found "{kind}", allowed: {", ".join(registries.laws())}')
    goals = tuple((k.removeprefix("goal."), v) for k, v in own.items() if k.startswith("goal."))
    params = [(k, v) for k, v in own.items() if not k.startswith("goal.") and k != "by"]
    rule = registries.laws()[kind]["has_rule"]
    by = own.get("by", BY[0] if rule and side in texts else BY[1])
    if by not in BY:
        raise ScenarioError(f'{side}.by: found "{by}", allowed: {", ".join(BY)}')
    told = LawChoice(kind, by == BY[0] and rule, tuple(sorted(params)), tuple(sorted(goals)))
    if told == started:
        return started
    params = with_target(kind, params, state)
    for name, text in params:
        _check(side, kind, name, text, state)
    return replace(told, params=tuple(sorted(params)))


def with_target(kind: str, params: list[tuple[str, str]], state: State) -> list[tuple[str, str]]:
    """With a set-point of a quarter of the bandwidth-delay product where the law's default is a
    queue that does not suit the link."""
    name = registries.laws()[kind]["set_point"]
    if name is None or name in dict(params):
        return params
    (param,) = (it for it in registries.laws()[kind]["params"] if it["name"] == name)
    default = param["default"]
    if param["unit"] != "p" or isinstance(default, str) or default < 0.5 * state.buffer:
        return params
    quarter = state.rate * state.rtt / (32 * state.packet)
    return [(name, f"{max(2, round(min(quarter, 0.4 * state.buffer)))}p"), *params]


def _check(side: str, kind: str, name: str, text: str, state: State) -> None:
    """Each parameter alone, so that the error names the one that is wrong."""
    try:
        LawModel(kind, [(name, text)], state.rate, state.packet, 1e9)
    except ScenarioError as error:
        line = str(error)
        raise ScenarioError(
            f"{side}.{line}" if line.startswith(name) else f"{side}: {line}"
        ) from None
