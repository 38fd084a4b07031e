"""Networks of several links, and links that follow recorded times."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import Cli, table

import forebay
from forebay import ScenarioError, fluid
from forebay.experiment import descriptions, experiment
from forebay.experiment.result import Result
from forebay.report.answers import describe

HEAD = """\
title    = "Two bottlenecks"
duration = "6s"
measure  = ["2s", "6s"]
seeds    = 2
"""

MAIN = """
[bottleneck]
name   = "Q2"
from   = "R2"
to     = "R3"
rate   = "10Mbit/s"
delay  = "5ms"
buffer = "100p"
"""

NEXT = """
[[link]]
name   = "Q4"
from   = "R3"
to     = "R4"
rate   = "8Mbit/s"
delay  = "5ms"
buffer = "60p"
"""

OWN = """
[[link]]
from   = "R4"
to     = "R5"
rate   = "9Mbit/s"
buffer = "50p"
law    = "droptail"
"""

BACK = """
[[link]]
name   = "back"
from   = "R3"
to     = "R2"
rate   = "2Mbit/s"
delay  = "5ms"
buffer = "80p"
"""

PATH = ["R2", "R3", "R4", "R5"]


def of_tcp(path: list[str]) -> str:
    """Long flows along a path, and short ones over the first link."""
    long = {"path": path} if path else {}
    return table(
        "traffic", kind="ftp", label="long", flows=20, rtt="60ms", start="0s", **long
    ) + table(
        "traffic", kind="ftp", label="short", flows=5, rtt="40ms", path=["R2", "R3"], start="0s"
    )


FLOWS = of_tcp(PATH)

PI = """
[[law]]
kind   = "pi"
target = "40p"
"""

#: 1500 bytes every 2 ms: 6 Mbit/s.
TIMES_MS = range(0, 1001, 2)

#: Where recorded traces lie beside the checkout, if they do.
TRACES = Path(__file__).parents[4] / "shared" / "traces"


def write(folder: Path, text: str) -> Path:
    path = folder / "links.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("links")
    return forebay.run(write(folder, HEAD + MAIN + NEXT + OWN + FLOWS + PI))


def test_tables_have_a_row_for_every_link(result: Result) -> None:
    assert result.links == ["Q2", "Q4", "R4-R5"]
    metrics = result.metrics
    assert metrics.columns[:4] == ["law", "point", "seed", "link"]
    assert metrics["link"].to_list() == ["Q2", "Q4", "R4-R5"] * 2
    assert metrics["seed"].to_list() == [1] * 3 + [2] * 3
    # The run's, not the link's.
    assert len(result.costs) == 2

    for row in metrics.iter_rows(named=True):
        here = [pl.col("link") == row["link"], pl.col("seed") == row["seed"]]
        samples = result.samples.filter(*here)
        assert samples["time_s"].to_list() == pytest.approx([0.01 * (i + 1) for i in range(600)])
        measured = samples.filter(pl.col("time_s") > 2 + 1e-9)
        assert row["queue_mean_pkts"] == pytest.approx(measured["queue_pkts"].mean())
        flows = result.flows.filter(*here)
        assert row["goodput_bps"] == pytest.approx(flows["goodput_bps"].sum())
        # The short flows cross the first link alone.
        assert len(flows) == (25 if row["link"] == "Q2" else 20)
        delays = result.delays.filter(*here)
        mean_s = np.average(delays["delay_s"], weights=delays["packets"])
        assert row["delay_mean_s"] == pytest.approx(mean_s, rel=2e-3, abs=1e-6)

    # What the second link got, the third has to carry; nothing else comes in.
    sent = result.samples.group_by("link", maintain_order=True).agg(pl.sum("departed_bytes"))
    assert sent["departed_bytes"][1] == pytest.approx(sent["departed_bytes"][2], rel=0.01)


def test_each_link_has_the_set_point_of_its_law(result: Result) -> None:
    qacd = result.metrics.filter(seed=1)["qacd_pkts"]
    assert all(0 < qacd[k] < 100 for k in (0, 1))
    assert np.isnan(qacd[2])
    measured = result.samples.filter(seed=1, link="Q4").filter(pl.col("time_s") > 2 + 1e-9)
    squares = (measured["queue_pkts"].to_numpy() - 40.0) ** 2
    assert qacd[1] == pytest.approx(np.sqrt(squares.sum() / (len(squares) + 1)))
    # A law of its own has no probability to show, and no set-point in the picture.
    assert result.samples.filter(link="R4-R5")["p"].null_count() == 1200
    drawn = result.plot("queue", link=2).svg()
    assert "set-point" not in drawn
    assert "set-point, 40 packets" in result.plot("queue", link=1).svg()


def test_the_command_line_shows_the_links(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + MAIN + NEXT + OWN + FLOWS + PI)
    done = cli("run", path, "--json", "--seeds", 1)
    (line,) = map(json.loads, done.stdout.splitlines())
    keys = ["law", "point", "seed", "engine", "metrics", "traffic", "links", "costs"]
    assert list(line) == keys
    assert list(line["links"]) == ["Q4", "R4-R5"]
    for metrics in line["links"].values():
        assert list(metrics) == list(line["metrics"])
    assert line["links"]["R4-R5"]["qacd_pkts"] is None
    assert line["metrics"]["forwarded_packets"] > line["links"]["Q4"]["forwarded_packets"] > 1000

    done = cli("run", path, "--seeds", 1, "--out", "out")
    assert done.returncode == 0, done.stderr
    for text in ["Q2 (bottleneck)", "Q4", "R4-R5"]:
        assert text in done.stdout
    out = tmp_path / "out"
    assert json.loads((out / "metrics.json").read_text())["runs"][0]["links"].keys() == {
        "Q4",
        "R4-R5",
    }
    samples = pl.read_parquet(out / "samples.parquet")
    assert samples["link"].unique(maintain_order=True).to_list() == ["Q2", "Q4", "R4-R5"]
    figures = {path.name for path in (out / "figures").iterdir()}
    assert {"queue.png", "queue-link-1.png", "queue-link-2.png", "loss.png"} <= figures
    page = " ".join(re.sub(r"<[^>]+>", " ", (out / "report.html").read_text()).split())
    for text in [
        "The bottleneck, Q2, is a link of 10 Mbit/s",
        "Q4: a link of 8 Mbit/s",
        "from R3 to R4, under the law that is tested",
        "from R4 to R5, always under droptail",
        "20 ftp flows (long), from R2 over R3 over R4 to R5",
        "Queue length over time at R4-R5",
    ]:
        assert text in page, text


def test_acks_wait_where_a_link_goes_their_way(tmp_path: Path) -> None:
    own = (
        '[[traffic]]\nkind = "ftp"\nlabel = "up"\nflows = 5\npath = ["R3", "R2"]\nrtt = "40ms"\n'
        'start = "0s"\n'
    )
    flows = of_tcp(PATH[:2])
    path = write(tmp_path, HEAD + MAIN + BACK + flows + PI)
    alone = forebay.run(path, seeds=1).runs[0]
    # An ACK of 40 bytes for every packet, but for those under way at the end.
    data, acks = alone.metrics["forwarded_packets"], alone.links[1].metrics["forwarded_packets"]
    assert 0.9 * data < acks <= data
    assert alone.links[1].metrics["goodput_bps"] == 0
    write(tmp_path, HEAD + MAIN + BACK + flows + own + PI)
    both = forebay.run(path, seeds=1).runs[0]
    assert both.links[1].metrics["utilisation"] > 0.8
    assert both.links[1].metrics["delay_mean_s"] > 0.02
    # ACKs that wait make round trips longer.
    assert both.metrics["drop_rate"] < alone.metrics["drop_rate"]


def traced(text: str, name: str = "cell.down") -> str:
    return text.replace("delay  =", f'rate_trace = "{name}"\ndelay  =')


def one_link(folder: Path, name: str = "cell.down") -> Path:
    flows = of_tcp([])
    return write(folder, HEAD + traced(MAIN, name) + flows + PI)


def test_a_link_follows_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cell.down").write_text("".join(f"{time}\n" for time in TIMES_MS))
    (tmp_path / "else").mkdir()
    # The name counts from the scenario's folder, wherever the command runs.
    monkeypatch.chdir(tmp_path / "else")
    result = forebay.run(one_link(tmp_path), seeds=1)
    samples = result.samples
    # One time more than rounds of 1 s have pauses: both 0 and 1000 ms let 1500 bytes out.
    assert samples["capacity_bits"].sum() == pytest.approx(12_000 * 501 * 6, rel=2e-3)
    assert 0.9 < result.runs[0].metrics["utilisation"] <= 1
    (link,) = result.plan.points[0].links
    assert link.trace == (12_000 * len(TIMES_MS), 1.0)
    described = describe(result).link.replace("\N{NO-BREAK SPACE}", " ")
    assert "whose rate repeats a recorded trace of 1 s, 6.012 Mbit/s on average" in described


def test_traces_may_be_swept_and_set(tmp_path: Path) -> None:
    for name, step in (("fast", 1), ("slow", 4)):
        (tmp_path / name).write_text("".join(f"{time}\n" for time in range(0, 1000, step)))
    path = one_link(tmp_path, "fast")
    swept = path.read_text() + '[sweep]\n"bottleneck.rate_trace" = ["fast", "slow"]\n'
    path.write_text(swept)
    capacity = forebay.run(path, seeds=1).samples.group_by("point", maintain_order=True)
    fast, slow = capacity.agg(pl.sum("capacity_bits"))["capacity_bits"]
    assert fast == pytest.approx(4 * slow, rel=0.01)
    only = forebay.run(path, seeds=1, overrides={"bottleneck.rate_trace": "slow"})
    assert only.samples["capacity_bits"].sum() == slow


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (None, '"cell.down" is not valid; expected a readable file'),
        ("", '"cell.down" has no time above 0; expected times in ms, one per line'),
        ("0\n5ms\n", '"5ms" in line 2 of "cell.down" is not valid; expected a whole number of ms'),
        ("3\n2\n", '"2" in line 2 of "cell.down" is not valid; expected a whole number of ms'),
        ("folder", '"cell.down" is not valid; expected a readable file'),
        ("pipe", '"cell.down" is not valid; expected a readable file'),
    ],
)
@pytest.mark.parametrize("command", ["run", "fluid"])
def test_a_bad_trace_is_one_line(
    cli: Cli, tmp_path: Path, command: str, contents: str | None, expected: str
) -> None:
    if contents == "folder":
        (tmp_path / "cell.down").mkdir()
    elif contents == "pipe":
        os.mkfifo(tmp_path / "cell.down")
    elif contents is not None:
        (tmp_path / "cell.down").write_text(contents)
    before = set(tmp_path.iterdir())
    path = one_link(tmp_path)
    done = cli(command, path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f'error: {path}:11: bottleneck.rate_trace: "')
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert set(tmp_path.iterdir()) == before | {path}


def test_the_fluid_model_refuses_a_trace(tmp_path: Path) -> None:
    (tmp_path / "cell.down").write_text("0\n1\n")
    with pytest.raises(
        ScenarioError,
        match=r"links\.toml: bottleneck\.rate_trace: the link has a trace; expected a ",
    ):
        fluid.scenario(one_link(tmp_path))


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"no recorded traces in {TRACES}")
@pytest.mark.parametrize("name", ["Verizon-LTE-short.down", "ATT-LTE-driving-2016.up"])
def test_a_recorded_trace(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes((TRACES / name).read_bytes())
    result = forebay.run(one_link(tmp_path, name), seeds=1)
    times_ms = np.loadtxt(TRACES / name, dtype=int)
    allowed = 12_000 * int((times_ms < 6000).sum())
    assert result.samples["capacity_bits"].sum() == pytest.approx(allowed, rel=2e-3)
    assert result.samples["departed_bytes"].sum() * 8 <= allowed
    assert result.runs[0].metrics["utilisation"] > 0.5


SWEPT = HEAD + MAIN.replace('name   = "Q2"\n', "") + NEXT + of_tcp(PATH[:3]) + PI
MINE = '[[law]]\nkind = "pi"\nlabel = "mine"\ntarget = "20p"\n'


@pytest.mark.parametrize(
    ("sweep", "title", "axis"),
    [
        ('"traffic.long.flows" = [7]', "7 long flows", ("7", "long flows")),
        (
            '"traffic.0.flows, traffic.short.flows" = [[63, 126]]',
            "63 long + 126 short",
            ("63 long + 126 short", "flows"),
        ),
        ('"bottleneck.rate" = ["20Mbit/s"]', "rate = 20 Mbit/s", ("20 Mbit/s", "rate")),
        (
            '"bottleneck.rate" = ["20Mbit/s"]\n"link.Q4.rate" = ["6Mbit/s"]',
            "rate = 20 Mbit/s, rate of Q4 = 6 Mbit/s",
            ("rate = 20 Mbit/s\nrate of Q4 = 6 Mbit/s", ""),
        ),
        ('"traffic.1.rtt" = [["40ms", "80ms"]]', "rtt = 40 ms / 80 ms", ("40 ms / 80 ms", "rtt")),
        ('"law.pi.target" = ["30p"]', "target = 30 packets", ("30 packets", "target")),
        (
            '"law.pi.target, law.1.target" = [["30p", "30p"]]',
            "target = 30 packets",
            ("30 packets", "target"),
        ),
        (
            '"law.pi.target, law.1.target" = [["30p", "50p"]]',
            "target of pi = 30 packets, target of mine = 50 packets",
            ("target of pi = 30 packets\ntarget of mine = 50 packets", ""),
        ),
        (
            '"traffic.0.flows" = [5]\n"target" = ["50p"]',
            "5 long flows, target = 50 packets",
            ("5 long flows\ntarget = 50 packets", ""),
        ),
    ],
)
def test_points_in_words(tmp_path: Path, sweep: str, title: str, axis: tuple[str, str]) -> None:
    path = write(tmp_path, f"{SWEPT}{MINE}[sweep]\n{sweep}\n")
    points = experiment.read(path).plan.points
    plain = [descriptions.point(point).replace("\N{NO-BREAK SPACE}", " ") for point in points]
    assert plain == [title]
    ((tick,), label) = descriptions.points_axis(points)
    assert (tick.replace("\N{NO-BREAK SPACE}", " "), label) == axis
    # The exact keys stay in what programs read.
    assert points[0].label.split(" = ")[0] in sweep


KINDS = {
    'kind = "voice"\ntalk = "1.004s"\npause = "1.587s"': (
        "each a call of 64 kbit/s, a packet every 20 ms, talking for 1.004 s and pausing for "
        "1.587 s on average"
    ),
    'kind = "frames"\nframe = "12p"': "each sending a burst of 12 packets every 40 ms",
    'kind = "video"': (
        "each a viewer of segments of 2 s at 300 kbit/s or more, with a buffer of 30 s (BBA-0)"
    ),
    'kind = "cbr"\nrate = "1Mbit/s"': "no congestion control, packets of 1000 bytes",
    'kind = "web"\nrequests = 3': (
        "each a session of 3 requests a second on average, at Poisson times, each answered over "
        "a new connection with a size from the Pareto distribution of the second kind (shape "
        "1.2, scale 1000 bytes), at most 100000 connections at one time"
    ),
    'kind = "pages"\npages = 9\nobjects = 4': (
        "each a session of 9 pages, 1 s on average from the end of one to the next (exponential), "
        "4 objects each that start 10 ms apart on average (exponential), every object over a new "
        "connection"
    ),
    'kind = "pages"': "pages without end",
    'kind = "onoff"\nrate = "1Mbit/s"\non_shape = 1.5': (
        "each sending bursts at 1 Mbit/s that last 200 ms on average (Pareto, shape 1.5), 200 ms "
        "apart on average (exponential), starting at 0 s"
    ),
    'kind = "onoff"\nrate = "1Mbit/s"\narrivals = 2\nswing = 0.5\nbursts = 3': (
        "ending after 3 bursts on average (geometric), arriving at Poisson times, 2 a second, "
        "a rate that varies as a cosine by ±50 % with a period of 400 s and is highest at 0 s"
    ),
}


@pytest.mark.parametrize("keys", KINDS)
def test_traffic_in_words(tmp_path: Path, keys: str) -> None:
    more = f'\n[[traffic]]\n{keys}\nflows = 5\npath = ["R2", "R3"]\nrtt = "40ms"\n'
    result = forebay.run(write(tmp_path, HEAD + MAIN + NEXT + OWN + FLOWS + more + PI), seeds=1)
    text = describe(result).traffic[2].replace("\N{NO-BREAK SPACE}", " ")
    assert KINDS[keys] in text
    kind = keys.split('"')[1]
    assert text.startswith(
        f"{'At most ' if 'arrivals' in keys else ''}5 {kind} flows, from R2 to R3"
    )
