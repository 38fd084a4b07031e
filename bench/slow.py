"""Run a study on workers behind a slow network, and measure whether they are kept busy.

    python bench/slow.py FILE [--workers 10] [--delay 50ms] [--rate 100Mbit/s]

The driver and the scheduler are at one end of a link of `forebay link`, and the workers, each with
one thread, at the other; `--delay` is one way, and 20..100ms gives each worker its own. A worker is
busy while it has a batch in hand. Workers that share the cores of this machine take longer for a
batch than with a core each, and so seem busier; the last number counts a batch by its processor
time alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from forebay._base.metrics import COST
from forebay.experiment import store as stores
from forebay.linux import run as run_link
from forebay.linux import settings

BIN = Path(sys.executable).parent
PORT = 8786


def outside(file: Path, workers: int, delay: str, rate: str) -> None:
    """Start the link with everything at its ends."""
    with tempfile.TemporaryDirectory() as folder:
        worker = (
            # A real network and scheduler have cores of their own, so workers run at low priority.
            f"nice {BIN}/dask worker tcp://$FOREBAY_CLIENT:{PORT} --nthreads 1 --no-nanny "
            f"--no-dashboard --local-directory {folder}/worker >/dev/null 2>&1 &"
        )
        run_link(
            settings(rate, delay, "1000p"),
            [sys.executable, __file__, str(file), f"--workers={workers}", f"--inside={folder}"],
            server=f"{worker * workers} wait",
        )


def inside(file: Path, workers: int, folder: Path) -> None:
    """Run scheduler and study in the namespace of the client."""
    from distributed import Client

    address = f"tcp://{os.environ['FOREBAY_CLIENT']}:{PORT}"
    scheduler = subprocess.Popen(
        [BIN / "dask", "scheduler", "--host", address, "--no-dashboard"],
        stderr=subprocess.DEVNULL,
        cwd=folder,
    )
    try:
        client = _connected(Client, address)
        client.wait_for_workers(workers, timeout=60)
        client.get_task_stream()
        start_s = time.time()
        study = [BIN / "forebay", "study", file, f"--on={address}", "--no-report"]
        subprocess.run([*study, f"--store={folder}/store", f"--out={folder}/out"], check=True)
        tasks = client.get_task_stream(start=start_s)
        client.close()
    finally:
        scheduler.terminate()
        scheduler.wait()
    spans: dict[str, list[tuple[float, float]]] = {}
    for task in tasks:
        for part in task["startstops"]:
            if part["action"] == "compute":
                spans.setdefault(task["worker"], []).append((part["start"], part["stop"]))
    _say(spans, stores.at(folder / "store").scan().select(pl.col(COST).sum()).collect().item())


def _connected(client: type, address: str) -> object:
    """Return a client of the scheduler once it has started."""
    for _ in range(100):
        try:
            return client(address, timeout="5s")
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the scheduler does not start")


def _say(spans: dict[str, list[tuple[float, float]]], cpu_s: float) -> None:
    """Print how busy the workers were."""
    first = min(start for spans_of_worker in spans.values() for start, _ in spans_of_worker)
    last = max(stop for spans_of_worker in spans.values() for _, stop in spans_of_worker)
    busy = [_length(spans_of_worker) / (last - first) for spans_of_worker in spans.values()]
    idle_s = sum(1 - share for share in busy) * (last - first)
    print(
        f"{len(spans)} workers, {sum(map(len, spans.values()))} batches in {last - first:.1f} s: "
        f"busy {100 * sum(busy) / len(busy):.1f} %, the least of them {100 * min(busy):.1f} %; by "
        f"processor time {100 * cpu_s / (cpu_s + idle_s):.1f} %"
    )


def _length(spans: list[tuple[float, float]]) -> float:
    """Return the time that at least one span covers."""
    total, end = 0.0, 0.0
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--delay", default="50ms")
    parser.add_argument("--rate", default="100Mbit/s")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options.file, options.workers, options.inside)
    else:
        outside(options.file.resolve(), options.workers, options.delay, options.rate)
