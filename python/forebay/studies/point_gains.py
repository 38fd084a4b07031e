"""Laws with `gains = "auto"` in a study: each point is a link of its own, and its laws get numbers
for that link.

A design is kept in the store of the study by what it depends on: the law, what is given for it, and
the link and load that the reader of scenarios names. So points, laws and studies that ask for the
same share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.runs import automatic_gains
from forebay.store import designs

if TYPE_CHECKING:
    from forebay._native import GainsRequest, Parameter, Sweep
    from forebay.store.designs import Designs

#: Numbers of laws at a point: of each its number in the file, and its parameters.
Gains = list[tuple[int, list[tuple[str, "Parameter"]]]]


class PointGains:
    """The numbers of a study's points, designed when they are asked for.

    kept: designs that are in a store; new ones go there.
    """

    def __init__(self, sweep: Sweep, kept: Designs | None) -> None:
        self._sweep, self.kept = sweep, kept
        self._made: dict[int, Gains] = {}
        #: labels of the laws that ask
        self.laws = [one.label for one in self._requests(0)]

    def gains(self, index: int) -> Gains:
        """Those of a point by its number. Raises `ScenarioError`."""
        if not self.laws:
            return []
        if index not in self._made:
            requests = self._requests(index)
            self._made[index] = [(one.law, self._designed(one)) for one in requests]
        return self._made[index]

    def ready(self, index: int) -> bool:
        """Whether a point needs no more designs."""
        if not self.laws or index in self._made:
            return True
        kept = self.kept
        return kept is not None and all(
            kept.get(_digest(one)) is not None for one in self._requests(index)
        )

    def _requests(self, index: int) -> list[GainsRequest]:
        return self._sweep.gains_requests(self._sweep.row(index))

    def _designed(self, request: GainsRequest) -> list[tuple[str, Parameter]]:
        digest = _digest(request)
        numbers = self.kept.get(digest) if self.kept else None
        if numbers is None:
            numbers = dict(automatic_gains.fitted(request).params)
            if self.kept:
                self.kept.put(digest, numbers)
        return list(numbers.items())


def _digest(request: GainsRequest) -> str:
    return designs.digest(
        law=request.kind,
        given=request.given,
        per_flow=request.per_flow,
        rate_bps=request.rate_bps,
        packet_bytes=request.packet_bytes,
        rtt_s=request.rtt_s,
        room_pkts=request.room_pkts,
        flows=request.flows,
        short_flows=request.short_flows,
        other_bps=request.other_bps,
        tcp=request.tcp,
    )
