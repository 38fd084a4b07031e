"""The points of a study, read in parts: a million of them would not fit into memory at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from forebay import _native
from forebay._native import ScenarioError
from forebay.run import auto, experiment, ranges
from forebay.run.axes import number
from forebay.run.ranges import Design
from forebay.store import designs, keys
from forebay.store.rows import Facts
from forebay.study.fitted import Fits

if TYPE_CHECKING:
    from forebay._native import Plan
    from forebay.store.designs import Designs

#: Points that are read at a time; fewer where each needs designs, so that runs begin soon.
PART, DESIGNED = 500, 8


#: A row for each law at each point.
LISTED = {"point": pl.UInt32, "law": pl.UInt16, "config": pl.String}


@dataclass(frozen=True)
class Source:
    """What a study is of: a scenario with what was chosen on top of it. It can be pickled, and
    another machine makes the same runs of it."""

    name: str
    #: the scenario without its sweep
    bare: str
    sets: tuple[str, ...]
    laws: tuple[str, ...]
    #: files that the scenario names
    files: tuple[tuple[str, bytes], ...]

    def plan(self, points: Sequence[Sequence[object]], swept: Sequence[str], seeds: int) -> Plan:
        """The plan of these points. Raises `ScenarioError`."""
        text = self.bare
        if swept:
            rows = [list(row) if len(swept) > 1 else row[0] for row in points]
            text += f"\n[sweep]\n{json.dumps(', '.join(swept))} = {toml(rows)}\n"
        contents = dict(self.files)
        return _native.plan(
            text.encode(),
            self.name,
            sets=[(key, value) for key, _, value in (one.partition("=") for one in self.sets)],
            laws=list(self.laws),
            seeds=seeds,
            read=contents.get,
        )


@dataclass(frozen=True)
class Part:
    """Some points of a study that have been read: `first` is the number of its first one."""

    first: int
    rows: list[list[object]]
    plan: Plan

    @cached_property
    def configs(self) -> pl.DataFrame:
        """Point and law by their numbers in the whole study, and the digest of both."""
        found = [
            (self.first + point, law, config)
            for point in range(len(self.plan.points))
            for law, config in enumerate(keys.configs(self.plan, point))
        ]
        return pl.DataFrame(found, LISTED, orient="row")

    def facts(self, point: int, law: int, config: str) -> Facts:
        """What the store keeps of a run; `point` is its number in the whole study."""
        return Facts.of(self.plan, point - self.first, law, config)


class Points:
    """Everything that a study runs, with `seeds` seeds each.

    kept: the designs that a store has; new ones go there.
    """

    def __init__(
        self,
        source: experiment.Source,
        *,
        laws: Sequence[str] = (),
        sets: Sequence[str] = (),
        seeds: int | None = None,
        kept: Designs | None = None,
    ) -> None:
        name, data = experiment.text_of(source)
        text = data.decode(errors="replace")
        sets, chosen = _without_points(sets)
        if chosen is not None:
            text = ranges.with_points(text, chosen)
            data = text.encode()
        fixed = {one.partition("=")[0].strip() for one in sets}
        written = ranges.sweep_of(text)
        # What the command line sets is not varied, as in a run.
        swept = {k: v for k, v in written.items() if not _keys(k) <= fixed}
        self.design: Design = ranges.design(swept, name)
        given = [_pair(one) for one in sets]
        for key in [key for key in self.design.keys if key in fixed]:
            raise ScenarioError(
                f"--set: found {key}, which the study varies with others, allowed: all of them"
            )
        files: dict[str, bytes] = {}
        read_beside = experiment.beside(name)

        def read(file: str) -> bytes | None:
            contents = read_beside(file)
            if contents is not None:
                files[file] = contents
            return contents

        # Every file that some point names is in the lists of the grid, and so in this plan; it
        # says what is wrong with a scenario before anything runs.
        self._fits = Fits(text, name, given, laws, read, self.design.keys, kept)
        own = self.design.keys
        row = self.row(0)
        trial: dict[str, list[object]] = {key: [it] for key, it in zip(own, row, strict=False)}
        if designed := self.swept[len(own) :]:
            # One line: a sweep has few, and a law many numbers.
            numbers = row[len(own) :]
            trial[", ".join(designed)] = [numbers if len(numbers) > 1 else numbers[0]]
        for keys_, rows in self.design.grid:
            for place, key in enumerate(keys_):
                if any(isinstance(row[place], str) and number(row[place]) is None for row in rows):
                    trial[key] = list(dict.fromkeys(row[place] for row in rows))
        plain = auto.without(text) if designed else text
        given = [(key, value) for key, value in given if not auto.is_gains(key)]
        first = _native.plan(
            ranges.with_sweep(plain, trial).encode() if trial else data,
            name,
            sets=given,
            laws=list(laws),
            seeds=seeds,
            read=read,
        )
        self.laws, self.seeds = first.laws, len(first.seeds)
        self.title, self.text, self.name = first.title or name, text, name
        self.links = [link.name for link in first.points[0].links]
        as_given = tuple(f"{key}={value}" for key, value in given)
        bare = without_sweep(plain) if written else plain
        self.source = Source(name, bare, as_given, tuple(laws), tuple(sorted(files.items())))

    def __len__(self) -> int:
        return len(self.design)

    @property
    def designs(self) -> bool:
        """Whether laws are designed for each point."""
        return self._fits.designs

    @property
    def kept(self) -> Designs | None:
        """Where designs are kept."""
        return self._fits.kept if self.designs else None

    @property
    def designed(self) -> list[str]:
        """The laws that are designed for each point."""
        return [law for law in self.laws if law in self._fits.laws]

    @property
    def configs(self) -> int:
        """Laws at points; a law that the sweep leaves as it is counts at each."""
        return len(self) * len(self.laws)

    @cached_property
    def digest(self) -> str:
        """What the study is of; its seeds aside."""
        whole = [self.text, self.source.sets, self.source.laws]
        hash_ = hashlib.blake2b(json.dumps(whole).encode(), digest_size=8)
        for name, contents in self.source.files:
            hash_.update(name.encode() + hashlib.sha256(contents).digest())
        hash_.update((designs.version() if self.designs else _native.__version__).encode())
        return hash_.hexdigest()

    def parts(self) -> Iterator[range]:
        """The numbers of the points in their order, some at a time."""
        step = DESIGNED if self.designs else PART
        for first in range(0, len(self), step):
            yield range(first, min(first + step, len(self)))

    def ready(self, which: Sequence[int]) -> bool:
        """Whether these points need no more designs."""
        return all(self._fits.ready(index, self.design.point(index)) for index in which)

    def part(self, which: Sequence[int]) -> Part:
        """These points; their numbers in the part go up from that of the first."""
        rows = [self.row(index) for index in which]
        return Part(which[0], rows, self.source.plan(rows, self.swept, 1))

    @property
    def swept(self) -> list[str]:
        """The keys that a point sets, and those of the numbers that are designed for it."""
        return self._fits.keys

    def row(self, index: int) -> list[object]:
        """What a point sets, in the order of `swept`."""
        return self._fits.row(index, self.design.point(index))

    @cached_property
    def settings(self) -> pl.DataFrame:
        """A row per point: its number, and what it sets; a quantity in its base unit."""
        index = pl.int_range(len(self), dtype=pl.UInt32, eager=True)
        columns = {"point": index}
        stride = len(self)
        for keys_, rows in self.design.grid:
            stride //= len(rows)
            for place, key in enumerate(keys_):
                values = _column([row[place] for row in rows])
                columns[key] = values.gather((index // stride) % len(rows))
        for place, (key, _) in enumerate(self.design.sampled):
            rows_ = (self.design.point(i)[-len(self.design.sampled) :] for i in range(self.samples))
            columns[key] = _column([row[place] for row in rows_]).gather(index % self.samples)
        return pl.DataFrame(columns)

    @property
    def samples(self) -> int:
        return self.design.samples

    def unit(self, key: str) -> str:
        """The base unit of what a key is set to; empty for a number or a text."""
        place = self.design.keys.index(key)
        found = number(self.design.point(0)[place])
        return found[1] if found else ""


def _without_points(sets: Sequence[str]) -> tuple[list[str], str | None]:
    """What is set but for `sweep.points`, and that."""
    key = f"sweep.{ranges.POINTS}"
    pairs = [(one, *_pair(one)) for one in sets]
    chosen = [value for _, name, value in pairs if name == key]
    return [one for one, name, _ in pairs if name != key], chosen[-1] if chosen else None


def _pair(item: str) -> tuple[str, str]:
    key, _, value = item.partition("=")
    return key.strip(), value.strip()


def _keys(line: str) -> set[str]:
    """The keys of a line of a sweep."""
    return {key.strip() for key in line.split(",")}


def _column(values: list[object]) -> pl.Series:
    """Quantities in their base unit; as text where they are not all of one kind."""
    found = [number(value) for value in values]
    known = [one for one in found if one is not None]
    if len(known) == len(values) and len({base for _, base in known}) == 1:
        return pl.Series([value for value, _ in known], dtype=pl.Float64)
    return pl.Series([value if isinstance(value, str) else json.dumps(value) for value in values])


def without_sweep(text: str) -> str:
    """The scenario without its sweep."""
    import tomlkit  # a tenth of a second to load

    document = tomlkit.parse(text)
    document.remove("sweep")
    return tomlkit.dumps(document)


def toml(value: object) -> str:
    """A value of a sweep. What JSON writes is TOML, but for tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)
