"""The files of a result, written whole or not at all."""

from __future__ import annotations

import gc
import hashlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay._native import __version__
from forebay.report import place
from forebay.run import parquet
from forebay.run.experiment import Progress
from forebay.run.metrics import COST

if TYPE_CHECKING:
    from forebay._native import Observed, Plan, Run
    from forebay.run.experiment import Experiment
    from forebay.run.runs import Runs

REPORT = "report.html"
FIGURES = "figures"
NUMBERS, COSTS = "metrics.json", "costs.json"
TABLES = ["metrics", "samples", "delays", "flows"]
#: Tables that are written where they have rows.
DETAILS = ["classes", "class_delays", "transfers", "goodput"]
#: Every file that a result may have; a new one replaces or removes those of a former one.
NAMES = [REPORT, FIGURES, NUMBERS, COSTS, *(f"{it}.parquet" for it in TABLES + DETAILS)]


def write(result: Runs, out: str | os.PathLike[str], *, report: bool = True) -> None:
    """Writes the tables, and with `report` the page and the figures, to the directory `out`.

    It replaces or removes the files of a former result, and leaves other files in `out` alone.
    """
    place.check(out)
    write_tables(result, out)
    if report:
        write_report(result, out)


def write_tables(result: Runs, out: str | os.PathLike[str]) -> None:
    """Writes the numbers: what a result is, without its pictures. A former report goes."""
    with _written(Path(out).absolute(), NAMES) as temporary:
        for table in TABLES:
            parquet.write(getattr(result, table), temporary / f"{table}.parquet")
        for table in DETAILS:
            rows = getattr(result, table)
            if not rows.is_empty():
                parquet.write(rows, temporary / f"{table}.parquet")
        (temporary / NUMBERS).write_text(numbers(result))
        (temporary / COSTS).write_text(json.dumps(costs(result), indent=1) + "\n")


def write_report(
    result: Runs,
    out: str | os.PathLike[str],
    watch: Callable[[Progress], None] | None = None,
) -> None:
    """Draws the figures and writes the page beside the tables, which are there already.

    `watch` hears of the progress. An interruption keeps the figures that were drawn.
    """
    from forebay.report import moving
    from forebay.report import page as report

    with _written(Path(out).absolute(), [REPORT, FIGURES]) as temporary, _collected() as collect:
        figures = temporary / FIGURES
        figures.mkdir()
        start = time.monotonic()
        overviews, by_point = report.pictures(result)
        pictures = [*overviews, *(one for some in by_point.values() for one in some)]
        moves = moving.of(result, [(one.name, *one.kind) for one in pictures if one.kind])
        room = report.MOST_BYTES - len(moves.numbers)
        for done, picture in enumerate(pictures):
            if watch:
                elapsed_s = time.monotonic() - start
                watch(Progress(done / len(pictures), done, len(pictures), elapsed_s))
            named, svg = picture.render()
            collect()
            picture.svg = svg if len(svg) <= room else ""
            room -= len(picture.svg)
            for name, contents in named.items():
                (figures / name).write_bytes(contents)
        page = report.html(result, overviews, by_point, moves)
        (temporary / REPORT).write_text(page, encoding="utf-8")


@contextmanager
def _collected() -> Iterator[Callable[[], int]]:
    """Collects garbage only where it is told to. A figure is thousands of objects in cycles, among
    which Python looks for garbage again and again: a seventh of the drawing."""
    if not gc.isenabled():
        yield gc.collect
        return
    gc.disable()
    gc.freeze()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        gc.enable()


@contextmanager
def _written(path: Path, names: Sequence[str]) -> Iterator[Path]:
    """A directory beside `path`, whose files go there at its end, also where it is interrupted;
    what is not among its `names` is removed there."""
    made = _make_parents(path.parent)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        temporary.chmod(0o777 & ~_umask())
        yield temporary
        _publish(temporary, path, names)
    except KeyboardInterrupt:
        # Figures are whole files, of tables that are there.
        if FIGURES in names and NUMBERS not in names and any((temporary / FIGURES).glob("*")):
            _publish(temporary, path, names)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        # Innermost first: parents made for nothing are empty, others stay.
        for parent in reversed(made):
            if not any(parent.iterdir()):
                parent.rmdir()


def numbers(result: Runs) -> str:
    """The text of metrics.json."""
    return json.dumps(as_json(result), indent=1) + "\n"


def as_json(result: Runs) -> dict[str, Any]:
    """The whole of metrics.json."""
    plan = result.plan
    return {
        "forebay": __version__,
        "title": plan.title,
        "source": plan.source,
        "command": result.experiment.command,
        "inputs": inputs(result.experiment),
        "partial": result.partial,
        "runs": [
            {
                "law": plan.laws[run.law],
                "point": plan.points[run.point].label,
                "settings": plan.points[run.point].settings,
                "seed": run.seed,
                **_metrics(run),
            }
            for run in result.runs
        ],
    }


def inputs(experiment: Experiment) -> str:
    """A hash of the scenario and of the files that it names; the command has the rest."""
    whole = json.dumps([experiment.text, experiment.files], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()


def has_more(out: Path, result: Runs) -> bool:
    """Whether `out` already has more runs of the same inputs, which are the same bit by bit."""
    try:
        former = json.loads((out / NUMBERS).read_bytes())
        return (
            former["command"] == result.experiment.command
            and former["inputs"] == inputs(result.experiment)
            and former["forebay"] == __version__
            and len(former["runs"]) > len(result.runs)
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def costs(result: Runs) -> dict[str, Any]:
    """The whole of costs.json: what differs from call to call."""
    plan = result.plan
    return {
        "elapsed_s": result.elapsed_s,
        "runs": [
            {
                "law": plan.laws[run.law],
                "point": plan.points[run.point].label,
                "seed": run.seed,
                COST: run.metrics[COST],
            }
            for run in result.runs
        ],
    }


def line(plan: Plan, run: Run) -> str:
    """A run as one line of JSON, as `forebay run --json` prints it."""
    return json.dumps(
        {
            "law": plan.laws[run.law],
            "point": plan.points[run.point].label,
            "seed": run.seed,
            **_metrics(run),
            "costs": {COST: run.metrics[COST]},
        }
    )


def _metrics(run: Run) -> dict[str, Any]:
    """Metrics of the bottleneck and of its classes, and by name those of other links."""
    links = {other.link: finite(other.metrics) for other in run.others}
    of_links = {other.link: _classes(other) for other in run.others if other.classes}
    found: dict[str, Any] = {"metrics": finite(run.metrics)}
    if run.classes:
        found["classes"] = _classes(run)
    if links:
        found["links"] = links
    if of_links:
        found["link_classes"] = of_links
    return found


def _classes(observed: Observed) -> dict[str, dict[str, float | None]]:
    return {one.name: finite(one.metrics) for one in observed.classes}


def finite(metrics: dict[str, float]) -> dict[str, float | None]:
    """Metrics without costs. JSON has no NaN: a metric that does not apply is null."""
    return {
        name: value if math.isfinite(value) else None
        for name, value in metrics.items()
        if name != COST
    }


def _publish(temporary: Path, path: Path, names: Sequence[str]) -> None:
    """Moves the files to their place: at once if it is free, else name by name."""
    if not path.exists():
        temporary.rename(path)
        return
    for name in names:
        old, new = path / name, temporary / name
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        elif not new.exists():
            old.unlink(missing_ok=True)
        if new.exists():
            new.rename(old)


def _make_parents(directory: Path) -> list[Path]:
    """Makes a directory with its parents, and returns those that are new, outermost first."""
    new = [path for path in [directory, *directory.parents] if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    return new[::-1]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
