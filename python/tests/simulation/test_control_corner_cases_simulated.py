"""Special cases of control design in the fluid, in packets, in time and over whole maps."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest
from conftest import Cli
from designs import typed_design as of
from linear_loop import hybrid

from forebay import fluid
from forebay.control.loop import count_loops
from forebay.report import designs


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
    assert "equilibrium is not the target of 90 packets" in designs.paragraph(made)


def test_a_map_simulates_as_long_as_its_cells_need(cli: Cli) -> None:
    red = ["min_th=20p", "max_th=150p", "max_p=0.05", "w_q=1e-5"]
    done = cli(
        *["map", "red", "--rate", "10Mbit/s", "--flows", "15..25", "--rtt", "50..60ms"],
        *[word for one in red for word in ("--set", one)],
        *["--buffer", "400p", "--points", "10", "--simulate", "1", "--out", "map"],
    )
    assert done.returncode == 0, done.stderr
    (heading,) = re.findall(r"^Packet simulations of (\d+) s:", done.stdout, re.MULTILINE)
    seconds = float(heading)
    # An average of w_q = 1e-5 at 1250 packets/s takes 80 s, and the loop twice that to settle.
    assert seconds == 300
    assert "had not reached the steady state" in " ".join(done.stdout.split())


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


def test_cells_without_equilibrium_are_no_stable_cells(cli: Cli, tmp_path: object) -> None:
    sets = ["target=80p", "gamma=0.2", "alpha=0.01", "interval=4ms"]
    done = cli(
        *["map", "rem", "--rate", "40Mbit/s", "--flows", "5..1500", "--rtt", "10..400ms"],
        *[word for one in sets for word in ("--set", one)],
        *["--simulate", "0", "--points", "60", "--out", "map"],
    )
    assert done.returncode == 0, done.stderr
    table = pl.read_parquet(f"{tmp_path}/map/map.parquet")
    # REM integrates: R = T + 80/C, and TCP needs 2N²/(RC)².
    need = 2 * (pl.col("flows") / (5000 * pl.col("rtt_s") + 80)) ** 2
    none = table.filter(need >= 1)
    assert none.height > 500
    assert set(none["rest"]) == {"saturated"}
    assert none["stable"].is_null().all()
    assert set(table.filter(need < 1)["rest"]) == {"linear"}
    assert f"{none.height:,} of 3,600 cells: no equilibrium" in done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "pd-red --rate 1Gbit/s --flows 20 --rtt 1ms --packet 1500B",
        "pd-red --rate 10Gbit/s --flows 50 --rtt 2ms",
        "pd-red --rate 100Mbit/s --flows 20 --rtt 20ms",
    ],
)
def test_pd_red_is_what_its_delay_equation_does(text: str) -> None:
    made = of(text, interval="10ms")
    assert made.loop is not None
    swing = hybrid(made.loop.point, made.loop.model)
    root = made.loop.roots[0]
    assert root.real == pytest.approx(swing.real, abs=0.01 * abs(swing) + 0.02 * abs(swing.real))
    assert abs(root.imag) == pytest.approx(abs(swing.imag), abs=0.01 * abs(swing))
    assert made.stable == bool(swing.real < 0)
    ((margin, stable),) = count_loops([made.loop])
    assert stable == made.stable
    assert margin == pytest.approx(min(60.0, made.loop.margins.gain_db), abs=0.05)


@pytest.mark.parametrize("law", ["pi", "red", "ared", "avq", "stred"])
def test_the_two_ways_to_a_set_point_are_one(law: str) -> None:
    # AVQ has no stable gains here, and is analysed with what is given.
    given = {"alpha": "0.15"} if law == "avq" else {}
    link = "--rate 20Mbit/s --flows 40 --rtt 80ms"
    by_option, by_set = (
        of(f"{law} {link} --target 60p", **given),
        of(f"{law} {link}", target="60p", **given),
    )
    assert by_option.toml() == by_set.toml()
    assert by_option.to_dict() == by_set.to_dict()
