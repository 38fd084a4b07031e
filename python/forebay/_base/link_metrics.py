"""The metrics that a link serves, read from Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PREFIX = "forebay_link_"


@dataclass(frozen=True)
class LinkSample:
    """One number: its name without the prefix, and the labels that tell it from others."""

    name: str
    labels: dict[str, str]
    value: float


def link_samples(text: str) -> Iterator[LinkSample]:
    """The samples of links in a text, line by line; other lines are passed over."""
    from prometheus_client.parser import text_string_to_metric_families

    for line in text.splitlines():
        if not line.startswith(PREFIX):
            continue
        try:
            # A line at a time: several scrapes may follow each other, and repeat every family.
            families = list(text_string_to_metric_families(line))
        except ValueError:
            continue
        for family in families:
            for sample in family.samples:
                yield LinkSample(sample.name.removeprefix(PREFIX), sample.labels, sample.value)
