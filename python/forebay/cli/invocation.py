"""One call of a command: its output folder, its exit status, and its reaction to Ctrl-C.

Commands share this life cycle, and add the results that they compute.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from forebay._base import progress, signals
from forebay.cli.main import BAD_INPUT, FAILED
from forebay.cli.options import OutputOptions, ReportOptions, RunOptions, StoreOptions, open_page
from forebay.cli.output import outlive_reader

if TYPE_CHECKING:
    from forebay._base.publication import Content
    from forebay.experiment.execution import Execution
    from forebay.experiment.experiment import Experiment
    from forebay.experiment.store import Store

RESULTS = Path("results")


def command_line() -> str:
    """Return the command line of this process, such as "forebay run my-link.toml"."""
    return shlex.join(["forebay", *sys.argv[1:]])


def repeating(name: str, *words: str, **options: object) -> str:
    """Return a command line that repeats a command.

    Parameters
    ----------
    name, *words : str
        The command and its arguments.
    **options
        Its options: a list is an option that is given several times, None one that is not given.

    Returns
    -------
    str
        The line, quoted for a shell.
    """
    line = ["forebay", name, *words]
    for option, value in options.items():
        for text in value if isinstance(value, list | tuple) else [value]:
            if text is not None:
                line += [f"--{option}", str(text)]
    return shlex.join(line)


def result_name(file: Path) -> str:
    """Return the name of the result of a scenario file or an experiment."""
    from forebay.experiment import experiment
    from forebay.scenario import names

    return "stdin" if str(file) == experiment.STDIN else names.stem(file)


def print_errors(lines: Iterable[object]) -> None:
    """Print lines on standard error."""
    for line in lines:
        print(line, file=sys.stderr)


def print_json(value: object) -> None:
    """Print a value as one line of JSON, without buffering."""
    print(json.dumps(value), flush=True)


@dataclass(frozen=True)
class Invocation:
    """A command's output, checked before any run.

    Attributes
    ----------
    folder : Path or None
        Output folder; None if the command writes no files there.
    as_json : bool
        True if standard output is JSON only.
    opens : bool
        True to open the page in the browser.
    command : str
        Command line that repeats the command.
    page : Path or None
        File for a page in Markdown.
    digest : str
        Digest of the inputs of the result, for `publication.claim`; empty without a folder.
    """

    folder: Path | None
    as_json: bool
    opens: bool = False
    command: str = ""
    page: Path | None = None
    digest: str = ""

    @classmethod
    def begun(
        cls,
        output: OutputOptions,
        default: str | None,
        command: str = "",
        *,
        page: Path | None = None,
        digest: Callable[[], str] = str,
        **claim: Any,
    ) -> Invocation:
        """Check a command's output and choose its folder.

        Parameters
        ----------
        output : OutputOptions
            The options of the output.
        default : str or None
            Name of the folder in `results` where neither a folder nor JSON is asked for; None for
            no folder.
        command : str
            Command line that repeats the command. With it, a folder that has the result of another
            command is refused (`publication.claim`).
        page : Path, optional
            File for a page in Markdown.
        digest : callable
            Returns the digest of the inputs of the result.
        **claim
            More arguments of `publication.claim`.

        Returns
        -------
        Invocation
            The checked output.

        Raises
        ------
        ParameterError
            If a folder or a file cannot be written, or has the result of another command.
        """
        from forebay._base import publication
        from forebay.report import style

        style.use(output.style)
        if page is not None:
            publication.check_file(page, "page")
        folder, result_digest = output.out, ""
        if folder is None and default is not None and not output.as_json:
            folder = RESULTS / default
        replaces = isinstance(output, ReportOptions) and output.force
        opens = isinstance(output, ReportOptions) and output.open_
        if folder is not None:
            # Results are written even if the reader of standard output has gone.
            outlive_reader()
            publication.check_folder(folder)
            if command:
                result_digest = digest()
                publication.claim(folder, command, result_digest, force=replaces, **claim)
        return cls(folder, output.as_json, opens, command, page, result_digest)

    def store(self, runs: StoreOptions) -> Store | None:
        """Return the store of runs; None without an output folder, unless one is asked for."""
        from forebay.experiment import store_choice

        choice = store_choice.choose(
            runs.store, without=runs.no_store, default=self.folder is not None
        )
        if choice is None:
            return None  # without polars, which the store loads
        from forebay.experiment import store as stores

        return stores.of_choice(choice)

    def executed(
        self,
        experiments: Sequence[Experiment],
        making: RunOptions,
        *,
        samples: bool = True,
        meanwhile: Callable[[], None] | None = None,
    ) -> list[Execution]:
        """Execute experiments with a progress bar, and report the runs that failed.

        Parameters
        ----------
        experiments : sequence of Experiment
            The experiments.
        making : RunOptions
            Threads and store.
        samples : bool, optional
            False to keep only the metrics of each run.
        meanwhile : callable, optional
            Called once, in this thread, while runs are under way. Runs have threads of their own
            and leave Python idle, so modules can be loaded in the meantime. (Two threads that
            import the same modules would not survive an interruption.)

        Returns
        -------
        list of Execution
            One for each experiment; after an interruption or a failure, those that had begun.
        """
        from forebay.experiment import execution

        store = self.store(making)
        waiting = [meanwhile] if meanwhile is not None else []
        with progress.bar() as show:

            def watch(now: progress.Progress) -> None:
                show(now)
                if waiting and now.ended_runs < now.runs:
                    waiting.pop()()

            executions = sorted(
                execution.execute_all(
                    experiments, making.threads, watch, samples=samples, store=store
                ),
                key=lambda pair: pair[0],
            )
        for number, executed in executions:
            plan = experiments[number].plan
            print_errors(execution.fault_in_words(plan, fault) for fault in executed.faults)
        return [executed for _, executed in executions]

    @contextmanager
    def drawing(self, remains: str, task: str = "") -> Iterator[None]:
        """Return a context in which pages and figures are drawn.

        Parameters
        ----------
        remains : str
            Line on the finished files, printed after an interruption.
        task : str
            Task that the terminal shows; nothing if empty.
        """
        try:
            with progress.status(task) if task else nullcontext():
                yield
        except KeyboardInterrupt:
            print(f"interrupted while drawing; {remains}", file=sys.stderr)
            raise typer.Exit(signals.status()) from None

    def publish(self, contents: Mapping[str, Content]) -> list[Path]:
        """Write files to the folder and return their paths; do nothing without a folder."""
        from forebay._base.publication import publish

        return publish(self.folder, contents) if self.folder is not None else []

    def publish_page(self, text: Callable[[], str]) -> None:
        """Write the page in Markdown, if one was asked for."""
        from forebay._base.publication import publish_file

        if self.page is not None:
            publish_file(self.page, text())

    def tell(self, name: str, path: Path) -> None:
        """Print the path of a page, such as "Report: results/my-link/report.html"."""
        if not self.as_json:
            print(f"{name}: {path}")

    def show(self, page: Path) -> None:
        """Open a page in the browser, if that was asked for."""
        if self.opens:
            open_page(page)


def stopped_runs(
    experiments: Sequence[Experiment], executions: Sequence[Execution], *, reported: bool
) -> typer.Exit:
    """Report how many runs had finished when a command was stopped: see `stopped`.

    Parameters
    ----------
    experiments, executions : sequence of Experiment, sequence of Execution
        The experiments, and the outcomes of those that had begun.
    reported : bool
        True if the finished runs are in the report.
    """
    return stopped(
        sum(len(executed.runs) for executed in executions),
        sum(experiment.runs for experiment in experiments),
        interrupted=any(executed.interrupted for executed in executions),
        reported=reported,
        by_input=any(fault.of_law for executed in executions for fault in executed.faults),
    )


def stopped(
    finished: int,
    total: int,
    *,
    interrupted: bool,
    reported: bool,
    by_input: bool = False,
    noun: str = "run",
) -> typer.Exit:
    """Report how many runs had finished when a command was stopped.

    Parameters
    ----------
    finished, total : int
        Number of runs that had finished, and of all.
    interrupted : bool
        True if the user stopped the command.
    reported : bool
        True if the finished runs are in the report.
    by_input : bool
        True if the input stopped the command, such as a law in Python that failed.
    noun : str
        Name of a run, such as "real run".

    Returns
    -------
    typer.Exit
        The exit with its status, to be raised.
    """
    print(
        f"{'interrupted' if interrupted else 'stopped'}: {finished} of {total} "
        f"{noun}{'' if total == 1 else 's'} had finished"
        f"{' and are reported' if reported else ''}",
        file=sys.stderr,
    )
    if interrupted:
        return typer.Exit(signals.status())
    return typer.Exit(BAD_INPUT if by_input else FAILED)
