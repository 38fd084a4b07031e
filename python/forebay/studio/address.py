"""The port and the address of the studio, before anything that takes long to load."""

from __future__ import annotations

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
        return f"http://{HOST}:{self.listening.getsockname()[1]}/{self.token}/"


def open_port(port: int) -> ListeningAddress:
    """A door at a port; at any free one for 0. Raises `ScenarioError` for one that is taken."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # The same port again at once after an end.
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(16)
    except OSError as error:
        found.close()
        reason = (error.strerror or str(error)).lower()
        raise ScenarioError(f"--port: found {port}, {reason}, allowed: a free one") from None
    return ListeningAddress(found)
