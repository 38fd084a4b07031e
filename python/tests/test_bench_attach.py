"""The simulator beside a law in the kernel: both must have the same path."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import attach

SCENARIO = Path(attach.__file__).with_name("attach.toml")


def runs(rtt: str) -> list[attach.Measured]:
    given = argparse.Namespace(scenario=SCENARIO, set=[f"traffic.0.rtt={rtt}"], seeds=1)
    return attach.simulated(given)["avq"]


def test_without_netem_the_simulator_has_the_namespaces_rtt() -> None:
    assert runs("50us") == runs("100us")
    assert runs("100us") != runs("1ms")


def test_settles_where_the_means_of_a_second_stay_near_their_rest() -> None:
    still = attach.Measured("pi", 0.0, 0.0, 0.0, 0.0, 1.0)
    looks = [50.0, 100.0, 90.0, *[60.0] * 5, *[50.0] * 12]
    # The second from 1 s on has 75 packets; that from 1.5 s on 60, which is near 50.
    one = attach.stepped(still, looks)
    assert (one.settling_s, one.peak_pkts) == (1.5, 95.0)
    assert attach.stepped(still, [50.0] * 20).settling_s == 0.0


def test_a_rate_step_is_simulated_at_the_new_rate() -> None:
    path = SCENARIO.with_name("attach_rate.toml")
    given = argparse.Namespace(scenario=path, set=[], seeds=1)
    (pi,) = attach.simulated(given)["pi"]
    # 50 packets of 1500 bytes at 7.5 Mbit/s.
    assert 0.9 * 80e-3 < pi.delay_s < 1.1 * 80e-3
    assert pi.settling_s is not None
