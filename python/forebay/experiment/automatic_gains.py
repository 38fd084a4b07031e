"""Design the parameters of laws with `gains = "auto"`, for the link and the load of each.

Every part of Forebay that must design the gains of a law asks this module: the reader of
scenarios, studies, which keep designs in their store, links for real traffic, laws in the kernel,
tuning, and the studio. `control.fitted_gains` has the method.

A link for real traffic asks another process. It may have to become the emulator, for which a
process must have a single thread, and numpy starts more.
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

#: The kind of a law, the arguments of `fitted_gains.OperatingRange` for its link and load, and the
#: parameters whose values are fixed.
Question = tuple[str, Mapping[str, Any], Mapping[str, Any]]

#: The key of a `[[law]]` that asks for a design.
GAINS = "gains"
#: The most lines that describe the designs of one law.
MOST_LINES = 4


def fitted(question: Question) -> Fitted:
    """Return the parameters of a law that are designed for its link.

    Parameters
    ----------
    question : Question
        The law, its operating range, and the parameters that are fixed.

    Returns
    -------
    Fitted
        The design, with its parameters and a line that describes it.

    Raises
    ------
    ScenarioError
        If the law has no design rule, or no gains suit the link.
    """
    from forebay.control import fitted_gains  # loads scipy

    kind, place, fixed = question
    return fitted_gains.fit(kind, fitted_gains.OperatingRange(**place), fixed)


def by_rule(law: str, link: Link, target_pkts: float, settings: Mapping[str, str]) -> Design:
    """Return a law designed for a link by its rule alone.

    A rule that suits no other sender is asked for Reno flows, for which it was made.

    Parameters
    ----------
    law : str
        Name of the law in `forebay laws`.
    link : Link
        The link and its flows.
    target_pkts : float
        The set-point in packets.
    settings : Mapping[str, str]
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
    """Return the request of the scenario reader as a question."""
    operating_range = {
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
    return request.kind, operating_range, dict(request.given)


def kept_numbers(request: GainsRequest, designs: Designs) -> list[tuple[str, Parameter]] | None:
    """Return the designed parameters of a law from a store of designs.

    Parameters
    ----------
    request : GainsRequest
        The request of the scenario reader.
    designs : Designs
        The store of designs.

    Returns
    -------
    list[tuple[str, Parameter]] | None
        Names and values of the parameters; None if the store does not have this design.
    """
    numbers = designs.get(_digest(request))
    return None if numbers is None else list(numbers.items())


def numbers(request: GainsRequest, designs: Designs | None) -> list[tuple[str, Parameter]]:
    """Return the designed parameters of a law, from the store if it has them.

    Parameters
    ----------
    request : GainsRequest
        The request of the scenario reader.
    designs : Designs | None
        The store of designs, which receives a new design; None designs anew.

    Returns
    -------
    list[tuple[str, Parameter]]
        Names and values of the parameters.

    Raises
    ------
    ScenarioError
        If no gains suit the link.
    """
    params = kept_numbers(request, designs) if designs else None
    if params is None:
        params = list(fitted(of_request(request)).params)
        if designs:
            designs.put(_digest(request), dict(params))
    return params


def _digest(request: GainsRequest) -> str:
    """Return the digest of everything that a design depends on: its key in a store."""
    kind, operating_range, fixed = of_request(request)
    return digest_of({"kind": kind, "given": fixed, **operating_range})


def answers(questions: Sequence[Question], *, elsewhere: bool = False) -> list[dict[str, Any]]:
    """Design laws, and return for each the fields of `Fitted` without `design`, or an `error`.

    Parameters
    ----------
    questions : Sequence[Question]
        The laws to design.
    elsewhere : bool, default False
        True to ask another process if this one has not loaded numpy yet. Numpy starts threads,
        which a process that still forks must not have.

    Returns
    -------
    list[dict[str, Any]]
        One mapping per question, in order.

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
    """Design each law in this process, and return the designs as `answers` does."""
    return [_answer(question) for question in questions]


def _answer(question: Question) -> dict[str, Any]:
    try:
        return asdict(replace(fitted(question), design=None))
    except ScenarioError as error:
        return {"error": str(error)}


def designed(requests: Sequence[GainsRequest]) -> list[tuple[list[tuple[str, str]], str]]:
    """Return the parameters of each law and a line on them, for `forebay._native.plan`."""
    designs = [fitted(of_request(request)) for request in requests]
    return [(list(design.params), design.line) for design in designs]


def lines(plan: Plan) -> list[str]:
    """Return one line per design; a law with many designs has lines for its first points only."""
    sentences = []
    for designs in _by_law(plan.designed).values():
        for design in designs[:MOST_LINES]:
            at = plan.points[design.points[0]].label
            more = f" and {len(design.points) - 1} more" if len(design.points) > 1 else ""
            sentences.append(f"{at}{more}: {design.line}" if len(designs) > 1 else design.line)
        if len(designs) > MOST_LINES:
            sentences.append(
                f"{designs[0].label}: {len(designs) - MOST_LINES} more designs, for other points; "
                "`parameters` of metrics.parquet has all numbers"
            )
    return sentences


def written(text: str, designed: Sequence[Designed]) -> str:
    """Return the text of a scenario in which designed numbers replace `gains = "auto"`.

    The text is an ordinary scenario that repeats the runs. A law that only `--law` names is added
    as a table. A law with several designs, for different points of a sweep, keeps `gains = "auto"`.

    Parameters
    ----------
    text : str
        The scenario in TOML.
    designed : Sequence[Designed]
        The designs that the plan of the scenario holds.

    Returns
    -------
    str
        The new scenario in TOML.
    """
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
    """Group designs by the index of their law."""
    by_law: dict[int, list[Designed]] = {}
    for design in designed:
        by_law.setdefault(design.law, []).append(design)
    return by_law
