"""One page and its socket: the newest state wins, the quick pictures come first.

A page sends `{"n": 7, "state": {KEY: TEXT}, "width": 800}` whenever something moves. Every answer
names the `n` that it belongs to. While one state is worked on, only the newest of those that come
in waits; what it makes outdated is left undone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocket, WebSocketDisconnect

import forebay._native as _native
from forebay._base import registries
from forebay._native import LawModel, ScenarioError
from forebay.studio import controls, gains, packets, state
from forebay.studio.live import EVERY_S, LiveLink
from forebay.studio.packets import MOST_BINS, Outdated
from forebay.studio.state import State
from forebay.studio.theory_process import Abandoned, TheoryProcess

if TYPE_CHECKING:
    from forebay._native import Plan, Run
    from forebay.studio.scenario import BaseScenario

Message = dict[str, Any]
#: A part of an answer, which is made in a thread.
Stage = Callable[[], Message]

#: Widths of a plot in pixels that are believed.
NARROWEST = 50
#: What a page may ask for beside pictures.
TEXTS = ("toml", "python")


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
        """From the greeting to the page's end."""
        await self._send(self._hello())
        tasks = [asyncio.create_task(self._work())]
        if self._link:
            tasks.append(asyncio.create_task(self._watch(self._link)))
        try:
            while True:
                await self._hear(await self._socket.receive_text())
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

    async def _hear(self, text: str) -> None:
        try:
            message = json.loads(text)
            n, texts = message["n"], message.get("state")
            steered = "steer" in message and self._link is not None
            if not isinstance(n, int) or not (steered or isinstance(texts, dict)):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            await self._send(
                {"kind": "error", "n": 0, "message": 'found no {"n": 1, "state": {…}}'}
            )
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
        """Tells the page of a real link, until that ends."""
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
        while True:
            await self._came.wait()
            self._came.clear()
            if self._newest is None:
                continue
            (n, texts, bins), self._newest = self._newest, None
            try:
                for stage in self._stages(n, texts, bins):
                    message = await asyncio.to_thread(_in_words, n, stage)
                    if message is None:
                        break
                    await self._send(message)
                    if self._outdated():
                        break
            except (WebSocketDisconnect, RuntimeError):
                # It has gone while we were sending.
                return

    def _outdated(self) -> bool:
        return self._newest is not None or self._closed

    def _stages(self, n: int, texts: object, bins: int) -> Iterator[Stage]:
        """What a state is answered with, in this order."""
        parsed: list[State] = []
        settled: dict[str, gains.LawSettings] = {}
        made: list[tuple[Plan, list[Run]]] = []
        failed: list[str] = []

        def accept() -> Message:
            now = state.parse(texts, self._base.start)
            settled.update(gains.all_gains(now))
            parsed.append(now)
            return {
                "kind": "state",
                "n": n,
                "texts": now.texts(),
                "address": now.address(self._base.start),
                "laws": {side: _as_json(of) for side, of in settled.items()},
            }

        def run() -> Message:
            (now,) = parsed
            plan = self._base.plan(now, {side: of.params for side, of in settled.items()})
            runs = packets.run(plan, now.seed, self._outdated)
            made.append((plan, runs))
            sides = [side for side, _ in now.choices]
            return {"kind": "packets", "n": n} | packets.curves(plan, runs, sides, bins)

        yield accept
        if not parsed:
            return

        def ask(kind: str, *arguments: object) -> Message:
            """What theory says; where it fails, the reason in the place of each picture."""
            try:
                found = self._theory.ask(kind, *arguments, outdated=self._outdated)
            except ScenarioError as error:
                reason: Any = str(error) if kind == "maps" else {"reason": str(error)}
                found = {"laws": dict.fromkeys(settled, reason)}
                failed.append(kind)
            return {"kind": kind, "n": n} | found

        def fluid() -> Message:
            (now,) = parsed
            alone = self._base.alone(now, {side: of.params for side, of in settled.items()})
            return ask("fluid", alone, now.tcp, now.duration, bins)

        def warn() -> Message:
            # It asks theory once more, in this process: not where that takes too long.
            texts = packets.warnings(*made[0]) if made and not failed else []
            return {"kind": "warnings", "n": n, "texts": texts}

        yield run
        yield fluid
        yield lambda: ask("loops", parsed[0], settled)
        yield warn
        yield lambda: ask("maps", parsed[0], settled)
        yield lambda: {"kind": "done", "n": n}

    def _text(self, n: int, texts: object, ask: str) -> Message:
        """A scenario, or a snippet of Python."""
        try:
            now = state.parse(texts, self._base.start)
            laws = {side: of.params for side, of in gains.all_gains(now).items()}
            # Its faults are told here, and not where it is run.
            self._base.plan(now, laws)
            made = self._base.toml if ask == "toml" else self._base.python
            return {"kind": ask, "n": n, "text": made(now, laws)}
        except ScenarioError as error:
            return {"kind": "error", "n": n, "message": str(error)}

    def _hello(self) -> Message:
        start = self._base.start
        return {
            "kind": "hello",
            "version": _native.__version__,
            "file": self._base.label,
            "remark": self._base.remark,
            "start": start.texts(),
            "controls": [control.as_json() for control in controls.CONTROLS],
            "numbers": packets.numbers(),
            "laws": law_cards(),
            "link": self._link is not None,
        }

    async def _send(self, message: Message) -> None:
        await self._socket.send_text(json.dumps(message, allow_nan=False, separators=(",", ":")))


def _in_words(n: int, stage: Stage) -> Message | None:
    """What a stage makes, or its error; None where nobody waits for it any more."""
    try:
        return stage()
    except (Outdated, Abandoned):
        return None
    except ScenarioError as error:
        return {"kind": "error", "n": n, "message": str(error)}
    except Exception as error:
        # A fault of ours: the page says so, and the next state has its turn.
        told = f"studio: this failed, {type(error).__name__}: {' '.join(str(error).split())}"
        return {"kind": "error", "n": n, "message": told}


def _as_json(settled: gains.LawSettings) -> Message:
    return {
        "params": dict(settled.params),
        "reason": settled.reason,
        "notes": list(settled.notes),
    }


@cache
def law_cards() -> list[Message]:
    """The laws for the page: their names and what can be set of them, as each declares it."""
    return [
        {
            "name": name,
            "title": entry["title"],
            "short": entry["short_title"],
            "source": entry["source"],
            "target": entry["set_point"],
            "baseline": entry["baseline"],
            "rule": entry["has_rule"],
            "params": [controls.of_param(param) for param in entry["params"]],
            "goals": [
                controls.of_goal(*goal) for goal in LawModel(name, [], 10**9, 1000, 1e6).goals
            ],
        }
        for name, entry in registries.laws().items()
    ]
