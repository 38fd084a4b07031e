"""The scenarios of a suite, with the laws under test, on the suite's own link or on another.

A suite is a folder of scenarios with a `suite.toml`: its link, its laws, which of them get their
parameters from their design rule, and the questions that its page answers.
"""

from __future__ import annotations

import functools
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import forebay._native as _native
from forebay._base import quantities, registries
from forebay._base.errors import ParameterError
from forebay._base.words import check_choice
from forebay._native import ScenarioError, quantity
from forebay.experiment.engines import PACKETS, chosen_by
from forebay.experiment.experiment import Experiment, FilesBeside, check_seeds
from forebay.scenario import names as experiment_names
from forebay.scenario.builder import Law

if TYPE_CHECKING:
    from forebay._base.quantities import Overrides
    from forebay.experiment.engines import Engine
    from forebay.scenario.python_laws import Prototype

SETTINGS = experiment_names.SUITE

#: Smallest window per flow for which laws are designed, in packets. Below √2 packets no signal
#: slows TCP down.
LEAST_WINDOW_PKTS = 4


@dataclass(frozen=True)
class SuiteLink:
    """A bottleneck.

    Attributes
    ----------
    rate_bps : int
        Rate in bit/s.
    delay_s : float
        One-way delay to the far end, in seconds.
    """

    rate_bps: int
    delay_s: float

    @property
    def rtt_s(self) -> float:
        """The round-trip time of a flow that crosses this link alone, in seconds."""
        return 2 * self.delay_s

    def __str__(self) -> str:
        """Return the link in the notation of `--link`, such as "10Mbit/s,50ms"."""
        return f"{quantities.rate(self.rate_bps)},{quantities.time(self.delay_s)}"


@dataclass(frozen=True)
class Settings:
    """The contents of a `suite.toml`.

    Attributes
    ----------
    folder : Path
        Folder of the suite; its name is the name of the suite.
    title : str
        Title of the pages.
    laws : list of str
        Laws that run unless other laws are chosen.
    link : SuiteLink
        SuiteLink for which the scenarios are written.
    packet : str
        Packet size, such as "1500B".
    designed : list of str
        Laws that get their parameters from their design rule.
    flows, target : float, str
        Number of flows and queuing delay for which they are designed.
    fairness : list of str
        Scenarios in which Jain's index measures fairness.
    sections : mapping of str to str
        Titles of the sections, by the first part of their scenarios' names.
    needs : list of (str, str)
        What a user may need, and the metric that measures it.
    """

    folder: Path
    title: str
    laws: list[str]
    link: SuiteLink
    packet: str
    designed: list[str]
    flows: float
    target: str
    fairness: list[str]
    sections: Mapping[str, str]
    needs: list[tuple[str, str]]

    @property
    def name(self) -> str:
        """The name of the suite."""
        return self.folder.name

    def flows_at(self, at: SuiteLink) -> float:
        """Return the number of flows to design for; fewer if their windows would be too small."""
        packets_per_s = at.rate_bps / (8 * quantity(SETTINGS, self.packet, "size"))
        round_trip_s = at.rtt_s + quantity(SETTINGS, self.target, "time")
        return min(self.flows, packets_per_s * round_trip_s / LEAST_WINDOW_PKTS)

    def scenarios(self, names: Sequence[str] | None = None) -> list[Path]:
        """Return the scenario files of these names (default: all), in order of name.

        Raises
        ------
        ScenarioError
            If the suite has no scenario of that name.
        """
        files = {
            path.stem: path for path in sorted(self.folder.glob("*.toml")) if path.name != SETTINGS
        }
        for name in names or ():
            check_choice("scenario", name, files)
        return [path for name, path in files.items() if not names or name in names]


@dataclass(frozen=True)
class Scenario:
    """A scenario of a suite, ready to run.

    Attributes
    ----------
    name : str
        Name of its file, such as "7-1-web".
    experiment : Experiment
        The scenario with the laws under test.
    fairness : bool
        True if Jain's index measures fairness in this scenario.
    """

    name: str
    experiment: Experiment
    fairness: bool


def find(name: str) -> Settings:
    """Return the suite of this name, of the experiments here and those that come with Forebay.

    Raises
    ------
    ScenarioError
        If there is no such suite, or its settings cannot be used.
    """
    suites = {
        suite: folder
        for suite, folder in experiment_names.folders().items()
        if (folder / SETTINGS).is_file()
    }
    check_choice("SUITE", name, suites)
    return read(suites[name])


def read(folder: Path) -> Settings:
    """Read the settings of the suite in a folder.

    Raises
    ------
    ScenarioError
        If the file cannot be read, or lacks a key.
    """
    path = folder / SETTINGS
    try:
        document = tomllib.loads(path.read_text())
        design = document["design"]
        return Settings(
            folder=folder,
            title=document["title"],
            laws=document["laws"],
            link=SuiteLink(
                round(quantity(f"{path}: rate", document["rate"], "rate")),
                quantity(f"{path}: delay", document["delay"], "time"),
            ),
            packet=document["packet"],
            designed=design["laws"],
            flows=design["flows"],
            target=design["target"],
            fairness=document["fairness"]["scenarios"],
            sections=document["sections"],
            needs=[(need["text"], need["metric"]) for need in document["need"]],
        )
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    except KeyError as error:
        raise ScenarioError(f"{path}: the key {error.args[0]} is missing") from error


def link(text: str) -> SuiteLink:
    """Parse a link such as "10Mbit/s,50ms".

    Raises
    ------
    ScenarioError
        If the text is not a rate and a delay, both above zero.
    """
    rate, comma, delay = text.partition(",")
    if not comma:
        raise ParameterError("link", text, "a rate and a delay such as 10Mbit/s,50ms")
    parsed = SuiteLink(
        round(quantity("--link", rate.strip(), "rate")), quantity("--link", delay.strip(), "time")
    )
    if parsed.rate_bps < 1 or parsed.delay_s <= 0:
        raise ParameterError("link", text, "a rate and a delay above zero")
    return parsed


def laws(settings: Settings, names: Sequence[str], at: SuiteLink) -> list[Law]:
    """Return laws with the parameters that the suite gives them at a link.

    Parameters
    ----------
    settings : Settings
        The suite.
    names : sequence of str
        Names of laws; a name that is not in the registry, such as that of a prototype in Python,
        is left out.
    at : SuiteLink
        The link for which laws are designed.

    Returns
    -------
    list of Law
        The laws. A law whose rule has no operating point at the link keeps its default gains, with
        the suite's target, which fits the buffer.
    """
    designed = designs(settings, names, at)
    target = [("target", settings.target)]
    return [
        Law(name, (designed[name] or target) if name in designed else ())
        for name in dict.fromkeys(names)
        if name in registries.laws()
    ]


def designs(
    settings: Settings, names: Sequence[str], at: SuiteLink
) -> dict[str, list[tuple[str, str]] | None]:
    """Design laws for a link.

    Parameters
    ----------
    settings : Settings
        The suite, which says which laws are designed.
    names : sequence of str
        Names of laws.
    at : SuiteLink
        The link.

    Returns
    -------
    dict
        Parameters of each of these laws that the suite designs, by name; None for a law whose rule
        has no operating point at the link.
    """
    return {
        name: _design(
            name,
            quantities.rate(at.rate_bps),
            settings.flows_at(at),
            quantities.time(at.rtt_s),
            settings.packet,
            settings.target,
        )
        for name in settings.designed
        if name in names
    }


# The runs and both pages ask for the same designs.
@functools.cache
def _design(
    name: str, rate: str, flows: float, rtt: str, packet: str, target: str
) -> list[tuple[str, str]] | None:
    """Return the designed parameters of a law, or None if its rule has no operating point."""
    from forebay.control.design import design  # loads scipy
    from forebay.control.link import Link

    try:
        link = Link(rate, rtt, flows=flows, packet=packet)
        return design(name, link, target=target).params
    except ScenarioError:
        return None


def _designed(
    settings: Settings, chosen: Sequence[str | Prototype], at: SuiteLink
) -> list[tuple[str, str]]:
    """Return the keys and values that give the chosen laws their designed parameters."""
    names = [law for law in chosen if isinstance(law, str)]
    return [
        (f"law.{law.kind}.{name}", text)
        for law in laws(settings, names, at)
        for name, text in law.params
    ]


def plan(
    settings: Settings,
    files: Sequence[Path],
    chosen: Sequence[str | Prototype],
    at: SuiteLink,
    seeds: int | None,
    overrides: Overrides = (),
    engine: Engine = PACKETS,
) -> list[Scenario]:
    """Read scenarios of a suite, with the chosen laws, at a link.

    Rates follow the link, except those of calls: a call has the rate that it has. The usual
    round-trip time becomes that of the link; others stay. Buffers are the product of the rate and
    the longest round-trip time (RFC 7928, section 3.2).

    Parameters
    ----------
    settings : Settings
        The suite.
    files : sequence of Path
        Files of the scenarios.
    chosen : sequence of str or class
        The laws under test.
    at : SuiteLink
        The link.
    seeds : int or None
        Number of seeds; as many as each scenario asks for if None.
    overrides : mapping or sequence, optional
        Keys to set on top of every scenario; they win over what the suite designs.
    engine : Engine, optional
        What makes the runs.

    Returns
    -------
    list of Scenario
        The scenarios, in the order of `files`.

    Raises
    ------
    ScenarioError
        If a scenario cannot be run, or not by this engine.
    """
    check_seeds(seeds)
    pairs = [*_designed(settings, chosen, at), *quantities.set_pairs(overrides)]
    packet_bytes = round(quantity(SETTINGS, settings.packet, "size"))
    own = settings.link
    planned = []
    for path in files:
        name, text = experiment_names.shown(path), path.read_bytes()
        scenario = _native.plan(
            text, name, overrides=pairs, laws=list(chosen), seeds=seeds, read=FilesBeside(path),
            without_own_laws=True,
            link=((own.rate_bps, own.delay_s), (at.rate_bps, at.delay_s), packet_bytes),
        )  # fmt: skip
        command = shlex.join(["forebay", "run", name, *chosen_by(engine)])
        experiment = Experiment(scenario, name, text.decode(), command, engine=engine)
        engine.check(experiment)
        planned.append(Scenario(path.stem, experiment, path.stem in settings.fairness))
    return planned
