"""Options that several commands share, their shell completion, and tables on the terminal.

`forebay --install-completion` sets the shell up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli import declaration

if TYPE_CHECKING:
    from rich.console import Console

    from forebay._base.terminal_table import Cell, Column


def offered(place: str) -> Callable[[str], list[str]]:
    """Return a completion by the names in "MODULE:NAME", a collection or a function of one."""

    def complete(incomplete: str) -> list[str]:
        module, _, name = place.partition(":")
        names = getattr(import_module(module), name)
        offers = names() if callable(names) else names
        return sorted({offer for offer in offers if offer.startswith(incomplete)})

    return complete


#: Options that mean the same in every command that has them. The docstring of a command describes
#: those that have no help here (`declaration`).
ScenarioFile = Annotated[
    Path,
    typer.Argument(
        help="Scenario in TOML, or the name of an experiment, such as pi-pd/load; - reads standard "
        "input.",
        metavar="FILE",
    ),
]
ScenarioKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Set a key of the scenario, such as traffic.0.flows=100 or bottleneck.rate=20Mbit/s.",
        metavar="KEY=VALUE",
        autocompletion=offered("forebay.guide.explain:settable"),
    ),
]
#: Parameters of a law, or goals of a design.
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")]
#: `forebay link` calls it `--aqm`; every command takes both names.
Laws = Annotated[
    list[str] | None,
    typer.Option(
        "--law", "--aqm", metavar="LAW", autocompletion=offered("forebay._base.registries:laws")
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="Show these metrics in the table and on the page, such as queue_mean_pkts,jain.",
        metavar="A,B",
    ),
]
LawKind = Annotated[
    str,
    typer.Argument(
        help="A law of `forebay laws`.",
        metavar="LAW",
        autocompletion=offered("forebay._base.registries:laws"),
    ),
]
Packet = Annotated[str, typer.Option(help="Packet size of the flows.", metavar="SIZE")]
L4sFlows = Annotated[
    float,
    typer.Option(
        help="Number of long-lived L4S flows that share the link, under a coupled law (DualPI2, "
        "PI2).",
        metavar="N",
        show_default=False,
    ),
]
Tcp = Annotated[
    str,
    typer.Option(
        help="Congestion control of the flows: reno, linux-reno, cubic, dctcp or prague; with "
        "commas, one for each class of flows.",
        metavar="NAME",
        autocompletion=offered("forebay.control.senders:SENDERS"),
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        help="Engine: packets, fluid, kernel or link (docs/explanation/engines.md).",
        metavar="NAME",
        autocompletion=offered("forebay.experiment.engines:NAMES"),
    ),
]
Seeds = Annotated[int | None, typer.Option(help="Run with seeds 1 to N.", metavar="N")]
NoReport = Annotated[
    bool, typer.Option("--no-report", help="Write the tables, but no page and no figures.")
]
StoreAt = Annotated[
    str | None,
    typer.Option(
        help="Store of runs: a folder, or an address such as s3://bucket/runs. Without it, "
        "FOREBAY_STORE or results/.store.",
        metavar="DIR",
        parser=declaration.address,
    ),
]
Style = Annotated[
    str,
    typer.Option(
        help="Style of figures: screen, or paper or paper-wide for one or two columns of a paper, "
        "with PDF files.",
        metavar="NAME",
    ),
]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]
AtLeastOne = Annotated[int, typer.Option(min=1, metavar="N")]


@dataclass(frozen=True, kw_only=True)
class ScenarioOptions:
    """Values that replace those of a scenario.

    Attributes
    ----------
    law : LAW
        Run this law instead of the scenario's: its kind, its label, or FILE.py:CLASS for a law
        written in Python.
    """

    law: Laws = None
    set_: ScenarioKeys = None
    seeds: Seeds = None


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The folder and the form of a command's output.

    Attributes
    ----------
    as_json
        Print one JSON object and write no files unless --out is given.
    """

    out: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    as_json: bool = False
    style: Style = "screen"


@dataclass(frozen=True, kw_only=True)
class ReportOptions(OutputOptions):
    """The output of a command that writes a page.

    Attributes
    ----------
    force
        Replace the result of another command in the same folder.
    """

    force: bool = False
    open_: OpenPage = False


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """The store of runs.

    Attributes
    ----------
    no_store
        Rerun everything and store nothing.
    """

    store: StoreAt = None
    no_store: bool = False


@dataclass(frozen=True, kw_only=True)
class RunOptions(StoreOptions):
    """Threads and the store of runs.

    Attributes
    ----------
    threads : N
        Number of threads; all cores without it.
    """

    threads: Annotated[int | None, typer.Option(min=1)] = None


def open_page(page: Path) -> None:
    """Show a page in the user's browser; do nothing without a browser that has a window."""
    import webbrowser

    windows = sys.platform in ("darwin", "win32")
    # Without a display, Python would start a browser that takes over the terminal.
    if windows or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))):
        with suppress(webbrowser.Error, OSError):
            webbrowser.open(page.absolute().as_uri())


def settings(overrides: Sequence[str] | None) -> dict[str, str]:
    """Return KEY=VALUE options as a table."""
    from forebay._base import quantities

    return dict(quantities.set_pairs(overrides or ()))


def metric_names(texts: Sequence[str] | None) -> list[str]:
    """Return the names of `--metric`. Raises `ScenarioError`."""
    from forebay._base.metrics import check_metrics

    names = [name.strip() for text in texts or () for name in text.split(",")]
    check_metrics(names)
    return names


def print_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    *,
    width: int = 120,
    title: str = "",
    keys: int = 1,
) -> Console:
    """Print a table on `console(width)`.

    Parameters
    ----------
    columns, rows : sequence
        Columns, and the cells of each row.
    width : int
        Width where the terminal's is not known.
    title : str
        Title above the table.
    keys : int
        Number of first columns that name a row.

    Returns
    -------
    Console
        The console.
    """
    from forebay._base import terminal_table

    screen = console(width)
    terminal_table.show(screen, columns, [terminal_table.RowGroup(rows, title)], keys=keys)
    return screen


def print_indented(screen: Console, heading: str, lines: Sequence[str]) -> None:
    """Print lines to be copied below a heading, each unbroken; nothing without lines.

    Parameters
    ----------
    screen : Console
        Where they are printed.
    heading : str
        Line above them.
    lines : sequence of str
        Such as commands.
    """
    if lines:
        screen.print(heading)
        for line in lines:
            screen.print(f"    {line}", markup=False, soft_wrap=True)
        screen.print()


def console(width: int = 120) -> Console:
    """Return a console on standard output.

    Parameters
    ----------
    width : int
        Width in columns where neither a terminal nor COLUMNS gives one.

    Returns
    -------
    Console
        The console, without highlighting.
    """
    from rich.console import Console

    is_known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(width=None if is_known else width, highlight=False)
