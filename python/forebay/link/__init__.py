"""A bottleneck for real traffic: what `forebay link` and `forebay.link` stand on.

`settings(...)` says what the link is, `run(settings, command)` runs a command behind it and
gives an `Outcome`, and `link(...)` is a context with a client and a server in it. The link
itself is the crate `forebay-link`.
"""

from typing import TYPE_CHECKING

from forebay.link.settings import Settings, settings

if TYPE_CHECKING:
    from forebay.link.net import Net, Place, link
    from forebay.link.outcome import Outcome
    from forebay.link.process import LinkError, run

__all__ = ["LinkError", "Net", "Outcome", "Place", "Settings", "link", "run", "settings"]

# Loaded when first asked for: numpy starts threads, and a process with several of them cannot
# become the emulator.
_LATER = {
    "LinkError": "process",
    "Net": "net",
    "Outcome": "outcome",
    "Place": "net",
    "link": "net",
    "run": "process",
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f"forebay.link.{_LATER[name]}"), name)
    raise AttributeError(f"module 'forebay.link' has no attribute {name!r}")
