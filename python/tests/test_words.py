"""What was run, in words."""

from __future__ import annotations

import pytest

from forebay.report.words import quantity, short_time


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
