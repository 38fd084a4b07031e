"""A figure's PNG and SVG of one drawing are those of a drawing for each."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from forebay.report.plot import Plot


def drawn_again() -> Plot:
    """Lines, dashes, marks, a band, bars, a legend and texts, some of them with symbols."""
    figure = Plot(figsize=(5, 3), layout="constrained")
    axes, other = figure.subplots(1, 2)
    t = np.linspace(0, 10, 60)
    axes.plot(t, np.sin(t), "--", label="dashed, 50 % & more")
    axes.plot(t[::6], np.cos(t[::6]), "o-", label="marks")
    axes.fill_between(t, -0.2, 0.2, alpha=0.3, hatch="//")
    axes.scatter(t[::10], 0 * t[::10], s=20)
    axes.set(xlabel="Time (s)", ylabel=r"Queue ($\mu$s)")
    axes.legend()
    other.bar(["a", "b"], [1, 2])
    other.axhline(1.5, linestyle=":")
    other.annotate("here", (0.5, 1.6), rotation=30)
    return figure


def texts(svg: str) -> list[str]:
    """In their order; of one with symbols, letter by letter."""
    return re.findall(r"<(?:text|tspan)[^>]*>([^<]*)</", svg)


def pixel(svg: str) -> float:
    """What a user unit is, in the page's pixels."""
    found = re.search(r'width="([\d.]+)pt" height="[\d.]+pt" viewBox="0 0 ([\d.]+) ', svg)
    assert found
    return float(found[1]) / float(found[2])


def numbers(key: str, svg: str) -> NDArray[np.float64]:
    """Of all texts, in the page's pixels."""
    values = re.findall(rf"<(?:text|tspan)[^>]*{key}([\d.]+)", svg)
    return pixel(svg) * np.array(values, float)


def widths(svg: str) -> list[float]:
    """All that lines have but one pixel, which is what an SVG that says none means."""
    found = {float(width) for width in re.findall(r"stroke-width: ([\d.]+)", svg)}
    return sorted(pixel(svg) * width for width in found if pixel(svg) * width != 1)


def test_png_and_svg_of_one_drawing_equal_separate_drawings() -> None:
    svg, png = drawn_again().svg("name"), drawn_again().png()
    files, vectors = drawn_again().rendered("figure", "name")
    assert files == {"figure.png": png}
    assert 'aria-label="name"' in vectors
    assert len(texts(svg)) > 30 and "dashed, 50 % &amp; more" in texts(svg)
    assert texts(vectors) == texts(svg)
    for tag in ("path", "use", "text", "tspan", "clipPath", "pattern"):
        assert vectors.count(f"<{tag}") == svg.count(f"<{tag}") > 0, tag
    assert numbers("font-size: ", vectors) == pytest.approx(numbers("font-size: ", svg))
    # The layout counts whole pixels, of which a PNG has more.
    assert numbers(' x="', vectors) == pytest.approx(numbers(' x="', svg), abs=2)
    assert numbers(' y="', vectors) == pytest.approx(numbers(' y="', svg), abs=2)
    assert widths(vectors) == pytest.approx(widths(svg), rel=0.01)


def test_a_picture_inside_has_a_drawing_of_its_own() -> None:
    def drawn() -> Plot:
        figure = Plot(figsize=(4, 3), layout="constrained")
        axes = figure.subplots()
        mesh = axes.pcolormesh(np.arange(12.0).reshape(3, 4), rasterized=True)
        figure.colorbar(mesh, ax=axes, label="Delay (ms)")
        return figure

    files, vectors = drawn().rendered("map", "name")
    assert files["map.png"].startswith(b"\x89PNG")
    assert vectors.count("<image") > 0
    alone = drawn().svg("name")
    assert texts(vectors) == texts(alone)
    # The layout counts whole pixels, of which a PNG has more.
    assert numbers(' x="', vectors) == pytest.approx(numbers(' x="', alone), abs=2)
