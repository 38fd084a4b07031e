"""The snippet of the public API runs, and every result has the interface of `Reportable`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import forebay as fb
from forebay._base.reportable import Reportable
from forebay.campaign.study import Study
from forebay.campaign.suite import Suite
from forebay.comparison.compare import ResultComparison
from forebay.comparison.validate import Validation
from forebay.control.designed_law import Design
from forebay.control.stability_map import StabilityMap
from forebay.fluid.traces import Traces
from forebay.linux.link_outcome import Outcome
from forebay.tuning.recommendation import Tuning

SCENARIO = """
title    = "Two laws, two loads"
duration = "2s"
measure  = ["1s", "2s"]

[bottleneck]
rate   = "10Mbit/s"
delay  = "5ms"
buffer = "200p"

[[traffic]]
kind = "ftp"
rtt  = "40ms"

[[law]]
kind   = "pi"
target = "40p"

[sweep]
"traffic.0.flows" = [20, 40]
"bottleneck.delay" = ["5ms"]
"""
RESULTS = [
    *(fb.Result, Design, StabilityMap, Tuning, ResultComparison),
    *(Study, Suite, Validation, Traces, Outcome),
]


def test_the_snippet_of_the_design_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scenario.toml").write_text(SCENARIO)
    link = fb.Link(rate="50Mbit/s", rtt="40ms", flows=30, buffer="100ms", senders="cubic")
    design = fb.design("pi", link, target="20ms")
    smap = fb.stability_map("pi", link, flows=(10, 400), rtt=("5ms", "300ms"), points=6)
    links = fb.LinkRange(rate="2Mbit/s", rtt="40ms", flows=3)
    tuning = fb.tune(links, laws=["pi", "pie"], goal="balance", seeds=1)
    result = fb.run(
        "scenario.toml", laws=["pi", "codel"], overrides={"bottleneck.rate": 40e6}, seeds=2
    )
    cell = result.cell(law="pi", metric="delay_p95_s", flows=40)
    assert cell.seeds == 2 and cell.mean > 0
    assert design.stable and design.target_pkts == 125
    assert link.buffer_pkts == 625
    for outcome in (design, smap, tuning, result):
        assert isinstance(outcome, Reportable)
        assert outcome.to_dict()
        assert outcome.frame().height
        assert len(str(outcome)) > 20
    # Drawing takes longer than calculating; `test_notebook` and `test_report` draw the others.
    drawn: tuple[Reportable, ...] = (smap, tuning)
    for number, reportable in enumerate(drawn):
        reportable.report(tmp_path / f"report-{number}")
        assert list((tmp_path / f"report-{number}").iterdir())


@pytest.mark.parametrize("kind", RESULTS)
def test_every_result_is_reportable(kind: type) -> None:
    assert issubclass(kind, Reportable)
    # The text is one of the class, and not what Python writes of any object.
    assert kind.__str__ not in (object.__str__, list.__str__)
    for name in ("to_dict", "frame", "report", "_repr_html_"):
        parameters = list(inspect.signature(getattr(kind, name)).parameters.values())[1:]
        required = [p.name for p in parameters if p.default is inspect.Parameter.empty]
        assert required == (["out"] if name == "report" else [])


@pytest.mark.parametrize("kind", RESULTS)
def test_kinds_of_figures_are_literal_types(kind: type) -> None:
    parameters = inspect.signature(kind.plot).parameters  # type: ignore[attr-defined]
    first = list(parameters.values())[1]
    assert (first.name, first.default) != ("kind", inspect.Parameter.empty)
    kinds = get_type_hints(kind.plot, include_extras=True, localns=_types())["kind"]  # type: ignore[attr-defined]
    assert get_origin(kinds) is Literal
    assert first.default in get_args(kinds)


def _types() -> dict[str, Any]:
    """Return the types that are imported for annotations only."""
    from forebay.experiment.result import PlotKind
    from forebay.report.plot import Plot

    return {"Plot": Plot, "PlotKind": PlotKind}


def test_a_number_is_in_base_units() -> None:
    numbers = fb.Link(50e6, 0.04, flows=30, packet=1500, buffer=400)
    assert numbers == fb.Link("50Mbit/s", "40ms", flows=30, packet="1500B", buffer="400p")
    by_number = fb.LinkRange((5e6, 50e6), (0.02, 0.2), flows=(10, 400))
    assert by_number == fb.LinkRange("5..50Mbit/s", "20..200ms", flows="10..400")
    first = fb.design("pi", numbers, overrides={"interval": 0.005})
    assert dict(first.params)["interval"] == "5ms"


@pytest.mark.parametrize(
    ("arguments", "name", "part"),
    [
        ({"rate": "40furlongs"}, "rate", "a rate"),
        ({"flows": 0}, "flows", "more than zero"),
        ({"senders": "bbr"}, "senders", "cubic"),
        ({"rtt": ("5ms", "300ms")}, "rtt", "a list with a value for each class"),
        ({"buffer": "5furlongs"}, "buffer", "packets"),
        ({"l4s_flows": -1}, "l4s_flows", "zero or more"),
    ],
)
def test_a_wrong_argument_of_a_link_is_named(
    arguments: dict[str, Any], name: str, part: str
) -> None:
    with pytest.raises(fb.ParameterError) as caught:
        base: dict[str, Any] = {"rate": "50Mbit/s", "rtt": "40ms", "flows": 30}
        fb.Link(**(base | arguments))
    assert caught.value.name == name
    assert part in caught.value.expected
    assert "--" not in str(caught.value)


def test_a_cell_is_chosen_by_what_the_sweep_set() -> None:
    result = fb.run(SCENARIO, seeds=1)
    few, many = (result.cell("pi", "queue_mean_pkts", flows=n, delay=0.005) for n in (20, 40))
    assert few != many
    assert many == result.cell_at(1, 0, "queue_mean_pkts")
    for law, settings, name in [
        ("pie", {"flows": 20}, "law"),
        ("pi", {"flows": 30}, "settings"),
        ("pi", {}, "settings"),
        ("pi", {"rtt": "40ms"}, "settings"),
    ]:
        with pytest.raises(fb.ParameterError) as caught:
            result.cell(law, "queue_mean_pkts", **settings)  # type: ignore[arg-type]
        assert caught.value.name == name
