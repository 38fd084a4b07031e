"""Names of a package that are loaded when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def getter(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package: `modules` has the module of each name."""

    def get(name: str) -> object:
        if name in modules:
            return getattr(import_module(f"{package}.{modules[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
