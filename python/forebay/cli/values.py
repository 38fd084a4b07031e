"""Values of options that need no reading.

Typer has pydantic read every value, also those that were not given; to load it takes longer than
`forebay laws`. A text, a path and nothing at all are what they are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Plain:
    """Stands where Typer keeps what reads the values of a parameter, until it is needed."""

    param: Any

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        many = param.multiple or param.nargs == -1
        kind = param.type_descriptor.annotation
        if value is None:
            return () if many else None
        if kind is str and isinstance(value, str):
            return value
        if kind == list[str] and isinstance(value, list | tuple) and not value:
            return []
        if kind == list[str] and many and all(isinstance(each, str) for each in value):
            return list(value)
        # Typer refuses what may not be read.
        if kind is Path and (os.access(value, os.R_OK) or not os.path.lexists(value)):
            return Path(value)
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def plain(params: list[Any]) -> None:
    """Has these parameters of Typer read plainly what is plain; those of a Typer that does it in
    another way stay as they are."""
    for param in params:
        simple = not getattr(getattr(param, "type_descriptor", None), "is_choice", True)
        if simple and getattr(param, "_runtime_param", param) is None:
            param._runtime_param = Plain(param)
