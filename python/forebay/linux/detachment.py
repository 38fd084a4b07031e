"""Takes a law away, gives back what was there, and asks the kernel afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from forebay.linux import devices, namespaces, presence, privileges, programs, records, tcx
from forebay.linux.devices import shown
from forebay.linux.programs import QDISC, KernelError, call
from forebay.linux.records import Attached, RecordProblem


@dataclass(frozen=True)
class Detached:
    """The outcome of `detach`.

    Attributes
    ----------
    device : str
        The device's present name, or the one that it had.
    law : str
        The law that was there; empty without a record of it.
    notes : list of str
        What one should know of it, a line each.
    """

    device: str
    law: str
    notes: list[str]


@records.alone()
def detach(device: str) -> Detached:
    """Take the law from a device, give back what was there, and ask the kernel afterwards.

    The device is the one that the kernel has a law of, whatever its name is now.

    Raises
    ------
    ScenarioError
        If the device has no law.
    KernelError
        If something of the law is still there afterwards; its record stays then.
    """
    privileges.need(privileges.NETWORK, "detach")
    programs.need("tc", "ip")
    attached = presence.find(device)
    if attached is None:
        return _detach_without_record(device)
    if attached.program:
        privileges.need(privileges.LAW, "detach")
    name = presence.name_here(attached)
    notes = []
    if name is not None:
        if name != attached.device:
            notes.append(f"{shown(attached.device)} is called {shown(name)} now")
        notes += remove(attached, name)
    else:
        notes += _remove_elsewhere(attached)
        name = attached.device
    attached.forget()
    return Detached(name, attached.law, notes)


@records.alone()
def detach_stale() -> tuple[list[Attached], list[RecordProblem]]:
    """Remove the records of laws that are gone with their devices, and those that are damaged.

    A law that the kernel still has, on a device that was moved, keeps its record. Returns what was
    removed.

    Raises `ScenarioError`, `KernelError`.
    """
    privileges.need(privileges.NETWORK, "detach")
    attached, problems = records.read()
    stale = [record for record in attached if presence.state(record) == presence.GONE]
    for record in stale:
        _unregister(record)
        record.forget()
    removed = [problem for problem in problems if not problem.later and problem.remove()]
    return stale, removed


def _detach_without_record(device: str) -> Detached:
    """Remove a law whose record is lost or damaged. Raises `ScenarioError` where there is none."""
    ifindex = devices.index(device)
    present = None if ifindex is None else devices.installed(device, ifindex)
    ours = [] if present is None else devices.law_programs(present)
    if ifindex is None or present is None or not (ours or present.shaper):
        raise presence.no_law(device)
    for program in ours:
        _remove_program(device, ifindex, program)
    if present.shaper:
        devices.restore(ifindex, None)
    remainder = devices.installed(device, ifindex)
    if remainder.shaper or devices.law_programs(remainder):
        raise KernelError(f"detach: {shown(device)} still has a law; nothing else was changed")
    for problem in records.read()[1]:
        if problem.file.name == f"{ifindex}@{namespaces.cookie()}.json" and not problem.later:
            problem.remove()
    note = "its record was lost, so that the kernel's default qdisc was given to the device"
    return Detached(device, "", [note] if present.shaper else [])


def remove(attached: Attached, name: str) -> list[str]:
    """Remove what there is of a law on a device of this namespace, and ask the kernel afterwards.

    Returns what one should know. Raises `KernelError` where something is left.
    """
    notes = []
    ifindex = devices.index(name)
    if ifindex is None:
        raise KernelError(f"detach: {shown(name)} has gone meanwhile")
    present = devices.installed(name, ifindex)
    if attached.program and present.has_program(attached.program):
        _remove_program(name, ifindex, attached.program)
    if "clsact" in attached.made and present.has_clsact:
        if devices.filters(name, "ingress") or devices.filters(name, "egress"):
            notes.append(f"clsact of {shown(name)} stays: it has filters of others")
        else:
            call("tc", "qdisc", "del", "dev", name, "clsact")
    if "shaper" in attached.made:
        # Another one is not ours to remove.
        if present.shaper:
            devices.restore(ifindex, attached.before)
        elif attached.before is not None or attached.program:
            notes.append(f"the qdisc of {shown(name)} is no longer Forebay's, and stays as it is")
    _unregister(attached)
    remainder = devices.installed(name, ifindex)
    if remainder.shaper or (attached.program and remainder.has_program(attached.program)):
        raise KernelError(f"detach: {attached.law} is still on {shown(name)}")
    return notes


def _remove_program(name: str, ifindex: int, program: int) -> None:
    present = devices.installed(name, ifindex)
    if program in present.tcx:
        tcx.detach(ifindex, program)
    for law in present.filters:
        if law.program == program:
            devices.delete_filter(name, law)


def _remove_elsewhere(attached: Attached) -> list[str]:
    """Remove a law whose device is no longer where it was. Raises `KernelError`."""
    device = shown(attached.device)
    if presence.state(attached) == presence.GONE:
        _unregister(attached)
        return [f"{device} was gone, and its law with it"]
    for path in namespaces.reachable():
        with suppress(OSError):
            place = namespaces.inside(path, partial(_remove_from_any, attached))
            if place is not None:
                return [f"{device} was moved to another namespace ({path}): {shown(place)} there"]
    raise KernelError(
        f"detach: {device} was moved to a namespace that cannot be found, and still has "
        f"{attached.law}; run `forebay detach` there"
    )


def _remove_from_any(attached: Attached) -> str | None:
    """Remove a law from the device of this namespace that has it; its name, None without one."""
    name = presence.name_with(attached.program)
    if name is not None:
        remove(attached, name)
    return name


def _unregister(attached: Attached) -> None:
    if attached.engine == QDISC:
        _quietly(partial(call, "bpftool", "struct_ops", "unregister", "name", attached.qdisc))


def _quietly(act: Callable[[], object]) -> None:
    with suppress(KernelError):
        act()
