"""`forebay link`: a command behind a bottleneck, without root."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer

from forebay import _native
from forebay.cli.options import FAILED, NoReport, OpenPage, open_page
from forebay.cli.options import settings as parameters
from forebay.run import signals

if TYPE_CHECKING:
    from forebay._native import LinkOptionInfo, LinkReady
    from forebay.link import Outcome

#: Where help shows each group of options.
PANELS = {"link": "Link", "up": "Client to server, where it differs", "run": None}
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


def _declared(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the options of a link in place of its `**options`."""
    written = list(inspect.signature(command, eval_str=True).parameters.values())[:-1]
    options = [_parameter(option) for option in _native.link_options()]
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*written[:1], *options, *written[1:]]
    )
    return command


@_declared
def link(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Program to run; a shell if it is left out.", metavar="-- COMMAND…"),
    ] = None,
    *,
    server: Annotated[
        str | None,
        typer.Option(
            help="A line for the shell, to run at the far end. COMMAND starts when it listens.",
            metavar="COMMAND",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report, samples and metrics.", metavar="DIR"),
    ] = None,
    no_report: NoReport = False,
    open_: OpenPage = False,
    watch: Annotated[
        bool,
        typer.Option(
            help="Show the queue while traffic runs, and change the link with keys; what COMMAND "
            "and server write is shown after. Without a terminal, a line a second.",
            show_default=False,
        ),
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Serve metrics for Prometheus, on the loopback device if only a port is given.",
            metavar="ADDRESS:PORT",
        ),
    ] = None,
    control: Annotated[
        Path | None,
        typer.Option(
            help="Take changes over a Unix socket there, as `forebay studio --link` makes them.",
            metavar="PATH",
        ),
    ] = None,
    pcap: Annotated[
        Path | None,
        typer.Option(
            help="Write client.pcapng and server.pcapng there, with drops and marks as comments.",
            metavar="DIR",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only errors and void runs.")
    ] = False,
    **options: object,
) -> None:
    """Run COMMAND behind a bottleneck, without root, and report on the queue."""
    from forebay import _native
    from forebay.link.settings import OPTIONS, designed
    from forebay.report import files, place

    for name in ("set", "set_up"):
        options[name] = parameters(cast("list[str] | None", options[name])) or None
    names = {option: name for name, option in OPTIONS.items()}
    wanted, lines = designed(**{names.get(name, name): value for name, value in options.items()})
    if not quiet:
        for line in lines:
            print(f"forebay link: {line}", file=sys.stderr)
    if out is not None:
        place.check(out)
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
            print(_heading(ready.environment), file=sys.stderr, flush=True)
            if ready.metrics:
                print(f"forebay link: http://{ready.metrics}/metrics", file=sys.stderr)

    if pcap is not None:
        place.check(pcap, "--pcap")
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
        print(f"forebay link: {error}", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    if shown:
        shown.seek(0)
        shutil.copyfileobj(shown, sys.stdout.buffer)
        sys.stdout.flush()
    if observed.capture_failed:
        print(f"forebay link: {pcap}: {observed.capture_failed}", file=sys.stderr)
    from forebay.link import outcome, process

    found = outcome.read(wanted, words, server, observed)
    if found.not_started is not None:
        line, status = process.why_not_started(found.not_started, words[0])
        print(line, file=sys.stderr)
        raise typer.Exit(status)
    if found.server_status:
        print(f"forebay link: the server ended with status {found.server_status}", file=sys.stderr)
    _summary(found, out, quiet)
    if out is not None and found.measured:
        try:
            found.write(out, report=not no_report)
        except KeyboardInterrupt:
            print("interrupted: no report is left", file=sys.stderr)
            raise typer.Exit(signals.status()) from None
        if not quiet:
            where = out if no_report else out / files.REPORT
            print(f"forebay link: {where}", file=sys.stderr)
        if open_ and not no_report:
            open_page(out / files.REPORT)
    raise typer.Exit(found.status or 0)


def _kept() -> IO[bytes]:
    """A file without a name, for as long as this process."""
    return tempfile.TemporaryFile()


def _heading(environment: dict[str, str]) -> str:
    ends = []
    for end in ["client", "server"]:
        addresses = [environment.get(f"FOREBAY_{end.upper()}{v}") for v in ("", "6")]
        ends.append(f"{end} {' and '.join(filter(None, addresses))}")
    return f"forebay link: {', '.join(ends)}"


def _summary(found: Outcome, out: Path | None, quiet: bool) -> None:
    for reason in found.void:
        print(f"forebay link: VOID: {reason}", file=sys.stderr)
    if quiet:
        return
    for line in _lines(found, out):
        print(f"forebay link: {line}", file=sys.stderr)


def _lines(found: Outcome, out: Path | None) -> Iterator[str]:
    from forebay.link import congestion, gains
    from forebay.report.words import short_time

    if not found.measured:
        yield (
            f"too short to measure: no sample within --measure {found.settings.measure} of a run "
            f"of {short_time(found.duration_s)}" + ("; nothing is written" if out else "")
        )
        return
    if found.changed:
        yield f"changed by hand: {found.changed}; what follows is over all of it"
    start, end = found.measure_s
    for index, name in enumerate(["up", "down"]):
        metrics = found.runs[index].metrics
        if not metrics["forwarded_packets"]:
            continue
        yield f"{name}: {_in_words(metrics, end - start)}"
        ignored = congestion.ignored(
            found.congestion_controls[index], found.tcp_flows[index], found.congestion_control
        )
        if ignored:
            yield f"{name}: {ignored}"
        elif missed := gains.missed(found, index):
            yield f"{name}: {missed}"
    if found.lateness.p99_s == found.lateness.p99_s:
        late = short_time(found.lateness.p99_s)
        yield f"99 % of packets left within {late} of their time"


def _in_words(metrics: dict[str, float], span_s: float) -> str:
    return (
        f"{metrics['goodput_bps'] / 1e6:.2f} Mbit/s goodput over {span_s:.3g} s, "
        f"{100 * metrics['utilisation']:.1f} % used, "
        f"queue {metrics['queue_mean_pkts']:.1f} ± {metrics['queue_std_pkts']:.1f} packets, "
        f"delay {1e3 * metrics['delay_mean_s']:.1f} ms, "
        f"{100 * metrics['drop_rate']:.2f} % dropped, {100 * metrics['mark_rate']:.2f} % marked"
    )
