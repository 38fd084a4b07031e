"""Files that others wrote or changed: one line for any damage, and no more work than is stated."""

from __future__ import annotations

import bz2
import gzip
import importlib
import json
import lzma
import random
import resource
from pathlib import Path
from types import ModuleType

import pytest
from conftest import Cli

import forebay
from forebay import ScenarioError
from forebay._base import input_file
from forebay.experiment import flent

FUZZ = Path(__file__).parents[3] / "fuzz" / "python"


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FUZZ))
    return importlib.import_module("driver")


@pytest.mark.parametrize("name", ["flent_files", "saved_results", "queue_logs"])
def test_a_mutated_file_is_read_or_is_one_line(name: str, fuzz: ModuleType) -> None:
    """`make fuzz` tries more of them."""
    target = importlib.import_module(name)
    rng = random.Random(7)
    for data in target.INPUTS:
        assert fuzz.fault(target.target, data) == ""
    for _ in range(40):
        data = fuzz.mutated(rng, target.INPUTS)
        assert fuzz.fault(target.target, data) == "", data[:2000]


def bomb(megabytes: int) -> bytes:
    """A list of ones, some thousand times as large as it looks."""
    return gzip.compress(b'{"results": [' + b"1," * (megabytes << 19) + b"1]}")


def test_a_file_that_grows_beyond_the_limit_is_refused(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.flent.gz").write_bytes(bomb(200))
    done = cli("compare", "a.flent.gz", "a.flent.gz")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: a.flent.gz: is larger than 64 MiB once decompressed, the most that is read\n"
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert used < 1_500_000, f"{used} KiB"


def test_many_small_lists_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.flent"
    file.write_text("[" + "[]," * 2_100_000 + "[]]")
    with pytest.raises(ScenarioError, match=r"more than 2,000,000 lists and tables$"):
        flent.read(file)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (gzip.compress(b"x" * 1000, mtime=0)[:-9], "is damaged gzip data: "),
        (bz2.compress(b"x" * 1000)[:-9], "is damaged bzip2 data: "),
        (lzma.compress(b"x" * 1000)[:-9], "is damaged xz data: "),
        (b"\x28\xb5\x2f\xfd12345", "unpack it first with `zstd -d`, or compress it with gzip"),
        (b"\x00\x01\x02", "is binary data; expected a text"),
        (b"\xff\xfe\x00", "begins like a text in UTF-16-LE, and is none"),
        (b"[" * 100_000, "its lists are nested too deeply"),
        (b'{"version": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
    ],
)
def test_an_unreadable_flent_file_is_refused_with_the_reason(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    file = tmp_path / "a.flent"
    file.write_bytes(data)
    with pytest.raises(ScenarioError) as refused:
        flent.read(file)
    assert reason in str(refused.value) and str(refused.value).isprintable()


def test_texts_are_read_in_the_encoding_of_their_mark() -> None:
    for encoding in ("utf-8-sig", "utf-16", "utf-16-be", "utf-32"):
        data = "1 ü\n".encode(encoding)
        if encoding == "utf-16-be":
            data = b"\xfe\xff" + data
        assert input_file.text(data, "x") == "1 ü\n"
    # Latin-1 in a name does not keep the numbers beside it from being read.
    assert input_file.text(b"1 \xfc", "x") == "1 �"


def test_a_name_that_is_not_utf_8_is_printable(tmp_path: Path, cli: Cli) -> None:
    name = b"a-\xfc\x1b[2J.flent".decode("utf-8", "surrogateescape")
    done = cli("compare", name, name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "error: compare: a-\\udcfc\\x1b[2J.flent has no result; expected a "
    )


LINK = """\
title    = "A link"
duration = "2s"
measure  = ["1s", "2s"]
bottleneck = { rate = "2Mbit/s", delay = "5ms", buffer = "20p" }
traffic = [{ kind = "ftp", flows = 2, rtt = "40ms" }]
law = [{ kind = "codel" }]
[sweep]
"bottleneck.delay" = ["5ms", "0.02s"]
"""


def test_a_damaged_table_of_a_study_is_refused(tmp_path: Path, cli: Cli) -> None:
    """Other numbers would come out of a third of all changed bits, and a panic out of some."""
    (tmp_path / "s.toml").write_text(LINK)
    done = cli("study", "s.toml", "--seeds", 2, "--store", "store", "--no-report", "--out", "study")
    assert done.returncode == 0, done.stderr
    assert cli("compare", "study", "study", "--json").returncode == 0
    table, facts = tmp_path / "study" / "frame.parquet", tmp_path / "study" / "study.json"
    sound = table.read_bytes()
    table.write_bytes(sound[:200] + bytes([sound[200] ^ 1]) + sound[201:])
    done = cli("compare", "study", "study")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: study: is not a result of forebay study, or is damaged (study.json, "
        "frame.parquet): "
        "its contents are not those that study.json describes (SHA-256)\n"
    )
    # An older result has no hash: another process tries the file first.
    told = json.loads(facts.read_text())
    del told["sha256"]
    facts.write_text(json.dumps(told))
    for damaged in (sound[:-9], b"PAR1" + b"\x00" * 100 + b"PAR1", b""):
        table.write_bytes(damaged)
        done = cli("compare", "study", "study")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "study: is not a result of forebay study, or is damaged" in done.stderr
    table.write_bytes(sound)
    assert cli("compare", "study", "study", "--json").returncode == 0


def test_a_title_cannot_steer_a_terminal(tmp_path: Path) -> None:
    result = forebay.run(LINK, seeds=1)
    result.report(tmp_path / "a")
    file = tmp_path / "a" / "metrics.json"
    told = json.loads(file.read_text()) | {"title": "\x1b]0;x\x07 \ud800", "command": "a\nb"}
    file.write_text(json.dumps(told))
    shown = str(forebay.compare(tmp_path / "a", tmp_path / "a"))
    assert "\x1b]0" not in shown and "�]0;x� �" in shown and "a�b" in shown
    shown.encode()
