"""What the Rust module offers; crates/forebay-py has the same, with no logic of its own."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from forebay.emulator.settings import Settings
from forebay.fluid import Model
from forebay.prototypes import Prototype

__version__: str

class ScenarioError(ValueError):
    """A scenario that cannot be run: one line with file, key, what was found, what is allowed."""

class ParamInfo(TypedDict):
    name: str
    unit: str
    default: Any
    default_text: str
    min: float | None
    max: float | None
    doc: str

class LawEntry(TypedDict):
    name: str
    title: str
    source: str
    params: list[ParamInfo]

class Queue:
    """What a prototype sees of its queue; the packet being sent is not in it."""

    packets: int
    bytes: int
    #: None where only bytes bound it
    limit_packets: int | None
    rate_bps: int

def laws() -> list[LawEntry]: ...
def schema() -> str: ...

class KeyInfo(TypedDict):
    section: str
    name: str
    unit: str
    default: str | None
    required: bool
    min: float | None
    max: float | None
    allowed: str
    doc: str

def keys() -> list[KeyInfo]: ...
def plan(
    text: bytes,
    file: str,
    *,
    sets: list[tuple[str, str]] = ...,
    laws: Sequence[str | Prototype] = ...,
    seeds: int | None = None,
    read: Callable[[str], bytes | None] | None = None,
) -> Plan:
    """`read` gives what is in a file that the scenario names, or None."""

class LawInfo:
    """A law at one point; `params` as they are written, in the order of the law's table."""

    label: str
    title: str
    source: str
    params: list[tuple[str, str]]
    target_pkts: float | None

class LinkInfo:
    """A link, and the queue before it; quantities are texts with their unit."""

    name: str
    #: where the queue is
    from_node: str
    to_node: str
    #: what laws are told
    rate: str
    #: where recorded times drive it: their mean rate, and their length in s
    trace: tuple[str, float] | None
    #: one way
    delay: str
    buffer: str
    ecn: bool
    #: the law that it has whatever law is under test
    law: LawInfo | None

class TrafficInfo:
    """A set of like flows; quantities are texts with their unit."""

    label: str
    kind: str
    flows: int
    packet: str
    #: of a packet, what goodput does not count
    header: str
    #: nodes that the data passes
    path: list[str]
    rtts: list[str]
    access: str
    #: earliest and latest
    start: tuple[str, str]
    stop: tuple[str, str] | None
    #: the scenario's name of the sender; None without congestion control
    tcp: str | None
    ecn: bool
    #: what is particular to the kind, by the scenario's keys; absent ones are left out
    params: list[tuple[str, str]]

class PointInfo:
    """A point of the sweep; without a sweep there is one, with an empty label."""

    label: str
    settings: dict[str, Any]
    duration_s: float
    measure_s: tuple[float, float]
    sample_s: float
    #: for every law; where None, each law has its own
    target_pkts: float | None
    #: of the bottleneck
    rate: str
    #: the bottleneck first
    links: list[LinkInfo]
    laws: list[LawInfo]
    traffic: list[TrafficInfo]
    #: (time in s, what changes, to what)
    changes: list[tuple[float, str, str]]

class Plan:
    """Every law at every point with every seed; `laws` are labels."""

    title: str
    source: str
    laws: list[str]
    seeds: list[int]
    points: tuple[PointInfo, ...]
    def start(
        self,
        threads: int,
        *,
        samples: bool = True,
        only: Collection[tuple[int, int, int]] | None = None,
    ) -> Batch:
        """Starts every run in background threads; without `samples`, runs keep only metrics.

        `only` leaves out all but these (point, law, seed), the first two as indices.
        """

class Batch:
    done: bool
    def progress(self) -> float: ...
    def cancel(self) -> None: ...
    def take(self) -> tuple[list[Run], list[Fault]]: ...

class Observed:
    """What was observed at one link; the arrays are None for a run that keeps only metrics."""

    link: str
    metrics: dict[str, float]
    samples: dict[str, NDArray[Any]]
    delay_s: NDArray[np.float64]
    delay_packets: NDArray[np.uint64]
    flow_traffic: NDArray[np.uint32]
    flow_goodput_bps: NDArray[np.float64]

class Run(Observed):
    """One finished run, and what was observed at its bottleneck.

    `point` and `law` are indices into the plan.
    """

    point: int
    law: int
    seed: int
    #: the other links
    others: list[Observed]

class Fault:
    point: int
    law: int
    seed: int
    message: str

def fluid_run(model: Model) -> FluidTrace: ...
def fluid_halving(model: Model) -> dict[str, float]: ...
def fluid_scenario(
    text: bytes,
    file: str,
    *,
    sets: list[tuple[str, str]] = ...,
    laws: list[str] = ...,
    sawtooth: bool = False,
    step: str = "1ms",
    read: Callable[[str], bytes | None] | None = None,
) -> list[FluidTrace]: ...

class FluidTrace:
    """Columns of a fluid run; the two-dimensional ones have a row per bottleneck or class."""

    point: str
    law: str
    #: labels
    classes: list[str]
    time_s: NDArray[np.float64]
    queue_pkts: NDArray[np.float64]
    probability: NDArray[np.float64]
    window_pkts: NDArray[np.float64]
    rtt_s: NDArray[np.float64]

class OperatingPoint:
    """Flows on a link, and TCP and the queue linearised there (pi-pd eq. 1)."""

    def __init__(self, flows: float, rtt_s: float, capacity_pkts_per_s: float) -> None: ...
    @property
    def flows(self) -> float:
        """N."""
    @property
    def rtt_s(self) -> float:
        """R, with queueing delay."""
    @property
    def capacity_pkts_per_s(self) -> float:
        """C."""
    @property
    def window_pkts(self) -> float:
        """W0 = RC/N."""
    @property
    def probability(self) -> float:
        """p0 = 2/W0²."""
    @property
    def tcp_pole(self) -> float:
        """2N/(R²C), in rad/s."""
    @property
    def queue_pole(self) -> float:
        """1/R, in rad/s."""
    @property
    def plant_gain(self) -> float:
        """C²/(2N)."""
    @property
    def gain_at_rest(self) -> float:
        """(RC)³/(2N)², in packets."""

class LinearModel(TypedDict):
    """A law near an operating point, from queue length in packets to probability."""

    #: where the queue settles
    queue_pkts: float
    #: weight and time between two arrivals
    average: tuple[float, float] | None
    #: gain that acts without a sampler
    direct: float
    #: interval, and numerator and denominator in z⁰, z⁻¹, …
    sampled: tuple[float, list[float], list[float]] | None
    #: whether it only holds on one side of `queue_pkts`
    one_sided: bool

class DesignedLaw(TypedDict):
    gains: dict[str, float]
    #: name and value as TOML
    params: list[tuple[str, str]]
    notes: list[str]

class LawModel:
    """A law with parameters, given as texts, on a link."""

    def __init__(
        self,
        kind: str,
        params: Sequence[tuple[str, str]],
        rate: str,
        packet: str,
        buffer_pkts: float,
    ) -> None: ...
    @property
    def capacity_pkts_per_s(self) -> float: ...
    @property
    def buffer_pkts(self) -> float: ...
    @property
    def goals(self) -> list[tuple[str, str, str]]:
        """What the design rule can be asked for: name, default, doc."""
    def operate(
        self, flows: float, propagation_s: float
    ) -> tuple[OperatingPoint, LinearModel] | None:
        """Where the flows settle under the law; None where it has no model or equilibrium."""
    def linear(self, point: OperatingPoint) -> LinearModel | None: ...
    def design(
        self,
        point: OperatingPoint,
        target_pkts: float,
        goals: Sequence[tuple[str, str]],
    ) -> DesignedLaw | None:
        """The law's design rule at the wanted queue; None where it has none."""

def quantity(key: str, text: str, kind: str) -> float:
    """A "time" in s, a "rate" in bit/s, a "size" in bytes or a "queue" in packets."""

def critical_load_time_s(beta: float, rtt_s: float) -> float:
    """1/K_rc above which self-tuning is stable (staqm theorem 1); inf where none is."""

def red_design(phase_margin: float, crossover: float, point: OperatingPoint) -> dict[str, float]:
    """RED by staqm appendix D: k_red, l_red, w_q, q_d, omega_g."""

class LinkLaw:
    """The law of one direction of a link, and its rate; the mean of a trace."""

    law: LawInfo
    rate_bps: int

def link_check(settings: Settings) -> list[LinkLaw]: ...
def link_run(
    settings: Settings,
    *,
    command: Sequence[str] | None = None,
    server: str | None = None,
    output: str | None = None,
    stop: int | None = None,
    ready: Callable[[dict[str, Any]], None] | None = None,
    watch: bool = False,
    metrics: str | None = None,
    captures: str | None = None,
) -> dict[str, Any]: ...
def link_queue(device: str) -> dict[str, Any] | None: ...
def link_enter(network: str, user: str | None = None) -> None: ...
