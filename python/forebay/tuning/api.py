"""Tunings from Python: `forebay.tune`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from forebay.base import progress
from forebay.theory.plant.loaded_link import PLAIN
from forebay.tuning import tuning

if TYPE_CHECKING:
    from forebay.figures.plot import Plot


class Tuned(tuning.Tuning):
    """The outcome of a tuning, which draws and explains itself."""

    def plot(self, kind: str = "trade") -> Plot:
        """A picture: "trade" (delay against goodput), "places" (corner by corner) or "defaults"
        (beside the papers' defaults). The latter two need a law that was tested."""
        from forebay.tuning import picture

        drawn = {
            "trade": picture.trade,
            "places": picture.conditions,
            "defaults": picture.defaults,
        }
        if kind not in drawn:
            raise ValueError(f'kind: found "{kind}", allowed: {", ".join(drawn)}')
        needed = self.screened if kind == "trade" else self.tested
        if not needed:
            raise ValueError(f'kind: found "{kind}", which has nothing to show: it was interrupted')
        return drawn[kind](self)

    def reasons(self) -> list[str]:
        """Why this law is recommended, in paragraphs."""
        from forebay.tuning import words

        return words.reasons(self)

    def toml(self) -> str:
        """The chosen law, as a scenario writes it; empty where none was chosen."""
        from forebay.tuning import values

        return values.law_toml(self.chosen) if self.chosen is not None else ""

    def _repr_html_(self) -> str:
        from forebay.pages import notebook

        rows = []
        for one in self.tested or self.screened:
            params = ", ".join(f"{name} = {value}" for name, value in one.candidate.params)
            rows.append(
                [
                    one.candidate.label,
                    params,
                    f"{1e3 * one.worst_of(one.deviation_s):.3g}",
                    f"{1e3 * one.worst_of(one.delay_p95_s):.3g}",
                ]
            )
        heads = ["law", "parameters", "worst deviation [ms]", "worst delay, 95 % [ms]"]
        figure = self.plot() if self.screened and len(self.best) else None
        return notebook.html(f"Tuning for {self.ranges}", heads, rows, figure)


def tune(
    rate: str | None,
    rtt: str,
    flows: str,
    goal: str = "balance",
    laws: Sequence[str] = (),
    packet: str = "1000B",
    buffer: str | None = None,
    seeds: int = 10,
    seed: int = 1,
    threads: int | None = None,
    trace: str | None = None,
    tcp: str = PLAIN,
) -> Tuned:
    """Tunes laws for ranges of rate, RTT and load, and recommends one; shows its progress.

    rate, rtt, flows: such as "5..50Mbit/s", "20..200ms" (propagation, both ways), "10..400"; or
        one value each. trace: a file of a recorded link, over which packets then run; the range of
        rates is the trace's own where `rate` is None. tcp: sender of the flows, as `--tcp` has it.
        Classes of flows have commas between them: rtt "20ms,80..200ms", tcp "cubic,reno"; one
        number of flows is divided equally.
    goal: "delay": least worst 95th percentile of the queuing delay, giving up at most 20 % of the
        best candidate's goodput under any condition; "balance" or "throughput": least worst
        deviation of the queuing delay, giving up at most 10 % or 5 %.
    laws: names to choose from; all if empty.
    packet: usual size. buffer: such as "1250p"; the largest bandwidth-delay product if None.
    seeds: of the test of the chosen law; seed: of the search. Threads do not change the result.

    Ctrl-C ends it; the result has the finished part, and `interrupted` is true. Raises
    `ScenarioError` for bad input.
    """
    with progress.stages(only_on_terminal=True) as watch:
        found = tuning.tune(
            rate,
            rtt,
            flows,
            goal,
            laws,
            packet,
            buffer,
            seeds,
            seed,
            threads,
            watch,
            trace=trace,
            tcp=tcp,
        )
    if found.interrupted:
        warnings.warn("interrupted; the tuning is partial", stacklevel=2)
    return Tuned(**{field.name: getattr(found, field.name) for field in fields(found)})
