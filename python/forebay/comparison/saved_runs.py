"""Saved runs as tables: results of Forebay, data files of flent, and runs of a reference."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from forebay._base import input_file, quantities
from forebay._base.errors import FormatError, plain, reason_of
from forebay._base.metrics import METRICS
from forebay._base.publication import publish_file
from forebay._native import ScenarioError
from forebay.campaign.study_files import FACTS, FRAME, HASHES
from forebay.experiment import flent
from forebay.experiment.engines import PACKETS
from forebay.experiment.flent import FlentRun
from forebay.report.result_files import NUMBERS

#: Columns that identify a run, before the metrics.
KEYS = {"law": pl.String, "point": pl.String, "seed": pl.UInt64}


#: Largest file of numbers in JSON that is read.
MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class SavedResult:
    """A folder that `forebay run` or `forebay study` has written, or data files of flent.

    Attributes
    ----------
    folder : Path
        The folder, or the data file of flent.
    title, command, version : str
        Title, command line, and version of Forebay; empty if they are unknown.
    engine : str
        Name of the engine that made the runs.
    partial : bool
        True if some of the runs are missing.
    rows : DataFrame
        A row for each run: law, point, seed, and the metrics of the bottleneck.
    labels : mapping
        Points as the scenario writes them, by the points of the rows, which are the same for
        "100ms" and "0.1s".
    apart : bool
        True if the points are the directions of a link, whose mean has no meaning.
    remarks : sequence of str
        Remarks on the files for the reader of the numbers.
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
    remarks: Sequence[str] = ()

    @property
    def laws(self) -> list[str]:
        """Labels of the laws, in the order of their first runs."""
        return self.rows["law"].unique(maintain_order=True).to_list()

    @property
    def points(self) -> list[str]:
        """Labels of the points, in the order of their first runs."""
        return self.rows["point"].unique(maintain_order=True).to_list()


def read_result(folder: str | os.PathLike[str]) -> SavedResult:
    """Read the metrics of a saved result.

    Raises
    ------
    ScenarioError
        If the folder has no result, or its files are damaged.
    """
    path = Path(folder)
    if files := _flent_files(path):
        return _of_flent(path, [flent.read(file) for file in files])
    is_study = (path / FRAME).is_file()
    if not is_study and not (path / NUMBERS).is_file():
        endings = ", ".join(flent.SUFFIXES)
        raise ScenarioError(
            f"compare: {input_file.printable(path)} has no result; expected a folder that forebay "
            f"run or forebay study has written, with {NUMBERS} or {FRAME}, or data files of flent "
            f"({endings})"
        )
    names, command = ([FACTS, FRAME], "study") if is_study else ([NUMBERS], "run")
    try:
        return _checked(_of_study(path) if is_study else _of_run(path))
    # A table in Parquet may hold any type in place of a number.
    except (FormatError, pl.exceptions.PolarsError, TypeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ScenarioError(
            f"{input_file.printable(path)}: is not a result of forebay {command}, or is damaged "
            f"({', '.join(names)}): {plain(reason)}"
        ) from error


def _checked(result: SavedResult) -> SavedResult:
    """Return a result whose numbers can be compared. Raises `FormatError` for any other."""
    rows = result.rows
    if rows.is_empty():
        raise FormatError("it has no runs")
    if rows.select(pl.any_horizontal(pl.col(list(KEYS)).is_null().any())).item():
        raise FormatError("a run lacks its law, its point or its seed")
    if rows.select(list(KEYS)).is_duplicated().any():
        raise FormatError("two runs have the same law, point and seed")
    largest = rows.select(
        pl.max_horizontal(pl.col(list(METRICS)).fill_nan(None).abs().max())
    ).item()
    if largest is not None and not largest <= input_file.LARGEST:
        raise FormatError("a metric is out of range")
    return result


def _document(path: Path) -> Mapping[str, Any]:
    data = input_file.read(path, MOST_BYTES)
    return input_file.parse_json(input_file.text(data, input_file.printable(path)))


def _of_run(path: Path) -> SavedResult:
    document = _document(path / NUMBERS)
    columns: dict[str, list[Any]] = {name: [] for name in (*KEYS, *METRICS)}
    labels = {}
    apart = True
    for i, item in enumerate(input_file.rows(document.get("runs"), "runs"), 1):
        run = input_file.table(item, f"run {i}")
        metrics = input_file.table(run.get("metrics"), f"metrics of run {i}")
        label = input_file.text_value(run.get("point"), f"point of run {i}")
        settings = input_file.settings(run.get("settings"))
        apart = apart and not settings
        place = _place(settings, label)
        labels[place] = label
        columns["law"].append(input_file.text_value(run.get("law"), f"law of run {i}"))
        columns["point"].append(place)
        columns["seed"].append(input_file.seed(run.get("seed")))
        for name in METRICS:
            value = input_file.optional_number(metrics.get(name), f"{name} of run {i}")
            columns[name].append(value)
    rows = pl.DataFrame(columns, {**KEYS, **dict.fromkeys(METRICS, pl.Float64)})
    return SavedResult(path, *_facts(document), rows, labels, apart)


def _facts(document: Mapping[str, Any]) -> tuple[str, str, str, str, bool]:
    """Return title, command, version and engine, and True if runs are missing."""
    title, command, version = (
        input_file.text_value(document.get(key), key) for key in ("title", "command", "forebay")
    )
    engine = input_file.optional_text(document.get("engine"), "engine") or PACKETS.name
    return title, command, version, engine, input_file.flag(document.get("partial"), "partial")


def _of_study(path: Path) -> SavedResult:
    document = _document(path / FACTS)
    frame = _frame(path / FRAME, document)
    missing = {"law", "seed", "link", "point"} - set(frame.columns)
    if missing:
        raise FormatError(f"it has no column {', '.join(sorted(missing))}")
    axes = frame.columns[frame.columns.index("law") + 1 : frame.columns.index("seed")]
    bottleneck = frame["link"].cast(pl.String)[0] if frame.height else ""
    frame = frame.filter(pl.col("link").cast(pl.String) == bottleneck)
    # All rows of a point have the same settings.
    settings = frame.select("point", *axes).unique("point", maintain_order=True)
    places = {
        row["point"]: _place({key: row[key] for key in axes}, "") for row in settings.to_dicts()
    }
    rows = frame.select(
        pl.col("law").cast(pl.String),
        pl.col("point").replace_strict(places, return_dtype=pl.String),
        pl.col("seed").cast(pl.UInt64),
        *(
            (pl.col(name) if name in frame.columns else pl.lit(None).alias(name)).cast(pl.Float64)
            for name in METRICS
        ),
    )
    labels = {place: place for place in places.values()}
    return SavedResult(path, *_facts(document), rows, labels)


def _frame(file: Path, facts: Mapping[str, Any]) -> pl.DataFrame:
    """Return the table of a study. Raises `FormatError` if it differs from the one written."""
    expected_hash = input_file.optional_table(facts.get(HASHES), HASHES).get(FRAME)
    if expected_hash is not None:
        try:
            with file.open("rb") as contents:
                actual = hashlib.file_digest(contents, "sha256").hexdigest()
        except OSError as error:
            raise FormatError(reason_of(error)) from error
        if actual != expected_hash:
            raise FormatError(f"its contents are not those that {FACTS} describes (SHA-256)")
    return input_file.read_parquet(file, sound=expected_hash is not None)


def _flent_files(path: Path) -> list[Path]:
    """Return a data file of flent, or those of a folder without a result of Forebay."""
    if path.is_file():
        return [path]
    if not path.is_dir() or (path / FRAME).exists() or (path / NUMBERS).exists():
        return []
    return sorted(file for file in path.iterdir() if file.name.endswith(flent.SUFFIXES))


def _of_flent(path: Path, runs: list[FlentRun]) -> SavedResult:
    """Return delay and goodput of data files of flent.

    The files of each law and point are numbered where they have no seed.
    """
    counts: Counter[tuple[str, str]] = Counter()
    rows = []
    for run in runs:
        place = _place(run.settings, run.point)
        counts[run.law, place] += 1
        delays_s = run.delays_s
        has_delays = len(delays_s) > 0
        rows.append(
            {
                "law": run.law,
                "point": place,
                "seed": counts[run.law, place] if run.seed is None else run.seed,
                "goodput_bps": None if math.isnan(run.goodput_bps) else run.goodput_bps,
                "delay_mean_s": round(float(delays_s.mean()), 12) if has_delays else None,
                "delay_p95_s": round(float(np.quantile(delays_s, 0.95)), 12)
                if has_delays
                else None,
                "delay_p99_s": round(float(np.quantile(delays_s, 0.99)), 12)
                if has_delays
                else None,
                "jain": jain(run.flows_bps),
            }
        )
    frame = pl.DataFrame(rows, {**KEYS, **dict.fromkeys(METRICS, pl.Float64)})
    if (twice := frame.filter(frame.select(list(KEYS)).is_duplicated())).height:
        law, point, seed, *_ = twice.row(0)
        raise ScenarioError(
            f"compare: {input_file.printable(path)} has two files of the same run: {law}"
            f"{f', {point}' if point else ''}, seed {seed}"
        )
    labels = {place: place for place in frame["point"].unique()}
    apart = not any(run.settings for run in runs)
    remarks = _remarks([run.remarks for run in runs])
    title = runs[0].title
    return SavedResult(path, title, "", "", "flent", False, frame, labels, apart, remarks)


def _remarks(of_files: Sequence[Sequence[str]]) -> list[str]:
    """Return each remark once, with the number of its files unless it concerns all."""
    counts = Counter(remark for remarks in of_files for remark in dict.fromkeys(remarks))
    total = len(of_files)
    return [
        remark if count == total else f"{remark} ({count} of {total} files)"
        for remark, count in counts.items()
    ]


def jain(flows_bps: Sequence[float]) -> float | None:
    """Return Jain's index; None without flows."""
    squares = sum(flow**2 for flow in flows_bps)
    return sum(flows_bps) ** 2 / (len(flows_bps) * squares) if squares else None


def _place(settings: Mapping[str, object], label: str) -> str:
    """Return the settings of a point in base units, or its label if it sets nothing.

    The text is the same for "100ms" and "0.1s"; a direction of a link sets nothing.
    """
    texts = []
    for key, value in settings.items():
        number = quantities.read(value)
        text = f"{number[0]:.9g}" if number else quantities.toml(value)
        texts.append(f"{key} = {text}")
    return ", ".join(texts) or label


@dataclass(frozen=True)
class KeptRuns:
    """Runs of a reference, such as real Linux, in a CSV file with a line for each run.

    Attributes
    ----------
    path : Path
        The file; it need not exist.
    cell : mapping
        Columns that identify a cell, with their types.
    values : sequence of str
        Columns of the measured numbers.
    """

    path: Path
    cell: Mapping[str, type[pl.DataType]]
    values: Sequence[str]

    @property
    def schema(self) -> pl.Schema:
        """Every column, with `seed` between the cell and the values."""
        columns: dict[str, type[pl.DataType]] = {**self.cell, "seed": pl.Int64}
        return pl.Schema(columns | dict.fromkeys(self.values, pl.Float64))

    def read(self) -> pl.DataFrame:
        """Return the runs; none if there is no file."""
        if not self.path.exists():
            return pl.DataFrame(schema=self.schema)
        return pl.read_csv(self.path, schema=self.schema)

    def add(self, runs: pl.DataFrame) -> None:
        """Add runs, in six significant digits, which suffice for any relevant difference.

        A run replaces the former run of the same cell and seed. Cells keep their order, and seeds
        ascend within a cell.
        """
        both = pl.concat([self.read(), runs.select(*self.schema).cast(self.schema)])
        both = both.with_row_index("row").with_columns(pl.col("row").min().over(*self.cell))
        both = both.unique(["row", "seed"], keep="last").sort("row", "seed").drop("row")
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.schema)
        for run in both.iter_rows():
            writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else cell for cell in run)
        publish_file(self.path, text.getvalue())
