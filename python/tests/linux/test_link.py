"""Real packets over a real link. Nothing here asserts how punctual the machine is: it may be
busy, and then a run says that it is void."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import pty
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pages
import polars as pl
import pytest
from conftest import Cli, command
from links import (
    PATIENCE_S,
    blast,
    commands_with,
    in_real_time,
    keepers,
    marked,
    needs_iperf3,
    needs_link,
    needs_ping,
    nothing_stays,
)

import forebay
from forebay import _native
from forebay.linux import doctor, link_outcome, settings
from forebay.linux import run as run_link
from forebay.linux.link_settings import OPTIONS, words

__all__ = ["marked", "nothing_stays"]  # fixtures that are in force here

pytestmark = needs_link


@in_real_time
@needs_ping
@pytest.mark.parametrize("device", ["tun", "packets"])
def test_ping_takes_the_delay_in_both_versions(device: str) -> None:
    with forebay.link("15Mbit/s", "30ms", delay_up="10ms", device=device) as net:
        for address in filter(None, [net.server.address, net.server.address6]):
            done = net.client.run(
                ["ping", "-c", "4", "-i", "0.1", address], capture_output=True, text=True
            )
            best_ms = float(done.stdout.split("min/avg/max/mdev = ")[1].split("/")[0])
            assert 40 <= best_ms < 60
    assert net.outcome is not None
    assert net.outcome.up["forwarded_packets"] >= 8


@needs_ping
def test_lateness_is_measured_when_metrics_are() -> None:
    for measure, some in (("0s..", True), ("1h..", False)):
        with forebay.link("15Mbit/s", measure=measure) as net:
            net.client.run(["ping", "-c", "1", net.server.address], capture_output=True)
        assert net.outcome is not None
        assert bool(net.outcome.lateness.bins) == some


@in_real_time
@pytest.mark.parametrize("device", ["tun", "packets"])
def test_packets_that_waited_for_the_emulator_make_the_run_void(device: str) -> None:
    with forebay.link("15Mbit/s", device=device) as net:
        emulator_is = net._emulator.process
        sender = net.client.popen(blast(100, 3000, 1.5, net.server.address))
        time.sleep(0.7)
        emulator_is.send_signal(signal.SIGSTOP)
        time.sleep(0.4)
        emulator_is.send_signal(signal.SIGCONT)
        sender.wait()
    assert net.outcome is not None
    assert any("was fetched more than" in reason for reason in net.outcome.void)


@in_real_time
@needs_iperf3
def test_tcp_fills_the_link_under_pi(tmp_path: Path, cli: Cli) -> None:
    done = cli(
        *("link", "--rate", "15Mbit/s", "--delay", "10ms", "--buffer", "150p", "--aqm", "pi"),
        *("--set", "target=40p", "--set", "a=0.00355", "--set", "b=0.00335"),
        *("--measure", "2s..5s", "--server", "iperf3 -s -1 >/dev/null", "--out", "out", "--"),
        *("iperf3", "-c", "198.18.0.2", "-C", "reno", "-P", "5", "-t", "5", "-J"),
    )
    assert done.returncode == 0, done.stderr
    received = json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]
    out = tmp_path / "out"
    table = json.loads((out / "metrics.json").read_text())
    up, down = (run["metrics"] for run in table["runs"])
    assert set(up) >= {"queue_mean_pkts", "goodput_bps", "lateness_p99_s", "void"}
    # 52 of 1500 bytes are headers.
    assert up["goodput_bps"] == pytest.approx(15e6 * 1448 / 1500, rel=0.1)
    assert up["goodput_bps"] == pytest.approx(received, rel=0.15)
    assert 20 < up["queue_mean_pkts"] < 80
    assert up["early_drop_rate"] > 0
    assert up["utilisation"] > 0.9
    # Acknowledgements alone go down.
    assert down["queue_mean_pkts"] < 1
    samples = pl.read_parquet(out / "samples.parquet")
    assert {"p", "queue_pkts", "time_s"} <= set(samples.columns)
    # Of the way of the acknowledgements there is nothing to draw. The first is at a glance.
    names = pages.check((out / "report.html").read_text())
    assert len(names) == 4 and all("up (client to server)" in name for name in names), names
    link = json.loads((out / "link.json").read_text())
    assert link["ways"]["up"]["asked_bps"] == pytest.approx(15e6, rel=1e-6)
    assert link["ways"]["up"]["achieved_bps"] == pytest.approx(15e6, rel=0.05)
    default = link_outcome.DEFAULT_CONGESTION_CONTROL.read_text().strip()
    assert link["default_congestion_control"] == default
    assert f"default congestion control is {default}, for" in (out / "report.html").read_text()
    assert link["ways"]["up"]["congestion_controls"] == {"reno": 5}
    assert "hardly follow" not in done.stderr
    # The way of the acknowledgements is idle, which leaves an overview nothing to compare.
    figures = [path.name for path in (out / "figures").iterdir()]
    assert "queue-1.png" in figures and "load.png" not in figures
    flows = pl.read_parquet(out / "flows.parquet")["point"].cast(pl.String)
    assert flows.to_list() == ["up (client to server)"] * 5


@in_real_time
@pytest.mark.parametrize("host", ["198.18.0.2", "2001:2::2"])
def test_ect_is_marked_and_not_ect_dropped(host: str) -> None:
    """Twice the rate of ECT(0), and of Not-ECT, through RED."""
    red = {"min_th": "5p", "max_th": "500p", "max_p": 1, "w_q": 0.1}
    receive = """
import socket, sys
got = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
got.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
got.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
got.bind(("::", 9000))
print("ready", flush=True)
got.settimeout(1)
seen = {}
try:
    while True:
        _, extra, _, _ = got.recvmsg(100, 100)
        ecn = extra[0][2][0] & 3
        seen[ecn] = seen.get(ecn, 0) + 1
except TimeoutError:
    print(seen)
"""
    with forebay.link("2Mbit/s", aqm="red", params=red, buffer="800p") as net:
        receiver = net.server.popen(
            [sys.executable, "-c", receive], stdout=subprocess.PIPE, text=True
        )
        assert receiver.stdout is not None
        receiver.stdout.readline()
        for tos in (0b10, 0):
            net.client.run(blast(472, 1000, 0.7, host, tos))
        seen = eval(receiver.communicate(timeout=PATIENCE_S)[0])
    assert net.outcome is not None
    up = net.outcome.directions[0].run.samples
    marks, early = int(up["marks"].sum()), int(up["early_drops"].sum())
    assert marks > 20 and early > 20
    # Every mark arrives as CE, by a packet that the kernel's checksums let through; ECT(0) that
    # was not marked is still ECT(0), and Not-ECT is never marked.
    assert seen[0b11] == marks
    assert seen.get(0b10, 0) > 0 and seen.get(0b00, 0) > 0
    assert sum(seen.values()) == int(up["arrivals"].sum()) - early - int(up["forced_drops"].sum())


@in_real_time
def test_a_storm_of_small_packets_is_survived() -> None:
    """Ten times the rate in packets of 64 bytes: the queue overflows, and the run ends well."""
    outcome = run_link(
        settings("1Mbit/s", buffer="50p"),
        blast(36, 20_000, 1.0, "198.18.0.2"),
        timeout_s=PATIENCE_S,
    )
    up = outcome.directions[0].run.samples
    assert outcome.status == 0
    assert int(up["overflow_drops"].sum()) > 3 * outcome.up["forwarded_packets"]
    assert int(up["queue_pkts"].max()) <= 50


def test_broken_packets_are_carried_or_dropped() -> None:
    """Raw sockets send what no stack would; the link goes on."""
    send = """
import random, socket, time
random.seed(1)
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for i in range(2000):
    size = random.choice([20, 21, 28, 40, 576, 1500])
    packet = bytearray(random.randbytes(size))
    packet[0] = 0x40 | random.choice([5, 5, 6, 15])
    packet[6:8] = random.choice([b"\\0\\0", b"\\x20\\0", b"\\0\\x10"])
    packet[12:20] = socket.inet_aton("198.18.0.1") + socket.inet_aton("198.18.0.2")
    try:
        out.sendto(packet, ("198.18.0.2", 0))
    except OSError:
        pass
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(20):
    udp.sendto(bytes(60_000), ("198.18.0.2", 9000))
time.sleep(0.5)  # what waits is carried before the link ends
"""
    outcome = run_link(
        settings("20Mbit/s", "1..5ms", aqm="red"),
        [sys.executable, "-c", send],
        timeout_s=PATIENCE_S,
    )
    assert outcome.status == 0
    assert outcome.up["forwarded_packets"] > 100


@in_real_time
def test_a_recorded_trace_is_replayed(tmp_path: Path) -> None:
    """Opportunities in bursts, with an outage: what is delivered is what was recorded."""
    times = list(range(1, 400, 2)) + [t for t in range(600, 1001) for _ in (0, 1)]
    trace = tmp_path / "cell.down"
    trace.write_text("".join(f"{t}\n" for t in times))
    outcome = run_link(
        settings(trace=trace, buffer="2000p", measure="0.5s..3s"),
        blast(1472, 2500, 3.2, "198.18.0.2"),
        timeout_s=PATIENCE_S,
    )
    up = outcome.directions[0].run.samples
    inside = (up["time_s"] > 0.5) & (up["time_s"] < 3.0)
    assert up["capacity_bits"][inside].sum() == pytest.approx(
        8 * 1500 * (2 * len(times) + 802), rel=0.02
    )
    assert outcome.up["utilisation"] == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("super_packets", [False, True])
def test_data_arrives_whole(super_packets: bool) -> None:
    """Drops and marks within super-packets cut them apart; TCP notices what is not right."""
    receive = """
import hashlib, socket
listener = socket.create_server(("", 7000))
print("ready", flush=True)
connection, _ = listener.accept()
digest = hashlib.sha256()
while data := connection.recv(1 << 16):
    digest.update(data)
print(digest.hexdigest())
"""
    send = """
import hashlib, random, socket
out = socket.create_connection(("198.18.0.2", 7000))
data = random.Random(1).randbytes(6_000_000)
out.sendall(data)
print(hashlib.sha256(data).hexdigest())
"""
    with forebay.link(
        "100Mbit/s",
        "2ms",
        "100p",
        "pi",
        {"target": "10p"},
        super_packets=super_packets,
        loss="0.5%",
    ) as net:
        receiver = net.server.popen(
            [sys.executable, "-c", receive], stdout=subprocess.PIPE, text=True
        )
        assert receiver.stdout is not None
        receiver.stdout.readline()
        sent = net.client.run(
            [sys.executable, "-c", send], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert receiver.communicate(timeout=PATIENCE_S)[0] == sent.stdout
    assert net.outcome is not None
    assert net.outcome.observed.directions[0].lost_packets > 0
    # Segments are counted, not super-packets.
    assert net.outcome.up["forwarded_packets"] > 4000


def test_statuses_pass_through(cli: Cli) -> None:
    def link(*words: str) -> subprocess.CompletedProcess[str]:
        return cli("link", "-q", "--rate", "10Mbit/s", "--", *words)

    assert link("sh", "-c", "exit 7").returncode == 7
    assert link("sh", "-c", "kill -9 $$").returncode == 128 + 9
    missing = link("no-such-program")
    assert missing.returncode == 127 and "no-such-program" in missing.stderr
    assert link("sh", "-c", "echo $FOREBAY_CLIENT $FOREBAY_SERVER").stdout == (
        "198.18.0.1 198.18.0.2\n"
    )


def test_options_and_arguments_are_those_that_are_declared(cli: Cli) -> None:
    shown = cli("link", "--help").stdout
    arguments = inspect.signature(forebay.link).parameters
    names = {option: name for name, option in OPTIONS.items()}
    declared = [option["name"] for option in _native.link_options()]
    assert {"rate", "rate_up", "set", "set_up", "void_lateness"} <= set(declared)
    for name in declared:
        assert f"--{name.replace('_', '-')}" in shown
        assert names.get(name, name) in arguments
    assert len(arguments) == len(declared)
    with pytest.raises(TypeError, match="dealy"):
        settings("15Mbit/s", dealy="1ms")


def test_settings_are_carried_to_another_process_as_they_are() -> None:
    wanted = settings(
        "15Mbit/s", "20..200ms", "64kB", "pi", {"target": "20p", "a": 3e-4}, loss_up=0.01, seed=7
    )
    same = pickle.loads(pickle.dumps(wanted))
    assert same.given == wanted.given
    assert same.up.loss == 0.01 and same.down.loss == 0.0
    assert same.up.law.params == wanted.down.law.params
    assert words(wanted)[:4] == ["--rate", "15Mbit/s", "--delay", "20..200ms"]
    assert "a=0.0003" in words(wanted) and "--seed" in words(wanted)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], 'rate: missing; expected either a rate with its unit, such as "45Mbit/s" ('),
        (
            ["--rate", "15"],
            'rate: "15" is not valid; expected a rate with its unit, such as "45Mbit/s" (',
        ),
        (
            ["--rate", "15Mbit/s", "--rate-up", "x"],
            'rate-up: "x" is not valid; expected a rate with its unit, such as "45Mbit/s" (',
        ),
        (
            ["--rate", "15Mbit/s", "--aqm", "pike"],
            'aqm: "pike" is not valid; expected one of droptail, red, pi, ',
        ),
        (
            ["--rate", "15Mbit/s", "--aqm", "pi", "--set", "target=2000p"],
            'aqm pi: target: "2000p" is not valid; expected at most the buffer, "1000p"\n',
        ),
        (
            ["--rate", "15Mbit/s", "--aqm", "pi", "--set", "tarqet=20p"],
            "aqm pi: tarqet: unknown key; expected one of target, a, b, interval, queue_in_bytes ("
            'did you mean "target"?)\n',
        ),
        (
            ["--rate", "15Mbit/s", "--aqm-up", "pi", "--buffer-up", "20p", "--gains", "paper"],
            'aqm-up pi: target: "200p" (the default) is not valid; expected at most the buffer, '
            '"20p"\n',
        ),
        (
            ["--rate", "15Mbit/s", "--set", "target=20p"],
            "aqm droptail: target: unknown key; expected no parameters\n",
        ),
        (
            ["--rate", "15Mbit/s", "--seed", "99999999999999999999"],
            'seed: "99999999999999999999" is not valid; expected a whole number from 0 to '
            "18446744073709551615\n",
        ),
        (
            ["--rate", "15Mbit/s", "--loss", "200%"],
            'loss: "200%" is not valid; expected a share from 0 to 1, such as "1%" or "0.01"\n',
        ),
        (
            ["--rate", "15Mbit/s", "--mtu", "100"],
            "mtu: 100 is not valid; expected a value from ",
        ),
        (
            ["--trace", "no-such-file"],
            'trace: "no-such-file": no such file or directory; expected a file with ',
        ),
        (
            ["--rate", "15Mbit/s", "--measure", "5s"],
            'measure: "5s" is not valid; expected a range of time, such as "5s.." or "5s..25s"\n',
        ),
    ],
)
def test_wrong_settings_get_one_line(
    cli: Cli, tmp_path: Path, options: list[str], expected: str
) -> None:
    done = cli("link", *options, "--out", "out", "--", "touch", "ran")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: link: {expected}"), done.stderr
    assert done.stderr.count("\n") == 1
    assert not any((tmp_path / name).exists() for name in ("out", "ran"))


def started(*words: str, **options: Any) -> subprocess.Popen[str]:
    """`forebay link` with a command that says when it runs."""
    process = subprocess.Popen(
        command("link", "-q", "--rate", "10Mbit/s", "--", *words),
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


#: Leaves a child in a session of its own, as a daemon does.
DAEMON = "setsid sleep 600 & echo ready; exec sleep 600"


def mark() -> str:
    """What the environment of every process of this test has."""
    return f"PYTEST_LINK={os.getpid()}"


def all_gone() -> bool:
    """True once no process of this test is left; numbers within the link are not ours."""
    deadline = time.monotonic() + 10
    while (some := commands_with(mark())) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not some


def runs(pid: int) -> bool:
    """Whether it has not ended; who adopted it may not have waited for it yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not runs(pid)


def test_nothing_stays_when_the_emulator_is_killed() -> None:
    with started("sh", "-c", DAEMON) as process:
        assert keepers()
        process.kill()
        assert all_gone()


def test_nothing_stays_when_the_command_ends() -> None:
    with started("sh", "-c", "setsid sleep 600 & echo ready; exit 3") as process:
        assert process.wait(PATIENCE_S) == 3
        assert all_gone()


def namespaces_without_proc() -> list[str] | None:
    """Words before a command that may make no PID namespace; None where that cannot be had."""
    limit = 'echo 0 > /proc/sys/user/max_pid_namespaces && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "sh", "-c", limit, "sh"]
    done = subprocess.run([*words, "true"], capture_output=True, check=False)
    return words if done.returncode == 0 else None


@pytest.mark.parametrize("pid_namespace", [True, False])
def test_a_command_that_kills_its_keeper_leaves_nothing(pid_namespace: bool) -> None:
    """Nor one that kills all it may; where there can be no PID namespace the keeper dies."""
    before = [] if pid_namespace else namespaces_without_proc()
    if before is None:
        pytest.skip("no user namespaces here")
    attack = "setsid sleep 600 & sleep 0.3; kill -9 $PPID; sleep 0.3"
    # Without a PID namespace this would end the tests, too.
    attack += "; kill -9 -1; exit 6" if pid_namespace else "; exit 6"
    done = subprocess.run(
        [*before, *command("link", "-q", "--rate", "10Mbit/s", "--", "sh", "-c", attack)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == (6 if pid_namespace else 128 + 9), done.stderr
    assert all_gone()


def test_daemons_end_where_there_is_no_pid_namespace() -> None:
    before = namespaces_without_proc()
    if before is None:
        pytest.skip("no user namespaces here")
    leave = "setsid sh -c 'setsid sleep 600 & sleep 600' & sleep 0.3; exit 5"
    words = [*before, *command("link", "-q", "--rate", "10Mbit/s", "--", "sh", "-c", leave)]
    assert subprocess.run(words, check=False, timeout=PATIENCE_S).returncode == 5
    assert all_gone()


@in_real_time
def test_a_thousand_processes_that_the_command_leaves_end_at_once() -> None:
    """One after another, each by a walk over /proc, they took a minute on a busy machine."""
    leave = (
        "import os, time\n"
        "for _ in range(1000):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid(); os.close(1); os.close(2); time.sleep(600)\n"
        "print(time.time())"
    )
    words = command("link", "-q", "--rate", "10Mbit/s", "--", sys.executable, "-c", leave)
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert time.time() - float(done.stdout) < 15
    assert all_gone()


@in_real_time
def test_the_commands_own_view_of_processes_agrees() -> None:
    """`ps` shows what `kill` reaches, and a user namespace within has a /proc, too."""
    look = (
        "test $(readlink /proc/self) -gt 1 && ps -o comm= -p 1 && ps -o pid= -p $$ >/dev/null && "
        "sleep 600 & sleep 0.2; kill $(ps -o pid= -C sleep | tail -1); wait $!; echo $?; "
        "unshare --user --map-root-user --pid --fork --mount-proc ps -o pid=,comm="
    )
    words = command("link", "-q", "--rate", "10Mbit/s", "--", "sh", "-c", look)
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.stdout.split() == ["forebay-keeper", "143", "1", "ps"], done


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_controls_its_jobs_and_the_terminal_comes_back(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    link = shlex.join(command("link", "-q", "--rate", "10Mbit/s", "--", shell))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", f"{link}; read line; echo got $line"])
    said = b""
    # Each line is typed once the one before has been answered.
    for line, answer in [
        ("sleep 600 & sleep 0.1; jobs; echo a''b", b"ab\r\n"),
        ("kill %1; fg; echo c''d", b"cd\r\n"),
        ("exit 3", None),
        ("typed", b"got typed"),
    ]:
        os.write(terminal, f"{line}\n".encode())
        end_s = time.monotonic() + PATIENCE_S
        while answer and answer not in said and time.monotonic() < end_s:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    said += os.read(terminal, 4096)
                except OSError:
                    break
    assert os.waitpid(pid, 0)[1] == 0
    os.close(terminal)
    text = said.decode()
    assert "Running" in text and "got typed" in text, text
    for complaint in ("cannot", "Cannot", "no job control"):
        assert complaint not in text, text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_passed_on(number: signal.Signals) -> None:
    trap = f"trap 'echo got; exit 5' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    with started("sh", "-c", trap) as process:
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE_S)[0] == "got\n"
        assert process.returncode == 5


def test_nothing_stays_when_a_program_dies_within_the_context() -> None:
    program = """
import forebay, os, signal
with forebay.link("10Mbit/s") as net:
    print(net.server.popen(["sleep", "600"]).pid)
    net.client.run(["sh", "-c", "setsid sleep 600 & echo $!"])
    os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen(
        [sys.executable, "-uc", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        left = [int(process.stdout.readline()) for _ in range(2)]
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
        assert all(map(gone, left))


def test_an_error_within_the_context_ends_all() -> None:
    with pytest.raises(RuntimeError), forebay.link("10Mbit/s") as net:
        process = net.client.popen(["sleep", "600"])
        raise RuntimeError
    assert process.poll() is not None
    assert net.outcome is not None


def test_a_place_takes_words() -> None:
    with forebay.link("10Mbit/s") as net:
        with pytest.raises(TypeError, match="list of words"):
            net.client.run("echo one two")
        with pytest.raises(TypeError, match="list of words"):
            net.client.run(["echo one two"], shell=True)
        for missing in ("no-such-program", "./no-such-program"):
            with pytest.raises(FileNotFoundError):
                net.client.popen([missing])


def test_daemons_end_with_the_context() -> None:
    daemon = "setsid sleep 600 >/dev/null 2>&1 & echo $!"
    outside = subprocess.Popen(["sleep", "600"])
    with forebay.link("10Mbit/s") as net:
        done = net.server.run(["sh", "-c", daemon], capture_output=True, text=True)
        left = int(done.stdout)
        while os.getsid(left) != left:
            time.sleep(0.01)
    assert not runs(left)
    assert outside.poll() is None
    outside.kill()
    outside.wait()


def test_a_timeout_does_not_wait_for_a_daemons_output() -> None:
    """Its own process: one that waits for ever is stopped."""
    program = """
import forebay, subprocess
with forebay.link("10Mbit/s") as net:
    try:
        net.client.run(["sh", "-c", "setsid sleep 600 & sleep 600"], capture_output=True, timeout=1)
    except subprocess.TimeoutExpired as error:
        print(error.cmd[0])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S
    )
    assert done.stdout == b"sh\n"


def test_an_interrupt_while_it_comes_up_ends_the_link() -> None:
    """It waits for a server that never listens."""
    program = """
import signal
from forebay.linux import run, settings
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    run(settings("10Mbit/s"), ["true"], server="sleep 600")
except KeyboardInterrupt:
    print("interrupted", flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not keepers() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "interrupted\n"
        # The program goes on.
        assert not keepers()
        process.communicate("\n")


def test_a_program_that_goes_on_after_ctrl_c_keeps_its_link() -> None:
    program = """
import forebay, os, signal, time
signal.signal(signal.SIGINT, lambda *_: print("handled"))
with forebay.link("10Mbit/s") as net:
    os.killpg(0, signal.SIGINT)
    time.sleep(0.3)
    net.client.run(["echo", "still there"])
"""
    done = subprocess.run(
        [sys.executable, "-uc", program], stdout=subprocess.PIPE, start_new_session=True, check=True
    )
    assert done.stdout == b"handled\nstill there\n"


def test_a_fork_of_the_program_does_not_keep_the_link() -> None:
    program = """
import forebay, os, signal, time
with forebay.link("10Mbit/s") as net:
    fork = os.fork()
    if fork == 0:
        time.sleep(600)
print(net.outcome is not None)
os.kill(fork, signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"True\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to give up a capability")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not here: util-linux")
@pytest.mark.parametrize("without", ["net_raw", "net_admin", "sys_admin"])
def test_a_part_of_the_capabilities_is_no_hindrance(without: str) -> None:
    # As in a container with `--cap-add`.
    lessened = ["setpriv", "--bounding-set", f"-{without}", "--inh-caps", f"-{without}"]
    words = command("link", "-q", "--rate", "10Mbit/s", "--device", "packets", "--", "true")
    done = subprocess.run(
        [*lessened, *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    if "a user namespace" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr


def test_links_nest(cli: Cli) -> None:
    inner = command("link", "-q", "--rate", "5Mbit/s", "--", "sh", "-c", "echo $FOREBAY_SERVER")
    done = cli("link", "-q", "--rate", "10Mbit/s", "--", *inner)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "198.18.0.2\n"


@needs_ping
@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to become nobody")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not here: util-linux")
@pytest.mark.parametrize("device", ["tun", "packets"])
def test_anybody_may(device: str) -> None:
    """Nobody, without any privilege, and without a way to any."""
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    # Nobody may not enter root's home, where this interpreter may lie; the system's can do too.
    path = os.pathsep.join(map(str, [Path(forebay.__file__).parents[1], *sys.path[1:]]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}

    def works(*words: str) -> bool:
        done = subprocess.run(
            [*nobody, *words], env=environment, cwd="/", capture_output=True, check=False
        )
        return done.returncode == 0

    pythons = [sys.executable, "/usr/bin/python3"]
    python = next((one for one in pythons if works(one, "-c", "import forebay.cli")), None)
    if python is None:
        pytest.skip("nobody may not read this installation")
    if device == "tun" and not works("test", "-w", "/dev/net/tun"):
        pytest.skip("nobody may not open /dev/net/tun")
    words = ["--rate", "15Mbit/s", "--delay", "5ms", "--device", device, "--"]
    program = "id -u; ping -c 2 -i 0.2 198.18.0.2 >/dev/null && echo there and back"
    done = subprocess.run(
        [
            *(*nobody, "--no-new-privs", python, "-m", "forebay", "link", "-q"),
            *(*words, "sh", "-c", program),
        ],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    if "a user namespace" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout == "65534\nthere and back\n", done.stderr


def test_the_link_has_no_way_out() -> None:
    """What runs behind it cannot reach the machine's own network, and the other way round."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = str(listener.getsockname()[1])
    reach = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
    outcome = run_link(
        settings("10Mbit/s"),
        [sys.executable, "-c", reach],
        timeout_s=PATIENCE_S,
        stderr=subprocess.DEVNULL,
    )
    assert outcome.status == 1


def test_two_laws_are_two_laws() -> None:
    wanted = settings(
        "10Mbit/s", aqm="pi", params={"target": "20p"}, aqm_up="red", rate_up="2Mbit/s"
    )
    outcome = run_link(wanted, blast(972, 200, 0.5, "198.18.0.2"), timeout_s=PATIENCE_S)
    result = outcome.result()
    assert list(result.metrics["law"]) == ["red", "pi"]
    assert list(result.metrics["point"]) == ["up (client to server)", "down (server to client)"]
    assert "--aqm-up red" in result.experiment.command


def test_metrics_are_served_while_it_runs(cli: Cli) -> None:
    """From the machine's own network, which the link is not on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["link", "-q", "--rate", "2Mbit/s", "--aqm", "pi", "--metrics", str(port), "--"]
    with subprocess.Popen(command(*words, *blast(972, 100, 600, "198.18.0.2"))) as process:
        deadline = time.monotonic() + PATIENCE_S
        text = ""
        while not re.search(r'_packets_total\{direction="up",kind="pi"\} [1-9]', text):
            assert time.monotonic() < deadline
            time.sleep(0.1)
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as page:
                    text = page.read().decode()
            except OSError:
                continue
        process.terminate()
    assert 'forebay_link_rate_bits_per_second{direction="up",kind="pi"} 2000000' in text
    dashboard = json.loads(
        (Path(__file__).parents[3] / "docs/reference/link-grafana.json").read_text()
    )
    asked = re.findall(r"forebay_link_\w+", json.dumps(dashboard))
    assert set(asked) <= set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    taken = cli("link", "--rate", "2Mbit/s", "--metrics", "192.0.2.1:80", "--", "true")
    assert taken.returncode == 2 and taken.stderr.startswith(
        'error: link: metrics: "192.0.2.1:80" cannot be used ('
    )
    assert taken.stderr.endswith(
        "expected an address of this machine with a free port, such as 127.0.0.1:9100\n"
    )


def test_captures_and_lines(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        *("link", "--rate", "1Mbit/s", "--buffer", "10p", "--pcap", "cap", "--watch", "--"),
        *blast(972, 400, 1.5, "198.18.0.2"),
    )
    assert done.returncode == 0
    assert re.search(r"^ +\d\.\d s up +[\d.]+ Mbit/s, queue", done.stderr, re.MULTILINE)
    client, server = ((tmp_path / "cap" / f"{e}.pcapng").read_bytes() for e in ("client", "server"))
    # The magic number of a section, and the comments.
    assert client[:4] == server[:4] == b"\x0a\x0d\x0d\x0a"
    assert client.count(b"dropped: overflow") > 100 and b"dropped" not in server


@pytest.mark.parametrize(
    ("options", "program", "status"),
    [
        (["--out", "out"], "exit 0", 0),
        (["--out", "out"], "exit 5", 5),
        (["--out", "out", "--measure", "1000s.."], "sleep 0.2", 0),
        (["--measure", "1000s.."], "sleep 0.2; exit 3", 3),
    ],
)
def test_a_run_that_is_too_short_to_measure_is_reported(
    cli: Cli, tmp_path: Path, options: list[str], program: str, status: int
) -> None:
    # A sample is taken later than such a run ends, on any machine.
    done = cli("link", "--rate", "10Mbit/s", "--sample", "60s", *options, "--", "sh", "-c", program)
    assert done.returncode == status
    window = "1000s.." if "--measure" in options else "0s.."
    tail = "; no file was written" if "--out" in options else ""
    assert re.search(
        rf"^forebay link: the run of \S+ m?s was too short: it has no sample within "
        rf"the measurement window {re.escape(window)}{tail}$",
        done.stderr,
        re.MULTILINE,
    ), done.stderr
    assert "nan" not in done.stderr
    assert not (tmp_path / "out").exists()


#: Sends so many bytes with a congestion control to a server that reads them, for a second.
SEND = """
import socket, sys, time
out = socket.socket()
out.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[1].encode())
out.connect(("198.18.0.2", 7000))
out.sendall(bytes(int(sys.argv[2])))
time.sleep(1)
"""
RECEIVE = f"""{sys.executable} -c '
import socket
connection, _ = socket.create_server(("", 7000)).accept()
while connection.recv(65536): pass
'"""


@pytest.mark.parametrize(
    ("control", "sent_bytes", "seen"),
    [("reno", 200_000, {"reno": 1}), ("bbr", 200_000, {"bbr": 1}), ("bbr", 100, {})],
)
def test_a_warning_names_the_congestion_control_of_a_sender(
    cli: Cli, tmp_path: Path, control: str, sent_bytes: int, seen: dict[str, int]
) -> None:
    """Of the sender's own choice, not of the kernel's default; and only of one with data."""
    if control not in doctor._available().split():
        pytest.skip(f"the kernel has no {control}: modprobe tcp_{control}")
    done = cli(
        *("link", "--rate", "10Mbit/s", "--server", RECEIVE, "--out", "out", "--no-report", "--"),
        *(sys.executable, "-c", SEND, control, str(sent_bytes)),
    )
    assert done.returncode == 0, done.stderr
    ways = json.loads((tmp_path / "out" / "link.json").read_text())["ways"]
    assert ways["up"]["congestion_controls"] == seen
    assert ways["up"]["tcp_flows"] == len(seen)
    assert ways["down"]["congestion_controls"] == {}
    assert ("hardly follow" in done.stderr) == ("bbr" in seen)


def test_what_is_not_seen_is_taken_for_the_default() -> None:
    assert "is bbr, which hardly reacts" in link_outcome.unresponsive_flows({}, 1, "bbr")
    assert link_outcome.unresponsive_flows({}, 0, "bbr") == ""
    assert link_outcome.unresponsive_flows({"cubic": 1}, 2, "bbr") == ""
    assert "2 bbr;" in link_outcome.unresponsive_flows({"bbr": 2, "reno": 1}, 3, "reno")


@in_real_time
@needs_iperf3
def test_a_missed_set_point_gets_a_hint(cli: Cli) -> None:
    """Default gains do not hold 5 packets under ten flows; own ones are the user's affair."""

    def lines(*options: str) -> str:
        done = cli(
            *("link", "--rate", "10Mbit/s", "--delay", "10ms", "--buffer", "200p", "--aqm", "pi"),
            *("--gains", "paper", "--set", "target=5p", *options, "--measure", "0.5s..2s"),
            *("--server", "iperf3 -s -1 >/dev/null", "--"),
            *("iperf3", "-c", "198.18.0.2", "-C", "reno", "-P", "10", "-t", "2"),
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    hint = re.search(r"target 5 packets: .*`forebay (design pi --rate .*)`", lines())
    assert hint and "--rtt 20ms --flows 10 --target 5p --buffer 200p" in hint[1]
    assert cli(*hint[1].split(), "--json").returncode == 0
    assert "forebay design" not in lines("--set", "a=1e-6", "--set", "b=9e-7")
