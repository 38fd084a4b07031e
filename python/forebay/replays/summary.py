"""docs/papers.md: which claims of the papers hold, which do not, and why."""

from __future__ import annotations

from collections.abc import Sequence

from forebay._native import ScenarioError
from forebay.pages.templates import template
from forebay.replays.claims import Paper
from forebay.replays.verdicts import NOT_REPRODUCED, Verdict, count


def page(papers: Sequence[Paper], found: Sequence[Verdict]) -> str:
    """The page as Markdown. Its prose is in the template; every number in it is from `found`."""
    by_key = {verdict.key: verdict for verdict in found}

    def ours(key: str) -> str:
        if key not in by_key:
            raise ScenarioError(f"papers.md.j2: found {key}, allowed: a claim that was replayed")
        return by_key[key].text()

    of_paper = {paper.name: [v for v in found if v.paper == paper.name] for paper in papers}
    return template("papers.md.j2").render(
        papers=papers,
        of_paper=of_paper,
        count=count,
        total=len(found),
        all=count(found),
        ours=ours,
        not_reproduced=NOT_REPRODUCED,
    )
