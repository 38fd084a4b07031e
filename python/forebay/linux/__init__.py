"""A bottleneck for real traffic, guests with the real kernel, and laws in this machine's kernel.

`settings(...)` describes a link, `run(settings, command)` runs a command behind it and returns an
`Outcome`, and `link(...)` is a context with a client and a server in it. The link itself is the
crate `forebay-link`.
"""

from typing import TYPE_CHECKING

from forebay._base import getter
from forebay.linux.link_settings import Settings, settings

if TYPE_CHECKING:
    from forebay.linux.link_outcome import Outcome
    from forebay.linux.link_process import Host, LinkError, Net, link, run

__all__ = ["Host", "LinkError", "Net", "Outcome", "Settings", "link", "run", "settings"]

# Loaded when first asked for: numpy starts threads, and a process with several of them cannot
# become the emulator.
_LATER = {
    "LinkError": "link_process",
    "Net": "link_process",
    "Outcome": "link_outcome",
    "Host": "link_process",
    "link": "link_process",
    "run": "link_process",
}

__getattr__ = getter(__name__, _LATER)
