"""Runs of the fluid model: a model built in Python, or a scenario file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from forebay import _native
from forebay.fluid.model import Model
from forebay.fluid.traces import Traces
from forebay.run import auto, experiment

if TYPE_CHECKING:
    from forebay._native import FluidTrace
    from forebay.run.experiment import Source


def run(model: Model) -> FluidTrace:
    """Runs a model.

    Returns columns over `time_s` (s), one row per bottleneck or class: `queue_pkts`,
    `probability` (signals per packet that the law asks for, its mean since the last sample),
    `window_pkts` and `rtt_s` (of one flow). Raises `ScenarioError` for an impossible model.
    """
    return experiment.unbroken(lambda: _native.fluid_run(model))


def halving(model: Model) -> dict[str, float]:
    """Greatest difference anywhere between a run and one with half its steps.

    Keys: "queue_pkts", "window_pkts", "probability". Raises `ScenarioError` as `run`.
    """
    return experiment.unbroken(lambda: _native.fluid_halving(model))


def scenario(
    path: Source,
    *,
    laws: Sequence[str] = (),
    sets: Sequence[tuple[str, str]] = (),
    sawtooth: bool = False,
    step: str = "auto",
) -> Traces:
    """Runs every law at every point of a scenario as a fluid; see `run`.

    laws: names, to run instead of the file's; sets: keys and values to set on top of it;
    sawtooth: as in `Class`; step: as in `Model`.

    Raises `ScenarioError` where the file is wrong or the fluid cannot express it: it knows only
    long-lived TCP flows (ftp) with packets of one size.
    """
    name, text = experiment.text_of(path)
    text, left, _ = auto.resolved(text, name, sets, laws, experiment.beside(name))
    traces = experiment.unbroken(
        lambda: _native.fluid_scenario(
            text,
            name,
            sets=left,
            laws=list(laws),
            sawtooth=sawtooth,
            step=step,
            read=experiment.beside(name),
        )
    )
    # The set-points that pictures show; standard input is read once.
    source = text.decode() if name == experiment.STDIN else path
    texts = [f"{key}={value}" for key, value in sets]
    return Traces(traces, experiment.read(source, laws=laws, sets=texts).plan)
