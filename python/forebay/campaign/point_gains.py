"""Laws with `gains = "auto"` in a study: each point is a link of its own, and its laws get numbers
for that link.

A design is kept in the store of the study by what it depends on: the law, what is given for it, and
the link and load that the reader of scenarios names. So points, laws and studies that ask for the
same share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from forebay.experiment import automatic_gains

if TYPE_CHECKING:
    from forebay._native import GainsRequest, Parameter, Sweep
    from forebay.experiment.store import Designs

#: Numbers of laws at a point: of each its number in the file, and its parameters.
Gains = list[tuple[int, list[tuple[str, "Parameter"]]]]


class PointGains:
    """The numbers of a study's points, designed when they are asked for.

    trial: rows with each word of the sweep, at one of which every law asks that asks anywhere.
    kept: designs that are in a store; new ones go there.
    """

    def __init__(
        self, sweep: Sweep, trial: Sequence[Sequence[object]], kept: Designs | None
    ) -> None:
        self._sweep = sweep
        self._made: dict[int, Gains] = {}
        self._trial = [sweep.gains_requests(row) for row in trial]
        #: labels of the laws that ask
        self.laws = list(dict.fromkeys(request.label for asked in self._trial for request in asked))
        self.kept = kept if self.laws else None

    def of_trial(self) -> list[Gains]:
        """Numbers for the rows of the trial: of the first one that asks, since no run has them."""
        first: dict[int, list[tuple[str, Parameter]]] = {}
        for request in (request for asked in self._trial for request in asked):
            if request.law not in first:
                first[request.law] = automatic_gains.numbers(request, self.kept)
        gains = [[(request.law, first[request.law]) for request in asked] for asked in self._trial]
        # The first row is the first point.
        self._made[0] = gains[0]
        return gains

    def of_point(self, index: int) -> Gains:
        """Those of a point by its number. Raises `ScenarioError`."""
        if not self.laws:
            return []
        if index not in self._made:
            requests = self._requests(index)
            self._made[index] = [
                (request.law, automatic_gains.numbers(request, self.kept)) for request in requests
            ]
        return self._made[index]

    def ready(self, which: Sequence[int]) -> bool:
        """Whether these points need no more designs."""
        kept = self.kept
        return not self.laws or all(
            index in self._made
            or (
                kept is not None
                and all(
                    automatic_gains.kept_numbers(request, kept) is not None
                    for request in self._requests(index)
                )
            )
            for index in which
        )

    def _requests(self, index: int) -> list[GainsRequest]:
        return self._sweep.gains_requests(self._sweep.row(index))
