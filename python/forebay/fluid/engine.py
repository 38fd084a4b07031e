"""The fluid model as an engine: TCP's windows and queues as delay-differential equations.

A run is counted in whole packets, so that tables and figures have it as any other; beside them
stand the equations' own numbers (`forebay.fluid.traces` reads them). It has no transfers, calls or
viewers, and nothing is sent again; flows that are alike get the same. Its seed moves only the
draws of laws that have no probability of their own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.experiment.engines import Key, Planned, RunningBatch


#: What a stored run has; runs with other columns are made anew.
COLUMNS = "windows and shares"


@dataclass(frozen=True)
class Fluid:
    """The equations of `forebay-fluid`.

    sawtooth: windows are described more closely than by the published equations. step: "auto" for
    steps as long as their error allows, or the longest, such as "1ms".
    """

    sawtooth: bool = False
    step: str = "auto"
    name: str = "fluid"
    in_words: str = "integrated in the fluid model of TCP"
    runs_programs: bool = False
    kernel_keys: tuple[str, ...] = ()

    def check(self, experiment: Planned) -> None:
        """The fluid knows only long-lived TCP flows (ftp) with packets of one size, links one way
        of a steady rate, and the default queue. Raises `ScenarioError`."""
        experiment.plan.check_fluid(sawtooth=self.sawtooth, step=self.step)

    def version(self) -> str:
        """The equations, and what their runs have; the store's version has that of our code."""
        return f"{'sawtooth' if self.sawtooth else 'published'}, step {self.step}, {COLUMNS}"

    def start(
        self, experiment: Planned, threads: int, *, samples: bool, only: Collection[Key]
    ) -> RunningBatch:
        """Runs in background threads of `forebay-batch`."""
        return experiment.plan.start_fluid(
            threads, sawtooth=self.sawtooth, step=self.step, samples=samples, only=only
        )


ENGINE = Fluid()
