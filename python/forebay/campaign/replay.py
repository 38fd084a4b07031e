"""Papers replayed, from Python: `forebay.replay`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base import progress
from forebay._base.temporary import temporary_folder
from forebay._native import ScenarioError
from forebay.campaign import claims, verdicts
from forebay.experiment import engines, execution
from forebay.experiment import store_choice as choice
from forebay.experiment.engines import check_repeatable

if TYPE_CHECKING:
    from forebay._base.progress import Progress
    from forebay.campaign.claims import Paper
    from forebay.campaign.verdicts import PlannedReplay, Verdict
    from forebay.experiment.experiment import Experiment
    from forebay.experiment.result import Result
    from forebay.experiment.store import Store

#: Stands for every paper.
ALL = "all"


@dataclass(frozen=True)
class ReplayedPaper:
    """A paper's experiments, each with its results by reading, and its claims beside them."""

    paper: Paper
    experiments: Sequence[tuple[PlannedReplay, dict[str, Result], list[Verdict]]]

    @property
    def verdicts(self) -> list[Verdict]:
        """Those of every claim, in the paper's order."""
        return [verdict for *_, judged in self.experiments for verdict in judged]


@dataclass(frozen=True)
class Replay:
    """Papers whose experiments have been read and checked."""

    papers: Sequence[Paper]
    planned: Mapping[str, Sequence[PlannedReplay]]

    @property
    def readings(self) -> list[Experiment]:
        """Every experiment that the claims need, under each variant."""
        return [
            reading
            for experiments in self.planned.values()
            for experiment in experiments
            for reading in experiment.readings.values()
        ]

    def run(
        self,
        store: Store,
        threads: int | None = None,
        watch: Callable[[Progress], None] = lambda _: None,
    ) -> Iterator[ReplayedPaper]:
        """Makes the runs that `store` does not have, and judges paper after paper.

        Raises `RunError`; what had finished is in the store, also after Ctrl-C.
        """
        # The longest first, so that no core is left with one of them at the end.
        readings = sorted(self.readings, key=_longest, reverse=True)
        for number, made in execution.execute_all(readings, threads, watch, store=store):
            execution.check_whole(readings[number], made)
        for paper in self.papers:
            judged = []
            for experiment in self.planned[paper.name]:
                results = verdicts.results(experiment, store)
                judged.append((experiment, results, verdicts.judge(paper, experiment, results)))
            yield ReplayedPaper(paper, judged)


def _longest(experiment: Experiment) -> float:
    """Bits that its bottleneck can carry in its longest run."""
    return max(point.duration_s * point.links[0].rate_bps for point in experiment.plan.points)


def plan(
    paper: str,
    seeds: int | None = None,
    overrides: Mapping[str, str] | None = None,
    experiments: Path | None = None,
    engine: str = engines.NAMES[0],
) -> Replay:
    """Reads and checks what is to be replayed; arguments and errors as of `replay`.

    experiments: the folder of the papers' experiments; Forebay's own if None.
    """
    papers = claims.papers(experiments)
    chosen = [one for one in papers if paper in (ALL, one.name)]
    if not chosen:
        allowed = ", ".join([*(one.name for one in papers), ALL])
        raise ScenarioError(f'PAPER: found "{paper}", allowed: {allowed}')
    by = engines.named(engine)
    check_repeatable(by)
    return Replay(
        chosen,
        {
            one.name: verdicts.plan(one, seeds=seeds, overrides=overrides or {}, engine=by)
            for one in chosen
        },
    )


def replay(
    paper: str,
    *,
    seeds: int | None = None,
    overrides: Mapping[str, str] | None = None,
    threads: int | None = None,
    engine: str = engines.NAMES[0],
) -> list[ReplayedPaper]:
    """Runs a paper's experiments, and lays what it published beside what comes of them.

    paper: its name, such as "pd-red", or "all".
    seeds: run with seeds 1 to `seeds`; as many as each experiment asks for if None.
    overrides: keys to set in every experiment, such as {"traffic.0.min_rto": "1s"}.
    threads: threads to run on; all cores if None.
    engine: what makes the runs: see `forebay.run`.

    Raises `ScenarioError`, and `RunError` for a run that fails.
    """
    wanted = plan(paper, seeds, overrides, engine=engine)
    # Claims need the samples of all runs, which are kept for this call alone.
    with (
        temporary_folder() as folder,
        progress.bar(only_on_terminal=True) as watch,
    ):
        return list(wanted.run(choice.at(folder), threads, watch))
