"""Warnings of loops that were measured before they had settled, or that missed their set-point."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import Cli, one_bottleneck

import forebay
from forebay import _native
from forebay._base import registries
from forebay.control.link import Link
from forebay.control.plants import plant_on
from forebay.experiment import descriptions
from forebay.experiment.result import Result

#: PI with the gains of the paper, which are for another link: it takes a minute to settle here.
SLOW = """
[[traffic]]
kind   = "ftp"
flows  = 60
packet = "500B"
rtt    = "200ms"

[[law]]
kind   = "pi"
target = "200p"
"""


def slow(start: str, duration: str, gains: str = "") -> str:
    return one_bottleneck((start, duration), "15Mbit/s", "750p", SLOW + gains, delay="10ms")


def result(start: str, duration: str, gains: str = "", seeds: int = 2, more: str = "") -> Result:
    return forebay.run(slow(start, duration, gains) + more, seeds=seeds)


def kinds(found: Result) -> list[str]:
    return [finding.kind for finding, _ in found.warnings]


def test_a_law_that_still_starts_is_named() -> None:
    early = result("7s", "15s", "a = 1e-6\nb = 9.9e-7")
    assert kinds(early) == ["trend", "missed", "short"]
    trend, missed, short = (text for text, _ in descriptions.warnings(early))
    assert trend.startswith("PI: not in steady state: the mean queue drifts from ")
    assert re.fullmatch(
        r"PI: missed its target by more than 25 %: mean queue \d+ packets, target 200 packets; its "
        r"gains do not suit this link\.",
        missed,
    )
    assert "by the linear model" in short
    assert "measurement begins after 7\N{NO-BREAK SPACE}s" in short
    shown = str(early)
    assert "warning: PI: not in steady state" in shown
    assert "\n    forebay design pi --rate 15Mbit/s --packet 500B" in shown
    assert "not in steady state" in early._repr_html_()


def test_a_settled_law_is_not() -> None:
    assert kinds(result("60s", "200s", "a = 1.822e-5\nb = 1.816e-5")) == []


def test_one_seed_is_enough_to_warn_of_a_trend() -> None:
    early = result("7s", "15s", "a = 1e-6\nb = 9.9e-7", seeds=1)
    assert "trend" in kinds(early)


def test_the_design_line_helps(cli: Cli, tmp_path: Path) -> None:
    """What a user does next: run the line, and take its gains."""
    gains = "a = 1e-6\nb = 9.9e-7"
    (line,) = [line for _, line in descriptions.warnings(result("7s", "15s", gains)) if line]
    done = cli(*line.split()[1:], "--out", "designed")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "designed" / "pi.toml").read_text()
    law = text.partition("[[law]]")[2]
    better = forebay.run(
        slow("30s", "90s").partition("[[law]]")[0] + "[[law]]" + law,
        seeds=2,
    )
    assert "missed" not in kinds(better)
    assert "trend" not in kinds(better)


def test_a_change_within_the_window_is_no_trend() -> None:
    step = '\n[[at]]\ntime = "40s"\nset = { "traffic.0.flows" = 120 }\n'
    assert "trend" not in kinds(result("20s", "60s", "", more=step))


def test_a_law_without_a_set_point_misses_none() -> None:
    text = slow("30s", "60s")
    laws = ["droptail", "codel"]
    assert "missed" not in kinds(forebay.run(text, laws=laws, seeds=2))


def test_a_sweep_names_each_fault_once() -> None:
    more = '\n[sweep]\n"traffic.0.flows" = [50, 60, 70]\n'
    early = result("7s", "15s", "a = 1e-6\nb = 9.9e-7", more=more)
    assert kinds(early) == ["trend", "missed", "short"]
    for text, _ in descriptions.warnings(early):
        assert text.startswith("PI at 50 ftp flows: ")
        assert "points)" in text


def test_the_time_to_settle_is_that_of_the_flows_sender() -> None:
    """CUBIC's windows are larger than Reno's here, and come back more slowly."""
    text = slow("4s", "12s", "a = 1.822e-5\nb = 1.816e-5")

    def short(tcp: str) -> float:
        sent = text.replace('"ftp"', f'"ftp"\ntcp = "{tcp}"').replace("= 60", "= 20")
        found = forebay.run(sent, seeds=1)
        said = [text for text, _ in descriptions.warnings(found) if "linear model" in text]
        return (
            _native.quantity("", said[0].split("settles in ")[1].partition(" by")[0], "time")
            if said
            else 0.0
        )

    settling_s = {}
    for tcp in ("reno", "cubic"):
        link = Link("15Mbit/s", "200ms", flows=20, packet="500B", buffer="750p", senders=tcp)
        params = [("target", "200p"), ("a", "1.822e-5"), ("b", "1.816e-5")]
        loop = plant_on(link, "pi", params).loop_at(20, 0.2)
        assert loop is not None
        settling_s[tcp] = 0.75 * loop.settling_s
    # The model of the report, of each of both.
    assert short("sack") == pytest.approx(settling_s["reno"], rel=0.05)
    assert short("linux-cubic") == pytest.approx(settling_s["cubic"], rel=0.05)
    # No loop is known of it.
    assert short("bbr") == 0.0


def test_the_design_line_has_the_sender() -> None:
    gains = "a = 1e-6\nb = 9.9e-7"
    text = slow("7s", "15s", gains)
    said = {}
    for tcp in ("linux-reno", "linux-cubic", "bbr"):
        found = forebay.run(text.replace('"ftp"', f'"ftp"\ntcp = "{tcp}"'), seeds=1)
        said[tcp] = [line for _, line in descriptions.warnings(found) if line]
    assert said["bbr"] == []
    assert "--tcp" not in said["linux-reno"][0]
    assert said["linux-cubic"][0].endswith(" --tcp cubic")


@pytest.mark.parametrize("gains", ["auto", "paper"])
def test_the_first_example_of_the_readme_has_settled(gains: str) -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    text = readme.partition("```toml\n")[2].partition("```")[0]
    assert (text.count('gains  = "auto"'), text.count('["20s", "60s"]')) == (1, 1)
    found = forebay.run(text.replace('"auto"', f'"{gains}"'), seeds=2)
    # The paper's gains take a minute to settle.
    assert bool(found.warnings) == (gains == "paper")


#: The set-point of the coupled queue is that of its classic flows.
COUPLED = """\
duration = "20s"
measure  = ["8s", "20s"]
bottleneck = { rate = "20Mbit/s", delay = "5ms", buffer = "300p", ecn = true }
traffic = [{ kind = "ftp", flows = 4, rtt = "20ms", packet = "1500B", tcp = "prague", ecn = "l4s" }]
law = [{ kind = "dualpi2" }]
"""


def test_flows_of_l4s_alone_miss_no_set_point(tmp_path: Path) -> None:
    found = forebay.run(COUPLED, seeds=1)
    assert found.runs[0].metrics["queue_mean_pkts"] < 5
    assert kinds(found) == []
    assert forebay.study(COUPLED, seeds=1, store=tmp_path / "store").warnings == []
    # A queue that holds the same flows as any other has one.
    alone = forebay.run(
        COUPLED.replace("dualpi2", "pi2"), seeds=1, overrides=["law.pi2.target=60p"]
    )
    assert 45 < alone.runs[0].metrics["queue_mean_pkts"] < 75
    classic = COUPLED.replace('tcp = "prague", ecn = "l4s"', 'tcp = "reno"')
    few = classic.replace("flows = 4", "flows = 1").replace("300p", "40p")
    assert "missed" in kinds(forebay.run(few, seeds=1, overrides=["law.dualpi2.target=37p"]))


SHORT_BUFFER = """
[[traffic]]
kind   = "ftp"
flows  = 4
packet = "1500B"
rtt    = "40ms"

[[law]]
kind   = "{}"
{}
"""


@pytest.mark.parametrize("law", ["codel", "pie", "pi2", "dualpi2", "cobalt"])
def test_a_buffer_shorter_than_the_target_is_a_warning(law: str) -> None:
    """Linux accepts such a qdisc: 50 ms are 83 packets at 20 Mbit/s, and the buffer has 10."""
    text = SHORT_BUFFER.format(law, 'target = "50ms"')
    short = forebay.run(one_bottleneck(("2s", "4s"), "20Mbit/s", "10p", text))
    beyond = [text for text, _ in descriptions.warnings(short) if "its target is" in text]
    assert beyond == [
        f"{registries.title_of(law)}: its target is 83 packets at this rate, but the buffer holds "
        "10, so the queue never reaches the target; use a longer buffer or a smaller target."
    ]
    # A buffer in bytes counts as the packets that it holds.
    in_bytes = forebay.run(one_bottleneck(("2s", "4s"), "20Mbit/s", "15kB", text))
    assert "beyond" in kinds(in_bytes)
    long = forebay.run(one_bottleneck(("2s", "4s"), "20Mbit/s", "100p", text))
    assert "beyond" not in kinds(long)


#: A law in Python that has a target and does nothing to hold it.
CARELESS = """
from dataclasses import dataclass

import forebay
from forebay.units import Packets, Seconds


@dataclass
class Careless(forebay.Controller):
    interval: Seconds = 0.01
    target: {unit} = {target}

    def sample(self, queue):
        return 0.0
"""


@pytest.mark.parametrize(
    ("unit", "target", "says"),
    [
        ("Packets", "50", r"mean queue \d+ packets, target 50 packets"),
        ("Seconds", "0.02", r"mean delay \d+ ms, target 20 ms"),
    ],
)
def test_the_target_of_a_law_in_python_is_judged(
    tmp_path: Path, unit: str, target: str, says: str
) -> None:
    file = tmp_path / "careless.py"
    file.write_text(CARELESS.format(unit=unit, target=target))
    found = forebay.run(slow("10s", "20s"), laws=f"{file}:Careless", seeds=1)
    assert "missed" in kinds(found)
    assert any(
        "missed its target by more than 25 %" in text and re.search(says, text)
        for text, _ in descriptions.warnings(found)
    )
