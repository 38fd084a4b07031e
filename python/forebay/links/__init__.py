"""A bottleneck for real traffic: what `forebay link` and `forebay.link` stand on.

`settings(...)` says what the link is, `run(settings, command)` runs a command behind it and
gives an `Outcome`, and `link(...)` is a context with a client and a server in it. The link
itself is the crate `forebay-link`.
"""

from typing import TYPE_CHECKING

from forebay.base.lazy_names import getter
from forebay.links.settings import Settings, settings

if TYPE_CHECKING:
    from forebay.links.net import Host, Net, link
    from forebay.links.outcome import Outcome
    from forebay.links.process import LinkError, run

__all__ = ["Host", "LinkError", "Net", "Outcome", "Settings", "link", "run", "settings"]

# Loaded when first asked for: numpy starts threads, and a process with several of them cannot
# become the emulator.
_LATER = {
    "LinkError": "process",
    "Net": "net",
    "Outcome": "outcome",
    "Host": "net",
    "link": "net",
    "run": "process",
}

__getattr__ = getter(__name__, _LATER)
