"""Laws written in Python: how they are loaded, which parameters they have, and how they are called.

The native module calls `named` and `brought`, builds a law from the description, and calls its
hooks; `blame` writes the message about a hook that fails.
"""

from __future__ import annotations

import ctypes
import dataclasses
import dis
import hashlib
import importlib.util
import inspect
import math
import random
import sys
import threading
import traceback
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, cast

from forebay._base import quantities
from forebay._base.errors import ParameterError
from forebay._native import ScenarioError, set_point_pkts

if TYPE_CHECKING:
    from types import ModuleType


#: A class or a function that builds a law; it takes the parameters by name.
Prototype = Callable[..., Any]


class Controller:
    """A law written in Python.

    Every run builds a new instance. A law need not inherit from this class, which only adds types.

    A law has at least one of these hooks:

    - `sample(self, queue) -> float` is called each `interval` (seconds, or a text such as "10ms")
      and returns the probability with which each packet is signalled until the next sample.
    - `on_enqueue(self, queue, packet) -> str` is called for each arrival, and
    - `on_dequeue(self, queue, packet) -> str` for each departure. They return "pass", "mark" or
      "drop"; "mark" sets CE on an ECN-capable packet and drops any other. `queue` does not include
      the packet.

    The fields of a dataclass are its parameters, with the types of `quantities`. `target`, in
    packets or as a text such as "15ms", is the set-point against which QACD is computed if the
    scenario has none. `label` is the name in reports, by default the name of the class.

    Attributes
    ----------
    rng : random.Random
        Random numbers that are determined by the seed; available from the first hook on.
    """

    # typing.get_type_hints resolves the types of a dataclass with those of its bases, so `random`
    # must be imported in this module.
    rng: random.Random


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of a law in Python: a field of its dataclass.

    Attributes
    ----------
    name : str
        Name of the field.
    unit : str
        "s", "p", "bit/s", "B", or "" for a plain number.
    shape : str
        "number", "integer", "flag" or "text".
    default : bool | int | float | str | None
        The default, as a scenario writes it; None if the parameter is required.
    low : float
        The smallest value.
    high : float
        The largest value.
    doc : str
        A sentence about the parameter.
    """

    name: str
    unit: str
    shape: str
    default: bool | int | float | str | None
    low: float
    high: float
    doc: str


@dataclasses.dataclass(frozen=True)
class Described:
    """The description of a law in Python, as the native module reads it.

    Attributes
    ----------
    kind : str
        Its name in a scenario.
    label : str
        Its name in reports.
    source : str
        Its file, its name in the file, and the start of a hash of the file.
    params : list[Parameter]
        Its parameters.
    constants : list[tuple[str, str]]
        Set-point and interval, as a scenario writes them, if they are not parameters.
    made : Callable[[dict[str, Any]], LawHooks]
        A function that builds the law from values of its parameters.
    """

    kind: str
    label: str
    source: str
    params: list[Parameter]
    constants: list[tuple[str, str]]
    made: Callable[[dict[str, Any]], LawHooks]


def load(text: str) -> str | Prototype:
    """Return the class that `path/to/file.py:NAME` names.

    Any other text is returned unchanged: it is the name of a law.

    Raises
    ------
    ScenarioError
        If the file or the name does not exist, or the file fails.
    """
    if text.endswith(".py"):
        raise ParameterError("laws", text, "a law, or FILE.py:CLASS")
    path, separator, _ = text.rpartition(":")
    return _load(text, None) if separator and path.endswith(".py") else text


def named(kind: str, scenario: str | None) -> Described:
    """Return the description of the law FILE.py:NAME.

    Parameters
    ----------
    kind : str
        The law as the scenario writes it.
    scenario : str | None
        Path of the scenario, to whose folder FILE.py is relative; None for the working directory.

    Raises
    ------
    ScenarioError
        If the file or the name does not exist, or the file fails.
    """
    return _described(_load(kind, scenario), kind)


def brought(prototype: Prototype) -> Described:
    """Return the description of a class or a function that the caller holds.

    Raises
    ------
    ScenarioError
        If it does not describe a law.
    """
    return _described(prototype, None)


def digest(prototype: Prototype) -> str | None:
    """Return the SHA-256 of the file that defines a law, or else of its source text.

    Together with its parameters the digest identifies a law. Modules that the file imports are not
    covered.

    Returns
    -------
    str | None
        The digest; None if there is no source, for example for a class that was typed into an
        interpreter.
    """
    plain = inspect.unwrap(getattr(prototype, "func", prototype))
    file = _file(plain)
    try:
        text = file.read_bytes() if file else inspect.getsource(plain).encode()
    except (OSError, TypeError):
        return None
    return hashlib.sha256(text).hexdigest()


def _file(prototype: object) -> Path | None:
    """Return the file that defines an object; None if there is none."""
    module = sys.modules.get(getattr(prototype, "__module__", ""))
    file = getattr(module, "__file__", None)
    return Path(file) if file else None


def _load(kind: str, scenario: str | None) -> Prototype:
    """Return the object FILE.py:NAME."""
    path, _, name = kind.rpartition(":")
    file = Path.cwd() / (Path(scenario).parent if scenario else "") / path
    if not file.is_file():
        expected = "FILE.py:CLASS with a file that exists"
        if not scenario:
            raise ParameterError("laws", kind, expected)
        raise ScenarioError(f'{scenario}: law.kind: "{kind}" is not valid; expected {expected}')
    module = _module(file, path)
    prototype = getattr(module, name, None)
    if not callable(prototype):
        classes = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__
        ]
        defined = ", ".join(classes) or "no class is defined there"
        raise ScenarioError(f"{path}: there is no class {name}; expected {defined}")
    return cast("Prototype", prototype)


def _module(file: Path, name_in_messages: str) -> ModuleType:
    """Run a file as a module and return the module."""
    spec = importlib.util.spec_from_file_location(f"forebay_prototype_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs: dataclasses and pickles look up their module by name.
    sys.modules[spec.name] = module
    try:
        with _importing_from(file.parent):
            spec.loader.exec_module(module)
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == file]
        line = frames[-1].lineno if frames else getattr(error, "lineno", None)
        at = f" in line {line}" if line else ""
        raise ScenarioError(
            f"{name_in_messages}: failed{at}: {type(error).__name__}: {error}"
        ) from error
    return module


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Enter a context in which a file may import modules of its own folder, as a script may."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _described(prototype: Prototype, kind: str | None) -> Described:
    """Return the description of a law."""
    name = getattr(prototype, "__name__", type(prototype).__name__)
    params = list(_parameters(prototype, name))
    param_names = {param.name for param in params}
    like = _example(prototype, name, params)
    label = name if "label" in param_names else getattr(like, "label", None)
    if label is None:
        label = like.__name__ if isinstance(like, type) else type(like).__name__
    if not isinstance(label, str):
        raise ParameterError("laws", label, "a text", item=f"{name}.label")
    file = _file(inspect.unwrap(getattr(prototype, "func", prototype)))
    sha = digest(prototype)
    source = f"{file.name if file else 'Python'}:{name}"
    return Described(
        kind=kind or f"python:{label}",
        label=label,
        source=f"{source}, SHA-256 {sha[:16]}" if sha else "",
        params=params,
        constants=list(_constants(like, label, param_names)),
        made=lambda values: make(prototype, values),
    )


def _example(prototype: Prototype, name: str, params: list[Parameter]) -> object:
    """Return an instance with default parameters, or else the class."""
    if any(param.default is None for param in params):
        return prototype
    # Defaults may be texts with a unit, which only a run turns into numbers.
    if params:
        return prototype if isinstance(prototype, type) else object()
    try:
        return prototype()
    except Exception as error:
        expected = (
            "the name of a law, or a class whose only arguments are the fields of a dataclass"
        )
        raise ParameterError("laws", error, expected, item=name) from error


def _constants(like: object, label: str, param_names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the set-point and the interval as a scenario writes them."""
    target, interval = (
        None if key in param_names else getattr(like, key, None) for key in ("target", "interval")
    )
    if target is not None:
        key = f"{label}.target"
        number = isinstance(target, int | float) and not isinstance(target, bool)
        text = quantities.packets(target) if number and math.isfinite(target) else str(target)
        if not number and not isinstance(target, str):
            raise ParameterError("laws", target, "a number of packets, or a text", item=key)
        set_point_pkts(f"law: {key}", text, 10**9, 1000)
        yield "target", text
    if isinstance(interval, str):
        yield "interval", interval
    elif isinstance(interval, int | float) and math.isfinite(interval):
        yield "interval", quantities.time(interval)


SHAPES = {float: "number", int: "integer", bool: "flag", str: "text"}
#: The functions that write a number with its unit.
WRITTEN: dict[str, Callable[[Any], str]] = {
    "s": quantities.time,
    "p": quantities.packets,
    "bit/s": quantities.rate,
    "B": quantities.size,
}


def _parameters(prototype: Prototype, name: str) -> Iterator[Parameter]:
    """Yield the parameters of a dataclass."""
    if not (isinstance(prototype, type) and dataclasses.is_dataclass(prototype)):
        return
    try:
        hints = typing.get_type_hints(prototype, include_extras=True)
    except NameError as error:
        raise ParameterError("laws", error, "types that exist", item=name) from error
    for field in dataclasses.fields(prototype):
        if not field.init:
            continue
        hint = hints[field.name]
        extras = getattr(hint, "__metadata__", ())
        plain = getattr(hint, "__origin__", hint)
        unit = next((extra.name for extra in extras if isinstance(extra, quantities.Unit)), "")
        if plain not in SHAPES:
            expected = "float, int, bool, str, or a type of forebay.units"
            item = f"{name}.{field.name}"
            raise ParameterError("laws", field.type, expected, item=item)
        # The last range is the outermost and narrows the range of the type itself.
        bounds = [extra for extra in extras if isinstance(extra, quantities.Range)]
        low, high = (bounds[-1].low, bounds[-1].high) if bounds else (-math.inf, math.inf)
        yield Parameter(
            name=field.name,
            unit=unit,
            shape=SHAPES[plain],
            default=_default(field, unit),
            low=max(low, 0.0) if unit else low,
            high=high,
            doc=str(field.metadata.get("doc", "")),
        )


def _default(field: dataclasses.Field[Any], unit: str) -> bool | int | float | str | None:
    """Return the default of a field as a scenario writes it."""
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value is dataclasses.MISSING:
        return None
    if unit and isinstance(value, int | float) and not isinstance(value, bool):
        return WRITTEN[unit](value)
    return cast("bool | int | float | str", value)


#: The hooks of a law, with the values that each may return.
HOOKS = {
    "sample": "a probability from 0 to 1",
    "on_enqueue": '"pass", "mark" or "drop"',
    "on_dequeue": '"pass", "mark" or "drop"',
}
#: The largest number of calls to list below the exception of a law.
MOST_CALLS = 4


class UnfitError(Exception):
    """A class that does not make a law.

    Attributes
    ----------
    key : str
        The part of the class that is at fault.
    reason : str
        The fault of that part.
    expected : str
        Description of a correct part.
    """

    def __init__(self, key: str, reason: str, expected: str) -> None:
        self.key, self.reason, self.expected = key, reason, expected
        super().__init__(f"{key}: {reason}; expected {expected}")


@dataclass(frozen=True)
class LawHooks:
    """A law as the native module calls it.

    Attributes
    ----------
    interval : object
        Seconds, or a text with a unit; None without `sample`.
    sample : Callable[..., object] | None
        The hook `sample`, if any.
    on_enqueue : Callable[..., object] | None
        The hook `on_enqueue`, if any.
    on_dequeue : Callable[..., object] | None
        The hook `on_dequeue`, if any.
    seeded : Callable[[int], None]
        A function that takes the seed for the law's random numbers.
    blame : Callable[[str, BaseException | None, object], str]
        A function that takes the name of a hook, and the exception that it raised or else the value
        that it returned, and returns a message.
    """

    interval: object
    sample: Callable[..., object] | None
    on_enqueue: Callable[..., object] | None
    on_dequeue: Callable[..., object] | None
    seeded: Callable[[int], None]
    blame: Callable[[str, BaseException | None, object], str]


def make(prototype: Callable[..., Any], values: dict[str, Any]) -> LawHooks:
    """Build a law with these parameters.

    Parameters
    ----------
    prototype : Callable[..., Any]
        The class or function.
    values : dict[str, Any]
        The values of its parameters by name.

    Raises
    ------
    UnfitError
        If the object is not a law.
    """
    try:
        law = prototype(**values)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}{_at(error)}"
        raise UnfitError("kind", reason, "a class that accepts its parameters") from error
    hooks = {name: getattr(law, name, None) for name in HOOKS}
    for name, hook in hooks.items():
        if hook is not None and not callable(hook):
            raise UnfitError(
                name, f"{hook!r} cannot be called", f"a method that returns {HOOKS[name]}"
            )
    if not any(hooks.values()):
        reason = f"{type(law).__name__} has no method of a law"
        expected = "a method sample, which returns a probability, on_enqueue or on_dequeue"
        raise UnfitError("sample", reason, expected)
    interval = getattr(law, "interval", None)
    if hooks["sample"] and interval is None:
        expected = 'the time between two samples in seconds, or as a text such as "15ms"'
        raise UnfitError("interval", "missing", expected)

    def seeded(seed: int) -> None:
        if not hasattr(law, "rng"):
            # object.__setattr__ also works on a frozen dataclass; a class with slots has no room.
            try:
                object.__setattr__(law, "rng", random.Random(seed))
            except AttributeError:
                return

    return LawHooks(
        interval=interval if hooks["sample"] else None,
        **hooks,
        seeded=seeded,
        blame=lambda name, error, value: blame(law, name, error, value),
    )


def interrupter() -> Callable[[], None]:
    """Return a function that interrupts the Python code of this thread, for use by another thread.

    Signals reach only the main thread, and runs have threads of their own. A thread that runs no
    Python code at that moment is not interrupted.
    """
    thread = ctypes.c_ulong(threading.get_ident())

    def interrupt() -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(KeyboardInterrupt))

    return interrupt


def blame(law: object, name: str, error: BaseException | None, value: object) -> str:
    """Return the message about a hook that failed: file, line, hook, and the fault.

    Parameters
    ----------
    law : object
        The law.
    name : str
        Name of the hook.
    error : BaseException | None
        The exception that the hook raised; None if it returned an invalid value.
    value : object
        The value that it returned.
    """
    hook = f"{type(law).__name__}.{name}"
    if error is None:
        method = getattr(law, name)
        code = getattr(inspect.unwrap(method), "__code__", None)
        where = f"{_shown(code.co_filename)}:{_return_line(code)}: " if code else ""
        return f"{where}{hook}: {_short(value)} is not valid; expected {HOOKS[name]}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{_shown(frames[-1].filename)}:{frames[-1].lineno}: " if frames else ""
    calls = [
        f"\n    {_shown(frame.filename)}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in frames[-MOST_CALLS:]
    ]
    description = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"{where}{hook}: raised {description}{''.join(calls)}"


def _return_line(code: CodeType) -> int:
    """Return the line of the only `return` of a function, or else its first line."""
    lines = {
        step.positions.lineno
        for step in dis.get_instructions(code)
        if step.opname in {"RETURN_VALUE", "RETURN_CONST"} and step.positions
    }
    return (lines.pop() if len(lines) == 1 else None) or code.co_firstlineno


def _at(error: Exception) -> str:
    """Return the file and the line of an exception in parentheses."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return f" ({_shown(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""


def _shown(file: str) -> str:
    """Return the name of a file, relative to the working directory if it lies below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _short(value: object) -> str:
    """Return a value in at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
