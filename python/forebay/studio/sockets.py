"""The sockets of the studio: the port of its page, and that of a real link.

It imports nothing that takes long to load: the page's address is printed first.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import secrets
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay._native import ScenarioError

HOST = "127.0.0.1"
#: The directions of a link.
WAYS = ("up", "down")
#: Time between two looks at a link, which has a new picture five times a second.
EVERY_S = 0.2
#: Longest time for the answer of a link.
PATIENCE_S = 5.0
#: What a request may hold: a key, and a value without a space.
KEY, VALUE = re.compile(r"[\w-]{1,60}"), re.compile(r"[\w./+-]{1,60}")

#: Values by name, direction, and what else distinguishes samples of a name.
Samples = dict[tuple[str, str, str], float]


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


@dataclass
class LiveLink:
    """A running link, by the path of its socket; each page has a connection of its own.

    Its socket is that of `forebay link --control`.
    """

    path: Path
    _reader: asyncio.StreamReader | None = field(default=None, repr=False)
    _writer: asyncio.StreamWriter | None = field(default=None, repr=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    _last: tuple[float, Samples] | None = field(default=None, repr=False)

    async def ask(self, line: str) -> str:
        """Return the answer to a request.

        Raises `OSError` and `TimeoutError` where the link has ended.
        """
        async with self._turn, asyncio.timeout(PATIENCE_S):
            if self._reader is None or self._writer is None:
                self._reader, self._writer = await asyncio.open_unix_connection(self.path)
            self._writer.write(f"{line}\n".encode())
            await self._writer.drain()
            lines = []
            while (answer := (await self._reader.readline()).decode()) != "\n":
                if not answer:
                    raise ConnectionResetError(f"{self.path}: the link has ended")
                lines.append(answer)
            return "".join(lines)

    async def look(self) -> dict[str, Any]:
        """Return both directions as they are, and their rates since the last look."""
        now, samples = time.monotonic(), _samples(await self.ask("metrics"))
        before, self._last = self._last or (now, samples), (now, samples)
        ways = {}
        for way in WAYS:
            settings = dict(word.split("=", 1) for word in (await self.ask(way)).split())
            ways[way] = _metrics(way, (now, samples), before) | {
                "law": settings.pop("law"),
                "rate": settings.pop("rate"),
                "params": settings,
            }
        return ways

    async def steer(self, way: object, changes: object) -> str:
        """Change a direction, and return an error in words, or nothing."""
        if way not in WAYS or not isinstance(changes, dict) or not changes:
            return "link: found no direction with changes, allowed: up or down, and KEY: VALUE"
        words = []
        for key, value in changes.items():
            if not (KEY.fullmatch(key) and isinstance(value, str) and VALUE.fullmatch(value)):
                return f"{str(key)[:60]}: allowed: a value without spaces"
            words.append(f"{key}={value}")
        answer = await self.ask(f"{way} {' '.join(words)}")
        return "" if answer == "ok\n" else answer.strip().removeprefix("error ")

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()


def check(path: Path) -> None:
    """Raise `ScenarioError` where no link answers."""

    async def look() -> None:
        link = LiveLink(path)
        await link.look()
        link.close()

    try:
        asyncio.run(look())
    except (OSError, TimeoutError, ValueError, KeyError) as error:
        reason = (getattr(error, "strerror", None) or str(error) or "no answer").lower()
        raise ScenarioError(
            f'--link: found "{path}", {reason}, allowed: the socket of forebay link --control PATH'
        ) from None


def _samples(text: str) -> Samples:
    from forebay._base.input_file import link_samples  # loads the client of Prometheus

    samples = {}
    for sample in link_samples(text):
        labels = sample.labels
        if "class" not in labels:
            rest = labels.get("quantile") or labels.get("reason") or labels.get("name") or ""
            samples[sample.name, labels.get("direction", ""), rest] = sample.value
    return samples


def _metrics(
    way: str, now: tuple[float, Samples], before: tuple[float, Samples]
) -> dict[str, float | None]:
    """Return the metrics of a direction; None for what is not known."""

    def sample(name: str, rest: str = "", samples: Samples = now[1]) -> float:
        return samples.get((name, way, rest), math.nan)

    def since(name: str, *reasons: str) -> float:
        return sum(sample(name, it) - sample(name, it, before[1]) for it in reasons or ("",))

    def ratio(part: float, whole: float) -> float:
        return part / whole if whole > 0 else math.nan

    arrived, drops = since("arrived_packets_total"), ("early", "forced", "overflow")
    values = {
        "queue_pkts": sample("current_queue_length"),
        "target_pkts": sample("target_packets"),
        "rate_mbps": 1e-6 * sample("rate_bits_per_second"),
        "p50_ms": 1e3 * sample("delay_seconds", "0.5"),
        "p95_ms": 1e3 * sample("delay_seconds", "0.95"),
        "p99_ms": 1e3 * sample("delay_seconds", "0.99"),
        "probability": sample("law_state", "p"),
        "throughput_mbps": ratio(8e-6 * since("bytes_total"), now[0] - before[0]),
        "drops_pct": ratio(100 * since("drops_total", *drops), arrived),
        "marks_pct": ratio(100 * since("marks_total"), arrived),
    }
    # JSON knows no NaN.
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
