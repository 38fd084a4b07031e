"""A link with real traffic, watched and steered over the socket of `forebay link --control`."""

from __future__ import annotations

import asyncio
import math
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay._base.input_file import link_samples
from forebay._native import ScenarioError

WAYS = ("up", "down")
#: Time between two looks; the link has a new picture five times a second.
EVERY_S = 0.2
#: How long it may take to answer.
PATIENCE_S = 5.0

#: A sample as Prometheus has it: name, labels, value.
#: What a request may hold: a key, and a value without a space.
KEY, VALUE = re.compile(r"[\w-]{1,60}"), re.compile(r"[\w./+-]{1,60}")

Samples = dict[tuple[str, str, str], float]


@dataclass
class LiveLink:
    """A link that runs, by the path of its socket. One connection for each page."""

    path: Path
    _reader: asyncio.StreamReader | None = field(default=None, repr=False)
    _writer: asyncio.StreamWriter | None = field(default=None, repr=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    _last: tuple[float, Samples] | None = field(default=None, repr=False)

    async def ask(self, line: str) -> str:
        """The answer to a request. Raises `OSError` and `TimeoutError` where the link has ended."""
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
        """Both directions as they are, and their rates since the last look."""
        now, samples = time.monotonic(), _samples(await self.ask("metrics"))
        before, self._last = self._last, (now, samples)
        ways = {}
        for way in WAYS:
            settings = dict(word.split("=", 1) for word in (await self.ask(way)).split())
            ways[way] = _way(way, now, samples, before) | {
                "law": settings.pop("law"),
                "rate": settings.pop("rate"),
                "params": settings,
            }
        return ways

    async def steer(self, way: object, changes: object) -> str:
        """Changes a direction; an error in words, or nothing."""
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
        if self._writer is not None:
            self._writer.close()


def check(path: Path) -> None:
    """Raises `ScenarioError` where no link answers."""

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
    """By name, direction, and what else tells samples of a name apart."""
    found = {}
    for sample in link_samples(text):
        labels = sample.labels
        if "class" in labels:
            continue
        rest = labels.get("quantile") or labels.get("reason") or labels.get("name") or ""
        found[sample.name, labels.get("direction", ""), rest] = sample.value
    return found


def _way(
    way: str, now: float, samples: Samples, last: tuple[float, Samples] | None
) -> dict[str, Any]:
    def sample(name: str, rest: str = "", of: Samples = samples) -> float:
        return of.get((name, way, rest), math.nan)

    before_s, before = last or (now, samples)
    span_s = now - before_s

    def since(name: str, *reasons: str) -> float:
        return sum(sample(name, it) - sample(name, it, before) for it in reasons or ("",))

    arrived = since("arrived_packets_total")
    values = {
        "queue_pkts": sample("current_queue_length"),
        "target_pkts": sample("target_packets"),
        "rate_mbps": 1e-6 * sample("rate_bits_per_second"),
        "p50_ms": 1e3 * sample("delay_seconds", "0.5"),
        "p95_ms": 1e3 * sample("delay_seconds", "0.95"),
        "p99_ms": 1e3 * sample("delay_seconds", "0.99"),
        "probability": sample("law_state", "p"),
        "throughput_mbps": 8e-6 * since("bytes_total") / span_s if span_s > 0 else math.nan,
        "drops_pct": 100 * since("drops_total", "early", "forced", "overflow") / arrived
        if arrived
        else math.nan,
        "marks_pct": 100 * since("marks_total") / arrived if arrived else math.nan,
    }
    # JSON knows no NaN.
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
