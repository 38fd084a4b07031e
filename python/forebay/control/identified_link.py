"""What was identified as a file that `forebay design --from` reads."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forebay._native as _native
from forebay._base import quantities
from forebay._native import ScenarioError
from forebay.control.queue_estimate import Identified

#: Keys of the file that must be there, with their kinds of quantity; the others are for readers.
RATE, RTT, FLOWS, PACKET = "rate", "rtt", "flows", "packet"


@dataclass(frozen=True)
class IdentifiedLink:
    """rate, packet: texts. rtt: propagation both ways. least and most of their intervals."""

    rate: str
    packet: str
    rtt: tuple[str, str]
    flows: tuple[float, float]


def link_toml(found: Identified) -> str:
    """The file, in TOML; numbers that are not identified are left out, with the reason."""
    import tomlkit

    document = tomlkit.document()
    document.add(tomlkit.comment(f"identified by forebay from {found.name}"))

    document.add(tomlkit.comment(f"assumed: {found.assumed}"))
    for remark in found.remarks:
        document.add(tomlkit.comment(remark))

    def add(key: str, one: Any, write: Any) -> None:
        if one.known:
            document.add(key, write(one.value))
            document.add(f"{key}_interval", [write(one.low), write(one.high)])
        else:
            document.add(tomlkit.comment(f"{key}: {one.why}"))

    add(RATE, found.rate_bps, lambda bps: quantities.rate(float(f"{bps:.4g}")))
    if math.isfinite(found.packet_bytes):
        document.add(PACKET, quantities.size(round(found.packet_bytes)))
    else:
        document.add(tomlkit.comment(f"{PACKET}: no packet left the queue"))
    add(RTT, found.propagation_s, lambda s: quantities.time(round(s, 6)))
    add(FLOWS, found.flows, lambda n: round(max(1.0, n), 2))
    add("signals", found.signals, lambda p: float(f"{p:.4g}"))
    return tomlkit.dumps(document)


def read_link(path: Path) -> IdentifiedLink:
    """Raises `ScenarioError` for a file that lacks what a design needs."""
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = (error.strerror or "").lower() if isinstance(error, OSError) else str(error)
        raise ScenarioError(
            f'--from: found "{path}", {reason}, allowed: a file of `forebay identify`'
        ) from error
    for key in (RATE, PACKET, RTT, FLOWS):
        if key not in found:
            raise ScenarioError(
                f"--from {path}: found no {key}, allowed: a file of `forebay identify` with rate, "
                "packet, rtt and flows; a comment in it says why it lacks one"
            )
    interval = {key: found.get(f"{key}_interval", [found[key]] * 2) for key in (RTT, FLOWS)}
    for key, kind in [(RATE, "rate"), (PACKET, "size"), (RTT, "time")]:
        _native.quantity(f"--from {path}: {key}", str(found[key]), kind)
    try:
        low, high = (float(one) for one in interval[FLOWS])
        shortest, longest = (str(one) for one in interval[RTT])
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"--from {path}: found {error}, allowed: two values") from error
    for one in (shortest, longest):
        _native.quantity(f"--from {path}: rtt_interval", one, "time")
    return IdentifiedLink(str(found[RATE]), str(found[PACKET]), (shortest, longest), (low, high))
