"""Control theory and the fluid model of a state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay._base import quantities, registries
from forebay._native import ScenarioError
from forebay.control import stability_map
from forebay.control.link import PLAIN, Link
from forebay.control.plant import REASONS
from forebay.control.plants import plant_on
from forebay.experiment import experiment
from forebay.experiment.result import whole_result
from forebay.fluid.engine import Fluid
from forebay.fluid.traces import Traces, with_windows
from forebay.studio.packets import times
from forebay.studio.state import LawSettings, Params, plain

if TYPE_CHECKING:
    from forebay.control.loop import Loop
    from forebay.studio.state import LawChoice, State

Floats = NDArray[np.float64]

#: Number of frequencies of a Bode plot, of points of a step response, and of cells along an axis of
#: a map; a smaller number of cells where each cell has the modes of another sender.
FREQUENCIES, POINTS, CELLS, FEW_CELLS = 240, 300, 40, 24
#: Number of maps that are cached; moving along their axes needs no other map.
KEPT = 16
#: Decades of frequency below and above the crossover.
BELOW, ABOVE = 100.0, 30.0


def answer(name: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """Return the result of `loops`, `fluid` or `maps`, for the process of the studio.

    Parameters
    ----------
    name : str
        Name of the calculation.
    arguments : sequence
        Its arguments.

    Raises
    ------
    ScenarioError
        If the calculation fails, also by an internal error, which the page shows.
    """
    calculate: dict[str, Callable[..., dict[str, Any]]] = {
        "loops": loops,
        "fluid": fluid,
        "maps": maps,
    }
    try:
        return calculate[name](*arguments)
    except ScenarioError:
        raise
    except Exception as error:
        text = f"{name}: theory failed here, {type(error).__name__}: {error}"
        raise ScenarioError(text) from error


def loops(state: State, laws: Mapping[str, LawSettings]) -> dict[str, Any]:
    """Return Bode plot, margins and step response of each law, or the reason why it has no loop.

    Parameters
    ----------
    state : State
        The settings of the page.
    laws : dict of str to LawSettings
        Parameters of the law of each side.
    """
    law_loops: dict[str, Loop] = {}
    curves: dict[str, Any] = {}
    for side, choice in state.choices:
        loop = _loop(state, choice, laws[side].params)
        if isinstance(loop, str):
            curves[side] = {"reason": loop}
        else:
            law_loops[side] = loop
    if not law_loops:
        return {"laws": curves}
    centres = [_centre(loop) for loop in law_loops.values()]
    omega = np.geomspace(min(centres) / BELOW, max(centres) * ABOVE, FREQUENCIES)
    spans = [_span_s(loop) for loop in law_loops.values()]
    time_s = np.linspace(0, max(spans), POINTS)
    for side, loop in law_loops.items():
        curves[side] = _bode(loop, omega) | _step(loop, time_s) | {"margins": _margins(loop)}
    return {
        "omega": [float(f"{w:.5g}") for w in omega],
        "step_s": [float(f"{t:.5g}") for t in time_s],
        "laws": curves,
    }


def _loop(state: State, choice: LawChoice, params: Params) -> Loop | str:
    """Return the loop, or the reason why there is none."""
    if state.growth is None:
        return _unknown(state)
    try:
        plant = plant_on(state.link, choice.kind, params)
        loop = plant.loop_at(state.flows, state.rtt)
        if loop is not None:
            return loop
        how, queue_pkts, p, _ = plant.settle(state.flows, state.rtt)
    except ScenarioError as error:
        return plain(error)
    if how == "unmodelled":
        return "This law has no linear model: its output does not depend on the queue smoothly."
    at = f" The queue would be {queue_pkts:.4g} packets." if queue_pkts is not None else ""
    needs = f" The flows need a probability of {p:.3g}." if p is not None else ""
    return f"No equilibrium: {REASONS[how]}.{at}{needs}"


def _unknown(state: State) -> str:
    return f"Theory has no model of flows of {state.tcp}."


def _centre(loop: Loop) -> float:
    margins = loop.margins
    centres = [w for w in (margins.crossover_rad_s, margins.phase_crossover_rad_s) if w == w]
    return math.exp(float(np.mean(np.log(centres)))) if centres else 1 / loop.point.rtt_s


def _bode(loop: Loop, omega: Floats) -> dict[str, Any]:
    """Return gain and phase; None above half the sampling frequency."""
    inside = omega <= loop.highest_rad_s
    response = loop.response(omega[inside])
    gain_db = 20 * np.log10(np.maximum(np.abs(response), 1e-12))
    phase = np.degrees(np.unwrap(np.angle(response)))
    # np.unwrap starts anywhere on the circle: the loop's phase starts between 0 and −180°.
    phase -= 360 * math.ceil((phase[0] - 1e-6) / 360)
    phase += 360 if phase[0] < -270 else 0
    rest = [None] * int((~inside).sum())
    return {
        "gain_db": [*np.round(gain_db, 2).tolist(), *rest],
        "phase_deg": [*np.round(phase, 1).tolist(), *rest],
    }


def _span_s(loop: Loop) -> float:
    settling_s = loop.settling_s
    return 1.5 * settling_s if 0 < settling_s < 1e4 else 30 * loop.point.rtt_s


def _step(loop: Loop, time_s: Floats) -> dict[str, Any]:
    at, deviation = loop.step(float(time_s[-1]), points=2 * POINTS)
    rest = loop.model["queue_pkts"]
    queue = rest + np.interp(time_s, at, deviation)
    # The response of an unstable loop exceeds every axis.
    queue[np.abs(queue) > 1e6] = np.nan
    return {"step_pkts": quantities.finite(np.round(queue, 2).tolist()), "rest_pkts": rest}


def _margins(loop: Loop) -> dict[str, Any]:
    values = asdict(loop.margins) | {
        "settling_s": loop.settling_s,
        "window_pkts": loop.window_pkts,
        "probability": loop.point.probability,
    }
    # JSON knows no infinity; the page says "unlimited" and "none".
    unlimited = [name for name, value in values.items() if value == math.inf]
    return {**quantities.finite(values), "unlimited": unlimited, "stable": loop.stable}


def maps(state: State, laws: Mapping[str, LawSettings]) -> dict[str, Any]:
    """Return stability maps over flows and RTT of each side, or the reason why there is none.

    Parameters
    ----------
    state : State
        The settings of the page.
    laws : dict of str to LawSettings
        Parameters of the law of each side.
    """
    axes = _axis(state.flows, 1, 400), _axis(1e3 * state.rtt, 10, 1000)
    link = replace(state, flows=1, rtt=1e-3 * axes[1][1]).link
    of = {"growth": state.growth, "link": link, "axes": axes}
    return {
        "laws": {
            side: _unknown(state)
            if state.growth is None
            else _map(choice.kind, tuple(laws[side].params), **of)
            for side, choice in state.choices
        }
    }


def _axis(at: float, low: float, high: float) -> tuple[float, float]:
    """Return an axis that contains a value, extended by decades if necessary."""
    while at < 1.5 * low and low > 1:
        low /= 10
    while at > 0.8 * high:
        high *= 10
    return max(low, 1.0), high


@lru_cache(KEPT)
def _map(
    kind: str,
    params: tuple[tuple[str, str], ...],
    growth: str,
    link: Link,
    axes: tuple[tuple[float, float], ...],
) -> dict[str, Any] | str:
    """Return a map, or the reason why there is none."""
    flows, (low_ms, high_ms) = axes
    cells = CELLS if growth == PLAIN else FEW_CELLS
    try:
        drawn = stability_map.theory_map(
            kind, link, params, flows, "rtt", (1e-3 * low_ms, 1e-3 * high_ms), cells
        )
    except ScenarioError as error:
        if "no linear model" in str(error):
            return "This law has no linear model, so theory has no map of it."
        return plain(error)
    return {
        "flows": flows,
        "rtt_ms": (low_ms, high_ms),
        "cells": cells,
        "gain_margin_db": quantities.finite(np.round(drawn.gain_margin_db, 1).ravel().tolist()),
        "rest": [str(how) for how in drawn.rest.ravel()],
        "reasons": REASONS,
    }


def fluid(scenarios: Mapping[str, bytes], tcp: str, duration_s: float, bins: int) -> dict[str, Any]:
    """Return the queue of each side in the fluid model, at the times of the packets' curves.

    Parameters
    ----------
    scenarios : dict
        The scenario of each side, with its law alone.
    tcp : str
        The flows' sender. Windows of all but Reno's are those of `sawtooth`, which are nearer to
        packets.
    """
    sawtooth = registries.window_law(tcp, marked=True) != PLAIN
    time_s = times(duration_s, bins)
    queues: dict[str, Any] = {}
    for side, text in scenarios.items():
        try:
            # The file's seeds are for packets; one run of the fluid is one curve.
            engine = Fluid(sawtooth)
            fluid_experiment = experiment.read(
                text.decode(), overrides=with_windows(()), seeds=1, engine=engine
            )
            (trace,) = Traces(whole_result(fluid_experiment))
        except ScenarioError as error:
            queues[side] = {"reason": plain(error, experiment.NO_FILE)}
            continue
        queue = np.interp(time_s, trace.time_s, trace.queue_pkts[0])
        queues[side] = {"queue_pkts": np.round(queue, 1).tolist()}
    return {"laws": queues}
