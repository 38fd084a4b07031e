"""The files of a result, which are published whole or not at all.

A run's line of JSON needs neither polars nor the tables, which are loaded where they are used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay._base import quantities
from forebay._base.metrics import COST
from forebay._base.progress import Progress
from forebay._base.publication import check_folder, publish
from forebay._native import __version__
from forebay.experiment import descriptions, steady_state
from forebay.report.sheet import FIGURES, Sheet

if TYPE_CHECKING:
    import polars as pl

    from forebay._base.publication import Content
    from forebay._native import Observed, Plan, PointInfo, Run
    from forebay.experiment.experiment import Experiment
    from forebay.experiment.result import Result
    from forebay.experiment.table import LawDifference
    from forebay.report.pages import ReportFigures

REPORT = "report.html"
NUMBERS, COSTS = "metrics.json", "costs.json"
TABLES = ["metrics", "samples", "delays", "flows"]
#: Files of the differences between laws, if two laws have two seeds in common.
DIFFERENCES_CSV, DIFFERENCES_TEX = "differences.csv", "differences.tex"
#: Tables that are written only if they have rows.
DETAILS = ["classes", "class_delays", "traffic", "transfers", "goodput"]
#: The name in tables of all points together.
ALL_POINTS = "all points"
#: Number of figures from which `write_report` starts processes, if it was given none.
MANY_FIGURES = 8
#: Folders of files that runs leave besides their traces: the output of programs, and captures.
EXTRAS = ["programs", "pcap"]
#: Every file that a result may have; a new result replaces or removes those of a former one.
NAMES = [REPORT, FIGURES, NUMBERS, COSTS, *(f"{name}.parquet" for name in TABLES + DETAILS)]
NAMES += [*EXTRAS, DIFFERENCES_CSV, DIFFERENCES_TEX]


def write_all(result: Result, out: str | os.PathLike[str], *, report: bool = True) -> None:
    """Write the tables of a result, and its report.

    Files of a former result are replaced or removed; other files in the directory are left alone.

    Parameters
    ----------
    result : Result
        The result.
    out : str | os.PathLike[str]
        The directory.
    report : bool, default True
        False to write only the tables.
    """
    check_folder(out)
    write_tables(result, out)
    if report:
        write_report(result, out)


def write_metrics(result: Result, out: str | os.PathLike[str]) -> None:
    """Write the metrics of every run, which takes a moment however many there are.

    `write_tables` adds everything that takes longer. Files of a former result are removed.

    Parameters
    ----------
    result : Result
        The result.
    out : str | os.PathLike[str]
        The directory.
    """
    publish(
        out,
        {"metrics.parquet": result.metrics, NUMBERS: as_json(result), COSTS: costs(result)},
        replaces=NAMES,
    )


def write_tables(result: Result, out: str | os.PathLike[str]) -> None:
    """Write the tables of a result. A former report is removed.

    Parameters
    ----------
    result : Result
        The result.
    out : str | os.PathLike[str]
        The directory.
    """
    tables = {name: getattr(result, name) for name in TABLES + DETAILS}
    contents = {
        f"{name}.parquet": table
        for name, table in tables.items()
        if name in TABLES or not table.is_empty()
    }
    contents |= {name: files for name in EXTRAS if (files := _extras(result, name))}
    contents |= _differences(result)
    publish(out, {**contents, NUMBERS: as_json(result), COSTS: costs(result)}, replaces=NAMES)


def difference_files(
    together: Sequence[LawDifference], frame: pl.DataFrame | None = None
) -> dict[str, Content]:
    """Return the differences between laws as CSV and LaTeX; nothing if there are none.

    Parameters
    ----------
    together : sequence of LawDifference
        Differences over all points together.
    frame : DataFrame, optional
        The table for CSV. By default these differences.
    """
    if not together:
        return {}
    from forebay.report import tables

    if frame is None:
        frame = tables.differences_frame(together, {})
    table = tables.differences_table(together, {})
    return {DIFFERENCES_CSV: frame, DIFFERENCES_TEX: tables.latex(table, tables.DIFFERENCES_NOTE)}


def _differences(result: Result) -> dict[str, Content]:
    """Return the files of differences; of several points the CSV has each and all together."""
    at_points, points = result.law_differences, [point.label for _, point in result.points()]
    if not at_points:
        return {}
    from forebay.report import tables

    names: dict[Any, str] = {(): ALL_POINTS, **{(label,): label for label in points}}
    several = len(points) > 1
    together = result.overall_differences if several else at_points
    rows = [*together, *at_points] if several else at_points
    return difference_files(together, tables.differences_frame(rows, names))


def _extras(result: Result, folder: str) -> Callable[[Path], None] | None:
    """Return a function that writes the files of runs into one folder of the result."""
    files = [file for extras in result.extras.values() for file in extras.files.items()]
    files_of_folder = [(name, where) for name, where in files if Path(name).parent.name == folder]

    def write_files(path: Path) -> None:
        path.mkdir()
        for name, where in files_of_folder:
            shutil.copyfile(where, path / Path(name).name)

    return write_files if files_of_folder else None


def _programs(result: Result) -> list[dict[str, Any]]:
    """Return the outcomes of a scenario's programs for metrics.json."""
    plan = result.plan
    return [
        {
            "law": plan.laws[law],
            "point": plan.points[point].label,
            "seed": seed,
            **asdict(program),
        }
        for (point, law, seed), extras in sorted(result.extras.items())
        for program in extras.programs
    ]


def write_report(
    result: Result,
    out: str | os.PathLike[str],
    watch: Callable[[Progress], None] | None = None,
    figures: ReportFigures | None = None,
) -> None:
    """Draw the figures, and write the page next to the tables, which exist already.

    Parameters
    ----------
    result : Result
        The result.
    out : path
        Folder of the result.
    watch : callable, optional
        Called with the progress of the figures. An interruption keeps those that were drawn.
    figures : ReportFigures, optional
        The figures, if processes draw them already.
    """
    from forebay.report import pages
    from forebay.report.drawing_pool import DrawingPool
    from forebay.report.moving import moving_figures

    with DrawingPool() as pool:
        if figures is None:
            figures = pages.report_figures(result)
            if len(figures.every) >= MANY_FIGURES and pool.start(len(figures.every)):
                figures.begin(pool)
        contents = {figure.name: figure.content for figure in figures.every}
        moving = moving_figures(
            {name: sheet for name, sheet in contents.items() if isinstance(sheet, Sheet)}
        )
        pages.publish_page(
            Path(out) / REPORT,
            "report.html.j2",
            figures.every,
            watch,
            room=pages.MOST_BYTES - len(moving.numbers),
            replaces=[REPORT, FIGURES],
            **pages.page_values(result, figures, moving),
        )


def is_current(result: Result, out: Path) -> bool:
    """Return True if the directory has the tables and the page of these numbers.

    The page must also be newer than this code. Drawing takes longer than most runs, so a
    current page is not drawn again.

    Parameters
    ----------
    result : Result
        The result.
    out : Path
        The directory.
    """
    try:
        if (out / NUMBERS).read_text() != numbers(result):
            return False
        if not all((out / f"{table}.parquet").exists() for table in TABLES):
            return False
        return (out / REPORT).stat().st_mtime > _newest_code()
    except OSError:
        return False


def _newest_code() -> float:
    """Return the time of the package's last change: an older page may look different now."""
    package = Path(__file__).parents[1]
    endings = {".py", ".so", ".j2", ".js", ".css"}
    return max(file.stat().st_mtime for file in package.rglob("*") if file.suffix in endings)


def numbers(result: Result) -> str:
    """Return the text of metrics.json."""
    return json.dumps(as_json(result), indent=1) + "\n"


def as_json(result: Result) -> dict[str, Any]:
    """Return the contents of metrics.json."""
    plan = result.plan
    programs = _programs(result)
    return {
        "forebay": __version__,
        "uses": _uses(plan),
        "title": plan.title,
        "source": plan.source,
        "engine": result.experiment.made_by,
        "command": result.experiment.command,
        "digest": result.experiment.digest,
        "inputs": inputs(result.experiment),
        "partial": result.partial,
        **({"shown": list(result.chosen_metrics)} if result.chosen_metrics else {}),
        **({"same_run": same} if (same := _same_runs(result)) else {}),
        "runs": [
            {
                "law": plan.laws[run.law],
                "point": plan.points[run.point].label,
                "settings": plan.points[run.point].settings,
                "seed": run.seed,
                **_metrics(plan, run),
            }
            for run in result.runs
        ],
        **({"programs": programs} if programs else {}),
        **_remarks(plan.points),
    }


def remarks(points: Sequence[PointInfo]) -> list[str]:
    """Return sentences on omitted parts of the files that points read, each once."""
    texts = (text for info in points for text in descriptions.file_remarks(info))
    return list(dict.fromkeys(texts))


def _remarks(points: Sequence[PointInfo]) -> dict[str, list[str]]:
    """Return `remarks` as a key of JSON, if there are any."""
    texts = remarks(points)
    return {"remarks": texts} if texts else {}


def _same_runs(result: Result) -> list[dict[str, Any]]:
    """Return the laws and points whose seeds all gave the same run, with the number of seeds."""
    return [
        {"law": result.plan.laws[i], "point": point.label, "seeds": len(runs)}
        for p, point in result.points()
        for i, _ in result.laws(p)
        if steady_state.seeds_change_nothing(runs := result.runs_of(p, i))
    ]


def _uses(plan: Plan) -> list[str]:
    """Return the laws, queues, traffic and senders that ran, by their names in the registries."""
    every = [law for point in plan.points for law in point.laws]
    every += [link.law for point in plan.points for link in point.links if link.law]
    traffic = [component for point in plan.points for component in point.traffic]
    names = [name for law in every for name in (law.kind, law.queue)]
    names += [name for component in traffic for name in (component.kind, component.tcp)]
    return sorted({name for name in names if name})


def inputs(experiment: Experiment) -> str:
    """Return a hash of the scenario and of the files that it names; the command has the rest."""
    whole = json.dumps([experiment.text, experiment.files], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()


def has_more(out: Path, result: Result) -> bool:
    """Return True if the directory has more runs of the same inputs, which are the same bit by bit.

    Parameters
    ----------
    out : Path
        The directory.
    result : Result
        The result.
    """
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


def costs(result: Result) -> dict[str, Any]:
    """Return the contents of costs.json: everything that differs from call to call."""
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


def line(plan: Plan, run: Run, engine: str, metric_names: Sequence[str] = ()) -> str:
    """Return a run as one line of JSON, as `forebay run --json` prints it.

    Parameters
    ----------
    plan : Plan
        The plan of the experiment.
    run : Run
        The run.
    engine : str
        Name of the engine that made the run.
    metric_names : Sequence[str], default ()
        Metrics to include for the bottleneck and other links; all by default.
    """
    numbers = _metrics(plan, run)
    if metric_names:
        of_links = [numbers["metrics"], *numbers.get("links", {}).values()]
        for metrics in of_links:
            for name in metrics.keys() - set(metric_names):
                del metrics[name]
    return json.dumps(
        {
            "law": plan.laws[run.law],
            "point": plan.points[run.point].label,
            "seed": run.seed,
            "engine": engine,
            **numbers,
            "costs": {COST: run.metrics[COST]},
            **_remarks(plan.points[run.point : run.point + 1]),
        }
    )


def _metrics(plan: Plan, run: Run) -> dict[str, Any]:
    """Return the metrics of the link under test, of its classes and traffic, and of other links.

    Empty groups are omitted.
    """
    labels = [traffic.label for traffic in plan.points[run.point].traffic]

    def classes(link: Observed) -> dict[str, Any]:
        return {class_.name: finite(class_.metrics) for class_ in link.classes}

    def traffic(link: Observed) -> dict[str, Any]:
        return {labels[traffic_.traffic]: finite(traffic_.metrics) for traffic_ in link.traffic}

    tested, *untested = run.links
    groups = {
        "classes": classes(tested),
        "traffic": traffic(tested),
        "links": {link.link: finite(link.metrics) for link in untested},
        "link_classes": {link.link: of for link in untested if (of := classes(link))},
        "link_traffic": {link.link: of for link in untested if (of := traffic(link))},
    }
    return {"metrics": finite(run.metrics), **{key: of for key, of in groups.items() if of}}


def finite(metrics: dict[str, float]) -> dict[str, float | None]:
    """Return metrics without costs. JSON has no NaN: a metric that does not apply is null."""
    values: dict[str, float | None] = quantities.finite(metrics)
    return {name: value for name, value in values.items() if name != COST}
