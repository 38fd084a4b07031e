"""Laws prototyped in Python: what they look like, where they are, and which parameters they have.

The Rust module calls `named` and `brought`, makes a law of what they describe, and calls its hooks;
`blame` words what one of them does wrong.
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


#: Makes a law for a queue: its class, or a function. It takes the parameters by their names.
Prototype = Callable[..., Any]


class Controller:
    """A law written in Python. Every run makes a fresh one; this base class is not needed, and
    adds nothing but types.

    Its hooks, of which it has at least one:

    - `sample(self, queue) -> float`, each `interval` (seconds, or a text such as "10ms"): the
      probability of a signal for each packet until the next sample;
    - `on_enqueue(self, queue, packet) -> str` for each arrival, and
    - `on_dequeue(self, queue, packet) -> str` for each departure: "pass", "mark" or "drop".
      "mark" sets CE on an ECN-capable packet and drops any other. `queue` is without the packet.

    The fields of a dataclass are its parameters, with the types of `quantities`. `target`, in
    packets or a text such as "15ms", is the set-point that QACD is taken against where the scenario
    has none; `label` is the name in reports, the name of the class without it.
    """

    #: Random numbers that are the same for the same seed; there from the first hook on. The types
    #: of a dataclass are looked up with those of its bases: this one's module has to be loaded.
    rng: random.Random


@dataclasses.dataclass(frozen=True)
class Parameter:
    """What a scenario may set: a field of a dataclass."""

    name: str
    #: "s", "p", "bit/s", "B", or "" for what has none
    unit: str
    #: "number", "integer", "flag" or "text"
    shape: str
    #: as a scenario writes it; None where it must be given
    default: bool | int | float | str | None
    low: float
    high: float
    doc: str


@dataclasses.dataclass(frozen=True)
class Described:
    """A law in Python, as the Rust module reads it."""

    #: its name in a scenario
    kind: str
    label: str
    #: its file, its name there, and the start of a hash of the file
    source: str
    params: list[Parameter]
    #: its set-point and interval where they are no parameters
    constants: list[tuple[str, str]]
    made: Callable[[dict[str, Any]], LawHooks]


def load(text: str) -> str | Prototype:
    """What `path/to/file.py:NAME` names, a class as a rule; any other text is a law's name.

    Raises `ScenarioError` where the file or the name is not there, or the file fails.
    """
    if text.endswith(".py"):
        raise ParameterError("laws", text, "a law, or FILE.py:CLASS")
    path, separator, _ = text.rpartition(":")
    return _load(text, None) if separator and path.endswith(".py") else text


def named(kind: str, scenario: str | None) -> Described:
    """The law FILE.py:NAME, as from the folder of the scenario that names it, or else the present
    folder. Raises `ScenarioError`."""
    return _described(_load(kind, scenario), kind)


def brought(prototype: Prototype) -> Described:
    """The law of a class, or of a function, that the caller has. Raises `ScenarioError`."""
    return _described(prototype, None)


def digest(prototype: Prototype) -> str | None:
    """SHA-256 of the file that a prototype comes from, or else of its own text; None where there is
    neither, as for a class that was typed in.

    With its parameters it tells two laws apart. What the file imports does not count.
    """
    plain = inspect.unwrap(getattr(prototype, "func", prototype))
    file = _file(plain)
    try:
        text = file.read_bytes() if file else inspect.getsource(plain).encode()
    except (OSError, TypeError):
        return None
    return hashlib.sha256(text).hexdigest()


def _file(prototype: object) -> Path | None:
    module = sys.modules.get(getattr(prototype, "__module__", ""))
    file = getattr(module, "__file__", None)
    return Path(file) if file else None


def _load(kind: str, scenario: str | None) -> Prototype:
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
        known = ", ".join(classes) or "no class is defined there"
        raise ScenarioError(f"{path}: there is no class {name}; expected {known}")
    return cast("Prototype", prototype)


def _module(file: Path, shown: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"forebay_prototype_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses and pickles look their module up by name.
    sys.modules[spec.name] = module
    try:
        with _importing_from(file.parent):
            spec.loader.exec_module(module)
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == file]
        line = frames[-1].lineno if frames else getattr(error, "lineno", None)
        at = f" in line {line}" if line else ""
        raise ScenarioError(f"{shown}: failed{at}: {type(error).__name__}: {error}") from error
    return module


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """What the file imports may lie beside it, as for a script."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _described(prototype: Prototype, kind: str | None) -> Described:
    name = getattr(prototype, "__name__", type(prototype).__name__)
    params = list(_parameters(prototype, name))
    taken = {param.name for param in params}
    like = _example(prototype, name, params)
    label = name if "label" in taken else getattr(like, "label", None)
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
        constants=list(_constants(like, label, taken)),
        made=lambda values: make(prototype, values),
    )


def _example(prototype: Prototype, name: str, params: list[Parameter]) -> object:
    """One of them with its defaults, or else the class."""
    if any(param.default is None for param in params):
        return prototype
    # Its defaults may be texts with a unit, which a run turns into numbers.
    if params:
        return prototype if isinstance(prototype, type) else object()
    try:
        return prototype()
    except Exception as error:
        expected = (
            "the name of a law, or a class whose only arguments are the fields of a dataclass"
        )
        raise ParameterError("laws", error, expected, item=name) from error


def _constants(like: object, label: str, taken: set[str]) -> Iterator[tuple[str, str]]:
    """Set-point and interval as a scenario writes them."""
    target, interval = (
        None if key in taken else getattr(like, key, None) for key in ("target", "interval")
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
#: How a number becomes a text with its unit.
WRITTEN: dict[str, Callable[[Any], str]] = {
    "s": quantities.time,
    "p": quantities.packets,
    "bit/s": quantities.rate,
    "B": quantities.size,
}


def _parameters(prototype: Prototype, name: str) -> Iterator[Parameter]:
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
        # The last is the outermost: it narrows what the type itself allows.
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
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value is dataclasses.MISSING:
        return None
    if unit and isinstance(value, int | float) and not isinstance(value, bool):
        return WRITTEN[unit](value)
    return cast("bool | int | float | str", value)


#: Hooks that a law may have, with what each may return.
HOOKS = {
    "sample": "a probability, 0 to 1",
    "on_enqueue": '"pass", "mark" or "drop"',
    "on_dequeue": '"pass", "mark" or "drop"',
}
#: Most lines of a law's own calls under what it raised.
MOST_CALLS = 4


class UnfitError(Exception):
    """A class that is no law: its faulty `key`, the value `found`, and what is expected."""

    def __init__(self, key: str, found: str, allowed: str) -> None:
        self.key, self.found, self.allowed = key, found, allowed
        super().__init__(f"{key}: {found} is not valid; expected {allowed}")


@dataclass(frozen=True)
class LawHooks:
    """One law, as the Rust module calls it."""

    #: seconds, or a text with a unit; None without `sample`
    interval: object
    sample: Callable[..., object] | None
    on_enqueue: Callable[..., object] | None
    on_dequeue: Callable[..., object] | None
    #: takes a seed for the law's random numbers
    seeded: Callable[[int], None]
    #: takes the name of a hook with what it raised, or else with what it returned; gives words
    blame: Callable[[str, BaseException | None, object], str]


def make(prototype: Callable[..., Any], values: dict[str, Any]) -> LawHooks:
    """A law with these parameters. Raises `UnfitError`."""
    try:
        law = prototype(**values)
    except Exception as error:
        found = f"{type(error).__name__}: {error}{_at(error)}"
        raise UnfitError("kind", found, "a class that takes its parameters") from error
    hooks = {name: getattr(law, name, None) for name in HOOKS}
    for name, hook in hooks.items():
        if hook is not None and not callable(hook):
            raise UnfitError(name, repr(hook), f"a method that returns {HOOKS[name]}")
    if not any(hooks.values()):
        found = f"nothing to call in {type(law).__name__}"
        allowed = "a method sample, which returns a probability, on_enqueue or on_dequeue"
        raise UnfitError("sample", found, allowed)
    interval = getattr(law, "interval", None)
    if hooks["sample"] and interval is None:
        allowed = 'the time between two samples: seconds, or a text such as "15ms"'
        raise UnfitError("interval", "nothing", allowed)

    def seeded(seed: int) -> None:
        if not hasattr(law, "rng"):
            # A frozen dataclass gets it, too; one with slots has no place for it.
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
    """Stops what Python runs in this thread, called from another one.

    A thread that runs no Python at that time does not hear of it. Signals reach the main thread
    alone, and runs have threads of their own.
    """
    thread = ctypes.c_ulong(threading.get_ident())

    def interrupt() -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(KeyboardInterrupt))

    return interrupt


def blame(law: object, name: str, error: BaseException | None, value: object) -> str:
    """File, line and hook; what it raised, or else returned; and what is allowed."""
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
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"{where}{hook}: raised {said}{''.join(calls)}"


def _return_line(code: CodeType) -> int:
    """Line of the only `return` of a function, or else its first."""
    lines = {
        step.positions.lineno
        for step in dis.get_instructions(code)
        if step.opname in {"RETURN_VALUE", "RETURN_CONST"} and step.positions
    }
    return (lines.pop() if len(lines) == 1 else None) or code.co_firstlineno


def _at(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return f" ({_shown(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""


def _shown(file: str) -> str:
    """A file as from the present folder, where it lies below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
