"""Read lines of tc(8) in a pasted text as statements about qdiscs and classes, with tc's units.

The text may hold commands (`tc qdisc add …`), the output of `tc qdisc show` and `tc class show`,
a script, the contents of a terminal with its prompts, or the words of one qdisc alone. The grammar
is that of `tc_qdisc.c`, `tc_class.c` and `tc_util.c` of iproute2. `Framing` and `SizeTable` compute
the bytes that a line adds to an IP packet as Linux counts them: headers, cells and minimum sizes.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from forebay._base.words import hint
from forebay._native import ScenarioError

#: Objects of tc, in the order in which tc completes an abbreviation.
OBJECTS = ("qdisc", "class", "filter", "actions", "monitor", "exec", "chain", "help")
#: Commands of `tc qdisc` and `tc class`, in the same order.
VERBS = ("add", "change", "replace", "link", "delete", "list", "show", "lst", "get", "help")
#: Commands that set a qdisc or a class.
SETTING = {"add", "change", "replace", "link"}
#: Options of tc itself that have a value.
TC_OPTIONS = {"-n", "-net", "-netns", "-b", "-batch", "-cf", "-conf"}
#: Words before the kind of a qdisc, with a number of values.
PLACE = {
    "dev": 1,
    "handle": 1,
    "parent": 1,
    "classid": 1,
    "estimator": 2,
    "ingress_block": 1,
    "egress_block": 1,
    "root": 0,
}
#: Words of a size table (`stab`), all of them with a value.
STAB = ("mtu", "mpu", "overhead", "tsize", "linklayer")
#: Starts of lines of counters, which follow a line of `tc -s qdisc show`.
COUNTERS = re.compile(
    r"(Sent \d|backlog\b|rate \S+ \d+pps|maxpacket\b|new_flows?_|count \d|prob\b|pkts_in|marked \d|"
    r"lended:|tokens:|memory[ _]used|capacity estimate|min/max|average network|Bulk\b|Tin 0|"
    r"thresh\b|(pk|av|sp)_delay|(target|interval|quantum)( +[\d.]+[a-z]*)+$|pkts\b|bytes\b|drops\b|"
    r"marks\b|ack_drop|(sp|bk|un)_flows|max_len|way_|delay_[cl]|ecn_mark|credit\b|flows \d+ \(|"
    r"gc \d|throttled|highprio|allot|overlimit|requeues|avg_dq_rate|old_flows|drop_over|"
    r"maxq\b|\d+ bands|dropped\b|window\b)"
)
#: The largest number of words to list in the error about a word that a qdisc does not have.
MOST_NAMED = 20
#: The prompt of a shell: a last character that shells end it with, and a space.
PROMPT = re.compile(r"^(\[[^\]]*\]|[\w.@:~/\\-]*)[ ]*[#$%>][ ]+")
#: The program itself, or a variable of a script that names it.
TC = re.compile(r"(\S*/)?tc(-full|-tiny|-bpf)?|\$\{?TC\}?", re.IGNORECASE)
#: A handle or a class as `show` prints it: 8001:, 1:10, 0:[00000000].
HANDLE = re.compile(r"[0-9a-f]*:[0-9a-f]*(\[[0-9a-f]+\])?")

RATE_UNITS = {
    prefix + unit: scale * bits
    for unit, bits in (("bit", 1), ("bps", 8))
    for prefix, scale in (
        *(("", 1), ("k", 1e3), ("m", 1e6), ("g", 1e9), ("t", 1e12)),
        *(("ki", 2**10), ("mi", 2**20), ("gi", 2**30), ("ti", 2**40)),
    )
} | {"": 1}
#: Units of sizes are powers of two, even for bits.
SIZE_UNITS = {"": 1.0, "b": 1.0} | {
    prefix + unit: scale / divisor
    for prefix, scale in (("k", 2**10), ("m", 2**20), ("g", 2**30))
    for unit, divisor in (("", 1), ("b", 1), ("bit", 8))
}
#: A number without a unit is in microseconds.
TIME_UNITS = {"": 1e-6} | {
    prefix + unit: scale
    for prefix, scale in (("u", 1e-6), ("m", 1e-3), ("", 1.0))
    for unit in ("s", "sec", "secs")
}
#: A number above any rate in bit/s, size in bytes or number of packets of Linux.
LARGEST = 2.0**67
NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([a-z]*)")

#: Major and minor number of a qdisc or class.
Id = tuple[int, int]


@dataclass(frozen=True)
class Statement:
    """A line's statement about a qdisc or a class.

    Attributes
    ----------
    is_class : bool
        True for a class, False for a qdisc.
    from_show : bool
        True for a line of `show`, which omits options that are off; False for a command, for which
        the defaults of `tc qdisc add` hold.
    verb : str
        The command; empty for a line of `show` and for words alone.
    id, parent : Id or None
        Numbers of the qdisc or class and of its parent; None if the line has none. The root's
        parent is None, and `is_root` is True.
    leaf : Id or None
        The qdisc in a class; None for a qdisc.
    words : list of str
        The options after the kind.
    stab : list of str
        The size table's words, alternately names and values.
    """

    is_class: bool
    kind: str
    words: list[str]
    from_show: bool = False
    verb: str = ""
    device: str = ""
    id: Id | None = None
    parent: Id | None = None
    is_root: bool = False
    leaf: Id | None = None
    stab: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Text:
    """The statements of a text.

    Attributes
    ----------
    statements : list[Statement]
        The statements about qdiscs and classes.
    passed_over : list[str]
        Lines about something else.
    """

    statements: list[Statement]
    passed_over: list[str]


def error(about: str, reason: str) -> ScenarioError:
    """Return the error about a qdisc or one of its words.

    Parameters
    ----------
    about : str
        The qdisc and the word; empty for the text as a whole.
    reason : str
        The fault, as a clause.
    """
    return ScenarioError(f"{about}: {reason}" if about else reason)


def unknown(about: str, word: str, vocabulary: Iterable[str]) -> ScenarioError:
    """Return the error about a word that a qdisc or class does not have.

    Parameters
    ----------
    about : str
        The qdisc or class.
    word : str
        The word.
    vocabulary : Iterable[str]
        The words that it has.
    """
    names = list(vocabulary)
    named = ", ".join(names) if len(names) <= MOST_NAMED else f"those of tc-{about.split()[0]}(8)"
    return error(about, f'"{word}" is not a word of it{hint(word, names)}; tc has {named}')


def read(text: str, vocabulary: Mapping[str, Iterable[str]]) -> Text:
    """Return the statements of a text about qdiscs and classes.

    Parameters
    ----------
    text : str
        Lines of any origin; see the module.
    vocabulary : mapping
        The words of each kind of qdisc, by which the rest of a wrapped line is recognised.

    Raises
    ------
    ScenarioError
        If a line about a qdisc breaks off, or if the text is JSON.
    """
    if text.lstrip().startswith(("[", "{")) and '"kind"' in text:
        raise error("", "this is tc's JSON; paste the text of `tc -d qdisc show` instead")
    all_statements: list[Statement] = []
    passed_over: list[str] = []
    for line in _lines(text):
        if all_statements and _continues(all_statements, line, vocabulary):
            continue
        statements = [_statement(part) for part in _commands(line)]
        if all(part is None for part in statements) and not (
            all_statements and COUNTERS.match(line)
        ):
            passed_over.append(line)
        for statement in statements:
            if statement is None:
                continue
            if statement.verb == "delete":
                all_statements = [
                    earlier for earlier in all_statements if not _below(earlier, statement)
                ]
            elif statement.kind or statement.words:
                all_statements.append(statement)
    if not all_statements:
        words = " ".join(_lines(text)).split()
        if words and words[0] in vocabulary:
            # `show` alone prints a number of packets as 1000p.
            from_show = any(re.fullmatch(r"\d+p", word) for word in words)
            return Text([Statement(False, words[0], words[1:], from_show)], [])
    return Text(_merged(all_statements), passed_over)


def _lines(text: str) -> list[str]:
    """Return the lines of a text without colours.

    A line that ends in a backslash is joined with the next one.
    """
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r", "")
    plain = "".join(char if char.isprintable() or char == "\n" else " " for char in plain)
    joined = re.sub(r"\\\s*\n", " ", plain)
    lines = [line.strip().strip("`").strip() for line in joined.split("\n")]
    return [line for line in lines if line]


def _commands(line: str) -> list[list[str]]:
    """Return the words of each command of a line of shell, without prompt and comment."""
    line = PROMPT.sub("", line, count=1).lstrip("#$> \t")
    line = re.sub(r"\s#\s.*$", "", line)
    parts = [part.split() for part in re.split(r"&&|[;|]", line)]
    return [[_unquoted(word) for word in part if not _redirects(word)] for part in parts if part]


def _unquoted(word: str) -> str:
    """Return a word without quotes."""
    return word.strip("\"'`")


def _redirects(word: str) -> bool:
    """Return True if a word of shell redirects output."""
    return re.match(r"[12&]?>", word) is not None


def completed(word: str, names: Sequence[str]) -> str:
    """Return the first name that a word abbreviates, as tc completes it; empty for none.

    Parameters
    ----------
    word : str
        The word.
    names : Sequence[str]
        The names, in the order of tc.
    """
    return next((name for name in names if word and name.startswith(word)), "")


def _statement(words: list[str]) -> Statement | None:
    """Return the statement of a command or a line of `show`; None for words that are not tc's."""
    at = next((i for i, word in enumerate(words) if TC.fullmatch(word)), None)
    if at is not None:
        rest = iter(words[at + 1 :])
        for word in rest:
            if not word.startswith("-"):
                return _command(word, list(rest))
            if word in TC_OPTIONS:
                next(rest, "")
        return None
    if words and words[0] in ("added", "replaced", "changed"):
        words = words[1:]
    at = next((i for i, word in enumerate(words[:-2]) if word in ("qdisc", "class")), None)
    if at is None or "deleted" in words[:at]:
        return None
    if HANDLE.fullmatch(words[at + 2]):
        return _shown(words[at] == "class", words[at + 1], words[at + 2], words[at + 3 :])
    # A line of a batch file does not begin with `tc`.
    return _command(words[at], words[at + 1 :]) if words[at + 1] in VERBS else None


def _command(word: str, rest: list[str]) -> Statement | None:
    """Return the statement of `tc OBJECT VERB …`; that of a filter has no kind and no words."""
    name = completed(word, OBJECTS)
    if name not in ("qdisc", "class") or not rest:
        return None
    verb = completed(rest[0], VERBS)
    if verb not in SETTING and verb != "delete":
        return Statement(name == "class", "", [], verb="show") if verb else None
    statement = Statement(name == "class", "", [], verb=verb)
    words = rest[1:]
    while words:
        word = words[0]
        if word == "stab":
            stab = _stab(words[1:])
            statement, words = replace(statement, stab=stab), words[1 + len(stab) :]
            continue
        if word not in PLACE:
            statement = replace(statement, kind=word, words=words[1:])
            break
        values = words[1 : 1 + PLACE[word]]
        if len(values) < PLACE[word]:
            raise error("", f'"tc {name} {verb} …": the value of {word} is missing')
        statement = _placed(statement, word, values)
        words = words[1 + PLACE[word] :]
    if not statement.kind and verb != "delete" and verb != "change":
        raise error(
            "", f'"tc {name} {verb} {" ".join(rest[1:])}": the kind of the {name} is missing'
        )
    return statement


def _placed(statement: Statement, word: str, values: list[str]) -> Statement:
    """Return a statement with the value of a word such as `dev` or `parent`."""
    match word:
        case "dev":
            return replace(statement, device=values[0])
        case "root":
            return replace(statement, is_root=True)
        case "parent" if values[0] == "root":
            return replace(statement, is_root=True)
        case "parent":
            return replace(statement, parent=_id(values[0]))
        case "handle" | "classid":
            return replace(statement, id=_id(values[0]))
    return statement


def _shown(is_class: bool, kind: str, handle: str, words: list[str]) -> Statement:
    """Return the statement of a line of `tc qdisc show` or `tc class show`."""
    statement = Statement(is_class, kind, [], from_show=True, id=_id(handle))
    at = 0
    while at < len(words):
        word, value = words[at], words[at + 1] if at + 1 < len(words) else ""
        if word in ("dev", "root", "parent"):
            statement = _placed(statement, word, [value])
        elif word == "leaf":
            statement = replace(statement, leaf=_id(value))
        elif word not in ("refcnt", "offloaded", "ingress_block", "egress_block"):
            break
        at += 1 if word in ("root", "offloaded") else 2
    return replace(statement, words=words[at:])


def _id(text: str) -> Id:
    """Return the major and minor number of a handle or class, which are hexadecimal."""
    major, _, minor = text.partition("[")[0].partition(":")
    try:
        return int(major or "0", 16), int(minor or "0", 16)
    except ValueError:
        reason = f'"{text}" is not a handle or class; tc writes them as 1: and 1:10'
        raise error("", reason) from None


def _stab(words: Sequence[str]) -> list[str]:
    """Return the words of a size table at the start of `words`."""
    size = 0
    while size + 1 < len(words) and completed(words[size], STAB):
        size += 2
    return list(words[:size])


def _continues(
    statements: list[Statement], line: str, vocabulary: Mapping[str, Iterable[str]]
) -> bool:
    """Append a line to the statement before it if the line continues it, and return True then.

    `tc -d qdisc show` prints the size table on a line of its own, and terminals and mails wrap long
    lines.
    """
    words, last = line.split(), statements[-1]
    if last.from_show and len(_stab(words)) == len(words) and len(words) >= 2:
        statements[-1] = replace(last, stab=words)
        return True
    names = set(vocabulary.get(last.kind, ()))
    # Every value follows its word, so no two values are in a row.
    are_values = [word not in names for word in words]
    rest = words[0] in names and not any(a and b for a, b in itertools.pairwise(are_values))
    if rest:
        statements[-1] = replace(last, words=[*last.words, *words])
    elif last.from_show and words[0] in STAB and not COUNTERS.match(line):
        raise unknown("stab", words[len(_stab(words))], STAB)
    return rest


def _below(statement: Statement, deleted: Statement) -> bool:
    """Return True if `tc qdisc del` removes a qdisc: the root with all below it, or one place."""
    if deleted.device and statement.device and deleted.device != statement.device:
        return False
    if deleted.is_root:
        return statement.kind not in ("ingress", "clsact")
    same = deleted.is_class == statement.is_class
    return same and deleted.parent == statement.parent and deleted.id in (None, statement.id)


def _merged(statements: list[Statement]) -> list[Statement]:
    """Return the statements after later commands have replaced or changed earlier ones."""
    merged: list[Statement] = []
    for statement in statements:
        at = next((i for i, earlier in enumerate(merged) if _same_place(earlier, statement)), None)
        if at is None or statement.verb not in ("replace", "change"):
            if statement != (merged[at] if at is not None else None):
                merged.append(statement)
        elif statement.verb == "change" and statement.kind in ("", merged[at].kind):
            words = [*merged[at].words, *statement.words]
            merged[at] = replace(merged[at], words=words, stab=statement.stab or merged[at].stab)
        else:
            merged[at] = statement
    return merged


def _same_place(first: Statement, second: Statement) -> bool:
    """Return True if two commands are about one qdisc or class."""
    if first.is_class != second.is_class or first.device != second.device:
        return False
    if first.is_class:
        return first.id is not None and first.id == second.id
    if first.kind in ("ingress", "clsact") or second.kind in ("ingress", "clsact"):
        return first.kind == second.kind
    return first.is_root == second.is_root and first.parent == second.parent


def seconds(about: str, text: str) -> float:
    """Return a time of tc in seconds.

    Parameters
    ----------
    about : str
        The qdisc and the word, for errors.
    text : str
        The value of the word.

    Raises
    ------
    ScenarioError
        If tc does not accept the value.
    """
    return _quantity(about, text, TIME_UNITS, "a time; tc takes for example 5ms, 300us or 1s")


def rate_bps(about: str, text: str) -> float:
    """Return a rate of tc in bit/s; the unit `kbps` is kilobytes per second.

    Parameters
    ----------
    about : str
        The qdisc and the word, for errors.
    text : str
        The value of the word.

    Raises
    ------
    ScenarioError
        If tc does not accept the value, or it is a share of the device's speed.
    """
    if text.endswith("%"):
        raise error(
            about,
            f'"{text}" is a share of the device\'s speed, which no line gives; '
            "write the rate itself, for example 15Mbit",
        )
    return _quantity(about, text, RATE_UNITS, "a rate; tc takes for example 15Mbit or 808kbit")


def size_bytes(about: str, text: str) -> int:
    """Return a size of tc in bytes; a kilobyte has 1024.

    Parameters
    ----------
    about : str
        The qdisc and the word, for errors.
    text : str
        The value of the word.

    Raises
    ------
    ScenarioError
        If tc does not accept the value.
    """
    example = "a size; tc takes for example 3000, 4kb or 32kbit"
    return int(_quantity(about, text, SIZE_UNITS, example))


def number(about: str, text: str) -> float:
    """Return a number without a unit.

    Parameters
    ----------
    about : str
        The qdisc and the word, for errors.
    text : str
        The value of the word.

    Raises
    ------
    ScenarioError
        If tc does not accept the value.
    """
    return _quantity(about, text, {"": 1.0}, "a number")


def whole(about: str, text: str) -> int:
    """Parse a whole number of tc(8), which may be hexadecimal or end in "p", such as "1000p".

    Parameters
    ----------
    about : str
        The qdisc and the word, for errors.
    text : str
        The value of the word.

    Raises
    ------
    ScenarioError
        If tc does not accept the value.
    """
    digits = text.removesuffix("p")
    if re.fullmatch(r"0x[0-9a-f]+", digits.lower()):
        return int(digits, 16)
    return round(number(about, digits))


def signed(about: str, text: str) -> int:
    """Return a whole number with or without a sign.

    Parameters
    ----------
    about : str
        The qdisc and the word, for errors.
    text : str
        The value of the word.

    Raises
    ------
    ScenarioError
        If tc does not accept the value.
    """
    if re.fullmatch(r"[+-]?\d+", text) is None:
        _shell_variable(about, text)
        raise error(
            about, f'"{text}" is not a whole number of bytes; tc takes for example 44 or -4'
        )
    return int(text)


def _quantity(about: str, text: str, units: Mapping[str, float], example: str) -> float:
    """Return a number with one of the units in the base unit."""
    parts = NUMBER.fullmatch(text.lower())
    if parts is None or parts[2] not in units:
        _shell_variable(about, text)
        raise error(about, f'"{text}" is not {example}')
    value = float(parts[1]) * units[parts[2]]
    if value < 0:
        raise error(about, f'"{text}" is negative, which tc refuses')
    if value > LARGEST:
        raise error(about, f'"{text}" is out of range')
    return value


def _shell_variable(about: str, text: str) -> None:
    """Raise the error about a variable of a script, if a value has one."""
    if "$" in text:
        raise error(about, f'"{text}" has a variable of a script; write its value')


#: Cells of a link layer, as a scenario's `cake` names them.
NONE, ATM, PTM = "none", "atm", "ptm"
#: The cells of each link layer, by its name in tc.
LINK_LAYERS = {"ethernet": NONE, "atm": ATM, "adsl": ATM}
#: Defaults of a size table (`tc_calc_size_table`).
TABLE_MTU, TABLE_SLOTS = 2047, 512


def with_cells(count: int, cells: str) -> int:
    """Return the bytes that a packet occupies on a line.

    ATM sends 53 bytes for every 48 bytes or part of them; PTM adds one byte for every 64.

    Parameters
    ----------
    count : int
        Size of the packet in bytes.
    cells : str
        "none", "atm" or "ptm".
    """
    if cells == ATM:
        return math.ceil(count / 48) * 53
    return count + math.ceil(count / 64) if cells == PTM else count


def link_layer(about: str, text: str) -> str:
    """Return the kind of cells of a link layer of tc, whose name may be abbreviated.

    Parameters
    ----------
    about : str
        The qdisc and the word, for errors.
    text : str
        The value of the word.

    Raises
    ------
    ScenarioError
        If tc has no such link layer.
    """
    for name, cells in LINK_LAYERS.items():
        if text and name.startswith(text):
            return cells
    raise error(about, f'"{text}" is not a link layer of tc; it has {", ".join(LINK_LAYERS)}')


@dataclass(frozen=True)
class Framing:
    """The bytes that a line adds to each IP packet.

    Attributes
    ----------
    overhead_bytes : int
        Headers and trailers, besides the IP packet.
    cells : str
        "none", "atm" or "ptm".
    mpu_bytes : int
        Smallest size of a packet with its overhead, before cells.
    """

    overhead_bytes: int = 0
    cells: str = NONE
    mpu_bytes: int = 0

    def wire_bytes(self, packet_bytes: int) -> int:
        """Return the bytes that an IP packet occupies on the line."""
        return with_cells(max(packet_bytes + self.overhead_bytes, self.mpu_bytes), self.cells)


@dataclass(frozen=True)
class SizeTable:
    """Sizes are rounded up to the table's slots, as in `__qdisc_calculate_pkt_len` of the kernel.

    Attributes
    ----------
    size table of tc : `stab`
        the size that is counted for a packet with its header.
    overhead : int, default 0
        Bytes that are added to each packet.
    cells : str, default NONE
        "none" or "atm".
    mpu : int, default 0
        Smallest size that is counted.
    mtu : int, default TABLE_MTU
        Largest size that the table covers.
    slots : int, default TABLE_SLOTS
        Number of slots.
    """

    overhead: int = 0
    cells: str = NONE
    mpu: int = 0
    mtu: int = TABLE_MTU
    slots: int = TABLE_SLOTS

    def counted_bytes(self, length: int) -> int:
        """Return the bytes that are counted for a packet of `length` bytes."""
        length += self.overhead
        if self.cells == NONE and self.mpu == 0:
            return max(1, length)
        log = 0
        while self.mtu >> log > self.slots - 1:
            log += 1
        slot = max(0, length - 1) >> log
        whole, rest = divmod(slot, self.slots)
        if whole == 0:
            return self._entry(slot, log)
        return self._entry(self.slots - 1, log) * whole + self._entry(rest, log)

    def _entry(self, slot: int, log: int) -> int:
        """Return the size in a slot of the table."""
        return with_cells(max((slot + 1) << log, self.mpu), self.cells)


def size_table(words: list[str]) -> SizeTable | None:
    """Return the size table of a line's words; None if there are no words."""
    if not words:
        return None
    values: dict[str, str] = {}
    for word, value in zip(words[::2], words[1::2], strict=True):
        values[completed(word, STAB)] = value
    overhead = signed("stab: overhead", values.get("overhead", "0"))
    cells = link_layer("stab: linklayer", values.get("linklayer", "ethernet"))
    mpu, mtu, slots = (
        whole(f"stab: {name}", values.get(name, "0")) for name in ("mpu", "mtu", "tsize")
    )
    return SizeTable(overhead, cells, mpu, mtu or TABLE_MTU, slots or TABLE_SLOTS)
