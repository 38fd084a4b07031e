"""`forebay link`: a command behind a bottleneck, without root."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

import forebay._native as _native
from forebay._base import signals
from forebay.cli.declaration import with_options
from forebay.cli.main import FAILED
from forebay.cli.options import NoReport, OpenPage, open_page
from forebay.cli.options import settings as parameters

if TYPE_CHECKING:
    from forebay._native import LinkOptionInfo, LinkReady
    from forebay.linux import Outcome

#: Where help shows each group of options.
PANELS = {"link": None, "up": "Client to server, where it differs", "run": "Run"}
AQM = "aqm"
KINDS = {"flag": bool, "integer": int, "text": str, "table": list[str]}


def _parameter(option: LinkOptionInfo) -> inspect.Parameter:
    """An option of the command, as it is declared in Rust."""
    kind: Any = KINDS[option["type"]]
    default = option["default"]
    flag = option["name"].replace("_", "-")
    # The other commands call a law --law.
    both = [f"--{flag}", f"--{flag.replace(AQM, 'law')}"] if flag.startswith(AQM) else []
    shown = typer.Option(
        *both,
        help=" ".join(option["doc"].split()),
        metavar=None if option["type"] == "flag" else option["placeholder"],
        rich_help_panel=PANELS[option["group"]],
        show_default=default is not None,
    )
    return inspect.Parameter(
        option["name"],
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind if default is not None else kind | None, shown],
    )


def _with_link_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the options of a link in place of its `**options`."""
    called = with_options(command)
    first, *others = inspect.signature(called).parameters.values()
    # The link and its law come first.
    declared = sorted(_native.link_options(), key=lambda option: option["group"] == "run")
    options = [_parameter(option) for option in declared]
    for parameter in others:
        get_args(parameter.annotation)[1].rich_help_panel = PANELS["run"]
    called.__signature__ = inspect.Signature([first, *options, *others])  # type: ignore[attr-defined]
    return called


@_with_link_options
def link(
    command: list[str] | None = None,
    /,
    *,
    server: str | None = None,
    out: Path | None = None,
    no_report: NoReport = False,
    open_: OpenPage = False,
    watch: Annotated[bool, typer.Option()] = False,
    metrics: str | None = None,
    control: Path | None = None,
    pcap: Path | None = None,
    flent: Path | None = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False,
    **options: object,
) -> None:
    """Run COMMAND behind a bottleneck, without root, and report on the queue.

    command -- COMMAND…: Program to run; a shell if it is left out.
    server COMMAND: A line for the shell, to run at the far end. COMMAND starts when it listens.
    out DIR: Folder for the report, samples and metrics.
    watch: Show the queue while traffic runs, and change the link with keys; what COMMAND and
        server write is shown after. Without a terminal, a line a second.
    metrics ADDRESS:PORT: Serve metrics for Prometheus, on the loopback device if only a port is
        given.
    control PATH: Take changes over a Unix socket there, as `forebay studio --link` makes them.
    pcap DIR: Write client.pcapng and server.pcapng there, with drops and marks as comments.
    flent DIR: Write each direction there as a data file of flent, NAME.flent.gz.
    quiet: Print only errors and void runs.
    """
    from forebay._base import publication
    from forebay.linux.link_settings import OPTIONS, designed

    for name in ("set", "set_up"):
        options[name] = parameters(cast("list[str] | None", options[name])) or None
    names = {option: name for name, option in OPTIONS.items()}
    wanted, lines = designed(**{names.get(name, name): value for name, value in options.items()})
    if not quiet:
        for line in lines:
            _say(line)
    if out is not None:
        publication.check_folder(out)
    # The live view takes the terminal; what the programs write waits in a file.
    view = watch and sys.stdin.isatty() and sys.stdout.isatty()
    if view and not command:
        raise _native.ScenarioError(
            "link: watch: found no COMMAND, allowed: with one, -- COMMAND…; the view has the "
            "terminal, which leaves none for a shell"
        )
    words = command or [os.environ.get("SHELL") or "/bin/sh"]

    def up(ready: LinkReady) -> None:
        if not quiet:
            _say(_addresses(ready.environment))
            if ready.metrics:
                _say(f"http://{ready.metrics}/metrics")

    if flent is not None:
        publication.check_folder(flent, "flent")
    if pcap is not None:
        publication.check_folder(pcap, "pcap")
        pcap.mkdir(parents=True, exist_ok=True)
    if metrics is not None and metrics.removeprefix(":").isdigit():
        metrics = f"127.0.0.1:{metrics.removeprefix(':')}"
    shown = _kept() if view else None
    # This process becomes the emulator: it has one thread until numpy is loaded.
    try:
        observed = _native.link_run(
            wanted,
            command=words,
            server=server,
            ready=up,
            output=f"/proc/self/fd/{shown.fileno()}" if shown else None,
            watch=watch,
            metrics=metrics,
            captures=str(pcap) if pcap else None,
            control=str(control) if control else None,
        )
    except OSError as error:
        _say(str(error))
        raise typer.Exit(FAILED) from None
    if shown:
        shown.seek(0)
        shutil.copyfileobj(shown, sys.stdout.buffer)
        sys.stdout.flush()
    if observed.capture_failed:
        _say(f"{pcap}: {observed.capture_failed}")
    from forebay.linux.link_outcome import Outcome
    from forebay.report import result_files

    outcome = Outcome(wanted, words, server, observed)
    _tell(outcome, out, quiet=quiet)
    if flent is not None and outcome.measured:
        from forebay.experiment import flent as data_files

        data_files.write(outcome.result(), flent)
    if out is not None and outcome.measured:
        try:
            outcome.write(out, report=not no_report)
        except KeyboardInterrupt:
            print("interrupted: no report is left", file=sys.stderr)
            raise typer.Exit(signals.status()) from None
        if not quiet:
            _say(str(out if no_report else out / result_files.REPORT))
        if open_ and not no_report:
            open_page(out / result_files.REPORT)
    raise typer.Exit(outcome.status or 0)


def _tell(outcome: Outcome, out: Path | None, *, quiet: bool) -> None:
    """Says how a run went; exits where its program was not started."""
    from forebay.linux import link_process as process
    from forebay.linux import link_summary as summary

    observed = outcome.observed
    if observed.not_started is not None:
        line, status = process.why_not_started(observed.not_started, outcome.command[0])
        print(line, file=sys.stderr)
        raise typer.Exit(status)
    if observed.server_status:
        _say(f"the server ended with status {observed.server_status}")
    for reason in outcome.void:
        _say(f"VOID: {reason}")
    for line in () if quiet else summary.lines(outcome, out):
        _say(line)


def _say(line: str) -> None:
    # The programs write to the same terminal: a line is not kept back.
    print(f"forebay link: {line}", file=sys.stderr, flush=True)


def _kept() -> IO[bytes]:
    """A file without a name, for as long as this process."""
    return tempfile.TemporaryFile()


def _addresses(environment: dict[str, str]) -> str:
    """The addresses of both ends, from the environment of the programs."""
    ends = []
    for end in ["client", "server"]:
        known = [environment.get(f"FOREBAY_{end.upper()}{v}") for v in ("", "6")]
        ends.append(f"{end} {' and '.join(filter(None, known))}")
    return ", ".join(ends)
