"""Refuses experiments whose samples would not fit into the memory of this machine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base import quantities
from forebay._native import ScenarioError

if TYPE_CHECKING:
    from forebay._native import Plan

#: Of a sample at a link: eleven columns of 4 or 8 bytes, what a law reports, and half as much again
#: while tables are written.
SAMPLE_BYTES = 110
#: Share of the free memory that an experiment may take.
SHARE = 0.8


def check(plan: Plan, threads: int, *, samples: bool) -> None:
    """Refuses what does not fit, all runs together; without `samples` only those under way count.

    Raises `ScenarioError`, which says what would fit.
    """
    free = SHARE * free_bytes()
    per_run = [
        SAMPLE_BYTES * len(point.links) * point.duration_s / point.sample_s for point in plan.points
    ]
    of_point = len(plan.laws) * len(plan.seeds)
    runs = of_point * len(per_run)
    under_way = min(threads, runs) * max(per_run)
    needed = (of_point * sum(per_run) if samples else 0.0) + under_way
    if needed <= free:
        return
    sample_s = max(point.sample_s for point in plan.points)
    what = f"in {runs} runs" if samples else f"in {min(threads, runs)} runs at a time"
    raise ScenarioError(
        f'sample: found "{quantities.time(min(point.sample_s for point in plan.points))}", about '
        f"{_in_words(needed)} of samples {what}, allowed: at most {_in_words(free)} here, such as "
        f"--set sample={quantities.time(_round(sample_s * needed / free))}"
        + (_fewer(plan, sum(per_run), under_way, free) if samples else "")
    )


def _fewer(plan: Plan, of_all_points: float, under_way: float, free: float) -> str:
    """How many seeds fit, if any do."""
    seeds = math.floor((free - under_way) / (of_all_points * len(plan.laws)))
    return f" or --seeds {seeds}" if 1 <= seeds < len(plan.seeds) else ""


def _round(seconds: float) -> float:
    """Up to 1, 2 or 5 of a power of ten."""
    power = 10.0 ** math.floor(math.log10(seconds))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= seconds * (1 - 1e-9))


def _in_words(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def free_bytes() -> float:
    """Memory that this process may still take; infinite where the system does not tell."""
    found = [math.inf]
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(1024.0 * int(line.split()[1]))
    except OSError:
        pass
    # Limits of containers: the version 2 of cgroups, then version 1.
    for most, used in [
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ]:
        try:
            found.append(int(Path(most).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):
            continue
    return max(0.0, min(found))
