"""`forebay link`: a command behind a bottleneck, without root."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from forebay.commands.options import settings as parameters

if TYPE_CHECKING:
    from forebay.emulator import Outcome

#: Exit statuses: where the machine does not allow a link, and on Ctrl-C after the command.
FAILED, INTERRUPTED = 1, 130


def _both(text: str, metavar: str) -> Any:
    return typer.Option(help=text, metavar=metavar, rich_help_panel="Link", show_default=True)


def _up(text: str, metavar: str) -> Any:
    return typer.Option(
        help=text, metavar=metavar, rich_help_panel="Client to server, where it differs"
    )


def link(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="What to run; a shell if it is left out.", metavar="-- COMMAND…"),
    ] = None,
    rate: Annotated[str | None, _both("Rate, such as 15Mbit/s.", "RATE")] = None,
    delay: Annotated[
        str, _both("Delay after the queue, one way; 20..200ms spreads flows by hash.", "TIME")
    ] = "0ms",
    buffer: Annotated[str, _both("What can wait, 150p or 64kB.", "SIZE")] = "1000p",
    aqm: Annotated[str, _both("A law of `forebay laws`.", "LAW")] = "droptail",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A parameter of the law, such as target=50p. May be given several times.",
            metavar="KEY=VALUE",
            rich_help_panel="Link",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        _both("Instead of a rate: a recorded link, a time in ms per 1500 bytes.", "FILE"),
    ] = None,
    loss: Annotated[str, _both("Packets lost after the queue, 1% or 0.01.", "SHARE")] = "0",
    ecn: Annotated[
        bool,
        typer.Option(
            help="Mark ECN-capable packets instead of dropping them.", rich_help_panel="Link"
        ),
    ] = True,
    rate_up: Annotated[str | None, _up("Rate.", "RATE")] = None,
    delay_up: Annotated[str | None, _up("Delay.", "TIME")] = None,
    buffer_up: Annotated[str | None, _up("Buffer.", "SIZE")] = None,
    aqm_up: Annotated[str | None, _up("Law.", "LAW")] = None,
    set_up: Annotated[
        list[str] | None, _up("A parameter of its law; those of --set are not.", "KEY=VALUE")
    ] = None,
    trace_up: Annotated[Path | None, _up("A recorded link.", "FILE")] = None,
    loss_up: Annotated[str | None, _up("Loss.", "SHARE")] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="A line for the shell, to run at the far end. COMMAND starts when it listens.",
            metavar="COMMAND",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the report, samples and metrics go.", metavar="DIR"),
    ] = None,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Leave only the tables, no page and no figures.")
    ] = False,
    measure: Annotated[
        str, typer.Option(help="When metrics are taken, such as 5s.. or 5s..25s.", metavar="TIMES")
    ] = "0s..",
    sample: Annotated[
        str, typer.Option(help="Time between two samples of the queue.", metavar="TIME")
    ] = "10ms",
    seed: Annotated[int, typer.Option(help="Of the law's and the loss's draws.", min=0)] = 1,
    mtu: Annotated[int, typer.Option(help="Largest IP packet in bytes.", metavar="BYTES")] = 1500,
    device: Annotated[
        str,
        typer.Option(help="tun, packets, or any: tun where there is one.", metavar="KIND"),
    ] = "any",
    super_packets: Annotated[
        bool | None,
        typer.Option(
            help="Take up to 64 KiB of a TCP flow at a time; by default above 1 Gbit/s.",
            show_default=False,
        ),
    ] = None,
    void_lateness: Annotated[
        str,
        typer.Option(
            help="The run is void if one packet in a thousand is released later.", metavar="TIME"
        ),
    ] = "1ms",
    void_rate: Annotated[
        str, typer.Option(help="The run is void if the rate is off by more.", metavar="SHARE")
    ] = "0.1%",
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
    pcap: Annotated[
        Path | None,
        typer.Option(
            help="Write client.pcapng and server.pcapng there, with drops and marks as comments.",
            metavar="DIR",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say nothing but that a run is void.")
    ] = False,
) -> None:
    """Run COMMAND behind a bottleneck, without root, and report on the queue."""
    from forebay import _native, files
    from forebay.emulator.settings import settings

    wanted = settings(
        rate,
        delay,
        buffer,
        aqm,
        parameters(set_),
        trace=trace,
        loss=loss,
        ecn=ecn,
        rate_up=rate_up,
        delay_up=delay_up,
        buffer_up=buffer_up,
        aqm_up=aqm_up,
        params_up=parameters(set_up) if set_up else None,
        trace_up=trace_up,
        loss_up=loss_up,
        device=device,
        mtu=mtu,
        super_packets=super_packets,
        seed=seed,
        sample=sample,
        measure=measure,
        void_lateness=void_lateness,
        void_rate=void_rate,
    )
    wanted.check()
    if out is not None:
        files.check(out)
    # The live view takes the terminal; what the programs write waits in a file.
    view = watch and sys.stdin.isatty() and sys.stdout.isatty()
    if view and not command:
        raise _native.ScenarioError(
            "link: watch: found no COMMAND, allowed: with one, -- COMMAND…; the view has the "
            "terminal, which leaves none for a shell"
        )
    words = command or [os.environ.get("SHELL") or "/bin/sh"]

    def up(ready: dict[str, Any]) -> None:
        if not quiet:
            print(_heading(ready["environment"]), file=sys.stderr, flush=True)
            if ready["metrics"]:
                print(f"forebay link: http://{ready['metrics']}/metrics", file=sys.stderr)

    if pcap is not None:
        files.check(pcap, "--pcap")
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
        )
    except OSError as error:
        print(f"forebay link: {error}", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    if shown:
        shown.seek(0)
        shutil.copyfileobj(shown, sys.stdout.buffer)
        sys.stdout.flush()
    if observed["capture_failed"]:
        print(f"forebay link: {pcap}: {observed['capture_failed']}", file=sys.stderr)
    from forebay.emulator import outcome, process

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
            raise typer.Exit(INTERRUPTED) from None
        if not quiet:
            where = out if no_report else out / files.REPORT
            print(f"forebay link: {where}", file=sys.stderr)
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
    from forebay.emulator import congestion, gains
    from forebay.words import short_time

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
    if found.lateness["p99_s"] == found.lateness["p99_s"]:
        late = short_time(found.lateness["p99_s"])
        yield f"99 % of packets left within {late} of their time"


def _in_words(metrics: dict[str, float], span_s: float) -> str:
    return (
        f"{metrics['goodput_bps'] / 1e6:.2f} Mbit/s goodput over {span_s:.3g} s, "
        f"{100 * metrics['utilisation']:.1f} % used, "
        f"queue {metrics['queue_mean_pkts']:.1f} ± {metrics['queue_std_pkts']:.1f} packets, "
        f"delay {1e3 * metrics['delay_mean_s']:.1f} ms, "
        f"{100 * metrics['drop_rate']:.2f} % dropped, {100 * metrics['mark_rate']:.2f} % marked"
    )
