"""What `forebay doctor` says of this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import Cli
from links import blast, in_real_time, marked, needs_link, nothing_stays

import forebay
from forebay.linux import doctor, link_outcome

__all__ = ["marked", "nothing_stays"]  # fixtures that are in force here

pytestmark = needs_link


def test_doctor_lists_the_capabilities_of_the_machine(cli: Cli) -> None:
    done = cli("doctor", "--json")
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 0
    assert "yes" in (found[f"A link over {it}"]["verdict"] for it in ("TUN", "packet sockets"))
    assert "lateness" in found["Timing"]["found"]
    wrong = cli("doctor", "no-such-device")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith('error: DEVICE: "no-such-device"')


def test_doctor_says_that_a_machine_is_too_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = doctor.findings()
    links = [next(findings), next(findings)]
    assert any(one.verdict == "yes" for one in links)
    # No link is as quick as this.
    monkeypatch.setattr(doctor, "PATIENCE_S", 0.0)
    found = {one.name: one for one in findings}
    for name in ("Network namespaces", "IPv6", "Timing", "Offloads (above 1 Gbit/s)"):
        assert found[name].verdict == "no" and found[name].found and found[name].advice


@in_real_time
def test_doctor_sees_whether_a_queue_is_the_bottleneck() -> None:
    """The link's own device has a queue in which nothing waits: the bottleneck is the link."""
    look = "from forebay.linux.doctor import queue; print(queue('forebay0').verdict)"
    with forebay.link("2Mbit/s", buffer="20p") as net:
        net.client.popen(blast(972, 1000, 600, net.server.address))
        done = net.client.run([sys.executable, "-c", look], capture_output=True, text=True)
    assert done.stdout == "no\n"


def test_doctor_warns_of_a_sender_that_ignores_drops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_available", lambda: "reno bbr cubic")
    monkeypatch.setattr(link_outcome, "DEFAULT_CONGESTION_CONTROL", tmp_path / "default")
    for default, verdict in [("cubic", "yes"), ("bbr", "partly")]:
        link_outcome.DEFAULT_CONGESTION_CONTROL.write_text(f"{default}\n")
        one = doctor._congestion_control()
        assert (one.verdict, default in one.found) == (verdict, True)
        assert ("iperf3 -C cubic" in one.advice) == (verdict == "partly")
