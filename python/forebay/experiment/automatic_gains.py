"""Laws with `gains = "auto"`: their numbers, designed before a run for the link and the load that
the reader of scenarios names. It asks here, and gives what is designed to the laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay._native import Designed, GainsRequest, Plan
    from forebay.control.fitted_gains import Fitted

#: The key of a `[[law]]` that asks for a design.
GAINS = "gains"
#: Lines on the designs of one law.
MOST_LINES = 4


def fitted(request: GainsRequest) -> Fitted:
    """The numbers of a law for its link. Raises `ScenarioError`."""
    from forebay.control import fitted_gains  # loads scipy

    place = fitted_gains.OperatingRange(
        request.rate_bps,
        request.packet_bytes,
        request.rtt_s,
        request.room_pkts,
        request.flows,
        one_loop=not request.per_flow,
        tcp=request.tcp,
        short_flows=request.short_flows,
        other_bps=request.other_bps,
    )
    return fitted_gains.fit(request.kind, place, dict(request.given))


def designed(requests: Sequence[GainsRequest]) -> list[tuple[list[tuple[str, str]], str]]:
    """Of each law that asks, its numbers and a line on them; `forebay._native.plan` calls it."""
    found = [fitted(request) for request in requests]
    return [(list(one.params), one.line) for one in found]


def lines(plan: Plan) -> list[str]:
    """A line on each design; of a law that has many, one for each of some points."""
    said = []
    for designs in _by_law(plan.designed).values():
        for design in designs[:MOST_LINES]:
            at = plan.points[design.points[0]].label
            more = f" and {len(design.points) - 1} more" if len(design.points) > 1 else ""
            said.append(f"{at}{more}: {design.line}" if len(designs) > 1 else design.line)
        if len(designs) > MOST_LINES:
            said.append(
                f"{designs[0].label}: {len(designs) - MOST_LINES} more designs, for other points; "
                "`parameters` of metrics.parquet has all numbers"
            )
    return said


def written(text: str, designed: Sequence[Designed]) -> str:
    """A scenario with its designed numbers in place of the word: what was run, as any other
    scenario. Laws that only `--law` names are added; one with several designs, for points that
    differ, keeps the word."""
    import tomlkit

    from forebay.scenario.builder import typed

    document = tomlkit.parse(text)
    tables = list(document.get("law", []))
    for law, designs in _by_law(designed).items():
        if law < len(tables):
            table = tables[law]
        else:
            table = tomlkit.table()
            table["kind"] = designs[0].label
            if "law" not in document:
                document["law"] = tomlkit.aot()
            document["law"].append(table)
        if len(designs) > 1:
            table[GAINS] = "auto"
            table.comment(f"{len(designs)} designs, for the points of the sweep")
            continue
        table.pop(GAINS, None)
        for key, value in designs[0].params:
            table[key] = typed(value) if isinstance(value, str) else value
        table.comment(designs[0].line.replace("\n", " "))
    return tomlkit.dumps(document)


def _by_law(designed: Sequence[Designed]) -> dict[int, list[Designed]]:
    by_law: dict[int, list[Designed]] = {}
    for design in designed:
        by_law.setdefault(design.law, []).append(design)
    return by_law
