"""The senders of today in the plant: where their windows rest, how they move, and the loop of
several of them, each by another calculation or by packets."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.optimize import brentq
from scipy.signal import lsim

import forebay
from forebay import _native, fluid
from forebay._native import ScenarioError
from forebay.control import frequency_response, margins
from forebay.control.design import design
from forebay.control.designed_law import Design
from forebay.control.link import Link, replaced
from forebay.control.loop import Loop
from forebay.control.plant import MixedEquilibrium
from forebay.control.plants import MixedPlant, plant_on
from forebay.control.senders import SENDERS
from forebay.experiment.result import run

Floats = NDArray[np.float64]
POINTS = [(3e-4, 0.02), (3e-4, 0.12), (4e-3, 0.3), (0.03, 0.08)]
MIX: dict[str, Any] = {"rtt": "20ms,80ms,200ms", "senders": "cubic"}


def link(**given: Any) -> Link:
    values: dict[str, Any] = {
        "rate": "50Mbit/s",
        "packet": "1500B",
        "flows": 30,
        "rtt": "60ms",
    } | given
    return Link(**values)


def mix(law: str = "pi", params: Any = (), **given: Any) -> MixedPlant:
    found = plant_on(link(**given), law, list(params))
    assert isinstance(found, MixedPlant)
    return found


def loop(one: Design) -> Loop:
    assert one.loop is not None
    return one.loop


def rested(one: Design) -> MixedEquilibrium:
    assert one.senders is not None
    return one.senders


# --- one window -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SENDERS)
@pytest.mark.parametrize(("p", "rtt_s"), POINTS)
def test_a_settled_window_follows_its_equilibrium(name: str, p: float, rtt_s: float) -> None:
    """−c·a⁻¹·b and −c·a⁻¹·e are the slopes of W(p, R)."""
    one, at = SENDERS[name], (np.array([p]), np.array([rtt_s]))
    w = one.window(*at)
    motion = one.motion(*at)
    settled = -np.linalg.solve(motion.a[0], np.stack([motion.b[0], motion.e[0]], 1))
    by_p, by_r = motion.c[0] @ settled
    small = 1e-5
    up, down = one.window(at[0] * (1 + small), at[1]), one.window(at[0] * (1 - small), at[1])
    assert by_p == pytest.approx(float((up - down)[0]) / (2 * small * p), rel=0.02)
    up, down = one.window(at[0], at[1] * (1 + small)), one.window(at[0], at[1] * (1 - small))
    assert by_r == pytest.approx(
        float((up - down)[0]) / (2 * small * rtt_s), rel=0.02, abs=0.02 * w[0] / rtt_s
    )


def reno(x: Floats, p: float, r: float) -> list[float]:
    return [1 / r - x[0] ** 2 * p / (2 * r)]


def dctcp(x: Floats, p: float, r: float) -> list[float]:
    return [1 / r - x[0] * x[1] / (2 * r), (p - x[1]) / (16 * r)]


def prague(x: Floats, p: float, r: float) -> list[float]:
    virtual = max(r, 0.025)
    marks = p * x[0] * virtual / r
    fall = x[0] * x[1] / (2 * virtual) * marks / (1 + marks)
    return [(1 - p) * r / virtual**2 - fall, (p - x[1]) / (16 * virtual)]


@pytest.mark.parametrize(("name", "of"), [("reno", reno), ("dctcp", dctcp), ("prague", prague)])
@pytest.mark.parametrize(("p", "rtt_s"), [(0.05, 0.012), (0.02, 0.06), (0.2, 0.02)])
def test_motions_are_the_slopes_of_the_equations(
    name: str, of: Any, p: float, rtt_s: float
) -> None:
    one = SENDERS[name]
    w = float(one.window(np.array(p), np.array(rtt_s)))
    motion = one.motion(np.array([p]), np.array([rtt_s]))
    x = np.array([w, p][: motion.b.shape[-1]])
    assert of(x, p, rtt_s) == pytest.approx([0.0] * len(x), abs=1e-9 * w / rtt_s)

    def slope(f: Any, at: float) -> Floats:
        step = 1e-6 * at
        return np.asarray((np.array(f(at + step)) - np.array(f(at - step))) / (2 * step))

    scale = 1e-5 * w / rtt_s / p
    assert motion.b[0] == pytest.approx(slope(lambda at: of(x, at, rtt_s), p), abs=scale)
    assert motion.e[0] == pytest.approx(slope(lambda at: of(x, p, at), rtt_s), abs=scale)
    for i in range(len(x)):

        def moved(at: float, i: int = i) -> Any:
            return of(np.array([at if j == i else v for j, v in enumerate(x)]), p, rtt_s)

        assert motion.a[0][:, i] == pytest.approx(slope(moved, float(x[i])), rel=1e-5, abs=1e-6)


def population(steps: tuple[float, ...], flows: int = 12_000, seed: int = 1) -> list[Floats]:
    """Mean window over its own at rest, of flows on RFC 9438's curve hit independently, each time
    step of 0.04/λ: for a p that is (1 + step) times itself after 10/λ, until 22/λ."""
    beta, c, p, rtt_s = 0.7, 0.4, 1e-5, 0.5
    rest = 1.207 * (rtt_s / p) ** 0.75
    dt = 0.04 * rtt_s / (rest * p)
    found = []
    for step in steps:
        rng = np.random.default_rng(seed)
        plateau = np.full(flows, rest)
        low, age = beta * plateau, rng.exponential(25 * dt, flows)
        k = np.cbrt((plateau - low) / c)
        means = np.zeros(550)
        for i in range(len(means)):
            window = np.maximum(plateau + c * (age - k) ** 3, low)
            means[i] = window.mean() / rest
            now = p * (1 + step) if i >= 250 else p
            hit = rng.random(flows) < -np.expm1(-window * now / rtt_s * dt)
            w = window[hit]
            # Fast convergence (RFC 9438 section 4.7).
            plateau[hit] = np.where(w < plateau[hit], w * (1 + beta) / 2, w)
            low[hit], age[hit] = beta * w, -0.5 * dt
            k[hit] = np.cbrt((plateau[hit] - beta * w) / c)
            age += dt
        found.append(means)
    return found


def test_cubic_moves_as_a_population_on_its_curve_does() -> None:
    up, down = population((0.2, -0.2))
    before = np.concatenate([up[150:250], down[150:250]]).mean()
    assert before == pytest.approx(1.0, abs=0.02)
    # The odd part of both, as a share of the step; the even part is the curve's.
    answer = (up - down)[250:] / before / 0.4
    p, rtt_s = np.array([1e-5]), np.array([0.5])
    cubic = SENDERS["cubic"]
    w = cubic.window(p, rtt_s)
    motion = cubic.motion(p, rtt_s)
    unit = float((rtt_s / (w * p))[0])
    for at in (0.5, 1.0, 2.0, 3.0, 5.0, 9.0):
        moved = np.linalg.solve(
            motion.a[0], (expm(motion.a[0] * at * unit) - np.eye(4)) @ motion.b[0]
        )
        said = float(motion.c[0] @ moved * p[0] / w[0])
        seen = answer[round(at / 0.04) - 2 : round(at / 0.04) + 3].mean()
        assert said == pytest.approx(float(seen), abs=0.05)


@pytest.mark.parametrize(
    ("rtt", "window_pkts"), [("20ms", 15), ("100ms", 30), ("100ms", 120), ("400ms", 100)]
)
def test_cubic_is_the_fluids(rtt: str, window_pkts: int) -> None:
    """Two derivations: three poles of a population, and the equations of its mean age and square
    in the fluid. Its p and R, after the link has slowed by 2 %, move both windows alike. From the
    Reno-friendly region to the cubic."""
    flows, rtt_s = 20, _native.quantity("rtt", rtt, "time")
    per_s = flows * window_pkts / (1.25 * rtt_s)
    rate = f"{12_000 * per_s:.0f}bit/s"
    made = forebay.design(
        "pi",
        forebay.Link(rate, rtt, flows=flows, packet="1500B", senders="cubic"),
        target=f"{per_s * rtt_s / 4:.0f}p",
    )
    pi = {name: float(value) if name in "ab" else value for name, value in made.params}
    changed_s, end_s = 150.0, 210.0
    found = fluid.run(
        fluid.Model(
            [fluid.Bottleneck("pi", rate, 2 * per_s * rtt_s, "1500B", pi)],
            [
                fluid.Class(
                    flows, rtt, (0,), "", window_pkts, marks=True, tcp="linux-cubic", sawtooth=True
                )
            ],
            f"{end_s:g}s",
            [fluid.Change(f"{changed_s:g}s", "rate", f"{0.98 * 12_000 * per_s:.0f}bit/s")],
        )
    )
    inside = found.time_s >= changed_s - 20
    # The fluid counts half a packet more than is on the way.
    columns = found.probability[0], found.rtt_s[0], found.window_pkts[0] - 0.5
    time_s, p, rtts_s, windows = (one[inside] for one in (found.time_s, *columns))
    before = time_s < changed_s
    rest = [np.array([one[before].mean()]) for one in (p, rtts_s, windows)]
    cubic = SENDERS["cubic"]
    # Linux's W_est grows by 8/15 a round trip there, and RFC 9438's has no spread here.
    assert cubic.window(*rest[:2]) == pytest.approx(rest[2], rel=0.055)

    motion = cubic.motion(*rest[:2])
    # Signals act over half a round trip there (docs/explanation/fluid.md).
    late = np.interp(time_s - 1.25 * rest[1], time_s, p)
    inputs = np.stack([late - rest[0], rtts_s - rest[1]], 1)
    system = motion.a[0], np.stack([motion.b[0], motion.e[0]], 1), motion.c, np.zeros((1, 2))
    _, said, _ = lsim(system, inputs, time_s - time_s[0])
    # As shares of the window, which is not quite the fluid's.
    said *= rest[2] / cubic.window(*rest[:2])
    moved = (windows - rest[2])[~before]
    assert np.abs(moved).max() > 0.01 * window_pkts
    assert np.linalg.norm(said[~before] - moved) < 0.07 * np.linalg.norm(moved)


def test_the_larger_of_both_regions_rules() -> None:
    cubic = SENDERS["cubic"]
    assert cubic.window(np.array(1e-5), np.array(0.3)) == pytest.approx(
        1.207 * (0.3 / 1e-5) ** 0.75, rel=0.01
    )
    friendly = float(cubic.window(np.array(1e-3), np.array(0.01)))
    assert friendly * (friendly + 3) * 1e-3 == pytest.approx(1.5, rel=0.01)
    assert "Reno-friendly" in (cubic.region(1e-3, 0.01) or "")
    assert cubic.region(1e-5, 0.3) == "on the cubic of RFC 9438 section 4.4"


# --- where they rest --------------------------------------------------------------------------


def test_reno_alone_is_the_published_plant() -> None:
    """The same sender through the formulas of several."""
    groups = tuple(replace(one, tcp="reno") for one in link(senders="cubic").groups)
    here = replaced(link(senders="reno"), groups=groups)
    for law in ("pi", "red", "pd-red"):
        params = [] if law == "red" else [("target", "60p")]
        many = MixedPlant.on_link(here, law, params).loop_at(30, 0.06)
        one = plant_on(link(), law, params).loop_at(30, 0.06)
        assert (many is None) == (one is None)
        if many is None or one is None:
            continue
        assert many.point.flows == pytest.approx(one.point.flows, rel=1e-9)
        omega = np.geomspace(0.1, min(100.0, one.highest_rad_s), 40)
        assert np.allclose(many.response(omega), one.response(omega), rtol=1e-6)


@pytest.mark.parametrize("law", ["pi", "red", "pie"])
def test_all_classes_fill_the_link(law: str) -> None:
    one = mix(law, **MIX | {"flows": "30,20,10"})
    cell = one.equilibrium(60, one.link.rtt_s)
    assert cell is not None
    rests = one.class_equilibria(cell)
    capacity = 50e6 / 12000
    used = sum(each.flows * each.rate_pkts_per_s for each in rests.classes)
    assert used == pytest.approx(capacity, rel=1e-9)
    assert [each.flows for each in rests.classes] == pytest.approx([30, 20, 10])

    def excess(p: float) -> float:
        return capacity - sum(
            each.flows
            * float(SENDERS["cubic"].window(np.array(p), np.array(each.rtt_s)))
            / each.rtt_s
            for each in rests.classes
        )

    assert rests.probability == pytest.approx(brentq(excess, 1e-7, 1.0, xtol=1e-15), rel=1e-8)
    for each, propagation_s in zip(rests.classes, (0.02, 0.08, 0.2), strict=True):
        assert each.rtt_s == pytest.approx(propagation_s + rests.queue_pkts / capacity)


def test_a_missing_equilibrium_has_a_reason() -> None:
    """As `LawModel.rest` tells it of Reno, and windows that a sender does not keep."""
    red = [("min_th", "5p"), ("max_th", "60p"), ("max_p", "0.02"), ("gentle", "false")]
    assert mix("red", red, senders="linux-reno").settle(100, 0.06)[0] == "jump"
    assert mix("red", senders="cubic", buffer="10p").settle(200, 0.06)[0] == "full"
    assert mix("pi", senders="linux-reno").settle(1e5, 0.06)[0] == "saturated"
    assert mix("pi", senders="cubic").settle(1000, 0.06)[0] == "small"
    # Prague's pace has no least window.
    assert mix("pi", senders="prague").settle(300, 0.06)[0] == "linear"
    assert mix("droptail", senders="cubic").settle(30, 0.06)[0] == "unmodelled"
    with pytest.raises(
        ScenarioError, match=r"windows would be below the smallest that cubic keeps"
    ):
        design("pi", Link("50Mbit/s", "60ms", flows=400, packet="1500B", senders="cubic"))


# --- the loop of several ----------------------------------------------------------------------


def closed(one: Loop, factor: float) -> NDArray[np.complex128]:
    """From sample to sample, by matrix exponentials, of a law behind a sampler: eigenvalues."""
    point, model = one.point, one.model
    capacity, queue = point.capacity_pkts_per_s, model["queue_pkts"]
    propagation = point.rtt_s - queue / capacity
    a, entries = one.plant.system([one.equilibrium])  # type: ignore[attr-defined]
    a = a[0]
    assert model["sampled"] is not None
    interval, numerator, denominator = model["sampled"]
    size, y = len(a), np.zeros(len(a))
    y[-1] = 1.0

    def move(duration: float, b: Floats) -> tuple[Floats, Floats]:
        block = np.zeros((size + 1, size + 1))
        block[:size, :size], block[:size, size] = a, b
        both = expm(block * duration)
        return both[:size, :size], both[:size, size]

    # Packets that wait in the law's queue count with the age of what it acts on.
    wait_s = queue / capacity + model["age_s"]
    delays = {path: path[0] * propagation + path[1] * wait_s for path in entries}
    deepest = max(math.floor(d / interval) for d in delays.values()) + 1
    ins, outs = len(numerator) - 1, len(denominator) - 1
    total = size + deepest + ins + outs
    u = np.zeros(total)
    u[size - 1] = factor * numerator[0]
    u[size + deepest : size + deepest + ins] = factor * np.array(numerator[1:])
    u[size + deepest + ins :] = -np.array(denominator[1:])
    matrix = np.zeros((total, total))
    matrix[:size, :size] = move(interval, np.zeros(size))[0]
    for path, b in entries.items():
        whole = math.floor(delays[path] / interval)
        rest = delays[path] - whole * interval
        late, new = move(interval - rest, b[0])
        old = late @ move(rest, b[0])[1]
        for ago, part in ((whole, new), (whole + 1, old)):
            if ago == 0:
                matrix[:size] += np.outer(part, u)
            else:
                matrix[:size, size + ago - 1] += part
    matrix[size] = u
    for k in range(1, deepest):
        matrix[size + k, size + k - 1] = 1.0
    if ins:
        matrix[size + deepest, size - 1] = 1.0
        for k in range(1, ins):
            matrix[size + deepest + k, size + deepest + k - 1] = 1.0
    if outs:
        matrix[size + deepest + ins] = u
        for k in range(1, outs):
            matrix[size + deepest + ins + k, size + deepest + ins + k - 1] = 1.0
    return np.asarray(np.linalg.eigvals(matrix), complex)


@pytest.mark.parametrize(
    ("tcp", "rtt"),
    [
        ("cubic", "20ms,80ms,200ms"),
        ("cubic,reno", "50ms"),
        ("prague", "10ms,60ms"),
        ("dctcp", "60ms"),
    ],
)
def test_the_margin_is_where_an_eigenvalue_leaves_the_circle(tcp: str, rtt: str) -> None:
    one = loop(
        design(
            "pi",
            Link("50Mbit/s", rtt, flows=30, packet="1500B", senders=tcp),
            overrides={"interval": "8ms"},
        )
    )
    edge = 10 ** (one.margins.gain_db / 20)
    assert one.stable
    for factor in (0.999, 1.001):
        outside = np.abs(closed(one, factor * edge)).max() > 1
        assert outside == (factor > 1)
        assert one.changed(gain=factor * edge).stable == (not outside)
    every = closed(one, 1.0)
    for root in one.roots[:4]:
        assert np.abs(every - np.exp(root * 0.008)).min() < 1e-6


@pytest.mark.parametrize("law", ["dualpi2", "pi2"])
def test_reno_with_l4s_has_the_loop_paths_of_both_classes(law: str) -> None:
    """The loop has the two paths that docs/explanation/theory.md derives by hand.

    With p'² and packets at the link's rate: W_C and W_L follow p', and d follows both.
    """
    there = link(flows=12, rtt="30ms", l4s_flows=5)
    plant = plant_on(there, law, [("target", "15ms")])
    found = plant.loop_at(12, 0.03)
    assert found is not None
    capacity, k, g, apart = 50e6 / 12e3, 2.0, 1 / 16, law == "dualpi2"
    r_c, r_l = 0.045, 0.03 if apart else 0.045
    root = (math.sqrt(2) * 12 / r_c + 2 * 5 / (k * r_l)) / capacity
    assert found.point.probability == pytest.approx(root**2, rel=1e-9)
    w_c, w_l = math.sqrt(2) / root, 2 / (k * root)
    left = capacity - (5 * w_l / r_l if apart else 0.0)
    s = 1j * np.geomspace(0.05, 60, 50)
    classic = w_c**2 * root / r_c / (s + 2 / (w_c * r_c)) * 12 / r_c * np.exp(-s * (r_c + 0.015))
    scalable = k * w_l / (2 * r_l) * (g / r_l) / (s + g / r_l) / (s + 1 / (w_l * r_l)) * 5 / r_l
    scalable = scalable * np.exp(-s * (r_l + (0.0 if apart else 0.015)))
    wanted = (classic + scalable) / (s + 1 / r_c) * capacity / left / (2 * root)
    assert np.allclose(frequency_response.plant(found.terms, s), wanted, rtol=1e-7)


@pytest.mark.parametrize("law", ["dualpi2", "pi2"])
@pytest.mark.parametrize(
    ("tcp", "rtt"), [("cubic", "40ms"), ("reno", "20ms,80ms"), ("cubic,linux-reno", "20ms,80ms")]
)
def test_any_classes_may_share_the_link_with_l4s(law: str, tcp: str, rtt: str) -> None:
    """The margin of the designed loop, against eigenvalues by matrix exponentials; all fill the
    link, and L4S packets are marked with k·√p."""
    made = design(
        law,
        Link("50Mbit/s", rtt, flows=20, packet="1500B", senders=tcp, l4s_flows=6),
        target="15ms",
    )
    one = loop(made)
    assert made.stable
    edge = 10 ** (one.margins.gain_db / 20)
    for factor in (0.999, 1.001):
        assert (np.abs(closed(one, factor * edge)).max() > 1) == (factor > 1)
    classes = rested(made).classes
    assert sum(each.flows * each.rate_pkts_per_s for each in classes) == pytest.approx(50e6 / 12e3)
    l4s = classes[-1]
    assert (l4s.tcp, l4s.flows) == ("l4s", 6)
    assert l4s.window_pkts * 2 * math.sqrt(rested(made).probability) == pytest.approx(2)
    assert l4s.rtt_s == pytest.approx(made.link.rtt_s + (0.015 if law == "pi2" else 0.0), rel=0.02)
    assert "--l4s-flows 6" in made.commands()[-1]


@pytest.mark.parametrize("law", ["pi", "pd-red", "red"])
def test_the_pulse_response_is_poissons_sum(law: str) -> None:
    """Z{H·G} of the closed form against the folded plant, poles complex or not."""
    found = mix(law, **MIX).loop_at(40, mix(law, **MIX).link.rtt_s)
    assert found is not None
    t = found.terms
    if t.interval_s is None:
        t = replace(t, interval_s=0.01)
        t = replace(t, parallel=t.parallel and replace(t.parallel, interval_s=0.01))
        third = t.paths[-1]
        beside = t.paths[1]
        t = replace(t, parallel=replace(beside, parallel=replace(third, interval_s=0.01)))
    interval = float(np.asarray(t.interval_s))
    s = 1j * np.array([0.3, 3.0, 0.2 * math.pi / interval, 0.8 * math.pi / interval])
    folds = 2j * math.pi / interval * np.arange(-4000, 4001)
    at = s[:, None] + folds[None]
    summed = (frequency_response.hold(t, at) * frequency_response.plant(t, at)).sum(1)
    assert np.allclose(frequency_response.pulse(t, s), summed, rtol=1e-5)


def test_a_law_without_a_sampler_has_roots_among_several_delays() -> None:
    overrides = {"min_th": "20p", "max_th": "200p", "max_p": "0.05", "w_q": "1e-3"}
    found = mix("red", list(overrides.items()), **MIX).loop_at(60, 0.1)
    assert found is not None
    at = frequency_response.loop(found.terms, np.asarray(found.roots[:4]))
    assert np.abs(1 + at).max() < 1e-6
    edge = 10 ** (found.margins.gain_db / 20)
    assert found.stable
    assert abs(found.changed(gain=edge).roots[0].real) < 1e-3
    assert not found.changed(gain=1.001 * edge).stable


def test_the_equations_oscillate_where_the_loop_has_no_margin() -> None:
    """The nonlinear equations of three classes of Prague and Reno, by Euler's method."""
    made = design(
        "pi",
        Link("50Mbit/s", "20ms,80ms,120ms", flows=30, packet="1500B", senders="prague,reno,reno"),
        overrides={"interval": "4ms"},
    )
    one = loop(made)
    edge = 10 ** (one.margins.gain_db / 20)
    rests, capacity = rested(made), 50e6 / 12000
    of = {"prague": prague, "reno": reno}
    values = dict(made.params)

    def growth(factor: float) -> float:
        dt, p0, q0 = 5e-4, rests.probability, rests.queue_pkts
        a, b = factor * float(values["a"]), factor * float(values["b"])
        steps = round(25 / dt)
        p = np.full(steps + 1000, p0)
        states = [np.array([c.window_pkts, p0]) for c in rests.classes]
        q, last, seen = 1.001 * q0, 0.0, np.zeros(steps)
        for k in range(steps):
            i = k + 999
            if k % 8 == 0:
                error = q - q0
                p[i + 1 :] = p[i] + a * error - b * last
                last = error
            else:
                p[i + 1] = p[i]
            change = -capacity
            for state, c in zip(states, rests.classes, strict=True):
                r = c.propagation_s + q / capacity
                change += c.flows * state[0] / r
                late = p[i + 1 - round(c.rtt_s / dt)]
                slopes = of[c.tcp](state, late, r)
                state[: len(slopes)] += dt * np.array(slopes)
            q += dt * change
            seen[k] = abs(q - q0)
            if seen[k] > 0.5 * q0:
                return math.inf
        quarter = steps // 4
        return float(seen[-quarter:].max() / seen[quarter : 2 * quarter].max())

    assert growth(0.9 * edge) < 0.9
    assert growth(1.1 * edge) > 1.1


# --- packets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tcp", "rate", "rtt", "off"),
    [
        ("cubic", "150Mbit/s", "100ms", 0.1),  # on the cubic
        ("cubic", "30Mbit/s", "20ms", 0.1),  # Reno-friendly
        ("linux-reno", "30Mbit/s", "40ms", 0.1),
        ("dctcp", "30Mbit/s", "40ms", 0.13),
        ("prague", "60Mbit/s", "40ms", 0.1),
    ],
)
def test_packets_settle_at_the_equilibrium_of_the_windows(
    tcp: str, rate: str, rtt: str, off: float, tmp_path: Path
) -> None:
    """The window that the signals of packets ask for, with them marks."""
    made = design("pi", Link(rate, rtt, flows=12, packet="1500B", senders=tcp))
    path = tmp_path / "made.toml"
    path.write_text(made.toml())
    marks = {} if tcp in {"dctcp", "prague"} else {"traffic.0.ecn": True, "bottleneck.ecn": True}
    # All at once, before there is a queue: a lost SYN would take ECN with it.
    (seen,) = run(path, overrides=marks | {"traffic.0.start": "0s"}, seeds=1).runs
    (one,) = rested(made).classes
    rtt_s = one.propagation_s + seen.metrics["queue_mean_pkts"] / made.point.capacity_pkts_per_s
    p = seen.metrics["mark_rate"]
    window = seen.metrics["utilisation"] * made.point.capacity_pkts_per_s * rtt_s / 12
    asked = float(SENDERS[tcp].window(np.array(p), np.array(rtt_s)))
    assert asked == pytest.approx(window, rel=off)


# --- the command line -------------------------------------------------------------------------

LINK = ["--rate", "50Mbit/s", "--packet", "1500B"]


def test_the_command_shows_each_class(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ["--flows", "12,6", "--rtt", "20ms,80ms", "--tcp", "cubic,linux-reno"]
    done = cli("design", "pi", *LINK, *asked, "--explain", "--out", str(out))
    said = " ".join(done.stdout.split())
    assert "12 of cubic with 20 ms" in said
    assert "6 of linux-reno with 80 ms" in said
    assert "The law's design rule is for Reno alone" in said
    assert max(map(len, done.stdout.split("The law, as in")[0].splitlines())) <= 80
    text = (out / "pi.toml").read_text()
    assert 'tcp = "linux-cubic"' in text
    assert 'rtt = "80ms"' in text
    found = json.loads(cli("design", "pi", *LINK, *asked, "--json").stdout)
    assert [one["tcp"] for one in found["senders"]["flows"]] == ["cubic", "linux-reno"]
    assert found["margins"]["sensitivity_peak"] <= 2.01


@pytest.mark.parametrize(("asked", "modelled"), [("linux-cubic", "cubic"), ("sack", "reno")])
def test_a_scenarios_sender_is_the_one_that_it_moves_its_window_as(
    cli: Cli, asked: str, modelled: str
) -> None:
    words = ["design", "pi", *LINK, "--flows", "12", "--rtt", "20ms", "--json", "--tcp"]
    assert cli(*words, asked).stdout == cli(*words, modelled).stdout


def test_one_sender_goes_to_other_tools(tmp_path: Path) -> None:
    """Its plant is rational but for one delay; of several RTTs the response alone is."""
    made = forebay.design(
        "pi", forebay.Link("50Mbit/s", "60ms", flows=20, packet="1500B", senders="cubic")
    )
    top, bottom = made.plant
    s = 2j
    here = np.polyval(top, s) / np.polyval(bottom, s) * np.exp(-s * made.point.rtt_s)
    assert here == pytest.approx(
        frequency_response.plant(loop(made).terms, np.array([s]))[0], rel=1e-6
    )
    made.to_mat(tmp_path / "one.json")
    many = forebay.design(
        "pi", forebay.Link("50Mbit/s", ["20ms", "60ms"], flows=20, packet="1500B", senders="cubic")
    )
    many.to_mat(tmp_path / "many.csv")
    with pytest.raises(ScenarioError, match="delays of their own"):
        many.to_mat(tmp_path / "many.json")
    _, queue = loop(many).step(20.0)
    assert abs(queue[-1]) < 0.05 * np.abs(queue).max()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            ["--flows", "9", "--rtt", "60ms", "--tcp", "bbr"],
            "expected one of reno, linux-reno, cubic, dctcp, prague",
        ),
        (["--flows", "9,9", "--rtt", "1ms,2ms,3ms"], "2 values, but rtt has 3"),
        (["--flows", "9,x", "--rtt", "60ms"], '--flows: "x" is not valid'),
        (
            ["--flows", "9,90", "--rtt", "60..90ms", "--tcp", "cubic"],
            '--flows: "9,90" is a list',
        ),
    ],
)
def test_bad_classes_are_one_line(cli: Cli, asked: list[str], said: str) -> None:
    done = cli("design", "pi2", *LINK, *asked, "--json")
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_map_is_the_loops_of_its_cells(tmp_path: Path) -> None:
    """Of two classes over rates, and of one sender over RTTs, with packets on some cells."""
    drawn = forebay.stability_map(
        "red",
        forebay.Link(
            "80Mbit/s", ["20ms", "60ms"], flows=90, packet="1500B", buffer="900p", senders="cubic"
        ),
        flows="10..90",
        rate="20..80Mbit/s",
        points=6,
        simulate=1,
    )
    assert len(drawn.oscillation) == 1
    for row, rate in enumerate(drawn.values):
        here = drawn.link.at_rate(rate)
        for column in (0, 3, 5):
            one = plant_on(here, "red", []).loop_at(float(drawn.flows[column]), here.rtt_s)
            assert (one is not None) == (drawn.rest[row, column] == "linear")
            if one is not None:
                assert one.stable == drawn.stable[row, column]
                if one.stable and one.margins.gain_db < margins.MOST_DB:
                    margin = drawn.gain_margin_db[row, column]
                    assert margin == pytest.approx(one.margins.gain_db, abs=0.1)
    single = forebay.stability_map(
        "pi",
        forebay.Link("50Mbit/s", "400ms", flows=400, senders="cubic"),
        flows="10..400",
        rtt="10..400ms",
        points=8,
    )
    assert single.stable.any()
    assert (~single.stable).any()
    classes = forebay.Link("50Mbit/s", ["400ms", "5ms"], flows=400)
    with pytest.raises(ScenarioError, match="flows with one RTT, or a range of the rate"):
        forebay.stability_map("pi", classes, flows=(10, 400), rtt=("10ms", "400ms"), points=8)
