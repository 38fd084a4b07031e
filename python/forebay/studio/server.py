"""The server of the studio on loopback, for the holder of its address.

Other pages in the same browser and other users of the machine can reach a port on loopback. The
address therefore contains a secret. A request that names another host, or comes from another
origin, is refused before anything else is read.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import FileResponse, PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketClose
from uvicorn.protocols.http.h11_impl import H11Protocol

from forebay.report.templates import WEB
from forebay.studio import HOST

if TYPE_CHECKING:
    import socket

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from forebay.studio.scenario import BaseScenario
    from forebay.studio.session import Session

#: Largest size of a message from a page in bytes, and largest number of pages.
LONGEST_MESSAGE, MOST_PAGES = 1 << 16, 16
#: Largest number of connections without a whole request, and their time limit in seconds.
MOST_WAITING, REQUEST_S = 64, 5.0
#: Time in seconds for pages to close when the studio ends.
PATIENCE_S = 1

#: The page may load files of this server only, and no inline scripts.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class Gate:
    """A filter of requests that name this host, come from this page, and have the token."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self._app = app
        self._hosts = {f"{host}:{port}" for host in (HOST, "localhost")}
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if reason := self._refusal(scope):
            refusal: ASGIApp
            if scope["type"] == "websocket":
                refusal = WebSocketClose(code=1008, reason=reason)
            else:
                refusal = PlainTextResponse(f"forebay studio: {reason}\n", 403)
            await refusal(scope, receive, send)
            return

        async def send_closed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        _, _, rest = scope["path"].lstrip("/").partition("/")
        inner = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}
        await self._app(inner, receive, send_closed)

    def _refusal(self, scope: Scope) -> str:
        """Return the reason of a refusal; empty for a request that is admitted."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return "another host"
        origins = headers.getlist("origin")
        # A browser always sends the origin of a WebSocket.
        needed = scope["type"] == "websocket"
        if (needed or origins) and origins != [f"http://{hosts[0]}"]:
            return "another origin"
        token = scope["path"].lstrip("/").partition("/")[0]
        if not secrets.compare_digest(token.encode(), self._token):
            return "the address needs its token"
        return ""


class HurriedProtocol(H11Protocol):
    """HTTP/1.1 whose connections have limits on their time and number.

    A connection without a whole request is closed after `REQUEST_S` seconds, however slowly its
    bytes arrive. Beyond `MOST_WAITING` such connections the oldest is closed; a browser sends its
    requests at once, and is rarely among them.
    """

    waiting: ClassVar[dict[HurriedProtocol, asyncio.TimerHandle]] = {}

    def connection_made(self, transport: Any) -> None:
        """Let the connection wait for its first request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the connection's place."""
        self._go_on()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what has come; a whole request ends the wait."""
        super().data_received(data)
        upgraded = self.transport.get_protocol() is not self
        answering = self.cycle is not None and not self.cycle.response_complete
        if upgraded or answering or self.transport.is_closing():
            self._go_on()

    def on_response_complete(self) -> None:
        """Let the connection wait for its next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._wait()

    def _wait(self) -> None:
        self._go_on()
        self.waiting[self] = self.loop.call_later(REQUEST_S, self.transport.abort)
        if len(self.waiting) > MOST_WAITING:
            oldest = next(iter(self.waiting))
            oldest._go_on()
            oldest.transport.abort()

    def _go_on(self) -> None:
        if timer := self.waiting.pop(self, None):
            timer.cancel()


def application(base: BaseScenario, port: int, token: str, link: Path | None) -> ASGIApp:
    """Return the application: the page, its files, and its WebSocket.

    Parameters
    ----------
    base : BaseScenario
        The scenario that the studio was started with.
    port : int
        Port on loopback.
    token : str
        Secret of the address.
    link : Path or None
        Control socket of a real link.
    """
    pages: set[WebSocket] = set()

    async def page(_: Request) -> Response:
        return FileResponse(WEB / "studio.html")

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        if len(pages) >= MOST_PAGES:
            await socket.close(1013, f"{MOST_PAGES} pages are open; close one")
            return
        # The page counts at once, since more pages may open while the first session loads.
        pages.add(socket)
        try:
            session = (await asyncio.to_thread(_session))(socket, base, link)
            await session.serve()
        finally:
            pages.discard(socket)

    routes = [
        Route("/", page),
        WebSocketRoute("/socket", talk),
        Mount("/", StaticFiles(directory=WEB)),
    ]
    return Gate(Starlette(routes=routes), port, token)


def serve(base: BaseScenario, listening: socket.socket, token: str, link: Path | None) -> None:
    """Serve on a listening port until Ctrl-C.

    Parameters
    ----------
    base : BaseScenario
        The scenario that the studio was started with.
    listening : socket
        The listening port.
    token : str
        Secret of the address.
    link : Path or None
        Control socket of a real link.
    """
    config = uvicorn.Config(
        application(base, listening.getsockname()[1], token, link),
        log_level="critical",
        access_log=False,
        lifespan="off",
        http=HurriedProtocol,
        ws="websockets-sansio",
        ws_max_size=LONGEST_MESSAGE,
        # Loopback is faster than any compression.
        ws_per_message_deflate=False,
        server_header=False,
        timeout_graceful_shutdown=PATIENCE_S,
    )
    # The modules of the calculations load while the page does.
    Thread(target=_session, daemon=True).start()
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


def _session() -> type[Session]:
    from forebay.studio.session import Session

    return Session
