"""A sample of the cells of docs/evidence/reality.md on real Linux."""

from __future__ import annotations

import pytest
from guest_marks import needs_guest
from reality_cells import KEYS, LAWS, POINTS, TEXT

import forebay
from forebay.comparison.compare import Agreement
from tools import reality

#: Points of the study, each with a law. What swings between two states is left to more seeds. What
#: is open is left to the page: one flow of BBR over 200 ms, the point 18, and CAKE under a hundred
#: flows.
SAMPLE = {number: LAWS[(7 * number + 3) % len(LAWS)] for number in range(len(POINTS))}
SAMPLE |= {3: "pi2", 9: "codel", 16: "ared", 19: "pie"}
del SAMPLE[18]


#: A guest's have no rate.
WIRES = {"traffic.0.access": "1Tbit/s", "bottleneck.rate_back": "1Tbit/s"}


@needs_guest
@pytest.mark.parametrize(("number", "law"), [*SAMPLE.items(), (16, "pi")])
def test_a_cell_beside_real_linux(number: int, law: str) -> None:
    """One seed of Linux's: twice what ours differ by is allowed, too."""
    overrides = dict(zip(KEYS, POINTS[number], strict=True))
    text = TEXT[: TEXT.index("[sweep]")]
    ours = forebay.run(text, laws=[law], overrides=overrides | WIRES, seeds=8).metrics
    linux = forebay.run(text, laws=[law], overrides=overrides, seeds=1, engine="kernel").metrics
    for rule in reality.TOLERANCES[:1] + reality.TOLERANCES[-1:]:
        figure = Agreement(rule, rule.values(ours), rule.values(linux))
        spread = max(figure.tested) - min(figure.tested)
        assert abs(figure.difference) <= max(figure.limit, 2 * spread), (law, overrides, rule.title)
