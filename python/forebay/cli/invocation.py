"""One call of a command: where it writes, what an interruption leaves, and how it ends.

Each command says what it makes; what every command does besides stands here once.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from forebay._base import signals
from forebay.cli.main import BAD_INPUT, FAILED
from forebay.cli.options import (
    OutputOptions,
    ReportOptions,
    RunOptions,
    StoreOptions,
    open_page,
)
from forebay.cli.output import outlive_reader

if TYPE_CHECKING:
    from forebay._base.publication import Content
    from forebay.experiment.execution import Execution
    from forebay.experiment.experiment import Experiment
    from forebay.experiment.store import Store

RESULTS = Path("results")


def command_line() -> str:
    """Return the command as it was called."""
    return shlex.join(["forebay", *sys.argv[1:]])


def repeating(name: str, *words: str, **options: object) -> str:
    """Return a command line: lists are options that are given several times, None is left out."""
    line = ["forebay", name, *words]
    for option, value in options.items():
        for text in value if isinstance(value, list | tuple) else [value]:
            if text is not None:
                line += [f"--{option}", str(text)]
    return shlex.join(line)


def result_name(file: Path) -> str:
    """Return the name of a result whose scenario is this file or experiment."""
    from forebay.experiment import experiment
    from forebay.scenario import names

    return "stdin" if str(file) == experiment.STDIN else names.stem(file)


def print_errors(lines: Iterable[object]) -> None:
    """Print lines on standard error."""
    for line in lines:
        print(line, file=sys.stderr)


def print_json(value: object) -> None:
    """Print a value as one line of JSON, at once."""
    print(json.dumps(value), flush=True)


@dataclass(frozen=True)
class Invocation:
    """A command's output, checked before any time is spent.

    Attributes
    ----------
    folder : Path or None
        Where it writes; None if nothing is to be written.
    as_json : bool
        Standard output is for programs: no table, no sentence.
    opens : bool
        The page is to be opened in the browser.
    command : str
        The line that repeats the command.
    page : Path or None
        The file for a page in Markdown.
    digest : str
        Digest of what the result depends on, for `publication.claim`; empty without a folder.
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
        """Choose `results/DEFAULT` where neither a folder nor JSON is asked for; nowhere if None.

        With a `command`, a folder that has the result of something else is refused: see
        `publication.claim`, which gets what `digest` returns, and `claim`. Raises `ParameterError`.
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
            # Results are written also where nobody reads on.
            outlive_reader()
            publication.check_folder(folder)
            if command:
                result_digest = digest()
                publication.claim(folder, command, result_digest, force=replaces, **claim)
        return cls(folder, output.as_json, opens, command, page, result_digest)

    def store(self, runs: StoreOptions) -> Store | None:
        """Return the store of runs; without a folder none that nobody has asked for."""
        from forebay.experiment import store_choice as choice

        return choice.store(runs.store, without=runs.no_store, default=self.folder is not None)

    def executed(
        self,
        experiments: Sequence[Experiment],
        making: RunOptions,
        *,
        samples: bool = True,
        meanwhile: Callable[[], None] | None = None,
    ) -> list[Execution]:
        """Execute some experiments, with the store and a progress bar, and print which runs failed.

        Parameters
        ----------
        experiments : sequence of Experiment
            What to run.
        making : RunOptions
            Threads and store.
        samples : bool, optional
            False to keep only the metrics of each run.
        meanwhile : callable, optional
            Called once while runs are under way. They have threads of their own and leave Python
            idle, so that this is the time to load what is needed afterwards. It is called in this
            thread: where two threads import the same modules and one of them is interrupted, the
            other fails or waits for ever.

        Returns
        -------
        list of Execution
            One for each experiment; after an interruption or a failure, those that had begun.
        """
        from forebay._base import progress
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
    def drawing(self, kept: str, what: str = "") -> Iterator[None]:
        """Show `what` while pages and figures are drawn; an interruption says what is kept."""
        from contextlib import nullcontext

        from forebay._base import progress

        try:
            with progress.status(what) if what else nullcontext():
                yield
        except KeyboardInterrupt:
            print(f"interrupted while drawing: {kept}", file=sys.stderr)
            raise typer.Exit(signals.status()) from None

    def publish(self, contents: Mapping[str, Content]) -> list[Path]:
        """Write files to the folder, if there is one, and return them."""
        from forebay._base.publication import publish

        return publish(self.folder, contents) if self.folder is not None else []

    def publish_page(self, text: Callable[[], str]) -> None:
        """Write the page in Markdown, if that was asked for."""
        from forebay._base.publication import publish_file

        if self.page is not None:
            publish_file(self.page, text())

    def tell(self, what: str, where: Path) -> None:
        """Print where a page is."""
        if not self.as_json:
            print(f"{what}: {where}")

    def show(self, page: Path) -> None:
        """Open a page, if that was asked for."""
        if self.opens:
            open_page(page)


def stopped(
    made: int,
    wanted: int,
    *,
    interrupted: bool,
    reported: bool,
    by_input: bool = False,
    what: str = "run",
) -> typer.Exit:
    """Print how many runs had finished when a command was stopped, and return its exit.

    by_input: True if the input stopped it, such as a law in Python that failed.
    """
    print(
        f"{'interrupted' if interrupted else 'stopped'}: {made} of {wanted} "
        f"{what}{'' if wanted == 1 else 's'} had finished"
        f"{' and are reported' if reported else ''}",
        file=sys.stderr,
    )
    if interrupted:
        return typer.Exit(signals.status())
    return typer.Exit(BAD_INPUT if by_input else FAILED)
