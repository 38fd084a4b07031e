"""Runs of a study, and more seeds where an interval is too wide."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base.metrics import METRICS
from forebay._base.words import hint
from forebay._native import ScenarioError
from forebay.campaign import making, manifest
from forebay.campaign.making import StudyProgress
from forebay.campaign.study import Study

if TYPE_CHECKING:
    from forebay._base.progress import Progress
    from forebay.campaign.making import Workers
    from forebay.campaign.study_points import Points
    from forebay.experiment.store import Store

UNTIL = re.compile(r"ci95=(\d+(?:\.\d+)?)%(?:,([\w,]+))?")
#: Metrics whose intervals count where none are named.
USUAL = ("goodput_bps", "delay_p95_s")


@dataclass(frozen=True)
class Until:
    """Seeds are added until the 95 % interval is at most `share` of the mean, for each metric."""

    share: float
    metrics: tuple[str, ...]
    most: int

    @staticmethod
    def read(text: str, most: int) -> Until:
        """ "ci95=2%" or "ci95=2%,goodput_bps". Raises `ScenarioError`."""
        match = UNTIL.fullmatch(text)
        if match is None or not float(match[1]) > 0:
            raise ScenarioError(
                f'--until: found "{text}", allowed: such as ci95=2%, for seeds until the 95 % '
                "interval is at most 2 % of the mean, or ci95=2%,goodput_bps"
            )
        metrics = tuple(match[2].split(",")) if match[2] else USUAL
        for name in metrics:
            if name not in METRICS:
                known = f"{', '.join(METRICS)}{hint(name, METRICS)}"
                raise ScenarioError(f'--until: found the metric "{name}", allowed: {known}')
        return Until(float(match[1]) / 100, metrics, most)


@dataclass(frozen=True)
class Grown:
    """What a call has done, and how many seeds each digest then has."""

    made: StudyProgress
    seeds: int | Mapping[str, int]
    #: laws at points whose interval is still too wide, at the most seeds
    wide: int = 0


def grow(
    points: Points,
    store: Store,
    workers: Workers,
    *,
    until: Until | None = None,
    watch: Callable[[Progress, StudyProgress], None] | None = None,
    budget_s: float | None = None,
    limit_s: float | None = None,
    retry: bool = False,
    folder: Path | None = None,
) -> Grown:
    """Makes what is missing, and with `until` more seeds where they are needed, and only there.
    The rest is as of `making.make`."""
    start = time.monotonic()
    end = None if budget_s is None else start + budget_s

    def left_s() -> float | None:
        return None if end is None else max(0.0, end - time.monotonic())

    made = making.make(
        points, store, workers, seeds=points.seeds, watch=watch, budget_s=left_s(),
        limit_s=limit_s, retry=retry, folder=folder,
    )  # fmt: skip
    if until is None or made.ended_early:
        return Grown(made, points.seeds)
    configs = manifest.list_runs(points, store)["config"].unique()
    seeds: dict[str, int] = dict.fromkeys(sorted(configs), points.seeds)
    while made.whole and not made.ended_early:
        more: dict[str, int] = {}
        for metric in until.metrics:
            for config, count in (
                Study(points, store, seeds).wide(metric, until.share, until.most).items()
            ):
                if count > seeds[config]:
                    more[config] = max(more.get(config, 0), count)
        if not more:
            break
        seeds |= more
        made = making.make(
            points, store, workers, seeds=seeds, watch=watch, budget_s=left_s(),
            limit_s=limit_s, made=made, folder=folder,
        )  # fmt: skip
    # What this call has made for the first seeds is in the store for the next.
    made.found = max(0, made.wanted - made.made - made.failed) if made.whole else made.found
    made.elapsed_s = time.monotonic() - start
    study = Study(points, store, seeds)
    beyond = [study.wide(metric, until.share, until.most + 1) for metric in until.metrics]
    return Grown(made, seeds, len({config for some in beyond for config in some}))
