"""The scenarios of a suite, with the laws under test, on its own link or another.

A suite is a folder of scenarios with a `suite.toml`: its link, its laws, and which of them get
their parameters from their design rule.
"""

from __future__ import annotations

import functools
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import forebay._native as _native
from forebay._base import quantities, registries
from forebay._base.words import hint
from forebay._native import ScenarioError, quantity
from forebay.experiment.engines import PACKETS, chosen_by
from forebay.experiment.experiment import Experiment, FilesBeside, check_seeds
from forebay.scenario import names as named
from forebay.scenario.builder import Law

if TYPE_CHECKING:
    from forebay._base.quantities import Overrides
    from forebay.experiment.engines import Engine
    from forebay.scenario.python_laws import Prototype

SETTINGS = named.SUITE

#: Least window per flow that laws are designed for: no signal slows TCP down below √2 packets.
LEAST_WINDOW_PKTS = 4


@dataclass(frozen=True)
class Link:
    """A bottleneck: its rate, and the delay to its far end, one way."""

    rate_bps: int
    delay_s: float

    @property
    def rtt_s(self) -> float:
        return 2 * self.delay_s

    def __str__(self) -> str:
        return f"{quantities.rate(self.rate_bps)},{quantities.time(self.delay_s)}"


@dataclass(frozen=True)
class Settings:
    """A `suite.toml`."""

    folder: Path
    title: str
    laws: list[str]
    link: Link
    packet: str
    #: Laws that get their parameters from their design rule, for these flows and this delay.
    designed: list[str]
    flows: float
    target: str
    #: Scenarios in which Jain's index is a verdict.
    fairness: list[str]

    @property
    def name(self) -> str:
        return self.folder.name

    def flows_at(self, at: Link) -> float:
        """The flows to design for: fewer where their windows would be too small to control."""
        packets_per_s = at.rate_bps / (8 * quantity(SETTINGS, self.packet, "size"))
        round_s = at.rtt_s + quantity(SETTINGS, self.target, "time")
        return min(self.flows, packets_per_s * round_s / LEAST_WINDOW_PKTS)

    def scenarios(self, names: Sequence[str] | None = None) -> list[Path]:
        """The scenario files, in order of name; those of these names alone. Raises
        `ScenarioError`."""
        files = sorted(path for path in self.folder.glob("*.toml") if path.name != SETTINGS)
        for name in names or ():
            if name not in (known := [path.stem for path in files]):
                allowed = f"{', '.join(known)}{hint(name, known)}"
                raise ScenarioError(f'--scenario: found "{name}", allowed: {allowed}')
        return [path for path in files if not names or path.stem in names]


@dataclass(frozen=True)
class Scenario:
    """One scenario of a suite, ready to run."""

    name: str
    experiment: Experiment
    #: Whether Jain's index is a verdict.
    fairness: bool


def find(name: str) -> Settings:
    """The suite of this name, among the experiments here and those that come with Forebay."""
    known = {of: folder for of, folder in named.folders().items() if (folder / SETTINGS).is_file()}
    if name in known:
        return read(known[name])
    names = ", ".join(known)
    raise ScenarioError(f'SUITE: found "{name}", allowed: {names}')


def read(folder: Path) -> Settings:
    """Reads the settings of the suite in a folder. Raises `ScenarioError`."""
    path = folder / SETTINGS
    try:
        document = tomllib.loads(path.read_text())
        design = document["design"]
        return Settings(
            folder=folder,
            title=document["title"],
            laws=document["laws"],
            link=Link(
                round(quantity(f"{path}: rate", document["rate"], "rate")),
                quantity(f"{path}: delay", document["delay"], "time"),
            ),
            packet=document["packet"],
            designed=design["laws"],
            flows=design["flows"],
            target=design["target"],
            fairness=document["fairness"]["scenarios"],
        )
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    except KeyError as error:
        raise ScenarioError(f"{path}: found nothing, allowed: {error.args[0]}") from error


def link(text: str) -> Link:
    """A link such as "10Mbit/s,50ms"."""
    rate, comma, delay = text.partition(",")
    if not comma:
        raise ScenarioError(
            f'--link: found "{text}", allowed: a rate and a delay such as 10Mbit/s,50ms'
        )
    found = Link(
        round(quantity("--link", rate.strip(), "rate")),
        quantity("--link", delay.strip(), "time"),
    )
    if found.rate_bps < 1 or found.delay_s <= 0:
        raise ScenarioError(f'--link: found "{text}", allowed: a rate and a delay above zero')
    return found


def laws(settings: Settings, names: Sequence[str], at: Link) -> list[Law]:
    """The laws of these names, some designed for the link; names of no law are left out."""
    made = designs(settings, names, at)
    # Without a design: the default gains for the same queue, which fits the buffer.
    held = [("target", settings.target)]
    return [
        Law(name, (made[name] or held) if name in made else ())
        for name in dict.fromkeys(names)
        if name in registries.laws()
    ]


def designs(
    settings: Settings, names: Sequence[str], at: Link
) -> dict[str, list[tuple[str, str]] | None]:
    """Parameters at the link of those of these laws that are designed for it; None for one whose
    rule has no operating point there, and which keeps its default gains."""
    rate, rtt = quantities.rate(at.rate_bps), quantities.time(at.rtt_s)
    flows = settings.flows_at(at)
    return {
        name: _designed(name, rate, flows, rtt, settings.packet, settings.target)
        for name in settings.designed
        if name in names
    }


# The runs and both pages ask for the same designs.
@functools.cache
def _designed(
    name: str, rate: str, flows: float, rtt: str, packet: str, target: str
) -> list[tuple[str, str]] | None:
    # Loads scipy.
    from forebay.control.design import design
    from forebay.control.link import Link

    try:
        link = Link(rate, rtt, flows=flows, packet=packet)
        return design(name, link, target=target).params
    except ScenarioError:
        return None


def plan(
    settings: Settings,
    files: Sequence[Path],
    chosen: Sequence[str | Prototype],
    at: Link,
    seeds: int | None,
    overrides: Overrides = (),
    engine: Engine = PACKETS,
) -> list[Scenario]:
    """The scenarios in these files under the chosen laws, at a link, with `overrides` on top.

    Rates follow the link, those of calls aside: a call has the rate that it has. The usual round
    trip becomes that of the link, others stay. Buffers are the product of the rate and the longest
    round trip (RFC 7928, section 3.2). Raises `ScenarioError`,
    also for what the engine cannot run.
    """
    check_seeds(seeds)
    names = [one for one in chosen if isinstance(one, str)]
    designed = [
        (f"law.{law.kind}.{name}", text)
        for law in laws(settings, names, at)
        for name, text in law.params
    ]
    pairs = [*designed, *quantities.set_pairs(overrides)]
    packet_bytes = round(quantity(SETTINGS, settings.packet, "size"))
    here = settings.link
    planned = []
    for path in files:
        shown, text = named.shown(path), path.read_bytes()
        found = _native.plan(
            text,
            shown,
            overrides=pairs,
            laws=list(chosen),
            seeds=seeds,
            read=FilesBeside(path),
            without_own_laws=True,
            link=((here.rate_bps, here.delay_s), (at.rate_bps, at.delay_s), packet_bytes),
        )
        command = shlex.join(["forebay", "run", shown, *chosen_by(engine)])
        experiment = Experiment(found, shown, text.decode(), command, engine=engine)
        engine.check(experiment)
        planned.append(Scenario(path.stem, experiment, path.stem in settings.fairness))
    return planned
