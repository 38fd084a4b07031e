"""What every other room stands on: quantities, metrics, statistics, errors, files, progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def getter(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package whose names are loaded when they are first asked for.

    `modules` has the module of each name, within the package.
    """

    def get(name: str) -> object:
        if name in modules:
            return getattr(import_module(f"{package}.{modules[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
