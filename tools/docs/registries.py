"""Writes the pages of the laws and of the queue disciplines from their declarations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from forebay import _native
from forebay.report.tables import bounds, markdown_table

if TYPE_CHECKING:
    from forebay._native import RegistryEntry


def _sections(entries: Iterable[RegistryEntry]) -> str:
    """Return a section for each entry of a registry, with its parameters."""
    sections = [
        f"## `{law['name']}`\n\n{law['title']}.\n\nSource: {law['source']}.\n\n"
        + (f"`{law['equation']}`\n\n" if law["equation"] else "")
        + (
            markdown_table(
                ["parameter", "unit", "default", "range", "meaning"],
                (
                    [
                        f"`{p['name']}`",
                        p["unit"],
                        p["default_text"],
                        bounds(p["min"], p["max"]),
                        p["doc"],
                    ]
                    for p in law["params"]
                ),
            )
            if law["params"]
            else "It has no parameters.\n"
        )
        for law in entries
    ]
    return "\n".join(sections)


def laws() -> str:
    """Return the page of the laws in Markdown."""
    head = (
        "# Laws\n\n"
        "This page lists every control law with its equation, source and parameters.\n\n"
        "It is generated from the declarations by `make docs`; `forebay laws NAME` prints the same.\n"
        "A range is in the unit of its row; `p` is packets.\n"
        "To *signal* a packet is to mark it if it is ECN-capable and its queue marks, and to drop it otherwise.\n"
        "Short names such as `pi-pd` are those of [References](references.md), which has the sources in full; [Extend Forebay](../contribute/extend.md#add-a-control-law) has the steps to add a law.\n\n"
    )
    return head + _sections(_native.laws())


def queues() -> str:
    """Return the page of the queue disciplines in Markdown."""
    head = (
        "# Queue disciplines\n\n"
        "This page lists every queue discipline with its source and parameters.\n\n"
        "It is generated from the declarations by `make docs`; `forebay queues NAME` prints the same.\n"
        "A discipline holds the packets of a queue, and acts on the verdicts of its laws.\n"
        "A law names its discipline in a [scenario](scenario.md); `fifo` is the default:\n\n"
        '```toml\n[[law]]\nkind  = "pi"\n'
        'queue = "priority"                       # or { kind = "priority", dscp = 46 }\n```\n\n'
        "[Extend Forebay](../contribute/extend.md#add-a-queue-discipline) has the steps to add a discipline.\n\n"
    )
    return head + _sections(_native.queues())
