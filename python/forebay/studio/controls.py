"""What the page can set of a link and its traffic: each control is declared once, in
`controls.toml`.

A control reads the text that a reader types, as a scenario writes it, and writes it again. The
page draws its sliders from the same declarations; those of a law come from the law's own.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import forebay._native as _native
from forebay._base import quantities, registries
from forebay._native import ScenarioError

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
