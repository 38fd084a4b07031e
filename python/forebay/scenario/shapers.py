"""Read the shapers of Linux above a queue: tbf and trees of htb, with the bytes that they count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from forebay.scenario import tc_text
from forebay.scenario.tc_text import Id, SizeTable, Statement, error

#: Words of tbf, in the order in which tc completes an abbreviation.
TBF = (
    *("limit", "latency", "burst", "buffer", "maxburst", "mtu", "minburst", "mpu", "rate"),
    *("peakrate", "overhead", "linklayer"),
)
#: Words of a class of htb, with those that only `show` prints.
HTB_CLASS = (
    *("prio", "mtu", "mpu", "overhead", "linklayer", "quantum", "burst", "buffer", "maxburst"),
    *("cburst", "cbuffer", "cmaxburst", "ceil", "rate", "slot", "pslot", "level"),
)
#: Words of htb itself: with a value, and without.
HTB = ("r2q", "default", "debug", "direct_qlen", "direct_packets_stat", "ver", "offload")
#: Words that may not be abbreviated.
IN_FULL = {
    *("buffer", "maxburst", "mtu", "minburst", "rate", "ceil", "cbuffer", "cmaxburst"),
    *("slot", "pslot", "level", "direct_packets_stat", "ver"),
}
#: Synonyms, and the word under which they are read.
SAME = {
    "buffer": "burst",
    "maxburst": "burst",
    "minburst": "mtu",
    "cbuffer": "cburst",
    "cmaxburst": "cburst",
}
#: Qdiscs that only pass packets to the qdiscs below them.
HANDS_ON = {"mq", "mqprio"}
#: Words of netem that only delay packets.
NETEM = ("limit", "latency", "delay")
#: The largest packet for which htb sizes its buckets if a line omits their sizes.
HTB_MTU_BYTES = 1600
#: Length of the queue that Linux gives a class without a qdisc: that of the device, in packets.
DEVICE_QUEUE_PKTS = 1000
#: The words of shapers, by which the rest of a wrapped line is recognised.
WORDS: Mapping[str, Sequence[str]] = {"tbf": TBF, "htb": (*HTB, *HTB_CLASS)}


@dataclass(frozen=True)
class Shaper:
    """A qdisc or class that limits a queue to a rate.

    Attributes
    ----------
    name : str
        The qdisc or class, for messages.
    counted_bps : float
        Its rate, in the bytes that it counts.
    cost_bytes : int
        Bytes that it counts for a usual packet.
    burst_bytes : float
        Bytes, as it counts them, that it releases at once after a pause.
    holds_packet : bool
        True if the packet that is being sent is still in the queue below, as under tbf.
    """

    name: str
    counted_bps: float
    cost_bytes: int
    burst_bytes: float
    holds_packet: bool

    def packets_bps(self, packet_bytes: int) -> float:
        """Return the rate in bit/s at which the shaper passes IP packets of this size."""
        return self.counted_bps * packet_bytes / self.cost_bytes


@dataclass
class Place:
    """A queue and the shapers above it.

    Attributes
    ----------
    leaf : Statement
        The qdisc that holds the packets.
    shapers : list of Shaper
        From the outermost to the innermost.
    table : SizeTable or None
        The size table (`stab`) that determines sizes of packets.
    framing : Framing or None
        Bytes that the innermost shaper adds to an IP packet; None without a shaper.
    notes : list of str
        Sentences that a reader of the result must know.
    without_effect : list of str
        Words that do not change the simulation.
    """

    leaf: Statement
    shapers: list[Shaper] = field(default_factory=list)
    table: SizeTable | None = None
    framing: tc_text.Framing | None = None
    notes: list[str] = field(default_factory=list)
    without_effect: list[str] = field(default_factory=list)

    def limiting(self, packet_bytes: int) -> Shaper | None:
        """Return the shaper that lets the fewest packets through; None without any."""
        return min(self.shapers, key=lambda shaper: shaper.packets_bps(packet_bytes), default=None)


def place(statements: Sequence[Statement], packet_bytes: int, header_bytes: int) -> Place:
    """Return the queue in the lines of one device, and the shapers above it.

    In a tree of htb, the queue is that of the default class, to which unclassified packets go.

    Parameters
    ----------
    statements : Sequence[Statement]
        The statements of the lines.
    packet_bytes : int
        Size of the usual IP packet.
    header_bytes : int
        The device's own header.

    Raises
    ------
    ScenarioError
        If the lines have no queue, or several that differ, or words that tc refuses.
    """
    reader = _Tree(statements, packet_bytes, header_bytes)
    return reader.read()


class _Tree:
    """The qdiscs and classes of one device as a tree."""

    def __init__(
        self, statements: Sequence[Statement], packet_bytes: int, header_bytes: int
    ) -> None:
        self.qdiscs = [statement for statement in statements if not statement.is_class]
        self.classes = {
            statement.id: statement
            for statement in statements
            if statement.is_class and statement.id is not None
        }
        self.packet_bytes, self.header_bytes = packet_bytes, header_bytes
        self.result = Place(Statement(False, "", []))
        self.passed: list[Statement] = []

    @property
    def length(self) -> int:
        """The size of a usual packet, as a size table makes it."""
        plain = self.packet_bytes + self.header_bytes
        table = self.result.table
        return plain if table is None else table.counted_bytes(plain)

    def read(self) -> Place:
        """Return the queue and the shapers."""
        self._descend(self._top())
        return self.result

    def _top(self) -> Statement:
        """Return the qdisc above all others."""
        roots = [qdisc for qdisc in self.qdiscs if qdisc.is_root]
        if roots:
            return self._one_of(roots)
        if self.classes:
            key, first = next(iter(self.classes.items()))
            return Statement(False, first.kind, [], from_show=True, id=(key[0], 0))
        return self._one_of(self._without_parent(self.qdiscs))

    def _without_parent(self, qdiscs: Sequence[Statement]) -> list[Statement]:
        """Return the qdiscs whose parent has no line."""
        majors = {qdisc.id[0] for qdisc in self.qdiscs if qdisc.id and qdisc.id[0]}
        return [qdisc for qdisc in qdiscs if not qdisc.parent or qdisc.parent[0] not in majors]

    def _one_of(self, queues: Sequence[Statement]) -> Statement:
        """Return the qdisc that several lines agree on, for example those below mq."""
        if not queues:
            raise error("", "the lines have no queue; paste those of `tc qdisc show dev DEVICE`")
        first = queues[0]
        for statement in queues[1:]:
            if (statement.kind, statement.words) != (first.kind, first.words):
                kinds = " and ".join(dict.fromkeys(queue.kind for queue in queues))
                several = kinds if " and " in kinds else f"{kinds} with different words"
                raise error("", f"the lines have several queues, {several}; paste the lines of one")
        return first

    def _descend(self, qdisc: Statement) -> None:
        """Take the shapers from a qdisc downwards, and the queue at the end."""
        if any(qdisc is above for above in self.passed):
            raise error(qdisc.kind, "the lines put it below itself; handles must differ")
        self.passed.append(qdisc)
        self.result.table = tc_text.size_table(qdisc.stab) or self.result.table
        if qdisc.kind == "tbf":
            self._tbf(qdisc)
        elif qdisc.kind == "htb":
            self._htb(qdisc)
        elif qdisc.kind in HANDS_ON:
            self._descend(self._one_of(self._below(qdisc)))
        elif qdisc.kind == "netem" and self._below(qdisc):
            self._netem(qdisc)
            self._descend(self._one_of(self._below(qdisc)))
        else:
            self.result.leaf = qdisc

    def _below(self, qdisc: Statement) -> list[Statement]:
        """Return the qdiscs right below another."""
        candidates = [
            statement
            for statement in self.qdiscs
            if statement is not qdisc and not statement.is_root
        ]
        if qdisc.id is None or not qdisc.id[0]:
            # The line of the qdisc has no handle.
            return self._without_parent(candidates)
        return [
            statement
            for statement in candidates
            if statement.parent and statement.parent[0] == qdisc.id[0]
        ]

    def _netem(self, qdisc: Statement) -> None:
        """Take a netem above the queue; only its delay is simulated, as the flows' round trip."""
        words = list(qdisc.words)
        while words and tc_text.completed(words[0], NETEM):
            del words[: 1 + next((i for i, word in enumerate(words[1:]) if word.isalpha()), 99)]
        if words:
            raise error(f"netem: {words[0]}", "Forebay simulates of netem the delay alone")
        self.result.notes.append(
            f"netem {' '.join(qdisc.words)}: it delays packets before the queue; the "
            "round-trip time of the flows is to have its delay."
        )

    def _tbf(self, qdisc: Statement) -> None:
        """Take a tbf, and the queue below it."""
        words = _read_words("tbf", TBF, qdisc.words)
        _check_tbf(words, from_show=qdisc.from_show)
        rate_bps = tc_text.rate_bps("tbf: rate", words["rate"])
        burst_bytes = _bucket_bytes("tbf: burst", words.get("burst", "0"))
        cost = self._cost("tbf", words)
        below = self._below(qdisc)
        if "peakrate" in words:
            self._peak(words, rate_bps)
        else:
            self._idle(words, "mtu")
        self.result.shapers.append(Shaper("tbf", rate_bps, cost, burst_bytes, True))
        if below:
            self._idle(words, "limit", "latency")
            self._descend(self._one_of(below))
            return
        limit = words.get("limit") or str(_latency_bytes(words, rate_bps, burst_bytes))
        self.result.leaf = Statement(False, "bfifo", ["limit", limit], from_show=qdisc.from_show)

    def _peak(self, words: Mapping[str, str], rate_bps: float) -> None:
        """Check the peak rate, which the simulation ignores."""
        if tc_text.rate_bps("tbf: peakrate", words["peakrate"]) <= rate_bps:
            raise error(
                "tbf: peakrate",
                f'"{words["peakrate"]}" is not above the rate, "{words["rate"]}"; '
                "the kernel refuses it",
            )
        self.result.notes.append(
            "tbf: after a pause a burst leaves at once in the simulation, and not at the peak "
            f"rate of {words['peakrate']}."
        )

    def _idle(self, words: Mapping[str, str], *names: str) -> None:
        """Note words that have no effect on the simulation."""
        self.result.without_effect += [
            f"{name} {words[name]}".strip() for name in names if name in words
        ]

    def _cost(self, name: str, words: Mapping[str, str]) -> int:
        """Return the bytes that a shaper counts for a usual packet (`psched_l2t_ns`)."""
        overhead = tc_text.signed(f"{name}: overhead", words.get("overhead", "0"))
        if overhead < 0:
            raise error(
                f"{name}: overhead",
                f'"{overhead}" is negative, which tc refuses; a size table takes it: '
                f"`stab overhead {overhead}` before the word {name.split()[0]}",
            )
        mpu = tc_text.size_bytes(f"{name}: mpu", words.get("mpu", "0"))
        cells = tc_text.link_layer(f"{name}: linklayer", words.get("linklayer", "ethernet"))
        table = self.result.table or SizeTable()
        self.result.framing = tc_text.Framing(
            self.header_bytes + table.overhead + overhead,
            cells if cells != tc_text.NONE else table.cells,
            max(mpu, table.mpu),
        )
        return tc_text.with_cells(max(self.length + overhead, mpu), cells)

    def _htb(self, qdisc: Statement) -> None:
        """Take an htb with the classes above the default class, and the queue in that class."""
        words = _read_words("htb", HTB, qdisc.words, flags={"offload"})
        self._idle(words, *(name for name in words if name != "default"))
        major = qdisc.id[0] if qdisc.id else next(iter(self.classes), (1, 0))[0]
        classes = {key: entry for key, entry in self.classes.items() if key[0] == major}
        if not classes:
            self.result.notes.append(
                "htb: the lines have no classes, and so no rate; `tc class show dev "
                f"{qdisc.device or 'DEVICE'}` prints them."
            )
            self._descend(self._one_of(self._below(qdisc)))
            return
        chosen, queue = self._default_class(
            words.get("default", ""), major, classes, from_show=qdisc.from_show
        )
        self.result.shapers += [
            self._class_shaper(*item) for item in self._ancestors(chosen, classes)
        ]
        if queue is None:
            self.result.notes.append(
                f"htb: class {_spelled(chosen)} has no qdisc in the lines; the simulation takes "
                f"Linux's default, pfifo with {DEVICE_QUEUE_PKTS} packets."
            )
            queue = Statement(False, "pfifo", ["limit", str(DEVICE_QUEUE_PKTS)])
        self._descend(queue)

    def _default_class(
        self, default: str, major: int, classes: Mapping[Id, Statement], *, from_show: bool
    ) -> tuple[Id, Statement | None]:
        """Return the class whose queue is simulated, and the qdisc in it, if a line has one."""
        parents = {entry.parent for entry in classes.values()}
        leaves = [key for key in classes if key not in parents]
        queues = {key: self._queue_of(key, classes[key]) for key in leaves}
        keys = [(major, number) for number in _class_numbers(default, from_show=from_show)]
        key = next((key for key in keys if key in queues), keys[0] if keys else None)
        if key in queues:
            idle = [_spelled(leaf) for leaf in leaves if leaf != key]
            if idle:
                self.result.notes.append(
                    f"htb: the queue is that of class {_spelled(key)}, the default; "
                    f"{_classes(idle)} taken as idle."
                )
            return key, queues[key]
        filled = [leaf for leaf in leaves if queues[leaf] is not None] or leaves
        if len(filled) == 1:
            where = f"the default class, {_spelled(key)}," if key else "the default class"
            self.result.notes.append(
                f"htb: {where} is not among the lines; the queue is that of class "
                f"{_spelled(filled[0])}."
            )
            return filled[0], queues[filled[0]]
        names = ", ".join(_spelled(leaf) for leaf in sorted(filled))
        reason = (
            f"its default class {_spelled(key)} is not among the lines"
            if key
            else ("the lines do not give its default class")
        )
        raise error("htb", f"{reason}, and classes {names} all have queues; paste the lines of one")

    def _queue_of(self, key: Id, entry: Statement) -> Statement | None:
        """Return the qdisc in a class."""
        for qdisc in self.qdiscs:
            if qdisc.parent == key or (entry.leaf and qdisc.id and qdisc.id[0] == entry.leaf[0]):
                return qdisc
        return None

    def _ancestors(
        self, chosen: Id, classes: Mapping[Id, Statement]
    ) -> Iterator[tuple[Id, Statement]]:
        """Yield the classes from the topmost down to a class."""
        chain: list[tuple[Id, Statement]] = []
        key: Id | None = chosen
        while key is not None and key in classes and key not in [above for above, _ in chain]:
            chain.append((key, classes[key]))
            key = classes[key].parent
        yield from reversed(chain)

    def _class_shaper(self, key: Id, entry: Statement) -> Shaper:
        """Return a class as a shaper: it may borrow up to ceil."""
        name = f"htb class {_spelled(key)}"
        words = _read_words(name, HTB_CLASS, entry.words)
        if "rate" not in words:
            raise error(name, "the rate is missing, which tc requires")
        self._idle(words, *({"prio", "quantum", "slot", "pslot", "level"} & set(words)))
        rate_bps = tc_text.rate_bps(f"{name}: rate", words["rate"])
        ceil_bps = tc_text.rate_bps(f"{name}: ceil", words.get("ceil", words["rate"]))
        usual = tc_text.whole(f"{name}: mtu", words.get("mtu", str(HTB_MTU_BYTES)))
        bucket = _bucket_bytes(f"{name}: cburst", words.get("cburst", "0")) or usual
        burst = _bucket_bytes(f"{name}: burst", words.get("burst", "0"))
        if rate_bps == ceil_bps:
            bucket = max(bucket, burst)
        cost = self._cost(name, words)
        # A packet may leave while any token remains: the bucket and one more packet leave at once.
        return Shaper(name, ceil_bps, cost, bucket + cost, False)


def _read_words(
    name: str,
    vocabulary: Sequence[str],
    words: Sequence[str],
    flags: frozenset[str] | set[str] = frozenset(),
) -> dict[str, str]:
    """Return the values of a shaper's words under their full names.

    A word may be abbreviated if tc accepts that, and repeated only if `show` prints it twice.
    """
    values: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        full = word if word in vocabulary else _abbreviated(word, vocabulary)
        if not full:
            raise tc_text.unknown(name, word, vocabulary)
        full = SAME.get(full, full)
        value = "" if full in flags else next(rest, None)
        if value is None:
            raise error(f"{name}: {full}", "the value is missing")
        # `tc -d class show` prints mpu for both rates.
        if full in values and values[full] != value and full != "mpu":
            raise error(f"{name}: {full}", f'it is given twice, as "{values[full]}" and "{value}"')
        values[full] = value
    return values


def _abbreviated(word: str, vocabulary: Sequence[str]) -> str:
    """Return the full word that tc reads from an abbreviation; empty if there is none."""
    return tc_text.completed(word, [name for name in vocabulary if name not in IN_FULL])


def _check_tbf(words: Mapping[str, str], *, from_show: bool) -> None:
    """Raise the errors with which tc refuses a tbf."""
    if "rate" not in words:
        raise error("tbf", "the rate is missing, which tc requires")
    if "burst" not in words and not from_show:
        raise error("tbf", "burst is missing, which tc requires, for example burst 4kb")
    if "limit" in words and "latency" in words and not from_show:
        raise error("tbf", "limit and latency are both given; tc takes one of them")
    if "limit" not in words and "latency" not in words:
        raise error("tbf", "limit and latency are both missing; tc requires one of them")
    if "peakrate" in words and "mtu" not in words:
        raise error("tbf: peakrate", "mtu is missing, which tc requires with it")


def _latency_bytes(words: Mapping[str, str], rate_bps: float, burst_bytes: float) -> int:
    """Return the limit in bytes that tc computes from a latency."""
    latency_s = tc_text.seconds("tbf: latency", words["latency"])
    limits = [latency_s * rate_bps / 8 + burst_bytes]
    if "peakrate" in words:
        peak_bps = tc_text.rate_bps("tbf: peakrate", words["peakrate"])
        limits.append(latency_s * peak_bps / 8 + _bucket_bytes("tbf: mtu", words["mtu"]))
    return round(min(limits))


def _bucket_bytes(about: str, text: str) -> int:
    """Return the size of a bucket; the size of a cell may follow it, as in 1600b/8."""
    return tc_text.size_bytes(about, text.split("/")[0])


def _class_numbers(text: str, *, from_show: bool) -> list[int]:
    """Return the class numbers that `default` may mean.

    tc reads the number as hexadecimal; `show` prints it so after 0x, and in some versions as a
    decimal number without it.
    """
    try:
        numbers = [int(text, 16)] if text else []
    except ValueError:
        reason = f'"{text}" is not a class number; tc reads it as hexadecimal, such as 12 or 0x12'
        raise error("htb: default", reason) from None
    return [*numbers, int(text)] if from_show and text.isdigit() else numbers


def _spelled(key: Id) -> str:
    """Return a class as tc writes it, such as 1:10."""
    return f"{key[0]:x}:{key[1]:x}"


def _classes(names: Sequence[str]) -> str:
    """Return "class 1:10 is" or "classes 1:10, 1:20 are"."""
    return f"class {names[0]} is" if len(names) == 1 else f"classes {', '.join(names)} are"
