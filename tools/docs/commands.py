"""Writes the reference of the command line from the declarations of its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

HEAD = """\
# Command line

This page lists every command with its arguments and options.
`forebay COMMAND --help` prints the same.
"""


def page() -> str:
    """Return the page in Markdown."""
    import typer

    from forebay.cli.app import app

    group: Any = typer.main.get_command(app())
    sections = [_section(name, command) for name, command in _leaves(group)]
    return "\n".join([HEAD, *sections])


def _leaves(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command with its name; a command of a group has the group's name before its own."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, f"{before}{name} ")
        else:
            yield before + name, command


def _section(name: str, command: Any) -> str:
    """Return the section of a command."""
    params = [param for param in command.params if "--help" not in param.opts]
    arguments = [param for param in params if param.param_type_name == "argument"]
    options = [param for param in params if param.param_type_name == "option"]
    words = " ".join(
        ["forebay", name, "[OPTIONS]", *(_metavar(argument) for argument in arguments)]
    )
    lines = [f"## forebay {name}", "", _plain(command.help), "", f"```text\n{words}\n```", ""]
    rows = [(f"`{_metavar(argument)}`", argument) for argument in arguments]
    for option in options:
        names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
        value = _metavar(option)
        rows.append((f"{names} `{value}`" if value else names, option))
    if rows:
        lines += ["| | meaning | default |", "|---|---|---|"]
        lines += [
            f"| {_cell(label)} | {_cell(_plain(param.help))} | {_default(param)} |"
            for label, param in rows
        ]
    return "\n".join(lines) + "\n"


def _metavar(param: Any) -> str:
    """Return the placeholder of an argument or option."""
    if getattr(param, "is_flag", False):
        return ""
    kind = getattr(param.type_descriptor.annotation, "__name__", "value")
    return str(param.metavar or {"int": "N", "float": "X"}.get(kind, param.name.upper()))


def _default(param: Any) -> str:
    show = getattr(param, "show_default", True)
    if isinstance(show, str):
        return show
    if not show or param.default in (None, False, True) or callable(param.default):
        return ""
    return f"`{_cell(str(param.default))}`"


def _plain(text: str | None) -> str:
    """Return a text with each paragraph in one line."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", (text or "").strip())


def _cell(text: str) -> str:
    """Return a text escaped for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")
