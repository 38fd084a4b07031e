"""The kernel's congestion control, by which TCP follows a law or does not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DEFAULT = Path("/proc/sys/net/ipv4/tcp_congestion_control")
#: Those that slow down for every drop and mark.
FOLLOW = ("reno", "cubic")


def default() -> str:
    """The kernel's default congestion control; empty where the kernel does not name it."""
    try:
        return DEFAULT.read_text().strip()
    except OSError:
        return ""


def warning(name: str) -> str:
    """A warning on a default that hardly follows a law; empty for the others."""
    if not name or name in FOLLOW:
        return ""
    return (
        f"the kernel's default is {name}: a program that does not choose another hardly follows "
        "the law"
    )


def ignored(seen: Mapping[str, int], tcp_flows: int, default: str) -> str:
    """What to know of the TCP flows of a run that hardly followed its law; empty if none.

    seen: flows by congestion control, as the kernel told. tcp_flows: all that carried data, also
    those too short to be seen, for which there is only the default.
    """
    others = {name: flows for name, flows in seen.items() if name not in FOLLOW}
    if others:
        used = ", ".join(f"{flows} of {name}" for name, flows in sorted(others.items()))
        return (
            f"TCP flows: {used}, which does not slow down for every drop as reno and cubic do, and "
            "hardly follows the law"
        )
    return warning(default) if tcp_flows and not seen else ""
