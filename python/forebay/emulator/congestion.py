"""The kernel's congestion control, by which TCP follows a law or does not."""

from __future__ import annotations

from pathlib import Path

DEFAULT = Path("/proc/sys/net/ipv4/tcp_congestion_control")
#: Those that slow down for every drop and mark.
FOLLOW = ("reno", "cubic")


def default() -> str:
    """What a program has that does not ask for another; empty where the kernel does not say."""
    try:
        return DEFAULT.read_text().strip()
    except OSError:
        return ""


def warning(name: str) -> str:
    """What to know of a default that hardly follows a law; empty for the others."""
    if not name or name in FOLLOW:
        return ""
    return (
        f"the kernel's default is {name}: a program that does not choose another hardly follows "
        "the law"
    )
