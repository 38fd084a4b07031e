"""Reports that move, in a real browser: zoom, values, switches, sorting, print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from chromium import PATIENCE_MS, browser, needs_chromium, new_page

import forebay
from forebay.experiment.result import Result
from forebay.report import moving
from forebay.report.kinds import KINDS
from forebay.report.moving import PackedColumns
from forebay.report.style import COLOURS

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not here: make set-up")
__all__ = ["browser"]  # a fixture that is in force here


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    from conftest import SCENARIO

    path = tmp_path_factory.mktemp("moving") / "two.toml"
    path.write_text(SCENARIO)
    return forebay.run(path, seeds=3)


@pytest.fixture
def page(browser: Any, out: Path) -> Iterator[Any]:
    """The report from its file, without any network; what the browser complains of fails."""
    opened = new_page(browser, 1100, 900, offline=True)
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on(
        "console",
        lambda said: faults.append(said.text) if said.type in ("error", "warning") else None,
    )
    opened.on("request", lambda sent: faults.append(sent.url) if "file:" not in sent.url else None)
    opened.goto((out / "report.html").as_uri())
    opened.wait_for_selector('figure[data-moving="flows-2"] canvas')
    yield opened
    opened.context.close()
    assert faults == []


def figure(page: Any, name: str) -> Any:
    found = page.locator(f'figure[data-moving="{name}"]')
    found.scroll_into_view_if_needed()
    return found


def view(page: Any, name: str) -> tuple[float, float]:
    live = figure(page, name).locator(".live")
    return float(live.get_attribute("data-from")), float(live.get_attribute("data-to"))


def colours(canvas: Any, wanted: str) -> int:
    """Pixels of a canvas that have a colour."""
    rgb = [int(wanted[i : i + 2], 16) for i in (1, 3, 5)]
    count = canvas.evaluate(
        """(canvas, rgb) => {
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
            copy.drawImage(canvas, 0, 0);
            const all = copy.getImageData(0, 0, canvas.width, canvas.height).data;
            let count = 0;
            for (let i = 0; i < all.length; i += 4)
                count +=
                    rgb.every((part, k) => Math.abs(all[i + k] - part) < 3) && all[i + 3] > 250;
            return count;
        }""",
        rgb,
    )
    return int(count)


def drag(page: Any, name: str, start: float, end: float) -> None:
    box = figure(page, name).locator(".u-over").first.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=4)
    page.mouse.up()


@needs_chromium
def test_a_zoom_goes_through_every_figure_over_time(page: Any) -> None:
    assert view(page, "queue-1") == (0, 4)
    shares = view(page, "delay-1")
    drag(page, "queue-1", 0.25, 0.75)
    low, high = view(page, "queue-1")
    assert (low, high) == pytest.approx((1, 3), abs=0.05)
    for other in ("loss-1", "flows-1", "queue-2", "flows-2"):
        assert view(page, other) == (low, high)
    assert view(page, "delay-1") == shares
    # Pan and zoom with the keyboard, then the whole.
    panel = figure(page, "loss-2").locator(".panel").first
    panel.press("Shift+ArrowLeft")
    assert view(page, "queue-1")[0] == pytest.approx(low - 0.2 * (high - low))
    panel.press("+")
    left, right = view(page, "queue-1")
    assert right - left == pytest.approx((high - low) / 2)
    panel.press("0")
    assert view(page, "queue-1") == (0, 4)
    drag(page, "queue-2", 0.1, 0.2)
    figure(page, "loss-1").get_by_role("button", name="reset").click()
    assert view(page, "queue-2") == (0, 4)


@needs_chromium
def test_the_value_under_the_pointer_is_in_the_tables(page: Any, out: Path) -> None:
    samples = pl.read_parquet(out / "samples.parquet").filter(
        pl.col("point") == pl.col("point").first(), law="pi", link="bottleneck"
    )
    box = figure(page, "queue-1").locator(".u-over").first.bounding_box()
    seen = set()
    for share in (0.11, 0.37, 0.62, 0.9):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 20)
        reading = figure(page, "queue-1").locator(".reading").first.inner_text()
        found = re.search(
            r"([\d.]+) s\s+3 seeds: (\d+) to (\d+) packets\s+seed 1: (\d+) packets", reading
        )
        assert found, reading
        now = samples.filter((pl.col("time_s") - float(found[1])).abs() < 1e-6)["queue_pkts"]
        assert float(found[1]) == pytest.approx(4 * share, abs=0.02)
        assert now.len() == 3
        assert (now.min(), now.max(), now[0]) == tuple(map(int, found.groups()[1:]))
        seen.add(found[4])
        # The other figures show the same moment; to scroll to one would take the pointer away.
        sibling = page.locator('figure[data-moving="loss-1"] .reading').first
        told = re.compile(r"\d s.*\d %", re.DOTALL)
        sync_api.expect(sibling).to_contain_text(told, timeout=PATIENCE_MS)
    assert len(seen) > 1


@needs_chromium
def test_a_curve_that_is_switched_off_is_gone(page: Any) -> None:
    queue = figure(page, "queue-1")
    blue, orange = COLOURS[:2]
    assert queue.locator(".u-wrap").count() == 2
    panel = queue.locator(".u-wrap canvas").first
    assert colours(panel, blue) > 50
    queue.get_by_role("button", name="1", exact=True).click()
    # The band is lighter.
    assert colours(queue.locator(".u-wrap canvas").first, blue) == 0
    queue.get_by_role("button", name="3", exact=True).click()
    assert colours(queue.locator(".u-wrap canvas").first, blue) > 50
    assert "seed 3" in queue.locator(".reading").first.inner_text()
    law = queue.get_by_role("button", name="PI", exact=True)
    law.click()
    assert law.get_attribute("aria-pressed") == "false"
    assert queue.locator(".u-wrap").count() == 1
    assert queue.locator(".reading b").all_inner_texts() == ["DropTail"]
    law.press("Enter")
    assert queue.locator(".u-wrap").count() == 2
    queue.get_by_role("button", name="overlay").click()
    both = queue.locator(".u-wrap canvas")
    assert both.count() == 1
    assert min(colours(both, blue), colours(both, orange)) > 50


@needs_chromium
def test_a_click_leaves_one_flow_alone(page: Any) -> None:
    flows = figure(page, "flows-1")
    over = flows.locator(".u-over").first
    box = over.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    reading = flows.locator(".reading").first.inner_text()
    name = re.search(r"(ftp \d): [\d.]+ Mbit/s", reading)
    assert name, reading
    over.click()
    assert f"Only {name[1]}" in flows.locator(".said").inner_text()
    box = flows.locator(".u-over").first.bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 10)
    assert f"{name[1]}:" in flows.locator(".reading").first.inner_text()


@needs_chromium
def test_tables_sort_by_click_and_by_key(page: Any) -> None:
    table = page.locator("table").first
    heading = table.locator("th", has_text="Queue")
    column = heading.evaluate("(it) => it.cellIndex")

    def numbers() -> list[float]:
        texts = table.locator(f"tr td:nth-child({column + 1})").all_inner_texts()
        return [float(text.split()[0]) for text in texts]

    before = numbers()
    assert before != sorted(before)
    assert heading.get_attribute("aria-sort") is None
    heading.locator("button").click()
    assert numbers() == sorted(before)
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.locator("button").press("Enter")
    assert numbers() == sorted(before, reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"


@needs_chromium
def test_print_and_pages_without_a_script_have_the_static_figures(
    page: Any, browser: Any, out: Path
) -> None:
    assert page.locator("figure svg").count() == 12
    assert not page.locator("figure .static").first.is_visible()
    page.emulate_media(media="print")
    assert all(one.is_visible() for one in page.locator("figure .static").all())
    assert not any(one.is_visible() for one in page.locator(".live").all())
    plain = new_page(browser, 1200, 900, java_script_enabled=False)
    plain.goto((out / "report.html").as_uri())
    assert all(one.is_visible() for one in plain.locator("figure .static").all())
    assert not plain.locator(".live").count()
    plain.context.close()


@needs_chromium
def test_the_first_screen_answers(browser: Any, out: Path) -> None:
    """Three sentences, the queue and the table of what laws are compared by; no scrolling to the
    side, and columns to choose."""
    page = new_page(browser, 1200, 900)
    page.goto(f"file://{out}/report.html")
    page.wait_for_selector('figure[data-moving="glance"] canvas')
    assert page.locator(".answers li").count() == 3
    for part in (".answers", "figure.glance canvas", "table.choose"):
        box = page.locator(part).first.bounding_box()
        assert box, part
        assert box["y"] >= 0, part
        assert box["y"] + min(box["height"], 200) <= 900, part
    assert not page.locator("details.run").evaluate("it => it.open")
    page.set_viewport_size({"width": 560, "height": 900})
    page.reload()
    page.wait_for_selector("details.columns")
    frame = page.locator(".scroll:has(> table.choose)").first
    assert frame.evaluate("it => it.scrollWidth <= it.clientWidth")
    choice = page.locator("details.columns").first
    choice.locator("summary").click()
    last = choice.locator("input").last
    assert not last.is_checked()
    head = frame.locator("th").last
    assert not head.is_visible()
    last.check()
    assert head.is_visible()
    page.context.close()


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_a_phone(browser: Any, out: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    opened = new_page(browser, 400, 800, color_scheme=scheme)
    opened.goto((out / "report.html").as_uri())
    opened.wait_for_selector('figure[data-moving="flows-2"] canvas')
    assert opened.evaluate("document.documentElement.scrollWidth") <= 400
    found = axe.Axe().run(opened).response["violations"]
    serious = [
        (one["id"], [node["html"][:200] for node in one["nodes"]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
    opened.context.close()


def test_long_curves_keep_their_peaks(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    sheets = {"queue-1": KINDS["queue"].sheet(result, 0, 0)}
    whole = moving.moving_figures(sheets)
    monkeypatch.setattr(moving, "MOST_VALUES", 0)
    monkeypatch.setattr(moving, "FEWEST_STEPS", 50)
    shorter = moving.moving_figures(sheets)
    panel = shorter.figures[0]["panels"][0]
    assert panel["of"] == 8
    assert shorter.columns[panel["x"]][:2] == ["r", 50]
    one = next(series for series in panel["series"] if series["label"] == "seed 1")
    numbers = unpacked(shorter.numbers, shorter.columns)
    queue = result.observed_at(0, 0, 0)[0].samples["queue_pkts"]
    assert numbers[one["high"]].max() == queue.max()
    assert numbers[one["low"]].min() == queue.min()
    assert len(shorter.numbers) < len(whole.numbers)


def unpacked(text: str, columns: list[list[Any]]) -> list[np.ndarray[Any, Any]]:
    """What `web/numbers.js` does."""
    import base64
    import gzip

    raw = np.frombuffer(gzip.decompress(base64.b64decode(text)), np.uint8)
    found = []
    for kind, length, at, *step in columns:
        if kind == "r":
            found.append(at + step[0] * np.arange(length))
            continue
        size = 8 if kind == "d" else 4
        planes = raw[at : at + size * length].reshape(size, length).T.copy()
        if kind == "i":
            words = planes.view("<u4").ravel().astype(np.int64)
            found.append(np.cumsum((words >> 1) ^ -(words & 1)))
        else:
            found.append(planes.view("<f8" if kind == "d" else "<f4").ravel())
    return found


def test_columns_are_packed_without_a_loss() -> None:
    numbers = PackedColumns()
    columns = [
        np.array([5, -3, 2**28, 0, 7]),
        np.array([0.5, np.nan, 1e-9], np.float32),
        np.arange(1, 9) * 0.01,
        np.array([0.0, 0.1, 0.5]),
        np.zeros(0),
    ]
    for i, column in enumerate(columns):
        add = numbers.add_times if i in (2, 3) else numbers.add
        assert add(column) == i
    kinds = [column[0] for column in numbers.columns]
    assert kinds == ["i", "f", "r", "d", "f"]
    for column, back in zip(columns, unpacked(numbers.text(), numbers.columns), strict=True):
        np.testing.assert_allclose(back, column, rtol=1e-12)
    assert numbers.text() == numbers.text()
