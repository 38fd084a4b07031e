"""Experiments by name: found from anywhere, with a file of that name here before them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import SCENARIO, Cli

import forebay
from forebay.campaign import claims
from forebay.experiment import experiment
from forebay.scenario import names

ROOT = Path(__file__).parents[3] / "experiments"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_scenario_of_the_checkout_has_a_name(here: Path) -> None:
    known = names.scenarios()
    files = {path for path in ROOT.glob("*/*.toml") if b"[bottleneck]" in path.read_bytes()}
    assert len(files) > 30
    assert set(known.values()) == files
    assert all(names.path(name) == file for name, file in known.items())


@pytest.mark.parametrize(
    "name",
    ["pi-pd/load", "pi-pd/load.toml", "experiments/pi-pd/load.toml", "experiments/pi-pd/load"],
)
def test_an_experiment_has_several_spellings(here: Path, name: str) -> None:
    assert names.path(name) == ROOT / "pi-pd" / "load.toml"
    assert experiment.read(name).plan.title == "PI-PD: control performance under three loads"
    assert names.stem(name) == "pi-pd-load"


def test_files_in_the_folder_of_an_experiment_are_read(here: Path) -> None:
    assert list(experiment.read("arrivals/uplink").files) == ["uplink.pcap"]


def test_the_working_directory_comes_before_the_package(here: Path) -> None:
    mine = here / "experiments" / "pi-pd"
    mine.mkdir(parents=True)
    (mine / "load.toml").write_text(SCENARIO)
    assert experiment.read("pi-pd/load").plan.title == "Two laws, two loads"
    # A folder here hides the whole folder of that name, and no other.
    assert next(iter(names.scenarios())) == "pi-pd/load"
    assert "pi-pd/varying" not in names.scenarios()
    assert "staqm/constant" in names.scenarios()
    # A file of that very name comes before both.
    (here / "pi-pd").mkdir()
    (here / "pi-pd" / "load").write_text(SCENARIO.replace("Two laws", "No name"))
    assert experiment.read("pi-pd/load").plan.title == "No name, two loads"
    assert names.stem("pi-pd/load") == "load"


def test_own_papers_are_listed_with_those_of_the_package(here: Path) -> None:
    folder = here / "experiments" / "mine"
    folder.mkdir(parents=True)
    (folder / "one.toml").write_text(SCENARIO)
    (folder / "one.claims.toml").write_text("")
    found = [paper.name for paper in claims.papers()]
    assert found == sorted(found)
    assert {"mine", "pd-red", "staqm"} <= set(found)


def test_our_own_files_are_called_the_same_everywhere(here: Path) -> None:
    shown = names.shown(ROOT / "pi-pd" / "load.toml")
    assert shown == "experiments/pi-pd/load.toml"
    assert names.path(shown) == ROOT / "pi-pd" / "load.toml"
    assert names.shown(here / "a.toml") == str(here / "a.toml")


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("pi-pd", "such as pi-pd/load, pi-pd/longer-rtt, pi-pd/varying"),
        ("pi-pd/laod", "such as pi-pd/load"),
        ("longer-rtt", "such as pi-pd/longer-rtt"),
        ("nothing.toml", "of `forebay experiments`"),
        ("../pi-pd/load", "such as pi-pd/load"),
    ],
)
def test_an_unknown_name_brings_those_that_are_meant(here: Path, name: str, allowed: str) -> None:
    with pytest.raises(forebay.ScenarioError) as caught:
        experiment.read(name)
    assert str(caught.value).startswith(f"{name}: no such file")
    assert allowed in str(caught.value)


def test_the_command_lists_and_prints(cli: Cli) -> None:
    listed = cli("experiments", "--json")
    entries = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [entry["name"] for entry in entries] == list(names.scenarios())
    assert all(Path(entry["file"]).is_file() and entry["title"] for entry in entries)
    table = cli("experiments", "pi-pd")
    assert "pi-pd/varying" in table.stdout and "staqm" not in table.stdout
    printed = cli("experiments", "pi-pd/load")
    assert printed.stdout == (ROOT / "pi-pd" / "load.toml").read_text()
    wrong = cli("experiments", "pi-pd/laod")
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1 and "pi-pd/load" in wrong.stderr
