"""Writes the page of the scenario file from the declared keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay import _native
from forebay.report.tables import bounds, markdown_table
from tools.docs import examples

if TYPE_CHECKING:
    from forebay._native import KeyInfo


SCENARIO = """\
# Scenario file

This page lists every key of a scenario file, with an example of each kind of traffic.

It is generated from the declarations by `make docs`.
`forebay explain KEY` prints the meaning of a key, and `forebay schema` a JSON Schema for editors.
A range is in seconds, bit/s, bytes or packets, according to the key.

This scenario has three loads of one link under two laws:

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
    "link": examples.LINK,
    **{f"traffic ({kind})": text for kind, text in examples.TRAFFIC.items()},
    "law": """\
All other keys are parameters of the law; [Laws](laws.md) and [Queue disciplines](queues.md) list them.
""",
    "at": """\
```toml
[[at]]
time = "10s"
set  = { "bottleneck.rate" = "5Mbit/s", "traffic.ftp.flows" = 20 }
```

A change also applies to transmissions in progress: the rest of the packet that is being sent goes at the new rate, and so do ACKs that wait for the way back and packets that wait for a token bucket.
A packet has the delay of the time at which its last bit leaves the queue's link.
Packets that have left keep their delay, and no packet overtakes another: after a step to a shorter delay, packets arrive behind the last one that was in flight before.
With a rate trace, the change only reports another rate to the law.
""",
    "kernel": examples.KERNEL,
}

SWEEP = """\
## `[sweep]`

Each line has a key and a list of its values.
Every combination of values is a point, and every law runs at every point with every seed.

```toml
[sweep]
"bottleneck.rate"                  = ["10Mbit/s", "20Mbit/s"]
"traffic.ftp.flows, law.pi.target" = [[5, "30p"], [10, "50p"], [20, "80p"]]
```

This sweep has six points.
To change keys together, write them in one line with commas between them, and give each point a list with one value per key.

Keys are paths, as in `--set` and `[[at]]`:

| path | key |
| --- | --- |
| `duration` | a key at the top |
| `bottleneck.rate` | a key of the bottleneck |
| `link.N.buffer` | a key of a `[[link]]` |
| `traffic.N.flows` | a key of a `[[traffic]]` |
| `law.N.target` | a key of a `[[law]]` |
| `kernel.tcp` | a key of `[kernel]` |

N is a number, counted from 0, or the name of the link, or the label of the traffic or law.
Without a label, the kind is the label: "ftp", and "ftp 2" for a second one.

Keys that name the experiment cannot be swept: `title`, `source` and `seeds` at the top, and `name`, `kind` and `label` elsewhere.
`--set` replaces the sweep of its key.
A sweep has at most 10,000 points; [`forebay study`](../howto/studies.md) runs larger ones.

A range is a short form of a list:

| range | its values |
| --- | --- |
| `"1..100Mbit/s log 7"` | seven values with the same factor between neighbours |
| `"20..300ms lin 4"` | four values with the same distance between neighbours |
| `"1..1000 log 7"` | whole numbers, because both ends are; `"1.0..1000 log 7"` has real numbers |

If the first end has no unit, it has that of the second.
Values between the ends have four significant figures.
Ranges without a number of steps are sampled together:

```toml
[sweep]
points            = "sobol 256 seed 1"      # or "latin 100"
"bottleneck.rate" = "1..100Mbit/s log"
"traffic.0.rtt"   = "20..300ms"
```

This sweep has 256 points of a scrambled Sobol sequence, whose number must be a power of 2, or of a Latin hypercube (`scipy.stats.qmc`).
Lists in the same sweep are crossed with the sample, which varies fastest; values that are drawn twice are one point.
`--set sweep.points="sobol 8"` draws another number of points, and a key that `--set` fixes is not drawn.
"""

SENDERS = """
## Senders

`tcp` has these values:

{table}
The first three follow ns-2.35, including its clock ticks; [Forebay and ns-2](../evidence/fidelity.md) compares them.

The senders of Linux follow `net/ipv4` of the kernel; [Every law on real Linux](../evidence/reality.md) compares them with the kernel:

- **Losses** are detected by RACK and tail loss probes (RFC 8985), including losses of retransmissions.
- **The window** is in whole packets.
  After a loss or a mark it falls to its threshold over a round trip, by PRR (RFC 9937, formerly RFC 6937).
  It grows by packets acknowledged, with or without delayed ACKs, and only if it limited the sender (RFC 7661).
- **Timeouts**: every ACK gives a sample (RFC 7323).
  `min_rto` is the minimum of the deviation term, so a timeout is never shorter than the smoothed RTT plus `min_rto`.
  After a timeout, F-RTO (RFC 5682) checks whether it was spurious; then follows slow start from one packet.
- **CUBIC** keeps 717/1024 of its window on a loss.
  Its Reno-friendly window grows by 8/15 of a packet per round trip at any size (RFC 9438, section 4.3, has 1 above the last maximum).
  HyStart ends slow start when the round-trip time has risen or ACKs arrive in a train.
- **Segments** of several packets wait for up to an ACK until they are complete, as with TSO.

Undo by DSACK and the restart after idle are not modelled.

### Hosts with Linux

`stack = "linux"` makes the hosts of a traffic those of a present Linux:

```toml
[[traffic]]
kind  = "ftp"
flows = 4
rtt   = "40ms"
stack = "linux"
```

It stands for seven keys; a key that is written takes precedence:

| key | value |
| --- | --- |
| `tcp` | "linux-cubic" |
| `packet` | "1500B", headers included |
| `header` | "52B": IPv4, TCP and timestamps; goodput does not count them |
| `initial_window` | "10p" (RFC 6928) |
| `delayed_ack` | true |
| `ack_delay` | "40ms" |
| `quick_acks` | 16 |

The senders of Linux use SACK, RACK, tail loss probes and segmentation offload without further keys.
Linux paces a flow only if its congestion control or a queue discipline such as `fq` asks for it: BBR and Prague always pace, and `pacing = true` stands for a host with `fq`.

"dctcp", "bbr", "bbr3", "prague" and "ledbat++" have the recovery of Linux.

- "dctcp" and "prague" read counts of marked packets, with `ecn = true` as with `"l4s"`; Prague is meant for `"l4s"`.
- "bbr" paces at the highest delivery rate of ten round trips and does not respond to losses; "bbr3" bounds the packets in flight by the loss that it observes. Neither responds to marks.
- "ledbat++" keeps the queuing delay below 60 ms and yields to all others.
- With `"l4s"`, every other sender treats new marks in the count as an echo, once per round trip.

With `pacing = true` a sender spreads its segments: after the first ten packets they leave at twice the window per smoothed round trip in slow start, and at 1.2 times it afterwards, as with `net.ipv4.tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`.
BBR and Prague pace at rates of their own.
Linux's senders send at least two packets at a time unless `gso = false`; ns-2's send one.
[Extend Forebay](../contribute/extend.md#add-a-tcp-sender) has the steps to add a sender.
"""


def scenario() -> str:
    """Return the page in Markdown, with a section for each part of a scenario file."""
    keys: dict[str, list[KeyInfo]] = {}
    declared = _native.keys()
    for key in declared:
        keys.setdefault(key["section"], []).append(key)
    shared = _shared(keys)
    sections = []
    for name in sorted(keys, key=_place):
        sections.append(_section(_title(name), keys[name], shared, name, MORE.get(name, "")))
        if name == "traffic":
            sections += [
                _section(group.title, group.keys, [], name, "")
                for group in shared
                if group.title.startswith(_title(name))
            ]
    senders = markdown_table(
        ["`tcp`", "recovery", "growth"],
        (
            [f'"{sender["name"]}"', sender["recovery"], sender["growth"]]
            for sender in _native.senders()
        ),
    )
    return SCENARIO + "\n".join([*sections, SWEEP]) + SENDERS.format(table=senders)


@dataclass(frozen=True)
class Shared:
    """Keys that several parts of a file share; the page lists them once.

    Attributes
    ----------
    title : str
        Title of the section that lists them.
    keys : list[KeyInfo]
        The keys.
    parts : frozenset[str]
        The parts that refer to the section.
    """

    title: str
    keys: list[KeyInfo]
    parts: frozenset[str]


def _shared(keys: dict[str, list[KeyInfo]]) -> list[Shared]:
    """Return the keys that links share, that all flows share, all TCP senders, and all sizes."""
    like: dict[frozenset[str], list[KeyInfo]] = {}
    for key in (key for of_part in keys.values() for key in of_part):
        parts = frozenset(
            part for part in keys if any(_alike(key, candidate) for candidate in keys[part])
        )
        if not any(_alike(key, candidate) for candidate in like.setdefault(parts, [])):
            like[parts].append(key)

    def group(
        title: str, matches: Callable[[frozenset[str]], bool], parts: Iterable[str]
    ) -> Shared:
        members = [key for places, equal in like.items() if matches(places) for key in equal]
        return Shared(title, members, frozenset(parts))

    def having(name: str) -> frozenset[str]:
        """Return the kinds of traffic with a key of this name."""
        kinds = [part for part in keys if part.startswith("traffic")]
        return frozenset(kind for kind in kinds if any(key["name"] == name for key in keys[kind]))

    of_links = frozenset({"bottleneck", "link"})
    # `arrivals` has a label as well, but no number of flows.
    flows = having("flows")
    return [
        group(_title("bottleneck"), lambda places: places == of_links, {"link"}),
        group("`[[traffic]]`: keys of all flows", lambda places: places >= flows, flows),
        group(
            "`[[traffic]]`: keys of TCP",
            lambda places: places == having("tcp"),
            having("tcp"),
        ),
        group(
            "`[[traffic]]`: keys of sizes",
            lambda places: places == having("shape"),
            having("shape"),
        ),
    ]


def _alike(first: KeyInfo, second: KeyInfo) -> bool:
    """Return True if two keys differ at most in their section."""
    return {**first, "section": ""} == {**second, "section": ""}


def _section(title: str, keys: list[KeyInfo], shared: list[Shared], part: str, more: str) -> str:
    """Return a section with its table of keys, and links to the sections of shared keys."""
    groups = [group for group in shared if part in group.parts]
    elsewhere = [key for group in groups for key in group.keys]
    own = [key for key in keys if not any(_alike(key, other_key) for other_key in elsewhere)]
    rows = [
        [
            f"`{key['name']}`",
            "required" if key["required"] else (key["default"] or ""),
            key["expected"],
            bounds(key["min"], key["max"]),
            key["doc"],
        ]
        # `kind` comes first: it decides the other keys.
        for key in sorted(own, key=lambda key: key["name"] != "kind")
    ]
    body = markdown_table(["key", "default", "value", "range", "meaning"], rows) if rows else ""
    also = [
        f"[{_plain(group.title)}](#{_anchor(group.title)})"
        + (f": {_names(group.keys)}" if part == "link" else "")
        for group in groups
    ]
    refers = f"It {'also ' if rows else ''}has the keys of {_listed(also)}.\n" if also else ""
    return f"## {title}\n\n" + "\n".join(text for text in (body, refers, more) if text)


def _names(keys: list[KeyInfo]) -> str:
    """Return the names of keys."""
    return ", ".join(f"`{key['name']}`" for key in keys)


def _plain(title: str) -> str:
    """Return the text of a link to a section."""
    return title.partition(": keys of ")[2] or title


def _anchor(title: str) -> str:
    """Return the anchor that GitHub and MkDocs derive from a heading."""
    anchor = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return anchor.replace(" ", "-")


def _listed(texts: list[str]) -> str:
    """Return texts in a row, with "and" before the last."""
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


#: Parts of a scenario in the order of the page.
ORDER = ["", "bottleneck", "link", "traffic", "law", "at", "kernel"]


def _place(name: str) -> tuple[int, bool]:
    """Return the sort key of a section: shared keys of traffic come before those of one kind."""
    part, _, kind = name.partition(" ")
    return ORDER.index(part), bool(kind)


def _title(name: str) -> str:
    """Return the title of a section."""
    part, _, kind = name.partition(" ")
    if not part:
        return "At the top"
    title = f"`[{part}]`" if part in {"bottleneck", "kernel"} else f"`[[{part}]]`"
    return f'{title} of `kind = "{kind.strip("()")}"`' if kind else title
