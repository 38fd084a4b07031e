"""The studio: a page on loopback that shows a control loop while one moves its parts.

`state` has the settings of the page, and `scenario` the experiment that they describe. `packets`
and `theory` calculate the curves, `session` answers one page and watches a real link, and `server`
serves only that page. The page's address is here: it is printed before anything that takes long is
loaded.
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass, field

from forebay._native import ScenarioError

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
        raise ScenarioError(f"--port: found {port}, {reason}, allowed: a free one") from None
