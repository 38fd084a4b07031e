"""The points of a study, read in parts: a million of them would not fit into memory at once."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

import forebay._native as _native
from forebay._base import quantities
from forebay._base.errors import ParameterError
from forebay._base.registries import scenario_pairs
from forebay.experiment import automatic_gains, experiment
from forebay.experiment import run_rows as rows
from forebay.experiment import store as run_store
from forebay.experiment.engines import PACKETS, check_repeatable
from forebay.experiment.run_rows import MadeBy
from forebay.experiment.store_files import sealed_name

if TYPE_CHECKING:
    from forebay._base.quantities import Overrides
    from forebay._native import GainsRequest, Parameter, Plan, Sweep
    from forebay.experiment.engines import Engine
    from forebay.experiment.store import Designs, Store
    from forebay.scenario.python_laws import Prototype

#: Number of points that are read at a time; fewer if each needs designs, so that runs begin soon.
PART, DESIGNED = 500, 8
#: The columns of a list of runs, which has a row for each law at each point.
LISTED = {"point": pl.UInt32, "law": pl.UInt16, "config": pl.String}

#: What a point sets, in the order of the sweep's keys.
Row = list[object]
#: Designed parameters at a point: number of the law in the file, and its parameters.
Gains = list[tuple[int, list[tuple[str, "Parameter"]]]]
#: The number of seeds of each law at each point; by digest where they differ.
Seeds: TypeAlias = int | Mapping[str, int]


def seed_counts(seeds: Seeds, configs: Sequence[str] | pl.Series) -> list[int]:
    """Return the number of seeds of each digest.

    Parameters
    ----------
    seeds : int or mapping of str to int
        The number of all digests, or of each; a digest that is missing has none.
    configs : sequence of str
        Digests.
    """
    return [seeds if isinstance(seeds, int) else seeds.get(config, 0) for config in configs]


class PointGains:
    """The designed parameters of a study's laws, which are designed when they are asked for.

    Parameters
    ----------
    sweep : Sweep
        The sweep of the study.
    trial : sequence of Row
        Rows with each word of the sweep: a law that needs a design anywhere needs one in them.
    designs : Designs or None
        Designs that are in a store; new ones go there.

    Attributes
    ----------
    laws : list of str
        Labels of the laws that need designs.
    designs : Designs or None
        The designs, or None if no law needs any.
    """

    def __init__(
        self, sweep: Sweep, trial: Sequence[Sequence[object]], designs: Designs | None
    ) -> None:
        self._sweep = sweep
        self._designed: dict[int, Gains] = {}
        self._trial = [sweep.gains_requests(row) for row in trial]
        self.laws = list(
            dict.fromkeys(request.label for requests in self._trial for request in requests)
        )
        self.designs = designs if self.laws else None

    def of_trial(self) -> list[Gains]:
        """Return parameters for the rows of the trial.

        A law has those of the first row that needs them, since no run has the others.
        """
        first: dict[int, list[tuple[str, Parameter]]] = {}
        for request in (request for requests in self._trial for request in requests):
            if request.law not in first:
                first[request.law] = automatic_gains.numbers(request, self.designs)
        gains = [
            [(request.law, first[request.law]) for request in requests] for requests in self._trial
        ]
        # The first row is the first point.
        self._designed[0] = gains[0]
        return gains

    def of_point(self, index: int) -> Gains:
        """Return the parameters at a point by its index, or raise `ScenarioError`."""
        if not self.laws:
            return []
        if index not in self._designed:
            self._designed[index] = [
                (request.law, automatic_gains.numbers(request, self.designs))
                for request in self._requests(index)
            ]
        return self._designed[index]

    def ready(self, points: Sequence[int]) -> bool:
        """Return True if these points need no more designs."""
        designs = self.designs

        def is_kept(request: GainsRequest) -> bool:
            if designs is None:
                return False
            return automatic_gains.kept_numbers(request, designs) is not None

        return not self.laws or all(
            index in self._designed or all(map(is_kept, self._requests(index))) for index in points
        )

    def _requests(self, index: int) -> list[GainsRequest]:
        return self._sweep.gains_requests(self._sweep.row(index))


@dataclass(frozen=True)
class StudySource:
    """A scenario with what was chosen on top of it; it can be pickled.

    Another machine makes the same runs of it.

    Attributes
    ----------
    name, text : str, bytes
        Name and contents of the scenario's file.
    overrides : tuple of (str, str)
        Keys to set on top of it.
    laws : tuple of str or class
        Laws that run instead of the file's.
    files : tuple of (str, bytes)
        Contents of the files that the scenario names.
    engine : Engine
        What makes the runs.
    version : str
        Version of the engine that the digests have.
    """

    name: str
    text: bytes
    overrides: tuple[tuple[str, str], ...]
    laws: tuple[str | Prototype, ...]
    files: tuple[tuple[str, bytes], ...]
    engine: Engine = PACKETS
    version: str = ""

    def plan(self, rows: Sequence[Row], gains: Sequence[Gains], seeds: int | None) -> Plan:
        """Return the plan of points with their designed parameters, or raise `ScenarioError`."""
        return _native.plan(
            self.text,
            self.name,
            overrides=list(self.overrides),
            laws=list(self.laws),
            seeds=seeds,
            read=dict(self.files).get,
            rows=rows,
            gains=gains,
            programs=self.engine.runs_programs,
        )

    def planned(self, plan: Plan) -> experiment.Experiment:
        """Return the experiment of a plan, for the engine.

        Raises
        ------
        ScenarioError
            If this machine has another version of the engine.
        """
        if (version := self.engine.version()) != self.version:
            expected = f"version {self.version}, with which the study was begun"
            reason = f"this machine has version {version}"
            raise ParameterError("engine", self.engine.name, expected, reason=reason)
        return experiment.Experiment(plan, self.name, self.text.decode(), "", engine=self.engine)


@dataclass(frozen=True)
class PointsPart:
    """Points of a study that have been read; `first` is the number of the first one."""

    first: int
    rows: list[Row]
    gains: list[Gains]
    plan: Plan
    made_by: MadeBy

    @cached_property
    def configs(self) -> pl.DataFrame:
        """Point and law by their numbers in the whole study, and the digest of both."""
        listed = [
            (self.first + point, law, config)
            for point in range(len(self.plan.points))
            for law, config in enumerate(
                rows.configs(self.plan, point, self.made_by, prototypes=True)
            )
        ]
        return pl.DataFrame(listed, LISTED, orient="row")


class Points:
    """Everything that a study runs.

    Parameters
    ----------
    source : path, str or mapping
        A scenario as `forebay.run` takes it; its sweep may have ranges and samples.
    laws, overrides, seeds
        The parameters of `forebay.run`.
    designs : Designs, optional
        Designs that a store has; new ones go there.
    engine : Engine, optional
        What makes the runs.

    Attributes
    ----------
    source : StudySource
        The scenario with what was chosen on top of it.
    sweep : Sweep
        The axes.
    made_by : MadeBy
        The engine, as the store knows it.
    gains : PointGains
        Designed parameters of the laws.
    laws : list of str
        Labels of the laws.
    seeds : int
        Number of seeds of each law at each point.
    title, text, name : str
        Title of the scenario, and contents and name of its file.
    links : list of str
        Names of the links, the bottleneck first.

    Raises
    ------
    ScenarioError
        If the scenario cannot be run, or not by this engine.
    """

    def __init__(
        self,
        source: experiment.Source,
        *,
        laws: str | Prototype | Sequence[str | Prototype] = (),
        overrides: Overrides = (),
        seeds: int | None = None,
        designs: Designs | None = None,
        engine: Engine = PACKETS,
    ) -> None:
        experiment.check_seeds(seeds)
        laws = quantities.listed(laws)
        version = check_repeatable(engine)
        self.made_by = MadeBy(engine.name, version)
        name, text = experiment.text_of(source)
        pairs = scenario_pairs(overrides)
        files = experiment.FilesBeside(name, pairs)
        # Tasks say which seeds they run.
        self.sweep = _native.Sweep(
            text,
            name,
            overrides=pairs,
            laws=laws,
            seeds=1,
            read=files,
            programs=engine.runs_programs,
        )
        contents = tuple(sorted(files.contents.items()))
        self.source = StudySource(name, text, tuple(pairs), tuple(laws), contents, engine, version)
        trial = self._trial()
        self.gains = PointGains(self.sweep, trial, designs)
        # Reading the trial finds what is wrong with the scenario before anything runs.
        first = self.source.plan(trial, self.gains.of_trial(), seeds)
        engine.check(self.source.planned(first))
        self.laws, self.seeds = first.laws, len(first.seeds)
        self.title, self.text, self.name = first.title or name, text.decode(), name
        self.links = [link.name for link in first.points[0].links]
        # Files of laws in Python, each with a hash of its contents.
        self._prototypes = [law.source for law in first.points[0].laws if law.kind is None]

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.sweep)

    def _trial(self) -> list[Row]:
        """Return the first point, and points with each word of the sweep, such as a sender.

        A number that does not suit a link is reported when its point is read.
        """
        first = self.sweep.row(0)
        rows, place = [first], 0
        for line, values in self.sweep.lists:
            if any(_is_word(value) for row in values for value in row):
                rows += [[*first[:place], *row, *first[place + len(line) :]] for row in values[1:]]
            place += len(line)
        return rows

    @property
    def keys(self) -> list[str]:
        """The keys that a point sets, in the order of its row."""
        return self.sweep.keys

    @property
    def sampled(self) -> list[str]:
        """The keys whose ranges are sampled."""
        return [key for key, *_ in self.sweep.ranges]

    @property
    def configs(self) -> int:
        """Number of laws at points; a law that the sweep does not change counts at each point."""
        return len(self) * len(self.laws)

    @cached_property
    def digest(self) -> str:
        """Hash of everything that the runs depend on, except their seeds."""
        overrides = [f"{key}={value}" for key, value in self.source.overrides]
        laws = [law if isinstance(law, str) else "" for law in self.source.laws]
        whole = [self.text, overrides, laws, self._prototypes, *self.made_by.digest_parts]
        hash_ = hashlib.blake2b(json.dumps(whole).encode(), digest_size=8)
        for name, contents in self.source.files:
            hash_.update(name.encode() + hashlib.sha256(contents).digest())
        version = run_store.designs_version() if self.gains.laws else _native.__version__
        hash_.update(version.encode())
        return hash_.hexdigest()

    def parts(self) -> Iterator[range]:
        """Yield the numbers of the points in their order, part by part."""
        step = DESIGNED if self.gains.laws else PART
        for first in range(0, len(self), step):
            yield range(first, min(first + step, len(self)))

    def part(self, numbers: Sequence[int]) -> PointsPart:
        """Return these points; their numbers in the part go up from that of the first."""
        rows, gains = list(map(self.sweep.row, numbers)), list(map(self.gains.of_point, numbers))
        return PointsPart(numbers[0], rows, gains, self.sweep.plan(rows, gains), self.made_by)

    def kept_list(self, store: Store) -> pl.DataFrame | None:
        """Return what a store has of `list_runs`; None if it has nothing, or that is damaged."""
        contents = store.read_sealed(self._stem(store))
        return None if contents is None else pl.read_parquet(io.BytesIO(contents))

    def keep_list(self, store: Store, table: pl.DataFrame) -> None:
        """Keep the list in a store: making it reads every point, which takes longer."""
        buffer = io.BytesIO()
        table.write_parquet(buffer)
        name = sealed_name(self._stem(store), buffer.getvalue())
        store.place.write(name, buffer.getvalue())

    def list_runs(self, store: Store, *, partial: bool = False) -> pl.DataFrame:
        """Return point, law and digest of everything that is run: a row for each law at each point.

        With `partial`, points that are not designed yet are left out, if the store has no list.
        """
        listed = self.kept_list(store)
        if listed is not None:
            return listed
        parts = [numbers for numbers in self.parts() if not partial or self.gains.ready(numbers)]
        tables = [self.part(numbers).configs for numbers in parts]
        return pl.concat([pl.DataFrame(schema=LISTED), *tables])

    def _stem(self, store: Store) -> str:
        return f"studies/{store.version}/{self.digest}"

    @cached_property
    def settings(self) -> pl.DataFrame:
        """A row per point: its number and what it sets, quantities in their base units."""
        index = pl.int_range(len(self), dtype=pl.UInt32, eager=True)
        columns = {"point": index}
        stride = len(self)
        for line, values in self.sweep.lists:
            stride //= len(values)
            for place, key in enumerate(line):
                column = _column([row[place] for row in values])
                columns[key] = column.gather((index // stride) % len(values))
        if self.sampled:
            samples = self.sweep.samples
            rows = [self.sweep.row(i)[-len(self.sampled) :] for i in range(samples)]
            for key, drawn in zip(self.sampled, zip(*rows, strict=True), strict=True):
                columns[key] = _column(drawn).gather(index % samples)
        return pl.DataFrame(columns)

    def unit(self, key: str) -> str:
        """Return the base unit of what a key is set to; empty for a number or a text."""
        quantity = quantities.read(self.sweep.row(0)[self.keys.index(key)])
        return quantity[1] if quantity else ""


def _is_word(value: object) -> bool:
    return isinstance(value, str) and quantities.read(value) is None


def _column(values: Sequence[object]) -> pl.Series:
    """Return quantities in their base unit; as texts if they are not all of one kind."""
    parsed = [quantities.read(value) for value in values]
    numbers = [quantity for quantity in parsed if quantity is not None]
    if len(numbers) == len(values) and len({base for _, base in numbers}) == 1:
        return pl.Series([value for value, _ in numbers], dtype=pl.Float64)
    return pl.Series([quantities.toml(value) for value in values])
