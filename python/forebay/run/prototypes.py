"""Laws prototyped in Python: what they look like, and how the command line finds them."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from forebay._native import ScenarioError

if TYPE_CHECKING:
    from forebay._native import Queue


class Controller(Protocol):
    """A periodic law written in Python. Every run makes a fresh one, without arguments.

    An attribute `target`, in packets, is the set-point that QACD is taken against where the
    scenario has none; `label` is the name in reports, the name of the class without it.
    """

    @property
    def interval(self) -> float | str:
        """Time between two samples: seconds, or a text such as "10ms"; read once per run."""

    def sample(self, queue: Queue, /) -> float:
        """The probability with which packets are dropped, or marked, until the next sample.

        It is held to [0, 1]; NaN counts as 0. An exception ends the run.
        """


#: Makes a law for a run: its class, or a function without arguments.
Prototype = Callable[[], Controller]


def load(text: str) -> str | Prototype:
    """What `path/to/file.py:NAME` names, a class as a rule; any other text is a law's name.

    Raises `ScenarioError` where the file or the name is not there, or the file fails.
    """
    if text.endswith(".py"):
        raise ScenarioError(f'--law: found "{text}", allowed: a law, or FILE.py:CLASS')
    path, separator, name = text.rpartition(":")
    if not separator or not path.endswith(".py"):
        return text
    file = Path(path).absolute()
    if not file.is_file():
        raise ScenarioError(
            f'--law: found "{text}", allowed: FILE.py:CLASS with a file that exists'
        )
    spec = importlib.util.spec_from_file_location(f"forebay_prototype_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses and pickles look their module up by name.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == file]
        line = f" in line {frames[-1].lineno}" if frames else ""
        raise ScenarioError(f"{path}: failed{line}: {type(error).__name__}: {error}") from error
    prototype = getattr(module, name, None)
    if not callable(prototype):
        classes = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == spec.name
        ]
        known = ", ".join(classes) or "no class is defined there"
        raise ScenarioError(f"{path}: found no {name}, allowed: {known}")
    return cast("Prototype", prototype)
