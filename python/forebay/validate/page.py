"""docs/reality.md: what the simulator gets right, what it does not, and why."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from forebay.docs import table
from forebay.metrics import METRICS
from forebay.validate.comparison import DELAY_S, DELAY_SHARE, SIGNAL_SHARE, Comparison, Row


def markdown(found: Sequence[Comparison], command: str, void_lateness: str, void_rate: str) -> str:
    """The page; every number in it is from the runs, which `command` makes."""
    sections = [_section(one) for one in found]
    return f"""# The simulator beside real flows

`{command}`
writes this page. Each scenario is run twice: simulated, and over `forebay link`,
where the same law, in the same Rust code, has the packets of iperf3 flows of the Linux kernel
before it. Window of measurement, rate, propagation RTT, buffer and packet
size are the same. A value is the mean over the runs ± half its 95 % interval (Student's t); few
real runs make it wide.

A law agrees where the mean delay is within {DELAY_SHARE:.0%} or {1e3 * DELAY_S:g} ms, whichever is
wider, and the packets dropped or marked within {SIGNAL_SHARE:.0%}, both of the real value. A real
run is void where the machine could not keep time: one packet in a thousand released more than
{void_lateness} late, or a rate that is off by more than {void_rate}. Void runs are made again; a
law for which none was sound shows its void runs and says so.

{chr(10).join(sections)}
## What differs, and why

Settings of the scenario that follow the kernel's sender:

- **Initial window**: 10 packets (`initial_window = "10p"`; RFC 6928), where the simulator's
  default is 2.
- **Recovery**: the kernel always has SACK, with RACK (RFC 8985) and PRR (RFC 6937) on top. The
  simulator's `sack` and `cubic` recover with SACK; they have neither RACK's timer nor PRR, and
  halve at once where PRR lets the packets under way fall over a round trip.
- **Growth under delayed ACKs**: the kernel's Reno adds one packet per window of *acknowledged
  packets* (as RFC 3465 allows), the simulator's one per window of *ACKs* (RFC 5681, as ns-2
  counts). So the Reno scenario has `delayed_ack = false`: the growth is then the same, the bursts
  of two packets per ACK are not. CUBIC counts packets on both sides, and has `delayed_ack = true`.

What no setting covers:

- **Headers**: the simulator's goodput counts whole packets. The kernel's packets carry 52 bytes
  of headers, timestamps included, so its goodput of a full link is 1448/1500, or 3.5 %, less;
  utilisation is the number to compare.
- **HyStart**: the kernel's CUBIC leaves slow start when the RTT rises; the simulator's does so at
  the first loss. The window of measurement starts later than that.
- **CUBIC's β and arithmetic**: β is 717/1024 in the kernel, 0.7 in RFC 9438. It computes windows
  in whole packets, which matters for windows of about 10.
- **ACK timing**: the kernel's receiver acknowledges every packet at first, and waits 40 to 200 ms
  for a second packet, 100 ms in the simulator.
- **Start**: flows draw their start times from the same interval, but not the same times; the
  processes of a busy machine start late.
- **Lateness**: a stall of the emulator holds the queue still while senders and receivers wait for
  the same processor. It adds to the delay that packets see and to the RTT, not to the link's rate.

TSO is not among them: below 1 Gbit/s the link takes segments apart before the queue, so that a
law sees packets of 1500 bytes.
"""


def _section(found: Comparison) -> str:
    agree = [row for row in found.rows if row.agrees]
    lines = [
        f"## {found.title}\n",
        f"`{found.path}`: {found.simulated_runs} simulated runs, {_repeats(found.rows)} real ones "
        f"of each law. **{len(agree)} of {len(found.rows)} agree.** {_void(found.rows)} "
        f"{_lateness(found.rows)}\n",
    ]
    head = ["law", "side", *(METRICS[name].heading for name in found.metrics), "verdict"]
    cells = []
    for row in found.rows:
        name = f"{row.law}, {row.point}" if row.point else row.law
        verdict = row.verdict() + (", void" if row.counts_void else "")
        cells.append([name, "simulated", *(row.simulated.text(m) for m in found.metrics), ""])
        cells.append(["", "real", *(row.real.text(m) for m in found.metrics), verdict])
    lines.append(table(head, cells))
    return "\n".join(lines)


def _repeats(rows: Sequence[Row]) -> str:
    least, most = min(row.repeats for row in rows), max(row.repeats for row in rows)
    return str(least) if least == most else f"{least} to {most}"


def _void(rows: Sequence[Row]) -> str:
    void, again = sum(row.void for row in rows), sum(row.again for row in rows)
    total = sum(row.repeats for row in rows)
    if not void and not again:
        return f"None of the {total} real runs was void."
    none_sound = [row.law for row in rows if row.counts_void]
    text = f"Of {total} real runs {void} stayed void"
    text += f", after {again} void runs were made again." if again else "."
    if none_sound:
        text += f" No run was sound of: {', '.join(none_sound)}."
    return text


def _lateness(rows: Sequence[Row]) -> str:
    late_s = sorted(value for row in rows for value in row.real.values("lateness_p99_s"))
    return (
        f"In the median run 99 % of the packets left within {1e3 * statistics.median(late_s):.2g} "
        f"ms of their time, in the worst within {1e3 * late_s[-1]:.2g} ms."
    )
