"""The papers' control figures, which stand with the papers' experiments.

`experiments/pi-pd/pi_pd_figures.py` has the figures of pi-pd in its `FIGURES`, by name, and the
theory that only they need. Only files that come with Forebay are loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import util
from types import ModuleType
from typing import TYPE_CHECKING

from forebay.scenario import names

if TYPE_CHECKING:
    from forebay.report.plot import Plot

SUFFIX = "_figures.py"


@cache
def of_paper(paper: str) -> ModuleType:
    """Return the module with the control figures and the theory of a paper, such as "pi-pd"."""
    path = names.own() / paper / f"{paper.replace('-', '_')}{SUFFIX}"
    spec = util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    # A dataclass looks up its module there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def figures() -> dict[str, Callable[[], Plot]]:
    """Return the functions that draw the figures of all papers, by the figures' names."""
    papers = sorted(path.parent.name for path in names.own().glob(f"*/*{SUFFIX}"))
    return {name: draw for paper in papers for name, draw in of_paper(paper).FIGURES.items()}
