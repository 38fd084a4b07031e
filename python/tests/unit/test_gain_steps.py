"""PIE's gains step with its probability (RFC 8033 section 4.2): what that does to the queue, and
what a design makes of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forebay.control.design import design
from forebay.control.link import Link
from forebay.report import designs

#: Signals per packet where PIE's own probability is 0.01: its sum passes 0.85 first (RFC 8033
#: section 5.4).
AT_ONE_PERCENT = 0.01 / (1.85 - 0.5 * 0.01)


def test_a_step_stands_where_rfc_8033_has_it() -> None:
    made = design("pie", Link("30Mbit/s", "200ms", flows=80))
    p0 = made.point.probability
    assert p0 > AT_ONE_PERCENT
    slow = design("pie", Link("30Mbit/s", "200ms", flows=60), overrides={"crossover": "0.5"})
    found = slow.gain_step
    assert found is not None
    assert math.isclose(found.probability, AT_ONE_PERCENT, rel_tol=1e-3)
    assert abs(found.factor / 4 - 1) < 0.02
    # Of the two plants the nearer one: packets need less than 2/W².
    assert slow.sawtooth is not None and slow.loop is not None
    p = slow.sawtooth.point.probability
    gain = slow.sawtooth.model["proportional"]
    assert math.isclose(found.headroom_pkts, (p - AT_ONE_PERCENT) / gain, rel_tol=0.02)


@pytest.mark.parametrize("law", ["pi", "pi2", "rem", "stpi"])
def test_laws_with_smooth_gains_have_no_steps(law: str) -> None:
    for flows in (12, 30, 60):
        assert design(law, Link("30Mbit/s", "200ms", flows=flows)).gain_step is None


@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0])
def test_a_change_that_crosses_a_step_loses_a_share_of_its_square(factor: float) -> None:
    """By the sampled law alone, of a queue that moves at random around its set-point: what p loses
    at a step, as the module's text has it."""
    rng = np.random.default_rng(7)
    step, moves, runs = 0.1, 0.02, 4000
    # u is what p would be with the gains below the step; a queue without memory.
    u = rng.normal(0.0, 4 * moves, (runs, 2))
    p = np.where(u[:, 0] < 0, step + u[:, 0], step + factor * u[:, 0])
    change = u[:, 1] - u[:, 0]
    after = p + np.where(p < step, 1.0, factor) * change
    back = np.where(after < step, after - step, (after - step) / factor)
    lost = float(np.mean(u[:, 1] - back))
    # Var(change)·density at the step·(g2/g1 − g1/g2)/4; both u are as wide as the changes here, so
    # the density over a change is not one number: within a third.
    told = (factor - 1 / factor) / 4 * float(np.var(change)) / (4 * moves * math.sqrt(2 * math.pi))
    assert abs(lost - told) < 0.35 * told + 0.002


def test_a_design_for_prague_stays_within_a_step() -> None:
    made = design(
        "pie", Link("278Mbit/s", "17ms", flows=23, packet="687B", senders="prague"), target="215p"
    )
    assert made.stable and made.gain_step is None
    assert "within one step of the law's gains" in designs.paragraph(made)


def test_a_design_explains_the_effect_of_a_gain_step() -> None:
    text = designs.paragraph(design("pie", Link("30Mbit/s", "200ms", flows=60)))
    assert "the mean queue will exceed the set-point" in text and "PI2 has no such steps" in text
    assert "exceed the set-point" not in designs.paragraph(
        design("pi2", Link("30Mbit/s", "200ms", flows=60))
    )
