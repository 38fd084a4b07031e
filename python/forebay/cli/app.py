"""Every command, under the headings and in the order of `forebay --help`.

A command is loaded where it is called, and what it needs inside it, so that the quick ones stay
quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from forebay._native import __version__
from forebay.cli.declaration import flowing

#: The commands by the heading under which `forebay --help` has them: file of this folder and
#: function, which may be left out where both have the command's name; a group is a table.
COMMANDS: dict[str, dict[str, str | dict[str, str]]] = {
    "Start here": {
        "studio": "studio",
        "init": "init",
        "explain": "lookup.explain",
        "laws": "lookup.laws",
        "queues": "lookup.queues",
    },
    "Simulate": {
        "run": "run",
        "study": "study",
        "fluid": "fluid",
        "suite": "suite",
        "compare": "compare",
        "store": {name: f"store.{name}" for name in ("ls", "show", "prune", "export")},
    },
    "Control theory": {
        "design": "design",
        "identify": "identify",
        "map": "design.stability_map",
        "tune": "tune",
    },
    "Real traffic": {
        "link": "link",
        "validate": "compare.validate",
        "doctor": "doctor",
        "attach": "kernel.attach",
        "detach": "kernel.detach",
        "kernel": {
            "attach": "kernel.attach",
            "detach": "kernel.detach",
            "change": "kernel.change",
            "show": "kernel.show",
            "list": "kernel.list_",
        },
        "guest": {"setup": "guest.setup", "list": "guest.list_", "remove": "guest.remove"},
    },
    "Papers and files": {
        "experiments": "lookup.experiments",
        "replay": "papers.replay",
        "figure": "papers.figure",
        "cite": "lookup.cite",
        "schema": "lookup.schema",
    },
}
GROUPS = {
    "store": "Look into the store of runs, and tidy it up.",
    "kernel": "Build, list and remove the guests of `--engine kernel`: real Linux, in virtual "
    "time.",
}
SETTINGS: dict[str, dict[str, Any]] = {
    # An option may be what is to be explained.
    "explain": {"ignore_unknown_options": True},
    # What follows COMMAND is COMMAND's.
    "link": {"allow_interspersed_args": False},
}


@contextmanager
def _interrupted_aloud() -> Iterator[None]:
    """Turn Ctrl-C into an exception that the caller gets: Typer makes of it a mere status."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Abort from None


def _without_type(params: list[Any]) -> list[Any]:
    """Return parameters whose flags have no type in the help: a flag takes no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class Command(TyperCommand):
    """One of the commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_type(super().get_params(ctx))


class Commands(TyperGroup):
    """The commands; an interruption counts also while their options are read."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_type(super().get_params(ctx))

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _interrupted_aloud():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _interrupted_aloud():
            return super().invoke(ctx)


def front(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"forebay {__version__}")
        raise typer.Exit


def app(called: str | None = None, *, listed: bool = False) -> typer.Typer:
    """Return the command line; with one command alone where it is known which one is called.

    listed: True for a list of the commands, without their options, which take as long again to
    read.
    """
    whole = typer.Typer(
        cls=Commands,
        help="A workbench for active queue management (AQM).",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    whole.callback(invoke_without_command=True)(front)
    alone = any(called in commands for commands in COMMANDS.values())
    for panel, commands in COMMANDS.items():
        for name, place in commands.items():
            if alone and name != called:
                continue
            if isinstance(place, dict):
                group = typer.Typer(cls=Commands, help=GROUPS[name], no_args_is_help=True)
                for verb, function in place.items():
                    group.command(verb, cls=Command)(_loaded(function))
                whole.add_typer(group, name=name, rich_help_panel=panel)
                continue
            command = _loaded(place)
            if listed and not alone:
                command = _without_options(command)
            settings = SETTINGS.get(name, {})
            add = whole.command(name, cls=Command, rich_help_panel=panel, context_settings=settings)
            add(command)
    return whole


def _loaded(place: str) -> Callable[..., None]:
    """Return the function of a place in `COMMANDS`."""
    file, _, name = place.partition(".")
    function: Callable[..., None] = getattr(import_module(f"forebay.cli.{file}"), name or file)
    return function


def _without_options(command: Callable[..., None]) -> Callable[[], None]:
    """Return a command that has only a name and a help, for a list of commands."""

    def named() -> None:
        raise AssertionError("a command of a list is not called")

    named.__doc__ = flowing(command.__doc__ or "")
    return named
