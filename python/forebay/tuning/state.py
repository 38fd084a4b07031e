"""What a tuning has found: its candidates with their runs, the choice, and its test."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from forebay._base import statistics
from forebay.scenario.builder import Law
from forebay.tuning.candidates import Candidate, Goal
from forebay.tuning.check import Checked, Floats
from forebay.tuning.local_models import LocalModel
from forebay.tuning.ranges import Ranges

#: What the laws beside the choice have: of their papers, or `gains = "auto"` for the ranges.
REFERENCES = {"paper": "the papers' parameters", "auto": "gains that are designed for the ranges"}


@dataclass(frozen=True)
class Against:
    """The chosen law beside another, over the common seeds; less deviation is better.

    difference_s: mean of the other's worst deviation less the chosen law's; ci95_s: half its 95 %
    confidence interval; p: of a paired t-test, adjusted for the number of others by Holm's method.
    """

    other: Checked
    seeds: int
    difference_s: float
    ci95_s: float
    p: float

    @property
    def significant(self) -> bool:
        return self.p < 1 - statistics.LEVEL


@dataclass(repr=False)
class TuningState:
    """What a tuning has found so far, and at its end.

    screened: every candidate, with few seeds. chosen: None where nothing could be compared.
    sure: whether it meets the goal with room for the chance of so few seeds.
    tested: the chosen law, then other laws, with seeds of their own; gains: which of `REFERENCES`
    those have.
    best: the goodput of the best candidate under each condition, as a share of the rate.
    inside: between the corners, where the model leaves the chosen law least margin, and its runs
    there. left_out: candidates that refuse their parameters here, and why.
    """

    ranges: Ranges
    goal: Goal
    laws: list[str]
    seed: int
    gains: str = "paper"
    #: Whether each law is searched for every goal, and not only for the one that is asked for.
    thorough: bool = False
    searched: list[Candidate] = field(default_factory=list)
    screened: list[Checked] = field(default_factory=list)
    chosen: Checked | None = None
    meets_goal: bool = False
    sure: bool = False
    best: Floats = field(default_factory=lambda: np.empty(0))
    tested: list[Checked] = field(default_factory=list)
    inside: tuple[LocalModel, Checked] | None = None
    left_out: list[tuple[Candidate, str]] = field(default_factory=list)
    interrupted: bool = False
    faults: list[str] = field(default_factory=list)
    #: what went wrong in this program itself
    error: Exception | None = None

    def __repr__(self) -> str:
        """The choice."""
        if self.chosen is None:
            return f"<Tuning for {self.ranges}: no law chosen, {len(self.screened)} checked>"
        chosen = self.chosen.candidate
        return f"<Tuning for {self.ranges}: {chosen.law} with {chosen.settings or 'its defaults'}>"

    @property
    def seeds(self) -> int:
        """Seeds with which the chosen law was tested under every condition."""
        return int(np.isfinite(self.tested[0].worst_s).sum()) if self.tested else 0

    @property
    def reference(self) -> str:
        """The parameters of the laws that the choice is compared with, in words."""
        return "the defaults of a router" if self.ranges.router else REFERENCES[self.gains]

    def against(self) -> list[Against]:
        """The chosen law beside each of the others."""
        if not self.tested:
            return []
        by_number = {str(i): dict(enumerate(one.worst_s)) for i, one in enumerate(self.tested)}
        p_of = {pair.first: pair.p for pair in statistics.compare_with("0", by_number)}
        rows = []
        for number, other in enumerate(self.tested[1:], 1):
            difference = other.worst_s - self.tested[0].worst_s
            both = int(np.isfinite(difference).sum())
            interval = statistics.mean_and_interval(difference)
            rows.append(Against(other, both, *interval, p_of.get(str(number), math.nan)))
        return rows

    def toml(self) -> str:
        """The chosen law, as a scenario writes it; empty where none was chosen."""
        if self.chosen is None:
            return ""
        return Law(self.chosen.candidate.law, self.chosen.candidate.params).text()
