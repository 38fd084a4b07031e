"""Runs of the fluid model: a model built in Python, or a scenario file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import forebay._native as _native
from forebay.experiment import execution
from forebay.experiment import result as runs
from forebay.fluid.engine import Fluid
from forebay.fluid.model import Model
from forebay.fluid.traces import Traces, with_windows

if TYPE_CHECKING:
    from forebay._base.quantities import Overrides
    from forebay._native import FluidTrace
    from forebay.experiment.experiment import Source
    from forebay.scenario.python_laws import Prototype


def run(model: Model) -> FluidTrace:
    """Runs a model.

    Returns columns over `time_s` (s), one row per bottleneck or class: `queue_pkts`,
    `probability` (signals per packet that the law asks for, its mean since the last sample),
    `window_pkts` and `rtt_s` (of one flow). Raises `ScenarioError` for an impossible model.
    """
    return execution.unbroken(lambda: _native.fluid_run(model))


def halving(model: Model) -> dict[str, float]:
    """Greatest difference anywhere between a run and one with half its steps.

    Keys: "queue_pkts", "window_pkts", "probability". Raises `ScenarioError` as `run`.
    """
    return execution.unbroken(lambda: _native.fluid_halving(model))


def scenario(
    path: Source,
    *,
    laws: Sequence[str | Prototype] = (),
    overrides: Overrides = (),
    sawtooth: bool = False,
    step: str = "auto",
) -> Traces:
    """Runs every law at every point of a scenario on the engine `fluid`, with one seed, and gives
    the equations' own columns; `.result` is what `forebay.run` gives of it.

    path, laws, overrides: as `forebay.run` takes them; sawtooth: as in `Class`; step: as in
    `Model`.

    Raises `ScenarioError` where the file is wrong or the fluid cannot express it: it knows only
    long-lived TCP flows (ftp) with packets of one size.
    """
    engine = Fluid(sawtooth, step)
    return Traces(
        runs.run(path, laws or None, overrides=with_windows(overrides), seeds=1, engine=engine)
    )
