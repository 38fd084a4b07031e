"""What was run, in words: links, traffic and the rest, from a template."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from forebay._base import quantities, words
from forebay._base.registries import senders
from forebay.experiment import descriptions
from forebay.experiment.experiment import Description
from forebay.report.templates import paragraphs

if TYPE_CHECKING:
    from forebay.experiment.result import Result

#: How a number of a kind of traffic is written, by the end of its key.
WRITTEN = {
    "_s": words.time,
    "_bps": words.rate,
    "_bytes": lambda count: words.quantity(quantities.size(round(count))),
}


def describe(result: Result) -> Description:
    """As the experiment has it, else from the first point of its plan."""
    if result.experiment.description is not None:
        return result.experiment.description
    first = result.plan.points[0]
    link, *others, rest = paragraphs(
        "description.txt.j2",
        plan=result.plan,
        runs=result.experiment.runs,
        in_words=result.experiment.engine.in_words,
        first=first,
        point=descriptions.point(first),
        changes=descriptions.changes(first, 10),
        traffic=[
            # What is absent is empty.
            (each, defaultdict(str, {key: _number(key, it) for key, it in each.numbers.items()}))
            for each in first.traffic
        ],
        senders={name: sender["title"] for name, sender in senders().items()},
        words=words,
        size=quantities.size,
    )
    others, traffic = others[: len(first.links) - 1], others[len(first.links) - 1 :]
    return Description(link, traffic, rest, others)


def _number(key: str, number: float) -> str:
    """A number of a kind of traffic; its key ends with the unit."""
    write = next((write for end, write in WRITTEN.items() if key.endswith(end)), words.value)
    return write(number)
