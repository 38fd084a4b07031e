"""What is attached on this machine: a file for each device, and a folder of the BPF file system
with its program and maps, which keeps them when the command ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from forebay._native import ScenarioError
from forebay.base.publication import publish_file
from forebay.kernel.programs import call

#: Gone with the last law, and with the machine's next start.
RUN = Path("/run/forebay")
PINNED = RUN / "bpf"
ATTACHED = RUN / "attached"


@dataclass(frozen=True)
class Attached:
    """A device with a law."""

    device: str
    ifindex: int
    #: Of its network namespace.
    namespace: int
    law: str
    #: Parameters as given or designed.
    params: dict[str, Any]
    rate_bps: int
    buffer_pkts: float
    #: Usual packet, as the shaper counts it.
    packet_bytes: int
    ecn: bool
    #: One of `programs.FRONTS`, or the kind of the kernel's own qdisc.
    engine: str
    #: What was made: "shaper", "tcx" or "clsact".
    made: list[str] = field(default_factory=list)
    #: The root qdisc that stood there, as tc has it; None for the kernel's default.
    before: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        return f"{self.ifindex}@{self.namespace}"

    @property
    def pinned(self) -> Path:
        return PINNED / self.key

    @property
    def qdisc(self) -> str:
        """What the kernel calls a qdisc of ours: each device has its own, of up to 15 letters."""
        return f"fb{self.namespace & 0xFFFFFFFF:x}_{self.ifindex:x}"[:15]

    @property
    def file(self) -> Path:
        return ATTACHED / f"{self.key}.json"

    def write(self) -> None:
        publish_file(self.file, json.dumps(asdict(self), indent=1))


def namespace() -> int:
    """The number of this process' network namespace."""
    return Path("/proc/self/ns/net").stat().st_ino


def everything() -> list[Attached]:
    """All that is attached, in every namespace."""
    found = sorted(ATTACHED.glob("*.json")) if ATTACHED.is_dir() else []
    return [Attached(**json.loads(file.read_text())) for file in found]


def attached_to(device: str) -> Attached:
    """What is attached to a device here. Raises `ScenarioError`."""
    here = [one for one in everything() if one.namespace == namespace()]
    named = [one for one in here if one.device == device]
    if not named:
        known = ", ".join(sorted({one.device for one in here})) or "none"
        raise ScenarioError(
            f'DEV: found "{device}", allowed: a device with a law, of `forebay list`: {known}'
        )
    # The device may have been made anew beside one that is gone.
    present = [one for one in named if exists(one)]
    return (present or named)[0]


def exists(one: Attached) -> bool:
    """Whether the device is still there, under its number."""
    try:
        return socket.if_nametoindex(one.device) == one.ifindex
    except OSError:
        return False


@contextmanager
def alone() -> Iterator[None]:
    """One command at a time attaches or detaches: two that mount at once leave a mount behind.

    The lock is on the folder above, so that it leaves no file, and ends with its process.
    """
    folder = os.open(RUN.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def mount() -> None:
    """The BPF file system, where it is not mounted yet."""
    if os.path.ismount(PINNED):
        return
    own = False
    # Where the first process may not be asked, it cannot be known.
    with suppress(PermissionError):
        own = Path("/proc/self/ns/mnt").readlink() != Path("/proc/1/ns/mnt").readlink()
    if own:
        raise ScenarioError(
            "attach: found a mount namespace of its own, as of `ip netns exec`, with which the law "
            "would end, allowed: `nsenter --net=/run/netns/NAME forebay attach …`"
        )
    PINNED.mkdir(parents=True, exist_ok=True)
    call("mount", "-t", "bpf", "-o", "mode=0700", "bpf", str(PINNED))


def tidy() -> None:
    """Removes what the last law leaves."""
    if ATTACHED.is_dir() and not any(ATTACHED.iterdir()):
        ATTACHED.rmdir()
    # The kernel has files of its own in it.
    if os.path.ismount(PINNED) and not any(path.is_dir() for path in PINNED.iterdir()):
        call("umount", str(PINNED))
    for folder in (PINNED, RUN):
        if folder.is_dir() and not os.path.ismount(folder) and not any(folder.iterdir()):
            folder.rmdir()
