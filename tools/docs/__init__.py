"""The pages of `docs/` that are written from the declarations.

`python -m tools.docs DIR` writes them; a test checks that they are up to date.
"""

from __future__ import annotations

from tools.docs.measures import metrics
from tools.docs.references import references
from tools.docs.registries import laws, queues
from tools.docs.scenarios import scenario


def pages() -> dict[str, str]:
    """File name and text of every generated page."""
    return {
        "reference/laws.md": laws(),
        "reference/metrics.md": metrics(),
        "reference/queues.md": queues(),
        "reference/references.md": references(),
        "reference/scenario.md": scenario(),
    }
