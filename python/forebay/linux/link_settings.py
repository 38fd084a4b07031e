"""Settings of a link, with the gains that are designed before it is created.

Rust declares the options, and reads and checks them; names, defaults and sentences here derive
from those declarations.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forebay._native as _native
from forebay._base import input_file, quantities, registries
from forebay._native import ScenarioError, link_options
from forebay.experiment import automatic_gains

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
    options, lines = with_gains(options, files)
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


GAINS, PAPER, FLOWS = "gains", "paper", "flows"
#: The options that choose a law, and the ending of those from client to server.
AQM, SET, UP = "aqm", "set", "_up"

#: Kind and parameters of the law of a direction.
DirectionLaw = tuple[str, dict[str, Any]]


def with_gains(
    settings: Mapping[str, Any], files: Sequence[tuple[str, bytes]]
) -> tuple[dict[str, Any], list[str]]:
    """Return the options of a link with gains for each law that has to be designed.

    Parameters
    ----------
    settings : mapping
        The options. With `gains` as "paper", and without a law, they are returned unchanged.
    files : sequence of (str, bytes)
        Names and contents of recorded traces.

    Returns
    -------
    (dict, list of str)
        The options, and a line on each designed law.

    Raises
    ------
    ScenarioError
        If an option cannot be used.
    """
    completed = dict(settings)
    down = _law(settings, up=False)
    up = _law(settings, up=True) or down
    if settings.get(GAINS) == PAPER or not (down or up):
        return completed, []
    questions = _questions(settings, files, down, up)
    # This process may become the emulator, for which it must have one thread.
    answers = automatic_gains.answers([question for _, question in questions], elsewhere=True)
    lines = []
    own_up = any(f"{key}{UP}" in settings for key in (AQM, SET))
    same = len(answers) == 2 and answers[0] == answers[1] and not own_up
    for (is_up, (_, _, own)), answer in zip(questions, answers, strict=True):
        if "error" in answer:
            # The reader of all options reports the error with the name of the option.
            continue
        if is_up and same:
            continue
        option = f"{SET}{UP}" if is_up else SET
        completed[option] = {**dict(answer["params"]), **own}
        if is_up and f"{AQM}{UP}" not in settings and AQM in settings:
            completed[f"{AQM}{UP}"] = settings[AQM]
        name = "" if same or len(questions) == 1 else "up: " if is_up else "down: "
        lines.append(f"{name}{answer['line']}")
    return completed, lines


def _questions(
    settings: Mapping[str, Any],
    files: Sequence[tuple[str, bytes]],
    down: DirectionLaw | None,
    up: DirectionLaw | None,
) -> list[tuple[bool, automatic_gains.Question]]:
    """Return what each design needs to know, and True for the direction up."""
    # The link itself does not depend on its laws.
    rest = {key: value for key, value in settings.items() if key.removesuffix(UP) not in {AQM, SET}}
    link = _native.LinkSettings(rest, files)
    delays_s = [way.link.delay_s for way in (link.up, link.down)]
    rtt_s = tuple(max(1e-4, sum(ends)) for ends in zip(*delays_s, strict=True))
    questions: list[tuple[bool, automatic_gains.Question]] = []
    for is_up, law, way in [(False, down, link.down), (True, up, link.up)]:
        if law is None or registries.law(law[0])["baseline"]:
            continue
        place = {
            "rate_bps": way.link.rate_bps,
            "packet_bytes": link.mtu,
            "rtt_s": rtt_s,
            "room_pkts": way.buffer_mtu_pkts,
            "flows": _flows(settings.get(FLOWS)),
            "one_loop": not way.law.per_flow,
        }
        questions.append((is_up, (law[0], place, law[1])))
    return questions


def _law(settings: Mapping[str, Any], *, up: bool) -> DirectionLaw | None:
    """Return kind and parameters of the law that the settings give for a direction.

    None if they give no law for it, or one that does not exist.
    """
    end = UP if up else ""
    if up and not any(f"{key}{UP}" in settings for key in (AQM, SET)):
        return None
    kind = settings.get(f"{AQM}{end}", settings.get(AQM))
    own = settings.get(f"{SET}{end}") or {}
    if not isinstance(kind, str) or kind not in registries.laws() or not isinstance(own, Mapping):
        return None
    return kind, dict(own)


def _flows(text: Any) -> tuple[float, float] | None:
    """Return the fewest and the most flows; the reader of the options reports errors in them."""
    if text is None:
        return None
    few, many = quantities.range_ends(FLOWS, str(text))
    return float(few), float(many)
