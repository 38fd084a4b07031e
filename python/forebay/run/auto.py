"""Laws with `gains = "auto"`: their numbers, designed before the run for the scenario's bottleneck
and flows, and written into the scenario in place of the word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forebay import _native, units
from forebay._native import ScenarioError
from forebay.run.designed import OF_FLOWS, growth

if TYPE_CHECKING:
    import tomlkit

    from forebay._native import Plan
    from forebay.control.fit import Place
    from forebay.run.prototypes import Prototype

#: The key, and the word that asks for a design.
GAINS, AUTO = "gains", "auto"
#: Keys of a `[[law]]` that are no parameters.
OTHER = {"kind", "label", "queue", GAINS}
#: Traffic that lasts: what a law is designed for.
LASTING = "ftp"

Sets = list[tuple[str, str]]
Read = Callable[[str], bytes | None]


def resolved(
    text: bytes,
    name: str,
    sets: Sequence[tuple[str, str]] = (),
    laws: Sequence[str | Prototype] = (),
    read: Read | None = None,
) -> tuple[bytes, Sets, list[str]]:
    """The scenario and what is set on top of it, with numbers for the laws that ask for a design,
    and a line on each of them.

    A number in the file, in `sets` or in a sweep stays as it is. Raises `ScenarioError`.
    """
    asked = [(key, value) for key, value in sets if is_gains(key)]
    if AUTO.encode() not in text and not asked:
        return text, list(sets), []
    # What few scenarios need, and takes a while to load.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    from forebay.run.scenario import typed

    try:
        document = tomlkit.parse(text.decode())
        tables = list(document.get("law", []))
        plain: dict[str, Any] = document.unwrap()
    except (TOMLKitError, UnicodeDecodeError, TypeError, ValueError):
        # The reader in Rust says what is wrong, and where.
        return text, list(sets), []
    if not all(isinstance(table, dict) for table in tables):
        return text, list(sets), []
    _add_named(document, tables, asked, laws)
    found = [(i, table) for i, table in enumerate(tables) if asks(asked, i, table)]
    if not found:
        return text, list(sets), []
    from forebay.control.fit import fit  # loads scipy

    there = place(_without_laws(plain, name, sets, read))
    lines = []
    named = {law for law in laws if isinstance(law, str)}
    for i, table in found:
        given = {key: value for key, value in table.items() if key not in OTHER}
        given |= {key: text for key, text in _of_law(sets, i, table) if key not in OTHER}
        given |= _swept(plain, i, table)
        fitted = fit(_kind(table), _for_queue(there, table), given)
        table.pop(GAINS, None)
        for key, value in fitted.params:
            table[key] = typed(value)
        table.comment(fitted.line.replace("\n", " "))
        # One that does not run must fit the link, too, but says nothing.
        if not laws or {table.get("label"), table["kind"]} & named:
            lines.append(fitted.line)
    done = {key for i, table in found for key in _names(GAINS, i, table)}
    return (
        tomlkit.dumps(document).encode(),
        [(key, value) for key, value in sets if key not in done],
        lines,
    )


def place(plan: Plan) -> Place:
    """What a law is designed for: the bottleneck, its fastest rate, its smallest buffer, and the
    long-lived flows, over every point and every change."""
    from forebay.control.fit import Place

    rates, rooms, rtts, flows, sizes = [], [], [], [], []
    for point in plan.points:
        lasting = [one for one in point.traffic if one.kind == LASTING]
        of = lasting or [one for one in point.traffic if one.rtts_s]
        size = max((one.packet_bytes for one in of), default=1500)
        sizes.append(size)
        rtts += [rtt for one in of for rtt in one.rtts_s]
        bottleneck = point.links[0]
        rates.append(bottleneck.rate_bps)
        for link in point.links:
            if link.law is None:
                rooms.append(_room(link.buffer_pkts, link.buffer_bytes, size))
        fewest = most = float(sum(one.flows for one in lasting))
        for change in point.changes:
            if change.link == 0 and change.rate_bps is not None:
                rates.append(change.rate_bps)
            if change.link == 0 and (change.buffer_pkts or change.buffer_bytes):
                rooms.append(_room(change.buffer_pkts, change.buffer_bytes, size))
            if change.traffic is not None and change.flows is not None:
                before = point.traffic[change.traffic]
                if before.kind == LASTING:
                    now = most - before.flows + change.flows
                    fewest, most = min(fewest, now), max(most, now)
        if lasting:
            flows += [max(1.0, fewest), max(1.0, most)]
    return Place(
        max(rates),
        max(sizes),
        (min(rtts, default=0.1), max(rtts, default=0.1)),
        min(rooms, default=float(1 << 20)),
        (min(flows), max(flows)) if flows else None,
        tcp=_sender(
            growth(one.tcp, one.ecn != "off" and point.links[0].ecn)
            for point in plan.points
            for one in point.traffic
            if one.kind == LASTING
        ),
    )


def _sender(names: Iterable[str | None]) -> str:
    """The growth of all; Reno's where there are several, or one that the plant does not have."""
    found = set(names)
    return (found.pop() if len(found) == 1 else None) or "reno"


def _room(pkts: int | None, size: int | None, packet_bytes: int) -> float:
    return float(pkts) if pkts is not None else (size or 0) / packet_bytes


def _for_queue(there: Place, table: Any) -> Place:
    """The place as a law sees it from the queue that holds it."""
    from dataclasses import replace

    queue = table.get("queue")
    kind = queue.get("kind") if isinstance(queue, dict) else queue
    if kind is None:
        entries = {entry["name"]: entry for entry in _native.laws()}
        entry = entries.get(_kind(table))
        kind = entry["queue"] if entry else ""
    return replace(there, one_loop=not OF_FLOWS.search(str(kind)))


def _without_laws(
    plain: dict[str, Any], name: str, sets: Sequence[tuple[str, str]], read: Read | None
) -> Plan:
    """The plan of the same scenario under the queue without a law."""
    import tomlkit

    rest = {key: value for key, value in plain.items() if key not in {"law", "sweep"}}
    sweep = {}
    for keys, values in (plain.get("sweep") or {}).items():
        names = [one.strip() for one in keys.split(",")]
        kept = [i for i, one in enumerate(names) if not one.startswith("law.")]
        if len(names) == 1 and kept:
            sweep[keys] = values
        elif kept:
            rows = [[row[i] for i in kept] for row in values]
            one = len(kept) == 1
            sweep[",".join(names[i] for i in kept)] = [r[0] for r in rows] if one else rows
    if sweep:
        rest["sweep"] = sweep
    baseline = next(entry["name"] for entry in _native.laws() if entry["baseline"])
    return _native.plan(
        tomlkit.dumps(rest).encode(),
        name,
        sets=[(key, value) for key, value in sets if not key.startswith("law.")],
        laws=[baseline],
        seeds=1,
        read=read,
    )


def _add_named(
    document: tomlkit.TOMLDocument,
    tables: list[Any],
    asked: Sequence[tuple[str, str]],
    laws: Sequence[str | Prototype],
) -> None:
    """A `[[law]]` for each that only `--law` names, where a design is asked for it."""
    import tomlkit

    for key, value in asked:
        kind = key.split(".")[1]
        there = {str(table.get(name)) for table in tables for name in ("kind", "label")}
        if value != AUTO or kind not in laws or kind in there:
            continue
        table = tomlkit.table()
        table["kind"] = kind
        if "law" not in document:
            document["law"] = tomlkit.aot()
        document["law"].append(table)
        tables.append(table)


def _kind(table: Any) -> str:
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in {entry["name"] for entry in _native.laws()}:
        known = ", ".join(entry["name"] for entry in _native.laws())
        raise ScenarioError(f'law: kind: found "{kind}", allowed: {known}')
    return kind


def asks(sets: Sequence[tuple[str, str]], i: int, table: Mapping[str, Any]) -> bool:
    """Whether law number `i` of a file asks for a design, there or in what is set on top."""
    return bool(dict(_of_law(sets, i, table)).get(GAINS, table.get(GAINS)) == AUTO)


def set_keys(sets: Sequence[tuple[str, str]], i: int, table: Mapping[str, Any]) -> list[str]:
    """The keys of law number `i` that are set on top of the file."""
    return [key for key, _ in _of_law(sets, i, table)]


def own_paths(sets: Sequence[tuple[str, str]], i: int, table: Mapping[str, Any]) -> set[str]:
    """The paths among those that are set on top of the file that name law number `i`."""
    keys = {path for path, _ in sets}
    return {path for path in keys if path in _names(path.rpartition(".")[2], i, table)}


def without(text: str) -> str:
    """The scenario without the word, for a reader that gets the numbers themselves."""
    import tomlkit

    document = tomlkit.parse(text)
    for table in document.get("law", []):
        if table.get(GAINS) == AUTO:
            table.pop(GAINS)
    return tomlkit.dumps(document)


def is_gains(key: str) -> bool:
    parts = key.split(".")
    return len(parts) == 3 and parts[0] == "law" and parts[2] == GAINS


def _names(key: str, i: int, table: Any) -> list[str]:
    """What `--set` may call a key of a law."""
    names = dict.fromkeys([str(i), str(table.get("label", "")), str(table.get("kind", ""))])
    return [f"law.{name}.{key}" for name in names if name]


def _of_law(sets: Sequence[tuple[str, str]], i: int, table: Any) -> Sets:
    """The keys of a law that are set on top of the file."""
    found = []
    for path, value in sets:
        key = path.rpartition(".")[2]
        if path in _names(key, i, table):
            found.append((key, value))
    return found


def _swept(plain: dict[str, Any], i: int, table: Any) -> dict[str, str]:
    """Parameters of a law that a sweep gives, with the first of their values."""
    found = {}
    for keys, values in (plain.get("sweep") or {}).items():
        names = [one.strip() for one in keys.split(",")]
        for column, path in enumerate(names):
            key = path.rpartition(".")[2]
            if path in _names(key, i, table) and key not in OTHER and values:
                first = values[0] if len(names) == 1 else values[0][column]
                found[key] = units.plain(first)
    return found
