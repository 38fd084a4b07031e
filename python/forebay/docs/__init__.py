"""The pages of `docs/` that are written from the declarations.

`python -m forebay.docs DIR` writes them; a test checks that they are up to date.
"""

from __future__ import annotations

from forebay.docs.measures import metrics
from forebay.docs.references import references
from forebay.docs.registries import laws, queues
from forebay.docs.scenarios import scenario


def pages() -> dict[str, str]:
    """File name and text of every generated page."""
    return {
        "laws.md": laws(),
        "metrics.md": metrics(),
        "queues.md": queues(),
        "references.md": references(),
        "scenario.md": scenario(),
    }
