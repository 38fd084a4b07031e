"""What the page can set of a link and its traffic: each control is declared once.

A control reads the text that a reader types, as a scenario writes it, and writes it again. The
page draws its sliders from the same declarations; those of a law come from the law's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import forebay._native as _native
from forebay._native import ScenarioError
from forebay.base import quantities, registries

if TYPE_CHECKING:
    from forebay._native import ParamInfo

#: Units that a slider counts in, and what one of them is in base units.
SLIDERS = {"rate": ("Mbit/s", 1e6), "time": ("ms", 1e-3), "queue": ("p", 1.0), "size": ("B", 1.0)}
#: A slider of a law's parameter covers its default divided and multiplied by this.
SPAN = 300.0
#: Units of parameters, as sliders have them.
PARAMS = {"s": ("ms", 1e-3), "p": ("p", 1.0), "B": ("B", 1.0), "bit/s": ("Mbit/s", 1e6)}


@dataclass(frozen=True)
class Control:
    """A quantity, a number, a choice or a flag of the scenario.

    kind: "rate", "time", "queue" or "size" of `forebay._native.quantity`, "whole", "share",
        "choice" or "flag".
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
        if self.kind == "choice":
            names = [name for name, _ in self.options]
            if text not in names:
                raise self._wrong(text, ", ".join(names))
            return text
        if self.kind == "flag":
            if text not in ("true", "false"):
                raise self._wrong(text, "true or false")
            return text == "true"
        if self.kind in SLIDERS:
            value = _native.quantity(self.key, text, self.kind)
        else:
            try:
                value = float(text)
            except ValueError:
                raise self._wrong(text, "a number") from None
        whole = self.kind not in ("time", "share")
        if not self.low <= value <= self.high or (whole and value != round(value)):
            of = "a whole number, " if self.kind == "whole" else ""
            allowed = f"{of}{self.write(self.low)} to {self.write(self.high)}"
            raise self._wrong(text, allowed)
        return round(value) if whole else value

    def write(self, value: Any) -> str:
        """The text of a value."""
        write: dict[str, Callable[[Any], str]] = {
            "rate": quantities.rate,
            "time": quantities.time,
            "queue": quantities.packets,
            "size": quantities.size,
            "share": lambda share: f"{share:.6g}",
        }
        whole = self.kind in ("queue", "size", "whole")
        return write.get(self.kind, quantities.plain)(round(value) if whole else value)

    def _wrong(self, text: str, allowed: str) -> ScenarioError:
        return ScenarioError(f'{self.key}: found "{text}", allowed: {allowed}')

    def as_json(self) -> dict[str, Any]:
        """What the page needs to draw it."""
        unit, scale = SLIDERS.get(self.kind, ("", 1.0))
        low, high = self.slider or (self.low, self.high)
        return {
            "key": self.key,
            "group": self.group,
            "label": self.label,
            "doc": self.doc,
            "type": self.kind if self.kind in ("choice", "flag") else "range",
            "unit": unit,
            "units": _units(unit),
            "low": low / scale if math.isfinite(low) else None,
            "high": high / scale if math.isfinite(high) else None,
            # Quantities are compared by their ratios; a share is not, nor what may be none.
            "log": low > 0,
            "whole": self.kind in ("whole", "queue", "size"),
            "options": list(self.options),
        }


#: What happens half-way through a run.
EVENTS = [
    ("none", "nothing"),
    ("more-flows", "twice the flows"),
    ("fewer-flows", "half the flows"),
    ("slower", "half the rate"),
    ("faster", "twice the rate"),
]
SENDERS = [(name, name) for name in registries.senders()]

CONTROLS = [
    Control(
        "rate",
        "Link",
        "Rate",
        "rate",
        "Rate of the bottleneck.",
        1e5,
        1e10,
        (1e6, 2e8),
    ),
    Control(
        "rtt",
        "Link",
        "Round trip",
        "time",
        "Propagation both ways, without queueing; the middle one of the flows.",
        1e-3,
        5.0,
        (5e-3, 1.0),
    ),
    Control(
        "buffer",
        "Link",
        "Buffer",
        "queue",
        "Packets that wait at most.",
        2,
        1e6,
        (10, 5000),
    ),
    Control(
        "packet",
        "Link",
        "Packet",
        "size",
        "Size of data packets, headers included.",
        100,
        9000,
        (100, 9000),
    ),
    Control(
        "flows",
        "Traffic",
        "Long flows",
        "whole",
        "Long-lived TCP flows.",
        1,
        20_000,
        (1, 500),
    ),
    Control(
        "spread",
        "Traffic",
        "Spread of RTTs",
        "share",
        "Round trips of flows lie this share below and above the middle one.",
        0,
        0.95,
    ),
    Control(
        "tcp",
        "Traffic",
        "Sender",
        "choice",
        "Congestion control of the flows.",
        options=SENDERS,
    ),
    Control(
        "ecn",
        "Traffic",
        "ECN",
        "flag",
        "Flows can be marked instead of dropped (RFC 3168).",
    ),
    Control(
        "mice",
        "Traffic",
        "Short flows",
        "whole",
        "Sources that send for a second and are silent for a second, on average.",
        0,
        5000,
        (0, 200),
    ),
    Control(
        "event",
        "Run",
        "Half-way",
        "choice",
        "What changes in the middle of the run.",
        options=EVENTS,
    ),
    Control(
        "duration",
        "Run",
        "Duration",
        "time",
        "Simulated time; by default the last two thirds are measured.",
        1.0,
        3600.0,
        (10.0, 300.0),
    ),
    Control(
        "seed",
        "Run",
        "Seed",
        "whole",
        "Another seed is another draw of all that is random.",
        1,
        1000,
        (1, 20),
    ),
]
BY_KEY = {control.key: control for control in CONTROLS}


def of_param(param: ParamInfo) -> dict[str, Any]:
    """A law's parameter for the page, from the law's own declaration."""
    unit, scale = PARAMS.get(param["unit"], (param["unit"], 1.0))
    default = param["default"]
    found: dict[str, Any] = {
        "key": param["name"],
        "label": param["name"],
        "doc": param["doc"],
        "unit": unit,
        "units": _units(unit),
        "default": param["default_text"],
        "options": [],
        "whole": False,
        "log": True,
    }
    if isinstance(default, bool):
        return found | {"type": "flag"}
    if param["min"] is None or not isinstance(default, int | float | str):
        return found | {"type": "text"}
    number = _number(param)
    if number is None:
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
    found: dict[str, Any] = {
        "key": f"goal.{name}",
        "label": name,
        "doc": doc,
        "unit": "",
        "units": [],
        "default": default,
        "options": [],
        "whole": False,
        "type": "text",
    }
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
    return 1.0 if param["unit"] == "p" else None


def _units(unit: str) -> list[tuple[str, float]]:
    """Units that a text may have, and how many of the slider's they are."""
    families = [
        [("bit/s", 1e-6), ("kbit/s", 1e-3), ("Mbit/s", 1.0), ("Gbit/s", 1e3), ("Tbit/s", 1e6)],
        [("ns", 1e-6), ("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("min", 6e4), ("h", 3.6e6)],
        [("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("KiB", 1024.0), ("MiB", 1024.0**2)],
        [("p", 1.0)],
    ]
    return next((family for family in families if (unit, 1.0) in family), [])
