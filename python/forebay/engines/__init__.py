"""The engines: what takes a scenario and gives runs. `forebay.runs.engine` says what one is.

`packets` is in `forebay.runs.engine`, since it is the default; each other one is a file here, with
its engine as `ENGINE`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from forebay._native import ScenarioError
from forebay.runs.engine import PACKETS

if TYPE_CHECKING:
    from forebay.runs.engine import Engine

#: The names of all engines; the first is the default.
NAMES = (PACKETS.name, "fluid", "kernel", "link")


def named(name: str | Engine, key: str = "--engine") -> Engine:
    """The engine with this name; an engine is itself. Raises `ScenarioError`; `key` is what it is
    about."""
    if not isinstance(name, str):
        return name
    if name == PACKETS.name:
        return PACKETS
    if name not in NAMES:
        raise ScenarioError(f'{key}: found "{name}", allowed: {", ".join(NAMES)}')
    # Loaded when it is asked for: what an engine needs takes a while.
    engine: Engine = import_module(f"forebay.engines.{name}").ENGINE
    return engine
