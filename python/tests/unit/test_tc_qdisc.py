"""A law in its queue as a qdisc of Linux."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from forebay import _native
from forebay._base import registries

LINK = {
    "queue": None,
    "rate_bps": 15_000_000,
    "buffer_pkts": 300,
    "buffer_bytes": None,
    "packet_bytes": 1500,
    "ecn": True,
    "header_bytes": 0,
    "held": False,
}

RED = [("gentle", False), ("wait", False), ("queue_in_bytes", True), ("w_q", 2**-7)]


def words(
    law: str, params: list[tuple[str, Any]] | None = None, **link: Any
) -> _native.TcWords | None:
    return _native.tc_words(law, params or [], **{**LINK, **link})


def test_a_qdisc_is_written_from_a_scenarios_link_and_law() -> None:
    found = words(
        "codel",
        [("target", "10p")],
        queue='{ kind = "fq", queues = 64, quantum = "300B" }',
    )
    assert found is not None
    assert found.qdisc == "fq_codel"
    assert found.text == (
        "fq_codel limit 300 target 8ms interval 100ms ecn flows 64 quantum 300 drop_batch 64"
    )
    assert found.rounded == []
    coarse = words("pie", [("alpha", 0.1)])
    assert coarse is not None
    assert coarse.rounded == [("alpha", "0.1", "0.125")]
    assert words("blue") is None


def test_a_parameter_that_the_qdisc_lacks_is_refused_in_one_line() -> None:
    with pytest.raises(
        _native.ScenarioError,
        match=r"^red: gentle: true is not valid; expected false, which is constant in Linux's red",
    ):
        words("red")
    with pytest.raises(_native.ScenarioError, match="did you mean"):
        words("codle")


def test_tc_takes_every_line(tmp_path: Any) -> None:
    """In a namespace of its own, on a device that sends nothing."""
    if not (shutil.which("tc") and shutil.which("unshare")):
        pytest.skip("needs tc and unshare")
    lines = []
    for law in registries.laws():
        params = {"red": RED, "ared": [*RED, ("bottom", 0.01)]}.get(law, [])
        found = words(law, params)
        if found is not None:
            lines.append(found.text)
    assert len(lines) == 9
    script = "ip link add d0 type dummy || exit 77\n" + "".join(
        f"tc qdisc replace dev d0 root {line} || echo 'not {line}'\n" for line in lines
    )
    done = subprocess.run(
        ["unshare", "-rn", "sh", "-c", script],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    unknown = ("qdisc kind is unknown", "Unknown qdisc", "not supported")
    if done.returncode == 77 or any(text in done.stderr for text in unknown):
        pytest.skip(f"needs dummy devices and every qdisc: {done.stderr.strip()[:200]}")
    assert done.stdout == "", done.stderr
