"""The result of an experiment, with its figures, tables and report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base import suggestions
from forebay._native import ScenarioError
from forebay.experiment import execution
from forebay.experiment.experiment_runs import Runs
from forebay.experiment.table import to_pandas

if TYPE_CHECKING:
    import pandas

    from forebay.experiment.experiment import Experiment
    from forebay.experiment.store import Store
    from forebay.report.plot import Plot


#: Frames of what the runs observed, by the names of their attributes.
FRAMES = [
    "samples",
    "delays",
    "flows",
    "traffic",
    "classes",
    "class_delays",
    "transfers",
    "goodput",
]


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
        from forebay.report import kinds

        return kinds.draw(self, kind, point, link)

    def report(self, out: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes report.html, the figures, and the tables as Parquet and JSON to `out`.

        force: replaces the result of another command, which is refused otherwise. Raises
        `ScenarioError`.
        """
        from forebay._base import output_folder
        from forebay.report import result_files

        output_folder.check(out, "report")
        command, way = self.experiment.command, "force=True"
        output_folder.claim(
            Path(out), command, force=force, option="report", way=way, seeds=self.seeds
        )
        result_files.write_all(self, out)

    def to_pandas(self, table: str = "metrics") -> pandas.DataFrame:
        """Return a table of the result as a frame of pandas; pyarrow is not needed.

        Parameters
        ----------
        table : str
            "metrics", "summary", "samples", "delays", "flows", "traffic", "classes",
            "class_delays", "transfers" or "goodput", as the attributes are called that have the
            same as a frame of polars.

        Raises
        ------
        ScenarioError
            If there is no such table.
        ImportError
            If pandas is not installed.
        """
        if table not in (names := ["metrics", "summary", *FRAMES]):
            near = suggestions.hint(table, names)
            raise ScenarioError(
                f'table: "{table}" is no table of a result{near}; write one of {", ".join(names)}'
            )
        return to_pandas(self.summary() if table == "summary" else getattr(self, table))

    def __str__(self) -> str:
        """The table that `forebay run` prints."""
        from forebay._base.terminal_table import printed
        from forebay.report import tables

        return printed(lambda screen: tables.results(screen, self))

    def _repr_html_(self) -> str:
        from forebay.report import notebook

        return notebook.summary(self)


def whole_result(experiment: Experiment, store: Store | None = None) -> Result:
    """Of an experiment whose runs take no time worth a bar, or are in the store. Raises as
    `execution.check_whole`."""
    executed = execution.execute(experiment, store=store)
    execution.check_whole(experiment, executed)
    return Result(experiment, executed)
