"""The command line: `laws`, `run` and `schema`; the other commands are in `commands/`.

What a command needs is loaded inside it, so that the quick ones stay quick.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay._native import ScenarioError, __version__
from forebay.commands import design as design_command
from forebay.commands import figure as figure_command
from forebay.commands import map as map_command
from forebay.commands import tune as tune_command
from forebay.commands.doctor import doctor
from forebay.commands.fluid import fluid
from forebay.commands.link import link
from forebay.commands.options import ScenarioFile, Threads
from forebay.commands.replay import replay
from forebay.commands.validate import validate

if TYPE_CHECKING:
    from rich.console import Console

    from forebay.result import Result

#: Exit statuses.
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    help="A workbench for active queue management (AQM).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point of the command `forebay`."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Runs one command line and returns its exit status."""
    try:
        return app(arguments, prog_name="forebay", standalone_mode=False) or 0
    except ScenarioError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except typer.TyperException as error:
        # A wrong option. Without any argument, the help has been shown, and this is empty.
        message = getattr(error, "format_message", error.__str__)()
        if message:
            print(f"forebay: {message}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        # A full disk, say. One without a file is no fault of the machine, and keeps its traceback.
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        print(f"forebay: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return FAILED


@app.callback(invoke_without_command=True)
def front(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"forebay {__version__}")
        raise typer.Exit


@app.command()
def laws(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List the laws with their parameters, defaults and ranges."""
    from forebay import _native

    if as_json:
        import json

        keys = ["name", "unit", "default", "min", "max", "doc"]
        entries = [
            law | {"params": [{key: param[key] for key in keys} for param in law["params"]]}
            for law in map(dict[str, Any], _native.laws())
        ]
        print(json.dumps(entries, indent=1))
        return
    from forebay import tables

    console = _console()
    for table in tables.laws(_native.laws()):
        console.print(table)


@app.command()
def run(
    file: ScenarioFile,
    law: Annotated[
        list[str] | None,
        typer.Option(
            help="Run this law instead of the file's: its kind or label, or FILE.py:CLASS for a "
            "prototype in Python. May be given several times.",
            metavar="KIND",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Set a key of the scenario, such as bottleneck.rate=20Mbit/s. May be given "
            "several times.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Run with seeds 1 to N.", metavar="N", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the report and the samples go; results/NAME for a scenario NAME.toml.",
            metavar="DIR",
        ),
    ] = None,
    threads: Threads = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object per run; files are written only with --out."
        ),
    ] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Leave only the tables, no page and no figures.")
    ] = False,
) -> None:
    """Run every law at every point with every seed, and report on them."""
    from forebay import experiment, files, progress, prototypes

    read = experiment.read(
        file, laws=[prototypes.load(text) for text in law or ()], sets=set_ or (), seeds=seeds
    )
    if out is None and not as_json:
        out = Path("results") / file.stem
    if out is not None:
        files.check(out)
    with progress.bar() as watch:
        execution = experiment.execute(read, threads, watch, samples=out is not None)

    for fault in execution.faults:
        print(experiment.fault_in_words(read.plan, fault), file=sys.stderr)
    if as_json:
        for finished in execution.runs:
            print(files.line(read.plan, finished))
    if execution.runs and out is not None:
        from forebay.result import Result

        result = Result(read, execution)
        try:
            with progress.status("writing the report"):
                files.write(result, out, report=not no_report)
        except KeyboardInterrupt:
            print("interrupted while writing: nothing is left", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        if not as_json:
            _show(result, out, no_report)
    if len(execution.runs) < read.runs:
        why = "interrupted" if execution.interrupted else "stopped"
        print(
            f"{why}: {len(execution.runs)} of {read.runs} runs had finished"
            f"{' and are reported' if execution.runs else ''}",
            file=sys.stderr,
        )
        raise typer.Exit(INTERRUPTED if execution.interrupted else FAILED)


app.command()(doctor)
app.command()(fluid)
# What follows COMMAND is COMMAND's.
app.command(context_settings={"allow_interspersed_args": False})(link)
app.command()(replay)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a scenario, for editors."""
    from forebay import _native

    print(_native.schema())


app.command()(design_command.design)
app.command("map")(map_command.stability_map)
app.command()(figure_command.figure)
app.command()(tune_command.tune)
app.command()(validate)


def _show(result: Result, out: Path | None, no_report: bool) -> None:
    from forebay import files, tables

    console = _console()
    console.print(tables.results(result))
    console.print(tables.cost(result))
    if out is not None:
        where = out if no_report else out / files.REPORT
        console.print(f"{'Tables' if no_report else 'Report'}: {where}", soft_wrap=True)


def _console() -> Console:
    from rich.console import Console

    # Where nobody says how wide the output is, tables need not be squeezed into 80 columns.
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


if __name__ == "__main__":
    main()
