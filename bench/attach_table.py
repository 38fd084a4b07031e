r"""Run laws at the points of a study: simulated, in user space, and in a kernel.

    python -m bench.attach_table experiments/reality/attached.toml \
        --runs experiments/reality/attached.csv --page docs/evidence/reality-attached.md

`make reality-attached` makes docs/evidence/reality-attached.md in this way. Each law at each point
runs on `--engine kernel`, where Linux's TCP meets the law in user space, and attached to a device
of a virtual machine, as in `bench.attach`. Both are in virtual time, so a busy host makes no
run void. A run is a line of the table `--runs`, and a run in the table is not made again;
`--only-page` makes nothing but the simulations, which take a minute.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import tomlkit

import forebay
from bench import attach
from forebay.campaign.study_points import Points
from forebay.comparison.compare import Agreement, Tolerance
from forebay.comparison.saved_runs import KeptRuns
from forebay.experiment.engines import KERNEL, PACKETS
from forebay.linux import attachments
from forebay.report.tables import markdown_table
from forebay.scenario.builder import typed
from tools import reality
from tools.reality import AXES, CELL, TOLERANCES, VALUES

#: The sides of the page, by names of engines.
ATTACHED = "attached"
ENGINES = (KERNEL, ATTACHED)
KEY = ("engine", *AXES)


@dataclass(frozen=True)
class Place:
    """A point of the study, with the designed parameters of its laws.

    Attributes
    ----------
    number : int
        Index of the point.
    tables : dict[str, Any]
        The tables of its scenario.
    """

    number: int
    tables: dict[str, Any]

    @cached_property
    def laws(self) -> list[str]:
        """The kinds of its laws."""
        return [law["kind"] for law in self.tables["law"]]

    def text(self, laws: Sequence[str]) -> str:
        """Return a scenario with only these laws."""
        chosen = [law for law in self.tables["law"] if law["kind"] in laws]
        return tomlkit.dumps({**self.tables, "law": chosen})

    @cached_property
    def axes(self) -> dict[str, Any]:
        """The values of `AXES` without the law, in base units."""
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
        """The transmission time of a packet in seconds."""
        (traffic,) = self.tables["traffic"]
        packet_bytes = forebay._native.quantity("packet", traffic["packet"], "size")
        return 8 * packet_bytes / float(self.axes["bottleneck.rate"])

    def as_attached(self) -> Place:
        """Return the place with the link that an attached law has.

        The shaper of `attach` releases its tokens at once after a pause, and the reverse path has
        no rate limit, as in a guest.
        """
        rate_bps = float(self.axes["bottleneck.rate"])
        burst_bytes = attachments.burst_bytes(rate_bps, round(self.packet_s * rate_bps / 8))
        link = {"burst": f"{burst_bytes}B", "rate_back": "1Tbit/s"}
        return Place(self.number, {**self.tables, "bottleneck": self.tables["bottleneck"] | link})

    def row(self, engine: str, law: str, **values: float) -> dict[str, Any]:
        """Return a row of the table of runs."""
        return {"engine": engine, "law": law, **self.axes, **values}


def places(path: Path) -> list[Place]:
    """Return the points of a study.

    Raises
    ------
    ScenarioError
        If the study is wrong.
    """
    points = Points(path)
    places_ = []
    for number in range(len(points)):
        tables = at(points.text, dict(zip(points.keys, points.sweep.row(number), strict=True)))
        for law, params in points.gains.of_point(number):
            del tables["law"][law]["gains"]
            tables["law"][law] |= {key: _typed(value) for key, value in params}
        places_.append(Place(number, tables))
    return places_


def at(study: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a study at one point of its sweep."""
    tables = tomllib.loads(study)
    del tables["sweep"]
    for key, value in row.items():
        table, *rest = key.split(".")
        if table == "traffic":
            tables["traffic"][int(rest[0])][rest[1]] = value
        elif table == "law":
            next(law for law in tables["law"] if law["kind"] == rest[0])[rest[1]] = value
        elif rest:
            tables[table][rest[0]] = value
        else:
            tables[table] = value
    return tables


def _typed(value: Any) -> Any:
    """Return a text as the number or boolean in it."""
    return typed(value) if isinstance(value, str) else value


def order(places_: Sequence[Place]) -> Iterator[tuple[Place, list[str]]]:
    """Yield the points with laws in the order of the runs.

    Half of the laws run at each of eight points first, so that every law meets every value of every
    axis early; then the other half, and the same for the other points.
    """
    for first in range(0, len(places_), 8):
        for whole in (False, True):
            for place in places_[first : first + 8]:
                rtt, second = divmod(place.number - first, 2)
                # This half is a function of the round trip that no column of the sweep repeats.
                half = [
                    law
                    for number, law in enumerate(place.laws)
                    if second == ((rtt == number % 4) ^ (number // 4 % 2))
                ]
                yield place, [law for law in place.laws if (law in half) != whole]


def in_user_space(place: Place, laws: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of runs on `--engine kernel`."""
    return of_engine(place, laws, KERNEL, 1)


def of_engine(place: Place, laws: Sequence[str], engine: str, seeds: int) -> list[dict[str, Any]]:
    """Return the rows of runs on an engine."""
    out = forebay.run(place.text(laws), engine=engine, seeds=seeds, threads=1)
    return [
        place.row(
            engine,
            row["law"],
            # The delay follows from the mean queue, as the clock of the kernel samples it.
            delay_mean_s=row["queue_mean_pkts"] * place.packet_s,
            **{name: row[name] for name in ("seed", *VALUES) if name != "delay_mean_s"},
        )
        for row in out.metrics.iter_rows(named=True)
    ]


def in_a_kernel(place: Place, laws: Sequence[str], out: Path) -> list[dict[str, Any]]:
    """Return the rows of runs in a virtual machine.

    If the machine was stopped, they are those that had finished.
    """
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
            delay_mean_s=run.delay_s,
            queue_std_pkts=run.deviation_s / place.packet_s,
            drop_rate=run.drops,
            mark_rate=run.signals - run.drops,
            utilisation=run.utilisation,
        )
        for law, runs in measured.items()
        for number, run in enumerate(runs, 1)
    ]


def kept(path: Path) -> KeptRuns:
    """Return what a file keeps of the runs."""
    return KeptRuns(path, {"engine": pl.String, **CELL}, VALUES)


def make(places: Sequence[Place], runs: KeptRuns, out: Path) -> None:
    """Make every run that is not kept."""
    for place, laws in order(places):
        for engine in ENGINES:
            stored = set(runs.read().select(KEY).rows())
            missing = [
                law
                for law in laws
                if tuple(place.row(engine, law)[key] for key in KEY) not in stored
            ]
            if missing and engine == KERNEL:
                runs.add(pl.DataFrame(in_user_space(place, missing)))
            elif missing:
                runs.add(pl.DataFrame(in_a_kernel(place, missing, out)))


#: The sides of the comparison, with their names on the page.
SIDES = {PACKETS.name: "simulated", KERNEL: "user space", ATTACHED: "attached"}
SEEDS = 20
CAUSES = Path(__file__).with_name("attach_causes.md")


def simulated(places: Sequence[Place], attached: pl.DataFrame) -> pl.DataFrame:
    """Simulate the cells that have been attached, with the tokens of the shaper before them."""
    cells = set(attached.select(*AXES).rows())
    rows: list[dict[str, Any]] = []
    for place in places:
        laws = [law for law in place.laws if _cell(place.row(ATTACHED, law)) in cells]
        if laws:
            rows += of_engine(place.as_attached(), laws, PACKETS.name, SEEDS)
    return pl.DataFrame(rows)


def _cell(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the cell of a row."""
    return tuple(row[key] for key in AXES)


def page(places_: Sequence[Place], kept_runs: pl.DataFrame) -> str:
    """Return the page in Markdown; the simulated side is run."""
    attached = kept_runs.filter(engine=ATTACHED).drop("engine")
    frames = {
        PACKETS.name: simulated(places_, attached),
        KERNEL: kept_runs.filter(engine=KERNEL).drop("engine"),
        ATTACHED: attached,
    }
    pairs = [
        (first, second, reality.verdicts(frames[first], frames[second]))
        for first, second in itertools.combinations(SIDES, 2)
    ]
    cells = sum(len(place.laws) for place in places_)
    heads = [*AXES.values(), *(rule.title for rule in TOLERANCES), "beyond"]
    use = attached["utilisation"].to_list()
    return f"""\
# Attached laws on many links

This page compares laws that `forebay attach` installs in a kernel with the same laws in user space under Linux's TCP, and with the simulator, on links of 10 to 200 ms.

A law on a link is run in three ways:

- *Simulated*: `--engine packets`, the mean of {SEEDS} seeds.
- *User space*: `--engine kernel`, Linux's TCP in a guest of User-mode Linux, whose packets the same law in Rust judges ([real-kernel.md](../howto/real-kernel.md)). For RED and Adaptive RED it is Linux's own qdisc, if that has these parameters.
- *Attached*: `forebay attach` on Debian's Linux in qemu, the law in fixed point before tbf ([kernel.md](../howto/kernel.md)). The simulated link has tbf's tokens, too (`burst`); the link in user space has none.

Flows start when the scenario says in all three (`bench/long_flows.c`).
In user space and attached, there is one run of each law on each link, in virtual time, so a busy host makes no run void; [attached.csv](../../experiments/reality/attached.csv) keeps these runs.
`make reality-attached` makes this page.

[attached.toml](../../experiments/reality/attached.toml) has {len(places_)} links with their loads, and {cells} cells with a law each, of which {len(attached)} have been attached so far.
Any two values of law, rate, sender, flows, round-trip time and ECN meet in the first 32 cells, and again in the next 32.
The mean delay is that of the mean queue over time, because a kernel's queue is sampled and its packets are not followed.
PI, PI-PD, PID and PD-RED have `gains = "auto"`.

A figure agrees between two of these ways if it differs by at most the first or the second limit, whichever is wider.
Limits in percent are shares of the value on the side that is named last.

{reality.limits()}
A figure that does not agree is a *miss*.
Measurements last 7 to 20 s, so chance moves every figure, and the standard deviation most.
A miss is *beyond chance* if the real run is also outside the 95 % interval of one further simulated run of the same length.
Between two single runs, in user space and attached, the effect of chance is not known, so the table does not count their misses beyond chance.

## What agrees

{_agreement(pairs)}
{sum(share >= 0.95 for share in use)} of {len(use)} attached runs use at least 95 % of the link{_rest(frames)}.

{CAUSES.read_text(encoding="utf-8")}
## Cells

Each cell has simulated · user space · attached; a miss beyond chance is bold.

{markdown_table(heads, _rows(frames, pairs[1][2]))}"""


def _rest(frames: dict[str, pl.DataFrame]) -> str:
    """Return a sentence on the links that are not full, and what the simulator says of them."""
    simulated_use = pl.col("utilisation").mean().alias("simulated")
    means = frames[PACKETS.name].group_by(list(AXES)).agg(simulated_use)
    short = (
        frames[ATTACHED]
        .join(means, on=list(AXES), maintain_order="left")
        .filter(pl.col("utilisation") < 0.95)
    )
    if not short.height:
        return ""
    laws = ", ".join(dict.fromkeys(short["law"].to_list()))
    below = short.filter(pl.col("simulated") < 0.95).height
    return f"; of the others ({laws}), {below} are below it when simulated, too"


def _agreement(pairs: Sequence[tuple[str, str, list[Agreement]]]) -> str:
    """Return the table of agreement."""
    rows = [
        [
            f"{SIDES[first]}, {SIDES[second]}",
            *(
                _share(figure for figure in figures if figure.tolerance is rule)
                for rule in TOLERANCES
            ),
            str(sum(map(beyond_chance, figures))) if first == PACKETS.name else "–",
        ]
        for first, second, figures in pairs
    ]
    return markdown_table(["", *(rule.title for rule in TOLERANCES), "misses beyond chance"], rows)


def beyond_chance(figure: Agreement) -> bool:
    """Return True for a miss that is outside what one more simulated run may be, too."""
    return not figure.agrees and abs(figure.difference) > figure.half_width


def _share(figures: Iterable[Agreement]) -> str:
    """Return how many figures agree."""
    agree = [figure.agrees for figure in figures]
    return f"{sum(agree)} of {len(agree)}"


def _rows(frames: dict[str, pl.DataFrame], figures: Sequence[Agreement]) -> Iterator[list[str]]:
    """Yield a row for each attached run, with what the simulator did not say."""
    cells = {
        engine: frame.partition_by(list(AXES), as_dict=True) for engine, frame in frames.items()
    }
    of_cell = {
        cell: list(figures_of_cell)
        for cell, figures_of_cell in itertools.groupby(
            figures, lambda item: tuple(item.cell.values())
        )
    }
    for cell in frames[ATTACHED].select(*AXES).unique(maintain_order=True).iter_rows():
        beyond = []
        for figure in of_cell[cell]:
            name = figure.tolerance.title.partition(" (")[0]
            if not figure.agrees:
                beyond.append(f"**{name}**" if beyond_chance(figure) else name)
        yield [
            *reality.names(dict(zip(AXES, cell, strict=True))),
            *(
                " · ".join(_mean(rule, cells[engine].get(cell)) for engine in SIDES)
                for rule in TOLERANCES
            ),
            ", ".join(beyond),
        ]


def _mean(rule: Tolerance, runs: pl.DataFrame | None) -> str:
    """Return the mean of a figure."""
    if runs is None:
        return "–"
    values = rule.values(runs)
    return rule.text(sum(values) / len(values))


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--only-page", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results", "attached"))
    arguments = parser.parse_args()
    points, runs = places(arguments.study), kept(arguments.runs)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if not arguments.only_page:
        make(points, runs, arguments.out)
    if arguments.page:
        arguments.page.write_text(page(points, runs.read()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
