"""The lines of the command line that other programs rely on."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import SCENARIO, Cli, command, line_on_a_terminal

import forebay
from forebay._base import metrics as run_metrics
from forebay.cli.declaration import flowing
from forebay.experiment import execution, experiment

#: What programs that read `--json` rely on, in this order.
METRICS = [
    *("queue_mean_pkts", "queue_std_pkts", "qacd_pkts"),
    *("drop_rate", "early_drop_rate", "mark_rate", "utilisation"),
    *("delay_mean_s", "delay_p95_s", "delay_p99_s", "goodput_bps", "jain"),
    *("flow_completion_p50_s", "flow_completion_p95_s"),
    *("voice_delay_s", "voice_jitter_s", "voice_loss"),
    *("video_rate_bps", "video_stalled", "forwarded_packets"),
]
POINTS = ["traffic.0.flows = 5", "traffic.0.flows = 20"]
#: Files of a result without a report; with two laws and two seeds also their differences.
TABLES = [
    *("costs.json", "delays.parquet", "flows.parquet", "goodput.parquet"),
    *("metrics.json", "metrics.parquet", "samples.parquet"),
]
DIFFERENCES = ["differences.csv", "differences.tex"]


def runs(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_help_breaks_its_lines_where_the_terminal_ends(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not where those of the source end, too."""
    assert flowing("One\n    two.\n\n    Three:\n      four") == "One two.\n\nThree:\n  four"
    monkeypatch.setenv("COLUMNS", "100")
    wide = cli("run", "--help").stdout
    assert max(map(len, wide.splitlines())) in range(90, 101)


@pytest.mark.parametrize("named", [(), ("kernel",), ("guest",), ("store",)])
def test_who_names_no_command_gets_the_help(cli: Cli, named: tuple[str, ...]) -> None:
    done = cli(*named)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == cli(*named, "--help").stdout


def test_help_has_the_commands_in_their_order(cli: Cli) -> None:
    listed = cli("--help").stdout.partition("Start here")[2]
    commands = re.findall(r"^  ([a-z]+)  ", listed, re.MULTILINE)
    panels = [
        "init studio experiments explain laws queues schema cite",
        "run study fluid suite replay compare store",
        "design map tune identify figure",
        "link validate attach detach kernel guest doctor",
    ]
    assert commands == [name for panel in panels for name in panel.split()], (
        "a command of COMMANDS in python/forebay/cli/app.py must be in `panels` of this test, too"
    )


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
            "equation",
            "params",
            "queue",
            "short_title",
            "baseline",
            "set_point",
            "reality",
            "has_rule",
            "modelled",
            "coupled",
            "per_flow",
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
    laws = json.loads(cli("laws", "--json").stdout)
    listed = cli("laws")
    done = cli("laws", *(law["name"] for law in laws))
    assert listed.returncode == done.returncode == 0
    for law in laws:
        assert law["name"] in listed.stdout
        assert law["name"] in done.stdout
        for param in law["params"]:
            assert param["name"] in done.stdout
    assert "6.25ms" in done.stdout
    assert "1.822e-05" in done.stdout


SLOW_MODULES = ("numpy", "polars", "scipy", "matplotlib", "jinja2", "pandas", "rich", "pydantic")


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--help"], []),
        (["run", "--help"], []),
        (["laws", "--json"], []),
        (["laws"], ["rich"]),
        # Typer reads values with pydantic.
        (["laws", "pi"], ["rich", "pydantic"]),
    ],
)
def test_a_quick_command_loads_no_module_that_is_slow_to_load(
    arguments: list[str], needed: list[str]
) -> None:
    program = (
        f"import sys; from forebay.cli.main import run_command; run_command({arguments});"
        f"print([m for m in {SLOW_MODULES} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == f"{needed}\n"


def test_a_run_without_a_page_loads_neither_figures_nor_tables(scenario: Path) -> None:
    program = (
        "import sys; from forebay.cli.main import run_command;"
        f"assert run_command(['run', {str(scenario)!r}, '--json', '--seeds', '1']) == 0;"
        "slow = ('scipy', 'matplotlib', 'jinja2', 'polars', 'rich');"
        "print([m for m in slow if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={name: value for name, value in os.environ.items() if name != "FOREBAY_STORE"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "[]\n"


def test_the_package_is_the_command() -> None:
    words = [sys.executable, "-m", "forebay", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("forebay ")


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
        assert list(line) == ["law", "point", "seed", "engine", "metrics", "costs"]
        metrics = line["metrics"]
        assert list(metrics) == METRICS, "a new metric must be in METRICS of this test"
        # DropTail has no set-point: NaN, which JSON has not.
        assert (metrics["qacd_pkts"] is None) == (line["law"] == "droptail")
        assert 0 < metrics["utilisation"] <= 1.01
        assert 0 <= metrics["drop_rate"] < 1
        assert metrics["delay_p95_s"] <= metrics["delay_p99_s"]
        assert metrics["forwarded_packets"] > 1000
        assert line["costs"]["user_cpu_s"] >= 0
    assert names(scenario.parent) == ["two.toml"]


def test_results_do_not_depend_on_threads(cli: Cli, scenario: Path) -> None:
    def metrics(threads: int) -> list[dict[str, Any]]:
        lines = runs(cli("run", scenario, "--json", "--threads", threads).stdout)
        for line in lines:
            del line["costs"]
        return lines

    assert len(metrics(1)) == 8
    assert metrics(1) == metrics(2)


def test_run_leaves_a_report(cli: Cli, scenario: Path) -> None:
    done = cli("run", scenario)
    assert done.returncode == 0, done.stderr
    out = scenario.parent / "results" / "two"
    assert names(out) == sorted([*TABLES, *DIFFERENCES, "figures", "report.html"])
    assert names(out.parent) == ["two"]
    assert "results/two/report.html" in done.stdout
    for expected in ["Two laws, two loads", "pi", "droptail", "ftp flows", "Goodput", "±"]:
        assert expected in done.stdout
    samples = pl.read_parquet(out / "samples.parquet")
    assert samples.columns[:5] == ["law", "point", "seed", "link", "time_s"]
    # 4 s in steps of 10 ms, 2 laws, 2 points, 2 seeds
    assert len(samples) == 400 * 8
    whole = json.loads((out / "metrics.json").read_text())
    assert whole["partial"] is False
    assert whole["runs"][0]["settings"] == {"traffic.0.flows": 5}
    assert len(pl.read_parquet(out / "metrics.parquet")) == len(whole["runs"]) == 8


def test_options_select_laws_seeds_and_settings(cli: Cli, scenario: Path) -> None:
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
    assert cli(*quick, "--set", "traffic.0.flows=5", "--force").returncode == 0
    assert "queue-2.png" not in names(out / "figures")
    assert (out / "notes.txt").read_text() == "mine"
    assert cli(*quick, "--no-report", "--force").returncode == 0
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
        (
            ["two.toml", "--seeds", "some"],
            ['--seeds: "some" is not valid; expected a whole number'],
        ),
        (["two.toml", "--threads", "0"], ['--threads: "0" is not valid; expected at least 1']),
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
    assert done.stderr.startswith(f"error: {scenario}:8: bottleneck.rate: ")
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


def test_a_reader_that_leaves_takes_no_files_with_it(scenario: Path) -> None:
    """Of `forebay run … | head -1` the report was lost, and of a study all."""
    with subprocess.Popen(
        command("run", scenario, "--seeds", 1), cwd=scenario.parent, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
    assert process.returncode == 1
    assert (scenario.parent / "results" / "two" / "report.html").exists()


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


def test_the_result_of_another_command_stays(cli: Cli, scenario: Path) -> None:
    out = scenario.parent / "results" / "two"
    assert cli("run", scenario, "--no-report").returncode == 0
    before = {name: (out / name).read_bytes() for name in names(out)}
    smaller = cli("run", scenario, "--no-report", "--law", "pi", "--seeds", 1)
    assert (smaller.returncode, smaller.stdout, smaller.stderr.count("\n")) == (2, "", 1)
    for text in ["results/two", f"forebay run {scenario}", "--force", "another folder"]:
        assert text in smaller.stderr
    assert {name: (out / name).read_bytes() for name in names(out)} == before
    # The same command, and an edited scenario, replace it.
    scenario.write_text(SCENARIO.replace("seeds    = 2", "seeds    = 1"))
    assert cli("run", scenario, "--no-report", "--threads", 1).returncode == 0
    assert len(json.loads((out / "metrics.json").read_text())["runs"]) == 4
    # More seeds replace fewer of the same experiment, however the command is spelt.
    spelt = ["run", scenario, "--no-report", "--set", "title=Other"]
    more = cli(*spelt, "--seeds", 2)
    assert more.returncode == 0, more.stderr
    fewer = cli(*spelt, "--set", "duration=4s", "--seeds", 1)
    assert (fewer.returncode, fewer.stderr.count("\n")) == (2, 1)
    forced = cli("run", scenario, "--no-report", "--law", "pi", "--seeds", 1, "--force")
    assert forced.returncode == 0, forced.stderr
    assert len(json.loads((out / "metrics.json").read_text())["runs"]) == 2
    # One of a version without digests is known as a result, and replaced only by its own command.
    former = json.loads((out / "metrics.json").read_text())
    del former["digest"]
    (out / "metrics.json").write_text(json.dumps(former))
    refused = cli("run", scenario, "--no-report", "--seeds", 1)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "of a former version" in refused.stderr and "--force" in refused.stderr


def test_identical_runs_have_identical_files(cli: Cli, scenario: Path) -> None:
    outs = [scenario.parent / name for name in ("a", "b")]
    for out in outs:
        assert cli("run", scenario, "--out", out).returncode == 0
    for name in names(outs[0]):
        if name not in ("costs.json", "figures"):
            assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes(), name
    costs = json.loads((outs[0] / "costs.json").read_text())
    assert costs["elapsed_s"] > 0
    assert [run["user_cpu_s"] >= 0 for run in costs["runs"]] == [True] * 8


def width(line: str) -> int:
    from rich.cells import cell_len

    return cell_len(line)


@pytest.mark.parametrize("columns", [120, 80, 60, 40, 24])
def test_a_table_fits_and_cuts_nothing(
    cli: Cli, scenario: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """A number that does not fit is left out whole, and its column is named."""
    monkeypatch.setenv("COLUMNS", str(columns))
    text = scenario.read_text().replace(
        'kind   = "droptail"', 'kind = "droptail"\nlabel = "a queue"'
    )
    scenario.write_text(text)
    done = cli("run", scenario, "--no-report", "--set", "traffic.0.flows=20")
    assert done.returncode == 0, done.stderr
    table = done.stdout.partition("mean ± half")[0]
    assert max(map(width, table.splitlines())) <= columns
    result = forebay.run(scenario, overrides=["traffic.0.flows=20"])
    left_out = " ".join(table.split()).partition("because the terminal is too narrow:")[2]
    for name in result.compared():
        metric = run_metrics.METRICS[name]
        for law in range(2):
            cell = result.cell_at(0, law, name)
            number = run_metrics.with_interval(
                metric.scale * cell.mean, metric.scale * cell.half_width
            )
            assert number == "–" or (number in table) != (metric.title in left_out), name
    for first in ("pi", "a queue", "Goodput", "Delay,"):
        assert first in table
        assert first not in left_out
    assert ("Columns omitted" in table) == (columns in (80, 60, 40))


MAP = ["map", "pi", "--rate", "15Mbit/s", "--flows", "15..60", "--rtt", "50..200ms"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["doctor"], "looking at this machine"),
        ([*MAP, "--points", 8, "--simulate", 1], "finding where the loop is stable"),
    ],
    ids=["doctor", "map"],
)
def test_a_long_command_shows_its_progress(
    tmp_path: Path, arguments: list[object], said: str
) -> None:
    done = subprocess.run(
        ["script", "-qec", shlex.join(command(*arguments)), "/dev/null"],
        cwd=tmp_path,
        env={**os.environ, "TERM": "xterm"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said in done.stdout, done.stdout


@pytest.mark.parametrize("columns", [80, 40])
def test_a_terminal_has_its_width(scenario: Path, columns: int) -> None:
    """A real terminal, whose width the kernel knows."""
    line = f"stty cols {columns}; exec {shlex.join(command('run', scenario, '--no-report'))}"
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"TERM": "xterm"}
    done = line_on_a_terminal(line, cwd=scenario.parent, env=environment)
    assert done.returncode == 0
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", done.stdout).replace("\r", "")
    table = shown.partition("Two laws")[2].partition("mean ± half")[0]
    assert "Goodput" in table
    assert max(map(width, table.splitlines())) <= columns
    assert "droptail" in table


@pytest.mark.parametrize(
    ("arguments", "lines"), [(["run", "-", "--seeds", 1], 4), (["fluid", "-", "--law", "pi"], 2)]
)
def test_standard_input_is_a_scenario(scenario: Path, arguments: list[object], lines: int) -> None:
    done = subprocess.run(
        command(*arguments, "--json"),
        input=scenario.read_text(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(runs(done.stdout)) == lines


def test_an_endless_scenario_file_is_refused(cli: Cli) -> None:
    done = cli("run", "/dev/zero")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "error: /dev/zero: larger than 16 MiB; a scenario is a short file in TOML"
    )


def test_too_many_samples_are_refused_in_total(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "free_bytes", lambda: 1e9)
    read = experiment.read(scenario, overrides=["sample=1us"], seeds=10)
    with pytest.raises(forebay.ScenarioError) as refused:
        execution.execute(read, 2)
    line = str(refused.value)
    assert line.startswith('sample: "1us" makes about 18.5 GB of samples in 40 runs, and ')
    # The proposed value fits, and a slightly larger one does not.
    finer = line.split("for example ")[1].split(" or ")[0]
    fits = experiment.read(scenario, overrides=[finer], seeds=10)
    execution.check_memory(fits.plan, 2, samples=True)
    other = experiment.read(scenario, overrides=["sample=20us"], seeds=10)
    with pytest.raises(forebay.ScenarioError, match="or 8 seeds"):
        execution.check_memory(other.plan, 2, samples=True)
    execution.check_memory(other.plan, 2, samples=False)


def closed(scenario: Path, redirection: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = f"{shlex.join(command('run', scenario, *options))} {redirection}"
    return subprocess.run(
        ["bash", "-c", line], cwd=scenario.parent, capture_output=True, text=True, check=False
    )


def test_without_standard_output_nothing_runs(scenario: Path) -> None:
    done = closed(scenario, ">&-")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "standard output is closed" in done.stderr
    assert names(scenario.parent) == ["two.toml"]


def test_without_standard_error_it_runs(scenario: Path) -> None:
    done = closed(scenario, "2>&-", "--no-report")
    assert done.returncode == 0
    assert "Tables: results/two" in done.stdout
    assert names(scenario.parent / "results" / "two") == sorted(TABLES + DIFFERENCES)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "two.toml", "--out", ""], '--out: "" is not valid; expected a path'),
        (["run", "two.toml", "--out="], '--out: "" is not valid; expected a path'),
        (["suite", "rfc7928", "--page", ""], '--page: "" is not valid; expected a path'),
        (
            ["run", "two.toml", "--law", "pike"],
            '--law: "pike" is not valid; expected one of pi, droptail, red, ',
        ),
        (
            ["run", "two.toml", "--aqm", "pike"],
            '--law: "pike" is not valid; expected one of pi, droptail, red, ',
        ),
        (
            ["run", "two.toml", "--seeds", "0"],
            "--seeds: 0 is not valid; expected a value from 1 to 10000\n",
        ),
        (
            ["laws", "pie", "pike"],
            'NAME: "pike" is not valid; expected one of droptail, ',
        ),
    ],
)
def test_an_option_is_named_once(cli: Cli, scenario: Path, arguments: list[str], line: str) -> None:
    done = cli(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {line}"), done.stderr
    assert names(scenario.parent) == ["two.toml"]


def test_a_sweep_of_a_law_that_does_not_run_is_refused(cli: Cli, scenario: Path) -> None:
    text = SCENARIO.split("[sweep]")[0]
    scenario.write_text(f'{text}[sweep]\n"law.pi.target" = ["20p", "40p"]\n')
    done = cli("run", scenario, "--law", "red")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert (
        "sweep.law.pi.target: the law of this key does not run; expected a law that runs, or "
        "--set law.pi.target=VALUE, which replaces the sweep\n"
    ) in done.stderr
    assert cli("run", scenario, "--law", "red", "--set", "law.pi.target=30p").returncode == 0
    # Beside a law that runs, the others are the same at every point.
    both = cli("run", scenario, "--law", "pi", "--law", "red", "--seeds", 1, "--out", "both")
    assert both.returncode == 0, both.stderr


def test_a_value_that_is_swept_twice_is_refused(cli: Cli, scenario: Path) -> None:
    scenario.write_text(SCENARIO.replace("[5, 20]", "[5, 5]"))
    done = cli("run", scenario)
    assert (done.returncode, done.stdout) == (2, "")
    assert "sweep.traffic.0.flows: 5 occurs twice; expected each value once\n" in done.stderr


@pytest.mark.parametrize("name", ["", "run", "link", "suite"])
def test_help_is_short_for_h_and_flags_take_no_value(cli: Cli, name: str) -> None:
    short = cli(*filter(None, [name]), "-h")
    assert (short.returncode, short.stdout) == (0, cli(*filter(None, [name]), "--help").stdout)
    assert "<bool>" not in short.stdout


def test_some_laws(cli: Cli) -> None:
    done = cli("laws", "pi", "red")
    assert done.returncode == 0
    assert "max_p" in done.stdout
    assert "PI-PD" not in done.stdout
    assert [law["name"] for law in json.loads(cli("laws", "--json", "pi").stdout)] == ["pi"]
    assert "flows" in cli("queues", "fq").stdout


def test_one_name_of_an_option_is_as_good_as_the_other(cli: Cli, scenario: Path) -> None:
    both = [cli("run", scenario, name, "red", "--json").stdout for name in ("--law", "--aqm")]
    for text in both:
        assert {line["law"] for line in runs(text)} == {"red"}
    assert "--aqm, --law" in cli("link", "--help").stdout
