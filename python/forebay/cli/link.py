"""`forebay link`: a command behind an emulated bottleneck, without root."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

import forebay._native as _native
from forebay._base import signals
from forebay.cli.declaration import DeclaredCommand
from forebay.cli.main import FAILED
from forebay.cli.options import NoReport, OpenPage, open_page
from forebay.cli.options import settings as parameters

if TYPE_CHECKING:
    from forebay._native import LinkOptionInfo, LinkOutcome, LinkReady, LinkSettings
    from forebay.linux import Outcome

#: Heading of each group of options in the help.
PANELS = {"link": None, "up": "Client to server, where it differs", "run": "Run"}
AQM = "aqm"
KINDS = {"flag": bool, "integer": int, "text": str, "table": list[str]}


def _parameter(option: LinkOptionInfo) -> inspect.Parameter:
    """Return a parameter of the command for an option that is declared in Rust."""
    kind: Any = KINDS[option["type"]]
    default = option["default"]
    flag = option["name"].replace("_", "-")
    # Other commands call this option --law.
    both = [f"--{flag}", f"--{flag.replace(AQM, 'law')}"] if flag.startswith(AQM) else []
    declared = typer.Option(
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
        annotation=Annotated[kind if default is not None else kind | None, declared],
    )


class LinkCommand(DeclaredCommand):
    """The command with the options of a link in place of its `**options`."""

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters that Typer reads: the link and its law come first."""
        command_words, *own = super().parameters()
        declared = sorted(_native.link_options(), key=lambda option: option["group"] == "run")
        for parameter in own:
            get_args(parameter.annotation)[1].rich_help_panel = PANELS["run"]
        return [command_words, *map(_parameter, declared), *own]


@dataclass(frozen=True, kw_only=True)
class LinkOutput:
    """The output of a run on a link.

    Attributes
    ----------
    out : DIR
        Folder of the report, the samples and the metrics.
    watch
        Show the queue while traffic runs, and change the link with keys; the output of COMMAND and
        the server follows at the end. Without a terminal, print one line per second.
    metrics : ADDRESS:PORT
        Serve metrics for Prometheus; on the loopback device if only a port is given.
    control : PATH
        Accept changes on this Unix socket, such as those of `forebay studio --link`.
    pcap : DIR
        Write client.pcapng and server.pcapng to this folder, with drops and marks as comments.
    flent : DIR
        Write each direction to this folder as a data file of flent.
    quiet
        Print only errors and void runs.
    """

    out: Path | None = None
    no_report: NoReport = False
    open_: OpenPage = False
    watch: bool = False
    metrics: str | None = None
    control: Path | None = None
    pcap: Path | None = None
    flent: Path | None = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False

    def check(self) -> None:
        """Raise `ParameterError` for a folder that cannot be written to."""
        from forebay._base import publication

        for name, folder in {"out": self.out, "flent": self.flent, "pcap": self.pcap}.items():
            if folder is not None:
                publication.check_folder(folder, name)
        if self.pcap is not None:
            self.pcap.mkdir(parents=True, exist_ok=True)

    def say(self, line: str) -> None:
        """Print a line, unless the output is quiet."""
        if not self.quiet:
            _say(line)


@LinkCommand
def link(
    command: list[str] | None = None,
    /,
    *,
    server: str | None = None,
    output: LinkOutput,
    **options: object,
) -> None:
    """Run a command behind an emulated bottleneck, without root.

    It reports on the queue when the command ends, and exits with the command's status.

    Parameters
    ----------
    command : -- COMMAND...
        Program to run and its arguments; a shell without it.
    server : COMMAND
        Shell command to run at the far end; COMMAND starts when it listens.
    """
    from forebay.linux.link_settings import OPTIONS, designed

    for name in ("set", "set_up"):
        options[name] = parameters(cast("list[str] | None", options[name])) or None
    names = {option: name for name, option in OPTIONS.items()}
    settings, lines = designed(**{names.get(name, name): value for name, value in options.items()})
    for line in lines:
        output.say(line)
    output.check()
    words = command or [os.environ.get("SHELL") or "/bin/sh"]
    # The live view uses the terminal; the output of the programs waits in a file.
    if output.watch and sys.stdin.isatty() and sys.stdout.isatty():
        if not command:
            raise _native.ScenarioError(
                "--watch requires a COMMAND, because a shell cannot share the terminal with the "
                "view; give -- COMMAND..."
            )
        with tempfile.TemporaryFile() as shown_later:
            observed = _observed(
                settings, words, server, output, f"/proc/self/fd/{shown_later.fileno()}"
            )
            shown_later.seek(0)
            shutil.copyfileobj(shown_later, sys.stdout.buffer)
            sys.stdout.flush()
    else:
        observed = _observed(settings, words, server, output, None)
    if observed.capture_failed:
        _say(f"{output.pcap}: {observed.capture_failed}")
    from forebay.linux.link_outcome import Outcome

    outcome = Outcome(settings, words, server, observed)
    _tell(outcome, output.out, quiet=output.quiet)
    if outcome.measured:
        _write(outcome, output)
    raise typer.Exit(outcome.status or 0)


def _observed(
    settings: LinkSettings,
    words: list[str],
    server: str | None,
    output: LinkOutput,
    programs_to: str | None,
) -> LinkOutcome:
    """Run the link in this process, which must have one thread: numpy is not loaded yet.

    Raises `typer.Exit` where the machine allows no link.
    """

    def up(ready: LinkReady) -> None:
        output.say(_addresses(ready.environment))
        if ready.metrics:
            output.say(f"http://{ready.metrics}/metrics")

    metrics = output.metrics
    if metrics is not None and metrics.removeprefix(":").isdigit():
        metrics = f"127.0.0.1:{metrics.removeprefix(':')}"
    try:
        return _native.link_run(
            settings,
            command=words,
            server=server,
            ready=up,
            output=programs_to,
            watch=output.watch,
            metrics=metrics,
            captures=str(output.pcap) if output.pcap else None,
            control=str(output.control) if output.control else None,
        )
    except OSError as error:
        _say(str(error))
        raise typer.Exit(FAILED) from None


def _write(outcome: Outcome, output: LinkOutput) -> None:
    """Write the data files of flent, the tables and the report."""
    from forebay.report import result_files

    if output.flent is not None:
        from forebay.experiment import flent as data_files

        data_files.write(outcome.result(), output.flent)
    if output.out is None:
        return
    try:
        outcome.write(output.out, report=not output.no_report)
    except KeyboardInterrupt:
        print("interrupted; no report was written", file=sys.stderr)
        raise typer.Exit(signals.status()) from None
    page = output.out / result_files.REPORT
    output.say(str(output.out if output.no_report else page))
    if output.open_ and not output.no_report:
        open_page(page)


def _tell(outcome: Outcome, out: Path | None, *, quiet: bool) -> None:
    """Print the result of a run; raise `typer.Exit` if its program did not start."""
    from forebay.linux import link_process

    observed = outcome.observed
    if observed.not_started is not None:
        line, status = link_process.why_not_started(observed.not_started, outcome.command[0])
        print(line, file=sys.stderr)
        raise typer.Exit(status)
    if observed.server_status:
        _say(f"the server exited with status {observed.server_status}")
    for reason in outcome.void:
        _say(f"run void: {reason}")
    if outcome.void:
        _say("its numbers are not those of the link; repeat it with nothing else running")
    for line in () if quiet else outcome.summary(out):
        _say(line)


def _say(line: str) -> None:
    # The programs write to the same terminal, so lines must not be delayed.
    print(f"forebay link: {line}", file=sys.stderr, flush=True)


def _addresses(environment: dict[str, str]) -> str:
    """Return the addresses of both ends, from the environment of the programs."""
    ends = []
    for end in ["client", "server"]:
        addresses = [environment.get(f"FOREBAY_{end.upper()}{v}") for v in ("", "6")]
        ends.append(f"{end} {' and '.join(filter(None, addresses))}")
    return ", ".join(ends)
