"""Laws that a router can have: Linux's own qdiscs, and laws that `forebay attach` installs.

A qdisc has fewer parameters than its law, counts some of them in steps, and bounds others. What is
chosen for a router is what the qdisc really does: candidates are rounded to its steps before they
are judged, and those that it cannot have are left out, with the reason.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from forebay import _native
from forebay._base import quantities, registries
from forebay._native import ScenarioError
from forebay.linux import programs
from forebay.scenario import router

if TYPE_CHECKING:
    from forebay._native import TcWords
    from forebay.tuning.ranges import Ranges

Params = tuple[tuple[str, str], ...]

#: What a router may be allowed to have, and in words.
CHOICES = {
    "linux": "the qdiscs of Linux",
    "attach": "the qdiscs of Linux and the laws that forebay attach installs",
}


def stock_params(law: str, ranges: Ranges) -> Params | None:
    """Return the switches that the qdisc of a law always has otherwise than the law's defaults.

    Returns
    -------
    tuple of (name, value) or None
        Such as ``gentle = false`` of RED; None for a law that is no qdisc of Linux.
    """
    switches = [
        (entry["name"], str(not entry["default"]).lower())
        for entry in registries.law(law)["params"]
        if isinstance(entry["default"], bool)
    ]
    for count in range(len(switches) + 1):
        for params in itertools.combinations(switches, count):
            try:
                return None if _words(law, params, ranges) is None else params
            except ScenarioError:
                continue
    return None


def can_attach(law: str, params: Sequence[tuple[str, str]], ranges: Ranges) -> bool:
    """Return True if `forebay attach` has the law in fixed point, with these parameters."""
    try:
        twin = _native.law_twin(
            law,
            params,
            rate_bps=ranges.rates_bps[1],
            buffer_pkts=ranges.buffer_pkts,
            packet_bytes=round(ranges.packet_bytes),
        )
    except ScenarioError:
        return False
    return twin is not None


def is_known(law: str, ranges: Ranges) -> bool:
    """Return True if the router of these ranges can have the law at all."""
    if stock_params(law, ranges) is not None:
        return True
    return ranges.router == "attach" and programs.has_header(law)


def as_installed(law: str, params: Params, ranges: Ranges) -> Params:
    """Return the parameters as the router has them: rounded to the steps of the qdisc.

    Raises
    ------
    ScenarioError
        If the qdisc cannot have them, and `forebay attach` may or can not install them either.
    """
    try:
        words = _words(law, params, ranges)
    except ScenarioError:
        if ranges.router != "attach" or not can_attach(law, params, ranges):
            raise
        return params
    if words is None:
        if ranges.router == "attach" and can_attach(law, params, ranges):
            return params
        raise ScenarioError(f"{law}: not in this router, which has {CHOICES[ranges.router]}")
    rounded = {key: value for key, _, value in words.rounded if key != "buffer"}
    adjusted = [(name, rounded.pop(name, value)) for name, value in params]
    # Defaults of the law that lie between two steps are rounded, too.
    return (*adjusted, *rounded.items())


def attach_line(law: str, params: Sequence[tuple[str, str]], ranges: Ranges) -> str | None:
    """Return the command that installs the law with `forebay attach`; None if it cannot."""
    in_linux = True
    try:
        in_linux = _words(law, params, ranges) is not None
    except ScenarioError:
        in_linux = False
    if not in_linux and not can_attach(law, params, ranges):
        return None
    words = ["sudo", "forebay", "attach", router.DEVICE, law]
    words += ["--rate", quantities.rate(ranges.rates_bps[1]), "--buffer", f"{ranges.buffer_pkts}p"]
    for name, value in params:
        words += ["--set", f"{name}={value}"]
    return shlex.join([*words, "--ecn"])


def _words(law: str, params: Sequence[tuple[str, str]], ranges: Ranges) -> TcWords | None:
    """Return the qdisc of a law on the fastest link; None if Linux has none."""
    return _native.tc_words(
        law,
        [(name, _typed(value)) for name, value in params],
        queue=None,
        rate_bps=ranges.rates_bps[1],
        buffer_pkts=ranges.buffer_pkts,
        buffer_bytes=None,
        packet_bytes=round(ranges.packet_bytes),
        ecn=True,
        header_bytes=router.HEADER_BYTES,
        held=registries.parameter(law, router.OWN_RATE) is None,
    )


def _typed(value: str) -> bool | str:
    return {"true": True, "false": False}.get(value, value)
