"""What new users met: words that a command did not know, and answers where there was nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Cli

from forebay.guide import explain


@pytest.mark.parametrize("at", ["30", "59.5"])
def test_a_step_where_nothing_steps_is_refused(cli: Cli, scenario: Path, at: str) -> None:
    """It printed half times and periods of a queue that nothing had disturbed."""
    options = ["--set", "duration=80s", "--compare", "--step-at", at]
    done = cli("fluid", scenario.name, *options)
    assert done.returncode == 2
    said = f"--step-at: nothing changes at {float(at):g} s; the scenario has no step"
    assert done.stderr.startswith(f"error: {said}")
    assert done.stderr.count("\n") == 1
    text = scenario.read_text()
    change = '[[at]]\ntime = "50s"\nset = { "bottleneck.rate" = "5Mbit/s" }\n'
    scenario.write_text(text + change)
    done = cli("fluid", scenario.name, *options)
    assert done.returncode == 2
    assert "steps are at 50 s" in done.stderr


def test_a_result_cites_its_senders(cli: Cli, scenario: Path) -> None:
    text = scenario.read_text().replace('kind   = "ftp"', 'kind = "ftp"\ntcp = "cubic"')
    # A label is no name of a law.
    scenario.write_text(text.replace('kind   = "pi"', 'kind = "pi"\nlabel = "mine"'))
    done = cli("run", scenario.name, "--no-report", "--out", "kept")
    assert done.returncode == 0, done.stderr
    cited = cli("cite", "kept").stdout
    assert "rfc9438" in cited  # CUBIC
    of_file = cli("cite", scenario.name).stdout
    keys = {line for line in of_file.splitlines() if line.startswith("@")}
    assert keys <= set(cited.splitlines())


def test_a_set_point_in_time_has_no_range_in_packets(cli: Cli) -> None:
    (row,) = (
        line for line in cli("laws", "codel").stdout.splitlines() if line.startswith("target ")
    )
    assert "a time, or " in row
    (row,) = (line for line in cli("laws", "pi").stdout.splitlines() if line.startswith("target "))
    assert "a time" not in row


@pytest.mark.parametrize(
    ("heading", "path"),
    [
        ("Delay, 95th pct.", "metric.delay_p95_s"),
        ("Delay, 95th pct. [ms]", "metric.delay_p95_s"),
        ("goodput [Mbit/s]", "metric.goodput_bps"),
        ("Jain", "metric.jain"),
        ("Half way [s]", "term.half-way"),
        ("set-point", "term.set-point"),
    ],
)
def test_explain_knows_the_headings_of_tables(heading: str, path: str) -> None:
    assert explain.find(heading)[0].path == path
