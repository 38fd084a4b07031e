"""The reference of the command line, from the declarations of its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

HEAD = """\
# The command line

`forebay COMMAND --help` shows the same. An option that may be given several times says so.
"""


def page() -> str:
    """The page in Markdown."""
    import typer

    from forebay.cli.app import app

    group: Any = typer.main.get_command(app())
    sections = [_section(name, command) for name, command in _leaves(group)]
    return "\n".join([HEAD, *sections])


def _leaves(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command, those of a group under its name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, f"{before}{name} ")
        else:
            yield before + name, command


def _section(name: str, command: Any) -> str:
    params = [param for param in command.params if "--help" not in param.opts]
    arguments = [param for param in params if param.param_type_name == "argument"]
    options = [param for param in params if param.param_type_name == "option"]
    words = " ".join(["forebay", name, "[OPTIONS]", *(_metavar(one) for one in arguments)])
    lines = [f"## forebay {name}", "", _plain(command.help), "", f"```text\n{words}\n```", ""]
    rows = [(f"`{_metavar(one)}`", one) for one in arguments]
    for one in options:
        names = ", ".join(f"`{opt}`" for opt in [*one.opts, *one.secondary_opts])
        value = _metavar(one)
        rows.append((f"{names} `{value}`" if value else names, one))
    if rows:
        lines += ["| | meaning | default |", "|---|---|---|"]
        lines += [
            f"| {_cell(left)} | {_cell(_plain(one.help))} | {_default(one)} |" for left, one in rows
        ]
    return "\n".join(lines) + "\n"


def _metavar(param: Any) -> str:
    if getattr(param, "is_flag", False):
        return ""
    kind = getattr(param.type_descriptor.annotation, "__name__", "value")
    return str(param.metavar or {"int": "N", "float": "X"}.get(kind, param.name.upper()))


def _default(param: Any) -> str:
    shown = getattr(param, "show_default", True)
    if isinstance(shown, str):
        return shown
    if not shown or param.default in (None, False, True) or callable(param.default):
        return ""
    return f"`{_cell(str(param.default))}`"


def _plain(text: str | None) -> str:
    """One paragraph a line, as Markdown takes it."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", (text or "").strip())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
