"""Random links under every law with a model: design, map, fluid and packets agree.

Each says where the queue settles and whether it swings; a disagreement is a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from forebay import ScenarioError, _native, fluid, run
from forebay.control import stability_map
from forebay.control.design import design
from forebay.control.designed_law import Design
from forebay.control.link import Link

#: All modelled laws but two. DualPI2 is two queues, which the fluid model does not have. Adaptive
#: RED moves max_p, which its linear model holds constant, and oscillates where its average is
#: slower than that (docs/explanation/theory.md).
LAWS = [
    law
    for law in (entry["name"] for entry in _native.laws() if entry["modelled"])
    if law not in ("dualpi2", "ared")
]
#: Away from the edge of stability, in dB, everything has to be of one mind.
CLEAR_DB = 3.0
#: Longest fluid run.
LONGEST_S = 1500.0


def links(law: str) -> Iterator[dict[str, str | float]]:
    """Yield links on which TCP lives on signals, with windows of 6 to 60 packets.

    The draws depend on the law alone: those of hypothesis also follow constants of the source.
    """
    rng = np.random.default_rng([1, *law.encode()])
    while True:
        rate_mbps, rtt_ms, window = np.exp(rng.uniform(np.log([2, 10, 6]), np.log([200, 300, 60])))
        packet = int(rng.choice([500, 1000, 1500]))
        flows = max(1, round(1.25e-3 * rate_mbps * 1e6 * rtt_ms * 1e-3 / (8e-3 * packet) / window))
        yield {
            "rate": f"{rate_mbps:.4g}Mbit/s",
            "rtt": f"{rtt_ms:.4g}ms",
            "packet": f"{packet}B",
            "flows": flows,
        }


def designs(law: str, count: int) -> list[Design]:
    """Return designs for links; a link without an equilibrium is refused in a line."""
    made: list[Design] = []
    for link in links(law):
        if len(made) == count:
            break
        try:
            made.append(design(law, Link(**link)))  # type: ignore[arg-type]
        except ScenarioError as error:
            assert "\n" not in str(error)
    return made


def margin_db(made: Design) -> float:
    assert made.margins is not None
    return made.margins.gain_db


def check_map(made: Design) -> None:
    """The cell of the design in a map of four."""
    link, flows = made.link, made.link.flows
    drawn = stability_map.theory_map(
        made.law,
        link,
        made.params,
        (flows, 1.5 * flows),
        "rtt",
        (link.rtt_s, 1.5 * link.rtt_s),
        points=2,
    )
    assert drawn.rest[0, 0] == "linear"
    if abs(margin_db(made)) > 0.02:
        assert bool(drawn.stable[0, 0]) == made.stable
    if abs(margin_db(made)) < 20:
        assert drawn.gain_margin_db[0, 0] == pytest.approx(margin_db(made), abs=0.1)


def check_fluid(made: Design) -> None:
    """From an empty queue the published equations come to rest at the design's point, or swing."""
    link, point = made.link, made.point
    settling_s = made.settling_s if made.stable else 40 * point.rtt_s
    duration_s = 40 + 6 * settling_s + 100 * point.rtt_s
    if duration_s > LONGEST_S or made.loop is None:
        return
    queue = fluid.Bottleneck(made.law, link.rate, link.buffer_pkts, link.packet, _values(made))
    flows = fluid.Class(
        link.flows, link.rtt, marks=True, initial_window_pkts=0.5 * point.window_pkts
    )
    trace = fluid.run(fluid.Model([queue], [flows], f"{duration_s:.3f}s", sample="20ms"))
    last = trace.queue_pkts[0, -len(trace.time_s) // 5 :]
    mean, deviation = float(last.mean()), float(last.std())
    said = f"{made.law}, {link}: design {made.queue_pkts:.1f}, fluid {mean:.1f} ± {deviation:.1f}"
    if made.stable and margin_db(made) > CLEAR_DB:
        assert mean == pytest.approx(made.queue_pkts, rel=0.05, abs=2), said
        assert deviation < 0.1 * made.queue_pkts + 2, said
    elif margin_db(made) < -CLEAR_DB:
        assert deviation > 0.02 * max(mean, 1), said


def _values(made: Design) -> dict[str, bool | float | str]:
    """Parameters as the fluid takes them: numbers as numbers."""
    found: dict[str, bool | float | str] = {}
    for key, value in made.params:
        try:
            found[key] = float(value)
        except ValueError:
            found[key] = value
    return found


#: Open: at 20.61 Mbit/s, 19 flows and 69 ms, and on links like it, the fluid under STRED swings
#: between an empty and a full queue, whose loop is stable at the design's point.
OPEN = pytest.mark.xfail(reason="STRED swings far from a stable equilibrium", strict=True)


@pytest.mark.parametrize(
    "law", [pytest.param(law, marks=OPEN if law == "stred" else ()) for law in LAWS]
)
def test_design_map_and_fluid_agree(law: str) -> None:
    for made in designs(law, 4):
        check_map(made)
        check_fluid(made)


@pytest.mark.parametrize("law", ["pi", "pi-avg", "p-avg", "rem", "pie", "pi2", "red"])
def test_packets_settle_at_the_equilibrium_of_the_design(law: str, tmp_path: Path) -> None:
    """Drawn once for each law, and marked, as the model has no losses."""
    rng = np.random.default_rng([7, *law.encode()])
    made = None
    while made is None:
        rate, rtt, window = np.exp(rng.uniform(np.log([4, 30, 8]), np.log([20, 120, 14])))
        flows = max(12, round(rate * rtt / 8 / window * 1.25))
        try:
            made = design(law, Link(f"{rate:.3g}Mbit/s", f"{rtt:.3g}ms", flows=flows))
        except ScenarioError:
            continue
        if not made.stable or made.settling_s > 15 or made.margins is None:
            made = None
    path = tmp_path / "made.toml"
    path.write_text(made.toml())
    found = run(path, overrides={"bottleneck.ecn": True, "traffic.0.ecn": True}, seeds=2)
    means = [one.metrics["queue_mean_pkts"] for one in found.runs]
    # TCP's sawteeth need up to a fifth less signal than p·W² = 2 (docs/explanation/fluid.md).
    assert float(np.mean(means)) == pytest.approx(made.queue_pkts, rel=0.3), made.link


def test_every_law_with_a_model_is_drawn() -> None:
    assert {"pi", "red", "pd-red", "stred", "pie"} <= set(LAWS)
    assert set(LAWS) <= {entry["name"] for entry in _native.laws()}
