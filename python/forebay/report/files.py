"""The files of a result, written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay._native import ScenarioError, __version__

if TYPE_CHECKING:
    from forebay._native import Observed, Plan, Run
    from forebay.run.runs import Runs

REPORT = "report.html"
FIGURES = "figures"
TABLES = ["metrics", "samples", "delays", "flows"]
#: Tables that are written where they have rows.
DETAILS = ["classes", "class_delays", "transfers", "goodput"]
#: Every file that a result may have; a new one replaces or removes those of a former one.
NAMES = [REPORT, FIGURES, "metrics.json", *(f"{it}.parquet" for it in TABLES + DETAILS)]


def check(out: str | os.PathLike[str], option: str = "--out") -> None:
    """Refuses a directory that cannot be written to, before the time is spent.

    `option` is its name in errors. Raises `ScenarioError`.
    """

    def refuse(found: str, allowed: str) -> ScenarioError:
        return ScenarioError(f'{option}: found "{out}", {found}, allowed: {allowed}')

    path = Path(out).absolute()
    try:
        if path.exists() and not path.is_dir():
            raise refuse("a file", "a directory, new or not")
        existing = next(parent for parent in [path, *path.parents] if parent.exists())
        # Permissions prove nothing: root has all of them, and cannot write in /proc.
        with tempfile.TemporaryDirectory(prefix=".forebay-", dir=existing):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise refuse(reason, "a directory that can be written to") from error


def check_file(path: Path, option: str) -> None:
    """Refuses a file that cannot be written, before the time is spent.

    `option` is its name in errors. Raises `ScenarioError`.
    """
    new = not path.exists()
    try:
        # Permissions prove nothing: root has all of them.
        with path.open("ab"):
            pass
        if new:
            path.unlink()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ScenarioError(
            f'{option}: found "{path}", {reason}, allowed: a file that can be written, in a '
            "directory that exists"
        ) from error


def write(result: Runs, out: str | os.PathLike[str], *, report: bool = True) -> None:
    """Writes the tables, and with `report` the page and the figures, to the directory `out`.

    It writes to a directory beside `out` first. It replaces or removes the files of a former
    result, and leaves other files in `out` alone.
    """
    check(out)
    path = Path(out).absolute()
    made = _make_parents(path.parent)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        temporary.chmod(0o777 & ~_umask())
        for table in TABLES:
            getattr(result, table).write_parquet(temporary / f"{table}.parquet")
        for table in DETAILS:
            rows = getattr(result, table)
            if not rows.is_empty():
                rows.write_parquet(temporary / f"{table}.parquet")
        (temporary / "metrics.json").write_text(json.dumps(as_json(result), indent=1) + "\n")
        if report:
            _write_report(result, temporary)
        _publish(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        # Innermost first: parents made for nothing are empty, others stay.
        for parent in reversed(made):
            if not any(parent.iterdir()):
                parent.rmdir()


def as_json(result: Runs) -> dict[str, Any]:
    """The whole of metrics.json."""
    plan = result.plan
    return {
        "forebay": __version__,
        "title": plan.title,
        "source": plan.source,
        "command": result.experiment.command,
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


def line(plan: Plan, run: Run) -> str:
    """A run as one line of JSON, as `forebay run --json` prints it."""
    return json.dumps(
        {
            "law": plan.laws[run.law],
            "point": plan.points[run.point].label,
            "seed": run.seed,
            **_metrics(run),
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
    """JSON has no NaN: a metric that does not apply is null."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def _write_report(result: Runs, directory: Path) -> None:
    from forebay.report import page as report

    overviews, by_point = report.pictures(result)
    page = report.html(result, overviews, by_point)
    (directory / REPORT).write_text(page, encoding="utf-8")
    (directory / FIGURES).mkdir()
    for picture in [*overviews, *(one for some in by_point.values() for one in some)]:
        (directory / FIGURES / f"{picture.name}.png").write_bytes(picture.figure.png())


def _publish(temporary: Path, path: Path) -> None:
    """Moves the files to their place: at once if it is free, else name by name."""
    if not path.exists():
        temporary.rename(path)
        return
    for name in NAMES:
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
