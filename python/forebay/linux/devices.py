"""A network device as `ip`, `tc` and the kernel see it, and what of a law is on it."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import forebay._native as _native
from forebay._native import ScenarioError
from forebay.linux import device_qdiscs as qdiscs
from forebay.linux import tcx
from forebay.linux.device_qdiscs import Qdisc
from forebay.linux.programs import PROGRAM_NAME, KernelError, answer, call
from forebay.linux.records import is_device_name
from forebay.scenario import router

#: Ours, so that nobody else's is taken for it.
HANDLE = "f0ba:"
CHILD = "f0bb:"
ROOT_HANDLE = 0xF0BA0000
#: Preference of our filter at egress where nobody else has one, and its handle there.
PREFERENCE = 100
FILTER_HANDLE = "0x1"
#: What tc counts of a packet besides the IP packet.
HEADERS = {"ether": 14}
#: Shapers before which a law can stand: the packets wait in them.
SHAPERS = ("tbf", "htb")


@dataclass(frozen=True)
class Device:
    """A device that is there and up."""

    name: str
    ifindex: int
    #: Largest packet, with its header.
    packet_bytes: int
    header_bytes: int
    #: Its root qdisc, as tc has it.
    root: dict[str, Any]
    has_clsact: bool

    @property
    def ip_bytes(self) -> int:
        """Largest IP packet."""
        return self.packet_bytes - self.header_bytes


@dataclass(frozen=True)
class Filter:
    """A filter of clsact at a device's egress."""

    preference: int
    kind: str
    handle: str
    protocol: str
    #: Identifier and name of its program of BPF; 0 without one.
    program: int = 0
    program_name: str = ""


@dataclass(frozen=True)
class Installed:
    """The programs, filters and shaper at a device's egress, as the kernel reports them.

    Attributes
    ----------
    tcx : tuple of int
        Programs at egress by tcx, in the order in which they run.
    filters : tuple of Filter
        Filters of clsact at egress.
    shaper : bool
        True if the root qdisc is one that `attach` made.
    has_clsact : bool
        True if the device has clsact.
    """

    tcx: tuple[int, ...]
    filters: tuple[Filter, ...]
    shaper: bool
    has_clsact: bool

    def has_program(self, program: int) -> bool:
        """Return True if this program is at the device's egress."""
        return program in self.tcx or any(
            egress_filter.program == program for egress_filter in self.filters
        )


def device(name: str, *, up: bool = True) -> Device:
    """Raises `ScenarioError` for one that is missing, or down."""
    try:
        if not is_device_name(name):
            raise KernelError("not a name of a device")
        (link,) = answer("ip", "-j", "link", "show", "dev", name)
    except KernelError:
        names = ", ".join(sorted(shown(name) for _, name in socket.if_nameindex()))
        raise ScenarioError(
            f'DEV: found "{shown(name)}", allowed: a device here: {names}'
        ) from None
    if up and "UP" not in link["flags"]:
        raise ScenarioError(
            f'DEV: found "{shown(name)}", which is down, allowed: `ip link set {quoted(name)} up`'
        )
    listed = answer("tc", "-j", "qdisc", "show", "dev", name)
    roots = [qdisc for qdisc in listed if qdisc.get("root")]
    header = HEADERS.get(link["link_type"], 0)
    return Device(
        name=name,
        ifindex=link["ifindex"],
        packet_bytes=link["mtu"] + header,
        header_bytes=header,
        root=roots[0] if roots else {"kind": "noqueue", "handle": "0:"},
        has_clsact=any(qdisc["kind"] == "clsact" for qdisc in listed),
    )


def index(name: str) -> int | None:
    """Return the number of the device with this name in this namespace; None without one."""
    try:
        return socket.if_nametoindex(name) if is_device_name(name) else None
    except OSError:
        return None


def name_of(ifindex: int) -> str | None:
    """Return the present name of a device in this namespace; None if there is no such device."""
    try:
        return socket.if_indextoname(ifindex)
    except (OSError, OverflowError):
        return None


def installed(name: str, ifindex: int) -> Installed:
    """Return what of laws there is on a device. Raises `KernelError`."""
    listed = answer("tc", "-j", "qdisc", "show", "dev", name)
    has_clsact = any(qdisc["kind"] == "clsact" for qdisc in listed)
    return Installed(
        tcx=tuple(tcx.attached(ifindex)) if tcx.offered() else (),
        filters=tuple(filters(name, "egress")) if has_clsact else (),
        shaper=any(qdisc.get("root") and qdisc.get("handle") == HANDLE for qdisc in listed),
        has_clsact=has_clsact,
    )


def filters(name: str, direction: str) -> list[Filter]:
    """Return the filters of a device with clsact. Raises `KernelError`."""
    device_filters = []
    for entry in answer("tc", "-j", "filter", "show", "dev", name, direction):
        options = entry.get("options")
        if options is None:
            continue
        program = options.get("prog", {})
        handle = str(options.get("handle", options.get("fh", "")))
        device_filters.append(
            Filter(
                entry["pref"],
                entry["kind"],
                handle,
                entry["protocol"],
                program.get("id", 0),
                program.get("name", ""),
            )
        )
    return device_filters


def delete_filter(name: str, law: Filter) -> None:
    """Delete one filter at egress, and no other of its preference. Raises `KernelError`."""
    call(*filter_words("del", name, law.preference), "handle", law.handle, law.kind)


def filter_words(verb: str, name: str, preference: int) -> list[str]:
    """Return the words of tc for a filter at a device's egress."""
    where = ["egress", "protocol", "all", "pref", str(preference)]
    return ["tc", "filter", verb, "dev", name, *where]


def first_preference(name: str) -> int:
    """Return a preference before every filter at egress.

    Raises
    ------
    ScenarioError
        If there is none: a filter has the first one.
    """
    preferences = [egress_filter.preference for egress_filter in filters(name, "egress")]
    preference = min([PREFERENCE, *(number - 1 for number in preferences)])
    if preference < 1:
        raise ScenarioError(
            f"attach: a filter of {shown(name)} has preference 1 at egress, and a law behind it "
            f"might see no packet; give that filter a higher preference (`tc filter show dev "
            f"{quoted(name)} egress`)"
        )
    return preference


def law_programs(present: Installed) -> list[int]:
    """Return the programs on a device that are laws of Forebay, by their names."""
    law_ids = [
        egress_filter.program
        for egress_filter in present.filters
        if egress_filter.program_name == PROGRAM_NAME
    ]
    for program in present.tcx:
        try:
            (named,) = [answer("bpftool", "-j", "prog", "show", "id", str(program))]
        except KernelError:
            continue
        if named.get("name") == PROGRAM_NAME:
            law_ids.append(program)
    return law_ids


def qdiscs_before(target: Device) -> list[Qdisc] | None:
    """Return the qdiscs that `attach` replaces, to be restored; None for the kernel's default.

    Raises
    ------
    ScenarioError
        If they could not be restored whole.
    """
    hindrance = qdiscs.hindrance(target.ifindex)
    if hindrance is not None:
        name = shown(target.name)
        raise ScenarioError(
            f"--rate: {name} has a qdisc {target.root['kind']}, and `detach` could not restore "
            f"{hindrance}; remove it first (`tc qdisc del dev {quoted(target.name)} root`), or "
            "attach without --rate before a tbf or htb that is there"
        )
    before = qdiscs.tree(target.ifindex)
    return None if qdiscs.is_default(before) else before


def restore(ifindex: int, before: Sequence[Qdisc] | None) -> None:
    """Give a device the qdiscs back that it had. Raises `KernelError`."""
    qdiscs.restore(ifindex, before)


def rate_of(target: Device) -> int:
    """Return the rate of IP packets that the shaper there carries, in bit/s.

    Raises `ScenarioError` without a shaper that is known.
    """
    kind = target.root["kind"]
    counted_bps = None
    if kind == "tbf":
        counted_bps = 8 * int(target.root["options"]["rate"])
    elif kind in SHAPERS:
        # Text: not every tc has its classes as JSON.
        lines = call("tc", "class", "show", "dev", target.name).splitlines()
        rates = re.findall(r"^class \S+ \S+ root .*\bceil (\S+)", "\n".join(lines), re.MULTILINE)
        if len(rates) == 1:
            counted_bps = round(_native.quantity("--rate", f"{rates[0]}/s", "rate"))
    if counted_bps is None:
        raise ScenarioError(
            f"--rate: found none, and {shown(target.name)} has a qdisc {kind}, allowed: such as "
            f"15Mbit/s, a little less than the link's own, or without it a shaper there, "
            f"{' or '.join(SHAPERS)}"
        )
    return router.packets_bps(counted_bps, target.ip_bytes, target.header_bytes)


def shown(name: str) -> str:
    """Return a device's name for a terminal: what does not print stands as an escape.

    Linux lets a name have any byte but a slash, a colon and white space.
    """
    text = os.fsencode(name).decode(errors="surrogateescape")
    return "".join(
        letter
        if letter.isprintable()
        else letter.encode("unicode_escape", "backslashreplace").decode()
        for letter in text
    )


def quoted(name: str) -> str:
    """Return a device's name as a word of a command that can be pasted into a shell."""
    import shlex

    if name.isprintable():
        return shlex.quote(name)
    # Bash, and POSIX since 2024.
    escaped = "".join(
        chr(byte) if 32 < byte < 127 and byte not in b"'\\" else f"\\{byte:03o}"
        for byte in os.fsencode(name)
    )
    return f"$'{escaped}'"
