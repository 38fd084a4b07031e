"""Network namespaces: their cookies, and work in another one."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

#: Option of a socket (include/uapi/asm-generic/socket.h).
SO_NETNS_COOKIE = 71
CLONE_NEWNET = 0x40000000
#: Folder of the namespaces of `ip netns add`.
NAMED = Path("/run/netns")
_libc = ctypes.CDLL(None, use_errno=True)


def cookie() -> int:
    """Return the cookie of this thread's network namespace.

    The kernel gives no two namespaces the same cookie until the machine starts again, whereas the
    inode number of one that is gone is used again at once.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        (number,) = struct.unpack("=Q", probe.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8))
    return int(number)


def in_new(work: Callable[[], Result]) -> Result:
    """Call a function in a new network namespace, which ends with it, and return its result.

    Raises `OSError` if no namespace can be created; exceptions of `work` are passed on.
    """
    return _in_a_thread(lambda: _check(_libc.unshare(CLONE_NEWNET)), work)


def inside(path: Path, work: Callable[[], Result]) -> Result:
    """Call a function in a network namespace.

    Parameters
    ----------
    path : Path
        File of the namespace.
    work : callable
        The function.

    Returns
    -------
    object
        Its result.

    Raises
    ------
    OSError
        If the namespace cannot be entered. Exceptions of `work` are passed on.
    """

    def enter() -> None:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(file, CLONE_NEWNET))
        finally:
            os.close(file)

    return _in_a_thread(enter, work)


def reachable() -> Iterator[Path]:
    """Yield a file for each network namespace that has a name or a process, but this one."""
    identities = {_identity(Path("/proc/self/ns/net"))}
    for path in (*_entries(NAMED, "*"), *_entries(Path("/proc"), "[0-9]*/ns/net")):
        with suppress(OSError):
            identity = _identity(path)
            if identity not in identities:
                identities.add(identity)
                yield path


def _entries(folder: Path, pattern: str) -> list[Path]:
    """Return what matches; processes end while it is looked for."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _in_a_thread(enter: Callable[[], None], work: Callable[[], Result]) -> Result:
    """Run in a thread of its own: the kernel moves one thread, not the whole process."""

    def run() -> Result:
        enter()
        return work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()
