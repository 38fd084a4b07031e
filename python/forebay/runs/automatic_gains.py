"""Laws with `gains = "auto"`: their numbers, designed before a run for the link and the load that
the reader of scenarios names. It asks here, and gives what is designed to the laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay._native import Designed, GainsRequest
    from forebay.theory.design.fitted_gains import Fitted

#: The key of a `[[law]]` that asks for a design.
GAINS = "gains"


def fitted(request: GainsRequest) -> Fitted:
    """The numbers of a law for its link. Raises `ScenarioError`."""
    from forebay.theory.design import fitted_gains  # loads scipy

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


def written(text: str, laws: Sequence[Designed]) -> str:
    """A scenario with its designed numbers in place of the word: what was run, as any other
    scenario. Laws that only `--law` names are added."""
    import tomlkit

    from forebay.scenarios.builder import typed

    document = tomlkit.parse(text)
    tables = list(document.get("law", []))
    for law in laws:
        if law.law < len(tables):
            table = tables[law.law]
        else:
            table = tomlkit.table()
            table["kind"] = law.label
            if "law" not in document:
                document["law"] = tomlkit.aot()
            document["law"].append(table)
        table.pop(GAINS, None)
        for key, value in law.params:
            table[key] = typed(value) if isinstance(value, str) else value
        table.comment(law.line.replace("\n", " "))
    return tomlkit.dumps(document)
