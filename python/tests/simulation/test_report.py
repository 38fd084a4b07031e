"""The report and its pictures."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import matplotlib.image
import numpy as np
import pages
import polars as pl
import pytest
from conftest import one_bottleneck
from scenarios import DESCRIBED

import forebay
from forebay._base import statistics
from forebay._base.metrics import with_interval
from forebay.experiment import steady_state
from forebay.experiment.result import PlotKind, Result
from forebay.report import drawing, over_time
from forebay.report.answers import answers
from forebay.report.kinds import KINDS
from forebay.report.plot import Plot
from forebay.report.style import COLOURS
from forebay.report.sweeps import OVERVIEWS

LAWS = ["pi", "droptail"]
#: The figures of the report: one over all points, or one for each of two points.
PICTURES = [
    *("delay-1.png", "delay-2.png", "flows-1.png", "flows-2.png", "glance.png", "goodput.png"),
    *("load.png", "loss-1.png", "loss-2.png", "qacd.png", "queue-1.png", "queue-2.png"),
]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    from conftest import SCENARIO

    path = tmp_path_factory.mktemp("report") / "two.toml"
    path.write_text(SCENARIO.replace("Two laws", "Two <laws> &"))
    return forebay.run(path, seeds=3)


class Page(HTMLParser):
    """What a page refers to, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("href", "src", "xlink:href", "data", "action"):
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_self_contained(out: Path) -> None:
    text = (out / "report.html").read_text()
    page = Page(text)
    assert all(link.startswith("#") for link in page.links), page.links
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert not {"link", "img", "iframe"} & set(page.tags)
    # Scripts stand in the page, and name no other place.
    assert not re.search(r"<script[^>]*src|fetch\(|XMLHttpRequest|import\(", text)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert page.tags.count("svg") == len(PICTURES), "a new figure must be in PICTURES of this test"
    assert len(text) < 6_000_000


def test_the_page_suits_narrow_screens_and_screen_readers(out: Path) -> None:
    names = pages.check((out / "report.html").read_text())
    assert len(set(names)) == len(names) == len(PICTURES)
    assert {"Goodput and delay", "Queue length over time, 5 ftp flows"} <= set(names)


def test_a_link_that_nothing_crosses_has_no_figure(scenario: Path, tmp_path: Path) -> None:
    """Beside a bottleneck that is busy; a figure of it would be empty."""
    link = '[[link]]\nname = "side"\nfrom = "a"\nto = "b"\nrate = "1Mbit/s"\nbuffer = "100p"\n'
    scenario.write_text(scenario.read_text() + link)
    result = forebay.run(scenario, seeds=1, overrides=["traffic.0.flows=5"])
    result.report(tmp_path / "out")
    names = pages.check((tmp_path / "out" / "report.html").read_text())
    assert "Queue length over time at bottleneck" in names
    assert not any("side" in name for name in names), names


def test_the_page_describes_the_experiment(out: Path, result: Result) -> None:
    page = Page((out / "report.html").read_text())
    text = " ".join(page.text.split())
    for expected in [
        "Two <laws> &, two loads",
        "After nothing but a test",
        "a link of 10 Mbit/s with a one-way delay of 5 ms and a buffer of 100 packets",
        "5 ftp flows: TCP",
        "packets of 1000 bytes",
        "4 round-trip times from 40 ms to 100 ms",
        "first of 2 points",
        "2 laws ran at 2 points with seeds 1 to 3: 12 runs of 4 s",
        "from 2 s to 4 s",
        "target = 40 packets",
        f"Forebay {forebay.__version__}",
        result.experiment.command,
        "p by a paired t-test, adjusted by Holm's method",
        'buffer = "100p"',
    ]:
        assert expected in text, expected
    for point in range(2):
        for law in range(2):
            cell = result.cell_at(point, law, "queue_mean_pkts")
            assert with_interval(cell.mean, cell.half_width) in text
    assert "Partial" not in text


def test_the_same_result_gives_the_same_page(out: Path, result: Result, tmp_path: Path) -> None:
    result.report(tmp_path / "again")
    assert (tmp_path / "again" / "report.html").read_text() == (out / "report.html").read_text()


def test_pictures_show_every_law(out: Path) -> None:
    pictures = sorted(path.name for path in (out / "figures").iterdir())
    assert pictures == PICTURES, "a new figure must be in PICTURES of this test"
    for name in pictures:
        pixels = np.round(matplotlib.image.imread(out / "figures" / name)[..., :3] * 255)
        assert pixels.shape[1] >= 1000
        for law, colour in zip(LAWS, COLOURS, strict=False):
            rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
            drawn = int((np.abs(pixels - rgb).max(axis=-1) <= 2).sum())
            # Without a set-point there is no QACD; colours of flows are those of traffic.
            absent = (name, law) == ("qacd.png", "droptail") or name.startswith("flows")
            assert drawn > 50 or absent, (name, law, drawn)


def text_of(figure: Plot) -> str:
    return " ".join(" ".join(re.findall(r">([^<>]+)</text>", figure.svg())).split())


def test_every_kind_of_figure_can_be_plotted_by_its_name() -> None:
    registered = {*KINDS, *OVERVIEWS}
    assert set(get_args(PlotKind)) == registered, (
        "PlotKind in python/forebay/experiment/result.py and the kinds of report/kinds.py and "
        "report/sweeps.py must have the same names"
    )


def test_axes_have_units_and_a_legend(result: Result) -> None:
    expected = {
        "queue": ["Queue [packets]", "Time [s]", "set-point, 40 packets", "not measured"],
        "loss": ["Loss rate in 0.1 s [%]", "Time [s]"],
        "delay": ["Queuing delay [ms]", "PI", "DropTail"],
        "qacd": ["QACD [packets]", "ftp flows", "5", "20"],
        "load": ["Drops [%]", "Utilisation [%]", "ftp flows"],
    }
    kind: Any
    for kind, texts in expected.items():
        text = text_of(result.plot(kind))
        for one in texts:
            assert one in text, (kind, one, text)
    with pytest.raises(ValueError, match='kind: "pie" is not valid; expected one of queue, loss'):
        result.plot("pie")  # type: ignore[arg-type]


def test_no_two_laws_look_alike(scenario: Path) -> None:
    laws = [str(law["name"]) for law in forebay.laws()][:16]
    result = forebay.run(scenario, laws=laws, overrides=["bottleneck.buffer=800p"], seeds=1)
    lines = result.plot("delay").axes[0].lines
    assert len(lines) > 2 * len(COLOURS)
    looks = {(line.get_color(), str(line._dash_pattern)) for line in lines}  # type: ignore[attr-defined]
    assert len(looks) == len(lines)
    curves: list[Any] = list(result.plot("load").axes[0].lines)
    looks = {(c.get_color(), f"{c._dash_pattern}{c.get_marker()}") for c in curves}
    assert len(looks) == len(laws)
    # Without an axis of numbers there are dots.
    dots = forebay.run(
        scenario, laws=laws, overrides=["bottleneck.buffer=800p", "traffic.0.flows=5"]
    )
    containers: list[Any] = dots.plot("load").axes[0].containers
    points = [container.lines[0] for container in containers]
    looks = {(d.get_color(), f"{d.get_marker()}{d.get_markerfacecolor()}") for d in points}
    assert len(looks) == len(laws)


def test_an_axis_of_shares_does_not_go_below_zero(result: Result) -> None:
    for axes in [*result.plot("load").axes, *result.plot("qacd").axes]:
        bottom, top = axes.get_ylim()
        assert bottom >= -0.03 * top


def test_changes_are_marked(scenario: Path) -> None:
    text = scenario.read_text() + '[[at]]\ntime = "3s"\nset = { "bottleneck.rate" = "5Mbit/s" }\n'
    scenario.write_text(text)
    result = forebay.run(scenario, seeds=1)
    assert "3 s: rate 5 Mbit/s" in text_of(result.plot("queue"))


def test_a_long_curve_hides_no_spike() -> None:
    times = np.arange(1, 100_001) / 100
    values = np.full(len(times), 50.0)
    values[31_416], values[77_777] = 500.0, 0.0
    shown, low, mean, high = drawing.thinned(times, values, 900)
    assert len(shown) <= 900
    assert high.max() == 500
    assert low.min() == 0
    assert mean.mean() == pytest.approx(50, abs=0.1)
    # A spike widens its own step, and the next at most.
    assert (high > 50).sum() <= 2


def test_a_short_curve_is_drawn_as_it_is(result: Result) -> None:
    (curve, *_), *_ = (axes.lines for axes in result.plot("queue").axes)
    samples = result.observed_at(0, 0, 0)[0].samples
    np.testing.assert_array_equal(curve.get_xdata(), samples["time_s"])
    np.testing.assert_array_equal(curve.get_ydata(), samples["queue_pkts"])


def sentences(**options: Any) -> list[str]:
    laws = [("pi", 'a = 5e-4\nb = 4.9e-4\ntarget = "20p"'), ("droptail", "")]
    text = ANSWERED + "".join(f'[[law]]\nkind = "{kind}"\n{more}\n' for kind, more in laws)
    return answers(forebay.run(text, **options))


ANSWERED = one_bottleneck(
    ("10s", "20s"),
    "10Mbit/s",
    "100p",
    '[[traffic]]\nkind = "ftp"\nflows = 10\nrtt = "60ms"\npacket = "1000B"\n',
    seeds=3,
)


def test_a_report_answers_first() -> None:
    delay, target, chance = sentences()
    assert re.match(
        r"PI has the lowest delay \(P95 = [\d.]+\sms; DropTail [\d.]+\sms\); its goodput is", delay
    )
    assert re.fullmatch(
        r"PI \(mean \d+ packets, target 20 packets\) tracks its target within 25 %\. "
        r"DropTail has no target for the whole queue\.",
        target,
    )
    assert "(3 seeds, 5 % level)" in chance
    # A set-point that the queue is far from.
    _, target, *_ = sentences(overrides={"law.pi.a": 2e-6, "law.pi.b": 1.99e-6})
    assert re.match(r"PI \(mean \d+ packets, target 20 packets\) misses its target", target)
    *_, chance = sentences(seeds=1)
    assert chance.startswith("One seed gives no confidence interval")
    delay, target, chance = sentences(laws=["pi"])
    assert delay.startswith("PI: delay P95 = ")
    assert chance == "There is no other law to compare it with."


def test_a_single_law_without_a_target_needs_no_sentence() -> None:
    answered = sentences(laws=["droptail"], seeds=1)
    assert not any("target" in sentence for sentence in answered)


#: Packets of two sizes: full ones of a download, and small ones of calls.
SIZES = one_bottleneck(
    ("5s", "15s"),
    "10Mbit/s",
    "500p",
    '[[traffic]]\nkind = "ftp"\nflows = 4\nrtt = "40ms"\npacket = "1500B"\n'
    '[[traffic]]\nkind = "voice"\nflows = 40\nrtt = "40ms"\n',
    seeds=2,
)


def test_a_delay_target_is_judged_by_the_delay() -> None:
    """Forty calls send packets of 200 bytes among those of 1500: no number of packets is 15 ms."""
    result = forebay.run(SIZES, laws=["pie", "codel"])
    pie = result.plan.points[0].laws[0]
    judged = steady_state.set_point(result.plan.points[0], pie, result.runs_of(0, 0))
    assert judged is not None and judged.is_delay and not judged.missed
    assert judged.measured == pytest.approx(
        result.cell_at(0, 0, "delay_mean_s").mean
    ) and judged.target == pytest.approx(0.015)
    assert abs(result.cell_at(0, 0, "queue_mean_pkts").mean / (pie.target_pkts or 0) - 1) > 0.25
    assert "missed" not in [finding.kind for finding, _ in result.warnings]
    _, target, *_ = answers(result)
    assert re.match(
        r"PIE \(mean 1[0-9.]+ ms, target 15 ms\) tracks its target within 25 %\.", target
    )
    assert re.search(r"CoDel \(mean [\d.]+ ms, target 5 ms\) has a target, but does not", target)


def test_the_differences_of_laws_are_in_a_table(tmp_path: Path) -> None:
    laws = "".join(f'[[law]]\nkind = "{kind}"\n' for kind in ("droptail", "codel", "fq-codel"))
    result = forebay.run(ANSWERED + laws)
    result.report(tmp_path)
    rows = pl.read_csv(tmp_path / "differences.csv")
    metrics = result.compared()
    assert rows.height == 3 * len([name for name in metrics if name != "qacd_pkts"]) + 1
    assert rows.filter(metric="qacd_pkts").select("first", "second").rows() == [
        ("codel", "fq-codel")
    ]
    for row in rows.filter(metric="delay_p95_s").iter_rows(named=True):
        a, b = (
            [run.metrics["delay_p95_s"] for run in result.runs_of(0, result.plan.laws.index(law))]
            for law in (row["first"], row["second"])
        )
        assert row["difference"] == pytest.approx(np.mean(np.subtract(a, b)))
    # First what is beyond chance, then what may be chance, then what has no test.
    beyond = rows["beyond_chance"].to_list()
    order = [{True: 0, False: 1, None: 2}[value] for value in beyond]
    assert order == sorted(order) and True in beyond
    alone = statistics.compare(
        {
            law: {run.seed: run.metrics["goodput_bps"] for run in result.runs_of(0, i)}
            for i, law in enumerate(result.plan.laws)
        }
    )
    p = {(pair.first, pair.second): pair.p for pair in alone}
    for first, second, value in (
        rows.filter(metric="goodput_bps").select("first", "second", "p").iter_rows()
    ):
        assert value == pytest.approx(p[first, second])
    text = (tmp_path / "differences.tex").read_text()
    assert text.count(r" \\") == rows.height + 1
    assert r"\begin{tabular}{llrr}" in text and "Holm" in text
    page = (tmp_path / "report.html").read_text()
    assert "Differences between laws: " in page and "DropTail − CoDel" in page
    assert f"{sum(bool(it) for it in beyond)} of {rows['p'].count()} tested are beyond" in page


def test_one_seed_leaves_no_table_of_differences(tmp_path: Path) -> None:
    laws = "".join(f'[[law]]\nkind = "{kind}"\n' for kind in ("droptail", "codel"))
    forebay.run(ANSWERED + laws).report(tmp_path)
    assert (tmp_path / "differences.csv").exists()
    forebay.run(ANSWERED + laws, seeds=1).report(tmp_path, force=True)
    assert not (tmp_path / "differences.csv").exists()
    assert not (tmp_path / "differences.tex").exists()
    assert "Differences between laws" not in (tmp_path / "report.html").read_text()


def test_seeds_that_give_one_run_are_named_wherever_numbers_are(tmp_path: Path) -> None:
    fixed = ANSWERED.replace('rtt = "60ms"', 'rtt = "60ms"\ntcp = "linux-cubic"\nstart = "0s"')
    laws = "".join(f'[[law]]\nkind = "{kind}"\n' for kind in ("droptail", "codel"))
    result = forebay.run(fixed + laws)
    shown = str(result)
    assert "±" not in shown.partition("mean ±")[0]
    assert "DropTail: all 3 seeds gave the same run" in shown
    assert answers(result)[-1].startswith("All 3 seeds gave the same run under every law")
    summary = result.summary()
    valued = summary.filter(pl.col("seeds") > 0)
    assert valued["alike"].all() and valued["ci95"].is_nan().all()
    assert "all 3 seeds gave the same run" in result._repr_html_()
    result.report(tmp_path)
    told = json.loads((tmp_path / "metrics.json").read_text())["same_run"]
    assert told == [{"law": law, "point": "", "seeds": 3} for law in ("droptail", "codel")]
    assert pl.read_csv(tmp_path / "differences.csv")["p"].null_count() > 0
    page = (tmp_path / "report.html").read_text()
    assert "0 of 0 tested are beyond chance" in page and "no test" in page
    # Drawn starts, the default, make a run of each seed.
    drawn = forebay.run(ANSWERED + laws)
    assert "same run" not in str(drawn)
    assert not drawn.summary().filter(pl.col("metric") == "queue_mean_pkts")["alike"].any()


def test_a_report_says_which_sender_takes_most() -> None:
    sender = '[[traffic]]\nkind = "ftp"\nlabel = "{}"\nflows = 2\nrtt = "{}"\npacket = "1000B"\n'
    link = one_bottleneck(("10s", "20s"), "10Mbit/s", "100p", "", seeds=2)
    uneven = link + sender.format("near", "10ms") + sender.format("far", "300ms")
    laws = '[[law]]\nkind = "droptail"\n[[law]]\nkind = "fq-codel"\n'
    said = answers(forebay.run(uneven + laws))
    assert len(said) == 3
    found = re.fullmatch(
        r"Under (\S+) a flow of near gets ([\d.]+) times the goodput of a flow of far; "
        r"(\S+) shares the link most evenly \(ratio ([\d.]+)\)\.",
        said[1],
    )
    assert found and found[1] != found[3] and float(found[2]) > float(found[4])
    # Alike, no sentence; a page that asks for little does not get too little.
    alike = link + sender.format("near", "50ms") + sender.format("far", "50ms")
    web = '[[traffic]]\nkind = "web"\nlabel = "pages"\nflows = 2\nrtt = "50ms"\n'
    for text in (alike, link + sender.format("near", "50ms") + web):
        assert len(answers(forebay.run(f'{text}[[law]]\nkind = "fq-codel"\n', seeds=1))) == 2


def test_the_description_is_folded_below_the_answers(tmp_path: Path) -> None:
    forebay.run(f'{ANSWERED}[[law]]\nkind = "codel"\n', seeds=1).report(tmp_path)
    page = (tmp_path / "report.html").read_text()
    places = [
        page.index(part)
        for part in ('<ul class="answers">', 'class="glance"', '"choose"', '<details class="run">')
    ]
    assert places == sorted(places)


def test_the_queue_at_a_glance_has_a_set_point_that_laws_share(tmp_path: Path) -> None:
    def told(*targets: int) -> tuple[float | None, bool]:
        laws = "".join(
            f'[[law]]\nkind = "pi"\nlabel = "pi-{i}"\ntarget = "{it}p"\n'
            for i, it in enumerate(targets)
        )
        result = forebay.run(f"{ANSWERED}{laws}", seeds=1)
        result.report(tmp_path / str(targets))
        page = (tmp_path / str(targets) / "report.html").read_text()
        caption = page.partition('class="glance"')[2].partition("</figure>")[0]
        return over_time.glance(result, 0, 0).panels[0].target, "the set-point" in caption

    assert told(30, 30) == (30.0, True)
    assert told(30, 50) == (None, False)


def test_the_page_names_the_queue_of_a_law(tmp_path: Path) -> None:
    path = tmp_path / "queue.toml"
    path.write_bytes(DESCRIBED)
    result = forebay.run(path, overrides={"duration": "4s", "measure": ["1s", "4s"]})
    result.report(tmp_path / "out")
    assert "in the queue priority" in (tmp_path / "out" / "report.html").read_text()
