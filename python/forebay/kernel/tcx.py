"""Programs at a device's egress by tcx (Linux 6.6 and later), which takes a packet half as long as
a filter of clsact. `bpftool net attach tcx_egress` does the same, where it is new enough."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay.kernel.programs import KernelError, offers

#: Of bpf(2), where it is not that of most architectures (include/uapi/asm-generic/unistd.h).
NUMBERS = {"x86_64": 321, "i686": 357, "armv7l": 386, "ppc64le": 361, "s390x": 351}
NUMBER = NUMBERS.get(platform.machine(), 280)
#: Commands and a place (include/uapi/linux/bpf.h).
OBJ_GET, PROG_ATTACH, PROG_DETACH, PROG_QUERY = 7, 8, 9, 16
EGRESS = 47
#: Of `union bpf_attr`, which the kernel wants no longer than it knows, but for zeros.
ATTRIBUTES_BYTES = 128
MOST_PROGRAMS = 64
_libc = ctypes.CDLL(None, use_errno=True)


def offered() -> bool:
    """Whether this kernel has tcx."""
    return offers("tcx_prog_attach", "tcx")


def attach(ifindex: int, program: Path) -> None:
    """A pinned program, after those that are there. Raises `KernelError`."""
    with _opened(program) as file:
        _bpf(PROG_ATTACH, struct.pack("<IIII", ifindex, file, EGRESS, 0), f"tcx: {program}")


def detach(ifindex: int, program: Path) -> None:
    """Raises `KernelError`."""
    with _opened(program) as file:
        _bpf(PROG_DETACH, struct.pack("<IIII", ifindex, file, EGRESS, 0), f"tcx: {program}")


def attached(ifindex: int) -> list[int]:
    """The programs of a device, by their numbers. Raises `KernelError`."""
    ids = (ctypes.c_uint32 * MOST_PROGRAMS)()
    asked = struct.pack("<IIIIQI", ifindex, EGRESS, 0, 0, ctypes.addressof(ids), MOST_PROGRAMS)
    told = _bpf(PROG_QUERY, asked, "tcx")[1]
    (count,) = struct.unpack_from("<I", told, struct.calcsize("<IIIIQ"))
    return list(ids[:count])


@contextmanager
def _opened(program: Path) -> Iterator[int]:
    path = ctypes.create_string_buffer(os.fsencode(program))
    asked = struct.pack("<QII", ctypes.addressof(path), 0, 0)
    file = _bpf(OBJ_GET, asked, str(program))[0]
    try:
        yield file
    finally:
        os.close(file)


def _bpf(command: int, asked: bytes, what: str) -> tuple[int, bytes]:
    attributes = ctypes.create_string_buffer(asked, ATTRIBUTES_BYTES)
    result = _libc.syscall(NUMBER, command, attributes, ATTRIBUTES_BYTES)
    if result < 0:
        raise KernelError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result, attributes.raw
