"""One page and its socket: the newest state wins, and quick pictures come first.

A page sends `{"n": 7, "state": {KEY: TEXT}, "width": 800}` whenever something moves. Every answer
names the `n` that it belongs to. While one state is worked on, only the newest of those that come
in waits; what it makes outdated is left undone.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocket, WebSocketDisconnect

import forebay._native as _native
from forebay._base import registries
from forebay._base.errors import ParameterError
from forebay._base.worker_process import Worker, WorkerError
from forebay._native import LawModel, ScenarioError
from forebay.studio import gains, packets, state
from forebay.studio.packets import MOST_BINS, Outdated
from forebay.studio.state import State

if TYPE_CHECKING:
    from forebay._native import Plan, Run
    from forebay.studio.gains import LawSettings
    from forebay.studio.scenario import BaseScenario

Message = dict[str, Any]

#: Least width of a plot in pixels that is believed.
NARROWEST = 50
#: The texts that a page may ask for in place of pictures.
TEXTS = ("toml", "python")
#: Longest time for an answer of theory, and for one that nobody waits for any more.
LONGEST_S, OUTDATED_S = 10.0, 0.5
#: Time between two looks at whether somebody waits.
POLL_S = 0.01
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


# --- a real link ----------------------------------------------------------------------------------


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
            return "link: a change is missing; expected a direction, up or down, and KEY: VALUE"
        words = []
        for key, value in changes.items():
            if not (KEY.fullmatch(key) and isinstance(value, str) and VALUE.fullmatch(value)):
                return f"{str(key)[:60]}: expected a value without spaces"
            words.append(f"{key}={value}")
        answer = await self.ask(f"{way} {' '.join(words)}")
        return "" if answer == "ok\n" else answer.strip().removeprefix("error ")

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()


def check_link(path: Path) -> None:
    """Raise `ScenarioError` where no link answers."""

    async def look() -> None:
        link = LiveLink(path)
        await link.look()
        link.close()

    try:
        asyncio.run(look())
    except (OSError, TimeoutError, ValueError, KeyError) as error:
        reason = (getattr(error, "strerror", None) or str(error) or "no answer").lower()
        expected = "the socket of a running link (`forebay link --control PATH`)"
        raise ParameterError("link", path, expected, reason=reason) from None


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


# --- the page -------------------------------------------------------------------------------------


class TheoryProcess:
    """A process for theory, which can be ended in the middle of a calculation.

    A loop with time constants far apart takes minutes, and nothing in it can be interrupted. In
    parallel with it, packets do not wait for the lock of Python's interpreter.
    """

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._ended = False

    def ask(self, name: str, *arguments: object, outdated: Callable[[], bool]) -> Message:
        """Return what `forebay.studio.theory` calculates.

        Raises `ScenarioError` for what it refuses, and where it takes too long; `Outdated` when
        nobody waits any more.
        """
        if self._ended:
            raise Outdated
        worker = self._worker = self._worker or self._started()
        try:
            while not worker.loaded(POLL_S):
                # Loading is no calculation: it goes on for the next one.
                if outdated():
                    raise Outdated
            worker.send(name, arguments)
            start = time.monotonic()
            while not worker.answered(POLL_S):
                spent_s = time.monotonic() - start
                if spent_s > OUTDATED_S and outdated():
                    self._restart()
                    raise Outdated
                if spent_s > LONGEST_S:
                    self._restart()
                    raise ScenarioError(
                        f"{name}: theory takes over {LONGEST_S:g} s for this law on this link"
                    )
            answer: Message = worker.receive()
            return answer
        except WorkerError:
            self._kill()
            raise ScenarioError(f"{name}: the process for theory has ended") from None

    def close(self) -> None:
        """End the process at once, and for good."""
        self._ended = True
        self._kill()

    @staticmethod
    def _started() -> Worker:
        return Worker("forebay.studio.theory:answer")

    def _restart(self) -> None:
        """End the process, and start another, so that it has loaded when it is asked."""
        self._kill()
        if not self._ended:
            self._worker = self._started()

    def _kill(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()


@dataclass
class _Answer:
    """The answer to one state: messages, the quick ones first."""

    base: BaseScenario
    theory: TheoryProcess
    outdated: Callable[[], bool]
    texts: object
    bins: int
    #: The state, once its texts are read, and its laws.
    now: State | None = None
    laws: dict[str, LawSettings] = field(default_factory=dict)
    runs: tuple[Plan, list[Run]] | None = None
    theory_failed: bool = False

    @property
    def stages(self) -> list[Callable[[], Message]]:
        """The functions that calculate the messages, in their order."""
        return [self._state, self._packets, self._fluid, self._loops, self._warnings, self._maps]

    @property
    def _params(self) -> dict[str, gains.Params]:
        return {side: law.params for side, law in self.laws.items()}

    def _state(self) -> Message:
        now = state.parse(self.texts, self.base.start)
        self.laws = gains.all_gains(now)
        self.now = now
        laws = {
            side: {"params": dict(law.params), "reason": law.reason, "notes": list(law.notes)}
            for side, law in self.laws.items()
        }
        address = now.address(self.base.start)
        return {"kind": "state", "texts": now.texts(), "address": address, "laws": laws}

    def _packets(self) -> Message:
        assert self.now is not None
        plan = self.base.plan(self.now, self._params)
        runs = packets.run(plan, self.now.seed, self.outdated)
        self.runs = plan, runs
        sides = [side for side, _ in self.now.choices]
        return {"kind": "packets"} | packets.curves(plan, runs, sides, self.bins)

    def _fluid(self) -> Message:
        assert self.now is not None
        alone = self.base.alone(self.now, self._params)
        return self._ask("fluid", alone, self.now.tcp, self.now.duration, self.bins)

    def _loops(self) -> Message:
        return self._ask("loops", self.now, self.laws)

    def _warnings(self) -> Message:
        # It asks theory once more, in this process: not where that takes too long.
        texts = packets.warnings(*self.runs) if self.runs and not self.theory_failed else []
        return {"kind": "warnings", "texts": texts}

    def _maps(self) -> Message:
        return self._ask("maps", self.now, self.laws)

    def _ask(self, kind: str, *arguments: object) -> Message:
        """Return what theory calculates; where it fails, the reason in place of each picture."""
        try:
            return {"kind": kind} | self.theory.ask(kind, *arguments, outdated=self.outdated)
        except ScenarioError as error:
            self.theory_failed = True
            reason: Any = str(error) if kind == "maps" else {"reason": str(error)}
            return {"kind": kind, "laws": dict.fromkeys(self.laws, reason)}


class Session:
    """Answers one page until it goes away."""

    def __init__(self, socket: WebSocket, base: BaseScenario, link: Path | None = None) -> None:
        self._socket = socket
        self._base = base
        self._link = LiveLink(link) if link else None
        self._newest: tuple[int, object, int] | None = None
        self._came = asyncio.Event()
        self._closed = False
        self._theory = TheoryProcess()

    async def serve(self) -> None:
        """Serve the page from the greeting to its end."""
        await self._send(self._hello())
        tasks = [asyncio.create_task(self._work())]
        if self._link:
            tasks.append(asyncio.create_task(self._watch(self._link)))
        try:
            while True:
                await self._receive(await self._socket.receive_text())
        except (WebSocketDisconnect, KeyError):
            # KeyError: bytes instead of text; no page of ours sends them.
            pass
        finally:
            self._closed = True
            for task in tasks:
                task.cancel()
            self._theory.close()
            if self._link:
                self._link.close()

    async def _receive(self, text: str) -> None:
        try:
            message = json.loads(text)
            n, texts = message["n"], message.get("state")
            steered = "steer" in message and self._link is not None
            if not isinstance(n, int) or not (steered or isinstance(texts, dict)):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            await self._send(_error(0, 'found no {"n": 1, "state": {…}}'))
            return
        if steered and self._link:
            await self._send(await self._steer(self._link, n, message))
            return
        if message.get("ask") in TEXTS:
            await self._send(await asyncio.to_thread(self._text, n, texts, message["ask"]))
            return
        width = message.get("width")
        bins = width if isinstance(width, int) else MOST_BINS
        self._newest = (n, texts, min(max(bins, NARROWEST), MOST_BINS))
        self._came.set()

    async def _watch(self, link: LiveLink) -> None:
        """Send the page the state of a real link, until that ends."""
        try:
            while True:
                await self._send({"kind": "live", "ways": await link.look()})
                await asyncio.sleep(EVERY_S)
        except (OSError, TimeoutError, ValueError, KeyError):
            with suppress(WebSocketDisconnect, RuntimeError):
                await self._send({"kind": "live", "ended": True})
        except (WebSocketDisconnect, RuntimeError):
            # The page has gone.
            pass

    async def _steer(self, link: LiveLink, n: int, message: Message) -> Message:
        try:
            error = await link.steer(message["steer"], message.get("changes"))
        except (OSError, TimeoutError):
            error = "link: it has ended"
        return {"kind": "steered", "n": n, "message": error}

    async def _work(self) -> None:
        """Answer the newest state, again and again."""
        while True:
            await self._came.wait()
            self._came.clear()
            if self._newest is None:
                continue
            (n, texts, bins), self._newest = self._newest, None
            answer = _Answer(self._base, self._theory, self._outdated, texts, bins)
            try:
                for stage in [*answer.stages, lambda: {"kind": "done"}]:
                    message = await asyncio.to_thread(_in_words, n, stage)
                    if message is None:
                        break
                    await self._send({"n": n} | message)
                    if self._outdated() or answer.now is None:
                        break
            except (WebSocketDisconnect, RuntimeError):
                # The page has gone while we were sending.
                return

    def _outdated(self) -> bool:
        return self._newest is not None or self._closed

    def _text(self, n: int, texts: object, kind: str) -> Message:
        """Return a scenario, or a snippet of Python."""
        try:
            now = state.parse(texts, self._base.start)
            laws = {side: law.params for side, law in gains.all_gains(now).items()}
            # Its faults are reported here, and not where it is run.
            self._base.plan(now, laws)
            write = self._base.toml if kind == "toml" else self._base.python
            return {"kind": kind, "n": n, "text": write(now, laws)}
        except ScenarioError as error:
            return _error(n, str(error))

    def _hello(self) -> Message:
        return {
            "kind": "hello",
            "version": _native.__version__,
            "file": self._base.label,
            "remark": self._base.remark,
            "start": self._base.start.texts(),
            "controls": [control.as_json() for control in state.CONTROLS],
            "numbers": packets.numbers(),
            "laws": law_cards(),
            "link": self._link is not None,
        }

    async def _send(self, message: Message) -> None:
        await self._socket.send_text(json.dumps(message, allow_nan=False, separators=(",", ":")))


def _error(n: int, text: str) -> Message:
    return {"kind": "error", "n": n, "message": text}


def _in_words(n: int, stage: Callable[[], Message]) -> Message | None:
    """Return the message of a stage, or its error; None where nobody waits for it any more."""
    try:
        return stage()
    except Outdated:
        return None
    except ScenarioError as error:
        return _error(n, str(error))
    except Exception as error:
        # A fault of ours: the page says so, and the next state has its turn.
        text = " ".join(str(error).split())
        return _error(n, f"studio: this failed, {type(error).__name__}: {text}")


@cache
def law_cards() -> list[Message]:
    """Return the laws for the page: their names and what can be set, as each declares it."""
    return [
        {
            "name": name,
            "title": entry["title"],
            "short": entry["short_title"],
            "source": entry["source"],
            "target": entry["set_point"],
            "baseline": entry["baseline"],
            "rule": entry["has_rule"],
            "params": [state.of_param(param) for param in entry["params"]],
            "goals": [state.of_goal(*goal) for goal in LawModel(name, [], 10**9, 1000, 1e6).goals],
        }
        for name, entry in registries.laws().items()
    ]
