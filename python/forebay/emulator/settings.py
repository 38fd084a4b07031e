"""What a link is asked to be. Quantities are texts with their unit; Rust reads and checks them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from forebay import _native
from forebay._native import LinkLaw, ScenarioError

#: IPv6 needs 1280 bytes (RFC 8200 section 5), and IP has no more than 65535.
MTU = (1280, 65535)
MOST_SEED = 2**64 - 1
#: Parameters of a law: numbers, flags, or texts with a unit.
Params = Mapping[str, object]


@dataclass(frozen=True)
class Way:
    """One direction of a link."""

    #: What the names of its settings end in, in messages.
    suffix: str
    rate: str | None
    #: Instead of a rate: name and lines of a recorded trace.
    trace: tuple[str, str] | None
    delay: str
    buffer: str
    loss: str
    ecn: bool
    aqm: str
    set: list[tuple[str, str]]


@dataclass(frozen=True)
class Settings:
    """A link; `up` is from client to server."""

    up: Way
    down: Way
    device: str = "any"
    mtu: int = 1500
    super_packets: bool | None = None
    seed: int = 1
    sample: str = "10ms"
    measure: str = "0s.."
    void_lateness: str = "1ms"
    void_rate: str = "0.1%"

    def check(self) -> list[LinkLaw]:
        """The law of each direction, up first. Raises `ScenarioError` where something is wrong."""
        _whole("mtu", self.mtu, *MTU)
        _whole("seed", self.seed, 0, MOST_SEED)
        return _native.link_check(self)


def settings(
    rate: str | None = None,
    delay: str = "0ms",
    buffer: str = "1000p",
    aqm: str = "droptail",
    params: Params | None = None,
    *,
    trace: str | os.PathLike[str] | None = None,
    loss: str | float = 0.0,
    ecn: bool = True,
    rate_up: str | None = None,
    delay_up: str | None = None,
    buffer_up: str | None = None,
    aqm_up: str | None = None,
    params_up: Params | None = None,
    trace_up: str | os.PathLike[str] | None = None,
    loss_up: str | float | None = None,
    device: str = "any",
    mtu: int = 1500,
    super_packets: bool | None = None,
    seed: int = 1,
    sample: str = "10ms",
    measure: str = "0s..",
    void_lateness: str = "1ms",
    void_rate: str | float = "0.1%",
) -> Settings:
    """Says what a link is.

    rate: of the link, "15Mbit/s"; bits of whole IP packets.
    delay: after the queue, one way: "30ms", or "20..200ms" to deal flows over delays between.
    buffer: what can wait: "150p" or "64kB"; by default 1000 packets, as a Linux device has.
    aqm, params: a law of `forebay laws`, and its parameters.
    trace: instead of a rate, a file of a recorded cellular link, a time in ms per 1500 bytes.
    loss: packets lost on the way after the queue, "1%" or 0.01.
    ecn: the law marks ECN-capable packets instead of dropping them.
    rate_up … loss_up: for client to server, where it differs from server to client.
    device: "tun", "packets" (packet sockets), or "any", which is tun where there is one.
    mtu: largest IP packet, in bytes.
    super_packets: take up to 64 KiB of a TCP flow at a time; by default above 1 Gbit/s.
    seed: of the law's and the loss's random draws.
    sample: time between two samples of the queue.
    measure: when metrics are taken, lateness too, "5s.." or "5s..25s" since the start of the
        command.
    void_lateness: the run is void if one packet in a thousand is fetched or released later than
        this.
    void_rate: the run is void if the rate is off by more than this share.

    Raises `ScenarioError` for a trace that cannot be read; `Settings.check` for all else.
    """
    down = Way(
        suffix="",
        rate=None if rate is None else str(rate),
        trace=_trace(trace, "trace"),
        delay=str(delay),
        buffer=str(buffer),
        loss=str(loss),
        ecn=ecn,
        aqm=aqm,
        set=_texts(params),
    )
    up = down
    if rate_up is not None:
        up = replace(up, suffix="-up", rate=str(rate_up), trace=None)
    if trace_up is not None:
        up = replace(up, suffix="-up", trace=_trace(trace_up, "trace-up"), rate=rate_up)
    if aqm_up is not None or params_up is not None:
        # The parameters of one law mean nothing to another.
        up = replace(up, suffix="-up", aqm=aqm_up or aqm, set=_texts(params_up))
    if delay_up is not None:
        up = replace(up, suffix="-up", delay=str(delay_up))
    if buffer_up is not None:
        up = replace(up, suffix="-up", buffer=str(buffer_up))
    if loss_up is not None:
        up = replace(up, suffix="-up", loss=str(loss_up))
    return Settings(
        up=up,
        down=down,
        device=device,
        mtu=mtu,
        super_packets=super_packets,
        seed=seed,
        sample=str(sample),
        measure=str(measure),
        void_lateness=str(void_lateness),
        void_rate=str(void_rate),
    )


def _trace(path: str | os.PathLike[str] | None, key: str) -> tuple[str, str] | None:
    if path is None:
        return None
    try:
        return os.fspath(path), Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        raise ScenarioError(
            f'link: {key}: found "{os.fspath(path)}", {reason.lower()}, allowed: a file with a '
            "time in ms per line"
        ) from error


def _whole(name: str, value: int, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise ScenarioError(
            f"link: {name}: found {value}, allowed: a whole number, {least} to {most}"
        )


def _texts(params: Params | None) -> list[tuple[str, str]]:
    """Values as a command line has them."""
    texts = []
    for name, value in (params or {}).items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        texts.append((name, text))
    return texts
