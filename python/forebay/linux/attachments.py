"""Attach a law in front of a device's queue, change it while traffic runs, and detach it.

Detaching restores what was there, and asks the kernel afterwards.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import forebay._native as _native
from forebay._base import quantities, registries
from forebay._base.words import one_of
from forebay._native import LawTwin, ScenarioError
from forebay.experiment import automatic_gains
from forebay.linux import device_qdiscs, devices, namespaces, programs, records, tcx
from forebay.linux.devices import CHILD, FILTER_HANDLE, HANDLE, Device, quoted, shown
from forebay.linux.programs import CLASSIFIER, FRONTS, QDISC, KernelError, answer, call, hexadecimal
from forebay.linux.records import Attached, RecordProblem
from forebay.scenario import router

#: The size of a buffer for which no size is given, as in `forebay link`.
BUFFER = "250p"
#: Time between two looks at a law without a clock, for the statistics.
WATCHED_NS = 10_000_000
#: Bits of a rate in bytes per nanosecond: FB_RATE of fixed.h.
RATE_BITS = 56
#: The shaper's burst as a time at its rate; a burst has at least two packets.
BURST_S = 0.001
#: Each qdisc by one of its functions, and the module that may have this function.
SHAPER = ("tbf_enqueue", "sch_tbf")
OWN_QDISC = ("bpf_qdisc_init_prologue", "bpf_qdisc")
#: What bpftool prints about a qdisc that the kernel knows: the number of one of its programs.
ENQUEUES = re.compile(r"\benqueue/prog_id:(\d+)")


@dataclass(frozen=True)
class AttachStep:
    """A step of attaching, as one would type it.

    Attributes
    ----------
    words : list of str
        The command.
    act : callable, optional
        The function that does the step, where it is not the command itself. Its argument is the
        file descriptor of a BPF file system in which the law's program is pinned, or -1.
    """

    words: list[str]
    act: Callable[[int], object] | None = None

    def run(self, file_system: int) -> None:
        """Do the step. Raises `KernelError`."""
        if self.act is None:
            call(*self.words)
        else:
            self.act(file_system)


@dataclass(frozen=True)
class AttachPlan:
    """A law to attach, and the commands that do it."""

    attached: Attached
    steps: list[AttachStep]
    twin: LawTwin | None
    #: Notes to the user, a line each.
    notes: list[str]


def plan(
    device: str,
    law: str,
    params: Mapping[str, Any] | None = None,
    *,
    rate: str | None = None,
    buffer: str | None = None,
    ecn: bool = False,
    design: Mapping[str, str] | None = None,
    front: str | None = None,
) -> AttachPlan:
    """Return how a law would be attached; nothing is changed.

    Parameters
    ----------
    device : str
        Name of the network device.
    law, params
        As `forebay laws` and a scenario have them.
    rate : str, optional
        Rate of IP packets of the shaper that is made, such as "15Mbit/s". By default the law is
        installed in front of the existing shaper.
    buffer : str, optional
        Buffer of that shaper.
    ecn : bool
        Mark packets that can be marked.
    design : dict, optional
        `flows`, `rtt` and `tcp` that the law is designed for, such as "60", "246ms" and "cubic".
    front : str, optional
        "classifier", before the shaper, or "qdisc", which shapes itself. By default what the
        kernel offers.

    Raises
    ------
    ScenarioError
        If the law cannot be attached so.
    """
    programs.need("tc", "ip")
    target = devices.device(device)
    _refuse_second(target)
    attached = _site(target, law, rate, buffer, ecn=ecn)
    parameters = dict(params or {})
    notes = []
    if design:
        parameters, note = _designed(attached, target, parameters, design)
        notes.append(note)
    attached = replace(attached, params=parameters)
    twin = _twin(attached)
    attached = replace(attached, engine=_front(front, law, twin, shapes=rate is not None, ecn=ecn))
    if twin is None:
        return _plan_own_qdisc(attached, target, notes)
    notes += _rate_notes(attached)
    return _plan_law(attached, target, twin, notes)


def _site(target: Device, law: str, rate: str | None, buffer: str | None, *, ecn: bool) -> Attached:
    """Return the record of a law, without its parameters. Raises `ScenarioError`."""
    if rate is None:
        if buffer is not None:
            raise ScenarioError("--buffer requires --rate")
        rate_bps, before = devices.rate_of(target), None
    else:
        rate_bps = round(_native.quantity("--rate", rate, "rate"))
        before = devices.qdiscs_before(target)
    return Attached(
        device=target.name,
        ifindex=target.ifindex,
        namespace=namespaces.cookie(),
        law=law,
        params={},
        rate_bps=rate_bps,
        buffer_pkts=_native.quantity("--buffer", buffer or BUFFER, "queue"),
        packet_bytes=target.packet_bytes,
        header_bytes=target.header_bytes,
        ecn=ecn,
        engine=CLASSIFIER,
        made=[] if rate is None else ["shaper"],
        before=before,
        boot=records.boot(),
    )


def _refuse_second(target: Device) -> None:
    """Raise `ScenarioError` where the device has a law."""
    name = shown(target.name)
    present = devices.installed(target.name, target.ifindex)
    for record in records.read()[0]:
        if devices.is_of(record, target.ifindex, present) and devices.is_there(record, present):
            raise ScenarioError(
                f"DEV: {name} already has {record.law}; remove it with `forebay detach "
                f"{quoted(target.name)}`, or change it with `forebay kernel change "
                f"{quoted(target.name)} KEY=VALUE`"
            )
    if present.shaper or devices.law_programs(present):
        raise ScenarioError(
            f"DEV: {name} has a law of Forebay without a record that can be read; "
            f"`forebay detach {quoted(target.name)}` removes it"
        )


def _plan_own_qdisc(attached: Attached, target: Device, notes: list[str]) -> AttachPlan:
    """Plan the kernel's own qdisc for a law."""
    name = quoted(target.name)
    shapes = registries.parameter(attached.law, router.OWN_RATE) is not None
    words = _own_qdisc(attached, target, shapes=shapes)
    if not attached.made:
        raise ScenarioError(
            f"--rate: missing; expected a rate such as 15Mbit/s, since Linux's {words.qdisc} has "
            f"no queue before the shaper of {name}"
        )
    attached = replace(attached, engine=words.qdisc)
    notes += [
        f"{key}: {value}, Linux takes {linux_value}" for key, value, linux_value in words.rounded
    ]
    root = ["tc", "qdisc", "replace", "dev", target.name, "root", "handle", HANDLE]
    if shapes:
        return AttachPlan(attached, [AttachStep([*root, *words.text.split()])], None, notes)
    notes += _rate_notes(attached)
    parent = ["parent", f"{HANDLE}1", "handle", CHILD]
    child = ["tc", "qdisc", "add", "dev", target.name, *parent, *words.text.split()]
    return AttachPlan(
        attached, [AttachStep(shaper(attached, target)), AttachStep(child)], None, notes
    )


def _plan_law(attached: Attached, target: Device, twin: LawTwin, notes: list[str]) -> AttachPlan:
    """Plan a law in fixed point."""
    steps = []
    if "shaper" in attached.made:
        steps.append(AttachStep(shaper(attached, target)))
    if attached.engine == QDISC:
        return AttachPlan(attached, steps, twin, notes)
    if tcx.offered():
        attached = replace(attached, made=[*attached.made, "tcx"])
        words = ["bpftool", "net", "attach", "tcx_egress", "name", programs.PROGRAM_NAME]

        def attach_tcx(file_system: int) -> None:
            with tcx.opened(_pin(file_system)) as program:
                tcx.attach(target.ifindex, program)

        steps.append(AttachStep([*words, "dev", target.name], attach_tcx))
        other_programs = tcx.attached(target.ifindex)
        if other_programs:
            notes.append(
                f"the law runs before the {len(other_programs)} BPF program"
                f"{'s' if len(other_programs) > 1 else ''} at the egress of {shown(target.name)}: "
                "it also counts packets that they take away"
            )
        return AttachPlan(attached, steps, twin, notes)
    preference = devices.PREFERENCE
    if target.has_clsact:
        preference = devices.first_preference(target.name)
    else:
        attached = replace(attached, made=[*attached.made, "clsact"])
        steps.append(AttachStep(["tc", "qdisc", "add", "dev", target.name, "clsact"]))
    attached = replace(attached, made=[*attached.made, "filter"])
    words = devices.filter_words("add", target.name, preference)
    words += ["handle", FILTER_HANDLE, "bpf", "direct-action", "pinned"]

    def attach_filter(file_system: int) -> None:
        call(*words, str(_pin(file_system)), files=[file_system])

    steps.append(AttachStep([*words, "PROGRAM"], attach_filter))
    return AttachPlan(attached, steps, twin, notes)


def _rate_notes(attached: Attached) -> list[str]:
    """Return a note on the shaper's rate if it differs from that of IP packets by their headers."""
    counted_bps = shaper_bps(attached)
    if "shaper" not in attached.made or counted_bps == attached.rate_bps:
        return []
    packet = attached.packet_bytes - attached.header_bytes
    kind = "tbf" if attached.engine != QDISC else "qdisc"
    return [
        f"{kind} rate {counted_bps}bit carries {quantities.rate(attached.rate_bps)} of IP packets: "
        f"it counts {attached.packet_bytes} bytes for each {packet}-byte packet"
    ]


@records.alone()
def attach(*args: Any, **kwargs: Any) -> AttachPlan:
    """Do what `plan` returns. A failure leaves the device as it was.

    The law is held by the device alone: no process, pin or mount keeps it. Afterwards the kernel is
    asked whether it is there.

    Raises `ScenarioError`, and `KernelError` where the kernel refuses.
    """
    programs.need_capabilities(programs.NETWORK, "attach")
    planned = plan(*args, **kwargs)
    attached = planned.attached
    if planned.twin is not None:
        programs.need_capabilities(programs.LAW, "attach")
        programs.need("bpftool", "clang")
    with ExitStack() as undo:
        # `detach` needs the record where something cannot be undone, and where this is killed.
        undo.callback(lambda: _undo(attached))
        attached.write()
        with ExitStack() as loading:
            file_system = -1
            if planned.twin is not None:
                file_system = loading.enter_context(tcx.file_system())
                attached = _load(attached, planned.twin, file_system)
                # The record has the identifiers of program and maps before the device uses them.
                attached.write()
            for step in planned.steps:
                step.run(file_system)
        _verify(attached)
        undo.pop_all()
    return replace(planned, attached=attached)


def _undo(attached: Attached) -> None:
    with suppress(KernelError):
        remove(attached, attached.device)
        attached.forget()


def _verify(attached: Attached) -> None:
    """Raise `KernelError` where the kernel does not have what was attached.

    This process holds nothing of it any more, and the programs that are asked never did.
    """
    present = devices.installed(attached.device, attached.ifindex)
    if not devices.is_there(attached, present):
        raise KernelError(f"attach: the kernel did not keep {attached.law} on {attached.device}")
    if attached.engine in FRONTS:
        _active(attached)


@records.alone()
def change(device: str, changes: Mapping[str, str]) -> Attached:
    """Change parameters of a law, or the rate of Forebay's shaper, while traffic passes.

    Parameters
    ----------
    device : str
        Name of the device.
    changes : dict of str to str
        New values of parameters; "rate" is that of the shaper.

    Raises
    ------
    ScenarioError
        If the device has no law, or a value is wrong.
    KernelError
        If the kernel refuses the change.
    """
    programs.need_capabilities(programs.NETWORK, "kernel change")
    attached = devices.attached_to(device)
    name = devices.name_here(attached) or device
    ifindex = devices.index(name)
    if ifindex is None or not devices.is_there(attached, devices.installed(name, ifindex)):
        raise ScenarioError(
            f'DEV: "{shown(device)}": its law is gone; remove the record with `forebay detach '
            f"{quoted(device)}`"
        )
    if attached.engine not in FRONTS:
        raise ScenarioError(
            f"kernel change: Linux's {attached.engine} cannot be changed while it runs; detach the "
            "law and attach it again"
        )
    new, new_twin = _changed(attached, changes)
    programs.need_capabilities(programs.LAW, "kernel change")
    if "rate" in changes and new.engine == CLASSIFIER:
        words = shaper(new, devices.device(name))
        call(*["change" if word == "replace" else word for word in words])
    free = 1 - _active(attached)
    _update(attached.maps["settings"], free, settings(new, new_twin))
    # One word: every packet has the old settings, or the new ones.
    _update(attached.maps["active"], 0, struct.pack("=I", free))
    new.write()
    return new


def _changed(attached: Attached, changes: Mapping[str, str]) -> tuple[Attached, LawTwin]:
    """Return a law with changed parameters or rate, and its twin.

    Raises `ScenarioError` for what cannot be changed while the law runs.
    """
    params = {name: value for name, value in changes.items() if name != "rate"}
    new = replace(attached, params={**attached.params, **params})
    if (rate := changes.get("rate")) is not None:
        if "shaper" not in attached.made:
            raise ScenarioError(
                f'rate: "{rate}": no shaper of forebay is here; a rate can be changed only after '
                "`forebay attach --rate`"
            )
        new = replace(new, rate_bps=round(_native.quantity("rate", rate, "rate")))
    old_twin, new_twin = _twin(attached), _twin(new)
    assert old_twin is not None and new_twin is not None
    started = [
        name
        for (name, was), (_, now) in zip(old_twin.state, new_twin.state, strict=True)
        if was != now
    ]
    if started and params:
        raise ScenarioError(
            f"kernel change: {', '.join(params)} gives the law its first state "
            f"({', '.join(started)}) and cannot be changed while it runs; detach the law and "
            "attach it again"
        )
    return new, new_twin


def _active(attached: Attached) -> int:
    """Return the index of the law's active settings, 0 or 1. Raises `KernelError`."""
    (active,) = answer("bpftool", "-j", "map", "dump", "id", str(attached.maps["active"]))
    return int(active["formatted"]["value"])


def burst_bytes(rate_bps: float, packet_bytes: int) -> int:
    """Return the burst of Forebay's shaper: the bytes that it sends at once after idling.

    Parameters
    ----------
    rate_bps : float
        Rate of the shaper.
    packet_bytes : int
        Size of a packet.
    """
    return max(2 * packet_bytes, round(BURST_S * rate_bps / 8))


def shaper(attached: Attached, target: Device) -> list[str]:
    """Return the arguments of tc that install Forebay's shaper.

    Parameters
    ----------
    attached : Attached
        The law.
    target : Device
        The device.
    """
    words = ["tc", "qdisc", "replace", "dev", target.name, "root", "handle", HANDLE]
    if attached.engine == QDISC:
        return [*words, attached.qdisc]
    rate_bps = shaper_bps(attached)
    burst = burst_bytes(rate_bps, target.packet_bytes)
    limit = round(attached.buffer_pkts * target.packet_bytes)
    rate = f"{rate_bps}bit"
    return [*words, "tbf", "rate", rate, "burst", str(burst), "limit", str(limit)]


def settings(attached: Attached, twin: LawTwin) -> bytes:
    """Return the law's settings as `struct settings` of front.h.

    Parameters
    ----------
    attached : Attached
        The law.
    twin : LawTwin
        Its fixed-point twin.
    """
    bytes_per_s = shaper_bps(attached) / 8
    per_byte_ns = 1e9 / bytes_per_s
    numbers = [
        twin.interval_ns or WATCHED_NS,
        int(attached.ecn),
        attached.ifindex,
        round(bytes_per_s * 1e-9 * 2**RATE_BITS),
        attached.packet_bytes,
        _factor(per_byte_ns),
        round(attached.buffer_pkts * attached.packet_bytes),
        *(value for _, value in twin.config),
    ]
    return struct.pack(f"={len(numbers)}q", *numbers)


def shaper_bps(attached: Attached) -> int:
    """Return the rate at which the shaper counts, with the header of each packet."""
    packet_bytes = attached.packet_bytes - attached.header_bytes
    return router.shaper_bps(attached.rate_bps, packet_bytes, attached.header_bytes)


def _factor(x: float) -> int:
    """Return a factor of fixed.h, for x of 2^-40 to 2^47."""
    shift = 47 - math.floor(math.log2(x))
    return round(x * 2.0**shift) | shift << 48


def _front(front: str | None, law: str, twin: LawTwin | None, *, shapes: bool, ecn: bool) -> str:
    """Return where the law is installed. Raises `ScenarioError` where it cannot be."""
    if front is not None and front not in FRONTS:
        raise ScenarioError(f'--front: "{front}" is not valid; expected {one_of(FRONTS, front)}')
    if front is not None and twin is None:
        raise ScenarioError(
            f'--front: "{front}": {law} has no fixed-point form; expected a law with one'
        )
    if twin is not None:
        programs.need_types()
    if front != QDISC and (twin is None or not shapes or programs.offers(*SHAPER)):
        return CLASSIFIER
    if front == CLASSIFIER:
        raise ScenarioError(
            "--front: this kernel has no tbf; expected one with sch_tbf, or --front qdisc"
        )
    if not programs.offers(*OWN_QDISC):
        without = "neither tbf nor " if front is None else "no "
        raise ScenarioError(
            f"--front: Linux {os.uname().release} has {without}qdiscs of BPF; expected 6.16 or "
            "later with CONFIG_NET_SCH_BPF, or sch_tbf and --front classifier"
        )
    if not shapes:
        raise ScenarioError(
            "--rate: missing; expected a rate such as 15Mbit/s, since a qdisc shapes"
        )
    if ecn:
        raise ScenarioError("--ecn: a qdisc of BPF cannot mark packets; use --front classifier")
    return QDISC


def _twin(attached: Attached) -> LawTwin | None:
    """Return a law in fixed point; None where only Linux may have the law."""
    registries.law(attached.law)
    if not programs.has_header(attached.law):
        return None
    pairs = [(key, quantities.plain(value)) for key, value in attached.params.items()]
    return _native.law_twin(
        attached.law,
        pairs,
        rate_bps=shaper_bps(attached),
        buffer_pkts=attached.buffer_pkts,
        packet_bytes=attached.packet_bytes,
    )


def _own_qdisc(attached: Attached, target: Device, *, shapes: bool) -> _native.TcWords:
    """Return the kernel's own qdisc for a law. Raises `ScenarioError` where there is none."""
    pairs = [(key, quantities.plain(value)) for key, value in attached.params.items()]
    if shapes:
        if router.OWN_RATE in attached.params:
            raise ScenarioError(f"{attached.law}: {router.OWN_RATE}: give the rate by --rate alone")
        pairs.append((router.OWN_RATE, f"{attached.rate_bps}bit/s"))
    words = _native.tc_words(
        attached.law,
        pairs,
        queue=None,
        rate_bps=attached.rate_bps,
        buffer_pkts=round(attached.buffer_pkts),
        buffer_bytes=None,
        packet_bytes=target.ip_bytes,
        ecn=attached.ecn,
        header_bytes=target.header_bytes,
        held=not shapes,
    )
    if words is None:
        laws = ", ".join(sorted(filter(programs.has_header, registries.laws())))
        raise ScenarioError(
            f'LAW: "{attached.law}" is not valid; expected {laws}, or a qdisc of Linux'
        )
    return words


def _designed(
    attached: Attached, target: Device, parameters: Mapping[str, Any], design: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """Return parameters by the law's design rule, and a sentence on them."""
    from forebay.control.link import PLAIN  # loads numpy
    from forebay.control.senders import SENDERS

    unknown = sorted(set(design) - {"flows", "rtt", "tcp"})
    if unknown or "rtt" not in design:
        fault = f'"{unknown[0]}" is not a key' if unknown else "rtt is missing"
        raise ScenarioError(
            f"--design: {fault}; expected flows=N,rtt=TIME, each also LOW..HIGH, and tcp=NAME"
        )
    tcp = design.get("tcp", PLAIN)
    if tcp not in SENDERS:
        raise ScenarioError(
            f'--design: "{tcp}" is not a sender that a law is designed for; tcp is one of '
            f"{', '.join(SENDERS)}"
        )
    ends = quantities.range_ends("rtt", design["rtt"])
    shortest_s, longest_s = (_native.quantity("--design", end, "time") for end in ends)
    flows = None
    if "flows" in design:
        few, many = quantities.range_ends("flows", design["flows"])
        flows = (float(few), float(many))
    place = {
        "rate_bps": attached.rate_bps,
        "packet_bytes": target.ip_bytes,
        "rtt_s": (shortest_s, longest_s),
        "room_pkts": attached.buffer_pkts,
        "flows": flows,
        "tcp": tcp,
    }
    fitted = automatic_gains.fitted((attached.law, place, parameters))
    line = fitted.line
    if tcp != PLAIN and fitted.design is not None and f" of {tcp}" not in line:
        line += f" (for Reno: its rule gives no gains for {tcp})"
    return {**dict(fitted.params), **parameters}, line


def _pin(file_system: int) -> Path:
    """Return where the law's program is while it is attached."""
    return Path(f"/proc/self/fd/{file_system}/program")


def _load(attached: Attached, twin: LawTwin, file_system: int) -> Attached:
    """Load the law's program and maps, and return the record with their identifiers.

    Only the BPF file system of this command refers to them, so they vanish with the command unless
    the device takes the program.
    """
    built = programs.compile_law(attached.law, attached.engine, attached.qdisc)
    with programs.in_memory(built) as (file, path):
        if attached.engine == QDISC:
            program = _register(attached, path, file)
        else:
            pin = str(_pin(file_system))
            words = ["bpftool", "prog", "load", path, pin, "type", "tc"]
            call(*words, files=[file, file_system])
            shown_words = ["bpftool", "-j", "prog", "show", "pinned", pin]
            program = json.loads(call(*shown_words, files=[file_system]))
    maps = {}
    for identifier in program["map_ids"]:
        named = answer("bpftool", "-j", "map", "show", "id", str(identifier))
        maps[named["name"]] = identifier
    attached = replace(attached, program=program["id"], maps=maps)
    _update(maps["settings"], 0, settings(attached, twin))
    (empty,) = answer("bpftool", "-j", "map", "dump", "id", str(maps["running"]))
    names = list(empty["formatted"]["value"]["law"])
    start = dict(twin.state)
    raw = bytes(int(byte, 16) for byte in empty["value"])
    values = [start.get(name, 0) for name in names]
    law = struct.pack(f"={len(values)}q", *values)
    # The law's state is the last field.
    _update(maps["running"], 0, raw[: len(raw) - len(law)] + law)
    return attached


def _register(attached: Attached, path: str, file: int) -> Any:
    """Register a qdisc of ours, which the kernel then knows by its name; return its program."""
    call("bpftool", "struct_ops", "register", path, files=[file])
    # Not every bpftool gives valid JSON here.
    enqueue = ENQUEUES.search(call("bpftool", "-j", "struct_ops", "dump", "name", attached.qdisc))
    if enqueue is None:
        raise KernelError("bpftool struct_ops dump: names no program")
    return answer("bpftool", "-j", "prog", "show", "id", enqueue[1])


def _update(identifier: int, key: int, value: bytes) -> None:
    call(
        *("bpftool", "map", "update", "id", str(identifier)),
        *("key", *hexadecimal(struct.pack("=I", key))),
        *("value", *hexadecimal(value)),
    )


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
        Notes to the user, a line each.
    """

    device: str
    law: str
    notes: list[str]


@records.alone()
def detach(device: str) -> Detached:
    """Remove the law from a device, restore its former qdiscs, and ask the kernel afterwards.

    The device is the one on which the kernel has a law, whatever its name is now.

    Raises
    ------
    ScenarioError
        If the device has no law.
    KernelError
        If something of the law is still there afterwards; its record stays then.
    """
    programs.need_capabilities(programs.NETWORK, "detach")
    programs.need("tc", "ip")
    attached = devices.find_attached(device)
    if attached is None:
        return _detach_without_record(device)
    if attached.program:
        programs.need_capabilities(programs.LAW, "detach")
    name = devices.name_here(attached)
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
    programs.need_capabilities(programs.NETWORK, "detach")
    attached, problems = records.read()
    stale = [record for record in attached if devices.state_of(record) == devices.GONE]
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
        raise devices.no_law(device)
    for program in ours:
        _remove_program(device, ifindex, program)
    if present.shaper:
        device_qdiscs.restore(ifindex, None)
    remainder = devices.installed(device, ifindex)
    if remainder.shaper or devices.law_programs(remainder):
        raise KernelError(f"detach: {shown(device)} still has a law; nothing else was changed")
    for problem in records.read()[1]:
        if problem.file.name == f"{ifindex}@{namespaces.cookie()}.json" and not problem.later:
            problem.remove()
    note = "its record was lost, so the kernel's default qdisc was given to the device"
    return Detached(device, "", [note] if present.shaper else [])


def remove(attached: Attached, name: str) -> list[str]:
    """Remove a law from a device of this namespace, and verify that it is gone.

    Parameters
    ----------
    attached : Attached
        The record of the law.
    name : str
        Present name of the device.

    Returns
    -------
    list of str
        Notes to the user.

    Raises
    ------
    KernelError
        If a part of the law is left.
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
            device_qdiscs.restore(ifindex, attached.before)
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
    if devices.state_of(attached) == devices.GONE:
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
    """Remove a law from its device in this namespace.

    Return the name of the device; None if no device of the namespace has the law.
    """
    name = devices.name_with(attached.program)
    if name is not None:
        remove(attached, name)
    return name


def _unregister(attached: Attached) -> None:
    if attached.engine == QDISC:
        with suppress(KernelError):
            call("bpftool", "struct_ops", "unregister", "name", attached.qdisc)
