"""Verdicts: the papers' claims beside our runs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay._base import quantities, statistics
from forebay._base.metrics import with_interval
from forebay._native import ScenarioError
from forebay.campaign.claims import Claim, Paper, PaperExperiment
from forebay.campaign.measures import Measured
from forebay.experiment import experiment as experiments
from forebay.experiment.engines import PACKETS
from forebay.experiment.experiment import Experiment
from forebay.experiment.result import Result, whole_result
from forebay.scenario import names

if TYPE_CHECKING:
    from forebay.experiment.engines import Engine
    from forebay.experiment.store import Store

REPRODUCED = "reproduced"
IN_DIRECTION = "reproduced in direction"
NOT_REPRODUCED = "not reproduced"


@dataclass(frozen=True)
class Verdict:
    """A claim and its verdict."""

    paper: str
    experiment: str
    claim: Claim
    ours: float
    #: Half the width of the 95 % interval; NaN for one seed, or where there is one value only.
    ci95: float
    verdict: str
    why: str

    @property
    def key(self) -> str:
        return f"{self.paper}/{self.experiment}/{self.claim.id}"

    def text(self) -> str:
        """Our value with its interval."""
        return with_interval(self.ours, self.ci95)

    def published(self) -> str:
        """The published number or bound, with the unit of ours."""
        number = self.claim.published
        text = number if isinstance(number, str) else f"{number:g}"
        return f"{text} {self.claim.unit}".rstrip()

    def line(self) -> str:
        """One line of JSON, as `forebay replay --json` prints it."""
        return json.dumps(
            {
                "paper": self.paper,
                "experiment": self.experiment,
                "claim": f"{self.claim.id}: {self.claim.where}: {self.claim.says}",
                "published": self.claim.published,
                "ours": quantities.finite(self.ours),
                "ci95": quantities.finite(self.ci95),
                "ns2": self.claim.ns2,
                "verdict": self.verdict,
                "why": self.why,
            },
            ensure_ascii=False,
        )


@dataclass
class PlannedReplay:
    """An experiment of a paper with its readings: the file as it is, "", and under each variant."""

    of: PaperExperiment
    readings: dict[str, Experiment]


def plan(
    paper: Paper,
    *,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    engine: Engine = PACKETS,
) -> list[PlannedReplay]:
    """Reads every scenario of a paper, for an engine. `overrides` are keys for all of them, to
    shorten runs."""
    planned = []
    for one in paper.experiments:
        readings = {"": _reading(one, overrides or {}, [], seeds, engine)}
        used = {name for claim in one.claims for name in claim.variants}
        used |= {figure.variant for figure in one.figures}
        for name, variant in one.variants.items():
            if name in used:
                both = {**variant.sets, **(overrides or {})}
                readings[name] = _reading(one, both, variant.laws, seeds, engine)
        planned.append(PlannedReplay(one, readings))
    return planned


def _reading(
    one: PaperExperiment,
    overrides: Mapping[str, Any],
    laws: list[str],
    seeds: int | None,
    engine: Engine,
) -> Experiment:
    texts = [f"{key}={quantities.toml(value)}" for key, value in overrides.items()]
    path = names.shown(one.scenario)
    return experiments.read(path, laws=laws or None, overrides=texts, seeds=seeds, engine=engine)


def results(planned: PlannedReplay, store: Store) -> dict[str, Result]:
    """By reading, of runs that are in the store; what is not there is made."""
    return {name: whole_result(reading, store) for name, reading in planned.readings.items()}


def judge(paper: Paper, planned: PlannedReplay, of_reading: Mapping[str, Result]) -> list[Verdict]:
    """A verdict for every claim of an experiment. Raises `ScenarioError`."""
    one = planned.of
    measured = {name: Measured(result, one.points) for name, result in of_reading.items()}
    verdicts = []
    for claim in one.claims:
        try:
            ours, ci95 = _value(claim, measured[""])
            one_seed = of_reading[""].seeds == 1
            verdict = _verdict(claim, ours, ci95, measured[""], one_seed=one_seed)
            texts = {name: with_interval(*_value(claim, measured[name])) for name in claim.variants}
        except (ScenarioError, KeyError, ValueError, TypeError) as error:
            raise ScenarioError(f"{one.path}: claim {claim.id}: {error}") from error
        why = " ".join(text for text in (_why(claim, verdict, one_seed), claim.note) if text)
        for name, text in texts.items():
            why = why.replace(f"{{{name}}}", text)
        verdicts.append(Verdict(paper.name, one.name, claim, ours, ci95, verdict, why))
    return verdicts


def count(verdicts: Sequence[Verdict]) -> str:
    """How many claims got which verdict, in words."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    kinds = (REPRODUCED, IN_DIRECTION, NOT_REPRODUCED)
    return ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind])


def _value(claim: Claim, measured: Measured) -> tuple[float, float]:
    return statistics.mean_and_interval(measured.evaluate(claim.value, claim.point, claim.window))


def _verdict(claim: Claim, ours: float, ci95: float, measured: Measured, *, one_seed: bool) -> str:
    if math.isnan(ours):
        return NOT_REPRODUCED
    if claim.bound:
        sign, number = claim.bound
        margin = number - ours if sign == "<" else ours - number
        if margin <= 0:
            return NOT_REPRODUCED
        # Better than the bound, but is it more than chance? One seed cannot tell; a number that
        # is over all seeds has no interval of its own, and is itself a test.
        chance = one_seed if math.isnan(ci95) else margin < ci95
        return IN_DIRECTION if chance else REPRODUCED
    published = float(claim.published)
    if abs(ours - published) <= max(claim.within, claim.tolerance * abs(published)):
        return REPRODUCED
    if claim.direction:
        difference = measured.difference(claim.direction, claim.point, claim.window)
        mean, half = statistics.mean_and_interval(difference)
        return IN_DIRECTION if mean > (0 if math.isnan(half) else half) else NOT_REPRODUCED
    return NOT_REPRODUCED


def _why(claim: Claim, verdict: str, one_seed: bool) -> str:
    if verdict == REPRODUCED:
        return ""
    text = claim.why or ("No cause found." if verdict == NOT_REPRODUCED else "")
    if claim.bound and verdict == IN_DIRECTION:
        doubt = (
            "one seed has no interval" if one_seed else f"the interval includes {claim.bound[1]:g}"
        )
        text = f"May be chance: {doubt}. {text}".rstrip()
    return text
