"""Laws prototyped in Python: what they look like, where they are, and which parameters they have.

The Rust module calls `named` and `brought`, and what they describe in `hooks.make`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import inspect
import math
import random
import sys
import traceback
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from forebay._base import quantities
from forebay._native import ScenarioError, set_point_pkts

if TYPE_CHECKING:
    from types import ModuleType

    from forebay.scenario.python_law_hooks import LawHooks

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
        raise ScenarioError(f'--law: found "{text}", allowed: a law, or FILE.py:CLASS')
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
        where = f"{scenario}: law.kind" if scenario else "--law"
        raise ScenarioError(
            f'{where}: found "{kind}", allowed: FILE.py:CLASS with a file that exists'
        )
    module = _module(file, path)
    prototype = getattr(module, name, None)
    if not callable(prototype):
        classes = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__
        ]
        known = ", ".join(classes) or "no class is defined there"
        raise ScenarioError(f"{path}: found no {name}, allowed: {known}")
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
    from forebay.scenario import python_law_hooks

    name = getattr(prototype, "__name__", type(prototype).__name__)
    params = list(_parameters(prototype, name))
    taken = {param.name for param in params}
    like = _example(prototype, name, params)
    label = name if "label" in taken else getattr(like, "label", None)
    if label is None:
        label = like.__name__ if isinstance(like, type) else type(like).__name__
    if not isinstance(label, str):
        raise ScenarioError(f"--law: {name}.label: found {label!r}, allowed: a text")
    file = _file(inspect.unwrap(getattr(prototype, "func", prototype)))
    sha = digest(prototype)
    source = f"{file.name if file else 'Python'}:{name}"
    return Described(
        kind=kind or f"python:{label}",
        label=label,
        source=f"{source}, SHA-256 {sha[:16]}" if sha else "",
        params=params,
        constants=list(_constants(like, label, taken)),
        made=lambda values: python_law_hooks.make(prototype, values),
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
        raise ScenarioError(
            f"--law: {name}: found {error}, allowed: the name of a law, or a class whose only "
            "arguments are the fields of a dataclass"
        ) from error


def _constants(like: object, label: str, taken: set[str]) -> Iterator[tuple[str, str]]:
    """Set-point and interval as a scenario writes them."""
    target, interval = (
        None if key in taken else getattr(like, key, None) for key in ("target", "interval")
    )
    if target is not None:
        key = f"--law: {label}.target"
        number = isinstance(target, int | float) and not isinstance(target, bool)
        text = quantities.packets(target) if number and math.isfinite(target) else str(target)
        if not number and not isinstance(target, str):
            raise ScenarioError(f"{key}: found {target!r}, allowed: a number of packets, or a text")
        set_point_pkts(key, text, 10**9, 1000)
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
        raise ScenarioError(f"--law: {name}: found {error}, allowed: types that exist") from error
    for field in dataclasses.fields(prototype):
        if not field.init:
            continue
        hint = hints[field.name]
        extras = getattr(hint, "__metadata__", ())
        plain = getattr(hint, "__origin__", hint)
        unit = next((extra.name for extra in extras if isinstance(extra, quantities.Unit)), "")
        if plain not in SHAPES:
            raise ScenarioError(
                f"--law: {name}.{field.name}: found the type {field.type}, allowed: float, int, "
                "bool, str, or a type of forebay._base.quantities"
            )
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
