"""The pages of `docs/` that are generated from declarations.

`python -m tools.docs DIR` writes them, and `python -m tools.check documents` finds outdated ones.
"""

from __future__ import annotations

from tools.docs.errors import errors
from tools.docs.measures import metrics
from tools.docs.references import references
from tools.docs.registries import laws, queues
from tools.docs.scenarios import scenario


def pages() -> dict[str, str]:
    """Return the file name and the text of every generated page."""
    return {
        "reference/errors.md": errors(),
        "reference/laws.md": laws(),
        "reference/metrics.md": metrics(),
        "reference/queues.md": queues(),
        "reference/references.md": references(),
        "reference/scenario.md": scenario(),
    }
