"""The registry of engines: what takes a scenario and gives runs, by name.

`forebay.experiment.engine` says what an engine is, and has `packets`, the default. Each other
engine is a module with its `ENGINE`, in the room of what it runs on.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from forebay._native import ScenarioError
from forebay.experiment.engine import PACKETS

if TYPE_CHECKING:
    from forebay.experiment.engine import Engine

#: The module of each engine but the default.
MODULES = {
    "fluid": "forebay.fluid.engine",
    "kernel": "forebay.linux.kernel_engine",
    "link": "forebay.linux.link_engine",
}
#: The names of all engines; the first is the default.
NAMES = (PACKETS.name, *MODULES)


def named(name: str | Engine, key: str = "--engine") -> Engine:
    """Return the engine with this name; an engine is returned as it is.

    Raises `ScenarioError` for an unknown name; `key` is what its message is about.
    """
    if not isinstance(name, str):
        return name
    if name == PACKETS.name:
        return PACKETS
    if name not in NAMES:
        raise ScenarioError(f'{key}: found "{name}", allowed: {", ".join(NAMES)}')
    # Loaded when it is asked for: what an engine needs takes a while.
    engine: Engine = import_module(MODULES[name]).ENGINE
    return engine
