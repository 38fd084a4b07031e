"""What a process must be allowed to do, to put a law into the kernel."""

from __future__ import annotations

from pathlib import Path

from forebay._native import ScenarioError

#: Bits of a set of capabilities (capabilities(7)).
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}
NETWORK = ("CAP_NET_ADMIN",)
#: CAP_SYS_ADMIN finds a law's maps by their identifiers.
LAW = ("CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN")


def need(wanted: tuple[str, ...], what: str) -> None:
    """Raises `ScenarioError` that names the capabilities this process has not."""
    effective = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            effective = int(line.split()[1], 16)
    missing = [name for name in wanted if not effective >> CAPABILITIES[name] & 1]
    if missing:
        raise ScenarioError(
            f"{what}: found a process without {', '.join(missing)}, allowed: as root, `sudo "
            f"forebay {what} …`"
        )
