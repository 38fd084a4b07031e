"""One law for a range of links: `tune("5..50Mbit/s", "20..200ms", "10..400")`.

`search` finds gains that keep their margins at the worst corner, in the spaces of `candidates` and
by the linear model of `theory`. `check` runs every candidate with packets at the corners and in the
middle. `tuning` chooses the best for the goal and tests it against the papers' defaults with other
seeds. `facts` collects the reasons, `words` puts them into sentences, `values` has the numbers,
`picture` and `page` show them.
"""

from typing import TYPE_CHECKING

from forebay.base.lazy_names import getter

if TYPE_CHECKING:
    from forebay.tuning.tuning import Against, Tuning, tune

__all__ = ["Against", "Tuning", "tune"]

# Loaded when first asked for, as numpy and scipy take a while.
_LATER = {"Against": "tuning", "Tuning": "tuning", "tune": "tuning"}

__getattr__ = getter(__name__, _LATER)
