r"""The foundations that every other room uses; private to the package.

- `errors` has the tree of exceptions under `ForebayError`. Library code raises them with facts as
  attributes, and the command line turns the facts into a one-line message.
- `quantities` writes numbers as a scenario does ("15Mbit/s"), and `words` as prose does ("15
  Mbit/s"). `registries` has the laws, queues and senders that the native module declares, and gives
  the numbers of `overrides` their units; `metrics` has the names, units and titles of metrics.
- `statistics` computes intervals over seeds, paired and Welch comparisons, and the best of several
  laws with an error rate that holds for all of them together.
- `publication` makes files appear whole or not at all, and refuses a folder that holds another
  result. `input_file` reads files that other programs wrote and that may be damaged.
- `signals` lets Ctrl-C end work without losing what has finished. `progress` shows how far work is,
  and `terminal_table` prints tables that fit the terminal.
- `temporary` makes folders that do not outlive a killed process, and `worker_process` runs a
  function in another process under bounds of time and memory.

>>> from forebay._base import quantities, words
>>> quantities.rate(15e6), words.rate(15e6)
('15Mbit/s', '15\xa0Mbit/s')

A module of this room imports no other room, and nothing that takes long to load when it is imported
itself. Start reading at `errors` and `statistics`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def getter(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return a `__getattr__` for a package whose names are loaded when they are first used.

    Parameters
    ----------
    package : str
        Name of the package.
    modules : Mapping[str, str]
        The module within the package that defines each name.

    Returns
    -------
    Callable[[str], object]
        A function from a name to the object; it raises `AttributeError` for an unknown name.
    """

    def get(name: str) -> object:
        if name in modules:
            return getattr(import_module(f"{package}.{modules[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
