"""What helps a user on the way: `init`, `explain`, `cite`, and completion in the shell."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import Cli

from forebay import _native
from forebay.experiment import experiment
from forebay.guide import cite, explain, starter


def test_a_starter_runs_as_it_is(cli: Cli, tmp_path: Path) -> None:
    assert cli("init", "first.toml").returncode == 0
    text = (tmp_path / "first.toml").read_text()
    assert max(map(len, text.splitlines())) <= 100
    short = ("--set", "duration=2s", "--set", 'measure=["1s", "2s"]', "--seeds", "1")
    done = cli("run", "first.toml", *short, "--json")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3), done.stderr


def test_a_starter_has_the_link_that_was_asked_for(cli: Cli) -> None:
    link = ["--rate", "5Mbit/s", "--rtt", "30ms", "--flows", "7", "--buffer", "50p"]
    done = cli("init", "-", *link, "--law", "pie", "--law", "red")
    assert done.returncode == 0, done.stderr
    tables = tomllib.loads(done.stdout)
    assert tables["bottleneck"]["rate"] == "5Mbit/s"
    assert tables["bottleneck"]["buffer"] == "50p"
    assert (tables["traffic"][0]["flows"], tables["traffic"][0]["rtt"]) == (7, ["30ms"])
    assert [law["kind"] for law in tables["law"]] == ["pie", "red"]


def test_a_commented_key_has_its_default() -> None:
    """Taking the # away changes nothing."""
    text = starter.scenario("x.toml").text
    keys = [line for line in text.splitlines() if line.startswith(("# sample =", "# ecn ="))]
    assert '# sample = "10ms"' in keys
    assert "# ecn = true" in keys


def test_a_file_that_is_there_stays(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("mine")
    again = cli("init", "mine.toml")
    assert again.returncode == 2 and "mine.toml" in again.stderr and "--force" in again.stderr
    assert (tmp_path / "mine.toml").read_text() == "mine"
    assert cli("init", "mine.toml", "--force").returncode == 0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--rate", "fast"],
            '--rate: "fast" is not valid; expected a rate with its unit, such as "45Mbit/s" (',
        ),
        (["--law", "rad"], '--law: "rad" is not valid; expected one of droptail, red, pi, '),
        (
            ["--rtt", "5"],
            '--rtt: "5" is not valid; expected a time with its unit, such as "15ms" (',
        ),
    ],
)
def test_a_bad_option_writes_nothing(
    cli: Cli, tmp_path: Path, options: list[str], line: str
) -> None:
    done = cli("init", *options)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {line}"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "my-link.toml").exists()


def test_every_declared_name_is_explained() -> None:
    paths = [entry.path for entry in explain.entries()]
    assert len(paths) == len(set(paths))
    for law in _native.laws():
        for param in law["params"]:
            (found,) = explain.find(f"law.{law['name']}.{param['name']}")
            assert param["doc"] == found.meaning
    ends = {path.rpartition(".")[2] for path in paths}
    keys = _native.keys()
    assert {key["name"] for key in keys} <= ends
    assert {metric["name"] for metric in _native.metrics()} <= ends


def test_a_single_word_finds_all_that_have_it(cli: Cli) -> None:
    found = [entry.path for entry in explain.find("target")]
    assert {"target", "law.pi.target", "law.codel.target"} <= set(found)
    # An option, with its dashes, too.
    assert "link.--mtu" in [entry.path for entry in explain.find("--mtu")]
    shown = cli("explain", "bottleneck.rate").stdout
    assert "bit/s" in shown
    assert "forebay run FILE --set bottleneck.rate=" in shown


def test_a_key_is_explained_as_it_is_set(cli: Cli) -> None:
    for key in ("traffic.ftp.flows", "traffic.0.flows"):
        assert cli("explain", key).stdout.startswith("traffic.flows"), key
    refused = cli("explain", "traffic.ftp.flaws").stderr
    assert refused.startswith(
        'error: NAME: "traffic.ftp.flaws" is not valid; expected a key of a scenario, '
    )


def test_facts_stay_within_their_column(cli: Cli) -> None:
    lines = cli("explain", "law.dualpi2").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    (least,) = (line for line in lines if "least_backlog" in line)
    assert least.startswith(" " * 12)


def test_an_unknown_name_gets_near_ones(cli: Cli) -> None:
    done = cli("explain", "bufer")
    assert done.returncode == 2
    assert done.stderr.startswith(
        'error: NAME: "bufer" is not valid; expected a key of a scenario, '
    )
    assert done.stderr.endswith("?)\n") and '"buffer"' in done.stderr.rpartition("(did you")[2]


def test_the_example_of_a_parameter_is_taken() -> None:
    """`--set` with the default of a parameter changes nothing, and is no error."""
    text = starter.scenario("x.toml", buffer="2000p", laws=["droptail"]).text
    tried = 0
    for entry in explain.entries():
        law, _, setting = entry.example.partition(" --law ")[2].partition(" --set ")
        if setting and '"' not in setting:
            key, _, value = setting.partition("=")
            experiment.read(text, laws=[law], overrides=[f"{key}={value}"])
            tried += 1
    assert tried > 50


def test_every_law_queue_and_sender_has_a_source() -> None:
    named = {name for it in cite.references() for name in it.of}
    tables = (_native.laws(), _native.queues(), _native.senders())
    declared = {entry["name"] for table in tables for entry in table}
    assert declared <= named, (
        "python/forebay/guide/references.toml must have an entry whose `of` names "
        f"{sorted(declared - named)}"
    )
    # What is no kind of traffic is a misspelt name.
    assert named - declared <= {"voice", "video"}


def test_cited_entries_are_bibtex(cli: Cli, tmp_path: Path) -> None:
    done = cli("cite", "pi-pd", "fq-codel")
    assert done.returncode == 0
    entries = done.stdout.split("\n@")[1:]
    assert [entry.partition("{")[0] for entry in entries] == [
        "software",
        "article",
        "techreport",
    ]
    for entry in entries:
        assert entry.count("{") == entry.count("}")
    assert "RFC 8290" in done.stdout


def test_a_folder_of_results_is_cited_with_its_runs(cli: Cli, scenario: Path) -> None:
    assert cli("run", scenario.name, "--seeds", "1", "--out", "r", "--no-report").returncode == 0
    done = cli("cite", "r")
    first = done.stdout.splitlines()[0]
    assert first.startswith("% 4 runs of Forebay")
    assert "repeat with: forebay run" in first
    assert "hollot2002pi" in done.stdout
    assert cli("cite", str(Path(__file__).parent)).returncode == 2
    assert cli("cite", scenario.name).stdout.count("@") == done.stdout.count("@")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("forebay ru", "run"),
        ("forebay run x.toml --law pi-", "pi-pd"),
        ("forebay run x.toml --set bottleneck.ra", "bottleneck.rate="),
        ("forebay explain law.pi.ta", "law.pi.target"),
        ("forebay cite fq-c", "fq-codel"),
    ],
)
def test_the_shell_completes(words: str, offered: str) -> None:
    env = {
        **os.environ,
        "_FOREBAY_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    forebay = Path(sys.executable).with_name("forebay")
    done = subprocess.run([forebay], env=env, capture_output=True, text=True, check=True)
    assert offered in done.stdout.split()
