"""System calls of BPF: programs at a device's egress by tcx, and a private BPF file system.

A program is found again by its identifier, and the file system is mounted nowhere. tcx requires
Linux 6.6, and takes a packet half as long as a filter of clsact. `bpftool net attach tcx_egress`
does the same, if it is new enough.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay.linux.programs import KernelError, offers

#: The number of bpf(2), where it is not that of most architectures
#: (include/uapi/asm-generic/unistd.h).
NUMBERS = {"x86_64": 321, "i686": 357, "armv7l": 386, "ppc64le": 361, "s390x": 351}
NUMBER = NUMBERS.get(platform.machine(), 280)
#: System calls that mount, which every architecture numbers alike.
FSOPEN, FSCONFIG, FSMOUNT = 430, 431, 432
CLOSE_ON_EXEC, SET_STRING, CREATE = 1, 1, 6
#: Commands and an attach type (include/uapi/linux/bpf.h).
OBJ_GET, PROG_ATTACH, PROG_DETACH, PROG_GET_FD_BY_ID, PROG_QUERY = 7, 8, 9, 13, 16
EGRESS = 47
#: Flag that attaches a program before all others.
BEFORE = 1 << 3
#: The length of `union bpf_attr`; the kernel accepts a longer one whose rest is zero.
ATTRIBUTES_BYTES = 128
MOST_PROGRAMS = 64
_libc = ctypes.CDLL(None, use_errno=True)


def offered() -> bool:
    """Return True if this kernel has tcx."""
    return offers("tcx_prog_attach", "tcx")


def attach(ifindex: int, program: int) -> None:
    """Attach a program before the other programs of a device.

    The device then holds the program, which needs neither a pin nor a process. The first program
    sees every packet, whatever verdicts the others return.

    Parameters
    ----------
    ifindex : int
        Number of the device.
    program : int
        File descriptor of the program.

    Raises
    ------
    KernelError
        If the kernel refuses.
    """
    _bpf(PROG_ATTACH, struct.pack("=IIII", ifindex, program, EGRESS, BEFORE), "tcx attach")


def detach(ifindex: int, program_id: int) -> None:
    """Detach a program.

    Parameters
    ----------
    ifindex : int
        Number of the device.
    program_id : int
        Identifier of the program.

    Raises
    ------
    KernelError
        If the kernel refuses.
    """
    with opened_by_id(program_id) as program:
        _bpf(PROG_DETACH, struct.pack("=IIII", ifindex, program, EGRESS, 0), "tcx detach")


def attached(ifindex: int) -> list[int]:
    """Return the identifiers of a device's programs, in the order in which they run.

    Raises `KernelError`.
    """
    ids = (ctypes.c_uint32 * MOST_PROGRAMS)()
    query = struct.pack("=IIIIQI", ifindex, EGRESS, 0, 0, ctypes.addressof(ids), MOST_PROGRAMS)
    answer = _bpf(PROG_QUERY, query, "tcx query")[1]
    (count,) = struct.unpack_from("=I", answer, struct.calcsize("=IIIIQ"))
    return list(ids[:count])


def exists(program_id: int) -> bool:
    """Return True if the kernel still has a program with this identifier."""
    try:
        with opened_by_id(program_id):
            return True
    except KernelError:
        return False


@contextmanager
def opened_by_id(program_id: int) -> Iterator[int]:
    """Open a program by its identifier, and close it again. Raises `KernelError`."""
    attributes = struct.pack("=III", program_id, 0, 0)
    file = _bpf(PROG_GET_FD_BY_ID, attributes, f"BPF program {program_id}")[0]
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def opened(pin: Path) -> Iterator[int]:
    """Open a pinned program, and close it again. Raises `KernelError`."""
    path = ctypes.create_string_buffer(os.fsencode(pin))
    attributes = struct.pack("=QII", ctypes.addressof(path), 0, 0)
    file = _bpf(OBJ_GET, attributes, str(pin))[0]
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def file_system() -> Iterator[int]:
    """Make a BPF file system that no mount namespace has, and end it afterwards.

    `bpftool prog load` wants a place to pin what it loads. Under `/proc/self/fd/N` of the file
    descriptor that is yielded there is one, for this process and for programs that inherit it; it
    ends with them, also when they are killed.

    Raises `KernelError`.
    """
    context = _mount(FSOPEN, ctypes.c_char_p(b"bpf"), CLOSE_ON_EXEC)
    try:
        mode = (ctypes.c_char_p(b"mode"), ctypes.c_char_p(b"0700"))
        _mount(FSCONFIG, context, SET_STRING, *mode, 0)
        _mount(FSCONFIG, context, CREATE, None, None, 0)
        file = _mount(FSMOUNT, context, CLOSE_ON_EXEC, 0)
    finally:
        os.close(context)
    try:
        yield file
    finally:
        os.close(file)


def _mount(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        raise KernelError(f"BPF file system: {os.strerror(ctypes.get_errno())}")
    return result


def _bpf(command: int, attributes: bytes, action: str) -> tuple[int, bytes]:
    buffer = ctypes.create_string_buffer(attributes, ATTRIBUTES_BYTES)
    result = _libc.syscall(NUMBER, command, buffer, ATTRIBUTES_BYTES)
    if result < 0:
        raise KernelError(f"{action}: {os.strerror(ctypes.get_errno())}")
    return result, buffer.raw
