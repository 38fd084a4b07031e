"""Models of the fluid in Python, and the engine `fluid` that runs scenarios.

A run of the engine is reported in whole packets, so that tables and figures show it like any other;
its samples also have the variables of the equations, which `traces` reads. It has no transfers,
calls, video or retransmissions, and equal flows get equal shares. Its seed affects only the random
draws of laws without a probability.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.experiment.engines import Key, Planned, RunningBatch


@dataclass(frozen=True)
class Bottleneck:
    """A queue under a law, and its link.

    Attributes
    ----------
    law : str
        Name of the law in `forebay laws`.
    rate : str
        Rate of the link, such as "30Mbit/s".
    buffer_pkts : float
        Buffer in packets.
    packet : str, default '1000B'
        Size of every packet.
    params : dict of str to bool, float or str, optional
        Parameters of the law, such as {"target": "200p", "a": 1.8e-5}; the others have their
        defaults.
    """

    law: str
    rate: str
    buffer_pkts: float
    packet: str = "1000B"
    params: Mapping[str, Any] | Sequence[tuple[str, bool | float | str]] = ()

    def __post_init__(self) -> None:
        """Convert a mapping of parameters to a tuple, which can be hashed."""
        if isinstance(self.params, Mapping):
            object.__setattr__(self, "params", tuple(self.params.items()))


@dataclass(frozen=True)
class Class:
    """A class of equal flows, which share one window variable.

    Attributes
    ----------
    flows : float
        Number of flows, which need not be whole.
    rtt : str
        Round trip without queueing, such as "200ms".
    route : Sequence[int], default (0,)
        Indices of the bottlenecks on the path, in order.
    label : str, default ''
        Name of the class.
    initial_window_pkts : float, default 2.0
        Window of a flow that starts, in packets.
    window_pkts : float, default 1000000000.0
        Largest window in packets.
    growth_pkts_per_rtt : float, default 1.0
        Growth of the window per round trip: 1, or 1/2 with delayed ACKs.
    marks : bool, default False
        True if a signal marks a packet, False if it drops the packet.
    l4s : bool, default False
        True if packets are ECT(1): they are marked, and a coupled law marks them with its
        probability for L4S.
    tcp : str, default 'reno'
        The sender, by its name in scenarios: "reno", "newreno" and "sack" (which are equal here),
        "linux-reno", "cubic", "linux-cubic", "dctcp" or "prague".
    sawtooth : bool, default False
        True to describe windows more closely than the published equations do: rates on the clock of
        ACKs, whole packets in flight, growth by returning ACKs, and the spread of windows between
        flows. docs/explanation/fluid.md has the equations.
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
    """A change during a run.

    Attributes
    ----------
    at : str
        Time of the change, such as "50s".
    what : str
        "flows" or "rtt" of a class, "rate" or "buffer_pkts" of a bottleneck.
    value : float | str
        A number of flows or packets, or a text such as "20Mbit/s" or "100ms".
    index : int, default 0
        Index of the class or bottleneck.
    """

    at: str
    what: str
    value: float | str
    index: int = 0


@dataclass(frozen=True)
class Model:
    """A fluid model and the length of its run.

    Attributes
    ----------
    bottlenecks : Sequence[Bottleneck]
        The bottlenecks.
    classes : Sequence[Class]
        The classes of flows.
    duration : str, default '100s'
        Duration of the run.
    changes : Sequence[Change]
        Changes during the run.
    step : str, default 'auto'
        Longest integration step, such as "1ms"; "auto" chooses steps by their error.
    sample : str, default '10ms'
        Time between two rows of the trace.
    seed : int, default 1
        Seed of laws that draw at random.
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
    """The engine `fluid`, which integrates the equations of `forebay-fluid`.

    Attributes
    ----------
    sawtooth : bool, default False
        True to describe windows more closely than the published equations do; see `Class`.
    step : str, default 'auto'
        Longest integration step, such as "1ms"; "auto" chooses steps by their error.
    name : str, default 'fluid'
        Name of the engine.
    in_words : str, default 'integrated in the fluid model of TCP'
        The end of a sentence about how the runs were made.
    runs_programs : bool, default False
        False: traffic cannot be a program.
    kernel_keys : tuple[str, ...], default ()
        The keys of `[kernel]` that the engine honours: none.
    """

    sawtooth: bool = False
    step: str = "auto"
    name: str = "fluid"
    in_words: str = "integrated in the fluid model of TCP"
    runs_programs: bool = False
    kernel_keys: tuple[str, ...] = ()

    def check(self, experiment: Planned) -> None:
        """Check that the equations can express a scenario.

        They cover long-lived TCP flows (ftp) with packets of one size, one-way links of a constant
        rate, and the default queue.

        Raises
        ------
        ScenarioError
            If the scenario has something else.
        """
        experiment.plan.check_fluid(sawtooth=self.sawtooth, step=self.step)

    def version(self) -> str:
        """Return the variant of the equations and the columns of a run.

        Changes of Forebay's own code are in the version of the store.
        """
        return f"{'sawtooth' if self.sawtooth else 'published'}, step {self.step}, {COLUMNS}"

    def start(
        self, experiment: Planned, threads: int, *, samples: bool, only: Collection[Key]
    ) -> RunningBatch:
        """Start the runs in background threads of `forebay-batch`."""
        return experiment.plan.start_fluid(
            threads, sawtooth=self.sawtooth, step=self.step, samples=samples, only=only
        )


ENGINE = Fluid()
