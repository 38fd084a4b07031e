"""Laws in the kernel, where devices, mounts, records and other programs are against them."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from test_kernel import REFUSAL

from forebay.linux import device_qdiscs as qdiscs
from forebay.linux import devices, namespaces, programs, records, tcx
from tools.routed_path import sh as shell

pytestmark = [
    pytest.mark.linux,
    # They share what is attached on this machine.
    pytest.mark.alone,
    pytest.mark.skipif(REFUSAL is not None, reason=f"{REFUSAL}"),
]

sh = partial(shell, timeout_s=60)
LAW = ("pi", "--rate", "15Mbit/s")
FOREBAY = (sys.executable, "-m", "forebay")
needs_tcx = pytest.mark.skipif(not tcx.offered(), reason="needs tcx (Linux 6.6)")


@dataclass(frozen=True)
class Host:
    """A namespace with a device `eth0` to another namespace."""

    name: str

    @property
    def path(self) -> Path:
        return namespaces.NAMED / self.name

    def run(self, *words: str, name: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", f"--net=/run/netns/{name or self.name}", *words],
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
            timeout=120,
        )

    def forebay(self, *words: str, name: str = "") -> subprocess.CompletedProcess[str]:
        return self.run(*FOREBAY, *words, name=name)

    def did(self, *words: str, name: str = "") -> str:
        done = self.forebay(*words, name=name)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tc(self, line: str) -> str:
        done = self.run("tc", *line.split())
        assert done.returncode == 0, done.stderr
        return done.stdout

    def programs(self, device: str = "eth0", name: str = "") -> list[int]:
        """Return the programs at egress by tcx; the kernel tells them, and nothing of Forebay."""

        def query() -> list[int]:
            return tcx.attached(socket.if_nametoindex(device))

        return namespaces.inside(namespaces.NAMED / (name or self.name), query)

    def packets(self) -> int:
        """Send ten packets, and return how many the law has seen."""
        self.run("ping", "-c", "10", "-i", "0.01", "10.9.3.2")
        counts = json.loads(self.did("kernel", "show", "eth0", "--json"))
        return int(counts[0]["packets"])


@pytest.fixture
def host() -> Iterator[Host]:
    near, far = f"fbn{os.getpid()}", f"fbf{os.getpid()}"
    made = Host(near)
    try:
        sh(f"""
            for n in {near} {far}; do ip netns add $n; ip -n $n link set lo up; done
            ip link add eth0 netns {near} type veth peer name eth0 netns {far}
            ip -n {near} addr add 10.9.3.1/24 dev eth0; ip -n {far} addr add 10.9.3.2/24 dev eth0
            ip -n {near} link set eth0 up; ip -n {far} link set eth0 up
        """)
        yield made
    finally:
        for name in (near, far):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run([*FOREBAY, "detach", "--stale"], check=False, capture_output=True)
        left = sorted(records.RUN.rglob("*")) if records.RUN.exists() else []
        assert not left, left


# --- mounts -------------------------------------------------------------------------------------


def inside_ip(host: Host) -> list[str]:
    return ["ip", "netns", "exec", host.name]


def inside_nsenter(host: Host) -> list[str]:
    return ["nsenter", f"--net={host.path}"]


def inside_unshare(host: Host) -> list[str]:
    return ["nsenter", f"--net={host.path}", "unshare", "--mount"]


def inside_container(host: Host) -> list[str]:
    """Process, mount and host names of its own; /run, /tmp and /sys are its own, too."""
    mounts = "mount -t proc proc /proc; mount -t tmpfs none /run; mount -t tmpfs none /tmp; "
    # The kernel's types are where they are in a container.
    mounts += "mkdir /tmp/btf; mount --bind /sys/kernel/btf /tmp/btf; mount -t tmpfs none /sys; "
    mounts += "mkdir -p /sys/kernel/btf; mount --move /tmp/btf /sys/kernel/btf; "
    words = ["unshare", "--mount", "--pid", "--uts", "--fork", "sh", "-ec", mounts + 'exec "$@"']
    return ["nsenter", f"--net={host.path}", *words, "sh"]


def inside_chroot(host: Host) -> list[str]:
    """Another root, of this one's folders and a /run of its own."""
    mounts = "mount -t tmpfs none /mnt; cd /mnt; "
    mounts += "for folder in /*; do case $folder in /mnt|/proc|/sys|/run|/tmp) continue;; esac; "
    mounts += "[ -L $folder ] && cp -d $folder .$folder && continue; "
    mounts += "[ -d $folder ] && mkdir .$folder && mount --rbind $folder .$folder; done; "
    mounts += "mkdir proc sys run tmp; mount --rbind /proc proc; mount -t sysfs sysfs sys; "
    words = ["unshare", "--mount", "sh", "-ec", mounts + 'exec chroot /mnt "$@"']
    return ["nsenter", f"--net={host.path}", *words, "sh"]


@pytest.mark.parametrize(
    "inside", [inside_ip, inside_nsenter, inside_unshare, inside_container, inside_chroot]
)
def test_a_law_outlives_the_mounts_of_its_command(
    host: Host, inside: Callable[[Host], list[str]]
) -> None:
    done = subprocess.run(
        [*inside(host), *FOREBAY, "attach", "eth0", *LAW, "--set", "target=50p"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd="/",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # A process that has nothing to do with that one finds the law, and a law that works.
    if tcx.offered():
        (program,) = host.programs()
        shown = json.loads(programs.call("bpftool", "-j", "prog", "show", "id", str(program)))
        assert shown["name"] == programs.PROGRAM_NAME
        maps = {
            json.loads(programs.call("bpftool", "-j", "map", "show", "id", str(it)))["name"]: it
            for it in shown["map_ids"]
        }
        host.run("ping", "-c", "10", "-i", "0.02", "10.9.3.2")
        words = ("bpftool", "-j", "map", "dump", "id", str(maps["running"]))
        (running,) = json.loads(programs.call(*words))
        assert running["formatted"]["value"]["ticks"] >= 10
    assert "tbf f0ba: root" in host.tc("qdisc show dev eth0")
    if inside in (inside_container, inside_chroot):
        # Its record went with its /run.
        assert "without a record" in host.forebay("attach", "eth0", *LAW).stderr
        assert "`forebay detach eth0` removes it" in host.forebay("kernel", "list").stderr
    else:
        assert host.packets() >= 10
        assert "pi" in host.did("kernel", "list")
    said = host.did("detach", "eth0")
    assert "removed" in said
    assert "f0ba" not in host.tc("qdisc show dev eth0") and not host.programs()


# --- devices and namespaces ---------------------------------------------------------------------


def test_a_renamed_device_gives_its_law_back(host: Host) -> None:
    host.did("attach", "eth0", *LAW)
    sh(f"""
        ip -n {host.name} link set eth0 down
        ip -n {host.name} link set eth0 name wan0
        ip -n {host.name} link set wan0 up
    """)
    assert "wan0" in host.did("kernel", "list") and "(gone)" not in host.did("kernel", "list")
    host.did("kernel", "change", "wan0", "target=30p")
    assert json.loads(host.did("kernel", "show", "wan0", "--json"))[0]["device"] == "wan0"
    said = host.did("detach", "eth0")
    assert "eth0 is called wan0 now" in said
    assert not host.programs("wan0") and "f0ba" not in host.tc("qdisc show dev wan0")
    assert not records.RUN.exists()


def test_another_device_with_the_old_name_is_left_alone(host: Host) -> None:
    host.did("attach", "eth0", *LAW)
    sh(f"""
        ip -n {host.name} link set eth0 down
        ip -n {host.name} link set eth0 name wan0
        ip -n {host.name} link set wan0 up
        ip -n {host.name} link add eth0 type veth peer name eth1
    """)
    done = host.forebay("detach", "eth0")
    assert done.returncode == 2 and "wan0" in done.stderr, done.stderr
    assert len(host.programs("wan0")) == 1
    host.did("detach", "wan0")
    assert not host.programs("wan0")


@needs_tcx
@pytest.mark.parametrize("there", [False, True], ids=["from here", "from there"])
def test_a_moved_device_gives_its_law_back(host: Host, there: bool) -> None:
    other = f"fbo{os.getpid()}"
    sh(f"ip netns add {other}")
    try:
        host.did("attach", "eth0", *LAW)
        sh(f"ip -n {host.name} link set eth0 netns {other}")
        # The kernel ends the shaper, and lets the law go with the device.
        assert len(host.programs(name=other)) == 1
        assert "moved to another namespace" in host.did("kernel", "list")
        assert "no stale record" in host.did("detach", "--stale")
        if there:
            assert "(" not in host.did("kernel", "list", name=other)
            host.did("kernel", "change", "eth0", "target=30p", name=other)
        said = host.did("detach", "eth0", name=other if there else "")
        assert "pi removed" in said
        assert not host.programs(name=other)
        assert not records.RUN.exists()
    finally:
        sh(f"ip netns del {other}")


def test_a_namespace_that_is_deleted_leaves_a_stale_record_alone(host: Host) -> None:
    other, again = f"fbo{os.getpid()}", f"fbp{os.getpid()}"
    sh(f"""
        ip netns add {other}; ip -n {other} link set lo up
        ip link add eth0 netns {other} type veth peer name eth1 netns {other}
        ip -n {other} link set eth0 up
    """)
    host.did("attach", "eth0", *LAW, name=other)
    sh(f"ip netns del {other}")
    time.sleep(0.5)
    # Namespaces that take its inode number have no law.
    try:
        for number in range(3):
            sh(f"ip netns add {again}{number}")
            sh(f"""
                ip link add eth0 netns {again}{number} type veth peer name eth1 \
                    netns {again}{number}
                ip -n {again}{number} link set eth0 up
            """)
            stats = host.forebay("kernel", "show", "eth0", name=f"{again}{number}")
            assert stats.returncode == 2, stats.stdout
            assert host.forebay("detach", "eth0", name=f"{again}{number}").returncode == 2
        assert "(gone)" in host.did("kernel", "list")
        assert "eth0: pi was gone" in host.did("detach", "--stale")
        assert not records.RUN.exists()
    finally:
        for number in range(3):
            subprocess.run(["ip", "netns", "del", f"{again}{number}"], check=False)


def test_a_lost_record_does_not_keep_a_law(host: Host) -> None:
    host.did("attach", "eth0", *LAW)
    (file,) = records.ATTACHED.iterdir()
    file.unlink()
    refused = host.forebay("attach", "eth0", *LAW)
    assert refused.returncode == 2 and "`forebay detach eth0` removes it" in refused.stderr
    said = host.did("detach", "eth0")
    assert "its record was lost" in said
    assert not host.programs() and "f0ba" not in host.tc("qdisc show dev eth0")


# --- what was there -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        ["root handle 5: tbf rate 30mbit burst 5000 latency 40ms"],
        ["root handle 5: tbf rate 30mbit burst 5003 latency 40ms peakrate 40mbit mtu 2000"],
        ["root handle 5: tbf rate 30mbit burst 5000 limit 9999 overhead 18 linklayer atm"],
        [
            "root handle 5: tbf rate 9mbit burst 5000 latency 40ms peakrate 20mbit mtu 1540 mpu 64",
            "parent 5:1 handle 6: pfifo limit 77",
        ],
        ["root handle 5: tbf rate 40gbit burst 500000 latency 40ms", "parent 5:1 handle 6: bfifo"],
        ["root handle 7: pfifo limit 12"],
        ["root handle 7: bfifo limit 12345"],
    ],
)
def test_every_option_of_a_qdisc_comes_back(host: Host, lines: list[str]) -> None:
    for line in lines:
        host.tc(f"qdisc add dev eth0 {line}")

    def kept() -> list[qdiscs.DeviceQdisc]:
        def whole() -> list[qdiscs.DeviceQdisc]:
            return qdiscs.tree(socket.if_nametoindex("eth0"))

        return namespaces.inside(host.path, whole)

    shown, before = host.tc("qdisc show dev eth0"), kept()
    host.did("attach", "eth0", *LAW)
    host.did("detach", "eth0")
    assert host.tc("qdisc show dev eth0") == shown
    assert kept() == before


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (["qdisc add dev eth0 root handle 5: stab linklayer atm overhead 10 tbf rate 9mbit "
          "burst 5000 latency 40ms"], "size table"),
        (["qdisc add dev eth0 root handle 5: htb default 1",
          "class add dev eth0 parent 5: classid 5:1 htb rate 9mbit"], "the classes of htb"),
        (["qdisc add dev eth0 root handle 5: htb default 1",
          "filter add dev eth0 parent 5: u32 match u32 0 0 flowid 5:1"], "the filters of htb"),
    ],
    ids=["stab", "classes", "filters"],
)  # fmt: skip
def test_a_qdisc_that_cannot_be_restored_is_refused_before_any_change(
    host: Host, lines: list[str], what: str
) -> None:
    for line in lines:
        host.tc(line)

    def shown() -> str:
        return re.sub(r"direct_packets_stat \d+", "", host.tc("qdisc show dev eth0"))

    before = shown()
    done = host.forebay("attach", "eth0", *LAW)
    assert done.returncode == 2 and what in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert shown() == before and not host.programs()
    host.tc("qdisc del dev eth0 root")


# --- without tcx --------------------------------------------------------------------------------

WITHOUT_TCX = (
    sys.executable,
    "-c",
    "from forebay.linux import tcx; tcx.offered = lambda: False; "
    "from forebay.cli.main import main; main()",
)


def test_filters_of_others_stay_without_tcx(host: Host) -> None:
    """Whether they are before the law, behind it, or come while it is there."""
    host.tc("qdisc add dev eth0 clsact")
    host.tc("filter add dev eth0 egress protocol ip pref 50 u32 match u32 0 0 flowid 1:1")
    done = host.run(*WITHOUT_TCX, "attach", "eth0", *LAW)
    assert done.returncode == 0, done.stderr
    shown = json.loads(host.tc("-j filter show dev eth0 egress"))
    (law,) = [it for it in shown if it.get("options", {}).get("prog")]
    # The other one lets every packet pass without looking at filters behind it.
    assert law["pref"] < 50
    assert host.packets() >= 10
    same = ["pref", str(law["pref"]), "handle", "9", "bpf", "bytecode", "1,6 0 0 0"]
    added = host.run("tc", "filter", "add", "dev", "eth0", "egress", "protocol", "all", *same)
    assert added.returncode == 0, added.stderr
    done = host.run(*WITHOUT_TCX, "detach", "eth0")
    assert done.returncode == 0, done.stderr
    after = json.loads(host.tc("-j filter show dev eth0 egress"))
    assert not [it for it in after if it.get("options", {}).get("prog", {}).get("name")]
    assert {it["pref"] for it in after} == {50, law["pref"]}


def test_clsact_with_filters_of_others_stays(host: Host) -> None:
    done = host.run(*WITHOUT_TCX, "attach", "eth0", *LAW)
    assert done.returncode == 0, done.stderr
    host.tc("filter add dev eth0 egress protocol ip pref 500 u32 match u32 0 0 flowid 1:1")
    done = host.run(*WITHOUT_TCX, "detach", "eth0")
    assert done.returncode == 0 and "filters of others" in done.stdout, done.stdout + done.stderr
    assert '"pref":500' in host.tc("-j filter show dev eth0 egress")
    host.tc("qdisc del dev eth0 clsact")


def test_a_filter_before_which_no_law_can_stand_is_refused(host: Host) -> None:
    host.tc("qdisc add dev eth0 clsact")
    host.tc("filter add dev eth0 egress protocol ip pref 1 u32 match u32 0 0 flowid 1:1")
    before = host.tc("qdisc show dev eth0")
    done = host.run(*WITHOUT_TCX, "attach", "eth0", *LAW)
    assert done.returncode == 2 and "preference 1" in done.stderr, done.stderr
    assert host.tc("qdisc show dev eth0") == before
    host.tc("qdisc del dev eth0 clsact")


@pytest.mark.parametrize("with_tcx", [True, False], ids=["tcx", "clsact"])
@pytest.mark.parametrize("step", range(8))
def test_detach_cleans_up_after_a_kill_before_any_step(
    host: Host, step: int, with_tcx: bool
) -> None:
    """Killed before each command that the kernel is given, and once after all of them."""
    if with_tcx and not tcx.offered():
        pytest.skip("needs tcx (Linux 6.6)")
    host.tc("qdisc add dev eth0 root handle 5: tbf rate 30mbit burst 5000 latency 40ms")
    before = host.tc("qdisc show dev eth0")
    words = f"""
import os
from forebay.cli.main import main
from forebay.linux import attachments, tcx
steps = iter(range(100))
def before(act):
    def killed(*arguments, **options):
        if next(steps) == {step}:
            os.kill(os.getpid(), 9)
        return act(*arguments, **options)
    return killed
if not {with_tcx}:
    tcx.offered = lambda: False
attachments.call = before(attachments.call)
tcx.attach = before(tcx.attach)
attachments.Attached.write = before(attachments.Attached.write)
attachments._verify = before(attachments._verify)
main()
"""
    done = host.run(sys.executable, "-c", words, "attach", "eth0", *LAW)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    done = host.forebay("detach", "eth0")
    assert done.returncode == 0 or "eth0 has no law" in done.stderr, done.stderr
    assert host.tc("qdisc show dev eth0") == before
    assert not host.programs() and not records.RUN.exists()


# --- one command at a time ----------------------------------------------------------------------


def test_no_user_can_hold_the_lock(host: Host) -> None:
    """What others can open for reading, they can lock: nothing that a command waits for is such."""
    locks = f"""
import fcntl, os, sys
for path in ("/run", "{records.RUN}", "{records.RUN / records.LOCK}", "{records.ATTACHED}"):
    try:
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)
    except OSError:
        pass
print("held", flush=True)
sys.stdin.read()
"""
    # A law on another device keeps the folder there.
    host.did("attach", "eth0", *LAW)
    user = subprocess.Popen(
        ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", locks],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    assert user.stdout is not None and user.stdin is not None
    try:
        assert user.stdout.readline() == "held\n"
        begun_s = time.monotonic()
        host.did("kernel", "change", "eth0", "target=30p")
        said = host.forebay("detach", "eth0")
        assert said.returncode == 0 and "waiting" not in said.stderr
        assert time.monotonic() - begun_s < 30
    finally:
        user.stdin.close()
        user.wait()


def test_a_waiting_command_names_the_process_that_holds_the_lock(host: Host) -> None:
    records.RUN.mkdir(mode=0o700)
    lock = os.open(records.RUN / records.LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.write(lock, str(os.getpid()).encode())
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = subprocess.Popen(
            ["nsenter", f"--net={host.path}", *FOREBAY, "attach", "eth0", *LAW],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiting.stderr is not None
        assert f"(process {os.getpid()})" in waiting.stderr.readline()
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert waiting.wait(60) == 0
    finally:
        os.close(lock)
    host.did("detach", "eth0")


# --- records ------------------------------------------------------------------------------------


def test_only_root_can_write_records_under_any_umask(host: Host) -> None:
    umask = os.umask(0)
    try:
        host.did("attach", "eth0", *LAW)
    finally:
        os.umask(umask)
    (file,) = records.ATTACHED.iterdir()
    for path in (records.RUN, records.ATTACHED, file):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    host.did("detach", "eth0")


#: A file's content; what others may put in its place.
BAD_RECORDS = ["", "{", "[]", "nul", '{"version": 2}', "[" * 100000, "\udcff"]
BAD_RECORDS += ["link", "folder", "user", '{"version": 99, "device": "eth9"}']


def test_a_bad_record_concerns_no_other_device(host: Host) -> None:
    host.did("attach", "eth0", *LAW)
    bad = records.ATTACHED / "77@88.json"
    for content in BAD_RECORDS:
        if content == "link":
            bad.symlink_to("/etc/passwd")
        elif content == "folder":
            bad.mkdir()
        else:
            bad.write_bytes(os.fsencode(content))
            if content == "user":
                os.chown(bad, 65534, 65534)
        attached, problems = records.read()
        assert [record.law for record in attached] == ["pi"], content
        assert [problem.file for problem in problems] == [bad], content
        # A later version's record is not ours to remove.
        assert problems[0].later == ("99" in content)
        if not problems[0].later:
            assert problems[0].remove()
    done = host.forebay("kernel", "list")
    assert done.returncode == 0 and "pi" in done.stdout
    assert "77@88.json" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    bad.write_text("{")
    host.did("kernel", "change", "eth0", "target=30p")
    assert "pi" in host.did("kernel", "show", "eth0")
    host.did("detach", "eth0")
    host.did("attach", "eth0", *LAW)
    host.did("detach", "eth0")
    assert "77@88.json: record removed" in host.did("detach", "--stale")
    assert not records.RUN.exists()


def test_a_record_is_validated(host: Host) -> None:
    host.did("attach", "eth0", *LAW)
    (file,) = records.ATTACHED.iterdir()
    whole = json.loads(file.read_text())
    one = {"kind": "tbf", "handle": 1, "parent": 2}
    for name, value in [
        ("device", "../../etc"),
        ("device", "a b"),
        ("ifindex", "2"),
        ("ifindex", -1),
        ("ifindex", True),
        ("ifindex", 1),
        ("namespace", "../../../tmp/victim"),
        ("law", "no-law"),
        ("engine", "x; reboot"),
        ("rate_bps", 0),
        ("made", ["shaper", 3]),
        ("made", "shaper"),
        ("before", "tbf"),
        ("before", [one]),
        ("before", [{**one, "options": "zz"}]),
        ("before", [{**one, "kind": "a" * 16, "options": ""}]),
        ("maps", {"settings": "x"}),
        ("program", 1 << 40),
        ("params", {"a": {}}),
        ("more", 1),
    ]:
        file.write_text(json.dumps({**whole, name: value}))
        attached, problems = records.read()
        assert not attached and len(problems) == 1, (name, value)
    assert "damaged" in host.forebay("kernel", "list").stderr
    # What is in the kernel goes all the same.
    host.did("detach", "eth0")
    assert not host.programs() and "f0ba" not in host.tc("qdisc show dev eth0")
    assert not records.RUN.exists()


def test_a_folder_that_others_can_write_to_is_not_believed(host: Host, tmp_path: Path) -> None:
    """With one, a planted record once made root delete a tree."""
    victim = tmp_path / "victim"
    (victim / "deep").mkdir(parents=True)
    records.RUN.mkdir()
    records.ATTACHED.mkdir()
    try:
        records.RUN.chmod(0o777)
        records.ATTACHED.chmod(0o777)
        planted = {"device": "eth0", "namespace": f"x/../../../..{victim}", "ifindex": 1}
        (records.ATTACHED / "1@1.json").write_text(json.dumps(planted))
        for words in (
            ["attach", "eth0", *LAW],
            ["detach", "eth0"],
            ["kernel", "list"],
            ["detach", "--stale"],
        ):
            done = host.forebay(*words)
            assert done.returncode == 2, done.stdout
            assert "other than root can write there" in done.stderr
            assert len(done.stderr.splitlines()) == 1
        assert (victim / "deep").is_dir()
    finally:
        sh(f"rm -r {records.RUN}")


def test_a_full_disk_is_called_so(host: Host) -> None:
    before = host.tc("qdisc show dev eth0")
    records.RUN.mkdir(mode=0o700)
    sh(f"mount -t tmpfs -o size=4k,mode=0700 none {records.RUN}")
    try:
        (records.RUN / "full").write_bytes(bytes(4096))
        done = host.forebay("attach", "eth0", *LAW)
        assert done.returncode == 1 and "No space left on device" in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert host.tc("qdisc show dev eth0") == before and not host.programs()
    finally:
        sh(f"umount {records.RUN}; rmdir {records.RUN}")


def test_nothing_is_written_to_the_folder_of_temporary_files(host: Host) -> None:
    """A disk for them that is full, or a kill, matters to no law."""
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-ec"),
            'mount -t tmpfs -o size=4k,ro none /tmp; exec "$@"',
            *("sh", "nsenter", f"--net={host.path}", *FOREBAY, "attach", "eth0", *LAW),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    host.did("detach", "eth0")


# --- names and lines ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a;reboot", "$(id)", "a'b", 'a"b', "-x", "a\x1b[31m", "a\\b", "a\udcffb", "é"]
)
def test_any_name_of_a_device_can_be_printed_and_pasted(host: Host, name: str) -> None:
    sh(f"ip -n {host.name} link set eth0 down")
    renamed = subprocess.run(
        ["ip", "-n", host.name, "link", "set", "eth0", "name", name], check=False
    )
    assert renamed.returncode == 0
    subprocess.run(["ip", "-n", host.name, "link", "set", "dev", name, "up"], check=True)
    words = ["attach", *LAW[1:], "--", name, LAW[0]]
    said = host.did(*words)
    everything = said + host.did("kernel", "list") + host.did("kernel", "show")
    assert "\x1b" not in everything and "\udcff" not in everything
    # What is printed to be pasted is the device's.
    command = said.split("`")[3]
    assert command.startswith("forebay detach ")
    word = command.removeprefix("forebay detach ")
    pasted = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], capture_output=True, check=True
    ).stdout
    assert os.fsdecode(pasted) == name
    if '"' in name:
        assert 'device="a\\"b"' in host.did("kernel", "show", "--prometheus")
    host.did("detach", "--", name)


def test_stats_go_on_below_one_heading(host: Host) -> None:
    host.did("attach", "eth0", *LAW)
    watched = subprocess.Popen(
        ["nsenter", f"--net={host.path}", *FOREBAY, "kernel", "show", "eth0", "--watch"],
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(6)
    watched.send_signal(signal.SIGINT)
    said, _ = watched.communicate(timeout=30)
    assert said.count("device") == 1 and said.count("─\n") == 1, said
    assert said.count("pi") >= 2
    host.did("detach", "eth0")


def test_a_design_is_for_its_senders(host: Host) -> None:
    words = ["attach", "eth0", *LAW, "--dry-run", "--design"]
    reno = host.did(*words, "flows=60,rtt=246ms")
    cubic = host.did(*words, "flows=60,rtt=246ms,tcp=cubic")
    assert "60 flows of cubic" in cubic and cubic != reno
    wrong = host.forebay(*words, "rtt=246ms,tcp=tahoe2")
    assert wrong.returncode == 2 and "tahoe2" in wrong.stderr


def test_cake_takes_its_own_keys_and_shapes_itself(host: Host) -> None:
    words = ["attach", "eth0", "cake", "--rate", "15Mbit/s", "--ecn", "--dry-run"]
    said = host.did(*words, "--set", "overhead=18B", "--set", "mpu=64B", "--set", "tins=diffserv4",
                    "--set", "isolation=dual-srchost", "--set", "ack_filter=filter",
                    "--set", "framing=atm")  # fmt: skip
    (line,) = [line for line in said.splitlines() if line.startswith("tc ")]
    for option in (
        "bandwidth 15000000bit",
        "overhead 18",
        "mpu 64",
        "diffserv4",
        "dual-srchost",
        "atm",
    ):
        assert option in line, line
    assert "tbf" not in said
    wrong = host.forebay(*words, "--set", "overheads=18B")
    assert wrong.returncode == 2 and "overhead" in wrong.stderr


def test_the_rate_is_that_of_ip_packets(host: Host) -> None:
    """As `init --tc`, `design` and `tune` print it for the same link."""
    said = host.did("attach", "eth0", *LAW, "--dry-run")
    assert "tbf rate 15140000bit" in said
    assert "tbf rate 15140000bit carries 15Mbit/s of IP packets" in said


def test_names_are_as_the_kernel_has_them() -> None:
    assert all(records.is_device_name(name) for name in ("eth0", "a'b", "é", "a\x1b", "x" * 15))
    for name in ("", ".", "..", "a/b", "a b", "a:b", "a\nb", "x" * 16, "é" * 8):
        assert not records.is_device_name(name), name
    assert devices.shown("a\x1b[0m") == r"a\x1b[0m"
    with suppress(OSError):
        assert devices.index("no such") is None
