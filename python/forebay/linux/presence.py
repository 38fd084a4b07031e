"""Where a law is: by the kernel's word, on a device that may have been renamed or moved."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

from forebay._native import ScenarioError
from forebay.linux import devices, namespaces, records, tcx
from forebay.linux.devices import HANDLE, shown
from forebay.linux.programs import CLASSIFIER, KernelError, answer
from forebay.linux.records import Attached

#: States of a law, as `forebay list` shows them; the empty one is that of a law that works.
ELSEWHERE, MOVED, GONE = "another namespace", "moved to another namespace", "gone"
INTERRUPTED = "attach was interrupted"


def find(device: str) -> Attached | None:
    """Return what is attached to a device of this namespace; None where nothing is.

    A device is found by its number, which a new name does not change, and by the law that the
    kernel has on it, which goes with it into another namespace.
    """
    namespace = namespaces.cookie()
    attached, _ = records.read()
    ifindex = devices.index(device)
    if ifindex is not None:
        present = devices.installed(device, ifindex)
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
    """Return what is attached to a device here. Raises `ScenarioError` where nothing is."""
    attached = find(device)
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
        present = devices.installed(name, ifindex)
        if any(is_of(record, ifindex, present) for record in attached):
            continue
        if present.shaper or devices.law_programs(present):
            names.append(name)
    return names


def no_law(device: str) -> ScenarioError:
    """Return the error of a device that has no law."""
    attached, problems = records.read()
    local_records = [record for record in attached if record.namespace == namespaces.cookie()]
    names = (
        ", ".join(sorted({shown(name_here(record) or record.device) for record in local_records}))
        or "none"
    )
    damaged = "".join(f"; {problem}" for problem in problems)
    return ScenarioError(
        f'DEV: found "{shown(device)}", allowed: a device with a law, of `forebay list`: '
        f"{names}{damaged}"
    )


def state(attached: Attached) -> str:
    """Return where a law is, as `forebay list` says it; empty for one that works here."""
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
        name = devices.name_of(attached.ifindex)
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


def installed_here(name: str) -> devices.Installed:
    """Return what of laws there is on a device. Raises `KernelError` where it is gone."""
    ifindex = devices.index(name)
    if ifindex is None:
        raise KernelError(f"{name} has gone meanwhile")
    return devices.installed(name, ifindex)


def present_name(attached: Attached) -> str | None:
    """Return the present name of the device in this namespace that has a law; None without it."""
    name = name_here(attached)
    if name is None:
        return None
    present = installed_here(name)
    return name if is_there(attached, present) else None


def programs_before(attached: Attached, name: str, ifindex: int) -> int:
    """Return how many programs and filters of others run before a law. Raises `KernelError`."""
    present = devices.installed(name, ifindex)
    if attached.program in present.tcx:
        return present.tcx.index(attached.program)
    law = next(
        (
            egress_filter
            for egress_filter in present.filters
            if egress_filter.program == attached.program
        ),
        None,
    )
    before = [
        egress_filter
        for egress_filter in present.filters
        if law and egress_filter.preference < law.preference
    ]
    return len(present.tcx) + len(before)


def is_of(attached: Attached, ifindex: int, present: devices.Installed) -> bool:
    """Return True if a record is of this device of this namespace."""
    if attached.boot != records.boot():
        return False
    same = attached.ifindex == ifindex and attached.namespace == namespaces.cookie()
    return same or bool(attached.program and present.has_program(attached.program))


def is_there(attached: Attached, present: devices.Installed) -> bool:
    """Return True if the kernel has the law on this device."""
    if attached.engine == CLASSIFIER:
        return present.has_program(attached.program)
    return present.shaper


def namespace_of(attached: Attached) -> Path | None:
    """Return a file of the namespace in which a law was attached; None if there is no more."""
    for path in namespaces.reachable():
        with suppress(OSError):
            if namespaces.inside(path, namespaces.cookie) == attached.namespace:
                return path
    return None
