"""What several commands read and show."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from forebay.base import quantities
from forebay.cli import completion

if TYPE_CHECKING:
    from rich.console import Console
    from typer.models import OptionInfo

#: Exit status of a command that failed, and of one whose input is at fault, as a law in Python may
#: be; `forebay.base.signals.status` has that of a stopped one.
FAILED, BAD_INPUT = 1, 2


def buffer(default: str) -> OptionInfo:
    """`--buffer` of a command that takes `default` without it."""
    text = f"Buffer size in packets, such as 500p; {default} if it is left out."
    return cast("OptionInfo", typer.Option(help=text, show_default=False))


Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="Show these in the table and on the page, as queue_mean_pkts,jain.",
        metavar="A,B",
    ),
]


def metrics(given: Sequence[str] | None) -> list[str]:
    """The names of `--metric`. Raises `ScenarioError`."""
    from forebay.base.metrics import check_metrics

    names = [name.strip() for some in given or () for name in some.split(",")]
    check_metrics(names, key="--metric")
    return names


def folder(what: str, default: str) -> str:
    """What `--out` is, of a command that writes `what`."""
    return f"Folder for {what}; {default} if it is left out."


def sets(what: str) -> OptionInfo:
    """`--set`, which may be given several times."""
    text = f"{what} May be given several times."
    return cast("OptionInfo", typer.Option("--set", help=text, metavar="KEY=VALUE"))


def laws(what: str, metavar: str = "KIND") -> OptionInfo:
    """`--law`, which may be given several times; `forebay link` calls it `--aqm`, and either name
    does everywhere."""
    text = f"{what} May be given several times."
    return cast(
        "OptionInfo",
        typer.Option("--law", "--aqm", help=text, metavar=metavar, autocompletion=completion.laws),
    )


#: Options that mean the same in every command that has them.
ScenarioFile = Annotated[
    Path,
    typer.Argument(
        help="Scenario in TOML, or an experiment of `forebay experiments`, such as pi-pd/load; - "
        "reads it from standard input.",
        metavar="FILE",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace a result of another command in the same folder.")
]
ScenarioKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Set a key of the scenario, such as traffic.0.flows=100 or bottleneck.rate=20Mbit/s. "
        "May be given several times.",
        metavar="KEY=VALUE",
        autocompletion=completion.settings,
    ),
]
LawKind = Annotated[
    str,
    typer.Argument(help="A law of `forebay laws`.", metavar="LAW", autocompletion=completion.laws),
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
        autocompletion=completion.senders,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object; files are written only with --out."),
]
NoReport = Annotated[
    bool, typer.Option("--no-report", help="Leave only the tables, no page and no figures.")
]
StoreAt = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Where runs are kept, a folder or an address such as s3://bucket/runs; FOREBAY_STORE, "
        "or else results/.store, if it is left out.",
        metavar="DIR",
        show_default=False,
    ),
]
NoStore = Annotated[
    bool, typer.Option("--no-store", help="Make every run anew, and keep none in the store.")
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
Threads = Annotated[
    int | None,
    typer.Option(help="Threads to run on; all cores by default.", min=1, metavar="N"),
]


Seeds = Annotated[
    int | None, typer.Option(help="Run with seeds 1 to N.", metavar="N", show_default=False)
]


# Groups of options: a command takes one as a parameter (`groups`).
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where a command writes, and what it prints."""

    out: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    as_json: AsJson = False
    style: Style = "screen"


@dataclass(frozen=True, kw_only=True)
class ReportOptions(OutputOptions):
    """As `OutputOptions`, of a command that leaves a page, and replaces no other command's."""

    force: Force = False
    open_: OpenPage = False


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How runs are made, and where they are kept."""

    threads: Threads = None
    store: StoreAt = None
    no_store: NoStore = False


def open_page(page: Path) -> None:
    """Shows a page in the user's browser; does nothing where there is none with a window."""
    import webbrowser

    windows = sys.platform in ("darwin", "win32")
    # Without a display, Python would find a browser for the terminal, and take it over.
    if windows or any(os.environ.get(one) for one in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
        with suppress(webbrowser.Error, OSError):
            webbrowser.open(page.absolute().as_uri())


def settings(sets: Sequence[str] | None) -> dict[str, str]:
    """KEY=VALUE options as a table."""
    return dict(quantities.set_pairs(sets or ()))


def console(width: int = 120) -> Console:
    """Standard output for tables, `width` columns wide where neither a terminal nor COLUMNS gives
    a width."""
    from rich.console import Console

    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(width=None if known else width, highlight=False)
