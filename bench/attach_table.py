"""Laws at the points of a study: simulated, in user space, and in a kernel. `make reality-attached`
makes docs/reality-attached.md of it.

    python -m bench.attach_table experiments/reality/attached.toml --runs experiments/reality/attached.csv \\
        --page docs/reality-attached.md

Each law at each point runs on `--engine kernel`, where Linux's TCP meets the law in user space, and
attached to a device of a virtual machine, as `bench.attach` has it: both in virtual time, so that a
busy host makes no run void. What a run came to is a line of the table `--runs`, and what is there
is not run again; `--only-page` runs nothing but the simulations, which take a minute.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import tomlkit

import forebay
from bench import attach
from forebay.runs.engine import KERNEL, PACKETS
from forebay.scenarios.builder import typed
from forebay.studies.points import Points
from tools import reality
from tools.reality import AXES, FIGURES, Figure, Verdict

#: The columns of the page, as engines are named.
ATTACHED = "attached"
ENGINES = (KERNEL, ATTACHED)
KEY = ("engine", *AXES)
VALUES = ("seed", "delay_mean_s", "queue_std_pkts", "drop_rate", "mark_rate", "utilisation")


@dataclass(frozen=True)
class Place:
    """A point of the study, with the numbers that its laws were designed to have."""

    number: int
    tables: dict[str, Any]

    @cached_property
    def laws(self) -> list[str]:
        return [law["kind"] for law in self.tables["law"]]

    def text(self, laws: Sequence[str]) -> str:
        """A scenario with these laws alone."""
        chosen = [law for law in self.tables["law"] if law["kind"] in laws]
        return tomlkit.dumps({**self.tables, "law": chosen})

    @cached_property
    def axes(self) -> dict[str, Any]:
        """Of `AXES`, in base units, without the law."""
        (traffic,) = self.tables["traffic"]
        link = self.tables["bottleneck"]
        return {
            "bottleneck.rate": forebay._native.quantity("rate", link["rate"], "rate"),
            "traffic.0.tcp": traffic["tcp"],
            "traffic.0.flows": traffic["flows"],
            "traffic.0.rtt": forebay._native.quantity("rtt", traffic["rtt"], "time"),
            "bottleneck.ecn": str(link["ecn"]).lower(),
        }

    @cached_property
    def packet_s(self) -> float:
        (traffic,) = self.tables["traffic"]
        packet_bytes = forebay._native.quantity("packet", traffic["packet"], "size")
        return 8 * packet_bytes / float(self.axes["bottleneck.rate"])

    def row(self, engine: str, law: str, **values: float) -> dict[str, Any]:
        return {"engine": engine, "law": law, **self.axes, **values}


def places(path: Path) -> list[Place]:
    """Raises `ScenarioError`."""
    points = Points(path)
    found = []
    for number in range(len(points)):
        tables = tomllib.loads(points.text)
        del tables["sweep"]
        for key, value in zip(points.keys, points.sweep.row(number), strict=True):
            table, *rest = key.split(".")
            if table == "traffic":
                tables["traffic"][int(rest[0])][rest[1]] = value
            elif table == "law":
                next(law for law in tables["law"] if law["kind"] == rest[0])[rest[1]] = value
            elif rest:
                tables[table][rest[0]] = value
            else:
                tables[table] = value
        for law, params in points.gains.of_point(number):
            del tables["law"][law]["gains"]
            tables["law"][law] |= {key: _typed(value) for key, value in params}
        found.append(Place(number, tables))
    return found


def _typed(value: Any) -> Any:
    return typed(value) if isinstance(value, str) else value


def order(found: Sequence[Place]) -> Iterator[tuple[Place, list[str]]]:
    """First a half of the laws at each of eight points, so that any law, too, meets any other
    value; then the other half, and the same of the other points."""
    for first in range(0, len(found), 8):
        for whole in (False, True):
            for place in found[first : first + 8]:
                rtt, at = divmod(place.number - first, 2)
                # A function of the round trip that is neither constant nor any column of the sweep.
                half = [
                    law
                    for number, law in enumerate(place.laws)
                    if at == ((rtt == number % 4) ^ (number // 4 % 2))
                ]
                yield place, [law for law in place.laws if (law in half) != whole]


def in_user_space(place: Place, laws: Sequence[str]) -> list[dict[str, Any]]:
    return of_engine(place, laws, KERNEL, 1)


def of_engine(place: Place, laws: Sequence[str], engine: str, seeds: int) -> list[dict[str, Any]]:
    out = forebay.run(place.text(laws), engine=engine, seeds=seeds, threads=1)
    return [
        place.row(
            engine,
            one["law"],
            # Of what waits at any time, as the kernel's clock sees it.
            delay_mean_s=one["queue_mean_pkts"] * place.packet_s,
            **{name: one[name] for name in VALUES if name != "delay_mean_s"},
        )
        for one in out.metrics.iter_rows(named=True)
    ]


def in_a_kernel(place: Place, laws: Sequence[str], out: Path) -> list[dict[str, Any]]:
    """Of the laws that have been measured, where the machine was stopped."""
    scenario = out / f"point-{place.number + 1}.toml"
    scenario.write_text(place.text(laws))
    words = [sys.executable, "-m", "bench.attach", str(scenario), "--virtual", "--raw"]
    done = subprocess.run(
        [*words, "--out", str(out), "--limit", "7200"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    measured = attach.lines(done.stdout)
    if not measured:
        raise RuntimeError(f"{scenario}: nothing was measured")
    return [
        place.row(
            ATTACHED,
            law,
            seed=number,
            delay_mean_s=one.delay_s,
            queue_std_pkts=one.deviation_s / place.packet_s,
            drop_rate=one.drops,
            mark_rate=one.signals - one.drops,
            utilisation=one.utilisation,
        )
        for law, runs in measured.items()
        for number, one in enumerate(runs, 1)
    ]


def read(runs: Path) -> list[dict[str, Any]]:
    if not runs.exists():
        return []
    with runs.open(newline="") as file:
        return [
            {key: _number(key, value) for key, value in row.items()} for row in csv.DictReader(file)
        ]


def _number(key: str, value: str) -> Any:
    if key in ("seed", "traffic.0.flows"):
        return int(value)
    return value if key in ("engine", "law", "traffic.0.tcp", "bottleneck.ecn") else float(value)


def write(runs: Path, rows: Sequence[dict[str, Any]]) -> None:
    new = not runs.exists()
    with runs.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*KEY, *VALUES], lineterminator="\n")
        if new:
            writer.writeheader()
        for row in rows:
            writer.writerow(
                {key: f"{it:.6g}" if isinstance(it, float) else it for key, it in row.items()}
            )


def make(found: Sequence[Place], runs: Path, out: Path) -> None:
    """Every run that is not there."""
    for place, laws in order(found):
        for engine in ENGINES:
            there = {tuple(row[key] for key in KEY) for row in read(runs)}
            missing = [
                law
                for law in laws
                if tuple(place.row(engine, law)[key] for key in KEY) not in there
            ]
            if not missing:
                continue
            if engine == KERNEL:
                write(runs, in_user_space(place, missing))
            else:
                write(runs, in_a_kernel(place, missing, out))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--only-page", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results", "attached"))
    given = parser.parse_args()
    found = places(given.study)
    given.out.mkdir(parents=True, exist_ok=True)
    if not given.only_page:
        make(found, given.runs, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
