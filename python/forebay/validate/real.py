"""Real flows over a link: each law as often as asked, void runs again up to a bound."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from forebay.emulator.process import Emulator
from forebay.experiment import Progress
from forebay.validate.mapping import LEAD_S, LinkPlan

#: How long iperf3 may take to end: its results cross the same queue.
PATIENCE_S = 30.0
#: What of iperf3's complaint is worth a line.
COMPLAINT_BYTES = 300


class FlowError(RuntimeError):
    """A real flow failed every time; the text is what iperf3 said."""


@dataclass(frozen=True)
class Attempt:
    """What came of one law with real flows."""

    point: int
    law: int
    seed: int
    #: At the bottleneck, as a simulated run has them.
    metrics: dict[str, float]
    #: Why it is void; empty where it is sound.
    void: list[str]
    #: How often it was run before, and was void or failed.
    former: int


def run(
    plans: Sequence[LinkPlan],
    repeats: int,
    *,
    attempts: int = 3,
    links: int = 1,
    void_lateness: str = "1ms",
    void_rate: str = "0.1%",
    watch: Callable[[Progress], None] | None = None,
) -> list[Attempt]:
    """Runs every plan `repeats` times, with seeds 1, 2, and so on, `links` at a time.

    A void run, and one whose flows fail, is made again, up to `attempts` times in all; the last
    stands, as void. Laws take turns, so that a machine that is busy for a while does not strike
    one of them.

    Raises `LinkError` where the machine allows no link, `FlowError` where flows fail.
    """
    began_s = time.monotonic()
    found: list[Attempt] = []
    jobs = [(plan, seed) for seed in range(1, repeats + 1) for plan in plans]
    under_way = _UnderWay()

    def one(plan: LinkPlan, seed: int) -> Attempt:
        former = 0
        while True:
            last = former + 1 == attempts
            try:
                metrics, void = _once(plan, seed, void_lateness, void_rate, under_way)
            except FlowError:
                # On a busy machine a server may come up late.
                if last or under_way.ended:
                    raise
            else:
                if last or not void:
                    return Attempt(plan.point, plan.law, seed, metrics, void, former)
            former += 1

    with ThreadPoolExecutor(links) as pool:
        futures = [pool.submit(one, plan, seed) for plan, seed in jobs]
        try:
            for future in as_completed(futures):
                found.append(future.result())
                if watch:
                    share = len(found) / len(jobs)
                    watch(Progress(share, len(found), len(jobs), time.monotonic() - began_s))
        finally:
            # After an error, or Ctrl-C, nobody waits for the others.
            for future in futures:
                future.cancel()
            under_way.end()
    return sorted(found, key=lambda one: (one.point, one.law, one.seed))


class _UnderWay:
    """Links that are up, so that the thread that is interrupted can end those of the others."""

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
) -> tuple[dict[str, float], list[str]]:
    with tempfile.TemporaryFile() as errors:
        link = Emulator(
            plan.settings(seed, void_lateness, void_rate),
            plan.command(seed),
            plan.server(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        under_way.add(link)
        try:
            outcome = link.wait(LEAD_S + plan.duration_s + PATIENCE_S)
        finally:
            under_way.remove(link)
        if outcome.status != 0:
            errors.seek(0)
            said = errors.read(COMPLAINT_BYTES).decode(errors="replace").strip()
            raise FlowError(f"{plan.aqm}, seed {seed}: {said or f'status {outcome.status}'}")
    return outcome.up, outcome.void
