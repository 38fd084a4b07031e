"""`--style paper` and `--open`."""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.image
import numpy as np
import pytest
from conftest import Cli, command
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

import forebay
from forebay.campaign.claims import figures
from forebay.report import drawing, over_time, sheet, style
from forebay.report.plot import Plot
from forebay.report.style import STYLE


@pytest.fixture
def paper() -> Iterator[None]:
    style.use("paper")
    yield
    style.use("screen")


def checked(pdf: bytes) -> tuple[float, float]:
    """Width and height in inches of a PDF whose fonts are inside, none of them as type 3."""
    assert pdf.startswith(b"%PDF")
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert b"STIX" in pdf
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", pdf)
    assert box
    return float(box[1]) / 72, float(box[2]) / 72


def test_a_paper_gets_vectors_in_its_column(cli: Cli, scenario: Path, tmp_path: Path) -> None:
    assert cli("run", scenario.name, "--style", "paper", "--out", "out").returncode == 0
    figures = tmp_path / "out" / "figures"
    names = {path.stem for path in figures.glob("*.png")}
    assert {"goodput", "queue-1", "delay-2", "flows-1"} <= names
    assert {path.stem for path in figures.glob("*.pdf")} == names
    for name in names:
        width, height = checked((figures / f"{name}.pdf").read_bytes())
        assert width == pytest.approx(3.5)
        assert height < 5
        # 300 dots per inch.
        assert matplotlib.image.imread(figures / f"{name}.png").shape[1] == 1050
    # The page works as any other, and the same result may be drawn for a screen.
    assert (tmp_path / "out" / "report.html").stat().st_size > 50_000
    assert cli("run", scenario.name, "--out", "out").returncode == 0
    assert not list(figures.glob("*.pdf"))


def test_every_command_that_draws_knows_the_style(cli: Cli, scenario: Path, tmp_path: Path) -> None:
    link = ["--rate", "15Mbit/s", "--rtt", "200ms", "--flows", "60"]
    of_map = ["--rate", "15Mbit/s", "--rtt", "50..400ms", "--flows", "10..100", "--points", "8"]
    for words, name in [
        (["design", "pi", *link], "bode"),
        (["map", "pi", *of_map, "--simulate", "0"], "map"),
        (["fluid", scenario.name, "--law", "pi"], "pi"),
        (["figure", "pi-pd-3"], "pi-pd-3"),
    ]:
        done = cli(*words, "--style", "paper-wide", "--out", words[0])
        assert done.returncode == 0, done.stderr
        width, _ = checked((tmp_path / words[0] / f"{name}.pdf").read_bytes())
        assert width == pytest.approx(7.16)
        assert (tmp_path / words[0] / f"{name}.png").exists()


def test_an_unknown_style_is_refused(cli: Cli, scenario: Path) -> None:
    done = cli("run", scenario.name, "--style", "poster")
    assert done.returncode == 2
    assert done.stderr.startswith('error: --style: "poster" is not valid; expected one of screen, ')


def test_laws_differ_without_colours(scenario: Path, paper: None) -> None:
    result = forebay.run(scenario, seeds=1)
    lines = result.plot("delay").axes[0].lines
    dashes = [line.get_linestyle() for line in lines]
    assert [line.get_label() for line in lines] == ["PI", "DropTail"]
    assert len(set(dashes)) == 2
    assert len({str(style.dash(i)) for i in range(7)}) == 7
    assert checked(result.plot("delay").pdf()) == pytest.approx((3.5, 3.4 * 0.7))
    # Whoever saves it has the fonts, too.
    result.plot("delay").savefig(scenario.parent / "mine.pdf")
    checked((scenario.parent / "mine.pdf").read_bytes())


def test_a_screen_has_no_pdf() -> None:
    figure = Plot(figsize=(4, 3))
    assert list(figure.files("name")) == ["name.png"]


def opened(tmp_path: Path, scenario: Path, **environment: str) -> str:
    """What the user's browser was told to open, and how the command ended."""
    seen = tmp_path / "opened.txt"
    browser = tmp_path / "browser.sh"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {seen}\n')
    browser.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if "DISPLAY" not in k and k != "BROWSER"}
    done = subprocess.run(
        command("run", scenario.name, "--seeds", "1", "--open"),
        cwd=tmp_path,
        env={**kept, **{k: v.replace("SCRIPT", str(browser)) for k, v in environment.items()}},
        check=True,
        capture_output=True,
        text=True,
    )
    assert "Report: results/two/report.html" in done.stdout
    assert "rror" not in done.stderr
    return seen.read_text().strip() if seen.exists() else ""


def test_open_shows_the_page_in_the_browser(tmp_path: Path, scenario: Path) -> None:
    page = (tmp_path / "results/two/report.html").as_uri()
    assert opened(tmp_path, scenario, BROWSER="SCRIPT %s") == page


def test_open_is_quiet_without_a_browser(tmp_path: Path, scenario: Path) -> None:
    assert opened(tmp_path, scenario) == ""


def test_a_narrow_figure_is_not_blown_up_to_the_width_of_a_page() -> None:
    """A study over one axis has a figure of 4.6 inches; a page has 1032 px."""
    for width_in, most_px in ((4.6, 529), (10, 1150)):
        figure = Plot(figsize=(width_in, 2.7))
        figure.add_subplot().plot([1, 2])
        assert f"max-width: {most_px}px" in figure.svg("narrow")


SIX_LAWS = "".join(f'[[law]]\nkind = "{kind}"\n' for kind in (
    "droptail", "codel", "pie", "pi2", "fq-codel", "cake",
))  # fmt: skip


@pytest.mark.parametrize("laws", [5, 6])
def test_a_legend_of_many_laws_leaves_the_queue_its_room(
    scenario: Path, paper: None, laws: int
) -> None:
    """With six laws the panel of `glance` was a line, and its curves had no dashes."""
    text = scenario.read_text()
    tables = SIX_LAWS.split("[[law]]")[1 : laws + 1]
    scenario.write_text(
        text[: text.index("[[law]]")] + "".join(f"[[law]]{table}" for table in tables)
    )
    result = forebay.run(str(scenario), seeds=1)
    figure = drawing.draw(over_time.glance(result, 0, 0))
    (axes,) = figure.axes
    assert axes.get_position().height * figure.get_figheight() > 0.7
    curves = [line for line in axes.lines if np.size(line.get_xdata()) > 2]
    assert len({str(line._dash_pattern) for line in curves}) == laws  # type: ignore[attr-defined]
    (legend,) = figure.legends
    keys = legend.get_lines()
    assert len({str(line._dash_pattern) for line in keys}) == laws  # type: ignore[attr-defined]
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())


@pytest.mark.parametrize("name", list(figures()))
@pytest.mark.parametrize("used", list(style.STYLES))
def test_no_text_of_a_papers_figure_is_cut_or_lies_on_another(name: str, used: str) -> None:
    style.use(used)
    try:
        figure = figures()[name]()
        with mpl.rc_context(STYLE):
            FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
            found = _texts(figure)
    finally:
        style.use("screen")
    whole = figure.bbox.expanded(1.005, 1.005)
    for text, box in found:
        assert whole.contains(box.x0, box.y0) and whole.contains(box.x1, box.y1), text.get_text()
    titles = [one for axes in figure.axes for one in (axes.title, axes._left_title)]  # type: ignore[attr-defined]
    shown = [box for text, box in found if text in titles]
    for i, box in enumerate(shown):
        assert not any(box.overlaps(other) for other in shown[:i])


def _texts(figure: Plot) -> list[tuple[Text, Any]]:
    """Return the texts of a figure and where they are, but for the labels of ticks: those beyond
    the axis, which are not drawn, have some, too."""
    ticks = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for label in axis.get_ticklabels(which="both")
    }
    texts = [one for one in figure.findobj(Text) if one.get_text().strip() and one not in ticks]
    return [(one, one.get_window_extent()) for one in texts]


def test_an_interval_ends_where_a_share_does() -> None:
    """Student's t of three seeds reached to 100.9 % of the link."""
    below, above = sheet.interval_within([99.5, 0.1, math.nan], [1.4, 0.4, math.nan], percent=True)
    assert above[:2] == pytest.approx([0.5, 0.4])
    assert below[:2] == pytest.approx([1.4, 0.1])
    _, above = sheet.interval_within([99.5], [1.4], percent=False)
    assert above == pytest.approx([1.4])


def test_traffic_has_no_colour_of_a_law() -> None:
    laws = {style.colour(look) for look in range(30)}
    traffic = {style.colour(style.of_traffic(i)) for i in range(30)}
    assert not laws & traffic
    # Of the first round, as laws have it: no dashes on a screen.
    assert style.dash(style.of_traffic(0)) == "-"


def test_a_page_shows_that_more_is_to_the_right() -> None:
    """At 390 px figures and tables ended without a hint: the shadow is there without a script."""
    sheet = (Path(forebay.__file__).parent / "report/templates/style.css").read_text()
    rule = re.search(r"\.scroll \{[^}]*\}", sheet)
    assert rule is not None
    assert rule[0].count("local") == rule[0].count("no-repeat scroll") == 2
