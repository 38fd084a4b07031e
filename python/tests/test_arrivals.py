"""Packets that came once: captures and lists as traffic."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest
from conftest import Cli, one_bottleneck

import forebay
from forebay.pages.description import describe
from forebay.runs import experiment
from forebay.store import rows


def scenario(folder: Path, file: str, keys: str = "", rate: str = "1Mbit/s") -> Path:
    traffic = f'[[traffic]]\nkind = "arrivals"\nfile = "{file}"\n{keys}\n'
    law = '[[law]]\nkind = "droptail"\n'
    text = one_bottleneck(("0s", "3s"), rate, "100p", traffic + law)
    (folder / "arrivals.toml").write_text(text)
    return folder / "arrivals.toml"


def packets(folder: Path, name: str, gap_s: float = 0.01, count: int = 200) -> None:
    """A list of packets of 1000 bytes in two flows."""
    lines = [f"{i * gap_s:.6f},1000,{i % 2}" for i in range(count)]
    (folder / name).write_text("\n".join(["time_s,size_bytes,flow", *lines, ""]))


def test_a_list_makes_the_queue_that_it_must(tmp_path: Path) -> None:
    # Two packets every 20 ms, 8 ms each: the second waits for 8 ms.
    lines = [f"{i // 2 * 0.02:.3f},1000,{i % 2}" for i in range(200)]
    (tmp_path / "two.csv").write_text("\n".join(["time_s,size_bytes,flow", *lines, ""]))
    result = forebay.run(scenario(tmp_path, "two.csv", 'start = "1ms"\n'))
    (run,) = result.runs
    assert run.metrics["delay_mean_s"] == pytest.approx(0.004, rel=1e-3)
    assert run.metrics["forwarded_packets"] == 200
    described = describe(result).traffic[0].replace("\N{NO-BREAK SPACE}", " ")
    assert described == (
        "200 packets of 2 flows from two.csv, as they came: packets of at most 1500 bytes, "
        "in 1.98 s, starting at 1 ms."
    )


def test_another_file_makes_other_runs(tmp_path: Path) -> None:
    path = scenario(tmp_path, "two.csv")

    def configs() -> list[str | None]:
        return rows.configs(experiment.read(path).plan, 0)

    packets(tmp_path, "two.csv")
    first = configs()
    assert first and None not in first
    assert configs() == first
    packets(tmp_path, "two.csv", gap_s=0.009)
    assert not set(configs()) & set(first)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (b"", 'found a first line that is no list\'s in "my.pcap", allowed: a capture'),
        (struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101), "without IP packets"),
        (struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101) + b"x", "frame 1 cut off"),
        (b"time_s,size_bytes,flow\n2,9,a\n1,9,a\n", "1 s before the one ahead of it (line 3)"),
    ],
)
def test_a_bad_file_is_one_line(cli: Cli, tmp_path: Path, contents: bytes, expected: str) -> None:
    (tmp_path / "my.pcap").write_bytes(contents)
    path = scenario(tmp_path, "my.pcap")
    before = set(tmp_path.iterdir())
    done = cli("run", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{path}:9: traffic.0.file: found ")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert set(tmp_path.iterdir()) == before


def test_a_file_that_is_too_large_is_refused(cli: Cli, tmp_path: Path) -> None:
    with (tmp_path / "large.pcap").open("wb") as file:
        # A hole takes no room on the disk.
        file.truncate(experiment.LARGEST_FILE + 1)
    path = scenario(tmp_path, "large.pcap")
    done = cli("run", path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{path}: large.pcap: found a file of 1.0 GB, allowed: at most 1")


@pytest.mark.realtime
def test_a_capture_of_a_link_gives_the_queue_of_the_link(cli: Cli, tmp_path: Path) -> None:
    """The same packets at the same times into the same queue."""
    # Bursts of 12 packets every 50 ms: their last ones wait for half of it.
    code = (
        "import socket, time\n"
        "out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for i in range(40):\n"
        "    for _ in range(12): out.sendto(bytes(872), ('198.18.0.2', 9))\n"
        "    time.sleep(0.05)\n"
    )
    done = cli(
        *("link", "--rate", "4Mbit/s", "--delay", "5ms", "--buffer", "100p", "--aqm", "droptail"),
        *("--pcap", tmp_path / "cap", "--out", tmp_path / "out", "--", sys.executable, "-c", code),
    )
    assert done.returncode == 0, done.stderr
    table = json.loads((tmp_path / "out" / "metrics.json").read_text())
    up, _ = (run["metrics"] for run in table["runs"])
    path = scenario(tmp_path, "cap/client.pcapng", 'source = "198.18.0.1"\n', rate="4Mbit/s")
    (run,) = forebay.run(path).runs
    assert run.metrics["forwarded_packets"] == 480
    for name in ("delay_mean_s", "delay_p95_s"):
        assert run.metrics[name] == pytest.approx(up[name], rel=0.02), name
