"""A path of three network namespaces, for laws in the kernel. It needs root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

#: The address of the receiver.
RECEIVER = "10.9.2.2"


def sh(line: str, timeout_s: float | None = None) -> str:
    """Return the output of a script of the shell.

    Parameters
    ----------
    line : str
        The script; it stops at the first command that fails.
    timeout_s : float, optional
        Time limit in seconds. A virtual machine needs None: its clock may jump while it waits for a
        file.

    Raises
    ------
    CalledProcessError
        If a command fails.
    """
    return subprocess.run(
        ["sh", "-euc", line], capture_output=True, text=True, check=True, timeout=timeout_s
    ).stdout


@contextmanager
def routed_path(tag: str) -> Iterator[tuple[str, str, str]]:
    """Enter a context with a sender, a router whose `eth0` leads to the receiver, and the receiver.

    The values are the names of the namespaces, which end in `tag`.
    """
    s, r, d = (f"{name}{tag}" for name in "srd")
    try:
        sh(f"""
            for n in {s} {r} {d}; do ip netns add $n; ip -n $n link set lo up; done
            ip link add eth0 netns {s} type veth peer name eth1 netns {r}
            ip link add eth0 netns {r} type veth peer name eth0 netns {d}
            ip -n {s} addr add 10.9.1.2/24 dev eth0; ip -n {r} addr add 10.9.1.1/24 dev eth1
            ip -n {r} addr add 10.9.2.1/24 dev eth0; ip -n {d} addr add {RECEIVER}/24 dev eth0
            ip -n {s} link set eth0 up; ip -n {r} link set eth1 up
            ip -n {r} link set eth0 up; ip -n {d} link set eth0 up
            ip -n {s} route add default via 10.9.1.1; ip -n {d} route add default via 10.9.2.1
            nsenter --net=/run/netns/{r} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
        """)
        yield s, r, d
    finally:
        for name in (s, r, d):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
