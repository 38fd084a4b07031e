"""Simulations that another program drives: a network for tests of a transport, with packets, timers
and callbacks in virtual time, and sessions that are taken further step by step."""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import forebay._native as _native
from forebay._base import registries
from forebay._base.overrides import scenario_pairs
from forebay._native import Delivered, Lost, ScenarioError
from forebay.experiment import experiment
from forebay.experiment.experiment import FilesBeside, text_of

if TYPE_CHECKING:
    from forebay._base.quantities import Overrides
    from forebay._native import Observed, Session
    from forebay.experiment.experiment import Source
    from forebay.scenario.python_laws import Prototype

__all__ = ["Delivered", "Lost", "Network", "Timer"]

#: Virtual time between two moments at which Ctrl-C is heard.
SLICE_S = 0.1


@dataclass(order=True)
class Timer:
    """A callback at a time; `cancel` takes it back."""

    time_s: float
    #: timers of one time run in the order in which they were set
    number: int
    callback: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """The callback is not called, if it has not been yet."""
        self.cancelled = True


class Network:
    """A whole path in virtual time, without sockets or threads: links, queues, laws and simulated
    traffic beside. Flows of its `[[traffic]]` of kind "external" are the program's, from both ends,
    with numbers from 0 in the scenario's order.

    Nothing happens but in `run`, which calls `on_delivered` and `on_lost` with each packet, and
    timers at their times. The same scenario, seed and calls give the same packets to the bit.
    """

    #: called with each packet that reaches the other end
    on_delivered: Callable[[Delivered], object] | None = None
    #: called with each packet that is lost; no transport may learn of it so, tests may
    on_lost: Callable[[Lost], object] | None = None

    def __init__(
        self,
        scenario: Source,
        *,
        law: str | Prototype | None = None,
        seed: int = 1,
        overrides: Overrides | None = None,
        capture: str | os.PathLike[str] | None = None,
        events: str | os.PathLike[str] | None = None,
    ) -> None:
        """Read a scenario.

        scenario: a file, a text of TOML or a dict, as for `forebay.run`, with external traffic.
        law: the name of a law, or a prototype, to run instead of the scenario's only one.
        seed: of all random draws.
        overrides: keys to set on top, {"bottleneck.rate": "20Mbit/s"} or ["KEY=VALUE"].
        capture: a file of pcapng to write, with each packet of the program as it leaves the
            bottleneck's queue or is dropped there.
        events: a file to write, with a line of JSON for each packet of the program that joins a
            queue, leaves one, is marked or dropped.

        Raises `ScenarioError` for a scenario that cannot be run, or with several laws or points,
        and `OSError` for a file that cannot be written.
        """
        name, text = text_of(scenario)
        pairs = scenario_pairs(overrides or ())
        laws = [] if law is None else [law]
        files = FilesBeside(name, pairs)
        plan = _native.plan(text, name, overrides=pairs, laws=laws, read=files, external=True)
        for key, found in (("sweep", plan.points), ("law", plan.laws)):
            if len(found) != 1:
                raise ScenarioError(f"{name}: {key}: {len(found)} is not valid; expected one")
        self._native = plan.network(seed)
        if capture is not None or events is not None:
            self._native.record(capture, events)
        self._timers: list[Timer] = []
        self._set = 0
        self._stopped = False

    @property
    def flows(self) -> int:
        """How many flows the program has."""
        return self._native.flows

    @property
    def now_s(self) -> float:
        """The time: of the last packet, timer or call of `send`."""
        return self._native.now_s

    @property
    def end_s(self) -> float:
        """When the scenario ends."""
        return self._native.end_s

    def most_bytes(self, flow: int) -> int:
        """The longest payload of a flow, in bytes."""
        return self._native.most_bytes(flow)

    def send(
        self,
        flow: int,
        end: str,
        payload: object,
        *,
        length: int | None = None,
        ecn: str = "not-ect",
    ) -> None:
        """Sends a packet now.

        flow: its number.
        end: that sends it, "source" or "sink".
        payload: bytes, a number of bytes, or any object, which comes out as it is.
        length: of the payload in bytes, without the headers that the scenario adds; by default what
            the payload says.
        ecn: "not-ect", "ect0", "ect1" or "ce".

        Raises `ScenarioError` for a packet that does not fit, or a flow that there is not.
        """
        if length is None:
            if isinstance(payload, int):
                length = payload
            elif isinstance(payload, Sized):
                length = len(payload)
            else:
                kind = type(payload).__name__
                raise ScenarioError(
                    f"length is required for a payload of type {kind}; expected bytes"
                )
        if length < 0:
            raise ScenarioError(f"length: {length} is not valid; expected at least 0")
        self._native.send(flow, end, payload, length, now_s=self.now_s, ecn=ecn)

    def call_at(self, time_s: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` at a time, or as soon as `run` goes on where that has passed; at one
        time packets come first.

        Raises `ScenarioError` for a time that is not a finite number.
        """
        if not math.isfinite(time_s):
            raise ScenarioError(f"time_s: {time_s} is not a time; give seconds as a finite number")
        # As the network has it, in whole ns.
        timer = Timer(round(time_s * 1e9) / 1e9, self._set, callback)
        self._set += 1
        heapq.heappush(self._timers, timer)
        return timer

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Calls `callback` so long after now."""
        return self.call_at(self.now_s + delay_s, callback)

    def stop(self) -> None:
        """Ends `run` after the callback that calls this."""
        self._stopped = True

    def run(self, until_s: float | None = None) -> None:
        """Lets time pass until `until_s`, the end of the scenario, or `stop`."""
        self._stopped = False
        end_s = self.end_s if until_s is None else until_s
        while not self._stopped:
            while self._timers and self._timers[0].cancelled:
                heapq.heappop(self._timers)
            due_s = self._timers[0].time_s if self._timers else end_s
            event = self._native.poll(max(0.0, min(due_s, end_s, self.now_s + SLICE_S)))
            if isinstance(event, Delivered):
                if self.on_delivered:
                    self.on_delivered(event)
            elif isinstance(event, Lost):
                if self.on_lost:
                    self.on_lost(event)
            elif self._timers and due_s <= min(self.now_s, end_s):
                heapq.heappop(self._timers).callback()
            elif self._native.over or self.now_s >= end_s:
                return

    def finish(self) -> Observed:
        """Run to the end of the scenario, where nothing more is sent but by its own traffic, and
        return what was observed at the bottleneck. Raises `OSError` where a capture or a log of
        events could not be written to its end."""
        return self._native.finish()


def session(
    scenario: Source,
    *,
    seed: int = 1,
    overrides: Overrides | None = None,
    target: str = "50p",
    interval: str = "10ms",
    law: str | Prototype | None = None,
) -> Session:
    """One run of a scenario's first point, which waits after each sample.

    scenario: a file, a text of TOML or a dict, as for `forebay.run`. Its `sample` is the step.
    seed: of the run; the runs of `forebay.run` have 1, 2, and so on.
    overrides: keys to set on top, {"sample": "50ms"} or ["sample=50ms"].
    target, interval: set-point of the law that the caller steers, and the time between two samples
        of its controller.
    law: the name of a law, or a prototype, to run instead; it cannot be steered.

    Raises `ScenarioError` for a scenario that cannot be run.
    """
    # One that is steered takes the place of a law; it is of every queue as the one without is.
    chosen = registries.baseline()["name"] if law is None else law
    plan = experiment.read(scenario, laws=[chosen], overrides=overrides or ()).plan
    steered = None if law is not None else target
    return plan.session(seed, set_point=steered, interval=interval)
