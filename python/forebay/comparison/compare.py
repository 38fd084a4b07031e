"""Two saved results side by side: `forebay.compare`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from forebay._base import quantities
from forebay._base.metrics import COMPARED, check_metrics
from forebay._native import ScenarioError
from forebay.comparison.result_comparison import ResultComparison
from forebay.comparison.saved_result import SavedResult, read_result

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.report.plot import Plot


class ShownComparison(ResultComparison):
    """What two results differ in, with its figure and its page. Printed, and in a notebook, it
    shows a table."""

    def plot(self) -> Plot:
        """Each difference as a share of A, with its 95 % interval."""
        from forebay.comparison import comparison_picture as picture

        return picture.differences(self)

    def report(self, out: str | os.PathLike[str]) -> Path:
        """Writes compare.html and compare.json to `out`; returns where the page is."""
        from forebay.comparison import comparison_page as page

        return page.write(self, out)

    def __str__(self) -> str:
        """The table that `forebay compare` prints."""
        from forebay._base.terminal_table import printed
        from forebay.comparison import comparison_page as page

        return printed(lambda screen: page.show(screen, self))

    def _repr_html_(self) -> str:
        from forebay.comparison import comparison_page as page
        from forebay.report import notebook

        table = page.table(self.differences)
        return notebook.html("A beside B", table.heads, table.rows, self.plot())


def compare(
    a: str | os.PathLike[str], b: str | os.PathLike[str], *, metrics: str | Sequence[str] = ()
) -> ShownComparison:
    """Return the differences between two saved results, and whether they may be chance.

    a, b: folders that `forebay run` or `forebay study` has written, or data files of flent, one or
    a folder of them. metrics: one or several names; what
    laws are compared by if none is named.

    Laws and points are matched by their labels, or where each result has one, that one with the
    other. One seed gives both the same flows and start times, so a paired t-test over the seeds
    that both have tests each difference; of a metric the p values are adjusted for their number by
    Holm's method. Raises `ScenarioError`.
    """
    metrics = quantities.listed(metrics)
    check_metrics(metrics)
    first, second = read_result(a), read_result(b)
    return ShownComparison(
        first,
        second,
        metrics or COMPARED,
        _matched("law", first, second, first.laws, second.laws),
        _matched("point", first, second, first.points, second.points),
    )


def _matched(
    what: str, a: SavedResult, b: SavedResult, of_a: list[str], of_b: list[str]
) -> list[tuple[str, str]]:
    """Those that both have, or the only one of each."""
    if common := [name for name in of_a if name in of_b]:
        return [(name, name) for name in common]
    if len(of_a) == len(of_b) == 1:
        return [(of_a[0], of_b[0])]
    raise ScenarioError(
        f"compare: found no {what} in both: {a.folder} has {_some(of_a)}, {b.folder} has "
        f"{_some(of_b)}, allowed: results with a {what} in common"
    )


def _some(names: list[str]) -> str:
    """The first, and how many more: a name may be as long as a sweep has axes."""
    first = f'"{names[0]}"' if names and names[0] else "one without a name"
    return f"{first} and {len(names) - 1} more" if len(names) > 1 else first
