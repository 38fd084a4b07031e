"""The qdiscs of a device, which are saved before they are replaced, and restored later.

The options of a qdisc are saved as the bytes that the kernel reports (rtnetlink(7)), so that no
option is lost, such as the peak rate, overhead, link layer and exact burst of a tbf, or its child.
Not every qdisc accepts its own report, so the restoration is rehearsed in a new network
namespace before anything is replaced.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from forebay.linux import namespaces
from forebay.linux.programs import KernelError

#: Messages, flags and attributes (include/uapi/linux/rtnetlink.h, netlink.h).
NEW_QDISC, DELETE_QDISC, GET_QDISC, GET_CLASS, GET_FILTER = 36, 37, 38, 42, 46
ERROR, DONE = 2, 3
REQUEST, ACKNOWLEDGE, REPLACE, CREATE, DUMP = 0x1, 0x4, 0x100, 0x400, 0x300
KIND, OPTIONS, STAB, INGRESS_BLOCK, EGRESS_BLOCK = 1, 2, 8, 13, 14
#: Bits of an attribute's type that are flags.
FLAGS = 0xC000
ROOT, CLSACT = 0xFFFFFFFF, 0xFFFFFFF1
LOOPBACK = 1
HEADER, TRAFFIC = struct.Struct("=IHHII"), struct.Struct("=BxxxiIII")
ANSWER_BYTES = 1 << 18


@dataclass(frozen=True)
class DeviceQdisc:
    """A qdisc of a device.

    Attributes
    ----------
    kind : str
        Name of the qdisc, such as "tbf".
    handle, parent : int
        Number of the qdisc, and number of the class above it; `ROOT` for the root.
    options : str
        Its options, as hexadecimal bytes.
    """

    kind: str
    handle: int
    parent: int
    options: str

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return asdict(self)

    @staticmethod
    def from_json(value: Any) -> DeviceQdisc:
        """Return the qdisc that `as_json` wrote. Raises `ValueError` for anything else."""
        if not isinstance(value, dict) or set(value) != {"kind", "handle", "parent", "options"}:
            raise ValueError("a qdisc needs kind, handle, parent and options")
        kind, options = value["kind"], value["options"]
        if not isinstance(kind, str) or not 0 < len(kind.encode()) < 16:
            raise ValueError(f"{kind!r} is no name of a qdisc")
        for name in ("handle", "parent"):
            if type(value[name]) is not int or not 0 <= value[name] <= ROOT:
                raise ValueError(f"the {name} of a qdisc is no number of 32 bits")
        if not isinstance(options, str):
            raise ValueError("the options of a qdisc are no text")
        bytes.fromhex(options)
        return DeviceQdisc(kind, value["handle"], value["parent"], options)


def tree(ifindex: int) -> list[DeviceQdisc]:
    """Return the qdiscs of a device, parents first, without those of clsact and ingress.

    Raises `KernelError`.
    """
    return [qdisc for qdisc, _ in _qdiscs(ifindex)]


def is_default(qdiscs: Sequence[DeviceQdisc]) -> bool:
    """Return True if the kernel chose these qdiscs: nobody gave one of them a number."""
    return all(qdisc.handle == 0 for qdisc in qdiscs)


def hindrance(ifindex: int) -> str | None:
    """Return why the qdiscs of a device could not be restored if they were replaced.

    Returns
    -------
    str or None
        What could not be restored, in words; None if everything can.

    Raises
    ------
    KernelError
        If the kernel does not report the qdiscs.
    """
    qdiscs = _qdiscs(ifindex)
    for qdisc, attributes in qdiscs:
        if STAB in attributes:
            return f"the size table (stab) of {qdisc.kind}"
        if INGRESS_BLOCK in attributes or EGRESS_BLOCK in attributes:
            return f"the shared block of {qdisc.kind}"
    for _, parent, attributes in _dump(GET_CLASS, ifindex):
        if OPTIONS in attributes and parent != CLSACT:
            return f"the classes of {_text(attributes[KIND])}"
    for qdisc, _ in qdiscs:
        if qdisc.handle and any(_dump(GET_FILTER, ifindex, qdisc.handle)):
            return f"the filters of {qdisc.kind}"
    whole = [qdisc for qdisc, _ in qdiscs]
    if is_default(whole):
        return None
    try:
        rehearsed = namespaces.in_new(lambda: _rehearse(whole))
    except KernelError as error:
        return f"{whole[0].kind} ({error})"
    if rehearsed != whole:
        lost = next((qdisc for qdisc in whole if qdisc not in rehearsed), whole[0])
        return f"every option of {lost.kind}"
    return None


def restore(ifindex: int, qdiscs: Sequence[DeviceQdisc] | None) -> None:
    """Restore the qdiscs of a device.

    Parameters
    ----------
    ifindex : int
        Number of the device.
    qdiscs : sequence of DeviceQdisc or None
        The qdiscs, parents first; None for the kernel's default.

    Raises
    ------
    KernelError
        If the kernel refuses, or if it has other qdiscs afterwards.
    """
    if not qdiscs:
        _request(DELETE_QDISC, 0, TRAFFIC.pack(0, ifindex, 0, ROOT, 0), "default qdisc")
        return
    _put(ifindex, qdiscs)
    if tree(ifindex) != list(qdiscs):
        raise KernelError(f"qdisc {qdiscs[0].kind}: the kernel did not restore all of its options")


def _rehearse(qdiscs: Sequence[DeviceQdisc]) -> list[DeviceQdisc]:
    _put(LOOPBACK, qdiscs)
    return tree(LOOPBACK)


def _put(ifindex: int, qdiscs: Sequence[DeviceQdisc]) -> None:
    for qdisc in qdiscs:
        body = TRAFFIC.pack(0, ifindex, qdisc.handle, qdisc.parent, 0)
        body += _attribute(KIND, qdisc.kind.encode() + b"\0")
        if qdisc.options:
            body += _attribute(OPTIONS, bytes.fromhex(qdisc.options))
        _request(NEW_QDISC, CREATE | REPLACE, body, f"qdisc {qdisc.kind}")


def _qdiscs(ifindex: int) -> list[tuple[DeviceQdisc, dict[int, bytes]]]:
    qdiscs = []
    for handle, parent, attributes in _dump(GET_QDISC, ifindex):
        if parent == CLSACT:
            continue
        options = attributes.get(OPTIONS, b"").hex()
        qdiscs.append((DeviceQdisc(_text(attributes[KIND]), handle, parent, options), attributes))
    # The root is reported first, and a parent before its children.
    return qdiscs


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


def _attribute(kind: int, data: bytes) -> bytes:
    length = 4 + len(data)
    return struct.pack("=HH", length, kind) + data + bytes(-length % 4)


def _attributes(data: bytes) -> dict[int, bytes]:
    attributes = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        attributes[kind & ~FLAGS] = data[4:length]
        data = data[length + -length % 4 :]
    return attributes


def _dump(kind: int, ifindex: int, parent: int = 0) -> Iterator[tuple[int, int, dict[int, bytes]]]:
    """Yield handle, parent and attributes of each object of a device. Raises `KernelError`."""
    body = TRAFFIC.pack(0, ifindex, 0, parent, 0)
    for data in _exchange(kind, DUMP, body, "qdiscs"):
        _, index, handle, above, _ = TRAFFIC.unpack_from(data)
        if index == ifindex:
            yield handle, above, _attributes(data[TRAFFIC.size :])


def _request(kind: int, flags: int, body: bytes, action: str) -> None:
    for _ in _exchange(kind, flags | ACKNOWLEDGE, body, action):
        pass


def _exchange(kind: int, flags: int, body: bytes, action: str) -> list[bytes]:
    """Return the bodies of the kernel's answers. Raises `KernelError` where it refuses."""
    bodies: list[bytes] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.bind((0, 0))
        link.send(HEADER.pack(HEADER.size + len(body), kind, flags | REQUEST, 1, 0) + body)
        while True:
            data = link.recv(ANSWER_BYTES)
            while data:
                length, answer, _, _, _ = HEADER.unpack_from(data)
                content, data = data[HEADER.size : length], data[length + -length % 4 :]
                if answer in (ERROR, DONE):
                    status = struct.unpack_from("=i", content)[0] if len(content) >= 4 else 0
                    if status < 0:
                        raise KernelError(f"{action}: {os.strerror(-status)}")
                    return bodies
                bodies.append(content)
