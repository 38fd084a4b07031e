"""The fluid model of TCP: models built in Python, and the engine that runs scenarios.

The equations are those of Misra, Gong and Towsley (2000), or of another sender, without timeouts
and slow start; the law in them is the object that the packet simulator runs.

A run of the engine is counted in whole packets, so that tables and figures show it as any other;
its samples also have the numbers of the equations, which `forebay.fluid.traces` reads. It has no
transfers, calls or viewers, and no retransmissions; flows that are alike get the same share. Its
seed moves only the draws of laws that have no probability of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.experiment.engines import Key, Planned, RunningBatch


@dataclass(frozen=True)
class Bottleneck:
    """A queue under a law, and its link.

    law: its name in `forebay laws`.
    rate: such as "30Mbit/s".
    buffer_pkts: buffer size in packets.
    packet: size of every packet.
    params: of the law, such as {"target": "200p", "a": 1.8e-5}; the others have their defaults.
    """

    law: str
    rate: str
    buffer_pkts: float
    packet: str = "1000B"
    params: Mapping[str, bool | float | str] | Sequence[tuple[str, bool | float | str]] = ()

    def __post_init__(self) -> None:
        if isinstance(self.params, Mapping):
            object.__setattr__(self, "params", tuple(self.params.items()))


@dataclass(frozen=True)
class Class:
    """Like flows, which have one window.

    flows: how many; need not be whole.
    rtt: without queueing, such as "200ms".
    route: bottlenecks on the way, by index, the first first.
    initial_window_pkts: window of a flow that starts.
    window_pkts: largest window.
    growth_pkts_per_rtt: 1, or 1/2 with delayed ACKs.
    marks: True if a signal marks a packet instead of dropping it.
    l4s: True if packets are ECT(1): they are marked, and a coupled law marks them as those of L4S.
    tcp: the sender, by the name that scenarios have: "reno", "newreno", "sack" (all one here),
        "linux-reno", "cubic", "linux-cubic", "dctcp" or "prague".
    sawtooth: describe windows more closely than the published equations: rates on the clock of
        ACKs, whole packets in flight, growth by the ACKs that come back, and the spread of
        windows between flows. docs/explanation/fluid.md has the equations.
    """

    flows: float
    rtt: str
    route: Sequence[int] = (0,)
    label: str = ""
    initial_window_pkts: float = 2.0
    window_pkts: float = 1e9
    growth_pkts_per_rtt: float = 1.0
    marks: bool = False
    l4s: bool = False
    tcp: str = "reno"
    sawtooth: bool = False


@dataclass(frozen=True)
class Change:
    """A change at a time.

    what: "flows" or "rtt" of a class, "rate" or "buffer_pkts" of a bottleneck.
    value: a number of flows or packets, or a text such as "20Mbit/s" or "100ms".
    index: which class or bottleneck.
    """

    at: str
    what: str
    value: float | str
    index: int = 0


@dataclass(frozen=True)
class Model:
    """A fluid model and its run.

    step: "auto" for integration steps as long as their error allows, or the longest, such as "1ms".
    sample: time between rows.
    """

    bottlenecks: Sequence[Bottleneck]
    classes: Sequence[Class]
    duration: str = "100s"
    changes: Sequence[Change] = field(default=())
    step: str = "auto"
    sample: str = "10ms"
    seed: int = 1


#: The columns of a stored run; runs with other columns are rebuilt.
COLUMNS = "windows and shares"


@dataclass(frozen=True)
class Fluid:
    """The equations of `forebay-fluid`.

    sawtooth: windows are described more closely than by the published equations. step: "auto" for
    steps as long as their error allows, or the longest, such as "1ms".
    """

    sawtooth: bool = False
    step: str = "auto"
    name: str = "fluid"
    in_words: str = "integrated in the fluid model of TCP"
    runs_programs: bool = False
    kernel_keys: tuple[str, ...] = ()

    def check(self, experiment: Planned) -> None:
        """The fluid knows only long-lived TCP flows (ftp) with packets of one size, links one way
        of a steady rate, and the default queue. Raises `ScenarioError`."""
        experiment.plan.check_fluid(sawtooth=self.sawtooth, step=self.step)

    def version(self) -> str:
        """The equations, and what their runs have; the store's version has that of our code."""
        return f"{'sawtooth' if self.sawtooth else 'published'}, step {self.step}, {COLUMNS}"

    def start(
        self, experiment: Planned, threads: int, *, samples: bool, only: Collection[Key]
    ) -> RunningBatch:
        """Runs in background threads of `forebay-batch`."""
        return experiment.plan.start_fluid(
            threads, sawtooth=self.sawtooth, step=self.step, samples=samples, only=only
        )


ENGINE = Fluid()
