"""Runs of real flows over a link; void runs are repeated up to a bound."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from forebay.base.progress import Progress
from forebay.links.process import Emulator, LinkError
from forebay.validation.mapping import LEAD_S, LinkPlan

if TYPE_CHECKING:
    from forebay._native import Observed

#: How long iperf3 may take to end: its results cross the same queue.
PATIENCE_S = 30.0
#: Longest excerpt of a program's output, in bytes.
MOST_BYTES = 300


class FlowError(RuntimeError):
    """A real flow failed every time; the text is its program's output."""


@dataclass(frozen=True)
class Attempt:
    """One run of a law with real flows."""

    point: int
    law: int
    seed: int
    #: At the bottleneck, as a simulated run has them; and `transfers.Found`, where there are some.
    metrics: dict[str, float]
    observed: Observed
    #: Why it is void; empty where it is sound.
    void: list[str]
    #: Number of earlier attempts that were void or failed.
    former: int


@dataclass(frozen=True)
class Attempts:
    """The finished runs."""

    finished: list[Attempt]
    #: Number of runs planned.
    wanted: int
    interrupted: bool = False
    #: Why it failed; empty otherwise.
    failure: str = ""


def run(
    plans: Sequence[LinkPlan],
    repeats: int,
    *,
    attempts: int = 3,
    links: int = 1,
    void_lateness: str = "1ms",
    void_rate: str = "0.1%",
    watch: Callable[[Progress], None] | None = None,
) -> Attempts:
    """Runs every plan `repeats` times, with seeds 1, 2, and so on, `links` at a time.

    A void run, and a run with flows that fail, is repeated, up to `attempts` runs in all; the last
    one counts, as void. Laws take turns, so that a busy spell of the machine hits all of them.
    Ctrl-C, a machine that allows no link, and flows that fail every time end it; finished runs are
    kept.
    """
    began_s = time.monotonic()
    found: list[Attempt] = []
    again: list[str] = []
    told = threading.Lock()
    jobs = [(plan, seed) for seed in range(1, repeats + 1) for plan in plans]
    under_way = _UnderWay()

    def tell() -> None:
        if watch:
            share = len(found) / len(jobs)
            more = f", {len(again)} made again; the last: {again[-1]}" if again else ""
            with told:
                watch(Progress(share, len(found), len(jobs), time.monotonic() - began_s, more))

    def one(plan: LinkPlan, seed: int) -> Attempt:
        former = 0
        while True:
            last = former + 1 == attempts
            try:
                observed, metrics, void = _once(plan, seed, void_lateness, void_rate, under_way)
            except FlowError:
                # On a busy machine a server may come up late.
                if last or under_way.ended:
                    raise
                void = ["its flows failed"]
            else:
                if last or not void:
                    return Attempt(plan.index, plan.number, seed, metrics, observed, void, former)
            former += 1
            again.append(f"{plan.law.label}, seed {seed}, {void[0]}")
            tell()

    interrupted, failure = False, ""
    with ThreadPoolExecutor(links) as pool:
        futures = [pool.submit(one, plan, seed) for plan, seed in jobs]
        try:
            for future in as_completed(futures):
                found.append(future.result())
                tell()
        except KeyboardInterrupt:
            interrupted = True
        except (LinkError, FlowError, subprocess.TimeoutExpired) as error:
            failure = str(error)
        finally:
            # The other runs are given up.
            for future in futures:
                future.cancel()
            under_way.end()
    found.sort(key=lambda one: (one.point, one.law, one.seed))
    return Attempts(found, len(jobs), interrupted, failure)


class _UnderWay:
    """Links that are up; an interrupted thread ends those of the others."""

    def __init__(self) -> None:
        self._links: set[Emulator] = set()
        self.ended = False
        self._lock = threading.Lock()

    def add(self, link: Emulator) -> None:
        with self._lock:
            self._links.add(link)
            if self.ended:
                link.process.terminate()

    def remove(self, link: Emulator) -> None:
        with self._lock:
            self._links.discard(link)

    def end(self) -> None:
        with self._lock:
            self.ended = True
            for link in self._links:
                link.process.terminate()


def _once(
    plan: LinkPlan, seed: int, void_lateness: str, void_rate: str, under_way: _UnderWay
) -> tuple[Observed, dict[str, float], list[str]]:
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as said:
        link = Emulator(
            plan.settings(seed, void_lateness, void_rate),
            plan.command(seed),
            plan.server(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=errors,
        )
        under_way.add(link)
        try:
            outcome = link.wait(LEAD_S + plan.point.duration_s + PATIENCE_S)
        finally:
            under_way.remove(link)
        if outcome.status != 0:
            complaint = _read(errors).strip() or f"status {outcome.status}"
            raise FlowError(f"{plan.law.label}, seed {seed}: {complaint}")
        # Only the client of short transfers prints a result.
        found = json.loads(_read(said)) if plan.sources else {}
    return outcome.directions[0].run, outcome.up | found, outcome.void


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MOST_BYTES).decode(errors="replace")
