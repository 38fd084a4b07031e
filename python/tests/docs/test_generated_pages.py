"""The generated pages: every kind of traffic by example, every column of every table."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import polars as pl
import pytest
from conftest import Cli, one_bottleneck

import forebay
from forebay import _native
from forebay._base.metrics import CLASS_METRICS, METRICS, TRAFFIC_METRICS
from tools import docs
from tools.docs import examples, files

#: A link that every example loads.
LINK = one_bottleneck(("1s", "5s"), "10Mbit/s", "200p")
LAW = '\n[[law]]\nkind = "pi"\n'
CSV = "time_s,size_bytes,flow\n" + "".join(f"{i / 100},1000,one\n" for i in range(300))

#: What a reader takes an example of a kind to show, by a metric that it must have.
SHOWN = {
    "web": "flow_completion_p50_s",
    "pages": "flow_completion_p50_s",
    "voice": "voice_delay_s",
    "video": "video_rate_bps",
}


def kinds() -> list[str]:
    sections = {key["section"] for key in _native.keys()}  # noqa: SIM118 - a function
    return sorted(m[1] for it in sections if (m := re.fullmatch(r"traffic \((.+)\)", it)))


def test_every_kind_of_traffic_has_an_example() -> None:
    assert sorted(examples.TRAFFIC) == kinds()
    text = docs.pages()["reference/scenario.md"]
    assert all(example in text for example in examples.TRAFFIC.values())


@pytest.mark.parametrize("kind", sorted(examples.TRAFFIC))
def test_the_example_of_a_kind_runs(kind: str, tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", examples.TRAFFIC[kind], re.DOTALL)
    (traffic,) = tomllib.loads(block)["traffic"]
    assert traffic["kind"] == kind
    if kind == "arrivals":
        # Addresses are those of a capture, which the reader has.
        block = re.sub(r"destination.*\n", "", block).replace("my.pcapng", "my.csv")
        (tmp_path / "my.csv").write_text(CSV)
    (tmp_path / "my.conf").touch()
    path = tmp_path / "example.toml"
    path.write_text(LINK + block + LAW)
    if kind in ("external", "program"):
        with pytest.raises(forebay.ScenarioError, match=rf"kind: \"{kind}\" .*; expected a kind "):
            forebay.run(path, seeds=1)
        if kind == "program":
            return
        network = forebay.Network(path)
        network.send(2, "source", b"one")
        came: list[object] = []
        network.on_delivered = network.on_lost = came.append
        network.run()
        assert [getattr(it, "payload", None) for it in came] == [b"one"]
        return
    (run,) = forebay.run(path, seeds=1).runs
    assert run.metrics["forwarded_packets"] > 100
    if kind in SHOWN:
        assert run.metrics[SHOWN[kind]] > 0


def test_a_key_is_on_the_page_of_scenarios_once() -> None:
    text = docs.pages()["reference/scenario.md"].partition("## Senders")[0]
    rows = re.findall(r"^\| `.*$", text, re.MULTILINE)
    # Of traffic without TCP, and of arrivals.
    assert {row.split("`")[1] for row in rows if rows.count(row) > 1} <= {"ecn", "label"}
    # Of flows, and of `[kernel]`.
    assert sum(row.startswith("| `tcp` |") for row in rows) == 2
    # None is lost: each declared name is in some row.
    declared = _native.keys()
    assert {key["name"] for key in declared} <= {row.split("`")[1] for row in rows}


@pytest.mark.parametrize("page", ["reference/scenario.md", "reference/metrics.md"])
def test_links_within_a_page_lead_to_its_headings(page: str) -> None:
    text = docs.pages()[page]
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", it.lower()).replace(" ", "-") for it in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors


def of(name: str) -> list[str]:
    (file,) = (file for file in files.FILES if file.name == name)
    return [column for column, _, _ in [*files.KEYS, *file.columns]]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """Of a result that has them all: a sweep, classes, traffic, transfers, few flows and many."""
    folder = tmp_path_factory.mktemp("all")
    scenario = folder / "all.toml"
    web = '[[traffic]]\nkind = "web"\nflows = 5\nrtt = "40ms"\n\n'
    ftp = '[[traffic]]\nkind = "ftp"\nflows = 5\nrtt = "40ms"\n\n'
    sweep = '\n[sweep]\n"traffic.ftp.flows" = [5, 40]\n'
    law = '[[law]]\nkind = "dualpi2"\n\n[[law]]\nkind = "droptail"\n'
    scenario.write_text(LINK + web + ftp + law + sweep)
    forebay.run(scenario, seeds=1).report(folder / "out")
    found = {path.stem: pl.read_parquet(path) for path in (folder / "out").glob("*.parquet")}
    assert sorted(found) == sorted(file.name for file in files.FILES)
    return found


@pytest.mark.parametrize("name", [file.name for file in files.FILES])
def test_every_column_is_on_the_page(name: str, tables: dict[str, pl.DataFrame]) -> None:
    expected = set(of(name))
    if name == "metrics":
        expected |= {"traffic.ftp.flows", *METRICS}
    if name == "classes":
        expected |= set(CLASS_METRICS)
    if name == "traffic":
        expected |= set(TRAFFIC_METRICS)
    if name == "samples":
        expected |= {"p", "p_root", "p_coupled", "low_packets"}
    assert set(tables[name].columns) == expected
    page = docs.pages()["reference/metrics.md"]
    section = page[page.index(f"\n### `{name}.parquet`\n") :]
    assert all(f"\n| `{column}` |" in section for column in of(name)[len(files.KEYS) :])


def test_the_page_lists_every_column_that_laws_report(tmp_path: Path) -> None:
    ftp = '[[traffic]]\nkind = "ftp"\nflows = 2\nrtt = "40ms"\n'
    path = tmp_path / "laws.toml"
    path.write_text(LINK.replace("200p", "800p") + ftp + LAW)
    laws = [law["name"] for law in _native.laws()]
    result = forebay.run(
        path,
        laws=laws,
        seeds=1,
        overrides=["duration=50ms", 'measure=["10ms", "50ms"]', "windows=true"],
    )
    seen = set(result.samples.columns) - set(of("samples"))
    assert {name for name, _, _ in files.REPORTED} == seen


def test_columns_of_other_commands(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        *("map", "pi", "--rate", "10Mbit/s", "--rtt", "20..200ms", "--flows", "2..20"),
        *("--buffer", "200p", "--set", "target=50p", "--points", "4", "--simulate", "0"),
        *("--out", str(tmp_path / "map")),
    )
    assert done.returncode == 0, done.stderr
    columns = pl.read_parquet(tmp_path / "map" / "map.parquet").columns
    assert columns == [name for name, _, _ in files.MAP.columns]
