"""Options that go together, declared once as a dataclass, as parameters of a command.

A command that takes `made: Annotated[Runs, Help(threads="…")]` has an option for each field of
`Runs`; `Help` has what this command says of a field in its own words.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer.models import OptionInfo


class Help:
    """What a command says of single fields of a group, in place of their usual words."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the fields of its groups as options of their own."""
    parameters, groups = [], {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group, texts = _group(parameter.annotation)
        if group is None:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = group
        hints = get_type_hints(group, include_extras=True)
        for field in fields(group):
            annotation = _worded(hints[field.name], texts.get(field.name))
            parameters.append(
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=field.default,
                    annotation=annotation,
                )
            )

    @functools.wraps(command)
    def called(**given: Any) -> None:
        values = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **values)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


def _group(annotation: Any) -> tuple[Any, dict[str, str]]:
    """The dataclass that a parameter stands for, if it is one, and the command's own words."""
    extras: tuple[Any, ...] = ()
    if get_origin(annotation) is Annotated:
        annotation, *extras = get_args(annotation)  # type: ignore[assignment]
    if not (isinstance(annotation, type) and is_dataclass(annotation)):
        return None, {}
    return annotation, {k: v for e in extras if isinstance(e, Help) for k, v in e.texts.items()}


def _worded(annotation: Any, text: str | None) -> Any:
    """An option's annotation, with other words of help."""
    if text is None:
        return annotation
    kind, option = get_args(annotation)
    assert isinstance(option, OptionInfo)
    option = copy(option)
    option.help = text
    return Annotated[kind, option]
