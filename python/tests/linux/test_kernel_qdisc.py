"""Laws in a qdisc of their own, which this machine's kernel may not have: in a virtual machine with
Debian's newest, which `python -m tools.virtual_machine setup` makes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forebay._base import registries
from forebay.linux import programs
from tools import virtual_machine

RATE_BPS = 15e6
#: A sender, a router whose `eth0` leads to the receiver, and the receiver.
PATH = """
for n in s r d; do ip netns add $n; ip -n $n link set lo up; done
ip link add eth0 netns s type veth peer name eth1 netns r
ip link add eth0 netns r type veth peer name eth0 netns d
ip -n s addr add 10.9.1.2/24 dev eth0; ip -n r addr add 10.9.1.1/24 dev eth1
ip -n r addr add 10.9.2.1/24 dev eth0; ip -n d addr add 10.9.2.2/24 dev eth0
ip -n s link set eth0 up; ip -n r link set eth1 up
ip -n r link set eth0 up; ip -n d link set eth0 up
ip -n s route add default via 10.9.1.1; ip -n d route add default via 10.9.2.1
nsenter --net=/run/netns/r sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
forebay() { nsenter --net=/run/netns/r PYTHON -m forebay "$@"; }
""".replace("PYTHON", sys.executable)


def refusal() -> str | None:
    why = virtual_machine.refusal()
    if why is not None:
        return why
    missing = [name for name in ("clang", "bpftool", "tc", "iperf3") if not programs.find(name)]
    if missing:
        return f"needs {', '.join(missing)}"
    if shutil.which("clang") and not any(
        shutil.which(f"clang-{major}") for major in range(programs.OWNING_CLANG, 40)
    ):
        said = subprocess.run(["clang", "-dumpversion"], capture_output=True, text=True, check=True)
        if int(said.stdout.split(".")[0]) < programs.OWNING_CLANG:
            return f"needs clang-{programs.OWNING_CLANG}"
    return None


REFUSAL = refusal()
in_a_machine = pytest.mark.skipif(REFUSAL is not None, reason=f"{REFUSAL}")


@pytest.mark.kernel
@in_a_machine
def test_a_law_in_a_qdisc_holds_its_queue_and_goes_without_a_trace() -> None:
    done = virtual_machine.run(
        PATH
        + """
        forebay attach eth0 pi --rate 15Mbit/s --front qdisc --set target=50p \
            --design flows=10,rtt=20ms && echo @attached
        forebay attach eth0 pi --rate 15Mbit/s --front qdisc --ecn; echo @status $?
        nsenter --net=/run/netns/d iperf3 -s -1 -D
        sleep 1
        nsenter --net=/run/netns/s iperf3 -c 10.9.2.2 -P 10 -C reno -t 60 -J > /tmp/said &
        sleep 8
        echo @stats; forebay kernel show eth0 --json; sleep 15; forebay kernel show eth0 --json
        forebay kernel change eth0 rate=10Mbit/s && echo @set
        wait
        echo @end; cat /tmp/said; echo @detach
        forebay detach eth0
        nsenter --net=/run/netns/r tc -j qdisc show dev eth0
        ls /run/forebay; bpftool -j struct_ops list; sleep 1; bpftool prog show
        """,
    )
    assert "eth0: pi installed as a qdisc" in done.output, done.output
    assert "@status 2" in done.output
    shown, _ = json.JSONDecoder().raw_decode(done.output.split("@stats")[1].lstrip())
    rest = done.output.split("@stats")[1].lstrip()
    _, at = json.JSONDecoder().raw_decode(rest)
    later, _ = json.JSONDecoder().raw_decode(rest[at:].lstrip())
    (first,), (last,) = shown, later
    ticks = last["ticks"] - first["ticks"]
    mean = (
        last["queue_mean_pkts"] * last["ticks"] - first["queue_mean_pkts"] * first["ticks"]
    ) / ticks
    assert 35 < mean < 65, mean
    assert last["drops"] > first["drops"] and last["overflows"] == 0
    assert "@set" in done.output
    after = done.output.split("@detach")[1]
    assert '"kind":"noqueue"' in after, after
    assert "No such file or directory" in after
    assert "struct_ops" not in after.replace("bpftool", ""), after


@pytest.mark.kernel
@in_a_machine
def test_the_verifier_takes_every_law(tmp_path: Path) -> None:
    """Of another kernel than this machine's; in a qdisc, and in a classifier."""
    folder = tmp_path
    laws = [law for law in registries.laws() if programs.has_header(law)]
    for number, law in enumerate(laws):
        built = programs.compile_law(law, programs.QDISC, f"fb_{number}")
        (folder / f"fb_{number}").write_bytes(built)
        classifier = programs.compile_law(law, programs.CLASSIFIER, "")
        (folder / f"{law}.o").write_bytes(classifier)
    done = virtual_machine.run(
        f"""
        for number in $(seq 0 {len(laws) - 1}); do
            bpftool struct_ops register $OUT/fb_$number && bpftool struct_ops unregister \
                name fb_$number || echo @failed $number
        done
        for law in {" ".join(laws)}; do
            bpftool prog load $OUT/$law.o /sys/fs/bpf/$law type tc && echo @loaded $law
        done
        """,
        out=folder,
    )
    failed = [laws[int(number)] for number in re.findall(r"@failed (\d+)", done.output)]
    assert not failed, done.output[-3000:]
    assert done.output.count("Unregistered Qdisc_ops fb_") == len(laws)
    assert re.findall(r"@loaded (\S+)", done.output) == laws


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.skipif(not programs.find("tc"), reason="needs iproute2")
def test_a_kernel_without_bpf_qdiscs_is_refused() -> None:
    """Without a change to this machine: it is refused, or not wanted."""
    words = [sys.executable, "-m", "forebay", "attach", "lo", "pi", "--rate", "15Mbit/s"]

    def said(*more: str) -> tuple[int, str]:
        done = subprocess.run(
            [*words, *more, "--dry-run"], capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout + done.stderr

    assert said("--front", "tap") == (
        2,
        'error: --front: "tap" is not valid; expected one of classifier, qdisc\n',
    )
    status, text = said("--front", "qdisc")
    if programs.offers("bpf_qdisc_init_prologue", "bpf_qdisc"):
        assert status == 0 and "f0ba: fb" in text
        status, text = said("--front", "qdisc", "--ecn")
        assert status == 2 and "--ecn" in text and "qdisc" in text
    else:
        assert status == 2 and "6.16" in text and text.count("\n") == 1
    status, text = said("--front", "classifier")
    assert status == 0 and ("net attach tcx_egress" in text or "filter add" in text)
