"""A scenario to start from, with a comment on every key: the declarations' own sentences."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Sequence
from functools import cache, partial
from importlib import resources

import forebay._native as _native
from forebay._native import ScenarioError
from forebay.base import quantities, registries
from forebay.pages.templates import template
from forebay.scenarios import qdiscs, router
from forebay.scenarios.builder import Law

#: A number of packets.
PACKETS = re.compile(r"[\d.]+p")
#: Of the downloads.
PACKET_BYTES = 1500
#: Columns of the file.
WIDTH = 100


def scenario(
    name: str,
    rate: str | None = None,
    rtts: Sequence[str] | None = None,
    flows: int | None = None,
    buffer: str | None = None,
    laws: Sequence[str] | None = None,
    tc: str | None = None,
) -> str:
    """The text of a scenario; what is not given is that of `starter.toml`.

    name: of the file, for its first line.
    rate, rtts, buffer: texts with units, as a scenario has them; `rtts` are propagation both ways,
        which the flows take in turn; without `buffer` it is a bandwidth-delay product of the
        longest of them.
    laws: kinds of `forebay laws`.
    tc: lines of tc(8), which say the law, its buffer and, where they have a shaper, the rate.

    Raises `ScenarioError` for a quantity that is none, and for what the lines leave no room for.
    """
    usual = tomllib.loads(resources.files("forebay.guide").joinpath("starter.toml").read_text())
    qdisc = None
    if tc is not None:
        qdisc = qdiscs.read(tc, PACKET_BYTES)
        said = {"--rate": qdisc.rate_bps and rate, "--buffer": buffer, "--law": laws}
        for option, given in said.items():
            if given:
                raise ScenarioError(f"{option}: found beside --tc, allowed: nothing; tc says it")
        rate = quantities.rate(qdisc.rate_bps) if qdisc.rate_bps else rate
        buffer = qdisc.buffer
    rate, rtts = rate or usual["rate"], rtts or usual["rtt"]
    buffer = buffer or _product(rate, rtts)
    chosen = [qdisc.law] if qdisc else [Law(kind) for kind in laws or usual["laws"]]
    text = template("starter.toml.j2").render(
        name=name,
        rate=rate,
        rtts=rtts,
        flows=flows or usual["flows"],
        buffer=buffer,
        burst=quantities.size(qdisc.burst_bytes) if qdisc and qdisc.burst_bytes else None,
        ecn=qdisc.ecn if qdisc else None,
        on_router=partial(_on_router, rate, buffer, ecn=qdisc.ecn if qdisc else True),
        laws=chosen,
        key=_key,
        needs_gains=lambda law: _needs_gains(law.kind) and not law.params,
        toml=quantities.toml,
    )
    return text + "\n"


def _product(rate: str, rtts: Sequence[str]) -> str:
    """The bandwidth-delay product of the longest round trip, in packets of 1500 bytes."""
    rate_bps = _native.quantity("--rate", rate, "rate")
    rtt_s = max(_native.quantity("--rtt", rtt, "time") for rtt in rtts)
    return f"{max(20, round(rate_bps * rtt_s / (8 * PACKET_BYTES)))}p"


def _on_router(rate: str, buffer: str, law: Law, *, ecn: bool) -> list[str]:
    """Commands that make the law on a router; none where Linux has no qdisc of that, and where the
    file asks for other numbers."""
    if law.kind not in registries.laws() or (_needs_gains(law.kind) and not law.params):
        return []
    count, unit = _native.number_and_unit(buffer) or (0.0, "")
    found = router.settings(
        law.kind,
        [(name, value) for name, value in law.table().items() if name != "kind"],
        rate_bps=round(_native.quantity("--rate", rate, "rate")),
        packet_bytes=PACKET_BYTES,
        buffer_pkts=round(count) if unit == "p" else None,
        buffer_bytes=round(count) if unit == "B" else None,
        ecn=ecn,
    )
    return found.tc if found is not None else []


def _needs_gains(name: str) -> bool:
    """Whether a law's own numbers are packets, which fit the link of a paper alone."""
    known = registries.laws()
    params = known[name]["params"] if name in known else []
    return any(PACKETS.fullmatch(it["default_text"]) for it in params)


def _key(section: str, name: str, value: object = None) -> str:
    """The line of a key under its meaning; after a # with its default, where no value is given."""
    key = _keys()[section, name]
    line = f"{name} = {value}" if value is not None else f"# {name} = {key['default']}"
    return "\n".join([*(f"# {it}" for it in textwrap.wrap(key["doc"], WIDTH - 2)), line])


@cache
def _keys() -> dict[tuple[str, str], _native.KeyInfo]:
    declared = _native.keys()
    return {(key["section"], key["name"]): key for key in declared}
