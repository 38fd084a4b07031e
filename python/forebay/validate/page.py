"""docs/reality.md: what the simulator gets right, what it does not, and why."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from forebay.docs import table
from forebay.metrics import METRICS
from forebay.validate.comparison import DELAY_S, DELAY_SHARE, SIGNAL_SHARE, Comparison, Row
from forebay.words import quantity


def markdown(found: Sequence[Comparison], command: str, void_lateness: str, void_rate: str) -> str:
    """The page; every number in it is from the runs, which `command` makes."""
    sections = [_section(one) for one in found]
    delay = f"{100 * DELAY_SHARE:g} % or {1e3 * DELAY_S:g} ms, whichever is wider"
    signals = f"{100 * SIGNAL_SHARE:g} %"
    void = (
        f"one packet in a thousand was released more than {quantity(void_lateness)} late, or the "
        f"rate is off by more than {void_rate}"
    )
    return f"""# The simulator beside real flows

```sh
{command}
```

writes this page. Each scenario is run twice: simulated, and over `forebay link`, where the same
law, in the same Rust code, has the packets of iperf3 flows of the Linux kernel before it. The
window of measurement, rate, propagation RTT, buffer and packet size are the same. A value is the
mean over the runs ± half its 95 % interval (Student's t); few real runs make it wide.

A law agrees where the mean delay is within {delay}, and the
packets dropped or marked within {signals}, both of the real value. A real run is void where the
machine could not keep time: {void}.
Void runs are made again, up to `--attempts` in all. Where none was sound, the void ones are shown
and the row says so: their numbers are an indication and no proof.

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
  of two packets per ACK are not. It matters: `forebay run experiments/reality/reno.toml --set
  traffic.0.delayed_ack=true` halves the simulated loss under PI, away from the real one. CUBIC
  counts packets on both sides, and has `delayed_ack = true`.

What no setting covers:

- **Synchronisation under DropTail**: flows of one RTT lose in the same overflow and halve
  together, in the simulator to the packet. Threads and stalls of a real machine spread them. With
  RTTs that differ by 1 ms (`--set 'traffic.0.rtt=["59ms", "60ms", "60.5ms", "61ms"]'`) the
  simulated queue under DropTail is longer, it swings half as far, and the loss is nearly doubled;
  what is measured lies between.
- **PI, PID and STPI below their set-point**: a probability near 1 % is cut at zero when the queue
  is short, here for some 3 % of PI's samples, and what is cut off is missing from the integral: the
  queue settles below the set-point, on both sides, and in the simulator after 200 s as after 25 s.
  The wider the swing the more is cut off, so a real queue that swings further lies lower.
- **Bursts under AVQ and E-AVQ**: they signal what overflows a virtual queue, so they see bursts
  where other laws see a mean. Two packets per delayed ACK, or what a busy machine holds back and
  lets go at once, change their delay and loss: the same `delayed_ack=true` makes AVQ's simulated
  queue longer and swing further.
- **Headers**: the simulator's goodput counts whole packets. The kernel's packets carry 52 bytes
  of headers, timestamps included, so its goodput of a full link is 1448/1500, or 3.5 %, less;
  utilisation is the number to compare.
- **HyStart**: the kernel's CUBIC leaves slow start when the RTT rises; the simulator's does so at
  the first loss. The window of measurement starts later than that.
- **CUBIC above its last window**: RFC 9438 (section 4.3) lets the Reno-friendly window grow with
  α = 1 from the size at which it was last reduced; the simulator does so, the kernel keeps
  α = 0.53. A simulator built with the kernel's α, for this page, loses within 5 % of what was
  measured under all laws but AVQ and E-AVQ: this is why CUBIC's simulated loss is too high, and
  PD-RED's deviation.
- **CUBIC's β and arithmetic**: β is 717/1024 in the kernel, 0.7 in RFC 9438. The kernel's windows
  are whole packets, and here they are about 10.
- **ACK timing**: the kernel's receiver acknowledges every packet at first, and waits 40 to 200 ms
  for a second packet, 100 ms in the simulator.
- **Start**: flows draw their start times from the same interval, but not the same times; the
  processes of a busy machine start late.
- **Lateness**: a stall of the emulator holds the queue still, often while senders and receivers
  wait for the same processor. What was due meanwhile is then sent at once, as a burst.

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
    if len(none_sound) == len(rows):
        text += " No law had a sound one."
    elif none_sound:
        text += f" No run was sound of: {', '.join(none_sound)}."
    return text


def _lateness(rows: Sequence[Row]) -> str:
    late_s = sorted(value for row in rows for value in row.real.values("lateness_p99_s"))
    return (
        f"In the median run 99 % of the packets left within {1e3 * statistics.median(late_s):.2g} "
        f"ms of their time, in the worst within {1e3 * late_s[-1]:.2g} ms."
    )
