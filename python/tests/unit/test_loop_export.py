"""Loops in other tools have the margins that they have here."""

from __future__ import annotations

import csv
import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from scipy import io as matlab
from scipy import signal

import forebay
from forebay.control.designed_law import LoopPicture

LINK = forebay.Link("15Mbit/s", "200ms", flows=60, packet="500B")


@pytest.mark.filterwarnings("ignore:stability_margins")
def test_python_control_finds_the_same_margins() -> None:
    control = pytest.importorskip("control")
    for law in ("pi", "pid", "rem"):
        design = forebay.design(law, LINK)
        margins = design.margins
        assert margins is not None
        made = design.to_control()
        gain_margin, phase_deg, _, crossover = control.margin(made["loop"])
        assert 20 * math.log10(gain_margin) == pytest.approx(margins.gain_db, abs=1e-3)
        assert phase_deg == pytest.approx(margins.phase_deg, abs=1e-3)
        assert crossover == pytest.approx(margins.crossover_rad_s, rel=1e-5)
        if made["loop"].dt > 0.02:
            # Roots of a polynomial in z of a hundred and more powers are lost to rounding.
            assert np.abs(control.feedback(made["loop"], 1).poles()).max() < 1
        omega = np.array([0.1, 1.0, 5.0])
        exact = design.loop.response(omega)  # type: ignore[union-attr]
        assert made["loop"](np.exp(1j * omega * made["loop"].dt)) == pytest.approx(exact, rel=1e-7)
        assert made["response"](1j * omega) == pytest.approx(exact, rel=1e-3)


def test_a_law_without_a_sampler_has_pade() -> None:
    control = pytest.importorskip("control")
    design = forebay.design("red", LINK)
    made = design.to_control(order=8)
    omega = np.array([0.05, 0.5, 5.0])
    exact = design.loop.response(omega)  # type: ignore[union-attr]
    assert made["loop"](1j * omega) == pytest.approx(exact, rel=1e-6)
    assert isinstance(made["response"], control.FrequencyResponseData)
    with pytest.raises(forebay.ScenarioError, match="order"):
        design.to_control(order=0)


def test_files_have_plant_law_and_loop(tmp_path: Path) -> None:
    design = forebay.design("pi", LINK)
    loop = design.loop
    assert loop is not None
    for name in ("loop.mat", "loop.json", "loop.csv"):
        design.to_mat(tmp_path / name)
    found = matlab.loadmat(tmp_path / "loop.mat", squeeze_me=True)
    table = json.loads((tmp_path / "loop.json").read_text())
    omega = np.array([0.3, 1.0, 3.0])
    # The state space and its delay are the plant.
    a, b, c, d = (np.atleast_2d(found[key]) for key in "ABCD")
    top, bottom = signal.ss2tf(a, b.reshape(-1, 1), c, d)
    s = 1j * omega
    seen = np.polyval(top[0], s) / np.polyval(bottom, s) * np.exp(-s * found["delay_s"])
    assert seen == pytest.approx(
        loop.point.plant_gain
        * np.exp(-s * loop.point.rtt_s)
        / (s + loop.point.tcp_pole)
        / (s + loop.point.queue_pole),
        rel=1e-6,
    )
    z = np.exp(s * found["interval_s"])
    for one in (found, table):
        seen = np.polyval(one["loop_numerator"], z) / np.polyval(one["loop_denominator"], z)
        assert seen == pytest.approx(loop.response(omega), rel=1e-7)
    rows = list(csv.DictReader((tmp_path / "loop.csv").open()))
    first = rows[len(rows) // 2]
    w = float(first["omega_rad_s"])
    assert float(first["loop_db"]) == pytest.approx(
        20 * math.log10(abs(loop.response([w])[0])), abs=1e-5
    )
    with pytest.raises(forebay.ScenarioError, match=r"\.mat, \.json, \.csv"):
        design.to_mat(tmp_path / "loop.xls")


def test_octave_finds_the_same_crossover(tmp_path: Path) -> None:
    octave = shutil.which("octave-cli") or shutil.which("octave")
    if octave is None:
        pytest.skip("no octave on this machine")
    design = forebay.design("pi", LINK)
    assert design.margins is not None
    design.to_mat(tmp_path / "loop.mat")
    line = (
        "load loop.mat; z = exp(1i*omega_rad_s*interval_s);"
        "l = polyval(loop_numerator, z)./polyval(loop_denominator, z);"
        'k = find(abs(l) > 1, 1, "last"); printf("%.9g", omega_rad_s(k))'
    )
    done = subprocess.run(
        [octave, "--quiet", "--no-gui", "--eval", line],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) == pytest.approx(design.margins.crossover_rad_s, rel=2e-2)


def test_a_design_draws_itself() -> None:
    design = forebay.design("pi", LINK)
    for kind in get_args(LoopPicture):
        assert design.plot(kind).png().startswith(b"\x89PNG")
    top, bottom = design.plant
    assert len(top) == 1 and len(bottom) == 3
    with pytest.raises(forebay.ScenarioError, match="acts on rates"):
        forebay.design("avq", LINK, overrides={"alpha": 0.15}).plot()
