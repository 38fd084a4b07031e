"""A link's laws with numbers for this link, before it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import forebay._native as _native
from forebay._base import quantities, registries
from forebay.experiment import automatic_gains

GAINS, PAPER, FLOWS = "gains", "paper", "flows"
#: The options that choose a law; with this ending those of client to server.
AQM, SET, UP = "aqm", "set", "_up"


def options(
    given: Mapping[str, Any], files: Sequence[tuple[str, bytes]]
) -> tuple[dict[str, Any], list[str]]:
    """The options with numbers for each law, and a line on each; as they are with `gains` as
    "paper", and without a law.

    Raises `ScenarioError`.
    """
    found = dict(given)
    down = _law(given, up=False)
    up = _law(given, up=True) or down
    if given.get(GAINS) == PAPER or not (down or up):
        return found, []
    # What the link is does not depend on its laws.
    rest = {key: value for key, value in given.items() if key.removesuffix(UP) not in {AQM, SET}}
    link = _native.LinkSettings(rest, files)
    delays_s = [one.link.delay_s for one in (link.up, link.down)]
    rtt_s = tuple(max(1e-4, sum(ends)) for ends in zip(*delays_s, strict=True))
    asked: list[tuple[bool, automatic_gains.Question]] = []
    for is_up, law, one in [(False, down, link.down), (True, up, link.up)]:
        if law is None or registries.law(law[0])["baseline"]:
            continue
        place = {
            "rate_bps": one.link.rate_bps,
            "packet_bytes": link.mtu,
            "rtt_s": rtt_s,
            "room_pkts": one.buffer_mtu_pkts,
            "flows": _flows(given.get(FLOWS)),
            "one_loop": not one.law.per_flow,
        }
        asked.append((is_up, (law[0], place, law[1])))
    # This process may have to become the emulator, for which it must have one thread.
    answers = automatic_gains.answers([question for _, question in asked], elsewhere=True)
    lines = []
    own_up = any(f"{key}{UP}" in given for key in (AQM, SET))
    same = len(answers) == 2 and answers[0] == answers[1] and not own_up
    for (is_up, (_, _, own)), answer in zip(asked, answers, strict=True):
        if "error" in answer:
            # The reader of all the options says it with the name of its option.
            continue
        if is_up and same:
            continue
        where = f"{SET}{UP}" if is_up else SET
        found[where] = {**dict(answer["params"]), **own}
        if is_up and f"{AQM}{UP}" not in given and AQM in given:
            found[f"{AQM}{UP}"] = given[AQM]
        way = "" if same or len(asked) == 1 else "up: " if is_up else "down: "
        lines.append(f"{way}{answer['line']}")
    return found, lines


def _law(given: Mapping[str, Any], *, up: bool) -> tuple[str, dict[str, Any]] | None:
    """Kind and parameters of a direction's own law; None where it has none, or one that is
    wrong."""
    end = UP if up else ""
    if up and not any(f"{key}{UP}" in given for key in (AQM, SET)):
        return None
    kind = given.get(f"{AQM}{end}", given.get(AQM))
    own = given.get(f"{SET}{end}") or {}
    if not isinstance(kind, str) or kind not in registries.laws() or not isinstance(own, Mapping):
        return None
    return kind, dict(own)


def _flows(text: Any) -> tuple[float, float] | None:
    """Fewest and most; what is wrong with them the reader of the options has said."""
    if text is None:
        return None
    least, most = quantities.range_ends(FLOWS, str(text))
    return float(least), float(most)
