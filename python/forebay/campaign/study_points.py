"""The points of a study, read in parts: a million of them would not fit into memory at once."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

import forebay._native as _native
from forebay._base import quantities
from forebay._base.overrides import scenario_pairs
from forebay._native import ScenarioError
from forebay.experiment import automatic_gains, experiment
from forebay.experiment import run_rows as rows
from forebay.experiment import store as designs
from forebay.experiment.engines import PACKETS, check_repeatable
from forebay.experiment.run_rows import MadeBy
from forebay.experiment.store_files import sealed_name

if TYPE_CHECKING:
    from forebay._base.quantities import Overrides
    from forebay._native import GainsRequest, Parameter, Plan, Sweep
    from forebay.experiment.engines import Engine
    from forebay.experiment.store import Designs, Store
    from forebay.scenario.python_laws import Prototype

#: Points that are read at a time; fewer where each needs designs, so that runs begin soon.
PART, DESIGNED = 500, 8

#: A row for each law at each point.
LISTED = {"point": pl.UInt32, "law": pl.UInt16, "config": pl.String}

#: What a point sets, in the order of the sweep's keys.
Row = list[object]
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
        """Return the numbers for the rows of the trial: of the first one that asks, since no run
        has them."""
        first: dict[int, list[tuple[str, Parameter]]] = {}
        for request in (request for asked in self._trial for request in asked):
            if request.law not in first:
                first[request.law] = automatic_gains.numbers(request, self.kept)
        gains = [[(request.law, first[request.law]) for request in asked] for asked in self._trial]
        # The first row is the first point.
        self._made[0] = gains[0]
        return gains

    def of_point(self, index: int) -> Gains:
        """Return the numbers of a point by its index. Raises `ScenarioError`."""
        if not self.laws:
            return []
        if index not in self._made:
            requests = self._requests(index)
            self._made[index] = [
                (request.law, automatic_gains.numbers(request, self.kept)) for request in requests
            ]
        return self._made[index]

    def ready(self, which: Sequence[int]) -> bool:
        """Return True if these points need no more designs."""
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


@dataclass(frozen=True)
class StudySource:
    """A scenario with what was chosen on top of it. It can be pickled, and
    another machine makes the same runs of it."""

    name: str
    text: bytes
    overrides: tuple[tuple[str, str], ...]
    laws: tuple[str | Prototype, ...]
    #: files that the scenario names
    files: tuple[tuple[str, bytes], ...]
    #: what makes the runs, and the version of it that the digests have
    engine: Engine = PACKETS
    version: str = ""

    def plan(self, rows: Sequence[Row], gains: Sequence[Gains], seeds: int | None) -> Plan:
        """Return the plan of these points, with the numbers of laws that ask for them. Raises
        `ScenarioError`."""
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
        """Return the experiment of a plan, for the engine. Raises `ScenarioError` where a worker
        has another version of it."""
        if (here := self.engine.version()) != self.version:
            raise ScenarioError(
                f"--engine: found {self.engine.name} of version {here}, allowed: {self.version}, "
                "as where the study was begun"
            )
        return experiment.Experiment(plan, self.name, self.text.decode(), "", engine=self.engine)


@dataclass(frozen=True)
class PointsPart:
    """Some points of a study that have been read: `first` is the number of its first one."""

    first: int
    rows: list[Row]
    gains: list[Gains]
    plan: Plan
    made: MadeBy

    @cached_property
    def configs(self) -> pl.DataFrame:
        """Point and law by their numbers in the whole study, and the digest of both."""
        found = [
            (self.first + point, law, config)
            for point in range(len(self.plan.points))
            for law, config in enumerate(rows.configs(self.plan, point, self.made, prototypes=True))
        ]
        return pl.DataFrame(found, LISTED, orient="row")


class Points:
    """Everything that a study runs, with `seeds` seeds each.

    source, laws, overrides, seeds: as `forebay.run` takes them. kept: the designs that a store has;
    new ones go there. engine: what makes the runs.
    """

    def __init__(
        self,
        source: experiment.Source,
        *,
        laws: str | Prototype | Sequence[str | Prototype] = (),
        overrides: Overrides = (),
        seeds: int | None = None,
        kept: Designs | None = None,
        engine: Engine = PACKETS,
    ) -> None:
        experiment.check_seeds(seeds)
        laws = quantities.listed(laws)
        version = check_repeatable(engine)
        #: what makes the runs, for the store
        self.made = MadeBy(engine.name, version)
        name, text = experiment.text_of(source)
        pairs = scenario_pairs(overrides)
        files = experiment.FilesBeside(name, pairs)
        # A seed each: tasks say which they want.
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
        #: numbers of the laws that ask for them
        self.gains = PointGains(self.sweep, trial, kept)
        # It says what is wrong with a scenario before anything runs.
        first = self.source.plan(trial, self.gains.of_trial(), seeds)
        engine.check(self.source.planned(first))
        self.laws, self.seeds = first.laws, len(first.seeds)
        self.title, self.text, self.name = first.title or name, text.decode(), name
        self.links = [link.name for link in first.points[0].links]
        #: files of laws in Python, with a hash of each
        self._prototypes = [law.source for law in first.points[0].laws if law.kind is None]

    def __len__(self) -> int:
        return len(self.sweep)

    def _trial(self) -> list[Row]:
        """Return the first point, and others with each word of the sweep, such as a file or a
        sender: a number that suits no link is told when its point is read."""
        first = self.sweep.row(0)
        rows, place = [first], 0
        for line, values in self.sweep.lists:
            if any(_is_word(one) for row in values for one in row):
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
        """Laws at points; a law that the sweep leaves as it is counts at each."""
        return len(self) * len(self.laws)

    @cached_property
    def digest(self) -> str:
        """Hash of all that the runs depend on, their seeds aside."""
        overrides = [f"{key}={value}" for key, value in self.source.overrides]
        laws = [law if isinstance(law, str) else "" for law in self.source.laws]
        whole = [self.text, overrides, laws, self._prototypes, *self.made.digest_parts]
        hash_ = hashlib.blake2b(json.dumps(whole).encode(), digest_size=8)
        for name, contents in self.source.files:
            hash_.update(name.encode() + hashlib.sha256(contents).digest())
        hash_.update(
            (designs.designs_version() if self.gains.laws else _native.__version__).encode()
        )
        return hash_.hexdigest()

    def parts(self) -> Iterator[range]:
        """Yield the numbers of the points in their order, some at a time."""
        step = DESIGNED if self.gains.laws else PART
        for first in range(0, len(self), step):
            yield range(first, min(first + step, len(self)))

    def part(self, which: Sequence[int]) -> PointsPart:
        """Return these points; their numbers in the part go up from that of the first."""
        at, gains = list(map(self.sweep.row, which)), list(map(self.gains.of_point, which))
        return PointsPart(which[0], at, gains, self.sweep.plan(at, gains), self.made)

    def kept_list(self, store: Store) -> pl.DataFrame | None:
        """Return what a store has of `list_runs`; None if nothing, or if that is damaged."""
        contents = store.read_sealed(self._stem(store))
        return None if contents is None else pl.read_parquet(io.BytesIO(contents))

    def keep_list(self, store: Store, table: pl.DataFrame) -> None:
        """Keep the list in a store: to make it every point is read, which takes longer than to
        look into the store."""
        buffer = io.BytesIO()
        table.write_parquet(buffer)
        name = sealed_name(self._stem(store), buffer.getvalue())
        store.place.write(name, buffer.getvalue())

    def list_runs(self, store: Store, *, partial: bool = False) -> pl.DataFrame:
        """Return point, law and digest of all that is run, a row for each law at each point.

        partial: leave out points that are not designed yet, if the store lacks the list.
        """
        kept = self.kept_list(store)
        if kept is not None:
            return kept
        parts = [which for which in self.parts() if not partial or self.gains.ready(which)]
        tables = [self.part(which).configs for which in parts]
        return pl.concat([pl.DataFrame(schema=LISTED), *tables])

    def _stem(self, store: Store) -> str:
        return f"studies/{store.version}/{self.digest}"

    @cached_property
    def settings(self) -> pl.DataFrame:
        """A row per point: its number, and what it sets; a quantity in its base unit."""
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
        found = quantities.read(self.sweep.row(0)[self.keys.index(key)])
        return found[1] if found else ""


def _is_word(value: object) -> bool:
    return isinstance(value, str) and quantities.read(value) is None


def _column(values: Sequence[object]) -> pl.Series:
    """Return quantities in their base unit; as text where they are not all of one kind."""
    found = [quantities.read(value) for value in values]
    known = [one for one in found if one is not None]
    if len(known) == len(values) and len({base for _, base in known}) == 1:
        return pl.Series([value for value, _ in known], dtype=pl.Float64)
    return pl.Series([quantities.toml(value) for value in values])
