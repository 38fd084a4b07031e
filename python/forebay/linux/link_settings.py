"""Settings of a link.

Rust declares the options, and reads and checks them; names, defaults and sentences here derive
from those declarations.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING

import forebay._native as _native
from forebay._base import input_file
from forebay._native import ScenarioError, link_options
from forebay.linux import link_gains as automatic_gains

#: True if this build can run a link: its namespaces and devices are Linux's.
HERE = hasattr(_native, "LinkSettings")

#: The settings of a link, checked when they are made.
if TYPE_CHECKING or HERE:  # noqa: SIM108  mypy takes no conditional expression for a type
    Settings = _native.LinkSettings
else:
    Settings = None

#: Arguments in Python that are options of another name.
OPTIONS = {"params": "set", "params_up": "set_up"}
NAMES = {option: name for name, option in OPTIONS.items()}
#: Arguments that may stand without their names.
POSITIONAL = ["rate", "delay", "buffer", "aqm", "params"]
TRACES = ["trace", "trace_up"]


def _signature() -> inspect.Signature:
    """Return an argument for each option; None stands for an option that is absent."""
    declared = [NAMES.get(option["name"], option["name"]) for option in link_options()]
    positional, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, positional, default=None) for name in POSITIONAL]
    keywords = [name for name in declared if name not in POSITIONAL]
    parameters += [inspect.Parameter(name, named, default=None) for name in keywords]
    return inspect.Signature(parameters, return_annotation="Settings")


def _arguments() -> str:
    """Return the arguments in words."""
    lines = []
    for option in link_options():
        if option["group"] == "up":
            continue
        default = f" Default: {option['default_text']}." if option["default_text"] else ""
        doc = " ".join(option["doc"].split())
        if option["name"] == "set":
            doc = "Parameters of the law: numbers, flags, or texts with a unit."
        lines.append(f"{NAMES.get(option['name'], option['name'])}: {doc}{default}")
    lines.append("rate_up … loss_up: the same for client to server, where it differs.")
    return "\n".join(lines)


SIGNATURE = _signature()


def need() -> None:
    """Raise `ScenarioError` where this build cannot run a link."""
    if not HERE:
        raise ScenarioError(
            "link: requires Linux and a build for it; simulation, analysis and design work here, "
            "such as run, fluid, design, map, tune, replay and suite"
        )


def settings(*args: object, **kwargs: object) -> Settings:
    """Return the settings of a link; the arguments are described below."""
    return designed(*args, **kwargs)[0]


def designed(*args: object, **kwargs: object) -> tuple[Settings, list[str]]:
    """Return the settings, and a line on each law that got its numbers for this link."""
    need()
    arguments = SIGNATURE.bind(*args, **kwargs).arguments.items()
    options = {OPTIONS.get(name, name): value for name, value in arguments if value is not None}
    files = [_file(name, str(options[name])) for name in TRACES if name in options]
    options, lines = automatic_gains.options(options, files)
    return Settings(options, files), lines


settings.__signature__ = SIGNATURE  # type: ignore[attr-defined]
settings.__doc__ = f"""Return the settings of a link.

{_arguments()}

A law is designed for the link, and for `flows`, unless gains is "paper"; numbers in `params` stay.

Raises `TypeError` for an unknown argument, and `ScenarioError` for one that is wrong.
"""


def _file(option: str, path: str) -> tuple[str, bytes]:
    """Return name and contents of a recorded trace."""
    try:
        return path, input_file.data(path, Path(path).read_bytes())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ScenarioError(
            f'link: {option.replace("_", "-")}: "{os.fspath(path)}": {reason}; expected a file '
            "with a time in ms per line"
        ) from error


def words(settings: Settings) -> list[str]:
    """Return arguments of `forebay link` that give the same settings."""
    defaults = {option["name"]: option["default"] for option in link_options()}
    arguments = []
    for name, value in settings.given.items():
        option = name.replace("_", "-")
        if isinstance(value, dict):
            for key, entry in value.items():
                text = str(entry).lower() if isinstance(entry, bool) else str(entry)
                arguments += [f"--{option}", f"{key}={text}"]
        elif value == defaults[name]:
            continue
        elif isinstance(value, bool):
            arguments.append(f"--{option}" if value else f"--no-{option}")
        else:
            arguments += [f"--{option}", str(value)]
    return arguments
