"""The page of the scenario file, written from the declarations of its keys."""

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
    "link": examples.LINK,
    **{f"traffic ({kind})": text for kind, text in examples.TRAFFIC.items()},
    "law": """\
All other keys are parameters of the law: [laws.md](laws.md). [queues.md](queues.md) lists the
queues.
""",
    "at": """\
```toml
[[at]]
time = "10s"
set  = { "bottleneck.rate" = "5Mbit/s", "traffic.ftp.flows" = 20 }
```

A change acts at its time, also on what has begun: what is left of the packet being sent goes at
the new rate, and so do ACKs that wait for the way back and packets that wait for a token bucket.
A packet has the delay of the time at which its last bit leaves the queue's link.
What has left keeps its delay, and no packet overtakes another:
after a step to a shorter delay, packets arrive behind the last one that was on its way before.
With a rate trace the change only reports another rate to the law.
""",
    "kernel": examples.KERNEL,
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
| `kernel.tcp` | of `[kernel]` |

N is a number, from 0, or the name of the link, the label of the traffic or law. Without a label,
the kind is the label: "ftp", and "ftp 2" for a second one.

Keys that name the experiment cannot be swept: `title`, `source` and `seeds` at the top, `name`,
`kind` and `label` elsewhere. `--set` replaces the sweep of its key. There are at most 10,000
points.

A range stands for a list:

| range | its values |
| --- | --- |
| `"1..100Mbit/s log 7"` | seven, each the same factor from the next |
| `"20..300ms lin 4"` | four, each the same distance from the next |
| `"1..1000 log 7"` | whole numbers, since both ends are; "1.0..1000 log 7" has others |

A unit belongs to both ends where the first has none. Values between the ends have four figures.
Ranges without a number of steps are sampled together:

```toml
[sweep]
points            = "sobol 256 seed 1"      # or "latin 100"
"bottleneck.rate" = "1..100Mbit/s log"
"traffic.0.rtt"   = "20..300ms"
```

That is 256 points: a scrambled Sobol sequence, whose number is a power of 2, or a Latin hypercube
(`scipy.stats.qmc`). Lists in the same sweep are crossed with the sample, which varies fastest; what
is drawn twice is one point. `--set sweep.points="sobol 8"` draws another number, and a key that
`--set` fixes is drawn no more. Of sweeps with more points than 10,000 [`forebay study`](../howto/studies.md)
makes the runs.
"""

SENDERS = """
## Senders

Values of `tcp`:

{table}
The first three follow ns-2.35, clock ticks included; [fidelity.md](../evidence/fidelity.md) compares them with
its runs.

The senders of Linux follow `net/ipv4` of the kernel; [reality.md](../evidence/reality.md) compares them with
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

### A host with Linux

`stack = "linux"` makes a traffic's hosts those of a present Linux:

```toml
[[traffic]]
kind  = "ftp"
flows = 4
rtt   = "40ms"
stack = "linux"
```

The word stands for seven keys, and a key that is written wins over it:

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
Linux paces a flow only where its congestion control or a queue discipline such as `fq` asks for it:
BBR and Prague always pace, and `pacing = true` stands for a host with `fq`.

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
[extend.md](../contribute/extend.md#add-a-tcp-sender) tells how to add a sender.
"""


def scenario() -> str:
    """Return the page: a section for each part of a scenario file, with its keys."""
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
                _section(section.title, section.keys, [], name, "")
                for section in shared
                if section.title.startswith(_title(name))
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
    """Return the shared keys: of links, of all flows, of all TCP senders, and of their sizes."""
    like: dict[frozenset[str], list[KeyInfo]] = {}
    for key in (key for of_part in keys.values() for key in of_part):
        parts = frozenset(
            part for part in keys if any(_alike(key, other_key) for other_key in keys[part])
        )
        if not any(_alike(key, other_key) for other_key in like.setdefault(parts, [])):
            like[parts].append(key)

    def shared(
        title: str, is_wanted: Callable[[frozenset[str]], bool], parts: Iterable[str]
    ) -> Shared:
        selected = [
            key
            for parts_with_key, keys_of_parts in like.items()
            if is_wanted(parts_with_key)
            for key in keys_of_parts
        ]
        return Shared(title, selected, frozenset(parts))

    def kinds_with(name: str) -> frozenset[str]:
        """Return the kinds of traffic that have a key of this name."""
        kinds = [part for part in keys if part.startswith("traffic")]
        return frozenset(kind for kind in kinds if any(key["name"] == name for key in keys[kind]))

    of_links = frozenset({"bottleneck", "link"})
    # Arrivals have a label, too, but no number of flows.
    flows = kinds_with("flows")
    return [
        shared(_title("bottleneck"), lambda kinds: kinds == of_links, {"link"}),
        shared("`[[traffic]]`: keys of all flows", lambda kinds: kinds >= flows, flows),
        shared(
            "`[[traffic]]`: keys of TCP",
            lambda kinds: kinds == kinds_with("tcp"),
            kinds_with("tcp"),
        ),
        shared(
            "`[[traffic]]`: keys of sizes",
            lambda kinds: kinds == kinds_with("shape"),
            kinds_with("shape"),
        ),
    ]


def _alike(first: KeyInfo, second: KeyInfo) -> bool:
    """Return True if two keys differ only in their section."""
    return {**first, "section": ""} == {**second, "section": ""}


def _section(title: str, keys: list[KeyInfo], shared: list[Shared], part: str, more: str) -> str:
    """Return a section: its table of keys, references to shared keys, and further text."""
    referred = [section for section in shared if part in section.parts]
    referred_keys = [key for section in referred for key in section.keys]
    own = [key for key in keys if not any(_alike(key, other_key) for other_key in referred_keys)]
    rows = [
        [
            f"`{key['name']}`",
            "required" if key["required"] else (key["default"] or ""),
            key["allowed"],
            bounds(key["min"], key["max"]),
            key["doc"],
        ]
        # `kind` comes first: it decides the other keys.
        for key in sorted(own, key=lambda key: key["name"] != "kind")
    ]
    body = markdown_table(["key", "default", "allowed", "range", "meaning"], rows) if rows else ""
    also = [
        f"[{_plain(section.title)}](#{_anchor(section.title)})"
        + (f": {_names(section.keys)}" if part == "link" else "")
        for section in referred
    ]
    refers = f"{'And the' if rows else 'The'} keys of {_listed(also)}.\n" if also else ""
    return f"## {title}\n\n" + "\n".join(text for text in (body, refers, more) if text)


def _names(keys: list[KeyInfo]) -> str:
    """Return the names of keys."""
    return ", ".join(f"`{key['name']}`" for key in keys)


def _plain(title: str) -> str:
    """Return the text of a link to a section."""
    return title.partition(": keys of ")[2] or title


def _anchor(title: str) -> str:
    """Return the anchor that web pages derive from a heading."""
    letters = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return letters.replace(" ", "-")


def _listed(texts: list[str]) -> str:
    """Return texts in a row, with "and" before the last."""
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


#: The parts of a scenario in the order of the page.
ORDER = ["", "bottleneck", "link", "traffic", "law", "at", "kernel"]


def _place(name: str) -> tuple[int, bool]:
    """Return the position of a section; keys of every traffic come before those of one kind."""
    part, _, kind = name.partition(" ")
    return ORDER.index(part), bool(kind)


def _title(name: str) -> str:
    """Return the title of a section."""
    part, _, kind = name.partition(" ")
    if not part:
        return "At the top"
    title = f"`[{part}]`" if part in {"bottleneck", "kernel"} else f"`[[{part}]]`"
    return f'{title} of `kind = "{kind.strip("()")}"`' if kind else title
