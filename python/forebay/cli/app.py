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
from forebay.cli import values
from forebay.cli.declaration import flowing


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
    values.plain(params)
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


def front(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"forebay {__version__}")
        raise typer.Exit


#: Headings of `forebay --help`.
START, SIMULATE, CONTROL = "Start here", "Simulate", "Control theory"
REAL, PAPERS = "Real traffic", "Papers and files"

#: Heading, name, and where it is: a file of this folder, and a function of it or a group of them.
COMMANDS: list[tuple[str, str, str, str | tuple[str, ...]]] = [
    (START, "studio", "studio", "studio"),
    (START, "init", "init", "init"),
    (START, "explain", "explain", "explain"),
    (START, "laws", "laws", "laws"),
    (START, "queues", "laws", "queues"),
    (SIMULATE, "run", "run", "run"),
    (SIMULATE, "study", "study", "study"),
    (SIMULATE, "fluid", "fluid", "fluid"),
    (SIMULATE, "suite", "suite", "suite"),
    (SIMULATE, "compare", "compare", "compare"),
    (SIMULATE, "store", "store", ("ls", "show", "prune", "export")),
    (CONTROL, "design", "design", "design"),
    (CONTROL, "identify", "identify", "identify"),
    (CONTROL, "map", "map", "stability_map"),
    (CONTROL, "tune", "tune", "tune"),
    (REAL, "link", "link", "link"),
    (REAL, "attach", "attach", "attach"),
    (REAL, "detach", "attach", "detach"),
    (REAL, "set", "attach", "set_"),
    (REAL, "stats", "attach", "stats"),
    (REAL, "list", "attach", "list_"),
    (REAL, "doctor", "doctor", "doctor"),
    (REAL, "validate", "validate", "validate"),
    (REAL, "kernel", "kernel", ("setup", "list", "remove")),
    (PAPERS, "experiments", "experiments", "experiments"),
    (PAPERS, "replay", "replay", "replay"),
    (PAPERS, "figure", "figure", "figure"),
    (PAPERS, "cite", "cite", "cite"),
    (PAPERS, "schema", "schema", "schema"),
]
SETTINGS: dict[str, dict[str, Any]] = {
    # An option may be what is to be explained.
    "explain": {"ignore_unknown_options": True},
    # What follows COMMAND is COMMAND's.
    "link": {"allow_interspersed_args": False},
}


def app(called: str | None = None, *, listed: bool = False) -> typer.Typer:
    """The command line; where the command that is called is known, with that one alone.

    listed: otherwise for a list of the commands, whose options take as long again to read.
    """
    made = typer.Typer(
        cls=Commands,
        help="A workbench for active queue management (AQM).",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback(invoke_without_command=True)(front)
    one = any(name == called for _, name, _, _ in COMMANDS)
    for panel, name, file, function in COMMANDS:
        if one and name != called:
            continue
        module = import_module(f"forebay.cli.{file}")
        if isinstance(function, str):
            settings = SETTINGS.get(name, {})
            add = made.command(name, cls=Command, rich_help_panel=panel, context_settings=settings)
            found = getattr(module, function)
            add(found if one or not listed else _only_told(found))
            continue
        group = typer.Typer(cls=Commands, help=module.HELP, no_args_is_help=True)
        for each in function:
            group.command(cls=Command)(getattr(module, each))
        made.add_typer(group, name=name, rich_help_panel=panel)
    return made


def _only_told(command: Callable[..., None]) -> Callable[[], None]:
    """A command without its options, for a list of commands."""

    def told() -> None:
        raise AssertionError("it is listed, and not called")

    told.__doc__ = flowing(command.__doc__ or "")
    return told
