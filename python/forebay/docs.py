"""The pages of `docs/` that are written from the declarations.

`python -m forebay.docs DIR` writes them; a test checks that they are up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forebay import _native

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
                ["parameter", "unit", "default", "range", "what it is"],
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
        "[new-law.md](new-law.md) says how to add a law, [references.md](references.md) has the\n"
        "sources in full.\n\n"
    )
    return head + _sections(_native.laws())


def queues() -> str:
    """The queue disciplines."""
    head = (
        "# The queue disciplines\n\n"
        "Written from the declarations by `make docs`; `forebay queues` prints the same.\n\n"
        "A discipline holds the packets of a queue, and acts on what laws say of them. A law "
        "names\n"
        "its discipline in a [scenario](scenario.md), and `fifo` is the default:\n\n"
        '```toml\n[[law]]\nkind  = "pi"\n'
        'queue = "priority"                       # or { kind = "priority", dscp = 46 }\n```\n\n'
    )
    return head + _sections(_native.queues())


def metrics() -> str:
    """What is measured of a run."""
    of_runs = {entry["name"] for entry in _native.metrics()}
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
        "# What is measured\n\n"
        "Written from the declarations by `make docs`. The code is `crates/forebay-trace`.\n\n"
        "Every run has the metrics, in `metrics.json` in s, bit/s and shares of 1. A paper's\n"
        "[claims](replay.md) take them and the rest over any window.\n\n"
    )
    return head + table(["in claims", "in metrics.json", "title", "unit", "what it is"], rows)


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

#: What the declarations do not say, after the keys of a section.
MORE = {
    "law": """\
Everything else is a parameter of the law: [laws.md](laws.md). [queues.md](queues.md) has the
queues.
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

Each line has a key and a list of its values. Every combination of values is a point, and every law
runs at every point with every seed.

```toml
[sweep]
"bottleneck.rate"                  = ["10Mbit/s", "20Mbit/s"]
"traffic.ftp.flows, law.pi.target" = [[5, "30p"], [10, "50p"], [20, "80p"]]
```

That is six points. Keys that change together stand in one line, with commas between them and a
list of one value each for every point.

A key is named by its path, as `--set` and `[[at]]` name it, too:

| path | key |
| --- | --- |
| `duration` | at the top |
| `bottleneck.rate` | of the bottleneck |
| `link.N.buffer` | of a `[[link]]` |
| `traffic.N.flows` | of a `[[traffic]]` |
| `law.N.target` | of a `[[law]]` |

N is a number, from 0, or the name of the link, the label of the traffic or law. Without a label the
kind is one: "ftp", and "ftp 2" for a second.

What names the experiment cannot be swept: `title`, `source` and `seeds` at the top, `name`, `kind`
and `label` elsewhere. A key that `--set` sets is swept no longer. There are at most 10,000 points.
"""

SENDERS = """
## Senders

What `tcp` names:

{table}
The first three are those of ns-2.35, clock ticks included, and runs can be laid beside its
([fidelity.md](fidelity.md)).

The senders of Linux follow `net/ipv4` of the kernel, so that runs can be laid beside real flows
([reality.md](reality.md)):

- **Losses** are found by RACK and tail loss probes (RFC 8985); copies that are lost again, too.
- **The window** is in whole packets. After a loss or a mark it falls to its threshold over a
  round trip, by PRR (RFC 9937, before it RFC 6937). It grows by packets acknowledged, delayed ACKs
  or not, and only where it was what held the sender back (RFC 7661).
- **Timeouts** take every ACK as a sample (RFC 7323); `min_rto` is the least of the deviation's
  term, so that no timeout is shorter than the smoothed RTT and it. After one, F-RTO (RFC 5682)
  looks whether it came too early; then slow start from one packet.
- **CUBIC** keeps 717/1024 of its window on a loss, its Reno-friendly window grows by 8/15 of a
  packet a round trip at any size (RFC 9438, section 4.3, has 1 above the last maximum), and
  HyStart ends slow start when the round trip has risen or ACKs come in a train.
- **Segments** of several packets wait up to an ACK to be whole, as with TSO.

They leave out what DSACKs and timestamps undo, the restart after idle and auto-tuned receive
windows. Their receiver is the other half: `delayed_ack = true`, `ack_delay = "40ms"` and
`quick_acks = 16` are Linux's, `header = "52B"` what its packets carry beside data.

"dctcp" has the recovery of Linux and reads counts of marked packets, with `ecn = true` as with
`"l4s"`. With `"l4s"` every other sender takes new marks in the count for an echo, once a round
trip.

With `pacing = true` a sender keeps segments back: after the first ten packets, they leave at twice
the window per smoothed round trip in slow start and at 1.2 times it afterwards, as with
`net.ipv4.tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`. Linux's senders send at least two packets
at a time, ns-2's one.
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
            # What says which other keys there are comes first.
            for key in sorted(keys[name], key=lambda key: key["name"] != "kind")
        ]
        body = table(["key", "default", "what may be written", "range", "what it is"], rows)
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
