"""The settings of the page, as one typed value with one parser.

Each control of a link and its traffic is declared once, in `controls.toml`. It reads text in the
notation of a scenario, and writes it again. The page draws its sliders from the same declarations;
those of a law come from the law's own.

A state is sent as texts by key, like arguments of `--set`, in the page's address and over its
WebSocket. A key that an address omits has the value of the scenario that the studio was started
with. `gains_for` returns the parameters with which a law runs: those of the page, or those of a
design rule.
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
from forebay._base.errors import ParameterError
from forebay._base.words import check_choice
from forebay._native import LawModel, ScenarioError
from forebay.control.link import PLAIN, Link
from forebay.scenario.builder import Group

if TYPE_CHECKING:
    from forebay._native import ParamInfo

Texts = Mapping[str, str]
Pairs = tuple[tuple[str, str], ...]
Params = list[tuple[str, str]]

#: Unit of a slider for each base unit, and its size in the base unit.
SLIDERS = {"bit/s": ("Mbit/s", 1e6), "s": ("ms", 1e-3), "p": ("p", 1.0), "B": ("B", 1.0)}
#: A slider of a law's parameter covers its default divided and multiplied by this.
SPAN = 300.0
#: Units that a text may have, and their sizes in the slider's unit.
FAMILIES = [
    [("bit/s", 1e-6), ("kbit/s", 1e-3), ("Mbit/s", 1.0), ("Gbit/s", 1e3), ("Tbit/s", 1e6)],
    [("ns", 1e-6), ("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("min", 6e4), ("h", 3.6e6)],
    [("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("KiB", 1024.0), ("MiB", 1024.0**2)],
    [("p", 1.0)],
]
#: The two laws.
SIDES = ("a", "b")
#: The origins of gains.
BY = ("design", "hand")
#: Largest number of packets of a run: about two seconds of a core.
MOST_PACKETS = 2e7
#: Longest value, in characters.
LONGEST = 200


# --- controls -----------------------------------------------------------------------------------


class ControlKind(NamedTuple):
    """A kind of control: its base unit, True if it is a whole number, and how it is written."""

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

    Attributes
    ----------
    key, group, label, doc : str
        Key, group on the page, label and description.
    kind : str
        One of `KINDS`; the first four are those of `forebay._native.quantity`.
    low, high : float
        Range in base units.
    slider : (float, float), optional
        The part of the range that a slider covers.
    options : sequence of (name, label)
        The choices of a "choice".
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
        """Return the value of a text. Raises `ParameterError` if it is wrong."""
        kind = KINDS[self.kind]
        if self.kind == "choice":
            names = [name for name, _ in self.options]
            if text not in names:
                raise self._wrong(text, ", ".join(names))
            return text
        if self.kind == "flag":
            if text not in ("true", "false"):
                raise self._wrong(text, "true or false")
            return text == "true"
        if kind.unit:
            value = _native.quantity(self.key, text, self.kind)
        else:
            try:
                value = float(text)
            except ValueError:
                raise self._wrong(text, "a number") from None
        if not self.low <= value <= self.high or (kind.whole and value != round(value)):
            prefix = "a whole number, " if self.kind == "whole" else ""
            raise self._wrong(text, f"{prefix}{self.write(self.low)} to {self.write(self.high)}")
        return round(value) if kind.whole else value

    def write(self, value: Any) -> str:
        """Return the text of a value."""
        kind = KINDS[self.kind]
        return kind.write(round(value) if kind.whole else value)

    def _wrong(self, text: str, allowed: str) -> ParameterError:
        return ParameterError(self.key, text, allowed)

    def as_json(self) -> dict[str, Any]:
        """Return the data with which the page draws the control."""
        kind = KINDS[self.kind]
        unit, scale = SLIDERS.get(kind.unit, ("", 1.0))
        low, high = self.slider or (self.low, self.high)
        return _card(self.key, self.label, self.doc, unit) | {
            "group": self.group,
            "type": self.kind if self.kind in ("choice", "flag") else "range",
            "low": quantities.finite(low / scale),
            "high": quantities.finite(high / scale),
            # Sliders of quantities are logarithmic, unless their range includes zero.
            "log": low > 0,
            "whole": kind.whole and self.kind != "rate",
            "options": list(self.options),
        }


def _controls() -> dict[str, Control]:
    """Return the declared controls by their keys."""
    options = {
        "tcp": [(name, name) for name in registries.senders()],
        # Changes after half of a run.
        "event": [
            ("none", "none"),
            ("more-flows", "twice the flows"),
            ("fewer-flows", "half the flows"),
            ("slower", "half the rate"),
            ("faster", "twice the rate"),
        ],
    }

    def control(key: str, table: dict[str, Any]) -> Control:
        def ends(name: str) -> Any:
            return name in table and tuple(
                _native.quantity(key, end, table["kind"]) if isinstance(end, str) else end
                for end in table.pop(name)
            )

        low, high = ends("allowed") or (0.0, math.inf)
        slider = ends("slider") or None
        choices = options.get(key, [])
        return Control(key, **table, low=low, high=high, slider=slider, options=choices)

    declared = tomllib.loads(Path(__file__).with_name("controls.toml").read_text("utf-8"))
    return {key: control(key, table) for key, table in declared.items()}


BY_KEY = _controls()
CONTROLS = list(BY_KEY.values())


def _card(key: str, label: str, doc: str, unit: str = "") -> dict[str, Any]:
    """Return the data that the page needs for any setting."""
    units = next((family for family in FAMILIES if (unit, 1.0) in family), [])
    card = {"key": key, "label": label, "doc": doc, "unit": unit, "units": units}
    return card | {"options": [], "whole": False}


def of_param(param: ParamInfo) -> dict[str, Any]:
    """Return a law's parameter for the page, from the law's declaration."""
    unit, scale = SLIDERS.get(param["unit"], (param["unit"], 1.0))
    default = param["default"]
    card = _card(param["name"], param["name"], param["doc"], unit)
    card |= {"default": param["default_text"], "log": True}
    if isinstance(default, bool):
        return card | {"type": "flag"}
    number = float(default) if isinstance(default, int | float) else None
    if isinstance(default, str) and param["unit"] == "p":
        # The slider of a set-point that is a delay does not depend on its default.
        number = 1.0
    if param["min"] is None or number is None:
        return card | {"type": "text"}
    minimum, maximum = param["min"], param["max"] or math.inf
    if number > 0:
        low, high = max(number / SPAN, minimum), min(number * SPAN, maximum)
    elif maximum <= 1:
        low, high = minimum, maximum
    else:
        return card | {"type": "text"}
    if unit == "p":
        # The page ends the slider of a queue or a delay at the buffer.
        low, high = 1.0, 5000.0
    ends = {"low": low / scale, "high": high / scale, "log": low > 0, "queue": unit == "p"}
    return card | {"type": "range"} | ends


def of_goal(name: str, default: str, doc: str) -> dict[str, Any]:
    """Return a goal of a design rule for the page.

    Parameters
    ----------
    name, default, doc : str
        Name, default and description of the goal.
    """
    card = _card(f"goal.{name}", name, doc) | {"default": default, "type": "text"}
    try:
        number = float(default)
    except ValueError:
        return card
    return card | {"type": "range", "low": number / 20, "high": min(4 * number, 89.0), "log": True}


# --- the state ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LawChoice:
    """One of the two laws.

    Attributes
    ----------
    kind : str
        Name of the law.
    designed : bool
        True if its gains follow its design rule, with these `goals`.
    params : tuple of (name, text)
        Explicit parameters; with a design, those that the design does not change.
    goals : tuple of (name, text)
        Goals of the design rule.
    """

    kind: str
    designed: bool
    params: Pairs = ()
    goals: Pairs = ()

    @property
    def target(self) -> str | None:
        """The explicit set-point; None without one."""
        return dict(self.params).get(registries.laws()[self.kind]["set_point"] or "")


@dataclass(frozen=True)
class State:
    """A link, its traffic, the run, and one or two laws."""

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
        """Name of the window model of the flows in linear theory; None if there is none."""
        return registries.window_law(self.tcp, self.ecn)

    @property
    def link(self) -> Link:
        """The link for theory; with Reno flows where theory has no model of the sender."""
        keys = ("rate", "packet", "rtt")
        rate, packet, rtt = (BY_KEY[key].write(getattr(self, key)) for key in keys)
        tcp = self.growth or PLAIN
        groups = () if tcp == PLAIN else (Group(tcp, self.flows, rtt),)
        return Link.of_groups(
            rate, rtt, flows=self.flows, packet=packet, buffer_pkts=self.buffer, groups=groups
        )

    @property
    def packets(self) -> float:
        """The largest number of packets that a run can send."""
        return self.rate * self.duration / (8 * self.packet)

    @property
    def choices(self) -> list[tuple[str, LawChoice]]:
        """The laws, by side."""
        both = ((side, getattr(self, side)) for side in SIDES)
        return [(side, choice) for side, choice in both if choice is not None]

    def texts(self) -> dict[str, str]:
        """Return every key with its value."""
        texts = {key: control.write(getattr(self, key)) for key, control in BY_KEY.items()}
        for side, choice in self.choices:
            texts |= {side: choice.kind, f"{side}.by": BY[0] if choice.designed else BY[1]}
            texts |= {f"{side}.{name}": text for name, text in choice.params}
            texts |= {f"{side}.goal.{name}": text for name, text in choice.goals}
        return texts if self.b else texts | {"b": ""}

    def address(self, start: State) -> str:
        """Return the differences from the initial state, for the page's address."""
        before = start.texts()
        for side, choice in self.choices:
            if getattr(start, side) != choice:
                # A law is written as a whole: a parameter that is absent has its default.
                before = {k: v for k, v in before.items() if k.split(".")[0] != side}
        changes = {k: v for k, v in self.texts().items() if before.get(k) != v}
        return urlencode(changes, safe="/,")


def parse(texts: object, start: State) -> State:
    """Return the state that texts describe.

    Parameters
    ----------
    texts : object
        Texts by key, as the page sends them.
    start : State
        The initial state, which has the values of missing keys.

    Raises
    ------
    ScenarioError
        If a key or a value is wrong.
    """
    if not isinstance(texts, dict):
        raise ScenarioError("state: expected texts by key")
    for key, text in texts.items():
        if not isinstance(text, str) or len(text) > LONGEST:
            raise ScenarioError(f"{key[:LONGEST]}: expected a text of at most {LONGEST} characters")
        if key not in BY_KEY and key.split(".")[0] not in SIDES:
            keys = ", ".join(BY_KEY)
            raise ParameterError("state", key[:LONGEST], f"{keys}, a, b")
    values = {
        key: control.read(texts[key]) if key in texts else getattr(start, key)
        for key, control in BY_KEY.items()
    }
    state = State(**values, a=start.a, b=start.b)
    a, b = (_choice(side, texts, state) for side in SIDES)
    if a is None:
        raise ParameterError("a", "", "a law")
    state = replace(state, a=a, b=b)
    # The initial scenario may have more.
    limit = max(MOST_PACKETS, start.packets)
    if state.packets > limit:
        duration = BY_KEY["duration"]
        longest = duration.write(round(limit * 8 * state.packet / state.rate))
        raise ParameterError(
            "duration",
            duration.write(state.duration),
            f"at most {longest}",
            reason=f"it is {state.packets / 1e6:.3g} million packets at this rate",
        )
    return state


def _choice(side: str, texts: Texts, state: State) -> LawChoice | None:
    """Return the law of one side; that of the initial state if the texts do not mention it."""
    prefix = f"{side}."
    own = {key.removeprefix(prefix): text for key, text in texts.items() if key.startswith(prefix)}
    started: LawChoice | None = getattr(state, side)
    if side not in texts:
        if not own:
            return started
        if started is None:
            raise ScenarioError(f"{prefix}{next(iter(own))}: side {side} has no law")
    kind = texts.get(side, started.kind if started else "")
    if not kind:
        return None
    laws = registries.laws()
    check_choice(side, kind, laws)
    goals = tuple((k.removeprefix("goal."), v) for k, v in own.items() if k.startswith("goal."))
    params = [(k, v) for k, v in own.items() if not k.startswith("goal.") and k != "by"]
    rule = laws[kind]["has_rule"]
    by = own.get("by", BY[0] if rule and side in texts else BY[1])
    if by not in BY:
        raise ParameterError(f"{side}.by", by, ", ".join(BY))
    choice = LawChoice(kind, by == BY[0] and rule, tuple(sorted(params)), tuple(sorted(goals)))
    if choice == started:
        return started
    params = with_target(kind, params, state)
    for name, text in params:
        _check(side, kind, name, text, state)
    return replace(choice, params=tuple(sorted(params)))


def with_target(kind: str, params: list[tuple[str, str]], state: State) -> list[tuple[str, str]]:
    """Return parameters with a set-point, if the law's default does not suit the link.

    The set-point is a quarter of the bandwidth-delay product, for a law whose default is a larger
    queue.

    Parameters
    ----------
    kind : str
        Name of the law.
    params : list of (name, text)
        Explicit parameters.
    state : State
        The state, which has the link.
    """
    entry = registries.laws()[kind]
    name = entry["set_point"]
    if name is None or name in dict(params):
        return params
    (param,) = (param for param in entry["params"] if param["name"] == name)
    default = param["default"]
    if param["unit"] != "p" or isinstance(default, str) or default < 0.5 * state.buffer:
        return params
    quarter = state.rate * state.rtt / (32 * state.packet)
    return [(name, f"{max(2, round(min(quarter, 0.4 * state.buffer)))}p"), *params]


def _check(side: str, kind: str, name: str, text: str, state: State) -> None:
    """Raise `ScenarioError` for a wrong parameter, which is read alone to name it."""
    try:
        LawModel(kind, [(name, text)], state.rate, state.packet, 1e9)
    except ScenarioError as error:
        line = str(error)
        prefix = f"{side}." if line.startswith(name) else f"{side}: "
        raise ScenarioError(prefix + line) from None


# --- gains --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LawSettings:
    """A law with the parameters that it runs with.

    Attributes
    ----------
    params : list of (name, value)
        The parameters.
    reason : str
        Why the design rule failed, if it was asked for the gains; empty otherwise.
    notes : tuple of str
        Notes of the design.
    """

    params: Params
    reason: str = ""
    notes: tuple[str, ...] = ()


def gains_for(choice: LawChoice, state: State) -> LawSettings:
    """Return a law's parameters by its design rule, if the page asks for that, or as on the page.

    Parameters
    ----------
    choice : LawChoice
        The law of one side of the page.
    state : State
        The page's settings, which have the link.
    """
    params = list(choice.params)
    if not choice.designed:
        return LawSettings(params)
    # scipy takes a third of a second to load, which gains set by hand need not wait for.
    from forebay.experiment import automatic_gains

    try:
        target_pkts = state.link.set_point_pkts(choice.target)
        link = state.link.with_buffer_for(target_pkts, default=choice.target is None)
        settings = dict([*params, *choice.goals])
        design = automatic_gains.by_rule(choice.kind, link, target_pkts, settings)
    except ScenarioError as error:
        return LawSettings(params, plain(error))
    return LawSettings(design.params, "", tuple(design.notes))


def all_gains(state: State) -> dict[str, LawSettings]:
    """Return the parameters of the law of each side that has one."""
    return {side: gains_for(choice, state) for side, choice in state.choices}


def plain(error: ScenarioError, file: str = "") -> str:
    """Return an error without the file and the option that the page does not have.

    Parameters
    ----------
    error : ScenarioError
        The error of a command.
    file : str, optional
        Name of the scenario with which the message starts.
    """
    line = str(error).removeprefix(f"{file}:") if file else str(error)
    return line.lstrip("-0123456789: ")
