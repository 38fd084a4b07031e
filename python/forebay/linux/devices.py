"""A network device as the kernel reports it, and the law that is installed on it.

A device may have been renamed or moved to another namespace since: it is found by its number, and
by the law that the kernel has on it.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forebay._native as _native
from forebay._base.errors import ParameterError
from forebay._native import ScenarioError
from forebay.linux import device_qdiscs as qdiscs
from forebay.linux import namespaces, records, tcx
from forebay.linux.device_qdiscs import DeviceQdisc
from forebay.linux.programs import CLASSIFIER, PROGRAM_NAME, KernelError, answer, call
from forebay.linux.records import Attached, is_device_name
from forebay.scenario import router

#: Handles of Forebay's qdiscs, by which they are recognised.
HANDLE = "f0ba:"
CHILD = "f0bb:"
#: Preference of a law's filter at egress without other filters, and its handle.
PREFERENCE = 100
FILTER_HANDLE = "0x1"
#: Bytes that tc counts of a packet in addition to the IP packet, by link type.
HEADERS = {"ether": 14}
#: Shapers in front of which a law can run, because packets wait in them.
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
        return program in self.tcx or program in [entry.program for entry in self.filters]


def device(name: str) -> Device:
    """Return a network device. Raises `ScenarioError` if it does not exist, or is down."""
    try:
        if not is_device_name(name):
            raise KernelError("not a name of a device")
        (link,) = answer("ip", "-j", "link", "show", "dev", name)
    except KernelError:
        names = ", ".join(sorted(shown(name) for _, name in socket.if_nameindex()))
        raise ScenarioError(
            f"DEV: there is no device {shown(name)} here; the devices are {names}"
        ) from None
    if "UP" not in link["flags"]:
        raise ScenarioError(
            f"DEV: {shown(name)} is down; bring it up with `ip link set {quoted(name)} up`"
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
    """Return the programs, filters and shaper of a device.

    Parameters
    ----------
    name : str
        Name of the device.
    ifindex : int
        Its number.

    Returns
    -------
    Installed
        The programs, filters and shaper.

    Raises
    ------
    KernelError
        If the kernel refuses a query.
    """
    listed = answer("tc", "-j", "qdisc", "show", "dev", name)
    has_clsact = any(qdisc["kind"] == "clsact" for qdisc in listed)
    return Installed(
        tcx=tuple(tcx.attached(ifindex)) if tcx.offered() else (),
        filters=tuple(filters(name, "egress")) if has_clsact else (),
        shaper=any(qdisc.get("root") and qdisc.get("handle") == HANDLE for qdisc in listed),
        has_clsact=has_clsact,
    )


def filters(name: str, direction: str) -> list[Filter]:
    """Return the filters of a device with clsact.

    Parameters
    ----------
    name : str
        Name of the device.
    direction : str
        "egress" or "ingress".

    Returns
    -------
    list of Filter
        The filters.

    Raises
    ------
    KernelError
        If tc fails.
    """
    device_filters = []
    for entry in answer("tc", "-j", "filter", "show", "dev", name, direction):
        options = entry.get("options")
        if options is None:
            continue
        program = options.get("prog", {})
        handle = str(options.get("handle", options.get("fh", "")))
        head = (entry["pref"], entry["kind"], handle, entry["protocol"])
        device_filters.append(Filter(*head, program.get("id", 0), program.get("name", "")))
    return device_filters


def delete_filter(name: str, law: Filter) -> None:
    """Delete a filter at egress, and no other filter of its preference.

    Parameters
    ----------
    name : str
        Name of the device.
    law : Filter
        The filter.

    Raises
    ------
    KernelError
        If tc fails.
    """
    call(*filter_words("del", name, law.preference), "handle", law.handle, law.kind)


def filter_words(verb: str, name: str, preference: int) -> list[str]:
    """Return a command of tc for a filter at a device's egress.

    Parameters
    ----------
    verb : str
        Such as "add" or "del".
    name : str
        Name of the device.
    preference : int
        Preference of the filter.

    Returns
    -------
    list of str
        The words.
    """
    where = ["egress", "protocol", "all", "pref", str(preference)]
    return ["tc", "filter", verb, "dev", name, *where]


def first_preference(name: str) -> int:
    """Return a preference before every filter at egress.

    Raises
    ------
    ScenarioError
        If a filter already has the first preference, so that none is before it.
    """
    preferences = [entry.preference for entry in filters(name, "egress")]
    preference = min([PREFERENCE, *(number - 1 for number in preferences)])
    if preference < 1:
        raise ScenarioError(
            f"attach: a filter of {shown(name)} has preference 1 at egress, so a law behind "
            f"it might see no packets; give that filter a higher preference (`tc filter show dev "
            f"{quoted(name)} egress`)"
        )
    return preference


def law_programs(present: Installed) -> list[int]:
    """Return the programs on a device that are laws of Forebay, by their names."""
    laws = [entry.program for entry in present.filters if entry.program_name == PROGRAM_NAME]
    for program in present.tcx:
        with suppress(KernelError):  # it has gone meanwhile
            named = answer("bpftool", "-j", "prog", "show", "id", str(program))
            if named.get("name") == PROGRAM_NAME:
                laws.append(program)
    return laws


def qdiscs_before(target: Device) -> list[DeviceQdisc] | None:
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
            f"rate: {name} has the qdisc {target.root['kind']}, and `forebay detach` could not "
            f"restore {hindrance}; remove it first (`tc qdisc del dev {quoted(target.name)} "
            "root`), or attach without a rate in front of an existing tbf or htb"
        )
    before = qdiscs.tree(target.ifindex)
    return None if qdiscs.is_default(before) else before


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
        raise ParameterError(
            "rate",
            None,
            f"a rate slightly below the link's, such as 15Mbit/s, because {shown(target.name)} has "
            f"no shaper ({' or '.join(SHAPERS)}) but {kind}",
        )
    return router.packets_bps(counted_bps, target.ip_bytes, target.header_bytes)


def shown(name: str) -> str:
    """Return a device's name for a terminal, with escapes for characters that do not print.

    A name may have any byte but a slash, a colon and white space.
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


#: States of a law, as `forebay kernel list` shows them; the empty one is that of a law that works.
ELSEWHERE, MOVED, GONE = "another namespace", "moved to another namespace", "gone"
INTERRUPTED = "attach was interrupted"


def find_attached(device: str) -> Attached | None:
    """Return the record of the law on a device of this namespace; None without one.

    A device is found by its number, which a new name does not change, and by the law that the
    kernel has on it, which goes with it into another namespace.
    """
    namespace = namespaces.cookie()
    attached, _ = records.read()
    ifindex = index(device)
    if ifindex is not None:
        present = installed(device, ifindex)
        of_device = [record for record in attached if is_of(record, ifindex, present)]
        # A device of another name may have had this number.
        of_device.sort(key=lambda record: not is_there(record, present))
        if of_device:
            return of_device[0]
    # Its device is gone, was moved, or has a new name while no other has the old one.
    named = [
        record for record in attached if record.namespace == namespace and record.device == device
    ]
    named = [record for record in named if ifindex is None or name_here(record) is None]
    return named[0] if named else None


def attached_to(device: str) -> Attached:
    """Return the record of the law on a device here. Raises `ScenarioError` without one."""
    attached = find_attached(device)
    if attached is None:
        raise no_law(device)
    return attached


def unrecorded() -> list[str]:
    """Return the devices of this namespace that have a law of Forebay without a usable record.

    The record of a command in a container with a `/run` of its own is there, for example.
    """
    attached, _ = records.read()
    listed = answer("tc", "-j", "qdisc", "show")
    signs = {
        qdisc["dev"]
        for qdisc in listed
        if qdisc.get("handle") == HANDLE or qdisc["kind"] == "clsact"
    }
    names = []
    for ifindex, name in socket.if_nameindex():
        if name not in signs and not (tcx.offered() and tcx.attached(ifindex)):
            continue
        present = installed(name, ifindex)
        if any(is_of(record, ifindex, present) for record in attached):
            continue
        if present.shaper or law_programs(present):
            names.append(name)
    return names


def no_law(device: str) -> ScenarioError:
    """Return the error of a device that has no law."""
    attached, problems = records.read()
    local_records = [record for record in attached if record.namespace == namespaces.cookie()]
    names = sorted({shown(name_here(record) or record.device) for record in local_records})
    damaged = "".join(f"; {problem}" for problem in problems)
    devices_with_law = (
        f"; devices with a law: {', '.join(names)}" if names else "; no device has one"
    )
    return ScenarioError(f"DEV: {shown(device)} has no law{devices_with_law}{damaged}")


def state_of(attached: Attached) -> str:
    """Return where a law is, as `forebay kernel list` says it; empty for one that works here."""
    name = name_here(attached)
    if name is not None:
        present = installed_here(name)
        if is_there(attached, present):
            return ""
        rest = present.shaper or ("clsact" in attached.made and present.has_clsact)
        return INTERRUPTED if rest else GONE
    if attached.boot != records.boot():
        return GONE
    if attached.engine == CLASSIFIER:
        if not tcx.exists(attached.program):
            return GONE
        return MOVED if attached.namespace == namespaces.cookie() else ELSEWHERE
    if attached.namespace == namespaces.cookie():
        return GONE
    return ELSEWHERE if namespace_of(attached) is not None else GONE


def name_here(attached: Attached) -> str | None:
    """Return the present name of a law's device; None if it is not in this namespace."""
    if attached.boot != records.boot():
        return None
    name = None
    if attached.namespace == namespaces.cookie():
        name = name_of(attached.ifindex)
    return name_with(attached.program) or name


def name_with(program: int) -> str | None:
    """Return the device of this namespace that has a program by tcx; None without one.

    A device takes what tcx runs along into another namespace; its qdiscs and filters end there.
    """
    if not program or not tcx.offered():
        return None
    for ifindex, name in socket.if_nameindex():
        with suppress(KernelError):  # the device has gone meanwhile
            if program in tcx.attached(ifindex):
                return name
    return None


def installed_here(name: str) -> Installed:
    """Return the programs, filters and shaper of a device. Raises `KernelError` if it is gone."""
    ifindex = index(name)
    if ifindex is None:
        raise KernelError(f"the device {name} has disappeared")
    return installed(name, ifindex)


def present_name(attached: Attached) -> str | None:
    """Return the present name of the device in this namespace that has a law; None without it."""
    name = name_here(attached)
    if name is None:
        return None
    present = installed_here(name)
    return name if is_there(attached, present) else None


def programs_before(attached: Attached, name: str, ifindex: int) -> int:
    """Return the number of foreign programs and filters that run before a law.

    Parameters
    ----------
    attached : Attached
        Record of the law.
    name : str
        Present name of the device.
    ifindex : int
        Its number.

    Returns
    -------
    int
        The number.

    Raises
    ------
    KernelError
        If the kernel refuses a query.
    """
    present = installed(name, ifindex)
    if attached.program in present.tcx:
        return present.tcx.index(attached.program)
    laws = [entry for entry in present.filters if entry.program == attached.program]
    before = [entry for entry in present.filters if laws and entry.preference < laws[0].preference]
    return len(present.tcx) + len(before)


def is_of(attached: Attached, ifindex: int, present: Installed) -> bool:
    """Return True if a record belongs to a device of this namespace.

    Parameters
    ----------
    attached : Attached
        The record.
    ifindex : int
        Number of the device.
    present : Installed
        Programs, filters and shaper of the device.

    Returns
    -------
    bool
        True if it does.
    """
    if attached.boot != records.boot():
        return False
    same = attached.ifindex == ifindex and attached.namespace == namespaces.cookie()
    return same or bool(attached.program and present.has_program(attached.program))


def is_there(attached: Attached, present: Installed) -> bool:
    """Return True if the kernel has a law on a device.

    Parameters
    ----------
    attached : Attached
        Record of the law.
    present : Installed
        Programs, filters and shaper of the device.

    Returns
    -------
    bool
        True if it does.
    """
    if attached.engine == CLASSIFIER:
        return present.has_program(attached.program)
    return present.shaper


def namespace_of(attached: Attached) -> Path | None:
    """Return a file of the namespace in which a law was attached; None if it has ended."""
    for path in namespaces.reachable():
        with suppress(OSError):
            if namespaces.inside(path, namespaces.cookie) == attached.namespace:
                return path
    return None
