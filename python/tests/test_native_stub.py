"""`_native.pyi` says what the Rust module offers: the same names, attributes and arguments."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import _native

STUB = ast.parse((Path(forebay.__file__).parent / "_native.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
#: Shapes of dictionaries, and how to get one of each.
DICTIONARIES: dict[str, Any] = {
    "ParamInfo": lambda: next(law["params"][0] for law in _native.laws() if law["params"]),
    "LawEntry": lambda: _native.laws()[0],
    "RegistryEntry": lambda: _native.queues()[0],
    "KeyInfo": lambda: _native.keys()[0],
    "MeasureEntry": lambda: _native.measures()[0],
}


def bases(node: ast.ClassDef) -> list[str]:
    return [base.id for base in node.bases if isinstance(base, ast.Name)]


def typed_dict(node: ast.ClassDef) -> bool:
    """Whether it is a dictionary with known keys, itself or by a class that it extends."""
    return any(
        base == "TypedDict" or (base in CLASSES and typed_dict(CLASSES[base]))
        for base in bases(node)
    )


def attributes(node: ast.ClassDef) -> set[str]:
    """Those that it declares, and those of the classes that it extends."""
    own = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    own |= {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    inherited = [attributes(CLASSES[base]) for base in bases(node) if base in CLASSES]
    return {name for name in own.union(*inherited) if not name.startswith("__")}


def arguments(node: ast.FunctionDef) -> list[str]:
    found = node.args
    return [one.arg for one in [*found.posonlyargs, *found.args, *found.kwonlyargs]]


def test_every_name_is_in_the_stub() -> None:
    variables = {
        node.target.id
        for node in STUB.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    typed = {name for name, node in CLASSES.items() if typed_dict(node)}
    declared = {*CLASSES, *FUNCTIONS, *variables} - typed
    offered = {name for name in dir(_native) if not name.startswith("__")} | {"__version__"}
    assert declared == offered


@pytest.mark.parametrize("name", [name for name, node in CLASSES.items() if not typed_dict(node)])
def test_classes_have_the_same_attributes(name: str) -> None:
    if name == "ScenarioError":
        assert issubclass(_native.ScenarioError, ValueError)
        return
    offered = {one for one in dir(getattr(_native, name)) if not one.startswith("__")}
    assert attributes(CLASSES[name]) == offered


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_the_same_arguments(name: str) -> None:
    assert arguments(FUNCTIONS[name]) == list(inspect.signature(getattr(_native, name)).parameters)


@pytest.mark.parametrize("name", DICTIONARIES)
def test_dictionaries_have_the_same_keys(name: str) -> None:
    assert attributes(CLASSES[name]) == set(DICTIONARIES[name]())
