"""Special cases of control design in the fluid and in packets."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Cli
from designs import typed_design as of

from forebay import fluid
from forebay.report import design_reasons as reasons


@pytest.mark.parametrize(
    ("law", "sets"),
    [
        ("pi", {"a": "1e-5", "b": "1e-5"}),
        ("pid", {"k_p": "2e-5", "k_i": "0", "k_d": "0"}),
        ("p-avg", {}),
        ("rem", {"alpha": "0", "gamma": "0.02"}),
    ],
)
def test_without_an_integral_the_queue_settles_where_the_fluid_does(
    law: str, sets: dict[str, str]
) -> None:
    text = f"{law} --rate 30Mbit/s --flows 60 --rtt 100ms --target 90p --buffer 1500p"
    made = of(text, **sets)
    params = {key: float(value) if value[-1].isdigit() else value for key, value in made.params}
    link = fluid.Bottleneck(law, "30Mbit/s", 1500, params=params)
    trace = fluid.run(fluid.Model([link], [fluid.Class(60, "100ms", marks=True)], "300s"))
    settled = float(trace.queue_pkts[0, -3000:].mean())
    assert made.queue_pkts == pytest.approx(settled, rel=0.01)
    if law == "pi":
        assert settled == pytest.approx(665, abs=1)
    assert "does not hold the wanted 90 packets" in reasons.paragraph(made)


def test_a_map_simulates_as_long_as_its_cells_need(cli: Cli) -> None:
    red = ["min_th=20p", "max_th=150p", "max_p=0.05", "w_q=1e-5"]
    done = cli(
        *["map", "red", "--rate", "10Mbit/s", "--flows", "15..25", "--rtt", "50..60ms"],
        *[word for one in red for word in ("--set", one)],
        *["--buffer", "400p", "--points", "10", "--simulate", "1", "--out", "map"],
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Packets, ")]
    seconds = float(line.split()[1])
    # An average of w_q = 1e-5 at 1250 packets/s takes 80 s, and the loop twice that to settle.
    assert seconds == 300
    assert "this is its start" in " ".join(done.stdout.split())


def test_a_fluid_without_intensity_signals_no_packet_twice() -> None:
    link = fluid.Bottleneck("e-avq", "30Mbit/s", 400)
    trace = fluid.run(fluid.Model([link], [fluid.Class(40, "80ms", marks=True)], "40s"))
    assert trace.probability.max() <= 1
    assert trace.probability[0, 2000:].mean() > 1e-3


def test_the_fluid_is_the_same_at_any_rate() -> None:
    """A link with a hundred times the rate, the flows, the queue and a hundredth of the gain."""
    queues = []
    for scale in (1, 100):
        params: dict[str, float | str] = {
            "target": f"{200 * scale}p",
            "a": 7.853e-5 / scale,
            "b": 7.827e-5 / scale,
        }
        link = fluid.Bottleneck("pi", f"{30 * scale}Mbit/s", 800 * scale, params=params)
        model = fluid.Model([link], [fluid.Class(60 * scale, "200ms", marks=True)], "60s")
        queues.append(fluid.run(model).queue_pkts[0] / scale)
    assert np.abs(queues[1] - queues[0]).max() < 5
