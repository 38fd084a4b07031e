"""The commands of `forebay`, under the headings and in the order of `forebay --help`.

A command's module is loaded when the command is called, and its dependencies inside the command, so
that the quick commands stay quick.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from forebay._native import __version__
from forebay.cli.declaration import first_sentence, flowing

#: The commands by their heading in `forebay --help`. A command is the module in this folder and the
#: function, which is left out where both have the command's name; a group is a table of commands.
COMMANDS: dict[str, dict[str, str | dict[str, str]]] = {
    "Start here": {
        "init": "init",
        "studio": "studio",
        "experiments": "lookup.experiments",
        "explain": "lookup.explain",
        "laws": "lookup.laws",
        "queues": "lookup.queues",
        "schema": "lookup.schema",
        "cite": "lookup.cite",
    },
    "Simulate": {
        "run": "run",
        "study": "study",
        "fluid": "fluid",
        "suite": "papers.suite",
        "replay": "papers.replay",
        "compare": "compare",
        "store": {name: f"store.{name}" for name in ("ls", "show", "prune", "export")},
    },
    "Control theory": {
        "design": "design",
        "map": "design.stability_map",
        "tune": "tune",
        "identify": "identify",
        "figure": "papers.figure",
    },
    "Real traffic": {
        "link": "link",
        "validate": "compare.validate",
        "attach": "kernel.attach",
        "detach": "kernel.detach",
        "kernel": {
            "attach": "kernel.attach",
            "detach": "kernel.detach",
            "change": "kernel.change",
            "show": "kernel.show",
            "list": "kernel.list_",
        },
        "guest": {"setup": "machine.setup", "list": "machine.list_", "remove": "machine.remove"},
        "doctor": "machine.doctor",
    },
}
GROUPS = {
    "store": "List, show, export or remove the stored runs.",
    "kernel": "Install, change and watch laws in this machine's kernel.",
    "guest": "Build, list or remove the guests of `--engine kernel`.",
}
#: Commands that repeat a command of a group.
SHORT_FORMS = {"attach": "kernel attach", "detach": "kernel detach"}
SETTINGS: dict[str, dict[str, Any]] = {
    # The name to be explained may be that of an option.
    "explain": {"ignore_unknown_options": True},
    # Options after COMMAND belong to COMMAND.
    "link": {"allow_interspersed_args": False},
}
#: Help of the options that Typer declares.
TYPER_HELP = {
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Print the completion script of the current shell.",
    "--help": "Print this help.",
}
#: Names of the option that prints a help.
HELP_OPTIONS = ["-h", "--help"]
#: Key of the parameters that a command line gives, in the context of the command.
GIVEN = "forebay.given"
#: Width of help on a wide terminal; longer lines are hard to read.
WIDEST_HELP = 100


@contextmanager
def _abort_on_interrupt() -> Iterator[None]:
    """Raise `typer.Abort` on Ctrl-C, which the caller catches; Typer returns a status otherwise."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Abort from None


def _reworded(params: list[Any]) -> list[Any]:
    """Return the parameters without a type for flags, and with help for those that Typer adds."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
        param.help = TYPER_HELP.get(max(param.opts, key=len), param.help)
    return params


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Write arguments and options under their headings, and `--help` last.

    Parameters
    ----------
    command : Command or Commands
        The command.
    ctx : Context
        Its context.
    formatter : HelpFormatter
        The formatter that collects the text.
    """
    headings: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    last: list[tuple[str, str]] = []
    for param in command.get_params(ctx):
        if param.param_type_name == "argument":
            headings["Arguments"].append((param.metavar, param.help or ""))
            continue
        record = param.get_help_record(ctx)
        if record is not None and "--help" in param.opts:
            last.append(record)
        elif record is not None:
            heading = getattr(param, "rich_help_panel", None) or "Options"
            headings.setdefault(heading, []).append((record[0], _range_in_words(record[1])))
    headings[list(headings)[-1]] += last
    for heading, records in headings.items():
        if records:
            with formatter.section(heading):
                formatter.write_dl(records)


def _range_in_words(text: str) -> str:
    """Return an option's help with Typer's range of numbers, such as "x>=1", in words."""
    text = re.sub(r"\b(\d+)<=x<=(\d+)\]$", r"\1 to \2]", text)
    return re.sub(r"\bx>=(\d+)\]$", r"at least \1]", text)


def _given(params: list[Any], words: list[str]) -> list[Any]:
    """Return the parameters that a command line gives, and those that it must give.

    All parameters are returned for a command line with `--help`, with a word that begins with a
    dash and is no option, such as a negative number, or with an option that does not exist.
    """
    arguments = [param for param in params if param.param_type_name == "argument"]
    by_option = {name: param for param in params if param not in arguments for name in param.opts}
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    if any(name not in by_option or name in HELP_OPTIONS for name in options):
        return params
    to_read = [by_option[name] for name in options]
    # A word without a dash is an argument, or the value of an option.
    to_read += arguments if len(options) < len(words) else []
    return [param for param in params if param.required or param in to_read]


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the help of options in the words of Forebay.

        While a command line is read, these are the parameters that it gives.
        """
        params: list[Any] | None = ctx.meta.get(GIVEN)
        return _reworded(super().get_params(ctx)) if params is None else params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; those that are not given keep their defaults.

        Typer reads an option that is not given, too, and loads pydantic to do so, which takes as
        long as many a command.
        """
        params = self.get_params(ctx)
        if not ctx.resilient_parsing:
            ctx.meta[GIVEN] = _given(params, args)
        try:
            rest: list[str] = super().parse_args(ctx, args)
        finally:
            ctx.meta.pop(GIVEN, None)
        for param in params:
            if param.expose_value:
                ctx.params.setdefault(param.name, param.default)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the command's name: the arguments by their metavariables."""
        params = self.get_params(ctx)
        arguments = [param.metavar for param in params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *arguments]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options under their headings."""
        _write_options(self, ctx, formatter)


class Commands(TyperGroup):
    """A group of commands; Ctrl-C also ends it while options are read."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with the help of options in the words of Forebay."""
        return _reworded(super().get_params(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, then the options."""
        self.format_commands(ctx, formatter)
        _write_options(self, ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with the first sentence of its help, under the headings of `COMMANDS`.

        The column of names is as wide under every heading.
        """
        headings = {
            heading: [name for name in commands if name in self.commands]
            for heading, commands in COMMANDS.items()
        }
        if ctx.parent is not None:
            headings = {"Commands": list(self.commands)}
        longest = max(map(len, self.commands), default=0)
        for heading, names in headings.items():
            if not names:
                continue
            rows = [
                (name.ljust(longest), first_sentence(self.commands[name].help or ""))
                for name in names
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options; Ctrl-C aborts."""
        with _abort_on_interrupt():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C aborts."""
        with _abort_on_interrupt():
            return super().invoke(ctx)


def front(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Read the options of `forebay` itself.

    Parameters
    ----------
    version : bool
        True to print the version and exit.
    """
    if version:
        print(f"forebay {__version__}")
        raise typer.Exit


def app(called: str | None = None, *, listed: bool = False) -> typer.Typer:
    """Return the command line, with a single command where it is known which one is called.

    Parameters
    ----------
    called : str, optional
        Name of the command that is called.
    listed : bool
        True for a list of the commands without their options, which take as long again to read.

    Returns
    -------
    Typer
        The command line.
    """
    alone = any(called in commands for commands in COMMANDS.values())
    commands_app = typer.Typer(
        cls=Commands,
        help="A workbench for active queue management (AQM).",
        # Typer loads pydantic, which is slow, to read any option without a value, even its own. The
        # help of a command does without these.
        add_completion=not alone,
        add_help_option=not alone,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={
            "help_option_names": HELP_OPTIONS,
            "max_content_width": WIDEST_HELP,
        },
    )
    commands_app.callback(invoke_without_command=True)(front)
    for commands in COMMANDS.values():
        for name, place in commands.items():
            if alone and name != called:
                continue
            if isinstance(place, dict):
                group = typer.Typer(cls=Commands, help=GROUPS[name], rich_markup_mode=None)
                for verb, function in place.items():
                    group.command(verb, cls=Command)(_loaded(function))
                commands_app.add_typer(group, name=name)
                continue
            command = _loaded(place)
            if listed and not alone:
                command = _without_options(command)
            text = command.__doc__
            if name in SHORT_FORMS:
                text = f"Short for `forebay {SHORT_FORMS[name]}`.\n\n{text}"
            add = commands_app.command(
                name, cls=Command, help=text, context_settings=SETTINGS.get(name, {})
            )
            add(command)
    return commands_app


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
