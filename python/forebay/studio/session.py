"""One page and its WebSocket: the newest state wins, and fast results come first.

A page sends `{"n": 7, "state": {KEY: TEXT}, "width": 800}` whenever a control moves. Every answer
names the `n` of its state. During the work on a state only the newest of the later ones waits; the
rest of an obsolete answer is not calculated.
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
from forebay.studio import packets, state
from forebay.studio.packets import MOST_BINS, Outdated
from forebay.studio.state import State

if TYPE_CHECKING:
    from forebay._native import Plan, Run
    from forebay.studio.scenario import BaseScenario
    from forebay.studio.state import LawSettings

Message = dict[str, Any]

#: Smallest width of a plot in pixels.
NARROWEST = 50
#: The texts that a page may request.
TEXTS = ("toml", "python")
#: Time limits in seconds of a calculation, and of an obsolete calculation.
LONGEST_S, OUTDATED_S = 10.0, 0.5
#: Time in seconds between two checks for newer states.
POLL_S = 0.01
#: The directions of a link.
WAYS = ("up", "down")
#: Time in seconds between two readings of a link.
EVERY_S = 0.2
#: Time limit in seconds of the answer of a link.
PATIENCE_S = 5.0
#: Keys and values of a request to a link.
KEY, VALUE = re.compile(r"[\w-]{1,60}"), re.compile(r"[\w./+-]{1,60}")

#: Values by name, direction, and what else distinguishes samples of a name.
Samples = dict[tuple[str, str, str], float]


# --- a real link ----------------------------------------------------------------------------------


@dataclass
class LiveLink:
    """A running link with real traffic, by the path of its control socket.

    The socket is that of `forebay link --control`. Each page has a connection of its own.
    """

    path: Path
    _reader: asyncio.StreamReader | None = field(default=None, repr=False)
    _writer: asyncio.StreamWriter | None = field(default=None, repr=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    _last: tuple[float, Samples] | None = field(default=None, repr=False)

    async def ask(self, line: str) -> str:
        """Return the answer to a request.

        Raises `OSError` or `TimeoutError` if the link has ended.
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
        """Return the state of both directions, and their rates since the last call."""
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
        """Change settings of a direction; return an error in words, or an empty text."""
        if way not in WAYS or not isinstance(changes, dict) or not changes:
            return "link: expected a direction, up or down, with changes KEY: VALUE"
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
    """Raise `ParameterError` if no link answers at a socket."""

    async def look() -> None:
        link = LiveLink(path)
        await link.look()
        link.close()

    try:
        asyncio.run(look())
    except (OSError, TimeoutError, ValueError, KeyError) as error:
        reason = (getattr(error, "strerror", None) or str(error) or "no answer").lower()
        expected = "the socket of a running link"
        raise ParameterError("link", str(path), expected, reason=reason) from None


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
    """Return the metrics of a direction; None for unknown values."""

    def sample(name: str, rest: str = "", samples: Samples = now[1]) -> float:
        return samples.get((name, way, rest), math.nan)

    def since(name: str, *reasons: str) -> float:
        return sum(sample(name, key) - sample(name, key, before[1]) for key in reasons or ("",))

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
    """A process for theory, which can be ended during a calculation.

    A stiff loop, with time constants far apart, takes minutes and cannot be interrupted. In a
    process of its own it does not hold the interpreter's lock, for which packets would wait.
    """

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._ended = False

    def ask(self, name: str, *arguments: object, outdated: Callable[[], bool]) -> Message:
        """Return a result of `forebay.studio.theory`.

        Parameters
        ----------
        name : str
            Name of the calculation.
        *arguments : object
            Its arguments.
        outdated : callable
            True once a newer state has made the result obsolete.

        Raises
        ------
        ScenarioError
            If the calculation refuses its arguments, or takes too long.
        Outdated
            If the result is obsolete.
        """
        if self._ended:
            raise Outdated
        worker = self._worker = self._worker or self._started()
        try:
            while not worker.loaded(POLL_S):
                # Loading continues for the next calculation.
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
        """End the process at once, and start no other one."""
        self._ended = True
        self._kill()

    @staticmethod
    def _started() -> Worker:
        return Worker("forebay.studio.theory:answer")

    def _restart(self) -> None:
        """Replace the process by a new one, which loads until it is needed."""
        self._kill()
        if not self._ended:
            self._worker = self._started()

    def _kill(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()


@dataclass
class _Answer:
    """The answer to one state: messages, the fast ones first."""

    base: BaseScenario
    theory: TheoryProcess
    outdated: Callable[[], bool]
    texts: object
    bins: int
    #: The state, after its texts are read, and its laws.
    now: State | None = None
    laws: dict[str, LawSettings] = field(default_factory=dict)
    runs: tuple[Plan, list[Run]] | None = None
    theory_failed: bool = False

    @property
    def stages(self) -> list[Callable[[], Message]]:
        """The functions that calculate the messages, in order."""
        return [self._state, self._packets, self._fluid, self._loops, self._warnings, self._maps]

    @property
    def _params(self) -> dict[str, state.Params]:
        return {side: law.params for side, law in self.laws.items()}

    def _state(self) -> Message:
        now = state.parse(self.texts, self.base.start)
        self.laws = state.all_gains(now)
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
        # Warnings need theory in this process, which is skipped if it takes too long.
        texts = packets.warnings(*self.runs) if self.runs and not self.theory_failed else []
        return {"kind": "warnings", "texts": texts}

    def _maps(self) -> Message:
        return self._ask("maps", self.now, self.laws)

    def _ask(self, kind: str, *arguments: object) -> Message:
        """Return a result of theory; if it fails, the reason in place of each figure."""
        try:
            return {"kind": kind} | self.theory.ask(kind, *arguments, outdated=self.outdated)
        except ScenarioError as error:
            self.theory_failed = True
            reason: Any = str(error) if kind == "maps" else {"reason": str(error)}
            return {"kind": kind, "laws": dict.fromkeys(self.laws, reason)}


class Session:
    """The conversation with one page, until the page closes."""

    def __init__(self, socket: WebSocket, base: BaseScenario, link: Path | None = None) -> None:
        self._socket = socket
        self._base = base
        self._link = LiveLink(link) if link else None
        self._newest: tuple[int, object, int] | None = None
        self._came = asyncio.Event()
        self._closed = False
        self._theory = TheoryProcess()

    async def serve(self) -> None:
        """Serve the page until it closes."""
        await self._send(self._hello())
        tasks = [asyncio.create_task(self._work())]
        if self._link:
            tasks.append(asyncio.create_task(self._watch(self._link)))
        try:
            while True:
                await self._receive(await self._socket.receive_text())
        except (WebSocketDisconnect, KeyError):
            # KeyError: bytes in place of text, which the studio's page never sends.
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
            await self._send(_error(0, 'expected {"n": 1, "state": {…}}'))
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
        """Send the state of a real link until the link ends."""
        try:
            while True:
                await self._send({"kind": "live", "ways": await link.look()})
                await asyncio.sleep(EVERY_S)
        except (OSError, TimeoutError, ValueError, KeyError):
            with suppress(WebSocketDisconnect, RuntimeError):
                await self._send({"kind": "live", "ended": True})
        except (WebSocketDisconnect, RuntimeError):
            # The page has closed.
            pass

    async def _steer(self, link: LiveLink, n: int, message: Message) -> Message:
        try:
            error = await link.steer(message["steer"], message.get("changes"))
        except (OSError, TimeoutError):
            error = "link: it has ended"
        return {"kind": "steered", "n": n, "message": error}

    async def _work(self) -> None:
        """Answer the newest state, repeatedly."""
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
                # The page closed during an answer.
                return

    def _outdated(self) -> bool:
        return self._newest is not None or self._closed

    def _text(self, n: int, texts: object, kind: str) -> Message:
        """Return the scenario of a state in TOML, or a Python snippet."""
        try:
            now = state.parse(texts, self._base.start)
            laws = {side: law.params for side, law in state.all_gains(now).items()}
            # Errors of the scenario are reported now, and not when it is run.
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
    """Return the message of a stage, or its error; None for an obsolete state."""
    try:
        return stage()
    except Outdated:
        return None
    except ScenarioError as error:
        return _error(n, str(error))
    except Exception as error:
        # An internal error is shown, and the next state is answered.
        text = " ".join(str(error).split())
        return _error(n, f"studio: this failed, {type(error).__name__}: {text}")


@cache
def law_cards() -> list[Message]:
    """Return names, parameters and goals of all laws for the page."""
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
