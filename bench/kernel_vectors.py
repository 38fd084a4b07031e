r"""Record how Linux's queues judge given packets, as test vectors of the laws in `forebay-aqm`.

    python bench/kernel_vectors.py [NAME ...]

Each vector is a run of the kernel engine (`forebay guest setup` builds the guest that it needs): a
list of packets, drawn with a fixed seed, arrives at a qdisc of the real kernel. The vector has the
arrival, the size, the ECN field, the time in the queue and the fate of every packet, and the law's
own state, as the qdisc reports it. The guest's clock is virtual, so the times are exact and a
vector is the same each time it is recorded with the same kernel.

A vector is a text file in `crates/forebay-aqm/tests/vectors`. Its head has lines `# key = value`.
`[packets]` has a line for each packet in the order of the arrivals: the time since the previous
arrival in ns, the size on the wire in bytes, the ECN field (0 to 3), the time in the queue in ns
(empty for a dropped packet), and the fate: `p` passed, `m` marked, `d` dropped. `[state]` has the
law's state variables, as `STATE` lists them for each qdisc: after each update of a periodic law,
and otherwise with the time since the previous line, at first since the first arrival.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from forebay._native import guest_packets
from forebay.experiment.experiment import read
from forebay.linux import guests
from forebay.linux.kernel_engine import ENGINE, GuestRun

FOLDER = Path(__file__).parents[1] / "crates/forebay-aqm/tests/vectors"
#: The state variables of each qdisc, with the number by which the recorded value is multiplied to
#: make it the kernel's integer: a time is in microseconds, and PIE's probability has 64 bits.
STATE = {
    "codel": {"count": 1, "signalling": 1, "delay": 10**6},
    "pie": {"p": 2**64, "delay": 10**6},
    "dualpi2": {"p_root": 2**32 - 1},
}
#: The qdiscs whose state changes at fixed times only, with the state variable that shows it.
PERIODIC = {"pie": "p", "dualpi2": "p_root"}
PACKET_BYTES = 1500
#: A sample takes at most this time: a process of the guest needs 256 ns for each look at the clock.
LATE_NS = 1500
MILLISECOND = 10**6
#: CoDel's clock has 32 bits, in units of 1024 ns.
WRAP_NS = 2**32 * 1024


@dataclass(frozen=True)
class Phase:
    """A period of Poisson arrivals, which may start with a burst of packets.

    Attributes
    ----------
    load : float
        Arrival rate, as a multiple of the link's rate.
    seconds : float
        Length of the period.
    ecn : sequence of int, default (0,)
        ECN fields among which each packet draws its own.
    burst : int, default 0
        Number of packets that arrive at the start of the period.
    """

    load: float
    seconds: float
    ecn: Sequence[int] = (0,)
    burst: int = 0


@dataclass(frozen=True)
class Vector:
    """A vector to record.

    Attributes
    ----------
    law : str
        Keys of the law in the scenario, as lines of TOML.
    phases : sequence of Phase
        The arrivals.
    seed : int
        Seed of the arrivals.
    rate_bps : int
        Rate of the link.
    buffer : str
        Buffer of the link.
    sample_ns : int
        Time between two samples of the law's state.
    middle_ns : int, optional
        Time of the guest's clock in the middle of the run; by default the run starts at once.
    change : (float, int), optional
        Time since the start of the arrivals in seconds at which the link's rate changes, and the
        new rate.
    """

    law: str
    phases: Sequence[Phase]
    seed: int = 1
    rate_bps: int = 3_000_000
    buffer: str = "5000p"
    sample_ns: int = 50_013_000
    middle_ns: int | None = None
    change: tuple[float, int] | None = None


#: Not ECN-capable, ECT(1), ECT(0).
NOT_ECT, ECT1, ECT0 = 0, 1, 2
MIXED = (NOT_ECT, ECT0)

#: Light load, overload, a pause that is shorter than 16 intervals, overload again, and a burst.
CODEL_PHASES = (
    Phase(0.6, 0.7),
    Phase(1.5, 1.5),
    Phase(0.2, 0.5, MIXED),
    Phase(1.6, 1.0, MIXED),
    Phase(0.3, 2.5, (ECT0,)),
    Phase(1.3, 1.5, (ECT0,), burst=40),
    Phase(0.5, 0.5),
)
#: Light load, a burst whose packets pass while PIE's burst allowance lasts, overload, a load near
#: the link's rate, and a burst that lasts for seconds.
PIE_PHASES = (
    Phase(0.7, 1.0, MIXED),
    Phase(1.5, 0.4, burst=100),
    Phase(1.2, 1.6),
    Phase(0.3, 1.5, (ECT0,)),
    Phase(1.0, 5.0, (ECT0,), burst=8),
    Phase(0.1, 1.0),
    Phase(1.1, 2.0, MIXED, burst=220),
    Phase(0.0, 2.0),
    Phase(0.9, 1.0, MIXED),
)
#: A time that is incommensurate with the updates of the laws, so that samples show at which times
#: the state changes.
FINE_NS = 1_013_000

VECTORS = {
    "codel": Vector('kind = "codel"', CODEL_PHASES),
    "codel-ce-threshold": Vector(
        'kind = "codel"\nce_threshold = "8ms"',
        (Phase(0.7, 1.0, MIXED), Phase(1.1, 3.0, MIXED), Phase(0.8, 1.5, (ECT0,))),
        seed=2,
    ),
    "codel-wrap": Vector(
        'kind = "codel"',
        (Phase(0.7, 1.0), Phase(1.4, 3.0, MIXED), Phase(0.8, 1.5, MIXED)),
        seed=3,
        middle_ns=WRAP_NS,
        sample_ns=60_000 * MILLISECOND,
    ),
    "cobalt": Vector('kind = "cake"', CODEL_PHASES, seed=4),
    "cobalt-slow": Vector(
        'kind = "cake"',
        tuple(Phase(of.load, 3 * of.seconds, of.ecn, of.burst // 3) for of in CODEL_PHASES),
        seed=5,
        rate_bps=1_000_000,
    ),
    "pie": Vector(
        'kind = "pie"', PIE_PHASES, seed=6, rate_bps=2_000_000, sample_ns=16 * MILLISECOND
    ),
    "pie-departure-rate": Vector(
        'kind = "pie"\nestimator = "linux-departure-rate"',
        PIE_PHASES,
        seed=7,
        rate_bps=2_000_000,
        sample_ns=16 * MILLISECOND,
        change=(2.0, 1_500_000),
    ),
    # Small gains and a long target keep the probability below 10 %, where PIE marks, for long.
    "pie-marks": Vector(
        'kind = "pie"\ntarget = "60ms"\nalpha = 0.0625\nbeta = 0.0625',
        (Phase(1.0, 9.0, (ECT0,), burst=20), Phase(0.2, 0.5, (ECT0,))),
        seed=10,
        rate_bps=2_000_000,
        sample_ns=16 * MILLISECOND,
    ),
    "dualpi2": Vector(
        'kind = "dualpi2"', PIE_PHASES, seed=18, rate_bps=2_000_000, sample_ns=8 * MILLISECOND
    ),
    # Without a step, the coupled probability alone marks the packets of the low latency queue.
    "dualpi2-l4s": Vector(
        'kind = "pi2"\nqueue = { kind = "dualpi2", step = "10s" }',
        tuple(replace(of, ecn=(ECT1,), burst=0) for of in PIE_PHASES),
        seed=9,
        rate_bps=2_000_000,
        sample_ns=8 * MILLISECOND,
    ),
}


def arrivals(vector: Vector) -> Iterator[tuple[int, int, int]]:
    """Yield time in ns, bytes and ECN field of each packet; nine of ten are full packets."""
    draws = random.Random(vector.seed)
    mean_bytes = 0.9 * PACKET_BYTES + 0.1 * 90
    start_s = 0.0
    for phase in vector.phases:
        end_s = start_s + phase.seconds
        times_s = [start_s] * phase.burst
        at_s = start_s
        while phase.load > 0.0:
            at_s += draws.expovariate(phase.load * vector.rate_bps / (8 * mean_bytes))
            if at_s >= end_s:
                break
            times_s.append(at_s)
        for at_s in times_s:
            size = PACKET_BYTES if draws.random() < 0.9 else 90
            yield round(at_s * 1e9), size, draws.choice(phase.ecn)
        start_s = end_s


def scenario(vector: Vector, start_ns: int, end_ns: int) -> str:
    """Return the scenario of a vector."""
    change = ""
    if vector.change is not None:
        time_s, rate_bps = vector.change
        time_ns = start_ns + round(time_s * 1e9)
        change = f'[[at]]\ntime = "{time_ns}ns"\nset = {{ "bottleneck.rate" = "{rate_bps}bit/s" }}'
    return f"""
duration = "{end_ns}ns"
measure  = ["0s", "{end_ns}ns"]
sample   = "{vector.sample_ns}ns"
seeds    = 1

[bottleneck]
rate   = "{vector.rate_bps}bit/s"
buffer = "{vector.buffer}"
ecn    = true

[[traffic]]
kind  = "arrivals"
file  = "packets.csv"
start = "{start_ns}ns"

[[law]]
{vector.law}

{change}

[kernel]
shaper = "htb"
pcap   = true
"""


@dataclass
class Recording(GuestRun):
    """A run that keeps the files of its guest."""

    files: dict[str, bytes] = field(default_factory=dict)

    def _run(self, folder: Path, console: int) -> float:
        used_s = super()._run(folder, console)
        for name in ("orders.json", "outcome.json", "packets", "starts", "samples"):
            self.files[name] = (folder / name).read_bytes()
        return used_s


def run(vector: Vector, packets: Sequence[tuple[int, int, int]], start_ns: int) -> dict[str, bytes]:
    """Run a vector's scenario on the kernel, and return the files of the guest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first_ns = packets[0][0]
        lines = ["time_s,size_bytes,flow,ecn"]
        lines += [f"{(at - first_ns) / 1e9:.9f},{size},0,{ecn}" for at, size, ecn in packets]
        (folder / "packets.csv").write_text("\n".join(lines) + "\n")
        end_ns = start_ns + packets[-1][0] + 500 * MILLISECOND
        path = folder / "vector.toml"
        path.write_text(scenario(vector, start_ns + first_ns, end_ns))
        experiment = read(path, engine=ENGINE)
        recording = Recording(
            experiment.plan,
            (0, 0, experiment.plan.seeds[0]),
            guests.chosen(),
            samples=True,
            scenario=folder,
        )
        recording.execute()
        return recording.files


@dataclass(frozen=True)
class Packet:
    """A packet of a vector; `left_ns` is None where it was dropped."""

    arrived_ns: int
    size: int
    ecn: int
    left_ns: int | None
    fate: str


def recorded(
    files: dict[str, bytes], packets: Sequence[tuple[int, int, int]], started_ns: int
) -> list[Packet]:
    """Return the packets in the order of their arrivals, with times of the guest's clock."""
    judged: dict[int, Packet] = {}
    for arrived_ns, left_ns, size, marked, start in guest_packets(
        files["packets"], files["starts"]
    ):
        # The identification in the IP header numbers the packets.
        number = int.from_bytes(start[4:6], "big") - 1
        fate = "d" if left_ns is None else "m" if marked else "p"
        departure_ns = None if left_ns is None else started_ns + left_ns
        expected_bytes, ecn = packets[number][1:]
        assert size == expected_bytes, f"packet {number} has {size} bytes"
        judged[number] = Packet(started_ns + arrived_ns, size, ecn, departure_ns, fate)
    assert sorted(judged) == list(range(len(packets))), "the guest lost a packet before the queue"
    return [judged[number] for number in range(len(packets))]


def samples(
    files: dict[str, bytes], vector: Vector, started_ns: int, kind: str
) -> list[tuple[int, dict[str, int]]]:
    """Return times of the guest's clock with the law's state, in the kernel's integers."""
    names = json.loads(files["outcome.json"])["probes"]
    assert names == list(STATE.get(kind, {})), names
    row = struct.Struct("<IQ" + "d" * len(names))
    states = []
    for number, values in enumerate(row.iter_unpack(files["samples"]), 1):
        units = STATE[kind].values() if names else ()
        state = dict(zip(names, map(_integer, values[2:], units), strict=True))
        states.append((started_ns + number * vector.sample_ns, state))
    return states


def _integer(value: float, unit: int) -> int:
    """Return an integer of the kernel. A product with a power of two is exact."""
    return int(value * unit) if unit & (unit - 1) == 0 else round(value * unit)


def updates(states: list[tuple[int, dict[str, int]]], name: str) -> tuple[int, int]:
    """Return the first time at which a periodic law changed its state, and the period.

    A change falls between two samples, and all changes fall on times that are a multiple of the
    period apart: the period and the first time follow from the samples alone, to about a
    microsecond.
    """
    changes = [
        (earlier_ns, later_ns)
        for (earlier_ns, before), (later_ns, after) in pairwise(states)
        if before[name] != after[name]
    ]
    assert len(changes) > 50, "too few changes"
    fits = []
    for period_ns in range(10 * MILLISECOND, 25 * MILLISECOND, MILLISECOND):
        base_ns = changes[0][0]
        low, high = 0, changes[0][1] - base_ns
        for earlier_ns, later_ns in changes[1:]:
            turns = (earlier_ns - base_ns + period_ns // 2) // period_ns
            low = max(low, earlier_ns - base_ns - turns * period_ns)
            high = min(high, later_ns - base_ns - turns * period_ns)
        if low < high + LATE_NS:
            fits.append((base_ns + (low + high) // 2, period_ns))
    assert len(fits) == 1, f"{len(fits)} periods fit the changes"
    return fits[0]


def after_updates(
    states: list[tuple[int, dict[str, int]]], first_ns: int, period_ns: int
) -> Iterator[dict[str, int]]:
    """Yield the state after each update, from the first sample that is surely later."""
    due_ns = first_ns + 2 * LATE_NS
    for at_ns, state in states:
        if at_ns >= due_ns:
            yield state
            due_ns += period_ns


def clear_of(packets: Sequence[Packet], at_ns: int) -> bool:
    """Return True if no packet arrived or left while a sample was taken.

    Otherwise their order is unknown, and the sample may have delayed the packet.
    """
    times = (at for packet in packets for at in (packet.arrived_ns, packet.left_ns))
    return all(time_ns is None or not 0 <= time_ns - at_ns <= LATE_NS for time_ns in times)


def write(name: str, vector: Vector, folder: Path = FOLDER) -> None:
    """Record a vector, and write it into a folder."""
    packets = list(arrivals(vector))
    # The first updates of a law come earlier, and bursts do not arrive when samples are taken.
    start_ns = 1_000_417_000
    if vector.middle_ns is not None:
        start_ns = vector.middle_ns - packets[-1][0] // 2
    files = run(vector, packets, start_ns)
    outcome = json.loads(files["outcome.json"])
    words = json.loads(files["orders.json"])["qdisc"]["words"]
    kind, started_ns = words.split()[0], outcome["started_ns"]
    judged = recorded(files, packets, started_ns)
    head = {
        "kernel": f"Linux {outcome['kernel']}",
        "qdisc": words,
        "law": vector.law.replace("\n", ", "),
        "rate_bps": vector.rate_bps,
        "first_arrival_ns": judged[0].arrived_ns,
    }
    lines = ["[packets]"]
    earlier_ns = judged[0].arrived_ns
    for packet in judged:
        waited = "" if packet.left_ns is None else packet.left_ns - packet.arrived_ns
        gap = packet.arrived_ns - earlier_ns
        lines.append(f"{gap},{packet.size},{packet.ecn},{waited},{packet.fate}")
        earlier_ns = packet.arrived_ns
    states = samples(files, vector, started_ns, kind)
    lines.append("[state]")
    if kind in PERIODIC:
        # A process of the guest takes time for each look at the clock, so a sample just before
        # an update delays it. These samples show when the updates are; those of the vector are
        # always at the same distance from them.
        fine = run(replace(vector, sample_ns=FINE_NS), packets, start_ns)
        times = samples(fine, replace(vector, sample_ns=FINE_NS), started_ns, kind)
        first_ns, period_ns = updates(times, PERIODIC[kind])
        # The vector begins with an update before the first arrival.
        first_ns -= ((first_ns - judged[0].arrived_ns) // period_ns + 1) * period_ns
        head |= {"first_update_ns": first_ns, "update_period_ns": period_ns}
        assert all(clear_of(judged, at_ns) for at_ns, _ in states), "use another seed"
        after = after_updates(states, first_ns, period_ns)
        lines += [",".join(map(str, state.values())) for state in after]
    elif kind in STATE and vector.middle_ns is None:
        earlier_ns = judged[0].arrived_ns
        for at_ns, state in states:
            if at_ns > earlier_ns and clear_of(judged, at_ns):
                lines.append(",".join(map(str, [at_ns - earlier_ns, *state.values()])))
                earlier_ns = at_ns
    text = [f"# {key} = {value}" for key, value in head.items()] + lines
    (folder / f"{name}.csv").write_text("\n".join(text) + "\n")
    counts = {letter: sum(packet.fate == letter for packet in judged) for letter in "pmd"}
    print(f"{name}: {len(judged)} packets {counts}")


def main() -> None:
    """Record the vectors that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(VECTORS))
    names = parser.parse_args().names or list(VECTORS)
    FOLDER.mkdir(exist_ok=True)
    for name in names:
        write(name, VECTORS[name])


if __name__ == "__main__":
    main()
