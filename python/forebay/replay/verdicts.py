"""Verdicts: the papers' claims beside our runs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay._native import ScenarioError
from forebay.replay import runs
from forebay.replay.claims import Claim, Paper, PaperExperiment
from forebay.replay.measures import Measured
from forebay.replay.runs import Job
from forebay.report.result import Result
from forebay.run import experiment as experiments
from forebay.run import named, stats
from forebay.run.experiment import Experiment
from forebay.run.metrics import with_interval

if TYPE_CHECKING:
    from forebay.store.store import Store

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
                "ours": _finite(self.ours),
                "ci95": _finite(self.ci95),
                "ns2": self.claim.ns2,
                "verdict": self.verdict,
                "why": self.why,
            },
            ensure_ascii=False,
        )


@dataclass(frozen=True)
class Reading:
    """An experiment as its file has it, or under a variant, with its runs."""

    experiment: Experiment
    jobs: list[Job]


@dataclass
class Planned:
    """An experiment of a paper with its readings; "" is the file as it is."""

    of: PaperExperiment
    readings: dict[str, Reading]


def plan(
    paper: Paper, *, seeds: int | None = None, sets: Mapping[str, Any] | None = None
) -> list[Planned]:
    """Reads every scenario of a paper. `sets` are keys for all of them, to shorten runs."""
    planned = []
    for one in paper.experiments:
        readings = {"": _reading(one, sets or {}, [], seeds)}
        used = {name for claim in one.claims.claims for name in claim.variants}
        used |= {figure.variant for figure in one.claims.figures}
        for name, variant in one.claims.variants.items():
            if name in used:
                both = {**variant.sets, **(sets or {})}
                readings[name] = _reading(one, both, variant.laws, seeds)
        planned.append(Planned(one, readings))
    return planned


def _reading(
    one: PaperExperiment,
    sets: Mapping[str, Any],
    laws: list[str],
    seeds: int | None,
) -> Reading:
    texts = [f"{key}={_toml(value)}" for key, value in sets.items()]
    experiment = experiments.read(
        named.shown(one.scenario), laws=laws or None, sets=texts, seeds=seeds
    )
    return Reading(experiment, runs.jobs(experiment))


def _toml(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def results(planned: Planned, store: Store) -> dict[str, Result]:
    """By reading; its runs must have been made."""
    return {
        name: runs.result(reading.experiment, reading.jobs, store)
        for name, reading in planned.readings.items()
    }


def judge(paper: Paper, planned: Planned, of_reading: Mapping[str, Result]) -> list[Verdict]:
    """A verdict for every claim of an experiment. Raises `ScenarioError`."""
    one = planned.of
    measured = {name: Measured(result, one.claims.points) for name, result in of_reading.items()}
    verdicts = []
    for claim in one.claims.claims:
        try:
            ours, ci95 = _value(claim, measured[""])
            one_seed = of_reading[""].seeds == 1
            verdict = _verdict(claim, ours, ci95, measured[""], one_seed=one_seed)
            texts = {name: with_interval(*_value(claim, measured[name])) for name in claim.variants}
        except (ScenarioError, KeyError, ValueError, TypeError) as error:
            raise ScenarioError(f"{one.claims.path}: claim {claim.id}: {error}") from error
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
    return stats.mean_and_interval(measured.evaluate(claim.value, claim.point, claim.window))


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
        mean, half = stats.mean_and_interval(difference)
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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
