"""Every command, under the headings and in the order of `forebay --help`.

What a command needs is loaded inside it, so that the quick ones stay quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from forebay._native import __version__
from forebay.cli import store
from forebay.cli.cite import cite
from forebay.cli.design import design
from forebay.cli.doctor import doctor
from forebay.cli.experiments import experiments
from forebay.cli.explain import explain
from forebay.cli.figure import figure
from forebay.cli.fluid import fluid
from forebay.cli.identify import identify
from forebay.cli.init import init
from forebay.cli.laws import laws, queues
from forebay.cli.link import link
from forebay.cli.map import stability_map
from forebay.cli.replay import replay
from forebay.cli.run import run
from forebay.cli.schema import schema
from forebay.cli.studio import studio
from forebay.cli.study import study
from forebay.cli.suite import suite
from forebay.cli.tune import tune
from forebay.cli.validate import validate


@contextmanager
def _told() -> Iterator[None]:
    """Ctrl-C as an exception that the caller gets: Typer makes of it a mere status."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Abort from None


def _plain(params: list[Any]) -> list[Any]:
    """Flags without the name of a type in the help: a flag takes no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class Command(TyperCommand):
    """One of the commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))


class Commands(TyperGroup):
    """The commands; reading their options takes time, too."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _told():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _told():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    help="A workbench for active queue management (AQM).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def front(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"forebay {__version__}")
        raise typer.Exit


#: Headings of `forebay --help`.
START, SIMULATE, CONTROL = "Start here", "Simulate", "Control theory"
REAL, PAPERS = "Real traffic", "Papers and files"


def _add(
    panel: str, command: Callable[..., None], name: str | None = None, **settings: Any
) -> None:
    app.command(name, cls=Command, rich_help_panel=panel, context_settings=settings)(command)


_add(START, studio)
_add(START, init)
# An option may be what is to be explained.
_add(START, explain, ignore_unknown_options=True)
_add(START, laws)
_add(START, queues)
_add(SIMULATE, run)
_add(SIMULATE, study)
_add(SIMULATE, fluid)
_add(SIMULATE, suite)
stored = typer.Typer(
    cls=Commands, help="Look into the store of runs, and tidy it up.", no_args_is_help=True
)
for one in (store.ls, store.show, store.prune, store.export):
    stored.command(cls=Command)(one)
app.add_typer(stored, name="store", rich_help_panel=SIMULATE)
_add(CONTROL, design)
_add(CONTROL, identify)
_add(CONTROL, stability_map, "map")
_add(CONTROL, tune)
# What follows COMMAND is COMMAND's.
_add(REAL, link, allow_interspersed_args=False)
_add(REAL, doctor)
_add(REAL, validate)
_add(PAPERS, experiments)
_add(PAPERS, replay)
_add(PAPERS, figure)
_add(PAPERS, cite)
_add(PAPERS, schema)
