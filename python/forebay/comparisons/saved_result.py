"""What a result on disk says: the runs of `forebay run` and of `forebay study`, as one table."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from forebay._native import ScenarioError
from forebay.base import quantities
from forebay.base.metrics import METRICS
from forebay.pages.result_files import NUMBERS
from forebay.results import flent
from forebay.runs.engine import PACKETS
from forebay.studies.files import FACTS, FRAME

#: What was run, and where: columns before the metrics.
KEYS = {"law": pl.String, "point": pl.String, "seed": pl.UInt64}


@dataclass(frozen=True)
class SavedResult:
    """A folder that `forebay run` or `forebay study` has written, or data files of flent.

    engine: what made the runs. rows: a row per run: law, point, seed, and the metrics of the
    bottleneck. labels: of points, as the scenario writes them, by what the rows have, which is the
    same for "100ms" and "0.1s". apart: whether they are the directions of a link, of which a mean
    says nothing.
    """

    folder: Path
    title: str
    command: str
    version: str
    engine: str
    partial: bool
    rows: pl.DataFrame
    labels: Mapping[str, str]
    apart: bool = False

    @property
    def laws(self) -> list[str]:
        return self.rows["law"].unique(maintain_order=True).to_list()

    @property
    def points(self) -> list[str]:
        return self.rows["point"].unique(maintain_order=True).to_list()


def read_result(folder: str | os.PathLike[str]) -> SavedResult:
    """Reads the numbers of a result. Raises `ScenarioError` for a folder without any."""
    path = Path(folder)
    if files := _flent_files(path):
        return _of_flent(path, [flent.read(file) for file in files])
    try:
        if (path / FRAME).is_file():
            return _of_study(path)
        return _of_run(path, json.loads((path / NUMBERS).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        raise ScenarioError(
            f'compare: found "{folder}", allowed: a folder that forebay run or forebay study has '
            f"written, with {NUMBERS} or {FRAME}, or data files of flent"
        ) from error


def _of_run(path: Path, told: dict[str, Any]) -> SavedResult:
    runs = told["runs"]
    points = [_place(run["settings"], run["point"]) for run in runs]
    columns: dict[str, list[Any]] = {
        "law": [run["law"] for run in runs],
        "point": points,
        "seed": [run["seed"] for run in runs],
        **{name: [run["metrics"].get(name) for run in runs] for name in METRICS},
    }
    labels = {place: run["point"] for place, run in zip(points, runs, strict=True)}
    return SavedResult(
        path,
        told["title"],
        told["command"],
        told["forebay"],
        told.get("engine", PACKETS.name),
        told["partial"],
        pl.DataFrame(columns, {**KEYS, **dict.fromkeys(METRICS, pl.Float64)}),
        labels,
        not any(run["settings"] for run in runs),
    )


def _of_study(path: Path) -> SavedResult:
    told = json.loads((path / FACTS).read_bytes())
    frame = pl.read_parquet(path / FRAME)
    axes = frame.columns[frame.columns.index("law") + 1 : frame.columns.index("seed")]
    bottleneck = frame["link"].cast(pl.String)[0] if frame.height else ""
    frame = frame.filter(pl.col("link").cast(pl.String) == bottleneck)
    # Of a point all rows set the same.
    settings = frame.select("point", *axes).unique("point", maintain_order=True)
    places = {
        row["point"]: _place({key: row[key] for key in axes}, "") for row in settings.to_dicts()
    }
    rows = frame.select(
        pl.col("law").cast(pl.String),
        pl.col("point").replace_strict(places, return_dtype=pl.String),
        "seed",
        *(pl.col(name).cast(pl.Float64) for name in METRICS),
    )
    labels = {place: place for place in places.values()}
    engine = told.get("engine", PACKETS.name)
    facts = (told["title"], told["command"], told["forebay"], engine, told["partial"])
    return SavedResult(path, *facts, rows, labels)


def _flent_files(path: Path) -> list[Path]:
    """A file of flent, or those of a folder that has no numbers of ours."""
    if path.name.endswith(flent.SUFFIX):
        return [path]
    if (path / FRAME).exists() or (path / NUMBERS).exists():
        return []
    return sorted(path.glob(f"*{flent.SUFFIX}"))


def _of_flent(path: Path, runs: list[flent.FlentRun]) -> SavedResult:
    """Delay and goodput of each; files that name no seed are numbered for each law and point."""
    counts: Counter[tuple[str, str]] = Counter()
    rows = []
    for run in runs:
        place = _place(run.settings, run.point)
        counts[run.law, place] += 1
        delays_s = run.delays_s
        some = len(delays_s) > 0
        rows.append(
            {
                "law": run.law,
                "point": place,
                "seed": counts[run.law, place] if run.seed is None else run.seed,
                "goodput_bps": run.goodput_bps,
                "delay_mean_s": float(delays_s.mean()) if some else None,
                "delay_p95_s": float(np.quantile(delays_s, 0.95)) if some else None,
                "delay_p99_s": float(np.quantile(delays_s, 0.99)) if some else None,
                "jain": jain(run.flows_bps),
            }
        )
    frame = pl.DataFrame(rows, {**KEYS, **dict.fromkeys(METRICS, pl.Float64)})
    labels = {place: place for place in frame["point"].unique()}
    apart = not any(run.settings for run in runs)
    return SavedResult(path, runs[0].title, "", "", "flent", False, frame, labels, apart)


def jain(flows_bps: Sequence[float]) -> float | None:
    """Jain's index; None without flows."""
    squares = sum(flow**2 for flow in flows_bps)
    return sum(flows_bps) ** 2 / (len(flows_bps) * squares) if squares else None


def _place(settings: Mapping[str, object], label: str) -> str:
    """What a point sets, in base units: the same for the same point. One that sets nothing, as a
    direction of a link, goes by its label."""
    texts = []
    for key, value in settings.items():
        known = quantities.read(value)
        shown = f"{known[0]:.9g}" if known else quantities.toml(value)
        texts.append(f"{key} = {shown}")
    return ", ".join(texts) or label
