"""`forebay tune` for classes of flows with senders and RTTs of their own."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
from calm_pi import fastest_calm_pi
from conftest import Cli

from forebay import ScenarioError
from forebay._base import quantities
from forebay.control.plants import MixedLoop
from forebay.control.senders import SENDERS
from forebay.tuning import candidates, check
from forebay.tuning.candidates import Candidate
from forebay.tuning.ranges import LinkRange

RTTS = "20ms,80ms,200ms"


def test_one_number_of_flows_is_divided_and_all_classes_move_together() -> None:
    ranges = LinkRange("5..50Mbit/s", "20..40ms,80ms", flows="11..40", senders="cubic,reno")
    assert (ranges.rtts_s, ranges.flows) == ((0.02, 0.08), (11, 40))
    assert ranges.buffer_pkts == 500  # 50 Mbit/s · 80 ms
    assert len(ranges.conditions) == 9
    low, high = ranges.corners[0], ranges.corners[-1]
    assert [(one.tcp, one.flows, one.rtt) for one in low.classes] == [
        ("cubic", 6, "20ms"),
        ("reno", 5, "80ms"),
    ]
    assert [(one.flows, one.rtt) for one in high.classes] == [(20, "40ms"), (20, "80ms")]
    assert low.rtt_s == pytest.approx((6 * 0.02 + 5 * 0.08) / 11, abs=1e-6)
    middle = ranges.middle.classes
    assert [one.flows for one in middle] == [11, 10]
    assert middle[0].rtt_s == pytest.approx(np.sqrt(0.02 * 0.04), rel=2e-3)
    assert str(ranges) == "5 to 50 Mbit/s, 20 to 40, 80 ms, 11 to 40 flows of cubic and reno"
    assert ranges.only(low).conditions == [low]


def test_packets_have_all_classes_at_every_place() -> None:
    ranges = LinkRange("20Mbit/s", "20..40ms,80ms", flows="4..10,6", senders="cubic,reno")
    written = tomllib.loads(check.scenario([candidates.default("pi")], ranges, ""))
    assert [(one["flows"], one["rtt"], one["tcp"]) for one in written["traffic"]] == [
        (4, "20ms", "linux-cubic"),
        (6, "80ms", "reno"),
    ]
    assert written["sweep"] == {
        "bottleneck.rate": ["20Mbit/s"],
        "traffic.0.rtt, traffic.1.rtt": [["20ms", "80ms"], ["40ms", "80ms"]],
        "traffic.0.flows, traffic.1.flows": [[4, 6], [10, 6]],
    }


def test_a_range_of_one_place_is_the_design_of_its_link() -> None:
    """Where all rest, and the peak of the loop, at the one condition of the range."""
    ranges = LinkRange("50Mbit/s", RTTS, flows="30", packet="1500B", senders="cubic")
    params = (("target", "60p"), ("a", "0.0004"), ("b", "0.00039"))
    (local,) = candidates.local_models_at(
        "pi", lambda _place, _flows: params, 60.0, ranges, ranges.conditions
    )
    assert local is not None
    assert isinstance(local.loop, MixedLoop)
    rests = local.loop.plant.class_equilibria(local.loop.equilibrium)
    assert [quantities.time(one.propagation_s) for one in rests.classes] == RTTS.split(",")
    used = sum(one.flows * one.rate_pkts_per_s for one in rests.classes)
    assert used == pytest.approx(50e6 / 12000, rel=1e-9)
    for one in rests.classes:
        window = SENDERS["cubic"].window(np.array(rests.probability), np.array(one.rtt_s))
        assert one.window_pkts == pytest.approx(float(window))
    assert local.sensitivity == pytest.approx(local.loop.peak, rel=0.03)
    assert sum(share for _, share in local.loop.signal_paths) == pytest.approx(1)


def test_predicted_deviation_is_that_of_packets() -> None:
    ranges = LinkRange("20Mbit/s", RTTS, flows="30", senders="cubic")
    region, point, local = fastest_calm_pi(ranges, 60.0, 0.01)
    assert local.sensitivity <= 2
    one = Candidate("pi", "pi", region.params(point), "listed")
    seen = check.check([one], ranges, 2).checked[0]
    assert float(seen.deviation_s.mean()) == pytest.approx(local.noise_delay_s, rel=0.4)


def test_a_searched_law_has_an_equilibrium_at_every_operating_point() -> None:
    """At classes whose shares and RTTs differ from place to place."""
    ranges = LinkRange("5..50Mbit/s", "20..40ms,80ms", flows="10..41", senders="cubic,linux-reno")
    for law in ("red", "stpi"):
        space = candidates.space(law, ranges)
        assert space is not None
        point = {axis.name: float(np.sqrt(axis.low * axis.high)) for axis in space.axes}
        found = space.local(point, ranges, ranges.conditions)
        assert any(found)
        for one, local in zip(ranges.conditions, found, strict=True):
            if local is None:
                continue
            (alone,) = space.local(point, ranges, [one])
            assert alone is not None
            assert local.queue_pkts == pytest.approx(alone.queue_pkts, rel=1e-9)
            assert local.gain_db == pytest.approx(alone.gain_db, rel=1e-6)
            assert local.sensitivity == pytest.approx(alone.sensitivity, rel=1e-6)


def test_the_command_takes_classes(cli: Cli) -> None:
    """Shortened: one law and one seed."""
    words = ("--rate", "2Mbit/s", "--rtt", "40ms,90ms", "--flows", "4", "--tcp", "cubic")
    done = cli("tune", *words, "--law", "pi", "--seeds", "1", "--out", "tuned")
    assert done.returncode == 0, done.stderr
    assert "2 Mbit/s, 40, 90 ms, 4 flows of cubic" in " ".join(done.stdout.split())
    again = cli("run", "tuned/corners.toml", "--law", "pi (tuned)", "--json")
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rtt": "20ms,80ms,", "senders": "cubic"}, 'rtt: "" is not valid; expected a time'),
        ({"rtt": RTTS, "senders": "cubic,reno"}, 'senders: "cubic,reno": 2 values, but'),
        ({"rtt": RTTS, "flows": "2..30"}, 'flows: "2..30": there are 3 classes; expected one'),
        ({"senders": "cubic,bbr"}, 'senders: "bbr" is not valid; expected one of reno,'),
    ],
)
def test_bad_classes_are_one_line(given: dict[str, str], said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        LinkRange("20Mbit/s", **{"rtt": "20ms", "flows": "10..30", **given})
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
