"""Short transfers over the kernel's own TCP: the two programs that `link_engine` starts.

`python -m forebay.linux.transfers serve PORT…` takes connections and reads what comes;
`… send PLAN ZERO` opens them, as the simulator's mice and web sessions do
(crates/forebay-sim/src/traffic/mice.rs and web.rs), and prints their outcome as JSON. It
imports only modules that load quickly: it has to be up before its first flow starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import random
import socket
import struct
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

#: The link's servers come up in a moment; connections wait here for their turn.
BACKLOG = 1024
#: `tcpi_bytes_acked` in Linux's struct tcp_info (RFC 4898, tcpEStatsAppHCThruOctetsAcked).
INFO_BYTES, ACKED_AT = 128, 120
#: Packets that a sender of a known size hands to the kernel at once.
CHUNK_PACKETS = 64
#: Most unsent packets of a mouse that the kernel holds. The kernel still sends them after the mouse
#: has ended; a mouse of the simulator then sends nothing.
UNSENT_PACKETS = 2
#: Python's module has no name for it; include/uapi/linux/tcp.h.
TCP_NOTSENT_LOWAT = 25


@dataclass(frozen=True)
class _Group:
    congestion_control: str
    #: The start of each flow.
    starts_s: tuple[float, ...]


@dataclass(frozen=True)
class Mice(_Group):
    """Flows that send without end for an exponential time, and are silent for another."""

    #: Means of both times.
    on_s: float
    off_s: float
    #: Port of the server that these flows send to.
    port: int


@dataclass(frozen=True)
class Web(_Group):
    """Sessions that ask for objects at Poisson times, each sent over a new connection."""

    requests_per_s: float
    #: Most connections of all sessions at one time; a request beyond them is lost.
    connections: int
    #: P(size > x) = (1 + x/scale)^−shape, rounded up to whole packets.
    shape: float
    scale_bytes: float
    payload_bytes: int
    #: Port of the server that the objects are sent to.
    port: int


Source = Mice | Web


@dataclass(frozen=True)
class ClientTask:
    """The client's task; times count from its zero."""

    seed: int
    end_s: float
    #: Window of the goodput.
    measure_s: tuple[float, float]
    sources: list[Source]

    def text(self) -> str:
        """Return the task as an argument of the command line."""
        table = asdict(self)
        for row, source in zip(table["sources"], self.sources, strict=True):
            row["kind"] = type(source).__name__
        return json.dumps(table)

    @staticmethod
    def from_text(text: str) -> ClientTask:
        """Read the argument that `text` wrote."""
        table = _tuples(json.loads(text))
        kinds: dict[str, type[Source]] = {"Mice": Mice, "Web": Web}
        sources = [kinds[row.pop("kind")](**_tuples(row)) for row in table["sources"]]
        return ClientTask(**table | {"sources": sources})


def _tuples(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table with tuples in place of lists, the only sequence of JSON."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


@dataclass(frozen=True)
class TransferCounts:
    """The results of the transfers within the measurement window."""

    #: Bits per second that receivers acknowledged, all short transfers together.
    short_goodput_bps: float
    #: Transfers with their last byte acknowledged.
    transfers: int


def packets(draw: random.Random, source: Web) -> int:
    """Return the number of packets of an object, at least one.

    Parameters
    ----------
    draw : random.Random
        Random numbers.
    source : Web
        Distribution of the sizes.

    Returns
    -------
    int
        The number of packets.
    """
    # P(X > x) = (1 + x/scale)^−shape, inverted at 1 − u.
    size: float = source.scale_bytes * ((1 - draw.random()) ** (-1 / source.shape) - 1)
    return max(1, math.ceil(min(size / source.payload_bytes, 2e9)))


class _OverError(Exception):
    """Ends the group of flows; no flow ends by itself."""


class Client:
    """All flows of a plan, in one thread."""

    def __init__(self, plan: ClientTask, server: str, zero_s: float) -> None:
        """Create the sources; `zero_s` is the Unix time at which the plan begins."""
        self._plan, self._server = plan, server
        #: On the loop's clock.
        self._zero_s = asyncio.get_running_loop().time() + zero_s - time.time()
        self._open: set[socket.socket] = set()
        #: Bytes that were acknowledged on connections that are closed.
        self._acked_bytes = 0
        self._ended_s: list[float] = []

    async def run(self) -> TransferCounts:
        """Run until the plan's end. Raises a group of `OSError` where a connection fails."""
        start_s, end_s = self._plan.measure_s
        acked_bytes = []
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._start()
                for time_s in (start_s, end_s):
                    await self._until(time_s)
                    acked_bytes.append(self._acknowledged())
                await self._until(self._plan.end_s)
                raise _OverError
        except* _OverError:
            pass
        before, after = acked_bytes
        return TransferCounts(
            short_goodput_bps=8 * (after - before) / (end_s - start_s),
            transfers=sum(start_s < ended_s <= end_s for ended_s in self._ended_s),
        )

    def _start(self) -> None:
        flow = 0
        for source in self._plan.sources:
            free = asyncio.Semaphore(source.connections if isinstance(source, Web) else 0)
            for start_s in source.starts_s:
                # Each flow has its own random stream, so its draws do not depend on the network.
                draw = random.Random(f"{self._plan.seed} {flow}")
                if isinstance(source, Mice):
                    self._tasks.create_task(self._mouse(source, draw, start_s))
                else:
                    self._tasks.create_task(self._session(source, draw, start_s, free))
                flow += 1

    async def _mouse(self, source: Mice, draw: random.Random, at_s: float) -> None:
        while True:
            at_s += draw.expovariate(1 / source.off_s)
            await self._until(at_s)
            close_s = at_s + draw.expovariate(1 / source.on_s)
            self._tasks.create_task(self._send(source, None, close_s))
            at_s = close_s

    async def _session(
        self, source: Web, draw: random.Random, at_s: float, free: asyncio.Semaphore
    ) -> None:
        while True:
            at_s += draw.expovariate(source.requests_per_s)
            size = packets(draw, source)
            await self._until(at_s)
            if not free.locked():
                await free.acquire()
                self._tasks.create_task(self._object(source, size, free))

    async def _object(self, source: Web, size_packets: int, slot: asyncio.Semaphore) -> None:
        try:
            await self._send(source, size_packets, None)
        finally:
            slot.release()

    async def _send(self, source: Source, size_packets: int | None, close_s: float | None) -> None:
        """Send `size_packets` packets over one connection, or data until `close_s`."""
        loop = asyncio.get_running_loop()
        with socket.socket() as connection:
            connection.setblocking(False)
            name = source.congestion_control.encode()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
            self._open.add(connection)
            connected = False
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(None if close_s is None else self._at(close_s)):
                        await loop.sock_connect(connection, (self._server, source.port))
                        connected = True
                        await _offer(connection, size_packets)
                if not connected:
                    # The handshake took longer than the mouse was to send.
                    return
                connection.shutdown(socket.SHUT_WR)
                # The server closes when it has everything.
                await loop.sock_recv(connection, 1)
                self._ended_s.append(loop.time() - self._zero_s)
            finally:
                self._acked_bytes += _acknowledged(connection)
                self._open.discard(connection)

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(self._at(at_s) - asyncio.get_running_loop().time())

    def _at(self, time_s: float) -> float:
        """Return a time on the loop's clock."""
        return self._zero_s + time_s

    def _acknowledged(self) -> int:
        return self._acked_bytes + sum(map(_acknowledged, self._open))


async def _offer(connection: socket.socket, size_packets: int | None) -> None:
    """Hand packets to the kernel, or endless data if `size_packets` is None."""
    loop = asyncio.get_running_loop()
    # It includes the TCP options once the connection is established.
    mss = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    if size_packets is None:
        connection.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_PACKETS * mss)
        while True:
            await loop.sock_sendall(connection, bytes(mss))
    for remaining in range(size_packets, 0, -CHUNK_PACKETS):
        await loop.sock_sendall(connection, bytes(mss * min(remaining, CHUNK_PACKETS)))


def _acknowledged(connection: socket.socket) -> int:
    """Return the number of bytes that the receiver has acknowledged."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
    (acked,) = struct.unpack_from("Q", info, ACKED_AT)
    return int(acked)


async def serve(ports: list[int]) -> None:
    """Accept connections until it is killed, read what comes, and close after the sender."""
    for port in ports:
        # A protocol that does nothing with what it gets.
        await asyncio.get_running_loop().create_server(
            asyncio.Protocol, "0.0.0.0", port, backlog=BACKLOG
        )
    print("listening", flush=True)
    await asyncio.Event().wait()


async def send(plan: ClientTask, zero_s: float) -> TransferCounts:
    """Run a plan against the link's server."""
    return await Client(plan, os.environ["FOREBAY_SERVER"], zero_s).run()


def main() -> None:
    """Run "serve PORT…" or "send PLAN ZERO"."""
    verb, *rest = sys.argv[1:]
    if verb == "serve":
        asyncio.run(serve(list(map(int, rest))))
        return
    try:
        counts = asyncio.run(send(ClientTask.from_text(rest[0]), float(rest[1])))
    except* OSError as errors:
        print(f"short transfers: {errors.exceptions[0]}", file=sys.stderr)
        sys.exit(1)
    print(json.dumps(asdict(counts)))


if __name__ == "__main__":
    main()
