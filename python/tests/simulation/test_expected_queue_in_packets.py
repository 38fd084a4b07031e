"""The queue's deviation and oscillation as theory expects them, against packets and the fluid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from designs import scaled_design as made

from forebay import fluid, run
from forebay.control.ack_clocking import AckClockedEquilibrium


@pytest.mark.parametrize("law", ["pi", "pi-pd", "red"])
@pytest.mark.parametrize(
    "link",
    [
        ("50Mbit/s", 30, "40ms", "100p"),
        ("100Mbit/s", 50, "20ms", "80p"),
    ],
)
def test_deviation_and_utilisation_of_packets(law: str, link: tuple[str, int, str, str]) -> None:
    """Within 12 % with four seeds, RED within 25; the papers' loop says 10 to 40 % less, and for
    RED 40 % more."""
    one = made(law, link)
    moves = one.expected
    assert moves is not None
    text = one.toml().replace("[bottleneck]", "[bottleneck]\necn = true")
    text = text.replace('kind = "ftp"', 'kind = "ftp"\necn = true')
    found = run(text, seeds=4)
    late = found.samples.filter(found.samples["time_s"] >= 20)
    variances = [float(group["queue_pkts"].to_numpy().var()) for _, group in late.group_by("seed")]
    assert moves.deviation_pkts == pytest.approx(
        math.sqrt(np.mean(variances)), rel=0.25 if law == "red" else 0.12
    )
    used = found.summary().filter(metric="utilisation")["mean"][0]
    assert moves.utilisation == pytest.approx(used, abs=0.01)


@pytest.mark.parametrize("law", ["pi", "rem", "pid"])
def test_a_few_flows_take_an_integral_to_zero(law: str) -> None:
    """With ten flows within 12 %, four seeds; cut after the law it was up to 15 % more, and the
    queue's mean at the set-point."""
    one = made(law, ("10Mbit/s", 10, "50ms", "30p"))
    moves = one.expected
    assert moves is not None
    text = one.toml().replace("[bottleneck]", "[bottleneck]\necn = true")
    text = text.replace('kind = "ftp"', 'kind = "ftp"\necn = true').replace('"60s"', '"120s"')
    found = run(text, seeds=4)
    late = found.samples.filter(found.samples["time_s"] >= 20)
    queues = [group["queue_pkts"].to_numpy() for _, group in late.group_by("seed")]
    deviation = math.sqrt(np.mean([float(queue.var()) for queue in queues]))
    assert moves.deviation_pkts == pytest.approx(deviation, rel=0.12)
    mean = float(np.mean([queue.mean() for queue in queues]))
    assert moves.mean_pkts == pytest.approx(mean, rel=0.1)
    assert moves.mean_pkts < 28


@pytest.mark.parametrize(
    ("law", "factor", "amplitude", "period"),
    [("pi", 2.0, 0.1, 0.03), ("pi", 3.0, 0.1, 0.08), ("pi-pd", 6.0, 0.25, 0.05)],
)
@pytest.mark.parametrize(
    "link",
    [
        ("30Mbit/s", 60, "200ms", "200p"),
        ("50Mbit/s", 30, "40ms", "100p"),
        ("100Mbit/s", 100, "100ms", "400p"),
    ],
)
def test_the_fluid_swings_as_the_balance_says(
    law: str, factor: float, amplitude: float, period: float, link: tuple[str, int, str, str]
) -> None:
    one = made(law, link, factor)
    swing, loop = one.cycle, one.sawtooth
    assert swing is not None
    assert loop is not None
    assert one.expected is None
    window = float(AckClockedEquilibrium.at_probability(loop.point.probability).window_pkts)
    numbers = {key: float(text) if text[-1].isdigit() else text for key, text in one.params}
    end_s = 30 + 60 * swing.period_s
    flows = fluid.Class(
        one.link.flows, one.link.rtt, marks=True, sawtooth=True, initial_window_pkts=window
    )
    queue = fluid.Bottleneck(law, one.link.rate, 3000, params=numbers)
    trace = fluid.run(fluid.Model([queue], [flows], f"{end_s:.2f}s", sample="5ms"))
    late = trace.time_s > 0.6 * end_s
    time_s, pkts = trace.time_s[late], trace.queue_pkts[0][late]
    low, high = np.percentile(pkts, [0.5, 99.5])
    up = np.flatnonzero(np.diff(np.signbit(pkts - pkts.mean()).astype(int)) < 0)
    assert swing.amplitude_pkts == pytest.approx(0.5 * (high - low), rel=amplitude)
    assert swing.period_s == pytest.approx(float(np.diff(time_s[up]).mean()), rel=period)
