"""Laws in the kernel of this machine, on devices of namespaces: needs root."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from links import in_real_time

from forebay._base import registries
from forebay.linux import programs, records, tcx
from tools.routed_path import RECEIVER, routed_path
from tools.routed_path import sh as shell

ROOT = Path(__file__).parents[3]
#: Long enough for a mean within a few percent.
TRAFFIC_S = 12


def refusal() -> str | None:
    """Why this machine runs no law in its kernel."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [
        name for name in ("tc", "ip", "bpftool", "clang", "nsenter") if not programs.find(name)
    ]
    if missing:
        return f"needs {', '.join(missing)}"
    if not (programs.INCLUDE / programs.HELPERS[0]).exists():
        return f"needs {programs.HELPERS[1]}"
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "needs a kernel with BTF"
    tried = subprocess.run(["ip", "netns", "add", "fbtry"], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", "fbtry"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "needs network namespaces"


REFUSAL = refusal()
pytestmark = [
    pytest.mark.linux,
    # They share what is attached on this machine.
    pytest.mark.alone,
    pytest.mark.skipif(REFUSAL is not None, reason=f"{REFUSAL}"),
]

sh = partial(shell, timeout_s=60)


@dataclass(frozen=True)
class Path3:
    """A sender, a router whose device `eth0` leads to the receiver, and the receiver."""

    tag: str

    def inside(self, name: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{name}{self.tag}"]

    def run(self, *words: str, name: str = "r") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.inside(name), *words], capture_output=True, text=True, check=False, timeout=120
        )

    def forebay(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "forebay", *words)

    def did(self, *words: str) -> str:
        done = self.forebay(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def programs(self) -> list[int]:
        """At the egress of `eth0`, by tcx."""
        if not tcx.offered():
            return []
        words = "import socket; from forebay.linux import tcx; "
        words += "print(tcx.attached(socket.if_nametoindex('eth0')))"
        done = self.run(sys.executable, "-c", words)
        assert done.returncode == 0, done.stderr
        found: list[int] = json.loads(done.stdout)
        return found

    def stats(self) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(self.did("kernel", "show", "eth0", "--json"))
        return found[0]

    def traffic(self, flows: int = 10, tcp: str = "reno", seconds: float = TRAFFIC_S) -> float:
        """Goodput of the second half, in bit/s."""
        server = subprocess.Popen(
            [*self.inside("d"), "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL
        )
        time.sleep(0.3)
        done = self.run(
            *("iperf3", "-c", RECEIVER, "-P", str(flows), "-C", tcp, "-t", str(seconds), "-J"),
            *("-O", str(seconds / 2)),
            name="s",
        )
        server.wait(20)
        assert done.returncode == 0, done.stdout
        return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"])


@pytest.fixture
def router() -> Iterator[Path3]:
    path = Path3(f"fb{os.getpid()}")
    try:
        with routed_path(path.tag) as (s, _, d):
            sh(f"""
                for n in {s} {d}; do
                    nsenter --net=/run/netns/$n sh -c 'echo 1 > /proc/sys/net/ipv4/tcp_ecn'
                done
            """)
            try:
                yield path
                nothing_is_left(path)
            finally:
                path.forebay("detach", "eth0")
    finally:
        nothing_stays()


def nothing_is_left(path: Path3) -> None:
    """After `detach`, where the test has done it."""
    if any(one.device == "eth0" and one.law for one in records.read()[0]):
        path.did("detach", "eth0")
    assert path.run("tc", "filter", "show", "dev", "eth0", "egress").stdout == ""
    assert not path.programs()
    qdiscs = json.loads(path.run("tc", "-j", "qdisc", "show", "dev", "eth0").stdout)
    assert [one["kind"] for one in qdiscs] == ["noqueue"], qdiscs


def nothing_stays() -> None:
    if not records.ATTACHED.exists():
        assert not records.RUN.exists()
        # The kernel frees a program a little after its last holder.
        for _ in range(50):
            left = json.loads(programs.call("bpftool", "-j", "prog", "show"))
            if not any(one.get("name") == "forebay" for one in left):
                return
            time.sleep(0.1)
        raise AssertionError(left)


@in_real_time
@pytest.mark.parametrize("ecn", [False, True], ids=["drop", "ecn"])
def test_a_law_holds_its_queue_and_goes_without_a_trace(router: Path3, ecn: bool) -> None:
    said = router.did(
        *("attach", "eth0", "pi", "--rate", "15Mbit/s", "--set", "target=50p"),
        *("--design", "flows=10,rtt=20ms", *(["--ecn"] if ecn else [])),
    )
    assert "pi installed as a classifier" in said
    goodput_bps = router.traffic()
    seen = router.stats()
    assert goodput_bps > 0.95 * 15e6 * 1448 / 1514
    assert 35 < seen["queue_mean_pkts"] < 65, seen
    # A SYN, and what is sent again, carry no mark.
    assert seen["marks"] > 100 if ecn else seen["marks"] == 0 and seen["drops"] > 10
    assert seen["packets"] >= seen["dropped_packets"] + 1000


@pytest.mark.parametrize("law", [law for law in registries.laws() if programs.has_header(law)])
def test_every_law_is_accepted_and_sends(router: Path3, law: str) -> None:
    """The kernel's verifier takes it, and packets pass."""
    has_load = any(param["name"] == "flows" for param in registries.law(law)["params"])
    load = ["--set", "flows=60"] if has_load else []
    router.did("attach", "eth0", law, "--rate", "20Mbit/s", "--buffer", "1000p", "--ecn", *load)
    assert router.run("ping", "-c", "3", "-i", "0.05", RECEIVER, name="s").returncode == 0
    seen = router.stats()
    assert seen["law"] == law and seen["packets"] >= 3 and seen["ticks"] > 0
    listed = json.loads(router.did("kernel", "list", "--json"))
    assert law in [one["law"] for one in listed]


@in_real_time
def test_it_changes_while_traffic_runs(router: Path3) -> None:
    router.did(
        *("attach", "eth0", "pi", "--rate", "15Mbit/s", "--buffer", "300p"),
        *("--design", "flows=10,rtt=20ms", "--set", "target=100p"),
    )
    with ThreadPoolExecutor() as pool:
        running = pool.submit(router.traffic, 10, "reno", 16)
        time.sleep(8)
        before = router.stats()
        router.did("kernel", "change", "eth0", "target=20ms")
        time.sleep(6)
        now = [router.stats()["queue_pkts"] for _ in range(20)]
        running.result()
    assert before["queue_mean_pkts"] > 50
    # 20 ms at 15 Mbit/s are 25 packets, and one is being sent.
    assert 10 < sum(now) / len(now) < 45, now
    refused = router.forebay("kernel", "change", "eth0", "target=1000p")
    assert refused.returncode == 2 and "at most the buffer" in refused.stderr


def test_a_failure_leaves_the_device_as_it_was(router: Path3) -> None:
    before = router.run("tc", "qdisc", "show", "dev", "eth0").stdout
    for words, status, why in [
        (["nodev", "pi", "--rate", "15Mbit/s"], 2, "DEV: there is no device nodev"),
        (["eth0", "pie2", "--rate", "15Mbit/s"], 2, "law"),
        (["eth0", "rem", "--rate", "15Mbit/s"], 2, 'LAW: "rem" is not valid'),
        (["eth0", "pi"], 2, "--rate: missing; expected a rate slightly below the link's"),
        (["eth0", "pi", "--rate", "15Mbit/s", "--set", "target=900p"], 2, "at most the buffer"),
        (["eth0", "pi", "--rate", "1kbit/s"], 2, "in fixed point"),
    ]:
        done = router.forebay("attach", *words)
        assert done.returncode == status, done.stdout + done.stderr
        assert why in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert router.run("tc", "qdisc", "show", "dev", "eth0").stdout == before
    # A qdisc that this kernel may not have: it is there, or all is undone.
    done = router.forebay("attach", "eth0", "codel", "--rate", "15Mbit/s")
    if done.returncode:
        assert router.run("tc", "qdisc", "show", "dev", "eth0").stdout == before
        assert not records.ATTACHED.exists()


def test_two_attaches_do_not_fight(router: Path3) -> None:
    def attach(law: str) -> int:
        return router.forebay("attach", "eth0", law, "--rate", "15Mbit/s").returncode

    with ThreadPoolExecutor() as pool:
        statuses = list(pool.map(attach, ["pi", "pi"]))
    assert sorted(statuses) == [0, 2]
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    assert not any(mount.startswith(str(records.RUN)) for mount in mounts)
    again = router.forebay("attach", "eth0", "red", "--rate", "15Mbit/s")
    assert again.returncode == 2 and "forebay detach eth0" in again.stderr


def test_detach_restores_the_previous_qdiscs(router: Path3) -> None:
    words = "root handle 5: tbf rate 30mbit burst 5000 latency 40ms"
    router.run("tc", "qdisc", "add", "dev", "eth0", *words.split())
    router.run("tc", "qdisc", "add", "dev", "eth0", "clsact")
    before = router.run("tc", "qdisc", "show", "dev", "eth0").stdout
    router.did("attach", "eth0", "pi", "--rate", "15Mbit/s")
    # 1514 bytes for each IP packet of 1500.
    assert "15140Kbit" in router.run("tc", "qdisc", "show", "dev", "eth0").stdout
    router.did("detach", "eth0")
    assert router.run("tc", "qdisc", "show", "dev", "eth0").stdout == before
    # Before the shaper that is there, nothing of it changes.
    router.did("attach", "eth0", "pi")
    assert router.run("tc", "qdisc", "show", "dev", "eth0").stdout == before
    # The shaper counts 1514 bytes for each IP packet of 1500.
    assert router.stats()["rate_bps"] == round(30e6 * 1500 / 1514)
    router.did("detach", "eth0")
    assert router.run("tc", "qdisc", "show", "dev", "eth0").stdout == before
    router.run("tc", "qdisc", "del", "dev", "eth0", "root")
    router.run("tc", "qdisc", "del", "dev", "eth0", "clsact")


def test_a_dry_run_prints_the_commands_that_are_executed(router: Path3) -> None:
    wanted = ["attach", "eth0", "pi", "--rate", "15Mbit/s"]
    note, *lines = router.did(*wanted, "--dry-run").splitlines()
    assert note.startswith("tbf rate 15140000bit carries 15Mbit/s of IP packets")
    stands = [["bpftool", "net", "attach"]]
    if not tcx.offered():
        stands = [["tc", "qdisc", "add"], ["tc", "filter", "add"]]
    assert [line.split()[:3] for line in lines] == [["tc", "qdisc", "replace"], *stands]
    assert not records.ATTACHED.exists()


def test_a_device_that_goes_leaves_a_record_to_remove(router: Path3) -> None:
    router.did("attach", "eth0", "pi", "--rate", "15Mbit/s")
    sh(f"ip -n r{router.tag} link del eth0")
    assert "(gone)" in router.did("kernel", "list")
    assert "(gone)" in router.did("kernel", "show", "eth0")
    sh(f"""
        ip link add eth0 netns r{router.tag} type veth peer name eth0 netns d{router.tag}
        ip -n r{router.tag} link set eth0 up
    """)
    router.did("attach", "eth0", "pi", "--rate", "15Mbit/s")
    router.did("detach", "eth0")
    router.did("detach", "eth0")
    assert not records.ATTACHED.exists()


@in_real_time
def test_a_busy_device_takes_a_law_and_goes_with_its_packets(router: Path3) -> None:
    """Attached while packets wait; the device is removed while they wait, and made anew."""
    server = subprocess.Popen(
        [*router.inside("d"), "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL
    )
    time.sleep(0.3)
    client = subprocess.Popen(
        [*router.inside("s"), "iperf3", "-c", RECEIVER, "-u", "-b", "40M", "-t", "30"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(1)
        router.did("attach", "eth0", "pi", "--rate", "15Mbit/s")
        # Long enough for packets to wait.
        time.sleep(2)
        seen = router.stats()
        assert seen["packets"] > 0 and seen["queue_mean_pkts"] > 1, seen
        sh(f"ip -n r{router.tag} link del eth0")
        assert "(gone)" in router.did("kernel", "list")
        assert router.stats()["present"] is False
        # The kernel frees the law with its device.
        assert router.stats()["ticks"] is None
        refused = router.forebay("kernel", "change", "eth0", "target=30p")
        assert refused.returncode == 2 and "its law is gone" in refused.stderr
    finally:
        for process in (client, server):
            process.kill()
            process.wait()
    sh(f"""
        ip link add eth0 netns r{router.tag} type veth peer name eth0 netns d{router.tag}
    """)
    down = router.forebay("attach", "eth0", "pi", "--rate", "15Mbit/s")
    assert down.returncode == 2 and "eth0 is down" in down.stderr
    assert len(down.stderr.splitlines()) == 1
    router.did("detach", "eth0")
    assert not records.RUN.exists()
    sh(f"ip -n r{router.tag} link set eth0 up")


@in_real_time
def test_before_linux_6_6_a_filter_of_clsact_does_the_same(router: Path3) -> None:
    """As if this kernel had no tcx."""
    words = "from forebay.linux import tcx; tcx.offered = lambda: False; "
    words += "from forebay.cli.main import main; main()"
    done = router.run(
        *(sys.executable, "-c", words, "attach", "eth0", "pi", "--rate", "15Mbit/s"),
        *("--set", "target=50p", "--design", "flows=10,rtt=20ms"),
    )
    assert done.returncode == 0, done.stderr
    assert "bpf" in router.run("tc", "filter", "show", "dev", "eth0", "egress").stdout
    assert not router.programs()
    router.traffic(seconds=6)
    seen = router.stats()
    assert seen["drops"] > 5 and seen["queue_mean_pkts"] > 10, seen


@pytest.mark.skipif(not tcx.offered(), reason="needs tcx (Linux 6.6)")
def test_programs_of_others_stay(router: Path3, tmp_path: Path) -> None:
    """A law stands before them, sees what they would let pass unseen, and goes without them.

    The other program returns TC_ACT_OK, as those of container networks do: nothing behind it sees
    a packet.
    """
    folder = tmp_path / "other"
    sh(f"mount -t bpf bpf {tmp_path}")
    load = f"""
        folder=$(mktemp -d)
        echo '__attribute__((section("tc"))) int other(void *packet) {{ return 0; }}' > $folder/a.c
        clang -O2 -g -target bpf -c -o $folder/a.o $folder/a.c
        bpftool prog load $folder/a.o {folder} type tc; rm -r $folder
    """
    try:
        sh(load)
        words = "import socket; from pathlib import Path; from forebay.linux import tcx\n"
        words += f"with tcx.opened(Path('{folder}')) as program:\n"
        words += "    tcx.attach(socket.if_nametoindex('eth0'), program)"
        assert router.run(sys.executable, "-c", words).returncode == 0
        others = router.programs()
        said = router.did("attach", "eth0", "pi", "--rate", "15Mbit/s")
        assert "the law runs before the 1 BPF program at the egress of eth0" in said
        both = router.programs()
        assert both[1:] == others and len(both) == 2
        router.run("ping", "-c", "20", "-i", "0.01", "10.9.2.2", name="s")
        seen = router.stats()
        assert seen["packets"] >= 20 and seen["packets"] == seen["sent_packets"], seen
        router.did("detach", "eth0")
        assert router.programs() == others
        # Put before the law later, it hides packets, and `show` says so.
        router.run(
            sys.executable,
            "-c",
            words.replace("attach(", "detach(").replace("program)", f"{others[0]})"),
        )
        router.did("attach", "eth0", "pi", "--rate", "15Mbit/s")
        assert router.run(sys.executable, "-c", words).returncode == 0
        router.run("ping", "-c", "20", "-i", "0.01", "10.9.2.2", name="s")
        done = router.forebay("kernel", "show", "eth0")
        assert "1 other program at egress before the law may let packets pass" in done.stderr
        # One that came between the two commands, at most.
        assert re.search(r"sent 2\d packets, but the law has seen \d;", done.stderr), done.stderr
        router.did("detach", "eth0")
        assert router.programs() == others
        detach = "import socket; from forebay.linux import tcx; "
        detach += f"tcx.detach(socket.if_nametoindex('eth0'), {others[0]})"
        assert router.run(sys.executable, "-c", detach).returncode == 0
    finally:
        sh(f"umount {tmp_path}")


def test_detach_removes_a_partly_attached_law(router: Path3) -> None:
    """At any moment of attaching: `detach` gives everything back, or nothing was done."""
    before = router.run("tc", "qdisc", "show", "dev", "eth0").stdout
    statuses = set()
    for wait_s in (0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0, 3.0):
        command = subprocess.Popen(
            [
                *(*router.inside("r"), sys.executable, "-m", "forebay"),
                *("attach", "eth0", "pi", "--rate", "15Mbit/s"),
            ],
            stdout=subprocess.DEVNULL,
        )
        time.sleep(wait_s)
        command.kill()
        command.wait()
        # Programs that it called end by themselves.
        time.sleep(1)
        done = router.forebay("detach", "eth0")
        statuses.add(done.returncode)
        assert done.returncode == 0 or "eth0 has no law" in done.stderr, done.stderr
        assert router.run("tc", "qdisc", "show", "dev", "eth0").stdout == before
        assert not router.programs()
        nothing_stays()
    assert 0 in statuses


def test_a_kernel_without_btf_is_refused() -> None:
    """As User-mode Linux is, and any without BTF."""
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c"),
            'mount -t tmpfs none /sys/kernel/btf && exec "$@"',
            *("sh", sys.executable, "-m", "forebay"),
            *("attach", "lo", "pi", "--rate", "15Mbit/s"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "/sys/kernel/btf/vmlinux" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_user_without_permission_gets_the_missing_capability() -> None:
    done = subprocess.run(
        [
            *("setpriv", "--bounding-set=-net_admin", sys.executable, "-m", "forebay"),
            *("attach", "lo", "pi", "--rate", "15Mbit/s"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: attach requires CAP_NET_ADMIN")


def test_the_page_runs(router: Path3) -> None:
    """The commands of docs/howto/kernel.md, where DEV is eth0."""
    page = (ROOT / "docs" / "howto" / "kernel.md").read_text()
    lines = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if line.startswith("sudo forebay ")
    ]
    assert len(lines) >= 6
    for line in lines:
        router.did(*line.split()[2:])
