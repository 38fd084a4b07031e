"""What the Rust module offers; crates/forebay-py has the same, with no logic of its own."""

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from forebay._base.errors import ScenarioError as ScenarioError
from forebay.fluid.engine import Model

__version__: str
#: raised whenever the same scenario, law and seed give other numbers than before
RESULTS_VERSION: int

#: A parameter's value; a quantity is a text with its unit.
Parameter = bool | int | float | str

class ParamInfo(TypedDict):
    name: str
    unit: str
    default: Any
    default_text: str
    min: float | None
    max: float | None
    doc: str

class RegistryEntry(TypedDict):
    name: str
    title: str
    source: str
    #: a law in a line, in the names of its parameters; empty where there is none
    equation: str
    #: whether each flow has a queue and a loop of its own, by the defaults of the discipline; of a
    #: law, in the discipline that it comes in
    per_flow: bool
    params: list[ParamInfo]

class LawEntry(RegistryEntry):
    #: kind of the queue discipline that holds the law where none is named
    queue: str
    #: what people call the law
    short_title: str
    #: whether this is the queue without any law, beside which others are judged
    baseline: bool
    #: key of the set-point; None for a law without one
    set_point: str | None
    #: why real packets differ from simulated ones: a noun, and sentences
    reality: tuple[str, str] | None
    #: whether there is a design rule
    has_rule: bool
    #: whether there is a linear model, by its defaults
    modelled: bool
    #: whether it couples the probabilities of classic flows and of those of L4S (RFC 9332)
    coupled: bool

class SenderEntry(TypedDict):
    name: str
    title: str
    recovery: str
    growth: str
    #: the Linux kernel's name of the congestion control that is most like it
    kernel: str
    #: how its window answers marks, and drops, in linear theory, as `--tcp` of designs names it;
    #: None where that has nothing of it
    window_law: str | None
    window_law_on_drops: str | None

class Queue:
    """What a prototype sees of its queue; the packet being sent is not in it."""

    #: time since the start of the run
    now_s: float
    packets: int
    bytes: int
    #: None where only bytes bound it
    limit_packets: int | None
    #: of the link, as it is now
    rate_bps: int
    #: how long the packet at the head has waited; 0 where there is none
    head_age_s: float
    #: how long the link has had nothing to send; None while it is busy
    idle_s: float | None

class Packet:
    """What a prototype sees of a packet that comes or leaves."""

    bytes: int
    #: number of its flow
    flow: int
    #: "not-ect", "ect0", "ect1" or "ce" (RFC 3168)
    ecn: str
    #: whether a mark can reach it; otherwise the verdict "mark" drops it
    marks: bool
    #: whether TCP carries it
    tcp: bool
    #: how long it has waited; 0 on arrival
    sojourn_s: float

def laws() -> list[LawEntry]: ...
def senders() -> list[SenderEntry]: ...
def queues() -> list[RegistryEntry]:
    """Every queue discipline, as `laws` has the laws."""

class TcWords:
    """A qdisc of Linux: a law in its queue."""

    def __init__(self, qdisc: str, text: str, rounded: Sequence[tuple[str, str, str]]) -> None: ...
    #: its kind: "fq_codel"
    qdisc: str
    #: it with its words, as after `tc qdisc add dev DEVICE root`
    text: str
    #: what it has otherwise than asked for: key, what was asked, what it takes
    rounded: list[tuple[str, str, str]]

def tc_words(
    law: str,
    params: Sequence[tuple[str, Parameter]],
    *,
    queue: str | None,
    rate_bps: int,
    buffer_pkts: int | None,
    buffer_bytes: int | None,
    packet_bytes: int,
    ecn: bool,
    header_bytes: int,
    held: bool,
) -> TcWords | None:
    """Return the words of the Linux qdisc for a law; None if Linux has none.

    `queue` is in the notation of a scenario, or None for the law's own queue; one of the buffers is
    given. `header_bytes` are the bytes that tc counts for a packet besides `packet_bytes`. `held`
    is true if a shaper such as tbf leaves the packet that it sends in the qdisc. Raises
    `ScenarioError` for a parameter that the qdisc does not have.
    """

class LawTwin:
    """The numbers of a law's header for the kernel."""

    def __init__(
        self,
        interval_ns: int | None,
        config: Sequence[tuple[str, int]],
        state: Sequence[tuple[str, int]],
        target_pkts: float | None,
    ) -> None: ...
    #: between two calls of its clock; None of a law that packets drive
    interval_ns: int | None
    #: in the header's order
    config: list[tuple[str, int]]
    #: as it starts; what is left out is zero
    state: list[tuple[str, int]]
    #: where it holds its queue; None of a law without a set-point
    target_pkts: float | None

def law_twin(
    law: str,
    params: Sequence[tuple[str, Parameter]],
    *,
    rate_bps: int,
    buffer_pkts: float,
    packet_bytes: int,
) -> LawTwin | None:
    """Return a law in fixed point; None if the kernel has no header of it.

    Raises `ScenarioError` for a parameter that is unknown, does not fit the link, or would
    saturate.
    """

def schema() -> str: ...

class KeyInfo(TypedDict):
    section: str
    name: str
    unit: str
    default: str | None
    required: bool
    min: float | None
    max: float | None
    expected: str
    doc: str

def keys() -> list[KeyInfo]: ...

#: a link (rate in bit/s, delay in s, one way), another one, and the usual packet in bytes
Links = tuple[tuple[int, float], tuple[int, float], int]
#: numbers of laws at a point: of each its number in the file, and its parameters
PointGains = Sequence[tuple[int, Sequence[tuple[str, Parameter]]]]

def plan(
    text: bytes,
    file: str,
    *,
    overrides: list[tuple[str, str]] = ...,
    laws: Sequence[str | Callable[..., object]] = ...,
    seeds: int | None = None,
    read: Callable[[str], bytes | None] | None = None,
    without_own_laws: bool = False,
    link: Links | None = None,
    rows: Sequence[Sequence[object]] | None = None,
    gains: Sequence[PointGains] = ...,
    programs: bool = False,
    external: bool = False,
) -> Plan:
    """Return the plan of every point of a scenario, or of those in `rows`.

    `gains` are the numbers of the laws that ask for them. `laws` are names and prototypes, which
    `forebay.scenario.python_laws` describes; with `without_own_laws` those of the file are left
    out. `read` returns the contents of a file that the scenario names, or None. `link` moves the
    scenario from one link to another. `external` is true if the caller sends the packets of
    external traffic. Without rows, `forebay.scenario.axes` draws ranges;
    `forebay.experiment.automatic_gains` designs laws that ask for it.
    """

class Sweep:
    """The points of a scenario, made when they are asked for: there may be a million."""

    def __init__(
        self,
        text: bytes,
        file: str,
        *,
        overrides: list[tuple[str, str]] = ...,
        laws: Sequence[str | Callable[..., object]] = ...,
        seeds: int | None = None,
        read: Callable[[str], bytes | None] | None = None,
        programs: bool = False,
    ) -> None: ...
    #: what a point sets, in the order of its row
    keys: list[str]
    #: keys that vary together with the rows of their values, for each line of lists
    lists: list[tuple[list[str], list[list[Any]]]]
    #: key, low end, high end and unit of each range that is sampled
    ranges: list[tuple[str, float, float, str]]
    #: points of the sample, which are the fastest; 1 without one
    samples: int
    def __len__(self) -> int: ...
    def row(self, index: int) -> list[Any]:
        """Return the settings of a point by its number; the last key is fastest."""
    def gains_requests(self, row: Sequence[object]) -> list[GainsRequest]:
        """Return the laws that ask for numbers at the point of this row.

        Senders that the sweep compares ask alike.
        """
    def plan(self, rows: Sequence[Sequence[object]], gains: Sequence[PointGains] = ...) -> Plan: ...

class GainsRequest:
    """A law that asks for numbers, and the link and load that these are for."""

    def __init__(
        self,
        law: int,
        label: str,
        kind: str,
        given: Sequence[tuple[str, Parameter]],
        per_flow: bool,
        rate_bps: int,
        packet_bytes: int,
        rtt_s: tuple[float, float],
        room_pkts: float,
        flows: tuple[float, float] | None,
        short_flows: float,
        other_bps: float,
        tcp: str,
    ) -> None: ...
    #: number of its `[[law]]`; those that only `--law` names come last
    law: int
    label: str
    kind: str
    #: parameters that have numbers; of a sweep the first
    given: list[tuple[str, Parameter]]
    #: whether it closes one loop for each flow, and not one for all
    per_flow: bool
    #: of the bottleneck, the greatest over every change
    rate_bps: int
    packet_bytes: int
    #: least and most propagation both ways
    rtt_s: tuple[float, float]
    #: the smallest buffer, in packets
    room_pkts: float
    #: fewest and most long-lived flows; None without any
    flows: tuple[float, float] | None
    #: short flows that send beside them at a time, at the least
    short_flows: float
    #: rate beside them of what does not listen, or ends before it could, at the least
    other_bps: float
    #: their sender, as `--tcp` of designs names it
    tcp: str

class Designed:
    """Numbers that were designed for a law of a plan."""

    def __init__(
        self,
        law: int,
        label: str,
        params: Sequence[tuple[str, Parameter]],
        line: str,
        points: Sequence[int],
    ) -> None: ...
    #: as `GainsRequest` has it
    law: int
    label: str
    params: list[tuple[str, Parameter]]
    #: what it was designed for, in a sentence
    line: str
    #: numbers of the points that have it
    points: list[int]

class LawInfo:
    """A law at one point; `params` with their values, in the order of the law's table."""

    def __init__(
        self,
        label: str,
        kind: str | None,
        integrates: bool,
        title: str,
        source: str,
        params: Sequence[tuple[str, Parameter]],
        target_pkts: float | None,
        target_s: float | None,
        queue: str | None,
        per_flow: bool,
    ) -> None: ...
    label: str
    #: name in the registry; None for a prototype
    kind: str | None
    #: whether it integrates the distance to its set-point, by its linear model
    integrates: bool
    title: str
    source: str
    params: list[tuple[str, Parameter]]
    #: a delay at the link's first rate
    target_pkts: float | None
    #: the set-point where it is a delay
    target_s: float | None
    #: the discipline that holds it, as a scenario writes it; None for the default
    queue: str | None
    #: whether that gives each flow a queue, and the law a loop for each
    per_flow: bool

class LinkInfo:
    """A link, and the queue before it."""

    def __init__(
        self,
        name: str,
        from_node: str,
        to_node: str,
        rate_bps: int,
        burst_bytes: int,
        trace: tuple[int, float] | None,
        delay_s: tuple[float, float],
        buffer_pkts: int | None,
        buffer_bytes: int | None,
        ecn: bool,
        law: LawInfo | None,
    ) -> None: ...
    name: str
    #: where the queue is
    from_node: str
    to_node: str
    #: what laws are told
    rate_bps: int
    #: what may leave at once after a pause
    burst_bytes: int
    #: where recorded times drive it: their mean rate in bit/s, and their length in s
    trace: tuple[int, float] | None
    #: one way: least and most, by flow
    delay_s: tuple[float, float]
    #: one of both
    buffer_pkts: int | None
    buffer_bytes: int | None
    ecn: bool
    #: the law that it has whichever law is under test
    law: LawInfo | None

class FrameCounts:
    """Frames of a capture by what was made of them."""

    def __init__(
        self,
        frames: int,
        not_ip: int,
        too_short: int,
        without_time: int,
        longer_than_recorded: int,
    ) -> None: ...
    frames: int
    #: left out: no IP packet in them
    not_ip: int
    #: left out: too little of them was captured
    too_short: int
    #: left out: they have no time
    without_time: int
    #: taken with the length of their IP header, which exceeds that of their record
    longer_than_recorded: int

class TrafficInfo:
    """A set of like flows."""

    def __init__(
        self,
        label: str,
        kind: str,
        flows: int,
        packet_bytes: int,
        header_bytes: int,
        path: Sequence[str],
        rtts_s: Sequence[float],
        pairs: int | None,
        access_bps: int,
        start_s: tuple[float, float],
        stop_s: tuple[float, float] | None,
        tcp: str | None,
        ecn: str,
        pacing: bool,
        file: str | None,
        frames: FrameCounts | None,
        client: str | None,
        server: str | None,
        program_files: Sequence[str],
        numbers: dict[str, float],
    ) -> None: ...
    label: str
    kind: str
    flows: int
    packet_bytes: int
    #: of a packet, what goodput does not count
    header_bytes: int
    #: nodes that the data passes
    path: list[str]
    rtts_s: list[float]
    #: pairs of hosts that the flows share in turn; each takes a round-trip time in turn
    pairs: int | None
    access_bps: int
    #: earliest and latest
    start_s: tuple[float, float]
    stop_s: tuple[float, float] | None
    #: the scenario's name of the sender; None without congestion control
    tcp: str | None
    #: "off", "classic" (RFC 3168) or "l4s"
    ecn: str
    pacing: bool
    #: name of the file with its packets, where they came once
    file: str | None
    #: frames of that file by what was made of them, where it is a capture
    frames: FrameCounts | None
    #: programs at both ends, and the files that they need; None and empty for other kinds
    client: str | None
    server: str | None
    program_files: list[str]
    #: numbers that belong to the kind, by the scenario's keys with their unit, such as "on_s";
    #: absent ones are left out
    numbers: dict[str, float]

class ChangeInfo:
    """A change while it ran, to what is not None."""

    def __init__(
        self,
        time_s: float,
        link: int | None,
        traffic: int | None,
        rate_bps: int | None,
        delay_s: float | None,
        buffer_pkts: int | None,
        buffer_bytes: int | None,
        flows: int | None,
        aqm: str | None,
        params: Sequence[tuple[str, Parameter]],
    ) -> None: ...
    time_s: float
    #: number of the link that changes, or else of the traffic
    link: int | None
    traffic: int | None
    rate_bps: int | None
    delay_s: float | None
    buffer_pkts: int | None
    buffer_bytes: int | None
    flows: int | None
    #: name of the law, with its parameters that were given
    aqm: str | None
    params: list[tuple[str, Parameter]]

class PointInfo:
    """A point of the sweep, or a direction of a real link.

    Without a sweep there is one point, with an empty label.
    """

    def __init__(
        self,
        label: str,
        settings: dict[str, Any],
        duration_s: float,
        measure_s: tuple[float, float],
        sample_s: float,
        target_pkts: float | None,
        links: Sequence[LinkInfo],
        laws: Sequence[LawInfo],
        traffic: Sequence[TrafficInfo],
        changes: Sequence[ChangeInfo],
    ) -> None: ...
    label: str
    settings: dict[str, Any]
    duration_s: float
    measure_s: tuple[float, float]
    sample_s: float
    #: for every law; where None, each law has its own
    target_pkts: float | None
    #: the bottleneck first
    links: list[LinkInfo]
    laws: list[LawInfo]
    traffic: list[TrafficInfo]
    #: in order of time
    changes: list[ChangeInfo]

class Plan:
    """Every law at every point with every seed; `laws` are labels."""

    def __init__(
        self,
        title: str,
        source: str,
        laws: Sequence[str],
        seeds: Sequence[int],
        points: tuple[PointInfo, ...],
    ) -> None:
        """Of real traffic, which has nothing to start."""
    title: str
    source: str
    laws: list[str]
    seeds: list[int]
    points: tuple[PointInfo, ...]
    #: one for each law that asked for numbers, and each link and load that it has them for
    designed: tuple[Designed, ...]
    #: Whether the scenario has a table `[kernel]`, and asks a guest to keep packets.
    #: keys of its table [kernel] that say something
    kernel_keys: list[str]
    keeps_packets: bool
    def resolved(self, point: int) -> tuple[str, list[str | None]]:
        """Return what the runs at a point depend on besides the seed.

        The result is a text for the point, and one for each law; None for a prototype. The spelling
        of a scenario is in none of them.
        """
    def starts_s(self, point: int, traffic: int, seed: int) -> list[float]:
        """Return the times at which the flows of a traffic start at a point with this seed."""
    def start(
        self,
        threads: int,
        *,
        samples: bool = True,
        only: Collection[tuple[int, int, int]] | None = None,
    ) -> Batch:
        """Start every run in background threads; without `samples`, runs keep only metrics.

        `only` leaves out all but these (point, law, seed), the first two as indices.
        """
    def fluid_classes(self, point: int) -> list[str]:
        """Return the labels of the fluid model's classes at a point, in the order of its columns.

        Raises `ScenarioError` for a scenario that the fluid model cannot express.
        """
    def start_fluid(
        self,
        threads: int,
        *,
        sawtooth: bool = False,
        step: str = "auto",
        samples: bool = True,
        only: Collection[tuple[int, int, int]] | None = None,
    ) -> Batch:
        """Start every run of the fluid model in background threads, like `start`.

        With `sawtooth`, windows are described more closely than by the published equations. Raises
        `ScenarioError` for a scenario that the model cannot express.
        """
    def check_fluid(self, *, sawtooth: bool = False, step: str = "auto") -> None:
        """Raise `ScenarioError` if the fluid model cannot express a law at a point."""
    def network(self, seed: int) -> Network:
        """Return the network of the first point under its first law, with external traffic."""

    def session(
        self, seed: int, *, set_point: str | None = None, interval: str = "10ms"
    ) -> Session:
        """Return a run of the first law at the first point that waits after each sample.

        With a `set_point`, the caller steers another law around it, whose controller samples each
        `interval`.
        """

class Batch:
    done: bool
    @property
    def remarks(self) -> dict[tuple[int, int, int], list[Any]]:
        """What a reader must know of a run; nothing of simulated ones."""
    @property
    def extras(self) -> dict[tuple[int, int, int], Any]:
        """What a run leaves beside its trace; nothing of simulated ones."""
    @property
    def more(self) -> str:
        """What a bar adds to the progress: nothing."""
    def progress(self) -> float: ...
    def cancel(self) -> None: ...
    def fail_longer_than(self, most_s: float) -> None:
        """Fails each run that has been under way for longer; called now and then."""
    def take(self) -> tuple[list[Run], list[Fault]]: ...

class Observed:
    """What was observed at one link; the arrays are None for a run that keeps only metrics."""

    def __init__(
        self,
        link: str,
        metrics: dict[str, float],
        samples: dict[str, NDArray[Any]],
        delay_s: NDArray[np.float64] | None,
        delay_packets: NDArray[np.uint64] | None,
        flow_traffic: NDArray[np.uint32] | None,
        flow_goodput_bps: NDArray[np.float64] | None,
        classes: list[ClassObserved],
        traffic: list[TrafficObserved],
        transfer_traffic: NDArray[np.uint32] | None,
        transfer_packets: NDArray[np.uint32] | None,
        transfer_s: NDArray[np.float64] | None,
        goodput: list[GoodputSeries],
    ) -> None: ...
    link: str
    metrics: dict[str, float]
    samples: dict[str, NDArray[Any]]
    delay_s: NDArray[np.float64]
    delay_packets: NDArray[np.uint64]
    flow_traffic: NDArray[np.uint32]
    flow_goodput_bps: NDArray[np.float64]
    #: empty where the queue tells no classes apart
    classes: list[ClassObserved]
    #: who gets what of the traffic that crosses the link; empty where it is one alone
    traffic: list[TrafficObserved]
    #: transfers that were done, in order of time for each traffic: index into the point's traffic,
    #: packets, and time from the SYN to the last ACK
    transfer_traffic: NDArray[np.uint32]
    transfer_packets: NDArray[np.uint32]
    transfer_s: NDArray[np.float64]
    #: goodput over time, for each traffic; empty where it is not known
    goodput: list[GoodputSeries]

class ClassObserved:
    """What one class of a queue met; `metrics` by the names of `class_metrics`."""

    def __init__(
        self,
        name: str,
        metrics: dict[str, float],
        delay_s: NDArray[np.float64] | None,
        delay_packets: NDArray[np.uint64] | None,
    ) -> None: ...
    name: str
    #: those of the delay are NaN where no packet left
    metrics: dict[str, float]
    delay_s: NDArray[np.float64]
    delay_packets: NDArray[np.uint64]

class TrafficObserved:
    """The results of one traffic at a link, and the fate of its packets there.

    The keys of `metrics` are the names of `traffic_metrics`.
    """

    def __init__(self, traffic: int, metrics: dict[str, float]) -> None: ...
    #: index into the point's traffic
    traffic: int
    metrics: dict[str, float]

class GoodputSeries:
    """Goodput over time of the flows of one traffic, in bit/s."""

    def __init__(
        self,
        traffic: int,
        flows: int,
        interval_s: float,
        quantiles: list[float],
        columns: list[NDArray[np.float32]],
    ) -> None: ...
    #: index into the point's traffic
    traffic: int
    flows: int
    #: row i covers the time from i to i + 1 times this
    interval_s: float
    #: what the columns are over the flows, from 0 to 1; empty where there is one for each flow
    quantiles: list[float]
    columns: list[NDArray[np.float32]]

class Run(Observed):
    """A finished run with the observations at its links.

    Those at the link under test are attributes of the run itself. `point` and `law` are indices
    into the plan.
    """

    def __init__(self, point: int, law: int, seed: int, links: Sequence[Observed]) -> None: ...
    point: int
    law: int
    seed: int
    #: the observations at every link, in the order of the scenario; the link under test is first
    links: list[Observed]

class Fault:
    point: int
    law: int
    seed: int
    message: str
    #: whether the law in Python is at fault
    of_law: bool

    def __init__(
        self, point: int, law: int, seed: int, message: str, *, of_law: bool = False
    ) -> None:
        """Create the record of a run that another engine could not make."""

def guest_check(plan: Plan) -> None: ...
def guest_orders(
    plan: Plan,
    point: int,
    law: int,
    seed: int,
    *,
    ours: bool = False,
    several_calls: bool = False,
    folder: str = "/",
) -> tuple[str, bool, list[bytes]]:
    """Return the orders of a guest as JSON, whether its queue is the kernel's, and its files.

    `several_calls` is true if the guest's kernel takes several system calls at one time.
    """

def guest_run(
    plan: Plan,
    point: int,
    law: int,
    seed: int,
    folder: str | os.PathLike[str],
    user_cpu_s: float,
    *,
    kernels: bool,
    samples: bool = True,
) -> tuple[Run, str]:
    """Return a guest's run from its folder, and its outcome as JSON. Raises `RuntimeError`."""

def guest_packets(packets: bytes, starts: bytes) -> list[tuple[int, int | None, int, bool, bytes]]:
    """Return the packets of a guest's run, from the contents of its files `packets` and `starts`.

    Each has the times in ns of its arrival and of the start of its transmission (None if it was
    dropped), its size on the wire, whether it was marked, and its first bytes.
    """

def fluid_run(model: Model) -> FluidTrace: ...
def fluid_halving(model: Model) -> dict[str, float]: ...

class FluidTrace:
    """Columns of a fluid run; the two-dimensional ones have a row per bottleneck or class."""

    def __init__(
        self,
        point: str,
        law: str,
        classes: list[str],
        time_s: NDArray[np.float64],
        queue_pkts: NDArray[np.float64],
        probability: NDArray[np.float64],
        window_pkts: NDArray[np.float64],
        in_flight_pkts: NDArray[np.float64],
        rtt_s: NDArray[np.float64],
    ) -> None: ...
    point: str
    law: str
    #: labels
    classes: list[str]
    time_s: NDArray[np.float64]
    queue_pkts: NDArray[np.float64]
    probability: NDArray[np.float64]
    window_pkts: NDArray[np.float64]
    #: of a mean flow through the first bottleneck
    in_flight_pkts: NDArray[np.float64]
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
    #: how old the queue is that the law acts on, in s
    age_s: float
    #: whether the probability keeps changing while the queue is off its set-point
    integrates: bool
    #: proportional gain, without the parts of an integral and of a derivative
    proportional: float

class DesignedLaw(TypedDict):
    gains: dict[str, float]
    #: name, and value as `--set` takes it
    params: list[tuple[str, str]]
    #: further parameters that the flows ask for, which are no gains
    settings: list[tuple[str, str]]
    notes: list[str]

class LawModel:
    """A law with parameters, on a link; texts mean what they mean after `--set`."""

    def __init__(
        self,
        kind: str,
        params: Sequence[tuple[str, Parameter]],
        rate_bps: int,
        packet_bytes: int,
        buffer_pkts: float,
    ) -> None: ...
    @property
    def capacity_pkts_per_s(self) -> float: ...
    @property
    def buffer_pkts(self) -> float: ...
    @property
    def goals(self) -> list[tuple[str, str, str]]:
        """What the design rule can be asked for: name, default, doc."""
    @property
    def slowed_by(self) -> str | None:
        """The goal or parameter that makes a designed loop slower where it is smaller."""
    @property
    def coupling(self) -> float | None:
        """K of a law that couples the probabilities of classic flows and of those of L4S."""
    @property
    def rate_control(self) -> tuple[float, float, float, float] | None:
        """Return utilisation, k_p, k_i and k_d of a law that acts on rates; None for any other."""
    def operate(
        self, flows: float, propagation_s: float
    ) -> tuple[OperatingPoint, LinearModel] | None:
        """Where the flows settle under the law; None where it has no model or equilibrium."""
    def rest(self, flows: float, propagation_s: float) -> tuple[str, float | None, float | None]:
        """How the flows settle: how, queue in packets, probability; None for what does not apply.

        "linear": law and TCP agree. "unmodelled": the law has no linear model. "empty": the law
        signals more than the flows need with an empty queue. "saturated": TCP needs a probability
        of one or more. "full": beyond the buffer. "jump": where the law's probability jumps past
        what TCP needs.
        """
    def linear(self, point: OperatingPoint) -> LinearModel | None: ...
    def design(
        self,
        point: OperatingPoint,
        target: float | str,
        goals: Sequence[tuple[str, Parameter]],
        probability: float | None = None,
        *,
        marked: bool = False,
    ) -> DesignedLaw | None:
        """Return the design of the law's rule at a queue; None without a rule.

        The queue is in packets, or a text. `probability` is what the link's flows need, by default
        that of the point; `marked` is true if they respond to marks.
        """
    def fitted(self, rtt_s: float) -> list[tuple[str, str]]:
        """Return the parameters that a law without a design rule needs on this link."""

def windows_pkts(
    window_law: str, probability: NDArray[np.float64], rtt_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the equilibrium windows in packets at these probabilities and RTTs.

    `window_law` is a name of `--tcp` in designs. Raises `ValueError` for an unknown one.
    """

def least_window_pkts(window_law: str) -> float:
    """Return the smallest window that a sender keeps, in packets."""

def window_motions(
    window_law: str, probability: NDArray[np.float64], rtt_s: NDArray[np.float64]
) -> tuple[
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.float64],
]:
    """Return (a, b, e, c) of windows around their equilibria, with a row for each.

    x' = a·x + b·δp(t − R) + e·δR and δW = c·x. The last element is 1 if packets leave at W/R + W',
    as ACKs arrive, and 0 if they leave at W/R.
    """

def cubic_share(probability: float, rtt_s: float) -> float:
    """How much of CUBIC's mean window is RFC 9438's cubic; the rest is the Reno-friendly region."""

class FlowModel:
    """A link's flows and their response to a law, for any number of flows and mean round trip."""

    @staticmethod
    def reno() -> FlowModel:
        """Reno as published."""
    @staticmethod
    def ack_clocked() -> FlowModel:
        """Reno with ACKs as its clock and windows in sawteeth."""
    @staticmethod
    def mixed(
        window_laws: Sequence[str],
        shares: Sequence[float],
        rtt_ratios: Sequence[float],
        l4s: tuple[float, float, bool] | None = None,
    ) -> FlowModel:
        """Return flows with window laws and RTTs of their own.

        `shares` are the classes' shares of the flows, and `rtt_ratios` the ratios of their RTTs
        without a queue to the mean. `l4s` describes L4S flows with the mean RTT: their number, the
        factor k of their coupling, and whether they have a queue of their own. Raises `ValueError`
        for an unknown window law and for lists of different lengths.
        """
    def operating_point(
        self, flows: float, propagation_s: float, queue_pkts: float, capacity_pkts_per_s: float
    ) -> OperatingPoint:
        """Return the operating point of these flows on a link with a queue.

        It has the probability that they need, and the number of Reno flows that need the same.
        """
    def settle(
        self, law: LawModel, flows: Sequence[float], propagation_s: float
    ) -> list[tuple[str, float | None, float | None, tuple[OperatingPoint, LinearModel] | None]]:
        """Return the equilibrium under a law for each number of flows with this mean RTT.

        The kinds are those of `LawModel.rest`, and "small" if a window would be below the smallest
        of its sender. The point is that of the number of Reno flows that need the same probability;
        the model is that of the law. Raises `ScenarioError` for a parameter of the law that does
        not fit its link.
        """

#: Gain, poles, shares of the poles (None for their product), and delay in s.
PathColumns = tuple[
    NDArray[np.float64],
    Sequence[NDArray[np.complex128]],
    Sequence[NDArray[np.complex128]] | None,
    NDArray[np.float64],
]
#: Interval in s, numerator and denominator in z⁰, z⁻¹, ….
SamplerColumns = tuple[
    NDArray[np.float64], Sequence[NDArray[np.float64]], Sequence[NDArray[np.float64]]
]

class Loops:
    """Loops of one kind, and their gains at complex s.

    Every column has one dimension, and one number or one for each loop. s has a row for each loop,
    one row for all, or many for a single loop; the result has as many rows.
    """

    def __init__(
        self,
        paths: Sequence[PathColumns],
        direct: NDArray[np.float64],
        sampler: SamplerColumns | None,
        hybrid: bool,
        folds: Sequence[int] | None,
    ) -> None:
        """Create loops from columns.

        `folds` are the alias terms that are counted besides the first one; None for as many as are
        enough. Raises `ValueError` for columns of different lengths.
        """
    def plant(self, s: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """G(s): gain, poles and delay."""
    def pulse(self, s: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Z{H·G} at z = e^{sT}."""
    def law(self, s: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """D(e^{sT})."""
    def hold(self, s: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """H/T = (1 − e^{−sT})/(sT)."""
    def loop_gain(self, s: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """L, whose 1 + L is zero at the roots of the closed loop."""
    def sensitivity(self, s: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the sensitivity function of the closed loop."""
    def unstable_roots(self) -> list[int | None]:
        """Return the number of growing roots of each closed loop, by Nyquist's criterion.

        Loops may have any number of integrals. The number is None if a root is on the edge, to
        rounding. The law's own poles are stable, or at z = 1.
        """
    def counted_folds(self, s: NDArray[np.complex128], least_share: float) -> list[int]:
        """Return the alias terms above this share of the sampled signal at any s of any loop."""

def step_response(
    decay: NDArray[np.complex128],
    new: NDArray[np.complex128],
    old: NDArray[np.complex128],
    delay_steps: Sequence[int],
    *,
    smoothing: float | None,
    direct: float,
    sampled: tuple[int, Sequence[float], Sequence[float]] | None,
    change: float,
    steps: int,
) -> NDArray[np.float64]:
    """Return the deviation of the queue at `steps` + 1 times after a step at the plant's input.

    A mode keeps `decay` of itself over a step, and gains `new` times the input that is held
    `delay_steps` before and `old` times that of a step before. `smoothing` is the share of the
    difference by which the average approaches the queue in a step; None without an average.
    `direct` is the gain of a signal that acts at once. `sampled` has the steps of each sample, and
    numerator and denominator in z⁰, z⁻¹, ….
    """

def saturated_moments(
    noise: NDArray[np.float64],
    *,
    decay: float,
    kicks_pkts: tuple[float, float],
    round_trip_steps: int,
    answers: Sequence[tuple[float, int]],
    sampled: tuple[int, Sequence[float], Sequence[float]],
    rest_pkts: float,
    rest_probability: float,
    unseen: int,
) -> tuple[float, float, float, float]:
    """Return moments of loops that are driven by noise and stay above zero.

    The moments are the mean queue, its standard deviation, the mean length that was cut off below
    zero, and the standard deviation of the probability. `noise` has a row for each step and a
    normal number for each queue; it moves a queue by the first of `kicks_pkts` at once, and by the
    second `round_trip_steps` later. A deviation keeps `decay` of itself in a step. `answers` are
    the packets for each step of probability, and the delay in steps, of each path. `unseen` steps
    are not counted.
    """

class MeasureEntry(TypedDict):
    """A number that is taken from a run; a value times `scale` is in `unit`."""

    name: str
    #: its name in a paper's claims
    claim: str
    title: str
    unit: str
    scale: float
    doc: str

def metrics() -> list[MeasureEntry]:
    """Metrics of every run, in the order of tables."""

def measures() -> list[MeasureEntry]:
    """Return every measure that a claim can name, the metrics first."""

def traffic_metrics() -> list[MeasureEntry]:
    """Those of every traffic of a link that several cross."""

def class_metrics() -> list[MeasureEntry]:
    """Metrics of every class of a queue, in the order of tables."""

def measure(
    name: str,
    run: Observed,
    *,
    sample_s: float,
    window: tuple[float, float],
    target_pkts: float | None,
    traffic: list[tuple[bool, list[float]]],
) -> float:
    """Return a measure of the samples in `window`, two times in s.

    `traffic` has, for each traffic, whether it is TCP, and its RTTs in s. Raises `ScenarioError`
    for an unknown measure, and for one of a column that the law does not report.
    """

class Conditions:
    """The links and loads over which laws are tuned.

    A condition is the rate in bit/s, the propagation both ways in s, and the number of flows.
    """

    def __init__(
        self,
        conditions: Sequence[tuple[int, float, int]],
        middle: tuple[int, float, int],
        packet_bytes: int,
        buffer_pkts: float,
    ) -> None: ...
    def active_flows(self, at: tuple[int, float, int], queue_pkts: float) -> float:
        """Flows that have room for ten packets each with this queue."""
    def space(self, law: str) -> SearchSpace | None:
        """Return the search space of the linear model; None for a law without such a model."""
    def listed(self, law: str) -> list[list[tuple[str, float | str]]]:
        """Return the settings that only packet simulations can judge."""

class SearchSpace:
    """Axes, and what a point on them means; a point has one value for each axis."""

    @property
    def axes(self) -> list[tuple[str, float, float]]:
        """Name, low and high."""
    def params(self, point: Sequence[float]) -> list[tuple[str, float | str]]: ...
    def queue_pkts(self, point: Sequence[float]) -> float:
        """About where the queue settles."""
    def adapted(
        self, point: Sequence[float], at: tuple[int, float, int], flows: float
    ) -> list[tuple[str, float | str]]:
        """Return the settings that the law adapts by itself to this number of active flows."""

def quantity(key: str, text: str, kind: str) -> float:
    """Return a "time" in s, a "rate" in bit/s, a "size" in bytes or a "queue" in packets."""

def number_and_unit(text: str) -> tuple[float, str] | None:
    """Return a number in its base unit, and that unit; None for another text.

    A quantity such as "15Mbit/s" has the unit "s", "bit/s", "B", "p" or "%"; the unit of a plain
    number is empty.
    """

def set_point_pkts(key: str, text: str, rate_bps: int, packet_bytes: int) -> float:
    """Return the queue in packets of a set-point such as "50p" or "15ms" at this link."""

def critical_load_time_s(beta: float, rtt_s: float) -> float:
    """1/K_rc above which self-tuning is stable (staqm theorem 1); inf where none is."""

def averaging_design(
    phase_margin: float, crossover: float, point: OperatingPoint
) -> dict[str, float]:
    """Return the averaging law of staqm appendix D: k_red, l_red, w_q, q_d and omega_g."""

class LinkOptionInfo(TypedDict):
    """An option of a link; `type` is flag, integer, text or table, `group` link, up or run."""

    name: str
    placeholder: str
    type: str
    default: Any
    default_text: str | None
    doc: str
    group: str

def link_options() -> list[LinkOptionInfo]: ...

class LinkDirectionSettings:
    """Settings of one direction."""

    def __init__(
        self,
        link: LinkInfo,
        trace: str | None,
        buffer_mtu_pkts: float,
        loss: float,
        aqm: str,
        params: Sequence[tuple[str, Parameter]],
        law: LawInfo,
    ) -> None: ...
    link: LinkInfo
    #: name of the file that has the times at which it sends
    trace: str | None
    #: packets of the MTU that the buffer holds
    buffer_mtu_pkts: float
    #: share of packets lost after the queue
    loss: float
    aqm: str
    #: parameters that were given for the law
    params: list[tuple[str, Parameter]]
    law: LawInfo

class LinkSettings:
    """Settings of a link, read and checked; can be pickled."""

    def __init__(self, given: dict[str, Any], files: Sequence[tuple[str, bytes]] = ...) -> None: ...
    #: what was asked for, by the names of `link_options`
    given: dict[str, Any]
    #: client to server
    up: LinkDirectionSettings
    #: server to client
    down: LinkDirectionSettings
    mtu: int
    seed: int
    #: as an option writes it
    measure: str

class LinkReady:
    """A link that is up, and how others enter it."""

    def __init__(
        self,
        pid: int,
        user: str | None,
        networks: Sequence[str],
        ipv6: bool,
        environment: dict[str, str],
        metrics: str | None,
    ) -> None: ...
    pid: int
    #: path of the user namespace, if there is one of its own
    user: str | None
    #: paths of the network namespaces of client and server
    networks: list[str]
    ipv6: bool
    environment: dict[str, str]
    #: address on which metrics are served
    metrics: str | None

class LinkLateness:
    """How late packets were released, by quantile, in s; NaN without packets."""

    def __init__(
        self,
        p50_s: float,
        p99_s: float,
        p999_s: float,
        max_s: float,
        bins: Sequence[tuple[float, int]],
    ) -> None: ...
    p50_s: float
    p99_s: float
    p999_s: float
    max_s: float
    #: upper end of each bin in s, and packets in it
    bins: list[tuple[float, int]]

class LinkDirection:
    """What was observed in one direction."""

    def __init__(
        self,
        observed: Observed,
        changes: Sequence[ChangeInfo],
        achieved_bps: float,
        asked_bps: float,
        lost_packets: int,
        tcp_flows: int,
        congestion_controls: dict[str, int],
    ) -> None: ...
    observed: Observed
    #: made by hand while the link was up
    changes: list[ChangeInfo]
    #: rates while the link was busy: released, and due, in bit/s
    achieved_bps: float
    asked_bps: float
    #: packets lost after the queue on request
    lost_packets: int
    #: TCP flows that carried data
    tcp_flows: int
    #: flows whose sender was seen, by its congestion control
    congestion_controls: dict[str, int]

class LinkPrograms:
    """A client, and a server if there is one, on hosts of their own; both are lines for the shell.

    What the server sends goes up.
    """

    def __init__(
        self,
        client: str,
        server: str | None,
        folder: str,
        outputs: tuple[str, str],
        start_s: float,
        stop_s: float,
        sysctls: Sequence[tuple[str, str]],
    ) -> None: ...
    client: str
    server: str | None
    #: where they run
    folder: Path
    #: files for what client and server write
    outputs: tuple[Path, Path]
    #: when the client starts and both are stopped, after the link's command has started
    start_s: float
    stop_s: float
    #: settings of both hosts, such as ("net.ipv4.tcp_ecn", "1")
    sysctls: list[tuple[str, str]]

class LinkOutcome:
    """What came of a run on a link; can be pickled."""

    def __init__(
        self,
        status: int | None,
        not_started: int | None,
        server_status: int | None,
        programs: Sequence[tuple[int | None, int | None]],
        duration_s: float,
        measure_s: tuple[float, float],
        sample_s: float,
        lateness: LinkLateness,
        void: Sequence[str],
        capture_failed: str | None,
        user_cpu_s: float,
        directions: Sequence[LinkDirection],
    ) -> None: ...
    #: exit status of the command, 128 + n where signal n killed it; None where there was none
    status: int | None
    #: number of the error for which the command could not be started
    not_started: int | None
    #: exit status of the server's command; None while it runs
    server_status: int | None
    #: exit status of each client and of its server; None where it was stopped
    programs: list[tuple[int | None, int | None]]
    duration_s: float
    measure_s: tuple[float, float]
    sample_s: float
    lateness: LinkLateness
    #: why the run is void; empty where it is sound
    void: list[str]
    #: why the captures are not whole, if they are not
    capture_failed: str | None
    user_cpu_s: float
    #: up, then down
    directions: list[LinkDirection]

def link_run(
    settings: LinkSettings,
    *,
    command: Sequence[str] | None = None,
    server: str | None = None,
    output: str | None = None,
    stop: int | None = None,
    ready: Callable[[LinkReady], None] | None = None,
    watch: bool = False,
    metrics: str | None = None,
    captures: str | None = None,
    control: str | None = None,
    programs: Sequence[LinkPrograms] = (),
    packets: tuple[str, float, float] | None = None,
    apart: tuple[int, Sequence[int], Sequence[tuple[int, int]]] | None = None,
) -> LinkOutcome: ...
def link_queue(device: str) -> dict[str, Any] | None: ...
def link_enter(network: str, user: str | None = None) -> None: ...

class Step:
    """What passed at the bottleneck in one step of a `Session`."""

    #: its end
    time_s: float
    #: at its end, without the packet being sent
    queue_pkts: int
    queue_bytes: int
    arrivals: int
    #: of all kinds: by the law, and where the buffer was full
    drops: int
    marks: int
    departed_bytes: int
    #: what the link could have carried
    capacity_bits: float
    #: in-order bytes that receivers handed to their applications
    delivered_bytes: int
    #: the law's probability at the end; NaN for a law without one
    p: float

class Delivered:
    """A packet that has reached the other end of its flow."""

    #: when its last byte is there
    time_s: float
    flow: int
    #: the end that it has reached, "source" or "sink"
    end: str
    #: "not-ect", "ect0", "ect1", or "ce" where a queue has marked it
    ecn: str
    #: as it was sent
    payload: Any

class Lost:
    """A packet that does not reach the other end of its flow."""

    #: when it was lost
    time_s: float
    flow: int
    #: the end that has sent it, "source" or "sink"
    end: str
    #: "early", "forced" or "overflow" at a queue, or "random" behind the last one
    why: str
    #: as it was sent
    payload: Any

class Network:
    """A simulated network, whose external flows are the caller's: `Plan.network` makes it."""

    flows: int
    #: when the scenario ends
    end_s: float
    #: whether it has
    over: bool
    #: of the last event, or of the last packet that was sent after it
    now_s: float
    def most_bytes(self, flow: int) -> int:
        """Return the longest payload of a flow, in bytes; 0 for an unknown flow."""

    def send(
        self, flow: int, end: str, payload: object, length: int, *, now_s: float, ecn: str
    ) -> None:
        """Send a payload of this many bytes from an end of a flow. Raises `ScenarioError`."""

    def poll(self, until_s: float) -> Delivered | Lost | None:
        """Advance the time until a packet arrives or is lost, or until `until_s` with None."""

    def record(
        self,
        capture: str | os.PathLike[str] | None = None,
        events: str | os.PathLike[str] | None = None,
    ) -> None:
        """Record the fate of the caller's packets from now on in these files.

        Without a file, the recording ends. Raises `OSError`.
        """

    def finish(self) -> Observed:
        """Run to the end of the scenario, and return the metrics and samples of the run.

        Raises `OSError` if a recording is not complete.
        """

class Session:
    """A run that waits after each sample, made by `Plan.session`. The caller may steer its law."""

    interval_s: float
    duration_s: float
    rate_bps: int
    packet_bytes: int
    #: one of bytes counts as packets of the usual size
    buffer_pkts: float
    #: the set-point at the link's first rate; None without one
    target_pkts: float | None
    #: whether the run is at its end
    done: bool
    def hold(self, probability: float) -> None:
        """Signals every packet with this probability from now on."""

    def control(self, k_p: float, k_i: float, k_d: float = 0.0) -> None:
        """Let a PID controller set the probability from now on.

        `k_p` is per packet, `k_i` per packet and second, and `k_d` in seconds per packet.
        """

    def step(self) -> Step:
        """Run until the next sample. Raises `RuntimeError` at the end of the run."""

    def finish(self) -> Observed:
        """Run to the end, and return the metrics and samples of the run."""
