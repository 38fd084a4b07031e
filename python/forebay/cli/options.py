"""Options that several commands have, what the shell offers for them, and what they read and show.

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

from forebay._base import quantities
from forebay.cli import declaration

if TYPE_CHECKING:
    from rich.console import Console

    from forebay._base.terminal_table import Cell, Column


def offered(place: str) -> Callable[[str], list[str]]:
    """Return the completion by names that a module has, or gives when called: "MODULE:NAME"."""

    def complete(incomplete: str) -> list[str]:
        module, _, name = place.partition(":")
        names = getattr(import_module(module), name)
        return sorted(
            {it for it in (names() if callable(names) else names) if it.startswith(incomplete)}
        )

    return complete


#: Options that mean the same in every command that has them; a command's docstring has its words
#: for those that have none here (`declaration`).
ScenarioFile = Annotated[
    Path,
    typer.Argument(
        help="Scenario in TOML, or an experiment of `forebay experiments`, such as pi-pd/load; - "
        "reads it from standard input.",
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
#: `forebay link` calls it `--aqm`, and either name does everywhere.
Laws = Annotated[
    list[str] | None,
    typer.Option(
        "--law", "--aqm", metavar="KIND", autocompletion=offered("forebay._base.registries:laws")
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="Show these in the table and on the page, as queue_mean_pkts,jain.",
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
Packet = Annotated[str, typer.Option(help="Usual size of a packet.")]
L4sFlows = Annotated[
    float,
    typer.Option(
        help="Long-lived scalable flows of L4S beside them, under a law that couples both classes "
        "(DualPI2, PI2).",
        show_default="none",
    ),
]
Tcp = Annotated[
    str,
    typer.Option(
        help="Sender of the flows: reno as published, linux-reno, cubic, dctcp or prague; one of "
        "each class of flows, such as cubic,reno, or one for all.",
        autocompletion=offered("forebay.control.senders:SENDERS"),
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        help="What makes the runs; docs/explanation/engines.md says what each is, can and costs.",
        metavar="NAME",
        autocompletion=offered("forebay.experiment.engines:NAMES"),
    ),
]
Seeds = Annotated[int | None, typer.Option(help="Run with seeds 1 to N.", metavar="N")]
NoReport = Annotated[
    bool, typer.Option("--no-report", help="Leave only the tables, no page and no figures.")
]
StoreAt = Annotated[
    str | None,
    typer.Option(
        help="Where runs are kept, a folder or an address such as s3://bucket/runs; FOREBAY_STORE, "
        "or else results/.store, if it is left out.",
        metavar="DIR",
        parser=declaration.address,
    ),
]
Style = Annotated[
    str,
    typer.Option(
        help="How figures look: screen; paper or paper-wide, one or two columns of a paper, with a "
        "PDF beside each PNG.",
        metavar="NAME",
    ),
]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]
AtLeastOne = Annotated[int, typer.Option(min=1, metavar="N")]


@dataclass(frozen=True, kw_only=True)
class ScenarioOptions:
    """Values that replace those of a scenario.

    law: Run this law instead of the file's: its kind or label, or FILE.py:CLASS for a prototype in
        Python.
    """

    law: Laws = None
    set_: ScenarioKeys = None
    seeds: Seeds = None


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Output of a command: its folder, and what it prints.

    as_json: Print one JSON object; files are written only with --out.
    """

    out: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    as_json: bool = False
    style: Style = "screen"


@dataclass(frozen=True, kw_only=True)
class ReportOptions(OutputOptions):
    """Output of a command that leaves a page, and replaces no other command's.

    force: Replace a result of another command in the same folder.
    """

    force: bool = False
    open_: OpenPage = False


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """The store of runs.

    no_store: Make every run anew, and keep none in the store.
    """

    store: StoreAt = None
    no_store: bool = False


@dataclass(frozen=True, kw_only=True)
class RunOptions(StoreOptions):
    """Threads and store of runs.

    threads N: Threads to run on; all cores by default.
    """

    threads: Annotated[int | None, typer.Option(min=1)] = None


def open_page(page: Path) -> None:
    """Show a page in the user's browser; do nothing where there is none with a window."""
    import webbrowser

    windows = sys.platform in ("darwin", "win32")
    # Without a display, Python would find a browser for the terminal, and take it over.
    if windows or any(os.environ.get(it) for it in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
        with suppress(webbrowser.Error, OSError):
            webbrowser.open(page.absolute().as_uri())


def settings(overrides: Sequence[str] | None) -> dict[str, str]:
    """Return KEY=VALUE options as a table."""
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
    """Print a table on `console(width)`, which is returned; `keys` columns name a row."""
    from forebay._base import terminal_table

    screen = console(width)
    terminal_table.show(screen, columns, [terminal_table.RowGroup(rows, title)], keys=keys)
    return screen


def print_indented(screen: Console, heading: str, lines: Sequence[str]) -> None:
    """Print lines to be copied below a heading, each whole on one line; nothing without lines."""
    if lines:
        screen.print(heading)
        for line in lines:
            screen.print(f"    {line}", markup=False, soft_wrap=True)
        screen.print()


def console(width: int = 120) -> Console:
    """Return standard output for tables, `width` columns wide where neither a terminal nor COLUMNS
    gives a width."""
    from rich.console import Console

    is_known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(width=None if is_known else width, highlight=False)
