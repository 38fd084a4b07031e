"""A command's options, out of its signature and its docstring.

A parameter is an option; one before `/` is an argument. Below the docstring's first paragraphs
stands a line for each: `name METAVAR: what the help says of it`. A parameter that is a dataclass
has an option for each of its fields, with the dataclass' words where the command has none.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer

LINE = re.compile(r"(?P<name>\w+)(?: (?P<metavar>\S.*?))?: (?P<help>.+)")
#: What the help says of an option that is a list.
SEVERAL = "May be given several times."


class OptionText(NamedTuple):
    """What a docstring says of a parameter."""

    metavar: str | None = None
    help: str | None = None


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as Typer reads it."""
    declared = inspect.signature(command, eval_str=True).parameters.values()
    # What is left is given its options by the command itself.
    given = [it for it in declared if it.kind is not inspect.Parameter.VAR_KEYWORD]
    groups: dict[str, Any] = {it.name: it.annotation for it in given if is_dataclass(it.annotation)}
    names = [field.name for group in groups.values() for field in fields(group)]
    about, described = _described(command, [it.name for it in given] + names)
    parameters: list[inspect.Parameter] = []
    positional = []
    for it in given:
        if it.name in groups:
            parameters += _of_group(groups[it.name], described)
            continue
        is_argument = it.kind is inspect.Parameter.POSITIONAL_ONLY
        positional += [it.name] * is_argument
        text = described.get(it.name, OptionText())
        parameters.append(_parameter(it.name, it.annotation, it.default, text, is_argument))

    @functools.wraps(command)
    def called(**values: Any) -> None:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(*[values.pop(name) for name in positional], **values, **made)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__doc__ = about
    return called


def flowing(text: str) -> str:
    """Paragraphs without the line breaks of the source: a terminal breaks lines where it ends."""
    return "\n\n".join(
        paragraph if re.search(r"^\s", paragraph, re.MULTILINE) else " ".join(paragraph.split())
        for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).strip())
    )


def _described(of: Any, names: Iterable[str]) -> tuple[str, dict[str, OptionText]]:
    """The docstring without what it says of these parameters; and that."""
    about: list[str] = []
    texts: dict[str, list[str]] = {}
    name = ""
    for line in inspect.cleandoc(of.__doc__ or "").splitlines():
        match = LINE.fullmatch(line)
        if match and match["name"] in names and about:
            name = match["name"]
            texts[name] = [match["metavar"] or "", match["help"]]
        elif name:
            texts[name].append(line.strip())
        else:
            about.append(line)
    described = {
        name: OptionText(metavar or None, " ".join(lines).strip())
        for name, (metavar, *lines) in texts.items()
    }
    return flowing("\n".join(about)), described


def _of_group(group: Any, own: Mapping[str, OptionText]) -> Iterable[inspect.Parameter]:
    """The fields of a dataclass; `own` are the command's words, before those of the dataclass."""
    names = [field.name for field in fields(group)]
    words: dict[str, OptionText] = {}
    for base in reversed(group.__mro__):
        words |= _described(base, names)[1]
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        usual, mine = words.get(field.name, OptionText()), own.get(field.name, OptionText())
        text = OptionText(mine.metavar or usual.metavar, mine.help or usual.help)
        yield _parameter(field.name, hints[field.name], field.default, text)


def _parameter(
    name: str, annotation: Any, default: Any, text: OptionText, is_argument: bool = False
) -> inspect.Parameter:
    """A parameter of a command, as Typer has it."""
    kind, option = annotation, None
    if get_origin(annotation) is Annotated:
        kind, option = get_args(annotation)
        option = copy(option)
    elif is_argument:
        option = typer.Argument()
    else:
        # Flags have no opposite; `set_`, `as_json` are no names of Python's own.
        flag = name.removeprefix("as_").rstrip("_").replace("_", "-")
        option = typer.Option(f"--{flag}")
    option.metavar = text.metavar or option.metavar
    option.help = text.help or option.help
    several = any(get_origin(it) is list for it in (kind, *get_args(kind)))
    if several and option.help and not is_argument and not option.help.endswith(SEVERAL):
        option.help += f" {SEVERAL}"
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )
