"""`forebay design`, `forebay map` and `forebay figure`, as others call them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import Cli, command

from forebay import run
from forebay.campaign.claims import figures
from forebay.control.design import design
from forebay.control.link import Link
from forebay.control.plant import REASONS

LINK = ["--rate", "15Mbit/s", "--packet", "500B", "--flows", "60", "--rtt", "200ms"]


def test_design_prints_one_object(cli: Cli, tmp_path: Path) -> None:
    done = cli("design", "pi", *LINK, "--target", "175p", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["gains"]["a"] == pytest.approx(7.853e-5, rel=1e-3)
    assert found["gains"]["b"] == pytest.approx(7.827e-5, rel=1e-3)
    assert found["operating_point"]["rtt_s"] == pytest.approx(0.2 + 175 / 3750)
    assert found["operating_point"]["window_pkts"] == pytest.approx(15.42, abs=0.01)
    assert found["operating_point"]["probability"] == pytest.approx(2 / 15.4167**2, rel=1e-4)
    assert found["margins"]["phase_deg"] == pytest.approx(34.4, abs=0.1)
    assert found["margins"]["gain_db"] == pytest.approx(6.05, abs=0.05)
    assert found["margins"]["delay_s"] == pytest.approx(0.296, abs=0.002)
    assert found["crossover_rad_s"] == pytest.approx(0.5 / (0.2 + 175 / 3750), rel=1e-3)
    assert found["stable"] is True
    assert list(tmp_path.iterdir()) == []


def test_a_set_point_may_be_a_delay(cli: Cli) -> None:
    """40 ms are 150 packets of 500 bytes at 15 Mbit/s."""
    printed = [
        cli("design", "pi", *LINK, *more, "--json").stdout
        for more in [["--target", "150p"], ["--target", "40ms"], ["--set", "target=40ms"]]
    ]
    assert json.loads(printed[0])["operating_point"]["queue_pkts"] == 150
    assert printed == [printed[0]] * 3
    assert "175p or 40ms" in " ".join(cli("design", "--help").stdout.split())


def test_a_map_takes_a_set_point_that_is_a_delay(cli: Cli, tmp_path: Path) -> None:
    gains = ["--set", "a=7.853e-5", "--set", "b=7.827e-5"]
    link = ["--rate", "15Mbit/s", "--packet", "500B", "--flows", "10..400", "--rtt", "20..500ms"]
    tables = []
    for target in ("150p", "40ms"):
        simulate = "0" if target == "150p" else "1"
        done = cli(
            *["map", "pi", *link, *gains, "--set", f"target={target}", "--points", "20"],
            *["--simulate", simulate, "--out", target],
        )
        assert done.returncode == 0, done.stderr
        tables.append(pl.read_parquet(tmp_path / target / "map.parquet"))
    assert tables[0].equals(tables[1])


@pytest.mark.parametrize(
    "law", ["pi", "pid", "pi-pd", "pi-avg", "red", "ared", "pd-red", "rem", "stpi", "stred", "avq"]
)
def test_the_designed_scenario_runs(tmp_path: Path, law: str) -> None:
    path = tmp_path / "made.toml"
    # No alpha makes the loop of rates stable here, and only one that is given is taken.
    overrides = {"alpha": 0.15} if law == "avq" else {}
    path.write_text(
        design(law, Link("15Mbit/s", "200ms", flows=60, packet="500B"), overrides=overrides).toml()
    )
    result = run(path, overrides={"duration": "6s", "measure": ["2s", "6s"]})
    assert result.runs[0].metrics["utilisation"] > 0.5


def test_gains_that_cut_the_probability_at_zero_are_named(cli: Cli, tmp_path: Path) -> None:
    # With these gains docs/evidence/reality-realtime.md has PI at 43 packets; with beta=0.25,
    # docs/reference/link.md has it at 49.
    link = shlex.split("--rate 15Mbit/s --packet 1500B --rtt 60ms --flows 10 --target 50p")
    said = [
        "will settle below the target" in " ".join(cli("design", law, *link, *more).stdout.split())
        for law, *more in [["pi"], ["pid"], ["pi", "--set", "beta=0.25"], ["pi-avg"]]
    ]
    assert said == [True, True, False, False]


def test_design_writes_nothing_without_out(cli: Cli, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    for flows in ("60", "40..80"):
        link = ["--rate", "15Mbit/s", "--packet", "500B", "--flows", flows, "--rtt", "200ms"]
        done = cli("design", "pi", *link)
        assert done.returncode == 0, done.stderr
        assert "add --out DIR" in done.stdout.replace("Add", "add")
        assert 'kind = "pi"' in done.stdout.replace("     ", " ").replace("  ", " ")
    assert sorted(tmp_path.rglob("*")) == before


def test_the_printed_commands_run(cli: Cli, tmp_path: Path) -> None:
    done = cli("design", "pi", *LINK, "--target", "175p", "--out", "designed")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "designed"
    written = {path.name for path in out.iterdir()}
    assert written == {
        "pi.toml",
        "design.json",
        "bode.png",
        "step.png",
        "nyquist.png",
        "nichols.png",
        "roots.png",
    }
    assert all((out / name).stat().st_size > 5000 for name in written if name.endswith(".png"))
    assert "phase margin" in done.stdout
    printed = done.stdout[done.stdout.index("[[law]]") : done.stdout.index("To use it:")]
    (law,) = tomllib.loads(printed)["law"]
    assert (law["kind"], law["target"]) == ("pi", "175p")
    whole = done.stdout.replace("\\\n", "")
    commands = [line.strip() for line in whole.splitlines() if "   forebay " in line]
    assert len(commands) == 3
    short = ["--set", "duration=3s", "--set", 'measure=["1s","3s"]', "--no-report"]
    for line in commands:
        words = shlex.split(line)[1:]
        more = short if words[0] == "run" else ["--points", "10", "--simulate", "0"]
        ran = cli(*words, *more)
        assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pj", *LINK], "law"),
        (["pi", *LINK, "--target", "many"], "--target"),
        (["pi", *LINK, "--target", "0s"], '--target: "0s" is not valid; expected more than zero'),
        (["pi", *LINK, "--target", "-5p"], '--target: "-5p" is not valid; expected more than zero'),
        (["pi", *LINK, "--buffer", "3p"], '--buffer: "3p" is not valid; expected at least "188p"'),
        (
            ["pi", *LINK, "--export", "x.foo"],
            '--export: "x.foo" is not valid; expected a file that ends in .mat',
        ),
        (["pi", *LINK, "--export", "no/x.mat"], '--export: "no/x.mat": no such file'),
        (
            ["pi", *LINK, "--from", "none"],
            '--from: "none": no such file or directory; expected a file of',
        ),
        (["pi", *LINK, "--flows", "inf"], "--flows: inf is not valid; expected a finite number"),
        (
            ["dualpi2", *LINK, "--l4s-flows", "5000"],
            "--l4s-flows: 5000: with 60 classic flows",
        ),
        (["pi", *LINK, "--flows", "20..60", "--set", "k=1"], 'only "target" and "interval" can'),
        (
            ["pi", *LINK[:-4], "--flows", "20..60", "--rtt", "9..20ms,80ms"],
            '--rtt: "9..20ms,80ms"',
        ),
        (["pi", *LINK, "--target", "1s", "--buffer", "800p"], "--target"),
        (["pi", *LINK, "--target", "900p", "--buffer", "800p"], "--target"),
        (["pi", *LINK, "--set", "beta=2"], "beta"),
        (
            ["pi", *LINK, "--set", "bta=0.2"],
            '"bta": pi has no such goal or parameter; expected one of beta, target, ',
        ),
        (["pi", *LINK, "--set", "beta"], "KEY=VALUE"),
        (["pi", "--rate", "15", "--flows", "60", "--rtt", "200ms"], "rate"),
        (["pi", "--rate", "15Mbit/s", "--flows", "0", "--rtt", "200ms"], "--flows"),
        (["pi", "--rate", "1Mbit/s", "--flows", "500", "--rtt", "20ms"], "--flows"),
        (["pi", *LINK[:-4], "--flows", "x"], '--flows: "x" is not valid; expected a number'),
        (["droptail", *LINK], "nor a linear model; expected red, pi, pid, pi-pd,"),
    ],
)
def test_bad_input_gets_one_line(cli: Cli, tmp_path: Path, arguments: list[str], says: str) -> None:
    done = cli("design", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_explanation_of_one_flow_has_plain_numbers(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        *("design", "pi", "--rate", "10Gbit/s", "--flows", "1", "--rtt", "0.1ms"),
        *("--packet", "1500B", "--out", str(tmp_path / "made"), "--explain"),
    )
    said = " ".join(done.stdout.split())
    assert "1 flow with 0.1 ms of propagation has 833,333 packets per second" in said
    assert "of additional delay" in said
    assert "bear 0 ms" not in said


def test_map_writes_theory_and_simulation(cli: Cli, tmp_path: Path) -> None:
    gains = ["--set", "target=175p", "--set", "a=7.853e-5", "--set", "b=7.827e-5"]
    done = cli(
        *["map", "pi", "--rate", "15Mbit/s", "--packet", "500B", "--flows", "10..400"],
        *["--rtt", "20..500ms", "--buffer", "800p", *gains, "--points", "40"],
        *["--simulate", "2", "--out", "map"],
    )
    assert done.returncode == 0, done.stderr
    table = pl.read_parquet(tmp_path / "map" / "map.parquet")
    assert table.height == 1600
    # In the corner of many flows and short RTTs no probability is enough.
    known = table.drop_nulls()
    assert 1400 < known.height < 1600
    assert (known["stable"] == (known["gain_margin_db"] > 0)).all()
    assert 0.5 < known["stable"].mean() < 0.95  # type: ignore[operator]
    assert (tmp_path / "map" / "map.png").stat().st_size > 20_000
    rows = re.findall(r"^ +(\d+) +([\d.]+) +([\d.]+)  (\w+) +\S+ *$", done.stdout, re.MULTILINE)
    assert [row[3] for row in rows].count("unstable") in (1, 2)
    assert max(map(len, done.stdout.splitlines())) <= 80
    # The least stable of the four corners moves most.
    moved = [float(row[2]) for row in rows]
    assert len(moved) == 4
    assert moved[1] == max(moved)
    assert moved[1] > 2 * min(moved)


def test_an_unsuitable_default_set_point_is_named_as_the_laws_default(cli: Cli) -> None:
    done = cli("map", "pi", "--rate", "10Mbit/s", "--flows", "5..20", "--rtt", "20..80ms")
    assert (done.returncode, done.stdout) == (2, "")
    assert '"200p"' in done.stderr and "the default set-point of pi" in done.stderr


def test_a_map_as_json_is_one_object_and_no_file(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        *("map", "pi", "--rate", "20Mbit/s", "--flows", "10..160", "--rtt", "20..320ms"),
        *("--set", "target=60p", "--set", "a=5.146e-4", "--set", "b=5.051e-4"),
        *("--points", "6", "--simulate", "0", "--json"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["cells"] == 36 == sum(found["counts"].values())
    # p0 = 2(N/(C·T + 60))² reaches one in the corner of many flows and short paths alone.
    flows, rtts = np.geomspace(10, 160, 6), np.geomspace(0.02, 0.32, 6)
    needed = 2 * (flows[None, :] / (2500 * rtts[:, None] + 60)) ** 2
    assert found["counts"][f"no equilibrium: {REASONS['saturated']}"] == (needed >= 1).sum()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", [("--seeds", "3"), ("--step-at", "5")])
def test_an_option_that_requires_compare_is_refused_without_it(
    cli: Cli, tmp_path: Path, option: tuple[str, str]
) -> None:
    done = cli("fluid", "pi-pd/load", *option)
    assert done.returncode == 2
    assert f"{option[0]} requires --compare" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        (
            ["--rate", "5..50Mbit/s", "--rtt", "20..500ms"],
            "error: --rate and --rtt are both ranges",
        ),
        (["--rate", "5Mbit/s", "--rtt", "20ms"], 'error: --rtt: "20ms" is not a range'),
        (["--rate", "50..5Mbit/s", "--rtt", "20ms"], 'error: --rate: "50..5Mbit/s" is not valid'),
    ],
)
def test_a_map_has_one_more_range(cli: Cli, axes: list[str], says: str) -> None:
    done = cli("map", "pi", "--flows", "10..400", *axes)
    assert done.returncode == 2
    assert done.stderr.startswith(says)
    assert len(done.stderr.strip().splitlines()) == 1


def test_figures_are_named_and_drawn(cli: Cli, tmp_path: Path) -> None:
    listed = cli("figure")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(figures())
    assert cli("figure", "staqm-13").returncode == 2
    done = cli("figure", "staqm-11", "staqm-12", "pi-pd-3", "--out", "drawn")
    assert done.returncode == 0, done.stderr
    assert {path.stem for path in (tmp_path / "drawn").iterdir()} == {
        "staqm-11",
        "staqm-12",
        "pi-pd-3",
    }


def test_an_interrupted_map_is_kept_without_packets(tmp_path: Path) -> None:
    """Ctrl-C while packets run: theory is drawn, a line says what is missing, and so does the
    status. A terminal tells when they run."""
    words = ["--rate", "15Mbit/s", "--flows", "15..240", "--rtt", "50..800ms", "--points", "8"]
    ours, its = os.openpty()
    process = subprocess.Popen(
        command("map", "pi", *words, "--simulate", 20, "--no-store"),
        cwd=tmp_path,
        env={**os.environ, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=its,
    )
    os.close(its)
    shown = b""
    while b"running packets" not in shown:
        shown += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    with contextlib.suppress(OSError):
        while more := os.read(ours, 4096):
            shown += more
    os.close(ours)
    assert process.returncode == 130
    assert b"interrupted; the map has no packet simulations" in shown
    assert b"Map: results/map-pi/map.png" in out
    assert (tmp_path / "results/map-pi/map.parquet").exists()
