"""Figures that other processes draw are those that this process draws."""

from __future__ import annotations

import numpy as np
import pytest

from forebay._base.worker_process import WorkerError
from forebay.report import drawing_pool, pages
from forebay.report.drawing_pool import DrawingPool
from forebay.report.pages import PageFigure
from forebay.report.sheet import AxisResponse, Curve, Drawing, FigureData, Panel, Scale, Sheet

TIMES = np.linspace(0.0, 1.0, 5)
CURVE = Curve("PI", {"law": "PI"}, 0, TIMES, TIMES**2 + 0.1)
DELAYS = Sheet(
    "delay", Scale("Delay", "ms"), Scale("Share", "%", least=0.01), [Panel("", [CURVE])], step=True
)
RESPONSE = Drawing(
    "forebay.campaign.study_drawing:response",
    (
        "Delay [ms]",
        ["PI"],
        [AxisResponse("flows", ["1", "2"], [(TIMES[:2], TIMES[:2], TIMES[:2])])],
    ),
)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing_pool, "cores", lambda: 2)


@pytest.mark.parametrize("content", [DELAYS, RESPONSE])
def test_a_process_draws_the_same_figure(content: FigureData) -> None:
    with DrawingPool() as pool:
        assert pool.start(4)
        drawn = PageFigure("name", lambda: content, "Title")
        drawn.begin(pool)
        assert drawn.drawn is not None
        files = drawn.render()
    here = PageFigure("name", lambda: content, "Title")
    assert here.render() == files and list(files) == ["name.png"]
    assert here.svg == drawn.svg != ""


def test_a_figure_of_a_process_that_was_killed_is_drawn_here() -> None:
    figure = PageFigure("name", lambda: DELAYS, "Title")
    with DrawingPool() as pool:
        assert pool.start(4)
        worker = pool._idle.get()
        worker.end()
        pool._idle.put(worker)
        figure.begin(pool)
        assert figure.drawn is not None
        with pytest.raises(WorkerError):
            figure.drawn.result()
        assert list(figure.render()) == ["name.png"]


def test_few_figures_and_a_single_core_need_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with DrawingPool() as pool:
        assert not pool.start(drawing_pool.FIGURES_PER_PROCESS - 1)
        monkeypatch.setattr(drawing_pool, "cores", lambda: 1)
        assert not pool.start(100)
        figure = pages.PageFigure("name", lambda: DELAYS, "Title")
        figure.begin(pool)
        assert figure.drawn is None and figure.render()
