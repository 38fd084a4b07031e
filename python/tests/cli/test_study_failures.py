"""However a study ends: a line, a status, no process, and the same command goes on."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from conftest import command, started
from studies import GRID, SMALL, environment, run

from forebay._base import progress
from forebay._base.progress import Progress
from forebay.campaign import cluster, runner
from forebay.campaign.cluster import FIRST_RUNS
from forebay.campaign.study_points import Points
from forebay.cli import study
from forebay.experiment import store as stores

#: Hundreds of runs of some milliseconds; and thousands of some 20 ms, which no test waits for.
MANY = SMALL.replace("seeds    = 2", "seeds = 40") + GRID
LONG = SMALL.replace("seeds    = 2", "seeds = 400").replace('"2s"', '"90s"') + GRID
GOES_ON = "runs are in the store; the same command continues"


def test_a_full_disk_loses_nothing_that_was_stored(tmp_path: Path) -> None:
    """It ends with a line; with room again the same command goes on, to the same frame."""
    if shutil.which("unshare") is None:
        pytest.skip("no mount namespaces here")
    (tmp_path / "s.toml").write_text(MANY)
    (tmp_path / "small").mkdir()
    words = ("study", "s.toml", "--no-report", "--store", "small/store", "--out", "out")
    study = shlex.join(command(*words))
    ls = shlex.join(command("store", "ls", "--store", "small/store"))
    script = (
        "mount -t tmpfs -o size=60k none small || exit 77\n"
        f"{study} || echo status $?\n{ls}\n"
        "mount -o remount,size=9m small\n"
        f"{study} || echo status $?\ncp -r small/store kept\n"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no mount namespaces here")
    assert "small/store: No space left on device: " in done.stderr, done.stderr
    assert GOES_ON in done.stderr
    assert done.stdout.count("status 1\n") == done.stdout.count("status") == 1
    assert "Traceback" not in done.stderr
    assert "(present)" in done.stdout
    whole = run(tmp_path, "--no-report", "--store", "whole", "--out", "whole-out", text=MANY)
    assert whole.returncode == 0
    frames = [pl.read_parquet(tmp_path / at / "frame.parquet") for at in ("out", "whole-out")]
    assert frames[0].equals(frames[1])
    table = stores.at(tmp_path / "kept").scan().collect()
    assert table.height == stores.at(tmp_path / "whole").scan().collect().height


@pytest.mark.parametrize(("number", "after"), [("INT", "start"), ("HUP", "runs")])
def test_a_signal_to_all_processes_of_a_cluster_is_one_line(
    tmp_path: Path, number: str, after: str
) -> None:
    """As a terminal sends it: to the workers, too, which say nothing and do not stay behind."""
    pytest.importorskip("distributed")
    (tmp_path / "s.toml").write_text(LONG)
    words = ("study", "s.toml", "--on", "dask", "--threads", 1, "--store", "store")
    process = started(tmp_path, *words, start_new_session=True, env=environment())
    for _ in range(600):
        begun = len(_session(process.pid)) > 1
        if begun if after == "start" else (tmp_path / "store/runs").is_dir() and _stored(tmp_path):
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.Signals[f"SIG{number}"])
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.Signals[f"SIG{number}"]
    lines = [line for line in said.splitlines() if not re.match(r"\d+ of [\d,]+ runs, ", line)]
    assert len(lines) == 1, said
    assert lines[0].startswith("interrupted")
    for _ in range(50):
        if not _session(process.pid):
            break
        time.sleep(0.1)
    assert _session(process.pid) == []
    if after == "runs":
        assert GOES_ON in lines[0]


def _stored(at: Path) -> int:
    return stores.at(at / "store").scan().collect().height


def _session(leader: int) -> list[str]:
    """Processes of a session that have not ended."""
    found = subprocess.run(
        ["ps", "-eo", "sid=,stat=,pid="], capture_output=True, text=True, check=True
    )
    lines = (line.split() for line in found.stdout.splitlines())
    return [pid for sid, stat, pid in lines if sid == str(leader) and not stat.startswith("Z")]


def test_a_lost_scheduler_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    script = (
        "import time\n"
        "from distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    at = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)\n"
        "    print(at.scheduler_address, flush=True)\n"
        "    time.sleep(600)\n"
    )
    (tmp_path / "go.py").write_text(script)
    cluster = subprocess.Popen(
        [sys.executable, "go.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert cluster.stdout is not None
    address = cluster.stdout.readline().strip()
    (tmp_path / "s.toml").write_text(LONG)
    words = ("study", "s.toml", "--on", address, "--store", "store")
    study = started(tmp_path, *words, env=environment())
    for _ in range(600):
        if (tmp_path / "store/runs").is_dir() and _stored(tmp_path):
            break
        time.sleep(0.1)
    cluster.kill()
    cluster.wait()
    _, said = study.communicate(timeout=90)
    assert study.returncode == 1, said
    lines = [line for line in said.splitlines() if not re.match(r"\d+ of [\d,]+ runs, ", line)]
    assert len(lines) == 1, said
    assert lines[0].startswith(f"the scheduler at {address} is gone: ")
    assert GOES_ON in lines[0]


def test_an_address_that_does_not_answer_is_not_a_scheduler() -> None:
    pytest.importorskip("distributed")
    import socket

    from forebay import ScenarioError
    from forebay.campaign import cluster

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cluster, "ANSWER_S", 0.5)
            with (
                pytest.raises(ScenarioError, match="no Dask scheduler answers"),
                cluster.cluster(address, None),
            ):
                pass


def test_without_a_store_nothing_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        done = run(tmp_path, "--no-store", "--no-report")
        assert done.returncode == 0, done.stderr
        assert "48 of 48 runs: 48 new, 0 from the store" in done.stdout
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["study-s"]
    frame = pl.read_parquet(tmp_path / "results/study-s/frame.parquet")
    assert run(tmp_path, "--no-report").returncode == 0
    assert frame.equals(pl.read_parquet(tmp_path / "results/study-s/frame.parquet"))


def test_the_result_of_another_study_is_not_replaced(tmp_path: Path) -> None:
    assert run(tmp_path, "--no-report").returncode == 0
    # The same study, more of it.
    assert run(tmp_path, "--no-report", "--add-seeds", 1).returncode == 0
    other = run(tmp_path, "--no-report", "--set", "duration=3s")
    assert (other.returncode, other.stderr.count("\n")) == (2, 1)
    assert "holds the result of" in other.stderr
    assert run(tmp_path, "--no-report", "--set", "duration=3s", "--force").returncode == 0


def test_batches_under_way_on_a_cluster_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a study is stopped, batches under way are waited for, and no others are begun."""
    pytest.importorskip("distributed")
    # However busy this machine is.
    monkeypatch.setattr(cluster, "BATCH_S", 60.0)
    # The first batch lasts longer than the moment until the study is stopped.
    points = Points(LONG.replace("90s", "9000s"))
    tasks = runner.Tasks(points, stores.at(tmp_path / "store"), 2, runner.StudyProgress())
    looks = []

    def stop() -> bool:
        looks.append(1)
        return len(looks) > 1

    with cluster.cluster("dask", 1) as engine:
        ended = list(engine.make(tasks, stop))
        # The client forgets in a thread of its own.
        end_s = time.monotonic() + 60
        while engine.client.futures and time.monotonic() < end_s:
            time.sleep(0.01)
        assert not engine.client.futures
    rows = [row for done in ended for row in done.rows]
    assert [row["fault"] for row in rows if "fault" in row] == []
    assert len(rows) == FIRST_RUNS


def test_progress_mentions_packets_only_if_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that counts none while it runs is not said to have made 0 million of them."""
    seen: list[Progress] = []

    @contextmanager
    def bar() -> Iterator[Callable[[Progress], None]]:
        yield seen.append

    monkeypatch.setattr(progress, "bar", bar)
    now = Progress(0.5, 1, 2, 1.0)
    with study.progress_bar() as tell:
        tell(now, runner.StudyProgress(total=2, failed=1))
        tell(now, runner.StudyProgress(total=2, packets=3e6))
    assert [it.more for it in seen] == [", 1 failed", ", 3 million packets"]
