"""Options of a command, declared by its signature and its docstring.

A parameter is an option; one before `/` is an argument. The numpydoc section `Parameters` of the
docstring has its metavariable, where a type usually stands, and its help::

    page : FILE
        Write the comparison as Markdown.

A parameter that is a dataclass has an option for each of its fields, which the section `Attributes`
of the dataclass describes where the command does not. Typer gets a function with that many
parameters, each annotated with its own `typer.Option` or `typer.Argument`.
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

#: The first line of an entry of a numpydoc section.
ENTRY = re.compile(r"(?P<name>\w+)(?: : (?P<metavar>\S.*))?")
#: Heading of the section of a docstring that has such entries.
SECTION = re.compile(r"\n\n(?:Parameters|Attributes)\n")
#: End of the help of an option that is a list.
SEVERAL = "May be given several times."


class OptionText(NamedTuple):
    """Metavariable and help of an option, as a docstring has them."""

    metavar: str | None = None
    help: str | None = None


class DeclaredCommand:
    """A command as Typer reads and calls it, with a parameter for each of its options.

    The parameters are computed when Typer asks for the signature: a list of commands does not.
    """

    def __init__(self, command: Callable[..., None]) -> None:
        functools.update_wrapper(self, command)
        self._command = command
        self.__doc__ = _about(command)

    @functools.cached_property
    def _own(self) -> list[inspect.Parameter]:
        """The parameters of the function, without those in `**options`."""
        signature = inspect.signature(self._command, eval_str=True)
        return [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]

    @functools.cached_property
    def _groups(self) -> dict[str, Any]:
        """The parameters that are dataclasses."""
        return {p.name: p.annotation for p in self._own if is_dataclass(p.annotation)}

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters that Typer reads; those in `**options` are added by a subclass."""
        fields_of_groups = [f.name for group in self._groups.values() for f in fields(group)]
        texts = _described(self._command, [*(p.name for p in self._own), *fields_of_groups])
        parameters: list[inspect.Parameter] = []
        for p in self._own:
            if p.name in self._groups:
                parameters += _of_group(self._groups[p.name], texts)
            else:
                text = texts.get(p.name, OptionText())
                is_argument = p.kind is p.POSITIONAL_ONLY
                parameters.append(_parameter(p.name, p.annotation, p.default, text, is_argument))
        return parameters

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        """The signature with each option as a parameter of its own."""
        return inspect.Signature(self.parameters())

    def __call__(self, **values: Any) -> None:
        """Run the command with values of the options by name."""
        for name, group in self._groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        arguments = [values.pop(p.name) for p in self._own if p.kind is p.POSITIONAL_ONLY]
        self._command(*arguments, **values)


def with_options(command: Callable[..., None]) -> DeclaredCommand:
    """Return `command` as Typer reads it."""
    return DeclaredCommand(command)


def flowing(text: str) -> str:
    """Join the lines of each paragraph: a terminal breaks lines where it ends."""
    return "\n\n".join(
        paragraph if re.search(r"^\s", paragraph, re.MULTILINE) else " ".join(paragraph.split())
        for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).strip())
    )


def first_sentence(text: str) -> str:
    """Return the first sentence of a help, for a list of commands."""
    paragraph = flowing(text).partition("\n\n")[0]
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0]


def _about(documented: Any) -> str:
    """Return the text of a docstring before its sections."""
    return flowing(SECTION.split(inspect.cleandoc(documented.__doc__ or ""), maxsplit=1)[0])


def _described(documented: Any, names: Iterable[str]) -> dict[str, OptionText]:
    """Return metavariable and help of each parameter that a docstring describes.

    Parameters
    ----------
    documented : function or class
        The object whose docstring is read.
    names : iterable of str
        Parameters; an entry of any other name is an error.
    """
    text = inspect.cleandoc(documented.__doc__ or "")
    _, *sections = SECTION.split(text, maxsplit=1)
    described = "".join(sections)
    entries: dict[str, tuple[str | None, list[str]]] = {}
    lines: list[str] = []
    for line in described.splitlines()[1:]:
        if line.startswith((" ", "\t")) or not line:
            lines.append(line.strip())
            continue
        entry = ENTRY.fullmatch(line)
        if entry is None or entry["name"] not in names:
            raise ValueError(f"{documented.__qualname__}: no parameter for {line!r}")
        lines = []
        entries[entry["name"]] = entry["metavar"], lines
    return {
        name: OptionText(metavar, " ".join(lines).strip() or None)
        for name, (metavar, lines) in entries.items()
    }


def _of_group(group: Any, own: Mapping[str, OptionText]) -> Iterator[inspect.Parameter]:
    """Yield the fields of a dataclass; the texts of the command, `own`, come first."""
    names = [field.name for field in fields(group)]
    inherited: dict[str, OptionText] = {}
    for base in reversed(group.__mro__):
        if is_dataclass(base):
            inherited |= _described(base, names)
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        usual, special = inherited.get(field.name, OptionText()), own.get(field.name, OptionText())
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
        # Flags have no opposite; `set` and `json` are names of Python, and get an underscore.
        option = typer.Option(f"--{name.removeprefix('as_').rstrip('_').replace('_', '-')}")
    kinds = {kind, *get_args(kind)}
    option.metavar = text.metavar or option.metavar or _metavar(name, kinds)
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


def _metavar(name: str, kinds: set[Any]) -> str:
    """Return the metavariable of a parameter whose docstring has none."""
    return {int: "N", float: "X"}.get(next(iter(kinds & {int, float}), str), "") or (
        name.strip("_").upper()
    )


def path(text: str) -> Path:
    """Return a path; an empty one, as of a shell variable that is not set, is a `ValueError`."""
    return Path(address(text))


def address(text: str) -> str:
    """Return a path or an address as it is; an empty one is a `ValueError`."""
    if text == "":
        raise ValueError("a path")
    return text
