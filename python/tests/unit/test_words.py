"""What was run, in words."""

from __future__ import annotations

import math

import pytest
from scenarios import DESCRIBED as SCENARIO

from forebay import _native
from forebay._base import quantities, words
from forebay._base.words import quantity, short_time
from forebay.experiment import descriptions, experiment
from forebay.experiment.execution import Execution
from forebay.experiment.result import Result
from forebay.report.answers import describe


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30Mbit/s", "30 Mbit/s"),
        ("800p", "800 packets"),
        ("1000B", "1000 bytes"),
        ("33.898305ms", "33.898305 ms"),
        ("0.0008", "0.0008"),
        ("0.00001822", "1.822e-05"),
        ("5", "5"),
        ("true", "true"),
        ('["40ms", "60ms"]', '["40ms", "60ms"]'),
    ],
)
def test_quantities_are_written_as_in_prose(text: str, expected: str) -> None:
    assert quantity(text).replace("\N{NO-BREAK SPACE}", " ") == expected


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.19e-7, "0.319 us"), (27.1e-6, "27.1 us"), (4.85e-3, "4.85 ms"), (1.2, "1.2 s")],
)
def test_short_times_have_the_unit_that_reads_best(seconds: float, text: str) -> None:
    assert short_time(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.015, "15ms"), (1.5, "1.5s"), (33.898305e-3, "33.898305ms")]
)
def test_times_are_written_as_a_scenario_has_them(seconds: float, text: str) -> None:
    assert quantities.time(seconds) == text
    assert _native.quantity("", text, "time") == seconds


@pytest.mark.parametrize(
    ("bps", "text"), [(15e6, "15Mbit/s"), (1_500, "1.5kbit/s"), (999, "999bit/s"), (1e9, "1Gbit/s")]
)
def test_rates_are_written_as_a_scenario_has_them(bps: float, text: str) -> None:
    assert quantities.rate(bps) == text
    assert _native.quantity("", text, "rate") == bps


def test_the_description_mentions_settings_that_are_not_default() -> None:
    read = experiment.read(SCENARIO.decode())
    (point,) = read.plan.points
    nothing_yet = Result(read, Execution([], [], interrupted=False, elapsed_s=0.0))
    texts = [text.replace("\N{NO-BREAK SPACE}", " ") for text in describe(nothing_yet).traffic]
    assert ", paced, ECN of L4S, packets of 1000 bytes" in texts[0]
    assert "sending bursts at 2 Mbit/s that last 200 ms on average (exponential)" in texts[1]
    assert (
        "3 a second, a rate that varies as a cosine by ±50 % with a period of 400 s and is "
        "highest at 0 s" in texts[1]
    )
    changes = " ".join(descriptions.changes(point, 5)).replace("\N{NO-BREAK SPACE}", " ")
    assert changes == "3 s: rate 5 Mbit/s 3 s: number of ftp flows 1"
    assert point.laws[0].queue == "priority"


@pytest.mark.parametrize(
    ("value", "count", "text"),
    [
        (2153.4, 3, "2153"),
        (999.6, 3, "1000"),
        (12345.6, 4, "12346"),
        (0.012345, 3, "0.0123"),
        (15.26, 3, "15.3"),
        (math.inf, 3, "inf"),
    ],
)
def test_no_number_is_a_power_of_ten(value: float, count: int, text: str) -> None:
    """A delay was "2.15e+03 ms"."""
    assert words.in_figures(value, count) == text
