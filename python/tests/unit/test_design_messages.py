"""What `design` and `identify` say of what they cannot do, or show as none."""

from __future__ import annotations

import math

import pytest
from conftest import Cli

from forebay import ScenarioError
from forebay._native import LawModel
from forebay.control.design import design
from forebay.control.fitted_gains import OperatingRange, fit
from forebay.control.link import Link
from forebay.report import designs

LINK = Link("15Mbit/s", "200ms", flows=60, packet="500B")


def test_an_unstable_loop_has_no_margins_but_its_gain() -> None:
    made = design("pi", LINK, overrides={"a": "1e-3", "b": "9.9e-4"})
    assert made.margins is not None
    assert not made.stable
    assert math.isnan(made.margins.phase_deg)
    assert math.isnan(made.margins.delay_s)
    assert math.isnan(made.margins.sensitivity)
    assert made.margins.gain_db < 0
    told = made.to_dict()["margins"]
    assert told["phase_deg"] is None
    assert told["sensitivity_peak"] is None
    assert told["gain_db"] < 0
    assert f"and has {-made.margins.gain_db:.2g} dB too much." in designs.paragraph(made)


def test_only_gains_that_the_user_set_are_reported() -> None:
    made = design("pi", LINK, overrides={"a": "2e-5", "b": "1.99e-5"})
    assert made.gains == {}
    assert made.to_dict()["gains"] == {}
    assert dict(made.params)["a"] == "2e-5"
    said = designs.paragraph(made)
    assert "a, b as given: the rule's own numbers are not used." in said
    assert "zero of the PI controller" not in said


@pytest.mark.parametrize(
    ("law", "overrides", "said"),
    [
        ("pi", {"a": "1e-4"}, '"a": b missing; expected all of a, b of pi, or none'),
        ("pi", {"a": "1e-4", "beta": "0.3"}, '"a": b missing'),
        ("pie", {"alpha": "0.2"}, '"alpha": beta missing'),
        ("pid", {"k_p": "1e-4"}, '"k_p": k_i, k_d missing'),
        ("pi2", {"beta": "2"}, '"beta": alpha missing'),
        (
            "pi",
            {"a": "1e-4", "b": "9e-5", "beta": "0.3"},
            '"beta": it is a goal of pi.s rule, but its gains a, b are given, too; expected goals, '
            "or gains",
        ),
    ],
)
def test_some_coefficients_without_the_others_are_refused(
    law: str, overrides: dict[str, str], said: str
) -> None:
    with pytest.raises(ScenarioError, match=said):
        design(law, LINK, overrides=overrides)


def test_automatic_gains_take_no_coefficient_alone() -> None:
    link = OperatingRange(15_000_000, 500, (0.2, 0.2), 800, (60, 60))
    with pytest.raises(ScenarioError, match='"a": b missing'):
        fit("pi", link, {"a": "1e-4"})
    assert dict(fit("pi", link, {"a": "2e-5", "b": "1.99e-5"}).params).keys().isdisjoint("ab")


def test_a_long_interval_is_blamed_and_not_the_gain_that_it_gives() -> None:
    with pytest.raises(ScenarioError) as refused:
        design("pi", Link("100Mbit/s", "20ms", flows=60), overrides={"interval": "500ms"})
    assert str(refused.value).startswith('overrides: interval: "500ms": the rule of pi')
    assert str(refused.value).endswith("expected a shorter interval")


def test_a_probability_above_one_is_reported_as_saturation() -> None:
    law = LawModel("pd-avg", [("target", "100p"), ("k_p", 0.001)], 10_000_000, 1000, 400.0)
    for flows in (50, 283):
        how, _, p = law.rest(flows, 0.05)
        assert (how == "saturated") == (p is not None and p >= 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--rate", "50..5Mbit/s", "--flows", "60", "--rtt", "200ms"],
            'error: --rate: "50Mbit/s..5Mb',
        ),
        (["--rate", "5Mbit/s", "--flows", "60..10", "--rtt", "200ms"], 'error: --flows: "60..10"'),
        (
            ["--rate", "5Mbit/s", "--flows", "60", "--rtt", "200..20ms"],
            'error: --rtt: "200ms..20ms"',
        ),
    ],
)
def test_a_range_goes_from_less_to_more(cli: Cli, words: list[str], said: str) -> None:
    done = cli("design", "pi", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def test_a_record_is_not_cut_to_nothing(cli: Cli) -> None:
    done = cli("identify", "any.csv", "--from", "100s", "--to", "50s")
    assert done.returncode == 2
    assert '--to: "50s" is not later than --from "100s"' in done.stderr
