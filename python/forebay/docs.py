"""The pages of `docs/` that are written from the declarations.

`python -m forebay.docs DIR` writes them; a test checks that they are up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forebay import _native
from forebay.run.metrics import COST

if TYPE_CHECKING:
    from forebay._native import KeyInfo, RegistryEntry


def main() -> None:
    """Writes every page into the folder named on the command line."""
    folder = Path(sys.argv[1])
    for name, text in pages().items():
        (folder / name).write_text(text)
        print(folder / name)


def pages() -> dict[str, str]:
    """File name and text of every generated page."""
    return {
        "laws.md": laws(),
        "metrics.md": metrics(),
        "queues.md": queues(),
        "scenario.md": scenario(),
    }


def _sections(entries: Iterable[RegistryEntry]) -> str:
    """A section for each entry of a registry, with its parameters."""
    sections = [
        f"## `{law['name']}`\n\n{law['title']}.\n\nSource: {law['source']}.\n\n"
        + (
            table(
                ["parameter", "unit", "default", "range", "meaning"],
                (
                    [
                        f"`{p['name']}`",
                        p["unit"],
                        p["default_text"],
                        bounds(p["min"], p["max"]),
                        p["doc"],
                    ]
                    for p in law["params"]
                ),
            )
            if law["params"]
            else "It has no parameters.\n"
        )
        for law in entries
    ]
    return "\n".join(sections)


def laws() -> str:
    """The laws."""
    head = (
        "# The laws\n\n"
        "Written from the declarations by `make docs`; `forebay laws` prints the same.\n"
        "A range is in the unit of its row; `p` is packets. To *signal* a packet is to mark it\n"
        "where it is ECN-capable and its queue marks, and to drop it elsewhere.\n"
        "[new-law.md](new-law.md) tells how to add a law, [references.md](references.md) has the\n"
        "sources in full.\n\n"
    )
    return head + _sections(_native.laws())


def queues() -> str:
    """The queue disciplines."""
    head = (
        "# The queue disciplines\n\n"
        "Written from the declarations by `make docs`; `forebay queues` prints the same.\n\n"
        "A discipline holds the packets of a queue, and acts on the verdicts of its laws. A law "
        "names\n"
        "its discipline in a [scenario](scenario.md), and `fifo` is the default:\n\n"
        '```toml\n[[law]]\nkind  = "pi"\n'
        'queue = "priority"                       # or { kind = "priority", dscp = 46 }\n```\n\n'
        "[new-queue.md](new-queue.md) tells how to add a discipline.\n\n"
    )
    return head + _sections(_native.queues())


def metrics() -> str:
    """The measures of a run."""
    of_runs = {entry["name"] for entry in _native.metrics()} - {COST}
    rows = [
        [
            f"`{entry['claim']}`",
            f"`{entry['name']}`" if entry["name"] in of_runs else "",
            entry["title"],
            entry["unit"],
            entry["doc"],
        ]
        for entry in _native.measures()
    ]
    head = (
        "# Metrics and measures\n\n"
        "Written from the declarations by `make docs`. The code is `crates/forebay-trace`;\n"
        "[new-measure.md](new-measure.md) tells how to add to it.\n\n"
        "Every run has the metrics, in `metrics.json` in s, bit/s and shares of 1; `costs.json`\n"
        "has what differs from call to call, as `user_cpu_s`. A paper's [claims](replay.md) take\n"
        "metrics and measures over any window.\n\n"
    )
    classes = [
        [f"`{entry['name']}`", entry["title"], entry["unit"], entry["doc"]]
        for entry in _native.class_metrics()
    ]
    return (
        head
        + table(["in claims", "in metrics.json", "title", "unit", "meaning"], rows)
        + CLASSES
        + table(["in metrics.json", "title", "unit", "meaning"], classes)
        + TABLES
        + table(["file", "a row for"], [[f"`{it}.parquet`", row] for it, row in TABLE_ROWS])
    )


CLASSES = """
## Classes

Some [queues](queues.md) tell classes of packets apart: `dualpi2` has `l4s` and `classic`, `cake`
its tins (`best-effort`, `background`, `video`, `voice`, or `precedence-0` to `precedence-7`), `fq`
has `sparse` and `bulk`, by the list from which a packet leaves, and `priority` has `high` and
`low`. For each class, a run in `metrics.json` and a line of `--json` have under `classes`:

"""

TABLES = """
## Tables

Parquet, in the folder of `--out`; each row has `law`, `point`, `seed` and `link`. The last four are
written where they have rows.

"""

TABLE_ROWS = [
    ("metrics", "a run and link"),
    ("samples", "a sample: `time_s`, the backlog, counts, what the law reports"),
    ("delays", "a bin of the queuing delay: its upper end `delay_s`, and `packets`"),
    ("flows", "a flow: its `traffic`, counted from 0, and `goodput_bps`"),
    ("classes", "a `class`, with the metrics above"),
    ("class_delays", "a `class` and a bin of its queuing delay"),
    (
        "transfers",
        "a transfer that was done: its `traffic`, `packets`, and `took_s` from the SYN to the last "
        "ACK",
    ),
    (
        "goodput",
        "an interval that ends at `time_s`, and a `flow` of a traffic of up to 20, or a `quantile` "
        "over the flows of a larger one",
    ),
]


SCENARIO = """\
# The scenario file

Written from the declarations by `make docs`. `forebay schema` prints a JSON Schema for
editors. A range is in seconds, bit/s, bytes or packets, as the key has it.

A whole scenario: three loads of one link under two laws.

```toml
# loads.toml
duration = "20s"

[bottleneck]
rate   = "10Mbit/s"
buffer = "200p"

[[traffic]]
kind  = "ftp"
flows = 10
rtt   = ["40ms", "80ms"]

[[law]]
kind   = "pi"
target = "50p"

[[law]]
kind = "droptail"

[sweep]
"traffic.ftp.flows" = [5, 10, 20]
```

```console
$ forebay run loads.toml --seeds 2
```

"""

#: Text after the keys of a section.
MORE = {
    "law": """\
All other keys are parameters of the law: [laws.md](laws.md). [queues.md](queues.md) lists the
queues.
""",
    "traffic (voice)": """\
```toml
[[traffic]]
kind  = "voice"            # G.711: 200 bytes every 20 ms
flows = 4
rtt   = "40ms"
talk  = "1.004s"
pause = "1.587s"
start = { uniform = ["0s", "20ms"] }
```

The metrics `voice_delay_s`, `voice_jitter_s` and `voice_loss` tell what the calls get.
""",
    "traffic (frames)": """\
```toml
[[traffic]]
kind     = "frames"
flows    = 1
rtt      = "40ms"
packet   = "1500B"
frame    = "12p"
interval = "33.3ms"
```
""",
    "traffic (video)": """\
```toml
[[traffic]]
kind           = "video"
flows          = 2
rtt            = "40ms"
packet         = "1500B"
header         = "52B"
tcp            = "linux-cubic"
initial_window = "10p"
ladder         = ["500kbit/s", "1Mbit/s", "2.5Mbit/s"]
```

The metrics `video_rate_bps` and `video_stalled` tell what the viewers get. Playing begins with the
first segment, and goes on after a stall with the next one.
""",
    "traffic (arrivals)": """\
```toml
[[traffic]]
kind        = "arrivals"
file        = "my.pcapng"
destination = "192.168.1.0/24"
start       = "1s"
```

[arrivals.md](arrivals.md) has the formats and an example that runs.
""",
    "at": """\
```toml
[[at]]
time = "10s"
set  = { "bottleneck.rate" = "5Mbit/s", "traffic.ftp.flows" = 20 }
```
""",
}

SWEEP = """\
## `[sweep]`

Each line has a key and a list of its values. Every combination of values is a point. Every law runs
at every point with every seed.

```toml
[sweep]
"bottleneck.rate"                  = ["10Mbit/s", "20Mbit/s"]
"traffic.ftp.flows, law.pi.target" = [[5, "30p"], [10, "50p"], [20, "80p"]]
```

That is six points. To change keys together, write them in one line with commas between them, and
give each point a list with one value per key.

Keys are paths, as in `--set` and `[[at]]`:

| path | key |
| --- | --- |
| `duration` | at the top |
| `bottleneck.rate` | of the bottleneck |
| `link.N.buffer` | of a `[[link]]` |
| `traffic.N.flows` | of a `[[traffic]]` |
| `law.N.target` | of a `[[law]]` |

N is a number, from 0, or the name of the link, the label of the traffic or law. Without a label,
the kind is the label: "ftp", and "ftp 2" for a second one.

Keys that name the experiment cannot be swept: `title`, `source` and `seeds` at the top, `name`,
`kind` and `label` elsewhere. `--set` replaces the sweep of its key. There are at most 10,000
points.
"""

SENDERS = """
## Senders

Values of `tcp`:

{table}
The first three follow ns-2.35, clock ticks included; [fidelity.md](fidelity.md) compares them with
its runs.

The senders of Linux follow `net/ipv4` of the kernel; [reality.md](reality.md) compares them with
real flows:

- **Losses**: RACK and tail loss probes (RFC 8985) find them, also losses of retransmissions.
- **The window** is in whole packets. After a loss or a mark it falls to its threshold over a round
  trip, by PRR (RFC 9937, formerly RFC 6937). It grows by packets acknowledged, with delayed ACKs or
  without, and only where it limited the sender (RFC 7661).
- **Timeouts**: every ACK gives a sample (RFC 7323). `min_rto` is the least value of the deviation's
  term, so a timeout is never shorter than the smoothed RTT plus `min_rto`. After a timeout, F-RTO
  (RFC 5682) checks whether it came too early; then follows slow start from one packet.
- **CUBIC** keeps 717/1024 of its window on a loss. Its Reno-friendly window grows by 8/15 of a
  packet per round trip at any size (RFC 9438, section 4.3, has 1 above the last maximum). HyStart
  ends slow start when the round trip has risen or ACKs come in a train.
- **Segments** of several packets wait for up to an ACK until they are whole, as with TSO.

They leave out undo by DSACK and timestamps, the restart after idle and auto-tuned receive windows.
For the receiver of Linux, set `delayed_ack = true`, `ack_delay = "40ms"` and `quick_acks = 16`;
`header = "52B"` is the size of its packets' headers.

"dctcp", "bbr", "bbr3", "prague" and "ledbat++" have the recovery of Linux. "dctcp" and "prague"
read counts of marked packets, with `ecn = true` as with `"l4s"`; Prague is meant for `"l4s"`.
"bbr" paces at the greatest delivery rate of ten round trips and answers no loss; "bbr3" bounds
what is in flight by the loss that it sees. The BBRs do not answer marks. "ledbat++" keeps the
queuing delay below 60 ms and gives way to all others. With `"l4s"`, every other sender treats new
marks in the count as an echo, once per round trip.

With `pacing = true` a sender spreads its segments: after the first ten packets they leave at twice
the window per smoothed round trip in slow start, and at 1.2 times it afterwards, as with
`net.ipv4.tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`. BBR and Prague always pace, at rates of
their own. Linux's senders send at least two packets at a time unless `gso = false`, ns-2's one.
[new-sender.md](new-sender.md) tells how to add a sender.
"""


def scenario() -> str:
    """A section for each part of a scenario file, with its keys."""
    keys: dict[str, list[KeyInfo]] = {}
    declared = _native.keys()
    for key in declared:
        keys.setdefault(key["section"], []).append(key)
    sections = []
    for name in sorted(keys, key=_place):
        rows = [
            [
                f"`{key['name']}`",
                "required" if key["required"] else (key["default"] or ""),
                key["allowed"],
                bounds(key["min"], key["max"]),
                key["doc"],
            ]
            # `kind` comes first: it decides the other keys.
            for key in sorted(keys[name], key=lambda key: key["name"] != "kind")
        ]
        body = table(["key", "default", "allowed", "range", "meaning"], rows)
        more = MORE.get(name, "")
        sections.append(f"## {_title(name)}\n\n{body}{more and chr(10) + more}")
    senders = table(
        ["`tcp`", "recovery", "growth"],
        ([f'"{it["name"]}"', it["recovery"], it["growth"]] for it in _native.senders()),
    )
    return SCENARIO + "\n".join([*sections, SWEEP]) + SENDERS.format(table=senders)


#: Parts of a scenario as a reader meets them.
ORDER = ["", "bottleneck", "link", "traffic", "law", "at"]


def _place(name: str) -> tuple[int, bool]:
    """Where a section stands; the keys of every traffic before those of one kind."""
    part, _, kind = name.partition(" ")
    return ORDER.index(part), bool(kind)


def _title(name: str) -> str:
    part, _, kind = name.partition(" ")
    if not part:
        return "At the top"
    title = f"`[{part}]`" if part == "bottleneck" else f"`[[{part}]]`"
    return f'{title} of `kind = "{kind.strip("()")}"`' if kind else title


def bounds(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:g} to {high:g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    # Within a cell a bar would end it.
    return "".join(
        f"| {' | '.join(c.replace('|', chr(92) + '|') for c in line)} |\n" for line in lines
    )


if __name__ == "__main__":
    main()
