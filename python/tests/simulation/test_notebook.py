"""Notebooks: what results show of themselves, the tour, progress, and the kernel's interrupt."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import forebay
from forebay import fluid

ROOT = Path(__file__).parents[3]
TOUR = ROOT / "docs" / "tutorials" / "tour.ipynb"
#: What a cell shows of a result, in bytes of HTML.
MOST = 150_000

PI = forebay.Link("15Mbit/s", "80ms", flows=20)


def check(shown: str, rows: int) -> None:
    """A table, one picture with a name, and no more than a notebook bears."""
    assert len(shown) < MOST
    assert shown.count("<tr") >= rows
    images = re.findall(r'<img alt="([^"]+)" src="data:image/png;base64,', shown)
    assert len(images) == 1


def test_results_show_themselves(scenario: Path) -> None:
    result = forebay.run(scenario, seeds=2)
    check(result._repr_html_(), 4)
    figure = result.plot("delay")
    assert isinstance(figure, Figure)
    figure.axes[0].set_title("changed")
    assert ">changed</text>" in figure.svg()


def test_a_sweep_stays_short(scenario: Path) -> None:
    text = scenario.read_text().replace("[5, 20]", "[2, 3, 4, 5, 6, 7, 8, 9, 10]")
    shown = forebay.run(
        text.replace('"4s"', '"1s"').replace('["2s", "1s"]', '["0.5s", "1s"]'), seeds=1
    )
    html = shown._repr_html_()
    check(html, 8)
    assert "5 more points" in html


def test_a_design_shows_itself() -> None:
    design = forebay.design("pi", PI, target="20ms")
    html = design._repr_html_()
    check(html, 6)
    assert f"{design.margins.phase_deg:.1f}°" in html  # type: ignore[union-attr]
    for kind in ("bode", "step", "nyquist", "roots"):
        assert isinstance(design.plot(kind), Figure)
    with pytest.raises(ValueError, match='kind: "pie" is not valid; expected one of bode, nichols'):
        design.plot("pie")  # type: ignore[arg-type]


def test_a_map_is_the_one_of_the_command(tmp_path: Path, cli: Any) -> None:
    drawn = forebay.stability_map(
        "pi",
        forebay.Link("15Mbit/s", "400ms", flows=200),
        flows="10..200",
        rtt="20..400ms",
        points=12,
    )
    check(drawn._repr_html_(), 2)
    assert isinstance(drawn.plot(), Figure)
    assert sum(drawn.counts().values()) == 144
    words = ["--rate", "15Mbit/s", "--flows", "10..200", "--rtt", "20..400ms", "--points", 12]
    done = cli("map", "pi", *words, "--simulate", 0)
    assert done.returncode == 0, done.stderr
    assert f"{drawn.counts()['stable']} of 144 cells: stable" in done.stdout
    for keys, why in [
        ({"flows": "10"}, 'flows: "10" is not valid; expected a range'),
        ({"rtt": "20ms"}, 'rtt: "20ms" is not valid; expected a range'),
        ({"rate": "1..2Mbit/s"}, "a range of the RTT or of the rate, and not both"),
    ]:
        axes: dict[str, Any] = {"flows": (10, 200), "rtt": ("20ms", "400ms")} | keys
        with pytest.raises(forebay.ParameterError, match=re.escape(why)):
            forebay.stability_map("pi", PI, **axes)


def test_the_fluid_shows_itself(scenario: Path) -> None:
    traces = fluid.scenario(scenario, laws=["pi"])
    assert len(traces) == 2
    check(traces._repr_html_(), 3)
    assert isinstance(traces.plot(law="pi"), Figure)
    with pytest.raises(ValueError, match='law: "red" is not valid; expected pi'):
        traces.plot(law="red")


def test_a_tuning_shows_itself() -> None:
    tuned = forebay.tune(forebay.LinkRange("5Mbit/s", "40ms", flows="5"), laws=["pi"], seeds=2)
    check(tuned._repr_html_(), 2)
    for kind in ("trade", "places", "defaults"):
        assert isinstance(tuned.plot(kind), Figure)
    assert "pi" in tuned.toml()
    assert tuned.reasons()


def test_the_names_are_there() -> None:
    look = (
        "import forebay, inspect; "
        "names = ['design', 'fluid', 'link', 'stability_map', 'run', 'tune']; "
        "assert set(names) <= set(dir(forebay)); "
        "assert all(inspect.getdoc(getattr(forebay, name)) for name in names); "
        "import forebay.tuning.tuning; assert callable(forebay.tune); "
        "from forebay.tuning.tuning import Tuning, tune"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", look], check=True)


def test_a_report_does_not_replace_another_result(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    overrides = {"traffic.0.flows": 5}
    forebay.run(scenario, laws=["pi"], overrides=overrides, seeds=2).report(out)
    other = forebay.run(scenario, laws=["pi"], overrides=overrides, seeds=1)
    with pytest.raises(
        forebay.ScenarioError, match=r"report: .* holds the result of .*; use force=True"
    ):
        other.report(out)
    assert len(json.loads((out / "metrics.json").read_text())["runs"]) == 2
    other.report(out, force=True)
    assert len(json.loads((out / "metrics.json").read_text())["runs"]) == 1


@pytest.fixture
def kernel(tmp_path: Path) -> Any:
    """A client for a fresh kernel of this Python; yields what runs a notebook."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not here: make set-up")
    pytest.importorskip("ipykernel", reason="ipykernel is not here: make set-up")
    from jupyter_client.manager import KernelManager

    def client(notebook: Any) -> Any:
        manager = KernelManager()
        manager.kernel_spec.argv[0] = sys.executable  # type: ignore[union-attr]
        return nbclient.NotebookClient(
            notebook, km=manager, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
        )

    return client


def test_the_tour_runs(kernel: Any) -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(TOUR, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    # It is stored without what it shows.
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    kernel(notebook).execute()
    outputs = [output for cell in cells for output in cell.outputs]
    texts = [output.text for output in outputs if output.output_type == "stream"]
    # Progress is a line that is written over; nothing warns.
    assert not any("arning" in text or "Traceback" in text for text in texts), texts
    html = [o.data["text/html"] for o in outputs if "text/html" in o.get("data", {})]
    assert sum("data:image/png" in one for one in html) == 5
    assert all(len(one) < MOST for one in html)
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 2


def test_an_interrupt_of_the_notebook_keeps_finished_runs(kernel: Any, scenario: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    started = scenario.parent / "started"
    source = (
        scenario.read_text().replace('"4s"', '"300s"').replace('["2s", "300s"]', '["2s", "3s"]')
    )
    notebook = nbformat.v4.new_notebook()
    text = (
        "import pathlib\n"
        "from forebay import run  # The interrupt is for the runs, not for the import.\n"
        f"pathlib.Path({str(started)!r}).touch()\n"
        f"result = run({source!r}, seeds=400)\n"
        "print(result.partial, len(result.runs) < 1600)"
    )
    notebook.cells = [nbformat.v4.new_code_cell(text)]
    client = kernel(notebook)

    import threading

    def interrupt() -> None:
        while not started.exists():
            time.sleep(0.02)
        time.sleep(1.5)
        client.km.provisioner.process.send_signal(2)

    thread = threading.Thread(target=interrupt)
    thread.start()
    client.execute()
    thread.join()
    printed = "".join(o.text for o in notebook.cells[0].outputs if o.get("name") == "stdout")
    assert printed == "True True\n"
    warned = "".join(o.text for o in notebook.cells[0].outputs if o.get("name") == "stderr")
    assert "interrupted; the result is partial" in warned
    assert "ipywidgets" not in warned
    assert "Traceback" not in warned
