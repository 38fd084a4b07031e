"""Packets that came once: captures and lists as traffic."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli, one_bottleneck

import forebay
from forebay._base import input_file
from forebay.experiment import descriptions, experiment
from forebay.experiment import run_rows as rows
from forebay.report.answers import describe


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
        "200 packets of 2 flows from two.csv, at their recorded times: packets of at most "
        "1500 bytes, in 1.98 s, starting at 1 ms."
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
        (b"", '"my.pcap" has a first line that is not the header of a list; expected a capture'),
        (
            struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101),
            '"my.pcap" has no IP packets; expected packets of IPv4',
        ),
        (
            struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101) + b"x",
            '"my.pcap" ends early in frame 1; expected ',
        ),
        (
            b"time_s,size_bytes,flow\n2,9,a\n1,9,a\n",
            '"my.pcap" has a packet that is 1 s earlier than the packet before it in line 3; ',
        ),
    ],
)
def test_a_bad_file_is_one_line(cli: Cli, tmp_path: Path, contents: bytes, expected: str) -> None:
    (tmp_path / "my.pcap").write_bytes(contents)
    path = scenario(tmp_path, "my.pcap")
    before = set(tmp_path.iterdir())
    done = cli("run", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {path}:9: traffic.0.file: ")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert set(tmp_path.iterdir()) == before


def capture(frames: list[bytes], link_type: int = 1) -> bytes:
    """A capture with 10 ms between frames."""
    contents = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link_type)
    for i, frame in enumerate(frames):
        at_us = 10_000 * i
        times = (1000 + at_us // 10**6, at_us % 10**6)
        contents += struct.pack("<IIII", *times, len(frame), len(frame)) + frame
    return contents


def ip(size: int = 1000) -> bytes:
    """A packet of UDP."""
    header = (0x45, 0, size, 1, 0, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    return struct.pack(">BBHHHBBH4s4sHHHH", *header, 5000, 80, size - 20, 0) + bytes(size - 28)


#: Frames of Ethernet from their type on.
IP = b"\x08\x00" + ip()
MPLS = b"\x88\x47" + struct.pack(">I", 100 << 12 | 1 << 8 | 64) + ip()
SNAP = struct.pack(">H", 8 + 1000) + b"\xaa\xaa\3\0\0\0\x08\0" + ip()
ARP = b"\x08\x06" + bytes(28)


@pytest.mark.parametrize("other", [MPLS, SNAP])
def test_packets_in_frames_of_providers_count(tmp_path: Path, other: bytes) -> None:
    frames = [bytes(12) + (other if i % 2 else IP) for i in range(200)]
    (tmp_path / "a.pcap").write_bytes(capture(frames))
    result = forebay.run(scenario(tmp_path, "a.pcap"))
    assert result.runs[0].metrics["forwarded_packets"] == 200
    assert [text for text, _ in descriptions.warnings(result)] == []


def test_omitted_frames_are_reported_by_run_page_and_json(cli: Cli, tmp_path: Path) -> None:
    frames = [bytes(12) + (ARP if i % 2 else IP) for i in range(200)]
    # The last is longer than its record, as of a capture that was cut afterwards.
    (tmp_path / "a.pcap").write_bytes(capture([*frames, (bytes(12) + IP)[:200]]))
    path = scenario(tmp_path, "a.pcap")
    said = [
        "a.pcap: 100 of 201 frames are not IP packets and were left out",
        "a.pcap: 1 of 201 frames are shorter than their packets, by the IP header, whose length "
        "was taken",
    ]
    done = cli("run", path, "--no-store", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["remarks"] == said
    assert told["metrics"]["forwarded_packets"] == 101
    assert done.stderr == "".join(f"{text}.\n" for text in said)
    done = cli("run", path, "--no-store", "--out", "out")
    assert " ".join(f"warning: {said[0]}.".split()) in " ".join(done.stdout.split())
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["remarks"] == said
    assert said[0] in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_captures_and_traces_are_read(
    cli: Cli, tmp_path: Path, packed: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "a.pcap.gz").write_bytes(packed(capture([bytes(12) + IP] * 200)))
    done = cli("run", scenario(tmp_path, "a.pcap.gz"), "--no-store", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["forwarded_packets"] == 200
    (tmp_path / "trace").write_bytes(packed(b"1\n2\n3\n"))
    done = cli("run", traced(tmp_path), "--no-store", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["utilisation"] > 0.9


def traced(folder: Path) -> Path:
    """A link that is driven by the file `trace`."""
    traffic = '[[traffic]]\nkind = "cbr"\nrate = "20Mbit/s"\nrtt = "20ms"\nflows = 1\n'
    text = one_bottleneck(
        ("1s", "3s"), "12Mbit/s", "100p", f'{traffic}[[law]]\nkind = "droptail"\n'
    )
    (folder / "traced.toml").write_text(
        text.replace('rate = "12Mbit/s"', 'rate = "12Mbit/s"\nrate_trace = "trace"', 1)
    )
    return folder / "traced.toml"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_texts_of_windows_are_read(cli: Cli, tmp_path: Path, encoding: str) -> None:
    rows = [f"{i}e-05,1000,a\r\n" for i in range(200)]
    text = "".join(["time_s,size_bytes,flow\r\n", *rows])
    (tmp_path / "list.csv").write_bytes(text.encode(encoding))
    done = cli("run", scenario(tmp_path, "list.csv"), "--no-store", "--json")
    assert done.returncode == 0, done.stderr
    (tmp_path / "trace").write_bytes("1\r\n2\r\n3\r\n".encode(encoding))
    done = cli("run", traced(tmp_path), "--no-store", "--json")
    assert done.returncode == 0, done.stderr


def test_unreadable_contents_are_not_printed_to_the_terminal(cli: Cli, tmp_path: Path) -> None:
    for contents, expected in [
        (b"\x28\xb5\x2f\xfd" + bytes(range(256)), "unpack it first with `zstd -d`"),
        (b"\x1b[2J\x07\0\n", 'binary data in line 1 of "trace" is not valid'),
        (gzip.compress(b"1\n2\n", mtime=0)[:-6], "trace: is damaged gzip data: "),
    ]:
        (tmp_path / "trace").write_bytes(contents)
        done = cli("run", traced(tmp_path), "--no-store", "--json")
        assert (done.returncode, done.stdout) == (2, "")
        assert expected in done.stderr
        assert done.stderr.strip().isprintable()


def test_a_file_that_is_too_large_is_refused(cli: Cli, tmp_path: Path) -> None:
    with (tmp_path / "large.pcap").open("wb") as file:
        # A hole takes no room on the disk.
        file.truncate(input_file.MOST_DATA_BYTES + 1)
    path = scenario(tmp_path, "large.pcap")
    done = cli("run", path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {path}: large.pcap: the file has 1.0 GB")


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
