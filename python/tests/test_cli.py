"""The lines of the command line that other programs rely on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import SCENARIO, Cli, command

#: What programs that read `--json` rely on, in this order.
METRICS = [
    "queue_mean_pkts",
    "queue_std_pkts",
    "qacd_pkts",
    "drop_rate",
    "early_drop_rate",
    "mark_rate",
    "utilisation",
    "delay_mean_s",
    "delay_p95_s",
    "delay_p99_s",
    "goodput_bps",
    "jain",
    "flow_completion_p50_s",
    "flow_completion_p95_s",
    "forwarded_packets",
    "user_cpu_s",
]
POINTS = ["traffic.0.flows = 5", "traffic.0.flows = 20"]
TABLES = [
    *("delays.parquet", "flows.parquet", "goodput.parquet"),
    *("metrics.json", "metrics.parquet", "samples.parquet"),
]


def runs(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_help_has_the_commands_in_their_order(cli: Cli) -> None:
    listed = cli("--help").stdout.partition("Commands")[2]
    commands = re.findall(r"^\W*([a-z]+)  ", listed, re.MULTILINE)
    order = "laws queues run fluid design map tune replay suite figure link doctor validate schema"
    assert commands == order.split()


def test_laws_as_json(cli: Cli) -> None:
    done = cli("laws", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    laws = json.loads(done.stdout)
    assert {"droptail", "red", "pi", "pid", "pi-pd"} <= {law["name"] for law in laws}
    for law in laws:
        told = [
            "name",
            "title",
            "source",
            "params",
            "queue",
            "short_title",
            "baseline",
            "set_point",
            "reality",
        ]
        assert list(law) == told
        for param in law["params"]:
            assert list(param) == ["name", "unit", "default", "min", "max", "doc"]
            assert param["doc"], (law["name"], param["name"])
            if isinstance(param["default"], float):
                assert param["min"] <= param["default"] <= param["max"], (law["name"], param)
    pi = next(law for law in laws if law["name"] == "pi")
    target, interval = (
        next(param for param in pi["params"] if param["name"] == name)
        for name in ("target", "interval")
    )
    assert (target["unit"], target["default"]) == ("p", 200.0)
    assert (interval["unit"], interval["default"]) == ("s", 0.00625)


def test_laws_as_tables(cli: Cli) -> None:
    done = cli("laws")
    laws = json.loads(cli("laws", "--json").stdout)
    assert done.returncode == 0
    for law in laws:
        assert law["name"] in done.stdout
        for param in law["params"]:
            assert param["name"] in done.stdout
    assert "6.25ms" in done.stdout
    assert "1.822e-05" in done.stdout


def test_laws_load_nothing_that_is_slow_to_load() -> None:
    program = (
        "import sys; from forebay.cli.main import run_command; run_command(['laws', '--json']);"
        "print([m for m in ('numpy', 'polars', 'scipy', 'matplotlib', 'jinja2', 'rich')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


def test_schema_is_json(cli: Cli) -> None:
    schema = json.loads(cli("schema").stdout)
    assert "bottleneck" in schema["properties"]


def test_run_as_json(cli: Cli, scenario: Path) -> None:
    done = cli("run", scenario, "--json")
    assert done.returncode == 0, done.stderr
    lines = runs(done.stdout)
    keys = [(line["point"], line["law"], line["seed"]) for line in lines]
    assert keys == [
        (point, law, seed) for point in POINTS for law in ("pi", "droptail") for seed in (1, 2)
    ]
    for line in lines:
        assert list(line) == ["law", "point", "seed", "metrics"]
        metrics = line["metrics"]
        assert list(metrics) == METRICS
        # DropTail has no set-point: NaN, which JSON has not.
        assert (metrics["qacd_pkts"] is None) == (line["law"] == "droptail")
        assert 0 < metrics["utilisation"] <= 1.01
        assert 0 <= metrics["drop_rate"] < 1
        assert metrics["delay_p95_s"] <= metrics["delay_p99_s"]
        assert metrics["forwarded_packets"] > 1000
        assert metrics["user_cpu_s"] >= 0
    assert names(scenario.parent) == ["two.toml"]


def test_results_do_not_depend_on_threads(cli: Cli, scenario: Path) -> None:
    def metrics(threads: int) -> list[dict[str, Any]]:
        lines = runs(cli("run", scenario, "--json", "--threads", threads).stdout)
        for line in lines:
            del line["metrics"]["user_cpu_s"]
        return lines

    assert len(metrics(1)) == 8
    assert metrics(1) == metrics(2)


def test_run_leaves_a_report(cli: Cli, scenario: Path) -> None:
    done = cli("run", scenario)
    assert done.returncode == 0, done.stderr
    out = scenario.parent / "results" / "two"
    assert names(out) == sorted([*TABLES, "figures", "report.html"])
    assert names(out.parent) == ["two"]
    assert "results/two/report.html" in done.stdout
    for expected in ["Two laws, two loads", "pi", "droptail", "5 ftp flows", "20 ftp flows", "±"]:
        assert expected in done.stdout
    samples = pl.read_parquet(out / "samples.parquet")
    assert samples.columns[:5] == ["law", "point", "seed", "link", "time_s"]
    # 4 s in steps of 10 ms, 2 laws, 2 points, 2 seeds
    assert len(samples) == 400 * 8
    whole = json.loads((out / "metrics.json").read_text())
    assert whole["partial"] is False
    assert whole["runs"][0]["settings"] == {"traffic.0.flows": 5}
    assert len(pl.read_parquet(out / "metrics.parquet")) == len(whole["runs"]) == 8


def test_options_choose_what_is_run(cli: Cli, scenario: Path) -> None:
    out = scenario.parent / "deep" / "er"
    done = cli(
        *("run", scenario, "--json", "--out", out, "--no-report", "--seeds", 1),
        *("--law", "red", "--set", "traffic.0.flows=7", "--set", "duration=3s"),
        *("--set", "measure=['1s', '3s']"),
    )
    assert done.returncode == 0, done.stderr
    (line,) = runs(done.stdout)
    assert (line["law"], line["point"], line["seed"]) == ("red", "", 1)
    assert names(out) == TABLES
    assert len(pl.read_parquet(out / "samples.parquet")) == 300
    assert len(pl.read_parquet(out / "flows.parquet")) == 7


def test_a_former_result_is_replaced_and_other_files_stay(cli: Cli, scenario: Path) -> None:
    out = scenario.parent / "out"
    quick = ["run", scenario, "--seeds", 1, "--out", out]
    assert cli(*quick).returncode == 0
    assert "queue-2.png" in names(out / "figures")
    (out / "notes.txt").write_text("mine")
    assert cli(*quick, "--set", "traffic.0.flows=5").returncode == 0
    assert "queue-2.png" not in names(out / "figures")
    assert (out / "notes.txt").read_text() == "mine"
    assert cli(*quick, "--no-report").returncode == 0
    assert names(out) == sorted([*TABLES, "notes.txt"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["missing.toml"], ["missing.toml", "no such file"]),
        (["."], [".", "directory"]),
        (["two.toml", "--law", "pike"], ["--law", "pike", "did you mean"]),
        (["two.toml", "--set", "bottleneck.rate=45"], ["bottleneck.rate", "45", "Mbit/s"]),
        (["two.toml", "--set", "bottleneck.rat=1Mbit/s"], ["bottleneck.rat", "rate"]),
        (["two.toml", "--set", "nonsense"], ["--set", "nonsense", "KEY=VALUE"]),
        (["two.toml", "--seeds", "0"], ["--seeds", "0", "1"]),
        (["two.toml", "--seeds", "-1"], ["--seeds", "-1"]),
        (["two.toml", "--seeds", "some"], ['--seeds: found "some", allowed: a whole number']),
        (["two.toml", "--threads", "0"], ['--threads: found "0", allowed: at least 1']),
        (["two.toml", "--sed", "1"], ["--sed", "--seeds"]),
        (["two.toml", "--out", "two.toml"], ["--out", "two.toml", "directory"]),
        (["two.toml", "--out", "/proc/forebay/out"], ["--out", "/proc/forebay/out", "written"]),
        (["two.toml", "--law", "mine.py"], ["mine.py", "FILE.py:CLASS"]),
        (["two.toml", "--law", "missing.py:Law"], ["missing.py:Law", "exists"]),
        (["two.toml", "--law", "mine.py:Nope"], ["mine.py", "Nope", "PythonPi"]),
        (["two.toml", "--law", "mine.py:NoInterval"], ["NoInterval.interval", "15ms"]),
        (["two.toml", "--law", "mine.py:NoSample"], ["NoSample.sample", "probability"]),
        (["two.toml", "--law", "broken.py:Law"], ["broken.py", "line 2", "ZeroDivisionError"]),
        ([], ["FILE"]),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    cli: Cli, scenario: Path, prototypes: Path, arguments: list[str], expected: list[str]
) -> None:
    (scenario.parent / "broken.py").write_text("x = 0\n1 / x\n")
    before = names(scenario.parent)
    done = cli("run", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    for text in expected:
        assert text in done.stderr
    assert [name for name in names(scenario.parent) if name != "__pycache__"] == before


def test_a_wrong_file_is_named_with_its_line(cli: Cli, scenario: Path) -> None:
    scenario.write_text(SCENARIO.replace('"10Mbit/s"', '"-10Mbit/s"'))
    done = cli("run", scenario)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{scenario}:8: bottleneck.rate: found ")
    scenario.write_bytes(b"title = '\xff'\n")
    done = cli("run", scenario)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "UTF-8" in done.stderr


def test_a_reader_may_leave_early(scenario: Path) -> None:
    """`forebay run … --json | head -1` ends without a traceback."""
    with subprocess.Popen(
        command("run", scenario, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


def test_a_full_disk_is_one_line(scenario: Path) -> None:
    """/dev/full refuses every byte, as a full disk does."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("run", scenario, "--json"),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
