"""What the Rust module offers; crates/forebay-py has the same, with no logic of its own."""

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

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
) -> Plan: ...

class LawInfo:
    """A law at one point; `params` as they are written, in the order of the law's table."""

    label: str
    title: str
    source: str
    params: list[tuple[str, str]]
    target_pkts: float | None

class TrafficInfo:
    """A set of like flows; quantities are texts with their unit."""

    label: str
    kind: str
    flows: int
    packet: str
    rtts: list[str]
    access: str
    #: earliest and latest
    start: tuple[str, str]
    stop: tuple[str, str] | None
    #: "reno", "newreno" or "sack"; None without congestion control
    tcp: str | None
    ecn: bool
    #: what is particular to the kind
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
    rate: str
    #: one way
    delay: str
    buffer: str
    ecn: bool
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
    def start(self, threads: int, *, samples: bool = True) -> Batch:
        """Starts every run in background threads; without `samples`, runs keep only metrics."""

class Batch:
    done: bool
    def progress(self) -> float: ...
    def cancel(self) -> None: ...
    def take(self) -> tuple[list[Run], list[Fault]]: ...

class Run:
    """One finished run; `point` and `law` are indices into the plan."""

    point: int
    law: int
    seed: int
    metrics: dict[str, float]
    samples: dict[str, NDArray[Any]]
    delay_s: NDArray[np.float64]
    delay_packets: NDArray[np.uint64]
    flow_traffic: NDArray[np.uint32]
    flow_goodput_bps: NDArray[np.float64]

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
    step: str = "1ms",
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
