"""Studies from Python: `forebay.study`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forebay._base import progress
from forebay._base.metrics import METRICS
from forebay._native import ScenarioError
from forebay.campaign import growing, manifest
from forebay.campaign.study import Study
from forebay.campaign.study_points import Points
from forebay.experiment import engines
from forebay.experiment import store_choice as choice
from forebay.experiment.execution import cores
from forebay.experiment.experiment import Source
from forebay.experiment.store import Designs
from forebay.experiment.table import to_pandas

if TYPE_CHECKING:
    import pandas

    from forebay._base.quantities import Overrides
    from forebay.campaign.making import Workers
    from forebay.report.plot import Plot
    from forebay.scenario.python_laws import Prototype


class ShownStudy(Study):
    """The runs of a study, with its figures. Printed, and in a notebook, it shows a table."""

    def plot(self, metric: str, x: str, y: str | None = None) -> Plot:
        """A map of a metric over two axes, or over one of them a curve with its interval.

        Raises `ScenarioError` for a metric or an axis that there is not, and for a metric that no
        run has a value of.
        """
        from forebay.campaign import (
            study_pictures as pictures,  # draws, which takes a while to load
        )

        axes = [x] if y is None else [x, y]
        if self.cells(metric, *axes).is_empty():
            valued = dict.fromkeys(name for name, _ in self.means(list(METRICS)))
            raise ScenarioError(
                f'metric: found "{metric}", of which no run has a value, allowed: '
                f"{', '.join(valued) or 'none, since no run has ended'}"
            )
        return (
            pictures.response(self, metric, axes)
            if y is None
            else pictures.heat(self, metric, x, y)
        )

    def to_pandas(self) -> pandas.DataFrame:
        """Return `frame()` as a frame of pandas; pyarrow is not needed. Raises `ImportError`
        without pandas."""
        return to_pandas(self.frame())

    def __str__(self) -> str:
        """The table that `forebay study` prints."""
        from forebay._base.terminal_table import printed
        from forebay.campaign import study_tables as tables

        return printed(lambda screen: tables.show(screen, self))

    def _repr_html_(self) -> str:
        from forebay.campaign import study_pictures as pictures
        from forebay.campaign import study_tables as tables
        from forebay.report import notebook

        table = tables.laws_table(self)
        drawn = next((name for name, _ in self.means(["delay_p95_s", "goodput_bps"])), None)
        varied = [key for key in self.axes if self.points.settings[key].n_unique() > 1]
        figure = pictures.response(self, drawn, varied) if drawn and varied else None
        title = f"{self.points.title}: {tables.size(self)}"
        return notebook.html(title, table.heads, table.rows, figure)


def study(
    scenario: Source,
    *,
    laws: str | Prototype | Sequence[str | Prototype] = (),
    overrides: Overrides = (),
    seeds: int | None = None,
    store: str | os.PathLike[str] | None = None,
    on: str = "threads",
    threads: int | None = None,
    engine: str = engines.NAMES[0],
) -> ShownStudy:
    """The runs of a study; those that the store does not have are made.

    scenario: as `forebay.run` takes it; its sweep may have ranges and samples. laws, overrides,
    seeds: as there; of a law in Python the contents of its file count, and not what that imports.
    store: a folder or an address; if None that of FOREBAY_STORE, or else results/.store.
    on: "threads", "dask" for a cluster of this machine that nobody else can use, or the address of
    a Dask scheduler. Whoever can reach the port of a tcp:// scheduler can run programs as you and
    as its workers' user; prefer tls://, with the certificates of Dask's own configuration.
    threads: all cores if None. engine: what makes the runs: see `forebay.run`.

    Raises `ScenarioError`, `KeyboardInterrupt` after Ctrl-C, `OSError` where the store is full, and
    `RuntimeError` where a scheduler is gone; what has finished is kept.
    """
    # Looked into first, and written to once the scenario is known to be sound.
    found = choice.of_study(store)
    by, kept = engines.named(engine, "engine"), Designs(found)
    points = Points(scenario, laws=laws, overrides=overrides, seeds=seeds, kept=kept, engine=by)
    found.check_writable()
    with workers(on, threads) as where, progress.bar(only_on_terminal=True) as watch:
        grown = growing.grow(points, found, where, watch=lambda now, _: watch(now))
    if grown.made.interrupted:
        raise KeyboardInterrupt
    if grown.made.error is not None:
        raise grown.made.error
    if grown.made.stopped:
        raise RuntimeError(f"{grown.made.stopped}: the same call goes on")
    manifest.list_runs(points, found)
    return ShownStudy(points, found, grown.seeds)


def workers(on: str, threads: int | None) -> Any:
    """A context with the workers of a name: "threads", "dask" or an address."""
    from contextlib import nullcontext

    from forebay.campaign.threads import Threads

    if on == "threads":
        made: Workers = Threads(threads or cores())
        return nullcontext(made)
    if on != "dask" and "://" not in on:
        raise ScenarioError(
            f'--on: "{on}" names no place for runs; write threads, dask, or the address of a '
            "scheduler such as tls://host:8786"
        )
    from forebay.campaign import cluster

    return cluster.cluster(on, threads)
