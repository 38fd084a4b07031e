"""Soak test of `forebay link`: inject faults under load and look for what each of them leaves.

    python -m bench.link_soak --seconds 600

Each round starts a link with traffic in both directions and, at a random moment, injects one fault:
the link is killed, its command kills all that it can, its command leaves a crowd of processes, or
the file system for captures is full. After each round no process, no network namespace, no file in
the temporary folder and no mount of the round may be left. The script prints a table by fault, and
its exit status is 1 if anything was left. It needs iperf3, and root for the full disk, which is
left out otherwise.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

#: The name of this variable marks every process of a round.
MARK = "FOREBAY_SOAK"
#: Time that processes and files of a round have to disappear before they count as left.
PATIENCE_S = 15.0
#: Longest time of a round, and of its traffic before the fault.
ROUND_S, LOAD_S = 90.0, (0.5, 3.0)
#: Number of processes that a command leaves, and size of the disk that is full.
CROWD, DISK_KB = 500, 256
RATE = ["--rate", "50Mbit/s", "--delay", "5ms", "--buffer", "200p", "--aqm", "pi2", "-q"]
SERVER = "iperf3 -s -1 >/dev/null"
LOAD = "iperf3 -c $FOREBAY_SERVER -P 4 --bidir -t 60 >/dev/null 2>&1"


@dataclass
class Round:
    """A link under load with a fault.

    Attributes
    ----------
    folder : Path
        Folder of the link's temporary files.
    mark : str
        Value of the variable `MARK`, which marks the processes of the round.
    random : random.Random
        Random numbers of the round.
    process : subprocess.Popen or None
        The link; None before it starts.
    """

    folder: Path
    mark: str
    random: random.Random
    process: subprocess.Popen[bytes] | None = None

    def start(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        """Start the link; its command is a line for the shell."""
        words = [sys.executable, "-m", "forebay", "link", *RATE, *options]
        self.process = subprocess.Popen(
            [*words, "--server", SERVER, "--", "sh", "-c", command],
            env={**os.environ, MARK: self.mark, "TMPDIR": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder.parent / "stderr").open("wb"),
            start_new_session=True,
        )
        return self.process

    def load(self) -> None:
        """Wait until the traffic runs, and then for a random time."""
        end_s = time.monotonic() + ROUND_S
        while time.monotonic() < end_s:
            if sum("iperf3" in line for line in processes(self.mark).values()) >= 2:
                break
            time.sleep(0.05)
        time.sleep(self.random.uniform(*LOAD_S))


def kill_link(round_: Round) -> None:
    """Kill the emulator while a daemon of its command is up."""
    process = round_.start(f"setsid sleep 600 & {LOAD}")
    round_.load()
    process.kill()


def terminate_link(round_: Round) -> None:
    """Ask the link to end."""
    process = round_.start(f"setsid sleep 600 & {LOAD}")
    round_.load()
    process.terminate()


def command_kills(round_: Round) -> None:
    """Let the command kill its keeper, and then everything that it can."""
    after_s = round_.random.uniform(*LOAD_S)
    attack = f"sleep {after_s:.2f}; kill -9 $PPID; kill -9 -1; exit 3"
    round_.start(f"setsid sleep 600 & {LOAD} & {attack}")


def kill_command(round_: Round) -> None:
    """Kill the command and the program for which it waits."""
    round_.start(f"setsid sleep 600 & {LOAD}")
    round_.load()
    for pid, line in processes(round_.mark).items():
        if line.startswith(("sh\0", "iperf3\0-c")):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def kill_keeper(round_: Round) -> None:
    """Kill the keepers from outside, as the kernel may when memory is short."""
    round_.start(f"setsid sleep 600 & {LOAD}")
    round_.load()
    for pid in processes(round_.mark):
        try:
            if Path(f"/proc/{pid}/comm").read_text() == "forebay-keeper\n":
                os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def crowd(round_: Round) -> None:
    """Leave a crowd of processes in sessions of their own."""
    fork = f"for i in $(seq {CROWD}); do setsid sleep 600 >/dev/null 2>&1 & done; {LOAD} & sleep 1"
    round_.start(fork)


def full_disk(round_: Round) -> None:
    """Write captures to a file system that soon fills up."""
    disk = round_.folder / "disk"
    disk.mkdir()
    size = f"size={DISK_KB}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", disk], check=True)
    round_.start(f"timeout 4 {LOAD}; exit 0", "--pcap", str(disk / "pcap"))


FAULTS: list[Callable[[Round], None]] = [
    *(kill_link, terminate_link, command_kills, kill_command, kill_keeper, crowd, full_disk),
]


def processes(mark: str) -> dict[int, str]:
    """Return the command lines of the processes of a round by process number."""
    command_lines = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}\0".encode() in (
                (entry / "environ").read_bytes()
            ):
                command_lines[int(entry.name)] = (entry / "cmdline").read_text()
        except OSError:
            continue
    return command_lines


def namespaces() -> set[str]:
    """Return the network namespaces that have a process."""
    identities = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                identities.add(os.readlink(entry / "ns" / "net"))  # noqa: PTH115 -- no path: net:[1]
        except OSError:
            continue
    return identities


@contextmanager
def a_round(number: int, seed: int) -> Iterator[Round]:
    """Make the folder of a round; at its end, remove its processes, mounts and files."""
    top = Path(tempfile.mkdtemp(prefix=f"forebay-soak-{os.getpid()}-"))
    folder = top / "tmp"
    folder.mkdir()
    try:
        yield Round(folder, f"{os.getpid()}-{number}", random.Random(f"{seed} {number}"))
    finally:
        for pid in processes(f"{os.getpid()}-{number}"):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if (folder / "disk").is_mount():
            subprocess.run(["umount", folder / "disk"], check=True)
        shutil.rmtree(top)


@dataclass
class Tally:
    """Outcome of the rounds with one fault.

    Attributes
    ----------
    rounds : int
        Number of rounds.
    gone_s : list of float
        Times between the end of the link's process and the end of its last remains, in seconds.
    remains : list of str
        Descriptions of processes and files that stayed, and of links that did not end.
    """

    rounds: int = 0
    gone_s: list[float] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)


def leftovers(round_: Round) -> list[str]:
    """Return descriptions of the processes and files that a round has left."""
    remains = [f"process {pid}: {line!r}" for pid, line in processes(round_.mark).items()]
    files = (
        path for path in round_.folder.rglob("*") if round_.folder / "disk" not in path.parents
    )
    return remains + [f"file {path}" for path in files if path.name != "disk"]


def play(fault: Callable[[Round], None], round_: Round, tally: Tally) -> None:
    """Play one round and add its outcome to the tally."""
    tally.rounds += 1
    fault(round_)
    assert round_.process is not None
    try:
        round_.process.wait(ROUND_S)
    except subprocess.TimeoutExpired:
        tally.remains.append(f"the link did not end within {ROUND_S:g} s")
        return
    ended_s = time.monotonic()
    while (remains := leftovers(round_)) and time.monotonic() < ended_s + PATIENCE_S:
        time.sleep(0.02)
    tally.gone_s.append(time.monotonic() - ended_s)
    tally.remains += remains


def main() -> int:
    """Run rounds for the requested time and print their outcome."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    faults = [fault for fault in FAULTS if fault is not full_disk or os.geteuid() == 0]
    tallies: dict[str, Tally] = defaultdict(Tally)
    before = namespaces()
    start_s, number = time.monotonic(), 0
    while time.monotonic() < start_s + arguments.seconds:
        fault = faults[number % len(faults)]
        with a_round(number, arguments.seed) as round_:
            play(fault, round_, tallies[fault.__name__])
        number += 1
    print(f"{number} rounds in {time.monotonic() - start_s:.0f} s, seed {arguments.seed}\n")
    print("| fault | rounds | until all is gone: median, worst | left |\n|---|---|---|---|")
    for name, tally in tallies.items():
        gone_s = sorted(tally.gone_s) or [float("nan")]
        description = globals()[name].__doc__.rstrip(".")
        times = f"{gone_s[len(gone_s) // 2]:.2f} s, {gone_s[-1]:.2f} s"
        print(f"| {description} | {tally.rounds} | {times} | {len(tally.remains)} |")
    remains = [line for tally in tallies.values() for line in tally.remains]
    print("\n".join(remains))
    # Other programs may have made namespaces in the meantime, so the numbers are only printed.
    print(f"network namespaces before and after: {len(before)}, {len(namespaces())}")
    return bool(remains)


if __name__ == "__main__":
    sys.exit(main())
