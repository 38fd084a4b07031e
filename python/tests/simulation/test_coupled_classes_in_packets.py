"""Classic and L4S flows under a coupled law: packets against the model's equilibrium."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from designs import class_equilibria as both
from designs import coupled_design as made

from forebay.experiment.run import run


@pytest.mark.parametrize("tcp", ["prague", "dctcp"])
@pytest.mark.parametrize("l4s_flows", [5, 10])
def test_packets_rest_where_the_model_does(tcp: str, l4s_flows: float, tmp_path: Path) -> None:
    """Classic flows with ECN, as the model has no losses. Reno's sawteeth need up to a fifth less
    signal than p·W² = 2 (docs/fluid.md), and Prague does not grow for a marked packet, so p' is
    less."""
    one = made(l4s_flows=l4s_flows)
    path = tmp_path / "made.toml"
    path.write_text(one.toml())
    result = run(path, sets={"traffic.0.ecn": True, "traffic.1.tcp": tcp}, seeds=3)
    # The queue of both is shorter than the set-point, which is of the delay.
    assert result.warnings == []
    rests = both(one)
    by_class = [{each.name: each.metrics for each in seen.classes} for seen in result.runs]

    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    rates = [np.array(seen.flow_goodput_bps) for seen in result.runs]
    ratio = mean(of[10:].mean() / of[:10].mean() for of in rates)
    assert ratio == pytest.approx(rests.ratio, rel=0.3)
    of_l4s = mean(of["l4s"]["mark_rate"] for of in by_class) / rests.coupling
    assert of_l4s == pytest.approx(rests.root, rel=0.25)
    of_classic = mean(math.sqrt(of["classic"]["mark_rate"]) for of in by_class)
    assert of_classic == pytest.approx(rests.root, rel=0.25)
    # Little's law: what waits for classic flows, which is what the model's law sees.
    share = mean(of[:10].sum() / of.sum() for of in rates)
    delay_s = mean(of["classic"]["delay_mean_s"] for of in by_class)
    assert share * 40e6 / 12_000 * delay_s == pytest.approx(rests.queue_pkts, rel=0.1)
