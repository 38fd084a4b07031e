"""Gains of a link's laws, designed before the link is created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import forebay._native as _native
from forebay._base import quantities, registries
from forebay.experiment import automatic_gains

GAINS, PAPER, FLOWS = "gains", "paper", "flows"
#: The options that choose a law, and the ending of those from client to server.
AQM, SET, UP = "aqm", "set", "_up"

#: Kind and parameters of the law of a direction.
DirectionLaw = tuple[str, dict[str, Any]]


def options(
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
    """Return kind and parameters of a direction's own law; None without one, or a wrong one."""
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
