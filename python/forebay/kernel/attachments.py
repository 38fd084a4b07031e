"""Puts a law before a device's queue, changes it while traffic runs, and takes it away."""

from __future__ import annotations

import os
import re
import struct
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import forebay._native as _native
from forebay._native import LawTwin, ScenarioError
from forebay.base import quantities, registries
from forebay.kernel import devices, privileges, programs, records, tcx
from forebay.kernel.devices import CHILD, HANDLE, PREFERENCE, Device
from forebay.kernel.programs import (
    CLASSIFIER,
    FRONTS,
    QDISC,
    KernelError,
    answer,
    call,
    hexadecimal,
)
from forebay.kernel.records import Attached

#: Of a buffer that is not given, as `forebay link` has it.
BUFFER = "250p"
#: A law without a clock is looked at so often, for the statistics.
WATCHED_NS = 10_000_000
#: Bits of a rate in bytes per nanosecond: FB_RATE of fixed.h.
RATE_BITS = 56
#: The shaper sends so much at once, at least two packets.
BURST_S = 0.001
#: The qdiscs, by a function of theirs and the module that may have it.
SHAPER = ("tbf_enqueue", "sch_tbf")
OWN_QDISC = ("bpf_qdisc_init_prologue", "bpf_qdisc")
#: What bpftool says of a qdisc that the kernel knows: the number of a program of it.
ENQUEUES = re.compile(r"\benqueue/prog_id:(\d+)")


@dataclass(frozen=True)
class AttachStep:
    """A step of attaching, as one would type it."""

    words: list[str]
    undo: Callable[[], object] | None = None
    #: What does it, where the program that has these words may be too old.
    do: Callable[[], object] | None = None

    def run(self) -> None:
        if self.do is None:
            call(*self.words)
        else:
            self.do()


@dataclass(frozen=True)
class AttachPlan:
    """What would be attached, and the commands that do it."""

    attached: Attached
    steps: list[AttachStep]
    twin: LawTwin | None
    #: What one should know of it, a line each.
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
    """How a law would be attached; nothing is touched.

    device: name of the network device. law, params: as `forebay laws` and a scenario have them.
    rate: of the shaper that is made, such as "15Mbit/s"; None for the one that is there. buffer: of
    that shaper. design: `flows` and `rtt` that the law is designed for, such as "60" and "246ms".
    front: "classifier", before the shaper, or "qdisc", which shapes itself; None for what the
    kernel offers.

    Raises `ScenarioError`.
    """
    programs.need("tc", "ip")
    found = devices.device(device)
    for one in records.everything():
        if one.namespace == records.namespace() and one.ifindex == found.ifindex:
            raise ScenarioError(
                f'DEV: found "{device}", which has {one.law}, allowed: after `forebay detach '
                f"{device}`; `forebay set {device} KEY=VALUE` changes it"
            )
    made: list[str] = []
    steps: list[AttachStep] = []
    before = None
    if rate is None:
        if buffer is not None:
            raise ScenarioError("--buffer: found without --rate, allowed: with it")
        rate_bps = devices.rate_of(found)
    else:
        rate_bps = round(_native.quantity("--rate", rate, "rate"))
        before = devices.root_before(found)
        made.append("shaper")
    buffer_pkts = _native.quantity("--buffer", buffer or BUFFER, "queue")
    given = dict(params or {})
    notes = []
    if design:
        given, note = _designed(law, found, rate_bps, buffer_pkts, given, design)
        notes.append(note)
    twin = _twin(law, given, rate_bps, buffer_pkts, found.packet_bytes)
    attached = Attached(
        device=device,
        ifindex=found.ifindex,
        namespace=records.namespace(),
        law=law,
        params=given,
        rate_bps=rate_bps,
        buffer_pkts=buffer_pkts,
        packet_bytes=found.packet_bytes,
        ecn=ecn,
        engine=_front(front, law, twin, shapes=bool(made), ecn=ecn),
        made=made,
        before=before,
    )
    if made:
        steps.append(AttachStep(shaper(attached, found), partial(devices.restore, device, before)))
    if twin is None:
        words = _own_qdisc(attached, found)
        if not made:
            raise ScenarioError(
                f"--rate: found none, allowed: such as 15Mbit/s, since Linux's {words.qdisc} has "
                "no queue before a shaper that is there"
            )
        parent = ["parent", f"{HANDLE}1", "handle", CHILD]
        steps.append(
            AttachStep(["tc", "qdisc", "add", "dev", device, *parent, *words.text.split()])
        )
        notes += [f"{key}: {asked}, Linux takes {taken}" for key, asked, taken in words.rounded]
        return AttachPlan(replace(attached, engine=words.qdisc), steps, None, notes)
    if attached.engine == QDISC:
        return AttachPlan(attached, steps, twin, notes)
    program = attached.pinned / "program"
    pinned = ["pinned", str(program)]
    if tcx.offered():
        made.append("tcx")
        steps.append(
            AttachStep(
                ["bpftool", "net", "attach", "tcx_egress", *pinned, "dev", device],
                partial(tcx.detach, found.ifindex, program),
                partial(tcx.attach, found.ifindex, program),
            )
        )
        return AttachPlan(attached, steps, twin, notes)
    if not found.has_clsact:
        made.append("clsact")
        steps.append(
            AttachStep(
                ["tc", "qdisc", "add", "dev", device, "clsact"],
                partial(call, "tc", "qdisc", "del", "dev", device, "clsact"),
            )
        )
    steps.append(
        AttachStep(
            [*_filter("add", device), "handle", "1", "bpf", "direct-action", *pinned],
            partial(call, *_filter("del", device)),
        )
    )
    return AttachPlan(attached, steps, twin, notes)


@records.alone()
def attach(*args: Any, **kwargs: Any) -> AttachPlan:
    """`plan`, done. A failure leaves the device as it was.

    Raises `ScenarioError`, and `KernelError` where the kernel refuses.
    """
    privileges.need(privileges.NETWORK, "attach")
    wanted = plan(*args, **kwargs)
    attached = wanted.attached
    if wanted.twin is not None:
        privileges.need(privileges.LAW, "attach")
        programs.need("bpftool", "clang")
    with ExitStack() as undo:
        undo.callback(records.tidy)
        if wanted.twin is not None:
            records.mount()
        # First, so that `detach` removes what a command leaves that is killed on its way.
        undo.callback(attached.file.unlink, missing_ok=True)
        attached.write()
        if wanted.twin is not None:
            undo.callback(_unload, attached)
            attached.pinned.mkdir()
            _load(attached, wanted.twin)
        for step in wanted.steps:
            step.run()
            if step.undo is not None:
                undo.callback(_quietly, step.undo)
        undo.pop_all()
    return wanted


@records.alone()
def detach(device: str) -> Attached:
    """Takes the law away, and gives back what was there. Raises `ScenarioError`, `KernelError`."""
    privileges.need(privileges.NETWORK, "detach")
    try:
        attached = records.attached_to(device)
    except ScenarioError:
        # Of an `attach` that was killed before it had a record.
        records.tidy()
        raise
    if records.exists(attached):
        if "tcx" in attached.made:
            _quietly(partial(tcx.detach, attached.ifindex, attached.pinned / "program"))
        elif attached.engine == CLASSIFIER:
            _quietly(partial(call, *_filter("del", device)))
        if "clsact" in attached.made and not answer(
            "tc", "-j", "filter", "show", "dev", device, "ingress"
        ):
            call("tc", "qdisc", "del", "dev", device, "clsact")
        root = devices.device(device, up=False).root
        # Another one is no longer ours to remove.
        if "shaper" in attached.made and root.get("handle") == HANDLE:
            devices.restore(device, attached.before)
    _unload(attached)
    attached.file.unlink(missing_ok=True)
    records.tidy()
    return attached


def change(device: str, changes: Mapping[str, str]) -> Attached:
    """Changes parameters of the law, or `rate` of our shaper, while traffic runs.

    Raises `ScenarioError`, `KernelError`.
    """
    privileges.need(privileges.NETWORK, "set")
    attached = records.attached_to(device)
    if not records.exists(attached):
        raise ScenarioError(
            f'DEV: found "{device}", which is gone, allowed: `forebay detach {device}`'
        )
    if attached.engine not in FRONTS:
        raise ScenarioError(
            f"set: found Linux's {attached.engine}, allowed: a law of `forebay list` that is a "
            f"{' or a '.join(FRONTS)}; detach, and attach anew"
        )
    changes = dict(changes)
    rate = changes.pop("rate", None)
    new = replace(attached, params={**attached.params, **changes})
    if rate is not None:
        if "shaper" not in attached.made:
            raise ScenarioError(
                f'rate: found "{rate}", allowed: with a shaper that `forebay attach --rate` made'
            )
        new = replace(new, rate_bps=round(_native.quantity("rate", rate, "rate")))
    twins = [
        _twin(one.law, one.params, one.rate_bps, one.buffer_pkts, one.packet_bytes)
        for one in (attached, new)
    ]
    old, wanted = twins
    assert old is not None and wanted is not None
    started = [
        name for (name, was), (_, now) in zip(old.state, wanted.state, strict=True) if was != now
    ]
    if started and changes:
        raise ScenarioError(
            f"set: found {', '.join(changes)}, from which the law starts ({', '.join(started)}), "
            "allowed: detach, and attach anew"
        )
    privileges.need(privileges.LAW, "set")
    if rate is not None and new.engine == CLASSIFIER:
        words = shaper(new, devices.device(device))
        call(*["change" if word == "replace" else word for word in words])
    maps = attached.pinned / "maps"
    (active,) = answer("bpftool", "-j", "map", "dump", "pinned", str(maps / "active"))
    free = 1 - int(active["formatted"]["value"])
    _update(maps / "settings", free, settings(new, wanted))
    # One word: every packet has the old settings, or the new ones.
    _update(maps / "active", 0, struct.pack("<I", free))
    new.write()
    return new


def burst_bytes(rate_bps: float, packet_bytes: int) -> int:
    """What our shaper sends at once after a rest."""
    return max(2 * packet_bytes, round(BURST_S * rate_bps / 8))


def shaper(attached: Attached, found: Device) -> list[str]:
    """The words of our shaper."""
    words = ["tc", "qdisc", "replace", "dev", found.name, "root", "handle", HANDLE]
    if attached.engine == QDISC:
        return [*words, attached.qdisc]
    burst = burst_bytes(attached.rate_bps, found.packet_bytes)
    limit = round(attached.buffer_pkts * found.packet_bytes)
    rate = f"{attached.rate_bps}bit"
    return [*words, "tbf", "rate", rate, "burst", str(burst), "limit", str(limit)]


def settings(attached: Attached, twin: LawTwin) -> bytes:
    """`struct settings` of front.h."""
    bytes_per_s = attached.rate_bps / 8
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
    return struct.pack(f"<{len(numbers)}q", *numbers)


def _factor(x: float) -> int:
    """A factor of fixed.h, for x of 2^-40 to 2^47."""
    import math

    shift = 47 - math.floor(math.log2(x))
    return round(x * 2.0**shift) | shift << 48


def _front(wanted: str | None, law: str, twin: LawTwin | None, *, shapes: bool, ecn: bool) -> str:
    """Where the law will stand. Raises `ScenarioError` where it cannot."""
    if wanted is not None and wanted not in FRONTS:
        raise ScenarioError(f'--front: found "{wanted}", allowed: {", ".join(FRONTS)}')
    if wanted is not None and twin is None:
        raise ScenarioError(
            f'--front: found "{wanted}" with {law}, allowed: with a law in fixed point'
        )
    if twin is not None:
        programs.need_types()
    if wanted != QDISC and (twin is None or not shapes or programs.offers(*SHAPER)):
        return CLASSIFIER
    if wanted == CLASSIFIER:
        raise ScenarioError(
            "--front: found a kernel without tbf, allowed: one with sch_tbf, or --front qdisc"
        )
    if not programs.offers(*OWN_QDISC):
        without = "neither tbf nor " if wanted is None else "no "
        raise ScenarioError(
            f"--front: found Linux {os.uname().release} with {without}qdiscs of BPF, allowed: 6.16 "
            "and later with CONFIG_NET_SCH_BPF, or sch_tbf and --front classifier"
        )
    if not shapes:
        raise ScenarioError("--rate: found none, allowed: such as 15Mbit/s, since a qdisc shapes")
    if ecn:
        raise ScenarioError(
            "--ecn: found with a qdisc, allowed: with --front classifier, since the kernel lets no "
            "qdisc of BPF mark"
        )
    return QDISC


def _twin(
    law: str, params: Mapping[str, Any], rate_bps: int, buffer_pkts: float, packet_bytes: int
) -> LawTwin | None:
    registries.law(law)
    pairs = [(key, quantities.plain(value)) for key, value in params.items()]
    return _native.law_twin(
        law, pairs, rate_bps=rate_bps, buffer_pkts=buffer_pkts, packet_bytes=packet_bytes
    )


def _own_qdisc(attached: Attached, found: Device) -> _native.TcWords:
    """The kernel's own qdisc for the law. Raises `ScenarioError` where there is none."""
    pairs = [(key, quantities.plain(value)) for key, value in attached.params.items()]
    words = _native.tc_words(
        attached.law,
        pairs,
        queue=None,
        rate_bps=attached.rate_bps,
        buffer_pkts=round(attached.buffer_pkts),
        buffer_bytes=None,
        packet_bytes=found.packet_bytes - found.header_bytes,
        ecn=attached.ecn,
        header_bytes=found.header_bytes,
        held=True,
    )
    if words is None:
        known = [
            one["name"] for one in registries.laws().values() if programs.has_header(one["name"])
        ]
        raise ScenarioError(
            f'LAW: found "{attached.law}", allowed: {", ".join(sorted(known))}, or one that is a '
            "qdisc of Linux"
        )
    return words


def _designed(
    law: str,
    found: Device,
    rate_bps: int,
    buffer_pkts: float,
    given: Mapping[str, Any],
    design: Mapping[str, str],
) -> tuple[dict[str, Any], str]:
    """Parameters by the law's rule, and a line on them."""
    from forebay.theory.design import fitted_gains  # loads scipy

    unknown = sorted(set(design) - {"flows", "rtt"})
    if unknown or "rtt" not in design:
        what = unknown[0] if unknown else "no rtt"
        raise ScenarioError(
            f"--design: found {what}, allowed: flows=N,rtt=TIME, each also LOW..HIGH"
        )
    rtts = [
        _native.quantity("--design", it, "time")
        for it in quantities.range_ends("rtt", design["rtt"])
    ]
    flows = None
    if "flows" in design:
        least, most = quantities.range_ends("flows", design["flows"])
        flows = (float(least), float(most))
    place = fitted_gains.OperatingRange(
        rate_bps, found.packet_bytes, (rtts[0], rtts[1]), buffer_pkts, flows
    )
    fitted = fitted_gains.fit(law, place, given)
    return {**dict(fitted.params), **given}, fitted.line


def _filter(verb: str, device: str) -> list[str]:
    return ["tc", "filter", verb, "dev", device, "egress", "protocol", "all", "pref", PREFERENCE]


def _load(attached: Attached, twin: LawTwin) -> None:
    """The program and its maps, with the law's numbers, pinned."""
    maps = attached.pinned / "maps"
    with tempfile.TemporaryDirectory(prefix="forebay-") as folder:
        built = programs.compile_law(attached.law, Path(folder), attached.engine, attached.qdisc)
        if attached.engine == QDISC:
            _register(attached, built, maps)
        else:
            program = str(attached.pinned / "program")
            words = ["bpftool", "prog", "load", str(built), program, "type", "tc"]
            call(*words, "pinmaps", str(maps))
    _update(maps / "settings", 0, settings(attached, twin))
    (empty,) = answer("bpftool", "-j", "map", "dump", "pinned", str(maps / "running"))
    fields = list(empty["formatted"]["value"]["law"])
    start = dict(twin.state)
    raw = bytes(int(byte, 16) for byte in empty["value"])
    values = [start.get(name, 0) for name in fields]
    law = struct.pack(f"<{len(values)}q", *values)
    # The law's state is the last field.
    _update(maps / "running", 0, raw[: len(raw) - len(law)] + law)


def _register(attached: Attached, built: Path, maps: Path) -> None:
    """A qdisc of ours, which the kernel then knows by its name."""
    call("bpftool", "struct_ops", "register", str(built))
    # Not every bpftool gives valid JSON here.
    enqueue = ENQUEUES.search(call("bpftool", "-j", "struct_ops", "dump", "name", attached.qdisc))
    if enqueue is None:
        raise KernelError("bpftool struct_ops dump: names no program")
    program = answer("bpftool", "-j", "prog", "show", "id", enqueue[1])
    maps.mkdir()
    for one in program["map_ids"]:
        named = answer("bpftool", "-j", "map", "show", "id", str(one))["name"]
        call("bpftool", "map", "pin", "id", str(one), str(maps / named))


def _update(path: Path, key: int, value: bytes) -> None:
    call(
        *("bpftool", "map", "update", "pinned", str(path)),
        *("key", *hexadecimal(struct.pack("<I", key))),
        *("value", *hexadecimal(value)),
    )


def _unload(attached: Attached) -> None:
    """Removes what is pinned for a device, and the folder."""
    folder = attached.pinned
    if attached.engine == QDISC:
        _quietly(partial(call, "bpftool", "struct_ops", "unregister", "name", attached.qdisc))
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with suppress(FileNotFoundError):
        folder.rmdir()


def _quietly(act: Callable[[], object]) -> None:
    with suppress(KernelError):
        act()
