"""Scenarios that Python writes: whatever goes in is read back, by TOML and by Forebay."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay import _native
from forebay.scenario.builder import Dumbbell, Law, typed

#: Every number of a law, which takes any value between its bounds.
NUMBERS = [
    (law["name"], param)
    for law in _native.laws()
    for param in law["params"]
    if isinstance(param["default"], float) and not param["unit"]
]
TITLES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)
#: With what TOML quotes or takes for its own.
LABELS = st.text("aé\"' #[]{}.", min_size=1, max_size=30).filter(
    lambda text: text == text.strip() and text.replace(".", "") != ""
)


@st.composite
def dumbbells(draw: st.DrawFn) -> Dumbbell:
    rate_bps = draw(st.integers(10**6, 10**10))
    buffer_pkts = draw(st.integers(1, 10**6))
    return Dumbbell(
        title=draw(TITLES),
        duration_s=draw(st.sampled_from([1.0, 60.0, 100.0])),
        measure_from_s=draw(st.sampled_from([0.0, 1 / 3, 0.5])),
        rate=f"{rate_bps}bit/s",
        fastest_bps=rate_bps,
        delay_s=draw(st.integers(1, 100)) / 1e3,
        buffer_pkts=buffer_pkts,
        flows=draw(st.integers(1, 10**4)),
        packet=f"{draw(st.integers(100, 9000))}B",
        rtt=f"{draw(st.integers(400, 1000))}ms",
        laws=[Law("droptail", label=draw(LABELS))],
        target_pkts=draw(st.none() | st.integers(1, min(buffer_pkts, 10**5)).map(float)),
        sweep={"traffic.0.flows": draw(st.lists(st.integers(1, 100), min_size=1, unique=True))},
    )


@settings(deadline=None)
@given(dumbbells())
def test_a_written_scenario_is_read_back_unchanged(written: Dumbbell) -> None:
    text = written.text()
    document = tomllib.loads(text)
    assert document["title"] == written.title
    assert document["law"] == [{"kind": "droptail", "label": written.laws[0].label}]
    assert document["sweep"] == written.sweep
    plan = _native.plan(text.encode(), "written.toml")
    assert plan.title == written.title
    assert plan.laws == [written.laws[0].label]
    for flows, point in zip(written.sweep["traffic.0.flows"], plan.points, strict=True):
        (link,), (traffic,) = point.links, point.traffic

        def base(text: str, kind: str) -> float:
            return _native.quantity("", text, kind)

        assert link.rate_bps == base(written.rate, "rate")
        assert link.delay_s == (written.delay_s, written.delay_s)
        assert link.buffer_pkts == written.buffer_pkts
        assert traffic.access_bps >= 2 * base(written.rate, "rate") * (1 - 1e-9)
        assert (traffic.flows, point.target_pkts) == (flows, written.target_pkts)
        assert traffic.rtts_s[0] == base(written.rtt, "time")
        assert point.duration_s == point.measure_s[1] == written.duration_s


@settings(deadline=None)
@given(st.data())
def test_a_number_of_any_law_keeps_its_value(data: st.DataObject) -> None:
    kind, param = data.draw(st.sampled_from(NUMBERS))
    bounds: dict[str, Any] = {"min_value": param["min"], "max_value": param["max"]}
    value = data.draw(st.floats(**bounds, allow_nan=False, allow_infinity=False))
    law = Law(kind, [(param["name"], repr(value))])
    assert tomllib.loads(law.text())["law"] == [{"kind": kind, param["name"]: value}]


@settings(deadline=None)
@given(st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False))
def test_numbers_and_flags_are_typed(value: bool | int | float) -> None:
    read = typed(str(value).lower())
    assert (type(read), read) == (type(value), value)


@settings(deadline=None)
@given(TITLES)
def test_a_text_is_a_number_a_flag_or_itself(text: str) -> None:
    read = typed(text)
    assert read == text or not isinstance(read, str)
