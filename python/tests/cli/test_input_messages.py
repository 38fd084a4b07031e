"""What is said of an input that is wrong, or of a result that may mislead: each once told badly."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import Cli, one_bottleneck, table

import forebay
from forebay.experiment import descriptions
from forebay.scenario import names

LINK = one_bottleneck(("2s", "6s"), "20Mbit/s", "400p")
PI = table("law", kind="pi")


def flows(tcp: str, **keys: object) -> str:
    more = {"packet": "1500B", "tcp": tcp} | keys
    return table("traffic", kind="ftp", label="them", flows=4, rtt="20ms", **more)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("run", "F", "--set", "traffic.0.flows=1e9"),
            "--set: traffic.0.flows: 1000000000 is not valid; expected a value from 1 to 5000000\n",
        ),
        (
            ("map", "pi", "--rate", "9Mbit/s", "--flows", "2..9", "--rtt", "10"),
            '--rtt: "10" is not a range; expected a range here or in --rate\n',
        ),
        (
            ("init", "--law", "nolaw", "-"),
            '--law: "nolaw" is not valid; expected one of droptail, red, pi, ',
        ),
        (
            ("init", "--buffer", "5x", "-"),
            '--buffer: "5x" is not valid; expected a whole number of packets, such as "800p" (',
        ),
        (
            ("init", "nowhere/x.toml"),
            'FILE: "nowhere/x.toml": no such file or directory; expected a ',
        ),
        (
            ("study", "F", "--until", "2%"),
            '--until: "2%" is not valid; expected a goal such as ci95=2% (',
        ),
        (
            ("study", "F", "--until", "ci95=2%,goodput"),
            '--until: "goodput" is not valid; expected one of queue_mean_pkts, ',
        ),
        (
            ("suite", "rfc7928", "--scenario", "5-1-friend"),
            '--scenario: "5-1-friend" is not valid; expected one of 4-5-dctcp, ',
        ),
        (
            ("explain", "zz"),
            'NAME: "zz" is not valid; expected a key of a scenario, a parameter, an option, ',
        ),
    ],
)
def test_wrong_input_is_refused_in_one_line(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "F").write_text(LINK + flows("reno") + PI)
    done = cli(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith(f"error: {said}"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("study", "F", "--until", "ci95=2%,goodput"), "goodput_bps"),
        (("suite", "rfc7928", "--scenario", "5-1-friend"), "5-1-friendly"),
        (("laws", "pike"), "pie"),
    ],
)
def test_a_misspelt_name_brings_the_similar_one(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], name: str
) -> None:
    (tmp_path / "F").write_text(LINK + flows("reno") + PI)
    done = cli(*arguments)
    assert done.stderr.endswith(f' (did you mean "{name}"?)\n'), done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"title = 'caf\xe9'\n", "is no text"),
        (b"[package]\nname = 'x'\n", "not a scenario; expected a scenario file, with a table ["),
        (b"", "not a scenario; expected a scenario file, with a table [bottleneck] or [[link]]"),
    ],
)
def test_a_file_that_is_no_scenario_is_not_cited(
    cli: Cli, tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "F.toml").write_bytes(content)
    done = cli("cite", "F.toml")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith(f"error: F.toml: {said}"), done.stderr


def test_a_step_of_the_environment_is_named_as_its_argument() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    import forebay.env.gym

    with pytest.raises(forebay.ScenarioError, match=r'^step: "1h" is not valid; expected '):
        gymnasium.make("forebay-v0", step="1h")


def test_a_whole_number_may_be_written_as_a_float() -> None:
    text = LINK + flows("reno") + PI
    result = forebay.run(text, overrides=["traffic.0.flows=2e1", "seeds=1"])
    assert result.plan.points[0].traffic[0].flows == 20


def test_a_file_that_is_set_may_be_named_as_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(names.path("arrivals/uplink").with_name("uplink.pcap"), "mine.pcap")
    overrides = ["traffic.0.file=mine.pcap", "seeds=1"]
    assert forebay.run("arrivals/uplink", laws=["pi"], overrides=overrides).runs
    overrides = ["traffic.0.file=yours.pcap"]
    with pytest.raises(
        forebay.ScenarioError, match=r'file: "yours.pcap" is not valid; expected a readable file, '
    ):
        forebay.run("arrivals/uplink", overrides=overrides)


def warnings(tcp: str, ecn: bool | str, law: str = "pi", link: str = "") -> list[str]:
    text = LINK + link + flows(tcp, ecn=ecn) + table("law", kind=law)
    return [said for said, _ in descriptions.warnings(forebay.run(text, seeds=1))]


@pytest.mark.parametrize("tcp", ["prague", "dctcp"])
def test_senders_that_need_marks_are_warned_of(tcp: str) -> None:
    told = [said for said in warnings(tcp, False) if said.startswith("them: its packets")]
    # DCTCP asks for ECN in any case.
    assert len(told) == (tcp == "prague")
    assert all(f"{tcp} responds only to drops, like reno" in said for said in told)
    assert not any(said.startswith("them: ") for said in warnings(tcp, True))
    unmarked = warnings(tcp, True, link="ecn = false\n")
    assert any(said.startswith("them: no link marks") for said in unmarked)
    assert not any(said.startswith("them: ") for said in warnings("linux-cubic", False))


def test_a_set_point_of_classic_flows_is_not_missed_by_others() -> None:
    """Flows of L4S wait in a queue of their own."""
    missed = [said for said in warnings("prague", "l4s", "dualpi2") if "set-point" in said]
    assert missed == []


def test_letters_of_the_output_are_explained(cli: Cli) -> None:
    for letter, meaning in (
        ("S", "Sensitivity peak: the largest |1/(1 + L)|"),
        ("N", "Number of long-lived flows"),
    ):
        done = cli("explain", letter)
        assert done.returncode == 0
        assert meaning in done.stdout
        assert "metric." not in done.stdout


def test_a_law_is_explained_with_its_defaults_and_neighbours(cli: Cli) -> None:
    said = " ".join(cli("explain", "codel").stdout.split())
    assert "defaults target=5ms, interval=100ms" in said
    assert "similar laws fq-codel" in said


def test_laws_are_a_line_each_and_whole_where_they_are_named(cli: Cli) -> None:
    done = cli("laws")
    lines = done.stdout.splitlines()
    for name in ("pi", "red", "codel", "droptail"):
        assert sum(line.startswith(f"{name} ") for line in lines) == 1
    assert "interval" not in done.stdout
    assert (
        "Try it:  forebay run FILE --law pie --set law.pie.target=15ms" in cli("laws", "pie").stdout
    )
    assert "--law droptail\n" in cli("laws", "droptail").stdout
