"""Gains from the robust set of a range: against brute force, and over a recording."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli

from forebay import ScenarioError
from forebay._native import LawModel
from forebay.control import margins, pi_forms, pi_stabilising_set
from forebay.control.plant import PublishedPlant
from forebay.tuning import candidates, search
from forebay.tuning.candidates import GOALS
from forebay.tuning.ranges import LinkRange, RecordedLink
from forebay.tuning.tuning import tune

#: Long windows at every place, so that all of them count.
RANGES = LinkRange("20..40Mbit/s", "60..120ms", flows="5..15")


def region(law: str) -> search.Region:
    found = search.region_of(law, RANGES)
    assert found is not None
    return found


def peak(law: str, target: float, k_p: float, k_i: float, interval_s: float) -> float:
    """The largest |1/(1 + L)| at any place, by the exact margins of the loop that the law's own
    parameters make; infinite where one is unstable."""
    space = region(law)
    point = {"target": target, "k_p": k_p, "k_i": k_i, "interval": interval_s}
    peaks = []
    for place in RANGES.conditions:
        model = LawModel(law, space.params(point), place.rate_bps, 1000, float(RANGES.buffer_pkts))
        loop = PublishedPlant(model).loop_at(place.flows, place.rtt_s)
        assert loop is not None
        peaks.append(margins.peak(loop.terms, loop.grid) if loop.stable else math.inf)
    return max(peaks)


def test_the_laws_that_are_a_pi() -> None:
    """Those whose gains are a PI's by other names; no law that has an average, or one that
    chooses its gains by itself."""
    assert {"pi", "rem", "pie", "pi2"} <= set(pi_forms.pi_laws())
    assert not {"stpi", "pid", "pi-pd", "pi-avg", "red", "ared", "codel"} & set(pi_forms.pi_laws())


@pytest.mark.parametrize("law", ["pi", "rem", "pie", "pi2"])
def test_the_robust_set_is_that_of_brute_force(law: str) -> None:
    target, interval_s = 80.0, 0.01
    robust = region(law).robust(target, interval_s)
    assert robust is not None
    assert all(robust.counts)
    tried = 0
    for i in (4, 12, 20, 24):
        k_p, k_i = float(robust.k_p[i]), float(robust.k_i[i])
        if not k_i > 0 or k_p <= 0.6 * k_i * interval_s:
            continue
        assert peak(law, target, k_p, 0.97 * k_i, interval_s) < 2.02
        assert peak(law, target, k_p, 1.04 * k_i, interval_s) > 1.98
        tried += 1
    assert tried >= 2


@pytest.mark.parametrize("law", ["pi", "pi2"])
def test_no_gains_of_the_space_are_better(law: str) -> None:
    """Brute force: a hundred and twenty random gains, of which none costs clearly less."""
    space, goal = region(law), GOALS["balance"]
    best = space.best(goal)
    assert best is not None
    assert best.keeps
    cost = search.loss(best.local, goal)
    assert cost < 1
    rng = np.random.default_rng(4)
    least = math.inf
    for _ in range(120):
        spread = np.exp(rng.uniform(-2.5, 2.5, 3))
        point = dict(best.point)
        for key, factor in zip(("target", "k_p", "k_i"), spread, strict=True):
            point[key] *= float(factor)
        try:
            local = space.local(point, RANGES, RANGES.conditions)
        except ScenarioError:
            continue
        least = min(least, search.loss(local, goal))
    assert cost < 1.05 * least


def test_another_set_point_gets_gains_of_its_own() -> None:
    space = region("pi2")
    best = space.best(GOALS["delay"])
    assert best is not None
    for share in (0.7, 0.35):
        point = space.moved(best.point, share)
        assert point is not None
        assert point["target"] == pytest.approx(share * best.point["target"])
        assert candidates.keeps_margins(space.local(point, RANGES, RANGES.conditions))
    fastest = space.fastest(best.point["target"], best.point["interval"])
    assert fastest is not None
    assert fastest["k_i"] >= 0.95 * best.point["k_i"]


def test_where_one_set_does_not_suffice() -> None:
    wide = LinkRange("5..50Mbit/s", "20..200ms", flows="5..40")
    space = search.region_of("pi", wide)
    assert space is not None
    best = space.best(GOALS["balance"])
    assert best is not None
    own = space.own(best.point)
    assert max(gains.k_i for _, gains, _ in own) > pi_stabilising_set.SLOW * best.point["k_i"]
    # Few flows, the fastest link and the longest round trip bind all others.
    assert min(own, key=lambda one: one[1].k_i)[0].flows == 5


def recording(folder: Path) -> Path:
    """Ten seconds of 12 Mbit/s and ten of 6, from the beginning again."""
    times = [*range(0, 10_000), *range(10_000, 20_000, 2)]
    path = folder / "cell.down"
    path.write_text("".join(f"{time}\n" for time in times))
    return path


def test_the_rates_of_a_recording(tmp_path: Path) -> None:
    found = RecordedLink.from_file(str(recording(tmp_path)))
    assert (found.low_bps, found.high_bps, found.mean_bps) == (6_000_000, 12_000_000, 9_000_000)
    assert found.round_s == pytest.approx(20, abs=0.01)
    ranges = LinkRange(None, "40..80ms", flows="2..4", trace=str(tmp_path / "cell.down"))
    assert ranges.rates_bps == (6_000_000, 12_000_000)
    assert len(ranges.conditions) == 9
    assert len(ranges.places) == 5
    assert all(place.traced and place.rate_bps == 9_000_000 for place in ranges.places)


@pytest.mark.parametrize("text", ["", "0\n", "1\n0\n", "1.5\n"])
def test_what_is_no_recording(text: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong"
    path.write_text(text)
    with pytest.raises(ScenarioError, match="trace: "):
        RecordedLink.from_file(str(path))


def test_a_tuning_over_a_recording(cli: Cli, tmp_path: Path) -> None:
    recording(tmp_path)
    given = ["tune", "--trace", "cell.down", "--rtt", "60ms", "--flows", "4", "--seeds", "2"]
    done = cli(*given, "--law", "pi2", "--goal", "delay", "--buffer", "200p", "--no-store")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "results" / "tune"
    found = json.loads((folder / "tune.json").read_text())
    assert found["law"] == "pi2"
    assert found["one_set"]["law"] == "pi2"
    assert found["ranges"]["trace"]["mean_bps"] == 9_000_000
    assert [place["model"] for place in found["places"]] == [None]
    # Other set-points ran, with gains of their own.
    shares = [one["label"] for one in found["candidates"] if " at " in one["label"]]
    assert len(shares) >= 4
    # What it wrote runs again, over the recording.
    again = cli("run", str(folder / "tuned.toml"), "--seeds", "1", "--no-store")
    assert again.returncode == 0, again.stderr
    assert "rate_trace" in (folder / "tuned.toml").read_text()
    bare = cli("tune", "--rtt", "60ms", "--flows", "4", "--out", "bare")
    assert bare.returncode == 2
    assert "--rate: missing; expected a rate or a range of rates, or a trace" in bare.stderr


def test_a_tuning_tells_of_one_set() -> None:
    result = tune(LinkRange("20Mbit/s", "100ms", flows="5..10"), laws=["pi", "stpi"], seeds=1)
    text = " ".join(result.reasons())
    assert "The gains of PI come from the exact set of gains" in text
