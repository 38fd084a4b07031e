"""The pages of `docs/` that are written from the declarations.

`python -m forebay.docs DIR` writes them; a test checks that they are up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from forebay import _native


def main() -> None:
    """Writes every page into the folder named on the command line."""
    folder = Path(sys.argv[1])
    for name, text in pages().items():
        (folder / name).write_text(text)
        print(folder / name)


def pages() -> dict[str, str]:
    """File name and text of every generated page."""
    return {"laws.md": laws(), "scenario.md": scenario()}


def laws() -> str:
    """A section for each law, with its parameters."""
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
        for law in _native.laws()
    ]
    head = (
        "# The laws\n\n"
        "Written from the declarations by `make docs`; `forebay laws` prints the same.\n"
        "A range is in the unit of its row; `p` is packets. [new-law.md](new-law.md) says how to\n"
        "add one, [references.md](references.md) has the sources in full.\n\n"
    )
    return head + "\n".join(sections)


SENDERS = """
## Senders

What `tcp` names:

| `tcp` | recovery | growth |
| --- | --- | --- |
| "reno" | fast recovery until the first ACK of new data (RFC 2581) | one packet a window of ACKs |
| "newreno" | until all that was out is acknowledged (RFC 6582) | the same |
| "sack" | SACK and the pipe estimate (RFC 3517) | the same |
| "cubic" | as "sack" | CUBIC (RFC 9438) |
| "linux-reno" | as in Linux 6.18 | one packet a window of acknowledged packets |
| "linux-cubic" | as in Linux 6.18 | CUBIC and HyStart as in Linux 6.18 |

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

They leave out what DSACKs and timestamps undo, pacing, the restart after idle and auto-tuned
receive windows. Their receiver is the other half: `delayed_ack = true`, `ack_delay = "40ms"` and
`quick_acks = 16` are Linux's, `header = "52B"` what its packets carry beside data.
"""


def scenario() -> str:
    """A section for each part of a scenario file, with its keys."""
    sections = []
    for name, keys in groupby(_native.keys(), key=lambda key: key["section"]):
        rows = [
            [
                f"`{key['name']}`",
                "required" if key["required"] else (key["default"] or ""),
                key["allowed"],
                bounds(key["min"], key["max"]),
                key["doc"],
            ]
            for key in keys
        ]
        title = f"`[{name}]`" if name == "bottleneck" else f"`{name}`" if name else "At the top"
        body = table(["key", "default", "what may be written", "range", "what it is"], rows)
        sections.append(f"## {title}\n\n{body}")
    head = (
        "# The scenario file\n\n"
        "Written from the declarations by `make docs`. `forebay schema` prints a JSON Schema for\n"
        "editors. A range is in seconds, bit/s, bytes or packets, as the key has it.\n\n"
    )
    return head + "\n".join(sections) + SENDERS


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
