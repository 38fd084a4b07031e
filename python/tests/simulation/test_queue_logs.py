"""Logs as they are: counters that restart or wrap, clocks that are set, and queues of queues."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from forebay import ScenarioError
from forebay.control import queue_estimate as estimate
from forebay.control import queue_records

#: A queue of this log sends at exactly 15 Mbit/s for 60 s, and drops one packet in a hundred.
COUNT, STEP_S, RATE_BPS, LOSS = 6000, 0.01, 15e6, 0.01

#: Changes time and counters (bytes, packets, drops) of a sample.
Change = Callable[[int, float, list[int]], tuple[float, list[int]]]


def rows(change: Change = lambda i, t, counts: (t, counts)) -> list[tuple[float, dict[str, Any]]]:
    """Return times and entries of tc, changed."""
    rng = random.Random(1)
    sent, drops, size = 0, 0, 0
    log = []
    for i in range(COUNT):
        packets = 12 + i % 2
        lost = sum(rng.random() < LOSS for _ in range(packets))
        sent, drops, size = sent + packets, drops + lost, size + 1500 * packets
        time_s, counts = change(i, 1.7e9 + STEP_S * i, [size, sent, drops])
        entry = {"kind": "fq_codel", "handle": "8001:", "dev": "eth0", "root": True} | dict(
            zip(("bytes", "packets", "drops"), counts, strict=True)
        )
        log.append((time_s, entry | {"qlen": 40 + int(4 * rng.random())}))
    return log


def write(file: Path, log: list[tuple[float, dict[str, Any]]]) -> Path:
    file.write_text("".join(f"{time_s:.6f} {json.dumps([entry])}\n" for time_s, entry in log))
    return file


def identified(file: Path) -> tuple[estimate.Identified, list[str]]:
    (record,) = queue_records.read_records(file)
    return estimate.identify(record.window(None, None), 0.1), list(record.remarks)


def after(row: int, change: Callable[[float, list[int]], tuple[float, list[int]]]) -> Change:
    return lambda i, t, counts: change(t, counts) if i >= row else (t, counts)


def anew(*starts: int) -> Change:
    """Counters that restart at some rows."""
    base = [0, 0, 0]

    def change(i: int, t: float, counts: list[int]) -> tuple[float, list[int]]:
        if i in starts:
            base[:] = counts
        return t, [count - start for count, start in zip(counts, base, strict=True)]

    return change


def wrapped(i: int, t: float, counts: list[int]) -> tuple[float, list[int]]:
    """Counters of 32 bits, of which two pass their end within the record."""
    size, sent, drops = counts
    return t, [(size + 2**32 - 50_000_000) % 2**32, (sent + 2**32 - 40_000) % 2**32, drops]


CASES: dict[str, tuple[Change, list[str]]] = {
    "right": (lambda i, t, counts: (t, counts), []),
    "reset": (anew(3000), ["the counters restart at line 3001: the record was split there"]),
    "resets": (
        anew(*range(500, 6000, 500)),
        [
            "the counters restart at line 501, the counters restart at line 1001, the "
            "counters restart at line 1501, and 8 times more: the record was split there"
        ],
    ),
    "back": (
        after(3000, lambda t, counts: (t - 5, counts)),
        ["the clock stepped by −5 s at line 3001: the record was split there"],
    ),
    "forward": (
        after(3000, lambda t, counts: (t + 60, counts)),
        ["the clock stepped by +60 s at line 3001: the record was split there"],
    ),
    "1970": (
        lambda i, t, counts: (t - (1.7e9 if i < 300 else 0), counts),
        ["the clock stepped by +1700000000 s at line 301: the record was split there"],
    ),
    "wrap": (
        wrapped,
        [
            "the counter of bytes passed 2^32 at line 2667: it was continued",
            "the counter of packets passed 2^32 at line 3200: it was continued",
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_rate_is_found_on_both_sides_of_what_breaks_a_log(case: str, tmp_path: Path) -> None:
    change, remarks = CASES[case]
    found, said = identified(write(tmp_path / "log.jsonl", rows(change)))
    assert found.rate_bps.value == pytest.approx(RATE_BPS, rel=2e-3)
    assert 0 < found.rate_bps.low < RATE_BPS < found.rate_bps.high < 1.01 * RATE_BPS
    assert found.loss.value == pytest.approx(LOSS, rel=0.1)
    assert found.packet_bytes == pytest.approx(1500, rel=1e-3)
    assert said == remarks
    assert list(found.remarks) == remarks


def test_a_recorder_that_paused_is_no_clock_that_stepped(tmp_path: Path) -> None:
    log = rows()
    file = write(tmp_path / "log.jsonl", log[:2000] + log[2600:])
    found, said = identified(file)
    assert found.rate_bps.value == pytest.approx(RATE_BPS, rel=2e-3)
    assert said == ["there is no sample for 6.01 s at line 2001: the record was split there"]


def test_any_times_take_bounded_work(tmp_path: Path) -> None:
    """A grid over all of these would have 1e17 rows."""
    rng = random.Random(3)
    times = rows(lambda i, t, counts: (rng.choice([1e-9, 1.0, 1e9]) * rng.random(), counts))
    try:
        (record,) = queue_records.read_records(write(tmp_path / "log.jsonl", times))
        assert len(record.queue_pkts) < 20 * COUNT
    except ScenarioError as error:
        assert re.search(r"has no \d+ samples in a row over which the clock and the ", str(error))


def test_what_was_met_is_told_everywhere(tmp_path: Path, cli: Cli) -> None:
    write(tmp_path / "log.jsonl", rows(CASES["back"][0]))
    done = cli("identify", "log.jsonl", "--rtt", "100ms", "--out", "out")
    assert done.returncode == 0, done.stderr
    (remark,) = CASES["back"][1]
    assert f" {remark} " in f" {' '.join(done.stdout.split())} "
    assert f"# {remark}\n" in (tmp_path / "out" / "identified.toml").read_text()
    done = cli("identify", "log.jsonl", "--rtt", "100ms", "--json")
    assert json.loads(done.stdout)["remarks"] == [remark]


def test_times_in_other_spellings(tmp_path: Path, cli: Cli) -> None:
    log = write(tmp_path / "log.jsonl", rows())
    text = log.read_text()
    comma = tmp_path / "comma.jsonl"
    comma.write_text("".join(line.replace(".", ",", 1) for line in text.splitlines(True)))
    found, said = identified(comma)
    assert found.rate_bps.value == pytest.approx(RATE_BPS, rel=2e-3)
    assert said == ["the times have a decimal comma, which is read as a point"]
    (tmp_path / "busybox.jsonl").write_text(text.replace(".00", ".%N", 1))
    done = cli("identify", "busybox.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        'error: busybox.jsonl:1: the time "1700000000.%N0000" before the sample is not a number of '
        "seconds; this `date` has no %N, as BusyBox's; record with the commands in "
        "docs/howto/identify.md, or give the interval\n"
    )
    done = cli("identify", "busybox.jsonl", "--interval", "10ms", "--rtt", "100ms", "--json")
    assert json.loads(done.stdout)["rate_bps"]["value"] == pytest.approx(RATE_BPS, rel=2e-3)
    # What was recorded last may be cut off, and the log may be compressed or from Windows.
    packed = gzip.compress(("\ufeff" + text.replace("\n", "\r\n")[:-40]).encode())
    (tmp_path / "packed.jsonl.gz").write_bytes(packed)
    found, said = identified(tmp_path / "packed.jsonl.gz")
    assert found.rate_bps.value == pytest.approx(RATE_BPS, rel=2e-3)
    assert said == ["left out: 1 line that is cut off at the end"]


def test_a_queue_of_queues_is_counted_once(tmp_path: Path, cli: Cli) -> None:
    """All children of mq have the handle 0:, and mq counts what they count."""
    lines = []
    for time_s, entry in rows():
        counts = {key: entry[key] for key in ("bytes", "packets", "drops", "qlen")}
        tripled = {key: 3 * value for key, value in counts.items()}
        entries = [{"kind": "mq", "handle": "0:", "dev": "eth0", "root": True} | tripled]
        for child, share in ((1, 1), (2, 2), (3, 0)):
            own = {key: share * value for key, value in counts.items()}
            same = {"kind": "fq_codel", "handle": "0:", "dev": "eth0"}
            entries.append(same | {"parent": f":{child}"} | own)
        lines.append(f"{time_s:.6f} {json.dumps(entries)}\n")
    (tmp_path / "log.jsonl").write_text("".join(lines))
    done = cli("identify", "log.jsonl", "--rtt", "100ms", "--json")
    assert done.returncode == 0, done.stderr
    found = {
        one["name"]: one["rate_bps"]["value"]
        for one in map(json.loads, done.stdout.split("\n")[:-1])
    }
    assert found == {
        "eth0 fq_codel 0: (parent :1)": pytest.approx(RATE_BPS, rel=2e-3),
        "eth0 fq_codel 0: (parent :2)": pytest.approx(2 * RATE_BPS, rel=2e-3),
        "eth0 fq_codel 0: (parent :3)": None,
    }
    assert done.stderr.startswith("eth0 mq 0: is left out") and "--only" in done.stderr
    done = cli("identify", "log.jsonl", "--rtt", "100ms", "--json", "--only", "mq")
    assert json.loads(done.stdout)["rate_bps"]["value"] == pytest.approx(3 * RATE_BPS, rel=2e-3)


def test_a_replaced_qdisc_goes_on_as_the_same_queue(tmp_path: Path) -> None:
    """It has another handle, and its counters restart."""
    log = rows(anew(3000))
    for _, entry in log[3000:]:
        entry["handle"] = "8002:"
    found, said = identified(write(tmp_path / "log.jsonl", log))
    assert found.rate_bps.value == pytest.approx(RATE_BPS, rel=2e-3)
    assert said == ["the counters restart at line 3001: the record was split there"]


def test_a_result_of_impossible_sign_is_not_given(tmp_path: Path) -> None:
    """A rate that is now high and now nothing has no interval above zero."""
    log = rows(lambda i, t, counts: (t, [counts[0] if i < 5900 else 2**40 + counts[0] * i, 0, 0]))
    found, _ = identified(write(tmp_path / "log.jsonl", log))
    assert not found.rate_bps.known and "varies too much" in found.rate_bps.why
    assert not found.flows.known


@pytest.mark.parametrize("value", ["-1", '"many"', "true", "1e400", "NaN", "[1]"])
def test_a_count_that_is_none_is_named(tmp_path: Path, value: str) -> None:
    file = tmp_path / "log.jsonl"
    line = '1.0 [{"kind": "pie", "dev": "eth0", "bytes": VALUE, "qlen": 0}]\n'
    file.write_text(line.replace("VALUE", "1") + line.replace("VALUE", value))
    with pytest.raises(ScenarioError, match=r'log\.jsonl:2: bytes is ".*"; expected a count$'):
        queue_records.read_records(file)
