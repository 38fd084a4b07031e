"""Checks of what this machine supports, and of whether a device's queue is a bottleneck."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import forebay._native as _native
from forebay._base import words
from forebay._base.errors import ParameterError
from forebay.linux import link_outcome
from forebay.linux.link_outcome import Outcome
from forebay.linux.link_process import LinkError, run
from forebay.linux.link_settings import need, settings

#: Longest time for a link to come up and end.
PATIENCE_S = 20.0
USER_NAMESPACE = Path("/proc/self/ns/user")
#: Time between two looks at a queue, and time of all looks.
LOOK_EVERY_S, LOOK_S = 0.005, 2.0
#: Sends 1000 datagrams a second for a second.
BLAST = """
import socket, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(1000):
    out.sendto(bytes(972), ("198.18.0.2", 9000))
    time.sleep(0.001)
"""
#: Asks for a real-time priority.
PRIORITY = (
    "import os; os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, "
    "os.sched_param(10))"
)


@dataclass(frozen=True)
class Capability:
    """The result of a check.

    Attributes
    ----------
    name : str
        The capability.
    verdict : str
        "yes", "no" or "partly".
    found : str
        The observation.
    advice : str
        What to do; empty if nothing.
    """

    name: str
    verdict: str
    found: str
    advice: str = ""


def findings() -> Iterator[Capability]:
    """Yield the result of each check. Raises `ScenarioError` on other systems than Linux."""
    need()
    tun = _attempt("A link over TUN", lambda name: _device(name, "tun"))
    packets = _attempt("A link over packet sockets", lambda name: _device(name, "packets"))
    yield tun
    yield packets
    yield _attempt("Network namespaces", lambda name: _namespaces(name, [tun, packets]))
    if "yes" in (tun.verdict, packets.verdict):
        yield _attempt("IPv6", _ipv6)
        yield _attempt("Timing", _timing)
        yield _attempt("Offloads (above 1 Gbit/s)", _super_packets)
    yield _priority()
    yield _cores()
    yield _congestion_control()
    yield _iperf3()


def _attempt(name: str, find: Callable[[str], Capability]) -> Capability:
    """Return the result of a check that starts links; "no" where a link fails or hangs."""
    try:
        return find(name)
    except LinkError as error:
        reason, _, advice = str(error).partition("; ")
        return Capability(name, "no", reason, advice.removesuffix("; `forebay doctor` says more"))
    except subprocess.TimeoutExpired:
        return Capability(name, "no", f"a link did not end within {PATIENCE_S:g} s", _busy())


def _link(*command: str, rate: str = "10Mbit/s", **options: object) -> Outcome:
    return run(settings(rate, **options), command, timeout_s=PATIENCE_S)


def _device(name: str, device: str) -> Capability:
    _link("true", device=device)
    return Capability(name, "yes", "a link came up and went down again")


def _namespaces(name: str, links: list[Capability]) -> Capability:
    if not any(link.verdict == "yes" for link in links):
        return Capability(name, "no", links[0].found, links[0].advice)
    same = f"test $(readlink {USER_NAMESPACE}) = '{USER_NAMESPACE.readlink()}'"
    root = _link("sh", "-c", same).status == 0
    return Capability(name, "yes", "as root" if root else "in a user namespace, no root needed")


def _ipv6(name: str) -> Capability:
    if _link("sh", "-c", 'test -n "$FOREBAY_SERVER6"').status == 0:
        return Capability(name, "yes", "on the link")
    advice = "`sysctl net.ipv6.conf.default.disable_ipv6=0`, or a kernel with IPv6"
    return Capability(name, "no", "the kernel gives the link no IPv6 address", advice)


def _timing(name: str) -> Capability:
    outcome = _link(sys.executable, "-c", BLAST, rate="15Mbit/s", delay="1ms")
    late = outcome.lateness
    times = (words.short_time(seconds) for seconds in (late.p50_s, late.p99_s, late.p999_s))
    text = "lateness of packets: median {}, P99 {}, P99.9 {}".format(*times)
    if not outcome.void and late.p99_s < 100e-6:
        return Capability(name, "yes", text)
    return Capability(name, "no" if outcome.void else "partly", text, _busy())


def _busy() -> str:
    load = f"the load average is {os.getloadavg()[0]:.1f} on {_usable_cores()} cores"
    return f"run nothing else at the same time: {load}"


def _super_packets(name: str) -> Capability:
    _link("true", device="tun", super_packets=True)
    return Capability(name, "yes", "TUN hands over super-packets")


def _priority() -> Capability:
    name = "Real-time priority"
    done = subprocess.run([sys.executable, "-c", PRIORITY], capture_output=True, check=False)
    if done.returncode == 0:
        return Capability(name, "yes", "SCHED_FIFO, up to 90 % of a core")
    return Capability(
        name,
        "partly",
        "SCHED_FIFO is not allowed, so links are late when the machine is busy",
        "`ulimit -r 10` as root before, `LimitRTPRIO=10` in systemd, `USER - rtprio 10` in "
        "/etc/security/limits.conf, or for a container `--ulimit rtprio=10`",
    )


def _cores() -> Capability:
    name, text = "Processor cores", f"{_usable_cores()}, load {os.getloadavg()[0]:.1f}"
    if _usable_cores() >= 2:
        return Capability(name, "yes", text)
    advice = "use a second core, because the link and its traffic share this one"
    return Capability(name, "partly", text, advice)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def _congestion_control() -> Capability:
    available = _available()
    default = link_outcome.default_congestion_control()
    name = "TCP congestion control"
    text = f"{available}; default {default}"
    if not set(link_outcome.RESPONSIVE) <= set(available.split()):
        advice = "run `modprobe tcp_cubic`, or choose another with `iperf3 -C`"
    elif warning := link_outcome.congestion_warning(default):
        advice = f"{warning}; use `iperf3 -C cubic`"
    else:
        return Capability(name, "yes", text)
    return Capability(name, "partly", text, advice)


def _available() -> str:
    try:
        return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().strip()
    except OSError:
        return "unknown"


def _iperf3() -> Capability:
    if path := shutil.which("iperf3"):
        return Capability("iperf3", "yes", path)
    return Capability("iperf3", "partly", "missing; tests use it", "run `apt-get install iperf3`")


def queue(device: str) -> Capability:
    """Measure for two seconds whether packets wait at a device.

    Raises `ScenarioError` where there is no such device.
    """
    need()
    name = f"A bottleneck at {device}"
    try:
        first = _native.link_queue(device)
    except OSError as error:
        devices = ", ".join(sorted(entry.name for entry in Path("/sys/class/net").iterdir()))
        raise ParameterError("DEVICE", device, devices) from error
    if first is None or first["kind"] == "noqueue":
        return Capability(
            name,
            "no",
            "the device has no queue, so no packets wait there",
            f"shape the device, or find the slower link; for example `tc qdisc replace dev "
            f"{device} root tbf rate 100mbit burst 10kb latency 100ms`",
        )
    packets: list[int] = []
    start = time.monotonic()
    while time.monotonic() - start < LOOK_S:
        now = _native.link_queue(device) or first
        packets.append(now["packets"])
        time.sleep(LOOK_EVERY_S)
    span_s = time.monotonic() - start
    rate_mbps = 8e-6 * (now["sent_bytes"] - first["sent_bytes"]) / span_s
    waiting = sum(count > 0 for count in packets) / len(packets)
    mean = sum(packets) / len(packets)
    text = (
        f"{first['kind']}: packets waited {100 * waiting:.0f} % of the time, {mean:.1f} on "
        f"average, at {rate_mbps:.3g} Mbit/s; {now['drops'] - first['drops']} drops"
    )
    if waiting > 0.5:
        return Capability(name, "yes", text)
    return Capability(
        name,
        "no" if waiting < 0.05 else "partly",
        text,
        "start the traffic and repeat the check; if no packets wait under load, a slower link "
        "follows, or the sender's TCP limits itself (small queues, pacing)",
    )
