"""Automatic gain design: the parameters of laws with `gains = "auto"`, for their link and load.

Every part that designs a law without being told its gains asks here: the reader of scenarios,
studies, which keep designs in their store, links for real traffic, laws in the kernel, tuning, and
the studio. `control.fitted_gains` has the method.

A link asks another process, since it may have to become the emulator, for which a process must have
one thread only, and numpy starts more.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from forebay._base.publication import digest_of
from forebay._base.worker_process import Worker, WorkerError
from forebay._native import ScenarioError

if TYPE_CHECKING:
    from forebay._native import Designed, GainsRequest, Parameter, Plan
    from forebay.control.designed_law import Design
    from forebay.control.fitted_gains import Fitted
    from forebay.control.link import Link
    from forebay.experiment.store import Designs

#: A law's kind, the arguments of `fitted_gains.OperatingRange`, and the parameters that are given.
Question = tuple[str, Mapping[str, Any], Mapping[str, Any]]

#: The key of a `[[law]]` that asks for a design.
GAINS = "gains"
#: Lines on the designs of one law.
MOST_LINES = 4


def fitted(question: Question) -> Fitted:
    """Return the parameters of a law for its link.

    Raises
    ------
    ScenarioError
        If the law is unknown, or a given parameter is wrong.
    """
    from forebay.control import fitted_gains  # loads scipy

    kind, place, given = question
    return fitted_gains.fit(kind, fitted_gains.OperatingRange(**place), given)


def by_rule(law: str, link: Link, target_pkts: float, settings: Mapping[str, str]) -> Design:
    """Return a law designed for a link by its rule alone.

    Where the rule suits no other sender it is asked for Reno flows, for which it was made.

    Parameters
    ----------
    law : str
        Name of the law in `forebay laws`.
    link : Link
        The link and its flows.
    target_pkts : float
        The set-point in packets.
    settings : dict
        Goals of the rule and parameters of the law, as texts.

    Raises
    ------
    ScenarioError
        If there is no design for Reno flows either.
    """
    from forebay.control.design_rule import design_once  # loads scipy
    from forebay.control.link import PLAIN

    try:
        return design_once(law, link, target_pkts, settings)
    except ScenarioError:
        if not link.groups:
            raise
        return design_once(law, link.varied(senders=PLAIN), target_pkts, settings)


def of_request(request: GainsRequest) -> Question:
    """Return what the reader of scenarios asks, as a question."""
    place = {
        "rate_bps": request.rate_bps,
        "packet_bytes": request.packet_bytes,
        "rtt_s": request.rtt_s,
        "room_pkts": request.room_pkts,
        "flows": request.flows,
        "one_loop": not request.per_flow,
        "tcp": request.tcp,
        "short_flows": request.short_flows,
        "other_bps": request.other_bps,
    }
    return request.kind, place, dict(request.given)


def kept_numbers(request: GainsRequest, kept: Designs) -> list[tuple[str, Parameter]] | None:
    """Return the numbers of a law that a store has; None where it does not have them."""
    numbers = kept.get(_digest(request))
    return None if numbers is None else list(numbers.items())


def numbers(request: GainsRequest, kept: Designs | None) -> list[tuple[str, Parameter]]:
    """Return the numbers of a law for its link, from a store or into it. Raises `ScenarioError`."""
    found = kept_numbers(request, kept) if kept else None
    if found is None:
        found = list(fitted(of_request(request)).params)
        if kept:
            kept.put(_digest(request), dict(found))
    return found


def _digest(request: GainsRequest) -> str:
    """Return the digest of what a design depends on, by which a store knows it."""
    kind, place, given = of_request(request)
    return digest_of({"kind": kind, "given": given, **place})


def answers(questions: Sequence[Question], *, elsewhere: bool = False) -> list[dict[str, Any]]:
    """Return the fields of `Fitted` for each question, without the design, or else an `error`.

    Parameters
    ----------
    questions : sequence of Question
        The laws and their links.
    elsewhere : bool, optional
        True to calculate in another process, unless this one has loaded numpy already.

    Raises
    ------
    ScenarioError
        If the other process fails.
    """
    if not elsewhere or "numpy" in sys.modules or not questions:
        return answer_all(questions)
    worker = Worker(f"{__name__}:{answer_all.__name__}")
    try:
        answered: list[dict[str, Any]] = worker.ask(questions)
    except WorkerError as error:
        raise ScenarioError("link: the process that designs the law has ended") from error
    finally:
        worker.end()
    return answered


def answer_all(questions: Sequence[Question]) -> list[dict[str, Any]]:
    """Return the fields of `Fitted` for each question, as `answers` does."""
    return [_answer(question) for question in questions]


def _answer(question: Question) -> dict[str, Any]:
    try:
        return asdict(replace(fitted(question), design=None))
    except ScenarioError as error:
        return {"error": str(error)}


def designed(requests: Sequence[GainsRequest]) -> list[tuple[list[tuple[str, str]], str]]:
    """Return the numbers of each law that asks, and a line on them, for `forebay._native.plan`."""
    found = [fitted(of_request(request)) for request in requests]
    return [(list(one.params), one.line) for one in found]


def lines(plan: Plan) -> list[str]:
    """Return a line on each design; for a law that has many, lines for its first points."""
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
