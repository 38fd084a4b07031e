"""A bottleneck for real traffic: what `forebay link` and `forebay.link` stand on.

`settings(...)` says what the link is, `run(settings, command)` runs a command behind it and
gives an `Outcome`, and `link(...)` is a context with a client and a server in it. The link
itself is the crate `forebay-link`.
"""

from typing import TYPE_CHECKING

from forebay._base import getter
from forebay.linux.link_settings import Settings, settings

if TYPE_CHECKING:
    from forebay.linux.link_outcome import Outcome
    from forebay.linux.link_process import LinkError, run
    from forebay.linux.net import Host, Net, link

__all__ = ["Host", "LinkError", "Net", "Outcome", "Settings", "link", "run", "settings"]

# Loaded when first asked for: numpy starts threads, and a process with several of them cannot
# become the emulator.
_LATER = {
    "LinkError": "link_process",
    "Net": "net",
    "Outcome": "link_outcome",
    "Host": "net",
    "link": "net",
    "run": "link_process",
}

__getattr__ = getter(__name__, _LATER)
