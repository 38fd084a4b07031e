"""The store of runs: what was run is found by what it depends on, comes whole, and counts once."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from conftest import SCENARIO, command, run_here

from forebay import ScenarioError, _native
from forebay.campaign import runner
from forebay.experiment import execution, experiment
from forebay.experiment import run_rows as rows
from forebay.experiment import store as contents
from forebay.experiment import store as stores
from forebay.experiment.result import Result
from forebay.experiment.store import LAYOUT, MARK, Store
from forebay.report import result_files

ROOT = Path(__file__).parents[3]
#: Four runs of some milliseconds.
SHORT = ["duration=3s", 'measure=["1s", "3s"]']


def run(
    store: Store | None, text: str = SCENARIO, seeds: int = 1, *, samples: bool = True
) -> Result:
    read = experiment.read(text, overrides=SHORT, seeds=seeds)
    return Result(read, execution.execute(read, 2, store=store, samples=samples))


@pytest.fixture
def at(tmp_path: Path) -> Path:
    return tmp_path / "store"


def cli(cwd: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """As a user has it, with the store on."""
    with mock.patch.dict(os.environ, environment):
        if "FOREBAY_STORE" not in environment:
            del os.environ["FOREBAY_STORE"]
        return run_here(command(*arguments), cwd)


def configs(text: str) -> list[str | None]:
    return rows.configs(experiment.read(text).plan, 0)


@pytest.mark.parametrize(
    ("was", "is_"),
    [
        ('"Two laws, two loads"', '"another title"'),
        ('delay  = "5ms"', 'delay = "0.005s" # the same'),
        ('rate   = "10Mbit/s"\ndelay  = "5ms"', 'delay = "5ms"\nrate = "10000kbit/s"'),
        ('kind   = "pi"', 'label = "mine"\nkind = "pi"'),
        ("seeds    = 2", "seeds = 9"),
        ("[5, 20]", "[5, 6, 7]"),
    ],
)
def test_another_spelling_is_the_same_run(was: str, is_: str) -> None:
    assert was in SCENARIO
    assert configs(SCENARIO.replace(was, is_)) == configs(SCENARIO)


@pytest.mark.parametrize(
    ("was", "is_", "laws"),
    [
        ('delay  = "5ms"', 'delay = "5.001ms"', 2),
        ('target = "40p"', 'target = "41p"', 1),
        ('kind   = "droptail"', 'kind = "droptail"\nqueue = "fq"', 1),
        ("[5, 20]", "[6, 20]", 2),
        ('start  = { uniform = ["0s", "1s"] }', "", 2),
    ],
)
def test_a_changed_value_is_another_run(was: str, is_: str, laws: int) -> None:
    pairs = zip(configs(SCENARIO.replace(was, is_)), configs(SCENARIO), strict=True)
    assert sum(a != b for a, b in pairs) == laws


def test_other_contents_of_a_file_are_another_run(tmp_path: Path) -> None:
    """The name of a trace says nothing about what is in it."""
    path = tmp_path / "traced.toml"
    path.write_text(SCENARIO.replace('delay  = "5ms"', 'delay = "5ms"\nrate_trace = "link.up"'))
    found = []
    for times in ("1\n2\n9\n", "1\n2\n9\n", "1\n3\n9\n"):
        (tmp_path / "link.up").write_text(times)
        found.append(rows.configs(experiment.read(path).plan, 0))
    assert found[0] == found[1] != found[2]


def test_stored_runs_are_the_same_to_the_bit(at: Path) -> None:
    for name in ("4-5-l4s", "9-2-two-ways", "7-1-web"):
        read = experiment.read(
            ROOT / f"experiments/rfc7928/{name}.toml",
            seeds=1,
            overrides=["duration=4s", 'measure=["1s", "4s"]'],
        )
        fresh = Result(read, execution.execute(read, 2))
        made, stored = (
            Result(read, execution.execute(read, 2, store=stores.at(at))) for _ in range(2)
        )
        assert (made.from_store, stored.from_store) == (0, len(fresh.runs))
        assert result_files.numbers(stored) == result_files.numbers(fresh)
        for table in result_files.TABLES + result_files.DETAILS:
            kept, new = getattr(stored, table), getattr(fresh, table)
            assert kept.schema == new.schema, table
            assert kept.equals(new), table


def test_only_missing_runs_are_made(at: Path) -> None:
    assert run(stores.at(at)).from_store == 0
    assert run(stores.at(at), seeds=3).from_store == 4
    more = run(stores.at(at), SCENARIO.replace("[5, 20]", "[5, 6, 20]"))
    assert (more.from_store, len(more.runs)) == (4, 6)
    # Result without samples do for tables alone, and not where samples are asked for.
    assert run(stores.at(at), seeds=4, samples=False).from_store == 12
    assert run(stores.at(at), seeds=4).from_store == 12
    assert run(stores.at(at), seeds=4).from_store == 16


def test_readers_of_parquet_need_nothing_else(at: Path) -> None:
    made = run(stores.at(at))
    table = pl.read_parquet(at / "runs/*/*.parquet").filter(pl.col("law") == "pi")
    want = made.metrics.filter(pl.col("law") == "pi")["goodput_bps"]
    assert sorted(table["goodput_bps"]) == sorted(want)
    samples = pl.concat(
        pl.read_parquet(file).select(pl.col("samples.queue_pkts").explode())
        for file in at.glob("samples/*/*/*.parquet")
    )
    assert samples.height == made.samples.height


def test_a_prototype_is_not_stored(at: Path, prototypes: Path) -> None:
    from forebay.scenario.python_laws import load

    for _ in range(2):
        read = experiment.read(
            SCENARIO, laws=["pi", load(f"{prototypes}:PythonPi")], overrides=SHORT
        )
        found = Result(read, execution.execute(read, 2, store=stores.at(at)))
    # Only pi is there the second time, at two points with two seeds.
    assert (found.from_store, len(found.runs)) == (4, 8)


def test_rows_that_stand_twice_count_once(at: Path) -> None:
    store = stores.at(at)
    run(store, seeds=2)
    whole = store.scan().sort(rows.KEY).collect()
    for seed in (1, 2):
        # As another process that has made them in the same moment.
        store.add(whole.filter(pl.col("seed") == seed))
    assert len(store.segments()) >= 3
    assert store.scan().sort(rows.KEY).collect().equals(whole)
    store.put_together(limit=1)
    assert len(store.segments()) == 1
    assert pl.read_parquet(at / next(iter(store.segments()))).equals(whole)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0, 1)])
def test_a_failed_run_that_was_repeated_counts_as_its_repetition(
    at: Path, order: tuple[int, ...]
) -> None:
    store = stores.at(at / "made")
    run(store, seeds=1)
    sound = store.scan().sort(rows.KEY).collect()
    failed = sound.with_columns(fault=pl.lit("it took too long"))
    other = stores.at(at / "repeated")
    for i in order:
        other.add((failed, sound)[i])
    assert other.scan().sort(rows.KEY).collect().equals(sound)
    assert len(other.rows_of(sound["config"])) == sound.height
    other.put_together(limit=1)
    assert pl.read_parquet(at / "repeated" / next(iter(other.segments()))).equals(sound)


def test_a_run_that_failed_twice_failed_once(at: Path) -> None:
    store = stores.at(at / "made")
    run(store, seeds=1)
    failed = store.scan().sort(rows.KEY).collect().with_columns(fault=pl.lit("it took too long"))
    other = stores.at(at / "failed")
    other.add(failed)
    other.add(failed)
    assert other.scan().sort(rows.KEY).collect().equals(failed)


def _fill(at: Path, seeds: range) -> None:
    store = stores.at(at)
    for seed in seeds:
        one = experiment.read(SCENARIO, overrides=SHORT, seeds=seed)
        execution.execute(one, 1, store=store, samples=False)
        store.put_together(limit=4)


def test_two_processes_write_into_one_store(at: Path) -> None:
    """Each makes what the other does not have yet, and both put segments together meanwhile."""
    # A fork would take over locks of threads that it does not have.
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(_fill, at, range(1, 7)) for _ in range(2)]:
            done.result()
    whole = stores.at(at).scan().sort(rows.KEY).collect()
    assert whole.height == 4 * 6
    assert whole.unique(rows.KEY).height == whole.height
    assert not list(at.rglob(".new-*"))


def test_a_flipped_bit_is_noticed_set_aside_and_made_again(
    at: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = result_files.numbers(run(stores.at(at)))
    rng = random.Random(4)
    for kind in ("runs", "samples"):
        for _ in range(20):
            file = rng.choice(list((at / kind).rglob("*.parquet")))
            damaged = bytearray(file.read_bytes())
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            file.write_bytes(damaged)
            made = run(stores.at(at))
            assert made.from_store < 4
            assert result_files.numbers(made) == whole
            (line,) = capfd.readouterr().err.splitlines()
            assert f"{file.relative_to(at)} is damaged" in line
            assert run(stores.at(at)).from_store == 4
    assert len(list((at / "damaged").iterdir())) > 1
    contents.prune(stores.at(at))
    assert not list((at / "damaged").iterdir())


@pytest.mark.parametrize("length", [0, 3, 500])
def test_a_truncated_segment_stops_no_command(tmp_path: Path, length: int) -> None:
    (tmp_path / "two.toml").write_text(SCENARIO)
    words = ["run", "two.toml", "--seeds", 1, *(word for key in SHORT for word in ("--set", key))]
    assert cli(tmp_path, *words).returncode == 0
    (segment,) = (tmp_path / "results/.store/runs").rglob("*.parquet")
    segment.write_bytes(segment.read_bytes()[:length])
    listed = cli(tmp_path, "store", "ls")
    assert (listed.returncode, listed.stderr.count("is damaged")) == (0, 1)
    assert cli(tmp_path, "store", "show").stderr == ""
    assert "4 runs" in cli(tmp_path, *words, "--force").stdout


def test_another_version_of_the_numbers_finds_nothing(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(stores.at(at))
    monkeypatch.setattr(rows, "RESULTS_VERSION", _native.RESULTS_VERSION + 1)
    store = stores.at(at)
    assert run(store).from_store == 0
    present, old = contents.contents(store)
    assert (present.runs, present.sampled, old.runs, old.sampled) == (4, 4, 4, 4)
    assert contents.prune(store) > 0
    assert len(contents.contents(store)) == 1
    assert run(store).from_store == 4


def test_the_same_command_is_done_at_once(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(SCENARIO)
    words = ["run", "two.toml", *(word for one in SHORT for word in ("--set", one))]
    first = cli(tmp_path, *words)
    assert first.returncode == 0, first.stderr
    out = tmp_path / "results/two"
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
    again = cli(tmp_path, *words)
    assert "8 of 8 runs came from the store" in again.stdout
    # Nothing was written again, the figures neither.
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*")} == before
    shutil.rmtree(out)
    assert cli(tmp_path, *words).returncode == 0
    page = (out / "report.html").read_text()
    # To the last bit what a command without a store writes.
    assert cli(tmp_path, *words, "--no-store", "--out", "fresh").returncode == 0
    assert (tmp_path / "fresh/report.html").read_text() == page
    listed = cli(tmp_path, "store", "ls")
    assert "(present)" in listed.stdout
    assert cli(tmp_path, "store", "show").stdout.count("droptail") == 1
    assert cli(tmp_path, "store", "export", "all.csv").stdout == "8 rows: all.csv\n"
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 9
    assert "freed" in cli(tmp_path, "store", "prune", "--samples").stdout


def test_without_a_store_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(SCENARIO)
    words = ["run", "two.toml", "--seeds", 1, "--no-report"]
    assert cli(tmp_path, *words, "--no-store").returncode == 0
    assert cli(tmp_path, *words, "--json").returncode == 0
    assert cli(tmp_path, *words, FOREBAY_STORE="off").returncode == 0
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["two"]
    assert cli(tmp_path, *words, FOREBAY_STORE="there").returncode == 0
    assert (tmp_path / "there" / MARK).exists()


def refused(tmp_path: Path, store: object) -> str:
    (tmp_path / "two.toml").write_text(SCENARIO)
    done = cli(tmp_path, "run", "two.toml", "--seeds", 1, "--no-report", "--store", store)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()
    return done.stderr


def test_a_store_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/file").write_text("")
    assert f"it has no {MARK}; expected a store" in refused(tmp_path, "plain")
    assert "it is a file; expected a folder" in refused(tmp_path, "plain/file")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / MARK).write_text(json.dumps({"store": LAYOUT + 1}))
    assert f"with layout {LAYOUT + 1}; expected a store of layout {LAYOUT}" in refused(
        tmp_path, "old"
    )
    (tmp_path / "old" / MARK).write_text("{")
    assert "cannot be read" in refused(tmp_path, "old")
    assert "--store" in refused(tmp_path, "")
    assert "/proc/store" in refused(tmp_path, "/proc/store")
    missing = cli(tmp_path, "store", "ls", "--store", "nowhere")
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[list[str]]:
    """What runs a command where `small` is a disk of 200 kB."""
    (tmp_path / "small").mkdir()
    mount = f"mount -t tmpfs -o size=200k none {tmp_path}/small"
    words = ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    yield words


def test_a_full_disk_is_one_line_and_the_store_stays_sound(
    tmp_path: Path, small_disk: list[str]
) -> None:
    (tmp_path / "two.toml").write_text(SCENARIO)
    run_ = command("run", "two.toml", "--seeds", 50, "--store", "small/store", "--no-report")
    look = command("store", "ls", "--store", "small/store")
    fill = [sys.executable, "-c", "open('small/fill', 'wb').write(bytes(100_000))"]
    script = " ; ".join(
        map(shlex.join, ([str(it) for it in words] for words in (fill, run_, look)))
    )
    done = subprocess.run(
        [*small_disk, "sh", "-c", f"{script} ; ls -A small/store/runs/*"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "small/store: the disk is full (No space left on device)" in done.stderr
    assert "Traceback" not in done.stderr
    # What was written before is there, and nothing that is not whole.
    assert "(present)" in done.stdout
    assert ".new-" not in done.stdout
    assert not (tmp_path / "results").exists()


def test_an_address_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ScenarioError, match="pip install fsspec"):
        stores.at("memory://runs")


def test_an_address_holds_a_store() -> None:
    pytest.importorskip("fsspec")
    made = run(stores.at("memory://runs/mine"))
    again = run(stores.at("memory://runs/mine"))
    assert again.from_store == 4
    assert result_files.numbers(again) == result_files.numbers(made)
    store = stores.at("memory://runs/mine")
    run(store, seeds=2)
    store.put_together(limit=1)
    assert len(store.segments()) == 1
    assert run(stores.at("memory://runs/mine"), seeds=2).from_store == 8


def test_an_error_of_a_driver_becomes_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has errors of its own, as for credentials that are not there."""
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("Unable to locate credentials\nand more")

    monkeypatch.setattr(memory, "cat_file", refuse)
    with pytest.raises(ScenarioError, match="cannot be read: Unable to locate credentials; "):
        stores.at("memory://refused")
    monkeypatch.undo()
    store = stores.at("memory://refused")
    monkeypatch.setattr(memory, "pipe_file", refuse)
    with pytest.raises(ScenarioError, match="unable to locate credentials; expected a folder"):
        store.check_writable()


def test_a_reader_of_a_place_without_locks_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has put files together since they were listed."""
    pytest.importorskip("fsspec")
    at = "memory://runs/busy"
    run(stores.at(at), seeds=1)
    run(stores.at(at), seeds=2)
    store = stores.at(at)
    listed, times = store.segments(), []

    def stale() -> dict[str, int]:
        times.append(1)
        if len(times) == 1:
            stores.at(at).put_together(limit=1)
            return listed
        return Store.segments(store)

    monkeypatch.setattr(store, "segments", stale)
    there = runner._stored_runs(store)
    assert len(times) == 2
    assert there.height == 8
    assert store.rows_of(iter(there["config"])).height == 8


def _row(seed: int) -> pl.DataFrame:
    return rows.table([{"config": "one", "seed": seed, "link": 0, "law": "pi"}])


def _write(at: Path, first: int, count: int) -> None:
    """Adds rows, puts them together each time, and tidies up meanwhile."""
    store = stores.at(at)
    for seed in range(first, first + count):
        store.add(_row(seed))
        store.put_together(limit=1)
        if seed % 10 == 0:
            contents.prune(store, failed=True)


def test_a_reader_misses_no_row_while_others_write(at: Path) -> None:
    """Files go all the time; what a reader has seen once, it sees from then on."""
    count, store = 60, stores.at(at)
    store.add(_row(0))
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        busy = [pool.submit(_write, at, first, count) for first in (1, 1001)]
        seen, reads = {0}, 0
        while not all(one.done() for one in busy):
            found = store.rows_of(["one"], ["config", "seed"])["seed"].to_list()
            assert len(found) == len(set(found))
            assert seen <= set(found)
            seen, reads = set(found), reads + 1
        for one in busy:
            one.result()
    assert reads > 10
    assert len(store.rows_of(["one"])) == 1 + 2 * count
    store.put_together(limit=1)
    assert len(store.segments()) == 1
