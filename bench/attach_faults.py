"""Soak test of `attach` and `detach` with injected faults, which
`python -m bench.attach_soak --faults` calls.

Each round puts a random law on a device of its own namespace, lets traffic pass, and injects one
fault: a kill at a random moment, a new name, a move to another namespace, the end of the device or
of its namespace, a full disk, a record that is lost or damaged, somebody else's program. Then it
cleans up by the documented commands alone, and the kernel is asked what is left.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.linux import namespaces, programs, records, tcx
from forebay.linux.programs import answer
from tools.routed_path import sh

FOREBAY = [sys.executable, "-m", "forebay"]
LAWS = ("pi", "red", "pi-pd", "avq", "stpi", "blue", "p-avg")
#: A command is killed within this time, which is about the duration of an attach.
KILL_WITHIN_S = 2.0
#: Time limit of a command, with patience for a busy machine.
TIMEOUT_S = 120
#: Size of the file system of records in a round with a full disk.
FULL_BYTES = 4096
#: Time limit in which the kernel frees a program after its last holder has ended.
FREED_S = 5.0


@dataclass
class Soak:
    """State of a soak test.

    Attributes
    ----------
    tag : str
        Tag in the names of its two namespaces.
    folder : Path
        Folder of temporary files of the commands.
    drawn : random.Random
        Random numbers of the test.
    counts : Counter of str
        Counts of faults, exit statuses and kills.
    leaks : list of str
        Descriptions of everything that was left or wrong.
    """

    tag: str
    folder: Path
    drawn: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)

    @property
    def near(self) -> str:
        """Name of the namespace in which the device is made."""
        return f"n{self.tag}"

    @property
    def other(self) -> str:
        """Name of the namespace to which the device is moved."""
        return f"o{self.tag}"

    def command(self, *words: str, name: str = "") -> list[str]:
        """Return a command line that runs in the named namespace, by default in `near`."""
        return ["nsenter", f"--net=/run/netns/{name or self.near}", *words]

    def forebay(self, *words: str, name: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of Forebay to its end; a traceback counts as a leak."""
        done = subprocess.run(
            self.command(*FOREBAY, *words, name=name),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            env=self.environment(),
        )
        self.counts[f"{words[0]}: status {done.returncode}"] += 1
        if "Traceback" in done.stderr:
            self.leaks.append(f"{' '.join(words)}: {done.stderr}")
        return done

    def environment(self) -> dict[str, str]:
        """Return the environment of the commands."""
        return {**os.environ, "TMPDIR": str(self.folder)}

    def attach(self) -> list[str]:
        """Return an `attach` command with a random law and rate."""
        law = self.drawn.choice(LAWS)
        return ["attach", "eth0", law, "--rate", f"{self.drawn.randint(5, 50)}Mbit/s"]


def make(soak: Soak) -> None:
    """Make the namespaces and the device, in half of the cases with qdiscs."""
    sh(f"""
        for n in {soak.near} {soak.other}; do ip netns add $n; ip -n $n link set lo up; done
        ip link add eth0 netns {soak.near} type veth peer name peer0 netns {soak.near}
        ip -n {soak.near} addr add 10.9.4.1/24 dev eth0
        ip -n {soak.near} link set eth0 up; ip -n {soak.near} link set peer0 up
        ip -n {soak.near} neigh add 10.9.4.2 lladdr 02:00:00:00:00:09 dev eth0
    """)
    if soak.drawn.random() < 0.5:
        sh(f"""
            tc -n {soak.near} qdisc add dev eth0 root handle 5: tbf rate 90mbit burst 9001 \
                latency 40ms peakrate 99mbit mtu 2000
            tc -n {soak.near} qdisc add dev eth0 parent 5:1 handle 6: pfifo limit 77
        """)


def qdiscs(soak: Soak) -> str:
    """Return the qdiscs of the device as `tc` prints them."""
    done = subprocess.run(
        ["tc", "-n", soak.near, "qdisc", "show", "dev", "eth0"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def traffic(soak: Soak) -> subprocess.Popen[bytes]:
    """Start a process that sends packets of 1000 bytes to an address without a receiver."""
    words = (
        "import socket, time\n"
        "out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "while True:\n"
        "    try:\n"
        "        out.sendto(bytes(1000), ('10.9.4.2', 9))\n"
        "    except OSError:\n"
        "        time.sleep(0.01)\n"
        "    time.sleep(0.0002)\n"
    )
    return subprocess.Popen(soak.command(sys.executable, "-c", words))


# --- the faults ---------------------------------------------------------------------------------


def no_fault(soak: Soak) -> None:
    """Change and show the law, without a fault."""
    soak.forebay("kernel", "change", "eth0", "rate=7Mbit/s")
    soak.forebay("kernel", "show", "eth0")


def killed_detach(soak: Soak) -> None:
    """Kill a `detach` at a random moment."""
    killed(soak, ["detach", "eth0"])


def renamed(soak: Soak) -> None:
    """Rename the device, and detach by its old or new name."""
    sh(f"ip -n {soak.near} link set eth0 down; ip -n {soak.near} link set eth0 name wan0")
    soak.forebay("detach", soak.drawn.choice(["eth0", "wan0"]))
    sh(f"ip -n {soak.near} link set wan0 name eth0; ip -n {soak.near} link set eth0 up")


def moved(soak: Soak) -> None:
    """Move the device to the other namespace, and detach in either of the two."""
    sh(f"ip -n {soak.near} link set eth0 netns {soak.other}")
    soak.forebay("kernel", "list")
    soak.forebay("detach", "eth0", name=soak.drawn.choice([soak.near, soak.other]))


def device_gone(soak: Soak) -> None:
    """Delete the device."""
    sh(f"ip -n {soak.near} link del eth0")
    soak.forebay("kernel", "show", "eth0")


def namespace_gone(soak: Soak) -> None:
    """Delete the namespace, and make an empty one of the same name."""
    sh(f"ip netns del {soak.near}; ip netns add {soak.near}")


def full_disk(soak: Soak) -> None:
    """Attach while the file system of the records is full; the command must say so."""
    soak.forebay("detach", "eth0")
    records.RUN.mkdir(mode=0o700, exist_ok=True)
    sh(f"mount -t tmpfs -o size={FULL_BYTES},mode=0700 none {records.RUN}")
    try:
        (records.RUN / "full").write_bytes(bytes(FULL_BYTES))
        done = soak.forebay(*soak.attach())
        if "No space left on device" not in done.stderr:
            soak.leaks.append(f"full disk: {done.stdout}{done.stderr}")
    finally:
        sh(f"umount {records.RUN}; rmdir {records.RUN}")


def lost_record(soak: Soak) -> None:
    """Delete the record of the law, and attach again."""
    for file in _records():
        file.unlink()
    soak.forebay(*soak.attach())


def damaged_record(soak: Soak) -> None:
    """Change random bytes of the record and cut it short, and let commands read it."""
    for file in _records():
        data = bytearray(file.read_bytes())
        for _ in range(soak.drawn.randint(1, 20)):
            data[soak.drawn.randrange(len(data))] = soak.drawn.randrange(256)
        file.write_bytes(data[: soak.drawn.randint(0, len(data))])
    soak.forebay("kernel", "list")
    soak.forebay("kernel", "show", "eth0")


def replaced_qdisc(soak: Soak) -> None:
    """Replace the law's root qdisc by a foreign one, and detach."""
    sh(f"tc -n {soak.near} qdisc replace dev eth0 root handle 9: pfifo limit 9")
    soak.forebay("detach", "eth0")
    sh(f"tc -n {soak.near} qdisc del dev eth0 root")


def several_at_once(soak: Soak) -> None:
    """Run four commands on the device at the same time."""
    words = [
        soak.attach(),
        ["detach", "eth0"],
        ["kernel", "change", "eth0", "rate=9Mbit/s"],
        soak.attach(),
    ]
    running = [
        subprocess.Popen(
            soak.command(*FOREBAY, *arguments),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=soak.environment(),
        )
        for arguments in words
    ]
    for process in running:
        process.wait(TIMEOUT_S)


def interrupted_attach(soak: Soak) -> None:
    """Interrupt an `attach` at a random moment, as Ctrl-C does."""
    soak.forebay("detach", "eth0")
    killed(soak, soak.attach(), signal.SIGINT)


def killed_attach(soak: Soak) -> None:
    """Kill an `attach` at a random moment."""
    soak.forebay("detach", "eth0")
    killed(soak, soak.attach())


FAULTS: list[Callable[[Soak], None]] = [
    *(no_fault, killed_attach, killed_attach, killed_detach, killed_detach, interrupted_attach),
    *(renamed, moved, device_gone, namespace_gone, full_disk, lost_record, damaged_record),
    *(replaced_qdisc, several_at_once),
]
#: Faults after which the qdiscs of the device differ, because the fault changes or removes them.
CHANGES = ("moved", "device_gone", "namespace_gone", "lost_record", "damaged_record")
CHANGES += ("replaced_qdisc",)


def killed(soak: Soak, words: list[str], number: int = signal.SIGKILL) -> None:
    """Run a command of Forebay and send it a signal at a random moment."""
    process = subprocess.Popen(
        soak.command(*FOREBAY, *words),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=soak.environment(),
    )
    with suppress(subprocess.TimeoutExpired):
        process.wait(soak.drawn.uniform(0.2, KILL_WITHIN_S))
    has_ended = process.poll() is not None
    process.send_signal(number)
    process.wait(TIMEOUT_S)
    soak.counts[f"{words[0]}: {'ended before' if has_ended else 'killed'}"] += 1
    # Programs that the command called end by themselves.
    time.sleep(0.3)


def _records() -> list[Path]:
    """Return the records of attached laws."""
    return sorted(records.ATTACHED.glob("*.json")) if records.ATTACHED.is_dir() else []


# --- a round and its remains --------------------------------------------------------------------


def round_of(soak: Soak, fault: Callable[[Soak], None]) -> None:
    """Play a round with a fault, clean up, and add all that is left to the leaks."""
    name = fault.__name__
    soak.counts[f"fault: {name}"] += 1
    make(soak)
    before = qdiscs(soak)
    sending = traffic(soak)
    try:
        soak.forebay(*soak.attach())
        fault(soak)
    finally:
        sending.kill()
        sending.wait()
    # Only the documented commands clean up.
    soak.forebay("detach", "eth0")
    soak.forebay("detach", "--stale")
    if name not in CHANGES and qdiscs(soak) != before:
        soak.leaks.append(f"{name}: qdiscs were\n{before}and are\n{qdiscs(soak)}")
    for place in (soak.near, soak.other):
        for device, ids in namespaces.inside(namespaces.NAMED / place, _programs).items():
            if ids:
                soak.leaks.append(f"{name}: programs {ids} at {device} of {place}")
    if "f0ba:" in qdiscs(soak):
        soak.leaks.append(f"{name}: {qdiscs(soak)}")
    files = [str(path) for path in soak.folder.iterdir()]
    if files:
        soak.leaks.append(f"{name}: temporary files {files}")
    if records.RUN.exists():
        soak.leaks.append(f"{name}: {[str(path) for path in records.RUN.rglob('*')]}")
    for place in (soak.near, soak.other):
        sh(f"ip netns del {place}")


def _programs() -> dict[str, list[int]]:
    """Return the programs that are attached to each device of the present namespace."""
    return {name: tcx.attached(index) for index, name in socket.if_nameindex()}


def _of_the_kernel() -> dict[str, int]:
    """Return the numbers of programs and mounts of laws, and of all maps, in the kernel."""
    listed: list[dict[str, Any]] = answer("bpftool", "-j", "prog", "show") or []
    mounts = Path("/proc/mounts").read_text()
    return {
        "programs": sum(program.get("name") == programs.PROGRAM_NAME for program in listed),
        "maps": len(answer("bpftool", "-j", "map", "show") or []),
        "mounts": mounts.count(str(records.RUN)),
    }


def soak(seconds: float, seed: int) -> int:
    """Run rounds for the given time and return the exit status, 1 if anything is left."""
    if records.RUN.exists():
        print(f"{records.RUN} is there already: detach its laws first", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="attach-faults-"))
    testbed = Soak(f"fs{os.getpid()}", folder, random.Random(seed))
    before, begun_s, rounds = _of_the_kernel(), time.monotonic(), 0
    try:
        while time.monotonic() - begun_s < seconds:
            # Every fault has its turn once, in a random order.
            if rounds % len(FAULTS) == 0:
                order = testbed.drawn.sample(FAULTS, len(FAULTS))
            round_of(testbed, order[rounds % len(FAULTS)])
            rounds += 1
            if testbed.leaks:
                break
    finally:
        for name in (testbed.near, testbed.other):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        shutil.rmtree(folder)
    deadline_s = time.monotonic() + FREED_S
    while (after := _of_the_kernel()) != before and time.monotonic() < deadline_s:
        time.sleep(0.2)
    print(f"{rounds} rounds in {time.monotonic() - begun_s:.0f} s, seed {seed}")
    for name, count in sorted(testbed.counts.items()):
        print(f"  {name}: {count}")
    print(f"of the kernel before: {json.dumps(before)}")
    print(f"of the kernel after:  {json.dumps(after)}")
    for leak in testbed.leaks:
        print(f"LEFT: {leak}")
    whole = not testbed.leaks and after == before
    print("nothing is left" if whole else "something is left")
    return 0 if whole else 1
