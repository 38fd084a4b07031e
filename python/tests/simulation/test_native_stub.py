"""`_native.pyi` says what the Rust module offers: its names, attributes, arguments and types."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import types
import typing
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import _native
from forebay.fluid import Bottleneck, Class, Model


def _stub() -> types.ModuleType:
    """The stub as a module: its signatures and annotations are Python."""
    path = str(Path(forebay.__file__).parent / "_native.pyi")
    loader = SourceFileLoader("native_stub", path)
    spec = importlib.util.spec_from_loader("native_stub", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Types are looked up by the name of their module.
    sys.modules["native_stub"] = module
    # It names classes that stand further down.
    source = "from __future__ import annotations\n" + Path(path).read_text()
    exec(compile(source, path, "exec"), module.__dict__)
    return module


STUB = _stub()
OWN = {
    name: it for name, it in vars(STUB).items() if getattr(it, "__module__", "") == STUB.__name__
}
DICTIONARIES = {name: it for name, it in OWN.items() if typing.is_typeddict(it)}
CLASSES = {name: it for name, it in OWN.items() if inspect.isclass(it) and name not in DICTIONARIES}
FUNCTIONS = {name: it for name, it in OWN.items() if inspect.isfunction(it)}

SCENARIO = b"""
duration = "3s"
[bottleneck]
rate = "10Mbit/s"
buffer = "64kB"
rate_trace = "times"
[[link]]
name = "other"
from = "right"
to = "far"
rate = "20Mbit/s"
delay = "1ms"
buffer = "100p"
law = "droptail"
[[traffic]]
kind = "mice"
flows = 2
rtt = "40ms"
path = ["left", "right", "far"]
stop = "2s"
[[law]]
kind = "pi"
target = "20p"
[[at]]
time = "1s"
set = { "link.other.delay" = "2ms", "traffic.0.flows" = 1 }
"""


def plan() -> _native.Plan:
    return _native.plan(SCENARIO, "stub.toml", read=lambda name: b"1\n2\n2\n5\n")


def finished() -> _native.Run:
    batch = plan().start(1)
    while not batch.done:
        pass
    runs, faults = batch.take()
    assert not faults
    return runs[0]


def settings() -> _native.LinkSettings:
    given = {"rate": "10Mbit/s", "delay": "5ms", "aqm": "pi", "set": {"target": "20p"}}
    return _native.LinkSettings(given)


def law_model() -> _native.LawModel:
    return _native.LawModel("pi", [("target", "20p")], 10**7, 1000, 100.0)


def linear() -> _native.LinearModel:
    found = law_model().operate(10, 0.05)
    assert found is not None
    return found[1]


def designed() -> _native.DesignedLaw:
    found = law_model().design(POINT, "20ms", [])
    assert found is not None
    return found


def fluid() -> _native.FluidTrace:
    bottleneck = Bottleneck("pi", "10Mbit/s", 400)
    return _native.fluid_run(Model([bottleneck], [Class(10, "50ms")], duration="1s"))


POINT = _native.OperatingPoint(10, 0.05, 1250)
#: One of each kind; classes that only a link with real packets makes are made of these.
EXAMPLES: dict[str, Callable[[], Any]] = {
    "ParamInfo": lambda: next(law["params"][0] for law in _native.laws() if law["params"]),
    "RegistryEntry": lambda: _native.queues()[0],
    "LawEntry": lambda: _native.laws()[0],
    "SenderEntry": lambda: _native.senders()[0],
    "KeyInfo": lambda: _native.keys()[0],
    "MeasureEntry": lambda: _native.measures()[0],
    "LinkOptionInfo": lambda: _native.link_options()[0],
    "LinearModel": linear,
    "DesignedLaw": designed,
    "Plan": plan,
    "PointInfo": lambda: plan().points[0],
    "LinkInfo": lambda: plan().points[0].links[0],
    "LawInfo": lambda: plan().points[0].laws[0],
    "TrafficInfo": lambda: plan().points[0].traffic[0],
    "ChangeInfo": lambda: plan().points[0].changes[0],
    "Observed": lambda: finished().links[1],
    "Run": finished,
    "OperatingPoint": lambda: POINT,
    "LawModel": law_model,
    "LinkSettings": settings,
    "LinkDirectionSettings": lambda: settings().up,
    "FluidTrace": fluid,
}


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("__")}


def hints(stub: type) -> dict[str, Any]:
    """Types of the attributes, whether they are declared as such or as properties."""
    found = typing.get_type_hints(stub)
    for owner in stub.__mro__:
        for name, it in vars(owner).items():
            if isinstance(it, property) and it.fget is not None:
                found[name] = typing.get_type_hints(it.fget)["return"]
    return found


def conforms(value: object, hint: Any) -> bool:
    """Whether a value is of the type that the stub says."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(conforms(value, one) for one in inner)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray)
    if origin is list:
        return isinstance(value, list) and all(conforms(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(conforms(one, inner[1]) for one in value.values())
    if origin is tuple:
        if inner[1:] == (Ellipsis,):
            inner = (inner[0],) * len(typing.cast("tuple[Any, ...]", value))
        return isinstance(value, tuple) and all(map(conforms, value, inner))
    if typing.is_typeddict(hint):
        found = typing.get_type_hints(hint)
        return (
            isinstance(value, dict)
            and value.keys() == found.keys()
            and all(conforms(one, found[key]) for key, one in value.items())
        )
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is None or hint is type(None):
        return value is None
    return type(value).__name__ == str(hint.__name__)


def parameters(function: Callable[..., object]) -> list[tuple[str, object, bool]]:
    """Name, whether it must be named, and whether it may be left out."""
    found = inspect.signature(function).parameters.values()
    return [
        (one.name, one.kind == one.KEYWORD_ONLY, one.default is not one.empty)
        for one in found
        if one.name != "self"
    ]


def test_every_name_is_in_the_stub() -> None:
    declared = {*CLASSES, *FUNCTIONS, *typing.get_type_hints(STUB)}
    # Python's own class, which the stub imports and the module raises.
    raised = {"ScenarioError"}
    assert declared | raised == public(dir(_native)) | {"__version__"}
    assert _native.ScenarioError is forebay.ScenarioError


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_as_the_stub_says(name: str) -> None:
    stub, native = CLASSES[name], getattr(_native, name)
    if name == "ScenarioError":
        assert issubclass(native, ValueError)
        return
    assert {*hints(stub), *public(dir(stub))} == public(dir(native))
    assert [base.__name__ for base in stub.__bases__] == [
        base.__name__ for base in native.__bases__
    ]
    assert ("__init__" in vars(stub)) == ("__new__" in vars(native))
    if "__init__" in vars(stub):
        assert parameters(stub.__init__) == parameters(native)
    for method, it in vars(stub).items():
        if inspect.isfunction(it) and not method.startswith("__"):
            assert parameters(it) == parameters(getattr(native, method)), method


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_the_same_arguments(name: str) -> None:
    assert parameters(FUNCTIONS[name]) == parameters(getattr(_native, name))


@pytest.mark.parametrize("name", EXAMPLES)
def test_values_have_the_types_of_the_stub(name: str) -> None:
    found = EXAMPLES[name]()
    if name in DICTIONARIES:
        assert conforms(found, DICTIONARIES[name])
        return
    for attribute, hint in hints(CLASSES[name]).items():
        value = getattr(found, attribute)
        assert conforms(value, hint), f"{attribute} is {value!r}, and not {hint}"


def test_every_dictionary_has_an_example() -> None:
    assert DICTIONARIES.keys() <= EXAMPLES.keys()
