"""Simulations that another program drives in virtual time.

`Network` is for tests of a transport: it has packets, timers and callbacks. `session` returns a run
that advances step by step.
"""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import forebay._native as _native
from forebay._base import registries
from forebay._base.registries import scenario_pairs
from forebay._native import Delivered, Lost, ScenarioError
from forebay.experiment import experiment
from forebay.experiment.experiment import FilesBeside, text_of

if TYPE_CHECKING:
    from forebay._base.quantities import Overrides
    from forebay._native import Observed, Session
    from forebay.experiment.experiment import Source
    from forebay.scenario.python_laws import Prototype

__all__ = ["Delivered", "Lost", "Network", "Timer"]

#: Virtual time in seconds between two checks for Ctrl-C.
SLICE_S = 0.1


@dataclass(order=True)
class Timer:
    """A callback at a time.

    Attributes
    ----------
    time_s : float
        Time of the callback in seconds.
    number : int
        Order in which timers of the same time run: that in which they were set.
    callback : Callable[[], object]
        The function to call.
    cancelled : bool
        True if the callback will not be called.
    """

    time_s: float
    number: int
    callback: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Prevent the callback, unless it has been called already."""
        self.cancelled = True


class Network:
    """A whole path in virtual time, without sockets or threads.

    The path has links, queues, laws and simulated cross traffic. The flows of a `[[traffic]]` of
    kind "external" belong to the program, which sends from both ends; they are numbered from 0 in
    the order of the scenario. Time passes only in `run`, which calls `on_delivered` and `on_lost`
    with each packet, and timers at their times. The same scenario, seed and calls give the same
    packets, bit by bit.

    Parameters
    ----------
    scenario : file, text of TOML or dict
        The scenario, as for `forebay.run`, with external traffic.
    law : str or class, optional
        The law that replaces the only law of the scenario.
    seed : int, default 1
        Seed of all random draws.
    overrides : mapping or sequence, optional
        Keys to set on top of the scenario, such as {"bottleneck.rate": "20Mbit/s"} or
        ["KEY=VALUE"].
    capture : path, optional
        A file of pcapng to write, with each packet of the program as it leaves the queue of the
        bottleneck or is dropped there.
    events : path, optional
        A file to write, with a line of JSON for each packet of the program that joins a queue,
        leaves one, is marked or dropped.

    Attributes
    ----------
    on_delivered : callable or None
        Called with each packet that reaches the other end.
    on_lost : callable or None
        Called with each packet that is lost. A transport must not learn of losses in this way; a
        test may.

    Raises
    ------
    ScenarioError
        If the scenario cannot be run, or has several laws or points.
    OSError
        If a file cannot be written.
    """

    on_delivered: Callable[[Delivered], object] | None = None
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
        """Read a scenario."""
        name, text = text_of(scenario)
        pairs = scenario_pairs(overrides or ())
        laws = [] if law is None else [law]
        files = FilesBeside(name, pairs)
        plan = _native.plan(text, name, overrides=pairs, laws=laws, read=files, external=True)
        for key, choices in (("sweep", plan.points), ("law", plan.laws)):
            if len(choices) != 1:
                raise ScenarioError(
                    f"{name}: {key}: a network has one, and this has {len(choices)}"
                )
        self._native = plan.network(seed)
        if capture is not None or events is not None:
            self._native.record(capture, events)
        self._timers: list[Timer] = []
        self._set = 0
        self._stopped = False

    @property
    def flows(self) -> int:
        """The number of flows that belong to the program."""
        return self._native.flows

    @property
    def now_s(self) -> float:
        """The time of the last packet, timer or call of `send`, in seconds."""
        return self._native.now_s

    @property
    def end_s(self) -> float:
        """The end of the scenario in seconds."""
        return self._native.end_s

    def most_bytes(self, flow: int) -> int:
        """Return the largest payload of a flow in bytes."""
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
        """Send a packet now.

        Parameters
        ----------
        flow : int
            Number of the flow.
        end : str
            The end that sends, "source" or "sink".
        payload : object
            Bytes, a number of bytes, or any object, which is delivered unchanged.
        length : int, optional
            Length of the payload in bytes, without the headers that the scenario adds; by default
            that of `payload`.
        ecn : str, default 'not-ect'
            "not-ect", "ect0", "ect1" or "ce".

        Raises
        ------
        ScenarioError
            If the packet does not fit, or there is no such flow.
        """
        if length is None:
            if isinstance(payload, int):
                length = payload
            elif isinstance(payload, Sized):
                length = len(payload)
            else:
                kind = type(payload).__name__
                raise ScenarioError(f"length: missing; a {kind} needs its length in bytes")
        if length < 0:
            raise ScenarioError(f"length: {length} is negative; give a number of bytes")
        self._native.send(flow, end, payload, length, now_s=self.now_s, ecn=ecn)

    def call_at(self, time_s: float, callback: Callable[[], object]) -> Timer:
        """Call a function at a time.

        A time in the past means as soon as `run` continues. At the same time, packets come first.

        Parameters
        ----------
        time_s : float
            Time in seconds.
        callback : Callable[[], object]
            The function.

        Returns
        -------
        Timer
            The timer, which can be cancelled.

        Raises
        ------
        ScenarioError
            If the time is not a finite number.
        """
        if not math.isfinite(time_s):
            raise ScenarioError(f"time_s: {time_s} is not a time; give seconds as a finite number")
        # The network has time in whole nanoseconds.
        timer = Timer(round(time_s * 1e9) / 1e9, self._set, callback)
        self._set += 1
        heapq.heappush(self._timers, timer)
        return timer

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call a function after a delay in seconds.

        Parameters
        ----------
        delay_s : float
            The delay.
        callback : Callable[[], object]
            The function.

        Returns
        -------
        Timer
            The timer, which can be cancelled.
        """
        return self.call_at(self.now_s + delay_s, callback)

    def stop(self) -> None:
        """End `run` after the callback that calls this method."""
        self._stopped = True

    def run(self, until_s: float | None = None) -> None:
        """Let time pass until a time, the end of the scenario, or `stop`.

        Parameters
        ----------
        until_s : float, optional
            Time in seconds; the end of the scenario by default.
        """
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
        """Run to the end of the scenario and return the observations at the bottleneck.

        The program sends nothing more; the simulated traffic goes on.

        Raises
        ------
        OSError
            If a capture or a log of events could not be completed.
        """
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
    """Return a run of a scenario's first point that waits after each sample.

    Parameters
    ----------
    scenario : Source
        A file, a text of TOML or a dict, as for `forebay.run`. Its `sample` is the step.
    seed : int, default 1
        Seed of the run; the runs of `forebay.run` have 1, 2, and so on.
    overrides : Overrides, optional
        Keys to set on top, such as {"sample": "50ms"} or ["sample=50ms"].
    target : str, default '50p'
        Set-point of the law that the caller steers.
    interval : str, default '10ms'
        Sampling time of that law's controller.
    law : str | Prototype, optional
        A law to run instead; it cannot be steered.

    Raises
    ------
    ScenarioError
        If the scenario cannot be run.
    """
    # The law that the caller steers takes the place of the baseline, which suits every queue.
    chosen = registries.baseline()["name"] if law is None else law
    plan = experiment.read(scenario, laws=[chosen], overrides=overrides or ()).plan
    steered = None if law is not None else target
    return plan.session(seed, set_point=steered, interval=interval)
