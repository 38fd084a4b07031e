"""Our runs beside the reference runs of real ns-2 and of the Linux kernel, where they are at hand.

`make fidelity` runs every case with ten seeds; here is one of each kind, with three.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT.parent / "shared" / "reference" / "ns2.json"
#: made by `bench/ns2.py`
MORE = ROOT / "bench" / "ns2.json"
#: made with the reference's harness
LINUX = ROOT / "bench" / "linux.json"

sys.path.insert(0, str(ROOT / "bench"))

import fidelity  # noqa: E402
import fidelity_linux  # noqa: E402
import udp_prague  # noqa: E402
from beside import cell  # noqa: E402

CASES = [
    "A.RED.g1.N100",
    "A.ARED.g0.N100",
    "B.ftp.n7.DropTail",
    "B.ftp.n7.PI",
    "B.mixed.n7.PI",
    "C.PI.Sack1",
    "D.AVQ.Reno.gamma0.98",
    "X.B.ftp.n7.RED.g1.newreno",
    "X.B.ftp.n7.PI.delack",
]


@pytest.mark.skipif(not REFERENCE.exists(), reason="no reference runs at ../shared/reference")
@pytest.mark.parametrize("name", CASES)
def test_figures_are_within_the_tolerance(name: str) -> None:
    check(next(c for c in json.loads(REFERENCE.read_text()) if c["id"] == name))


@pytest.mark.parametrize("case", json.loads(MORE.read_text()), ids=lambda case: case["id"])
def test_cases_of_our_own_are_within_the_tolerance(case: dict[str, Any]) -> None:
    """AVQ where every link has one rate: which packet of one time comes first decides."""
    check(case)


@pytest.mark.parametrize("case", json.loads(LINUX.read_text()), ids=lambda case: case["id"])
def test_the_kernels_cases_of_our_own_are_within_the_tolerance(case: dict[str, Any]) -> None:
    """Queues and senders of Linux where they were off: small windows, hosts, slow links, flows that
    do not answer."""
    compared = fidelity_linux.compare(case, seeds=4)
    outside = [f"{it.tolerance.title}: {cell(it)}" for it in compared if not it.agrees]
    assert not outside


def check(case: dict[str, Any]) -> None:
    outside = [
        f"{figure.tolerance.title}: {cell(figure)}"
        for window in case["windows"]
        for figure in fidelity.compare(case, window, seeds=3)
        if not figure.agrees
    ]
    assert not outside


@pytest.mark.parametrize(
    ("case", "beside"),
    [((100, 20, 1), False), ((20, 20, 8), False), ((20, 20, 2), True), ((20, 5, 1), True)],
)
def test_prague_is_as_the_l4s_team_s_own_sender(
    case: tuple[int, int, int], beside: bool, tmp_path: Path
) -> None:
    """Where its pace decides: a step, and windows of about two packets."""
    theirs = json.loads(udp_prague.THEIRS.read_text())[udp_prague.name(case, beside)]
    text = udp_prague.scenario(case, udp_prague.OURS, beside)
    ours = udp_prague.figures(text, tmp_path, 6, "packets")
    compared = udp_prague.compare(ours, theirs)
    outside = [f"{it.tolerance.title}: {cell(it)}" for it in compared if not it.agrees]
    assert not outside
