"""Options of a command, declared by its signature and its docstring.

A parameter is an option; one before `/` is an argument. Below the docstring's first paragraphs
stands a line for each: `name METAVAR: help`. A parameter that is a dataclass has an option for each
of its fields, with the dataclass' words where the command has none. Typer gets a function with that
many parameters, each annotated with its own `typer.Option` or `typer.Argument`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer

LINE = re.compile(r"(?P<name>\w+)(?: (?P<metavar>\S.*?))?: (?P<help>.+)")
#: End of the help of an option that is a list.
SEVERAL = "May be given several times."


class OptionText(NamedTuple):
    """Metavariable and help of an option, as a docstring has them."""

    metavar: str | None = None
    help: str | None = None


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` as Typer reads it; parameters in `**options` are declared by the caller."""
    signature, kinds = inspect.signature(command, eval_str=True), inspect.Parameter
    declared = [p for p in signature.parameters.values() if p.kind is not kinds.VAR_KEYWORD]
    groups: dict[str, Any] = {p.name: p.annotation for p in declared if is_dataclass(p.annotation)}
    arguments = [p.name for p in declared if p.kind is kinds.POSITIONAL_ONLY]
    names = [field.name for group in groups.values() for field in fields(group)]
    about, texts = _described(command, [p.name for p in declared] + names)
    parameters: list[inspect.Parameter] = []
    for p in declared:
        if p.name in groups:
            parameters += _of_group(groups[p.name], texts)
        else:
            text = texts.get(p.name, OptionText())
            argument = p.name in arguments
            parameters.append(_parameter(p.name, p.annotation, p.default, text, argument))

    @functools.wraps(command)
    def called(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(*[values.pop(name) for name in arguments], **values)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__doc__ = about
    return called


def flowing(text: str) -> str:
    """Join the lines of each paragraph: a terminal breaks lines where it ends."""
    return "\n\n".join(
        paragraph if re.search(r"^\s", paragraph, re.MULTILINE) else " ".join(paragraph.split())
        for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).strip())
    )


def _described(documented: Any, names: Iterable[str]) -> tuple[str, dict[str, OptionText]]:
    """Return the docstring without its lines on these parameters; and those lines, parsed."""
    about: list[str] = []
    texts: dict[str, list[str]] = {}
    name = ""
    for line in inspect.cleandoc(documented.__doc__ or "").splitlines():
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


def _of_group(group: Any, own: Mapping[str, OptionText]) -> Iterator[inspect.Parameter]:
    """Yield the fields of a dataclass; `own` has the command's words, which come first."""
    names = [field.name for field in fields(group)]
    words: dict[str, OptionText] = {}
    for base in reversed(group.__mro__):
        words |= _described(base, names)[1]
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        usual, special = words.get(field.name, OptionText()), own.get(field.name, OptionText())
        text = OptionText(special.metavar or usual.metavar, special.help or usual.help)
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield _parameter(field.name, hints[field.name], default, text)


def _parameter(
    name: str, annotation: Any, default: Any, text: OptionText, is_argument: bool = False
) -> inspect.Parameter:
    """Return a parameter of a command as Typer reads it."""
    kind, option = annotation, None
    if get_origin(annotation) is Annotated:
        kind, option = get_args(annotation)
        option = copy(option)
    elif is_argument:
        option = typer.Argument()
    else:
        # Flags have no opposite; Python keeps `set` and `json` for itself.
        option = typer.Option(f"--{name.removeprefix('as_').rstrip('_').replace('_', '-')}")
    kinds = {kind, *get_args(kind)}
    option.metavar = text.metavar or option.metavar
    option.help = text.help or option.help
    if Path in kinds and not is_argument:
        option.parser = path
    several = any(get_origin(kind) is list for kind in kinds)
    if several and option.help and not is_argument and not option.help.endswith(SEVERAL):
        option.help += f" {SEVERAL}"
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


def path(text: str) -> Path:
    """Return a path; an empty one, as of a shell variable that is not set, is a `ValueError`."""
    return Path(address(text))


def address(text: str) -> str:
    """Return a path or an address as it is; an empty one is a `ValueError`."""
    if text == "":
        raise ValueError("a path")
    return text
