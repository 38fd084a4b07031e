"""A bottleneck for real traffic: what `forebay link` and `forebay.link` stand on.

`settings(...)` says what the link is, `run(settings, command)` runs a command behind it and
gives an `Outcome`, and `link(...)` is a context with a client and a server in it. The link
itself is the crate `forebay-link`.
"""

from forebay.emulator.net import Net, Place, link
from forebay.emulator.outcome import Outcome
from forebay.emulator.process import LinkError, run
from forebay.emulator.settings import Settings, Way, settings

__all__ = ["LinkError", "Net", "Outcome", "Place", "Settings", "Way", "link", "run", "settings"]
