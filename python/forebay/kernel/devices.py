"""A network device as `ip` and `tc` see it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import forebay._native as _native
from forebay._native import ScenarioError
from forebay.kernel.programs import KernelError, answer, call

#: Ours, so that nobody else's is taken for it.
HANDLE = "f0ba:"
CHILD = "f0bb:"
#: Of our classifier among those at egress: after others, and before the qdisc.
PREFERENCE = "61626"
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
    def is_default(self) -> bool:
        """Whether the root is the one that the kernel gives every device."""
        return bool(self.root.get("handle", "0:") == "0:")


def device(name: str, *, up: bool = True) -> Device:
    """Raises `ScenarioError` for one that is missing, or down."""
    try:
        (link,) = answer("ip", "-j", "link", "show", "dev", name)
    except KernelError:
        known = ", ".join(sorted(one["ifname"] for one in answer("ip", "-j", "link", "show")))
        raise ScenarioError(f'DEV: found "{name}", allowed: a device here: {known}') from None
    if up and "UP" not in link["flags"]:
        raise ScenarioError(f'DEV: found "{name}", which is down, allowed: `ip link set {name} up`')
    qdiscs = answer("tc", "-j", "qdisc", "show", "dev", name)
    roots = [one for one in qdiscs if one.get("root")]
    header = HEADERS.get(link["link_type"], 0)
    return Device(
        name=name,
        ifindex=link["ifindex"],
        packet_bytes=link["mtu"] + header,
        header_bytes=header,
        root=roots[0] if roots else {"kind": "noqueue", "handle": "0:"},
        has_clsact=any(one["kind"] == "clsact" for one in qdiscs),
    )


#: Root qdiscs that words give back whole, with an option that says so.
RESTORED = {"tbf": "lat", "pfifo": "limit", "bfifo": "limit"}
#: tc counts a burst in units of time, and rounds it down each time.
BURST_ROUNDS_BY = 16


def root_before(found: Device) -> dict[str, Any] | None:
    """The root qdisc, to be given back; None for the default. Raises `ScenarioError` for one that
    has more to it than words."""
    if found.is_default:
        return None
    kind, options = found.root["kind"], found.root.get("options", {})
    if RESTORED.get(kind) in options:
        return {"kind": kind, "handle": found.root["handle"], "options": options}
    raise ScenarioError(
        f'DEV: found "{found.name}" with a qdisc {kind}, allowed with --rate: the default, '
        f"{', '.join(RESTORED)}, which can be restored; `tc qdisc del dev {found.name} root` gives "
        "the default back"
    )


def restore(name: str, before: dict[str, Any] | None) -> None:
    """Gives a device the root qdisc back that it had. Raises `KernelError`."""
    if before is None:
        call("tc", "qdisc", "del", "dev", name, "root")
        return
    kind, options = before["kind"], before["options"]
    root = ["tc", "qdisc", "replace", "dev", name, "root", "handle", before["handle"], kind]
    if kind != "tbf":
        call(*root, "limit", str(options["limit"]))
        return
    for more in range(BURST_ROUNDS_BY):
        burst = str(options["burst"] + more)
        latency = f"{max(1, options['lat'])}us"
        call(*root, "rate", f"{8 * options['rate']}bit", "burst", burst, "latency", latency)
        if device(name, up=False).root["options"]["burst"] == options["burst"]:
            return


def rate_of(found: Device) -> int:
    """The rate of the shaper that is there, in bit/s. Raises `ScenarioError`."""
    kind = found.root["kind"]
    if kind == "tbf":
        return 8 * int(found.root["options"]["rate"])
    if kind in SHAPERS:
        # Text: not every tc has its classes as JSON.
        lines = call("tc", "class", "show", "dev", found.name).splitlines()
        rates = re.findall(r"^class \S+ \S+ root .*\bceil (\S+)", "\n".join(lines), re.MULTILINE)
        if len(rates) == 1:
            return round(_native.quantity("--rate", f"{rates[0]}/s", "rate"))
    raise ScenarioError(
        f"--rate: found none, and {found.name} has a qdisc {kind}, allowed: such as 15Mbit/s, a "
        f"little less than the link's own, or without it a shaper there, {' or '.join(SHAPERS)}"
    )
