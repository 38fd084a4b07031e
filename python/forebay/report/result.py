"""The result of an experiment, with its figures, tables and report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.run.runs import Runs

if TYPE_CHECKING:
    from forebay.report.plots import Plot


# What draws is loaded when first asked for: matplotlib takes longer to load than most runs take.
class Result(Runs):
    """The runs of one experiment, in the order of points, laws and seeds.

    Printed, and in a notebook, it shows its summary as a table.
    """

    def plot(self, kind: str = "queue", point: int = 0, link: int = 0) -> Plot:
        """A figure: "queue", "loss", "delay", "classes", "flows" or "completion" of a link at a
        point, "goodput", "qacd" or "load" over all.

        point, link: indices in the plan; link 0 is the bottleneck. "classes" is empty where no
        queue tells classes apart, and "completion" where no transfer was done.
        """
        from forebay.report import details

        return details.draw(self, kind, point, link)

    def report(self, out: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes report.html, the figures, and the tables as Parquet and JSON to `out`.

        force: replaces the result of another command, which is refused otherwise. Raises
        `ScenarioError`.
        """
        from forebay.report import files, place

        place.check(out, "report")
        command, way = self.experiment.command, "force=True"
        place.claim(Path(out), command, force=force, option="report", way=way, seeds=self.seeds)
        files.write(self, out)

    def __str__(self) -> str:
        """The table that `forebay run` prints."""
        from rich.console import Console

        from forebay.report import tables

        screen = Console(width=120, highlight=False)
        with screen.capture() as capture:
            tables.results(screen, self)
        return capture.get().rstrip()

    def _repr_html_(self) -> str:
        from forebay.report import page as report
        from forebay.report import shown

        overviews, by_point = report.pictures(self)
        first = [*next(iter(by_point.values()), []), *overviews][:1]
        images = [shown.image(one.draw(), one.title) for one in first]
        return report.summary_html(self) + "".join(images)
