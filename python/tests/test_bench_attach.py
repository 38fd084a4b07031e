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
    assert runs("1ms") == runs("100us")
    assert runs("1ms") != runs("20ms")
