"""One call of a command: where it writes, what an interruption leaves, and how it ends.

Each command says what it makes; what every command does besides stands here once.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
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
    from forebay.experiment.execution import Execution
    from forebay.experiment.experiment import Experiment
    from forebay.experiment.store import Store

RESULTS = Path("results")


def command_line() -> str:
    """The command as it was called."""
    return shlex.join(["forebay", *sys.argv[1:]])


def repeating(name: str, *words: str, **options: object) -> str:
    """A command line: lists are options that are given several times, None is left out."""
    line = ["forebay", name, *words]
    for option, value in options.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            if each is not None:
                line += [f"--{option}", str(each)]
    return shlex.join(line)


def result_name(file: Path) -> str:
    """What a result is called whose scenario is this file or experiment."""
    from forebay.experiment import experiment
    from forebay.scenario import names

    return "stdin" if str(file) == experiment.STDIN else names.stem(file)


@dataclass(frozen=True)
class Invocation:
    """What a command has been told of its output, checked before any time is spent."""

    #: The folder; None where nothing is to be written.
    folder: Path | None
    #: Standard output is for programs: no table, no sentence.
    as_json: bool
    opens: bool = False
    #: Digest of what the result depends on, for `publication.claim`; empty without a folder.
    digest: str = ""

    @classmethod
    def begun(
        cls,
        output: OutputOptions,
        default: str | None,
        command: str = "",
        *,
        digest: Callable[[], str] = str,
        **claim: Any,
    ) -> Invocation:
        """Chooses `results/DEFAULT` where neither a folder nor JSON is asked for; nowhere if None.

        command: the line that repeats this; with it, a folder that has the result of something
        else is refused: see `publication.claim`, which gets what `digest` returns, and `claim`.
        Raises `ParameterError`.
        """
        from forebay._base import publication
        from forebay.report import style

        style.use(output.style)
        folder, of = output.out, ""
        if folder is None and default is not None and not output.as_json:
            folder = RESULTS / default
        if folder is not None:
            # What has been found is written also where nobody reads on.
            outlive_reader()
            publication.check_folder(folder)
            if command:
                of = digest()
                force = isinstance(output, ReportOptions) and output.force
                publication.claim(folder, command, of, force=force, **claim)
        opens = isinstance(output, ReportOptions) and output.open_
        return cls(folder, output.as_json, opens, of)

    def store(self, runs: StoreOptions) -> Store | None:
        """The store of runs; without a folder none that nobody has asked for."""
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
                if waiting and now.ended < now.runs:
                    waiting.pop()()

            ended = execution.execute_all(
                experiments, making.threads, watch, samples=samples, store=store
            )
            made = dict(ended)
        found = [made[number] for number in sorted(made)]
        for number, one in sorted(made.items()):
            for fault in one.faults:
                print(execution.fault_in_words(experiments[number].plan, fault), file=sys.stderr)
        return found

    @contextmanager
    def drawing(self, kept: str) -> Iterator[None]:
        """While pages and figures are drawn: an interruption says what is kept."""
        try:
            yield
        except KeyboardInterrupt:
            print(f"interrupted while drawing: {kept}", file=sys.stderr)
            raise typer.Exit(signals.status()) from None

    def tell(self, what: str, where: Path) -> None:
        """Says where a page is."""
        if not self.as_json:
            print(f"{what}: {where}")

    def show(self, page: Path) -> None:
        """Opens a page, if that was asked for."""
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
    """Says how many runs had finished when a command was stopped, and gives its exit.

    by_input: what stopped it was in the input, such as a law in Python that failed.
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
