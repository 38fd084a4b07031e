"""The studio: a page in the browser that shows a control loop while its parts are moved.

The page is served on loopback only, at an address with a secret. It has sliders for the link, its
flows and one or two laws; after each move it shows packets, fluid model and theory again:

    page ──settings──▶ State ──▶ scenario ──▶ packets, fluid
                         └─────▶ gains ─────▶ theory

- `state.State` holds the settings of the page, and `state.CONTROLS` declares its controls;
  `state.gains_for` gives a law its parameters, by hand or by its design rule.
- `scenario.BaseScenario` is the experiment that the studio was started with; a state changes it.
- `packets` runs the packet engine, and `theory` calculates margins, maps and the fluid model in a
  process of its own.
- `session.Session` answers one page: it drops an answer that a newer state has made obsolete. It
  also watches and steers a link with real traffic.
- `server` serves the page, its files and its WebSocket.

The listening port is opened in this module, so that its address can be printed before anything that
takes long to load is imported.

>>> from forebay.studio import open_port
>>> open_port(0).address  # doctest: +SKIP
'http://127.0.0.1:38211/Zr3…/'

Start reading at `state.py`, and go on with `session.py`.
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass, field

from forebay._base.errors import ParameterError

HOST = "127.0.0.1"


@dataclass(frozen=True)
class ListeningAddress:
    """A port of loopback that listens, and the secret that opens it.

    A browser that comes before the server waits.
    """

    listening: socket.socket
    token: str = field(default_factory=lambda: secrets.token_urlsafe(18))

    @property
    def address(self) -> str:
        """The URL of the page."""
        return f"http://{HOST}:{self.listening.getsockname()[1]}/{self.token}/"


def open_port(port: int) -> ListeningAddress:
    """Listen at a port; at any free one for 0. Raises `ScenarioError` for one that is taken."""
    try:
        return ListeningAddress(socket.create_server((HOST, port), backlog=16))
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise ParameterError("port", port, "a free port", reason=reason) from None
