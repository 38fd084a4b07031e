"""Linear models of laws written in Python, measured at the law itself.

A law that samples its queue is driven as a run drives it, through its hook, with queues that this
module chooses. Its state is copied, so two copies that differ in nothing but a small deviation
of the queue show what this deviation does:

1. The equilibrium is the queue at which the law keeps the probability that the flows need.
2. The response of the probability to a deviation of one sample gives the numerator and denominator
   of the law's controller D(z), of the lowest order that fits it.
3. D(z) is compared with the law over a sum of sines, from far below its sampling frequency to half
   of it. A law that differs by more than `TOLERANCE` is not linear there, and is refused.

A law that decides packet by packet has no probability whose gain could be measured, and a relay has
no linear gain: both are refused with the reason.
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay._base import quantities, registries
from forebay._native import ScenarioError
from forebay.control.plant import Equilibrium, Plant, Settling
from forebay.control.plants import plant_on
from forebay.scenario import python_laws

if TYPE_CHECKING:
    from forebay._native import FlowModel, LinearModel, OperatingPoint
    from forebay.control.frequency_response import Terms
    from forebay.control.link import Link
    from forebay.scenario.python_laws import Prototype

Floats = NDArray[np.float64]
#: Number of samples in which a law settles at a queue, and over which its drift is measured.
SETTLING, DRIFTING = 2000, 50
#: Number of samples of a response, and highest order of a controller.
RESPONSE, ORDERS = 120, 6
#: Largest relative difference of the fitted controller from the law.
TOLERANCE = 0.02
#: Largest relative residual at which an order fits a response.
RESIDUAL = 1e-6
#: Deviations relative to the queue, of which the largest possible one is used.
DEVIATIONS = (1e-3, 1e-4, 1e-5)
#: Distance from one below which a pole is an integral.
INTEGRAL = 1e-6
#: Number of samples of the sines, and their numbers of periods.
SINES, PERIODS = 2048, (3, 17, 61, 203, 509, 907)


@dataclass
class SampledQueue:
    """The queue that the hook of a law observes; its length need not be a whole number."""

    now_s: float
    packets: float
    bytes: float
    limit_packets: float | None
    rate_bps: int
    head_age_s: float
    idle_s: float | None


@dataclass(frozen=True)
class Bench:
    """A law and the link on which it is driven.

    Attributes
    ----------
    name : str
        Label of the law.
    link : Link
        The link and its flows.
    interval_s : float
        Sampling interval of the law.
    """

    name: str
    link: Link
    interval_s: float

    @property
    def pkts_per_s(self) -> float:
        """Packets that the link sends in a second."""
        return self.link.rate_bps / (8 * self.link.packet_bytes)

    def sample(self, law: DrivenLaw, queue_pkts: float) -> float:
        """Return the law's probability after one more sample at this queue.

        Raises
        ------
        ScenarioError
            If the hook raises, or returns no probability.
        """
        law.samples += 1
        queue = SampledQueue(
            now_s=law.samples * self.interval_s,
            packets=queue_pkts,
            bytes=queue_pkts * self.link.packet_bytes,
            limit_packets=self.link.buffer_pkts,
            rate_bps=self.link.rate_bps,
            head_age_s=queue_pkts / self.pkts_per_s,
            idle_s=None if queue_pkts > 0 else 0.0,
        )
        try:
            p = law.law.sample(queue)
        except Exception as error:
            raise ScenarioError(
                f"{self.name}.sample: raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(p, int | float) or isinstance(p, bool) or not 0 <= p <= 1:
            raise ScenarioError(f"{self.name}.sample: {p!r} is not a probability from 0 to 1")
        return float(p)

    def samples(self, law: DrivenLaw, queues_pkts: Sequence[float] | Floats) -> Floats:
        """Return the probabilities after samples at these queues."""
        return np.array([self.sample(law, float(queue_pkts)) for queue_pkts in queues_pkts])


@dataclass
class DrivenLaw:
    """A law with the number of samples that it has made."""

    law: Any
    samples: int = 0

    def copied(self) -> DrivenLaw:
        """Return a copy whose state moves on its own."""
        return copy.deepcopy(self)


def measure(
    law: str | Prototype, link: Link, settings: dict[str, Any], target: str | None
) -> tuple[str, str, list[tuple[str, str]], list[str], Equilibrium]:
    """Measure the linear model of a Python law on a link.

    Parameters
    ----------
    law : str or class
        FILE.py:NAME, or the class.
    link : Link
        The link and its flows.
    settings : dict
        Parameters of the law.
    target : str or None
        Set-point, for a law with a parameter "target".

    Returns
    -------
    (str, str, list, list, Equilibrium)
        The law's name, its name in scenarios, its parameters, notes and the equilibrium.

    Raises
    ------
    ScenarioError
        If the law cannot be read, or has no linear model there.
    """
    bench, driven, params = _read(law, link, settings, target)
    operating_point, notes = equilibrium(bench, driven, flows_on(link))
    source = _absolute(law) if isinstance(law, str) else bench.name
    return bench.name, source, params, notes, operating_point


def _read(
    law: str | Prototype, link: Link, settings: dict[str, Any], target: str | None
) -> tuple[Bench, DrivenLaw, list[tuple[str, str]]]:
    """Return a law with its parameters on a link, with those parameters as texts."""
    prototype = python_laws.load(law) if isinstance(law, str) else law
    assert not isinstance(prototype, str)
    described = python_laws.brought(prototype)
    if target is not None and any(param.name == "target" for param in described.params):
        settings = {"target": target, **settings}
    values, params = _values(described, settings)
    driven = DrivenLaw(_instance(prototype, values))
    bench = Bench(described.label, link, _interval_s(described.label, driven.law))
    return bench, driven, params


@dataclass(frozen=True)
class MeasuredPlant(Plant):
    """Flows on a link under a Python law whose measured model is the same at every load.

    Attributes
    ----------
    flows : Plant
        The flows alone, under any law.
    link : Link
        The link.
    model : LinearModel
        The law's model.
    """

    flows: Plant
    link: Link
    model: LinearModel

    @property
    def flow_model(self) -> FlowModel:
        """The model of the flows, whatever the law is."""
        return self.flows.flow_model

    def terms(self, equilibria: Sequence[Equilibrium]) -> Terms:
        """Return the terms of the flows at equilibria."""
        return self.flows.terms(equilibria)

    def _settle_all(self, flows: Sequence[float], propagation_s: float) -> list[Settling]:
        queue_pkts = self.model["queue_pkts"]
        capacity = self.link.rate_bps / (8 * self.link.packet_bytes)
        settled = []
        for number in flows:
            point = self.flow_model.operating_point(number, propagation_s, queue_pkts, capacity)
            p = point.probability
            if not 0 < p < 1:
                settled.append(Settling("saturated", queue_pkts, None, None))
            else:
                settled.append(Settling("linear", queue_pkts, p, Equilibrium(point, self.model)))
        return settled


def flows_on(link: Link) -> Plant:
    """Return the plant of a link for its flows alone; its law has no effect."""
    return plant_on(link, registries.baseline()["name"], [])


def plant_of(link: Link, model: LinearModel) -> MeasuredPlant:
    """Return the plant of a link under a law with a measured model.

    Parameters
    ----------
    link : Link
        The link and its flows.
    model : LinearModel
        The law's model.
    """
    return MeasuredPlant(flows_on(link), link, model)


def common_model(
    law: str | Prototype,
    links: Sequence[Link],
    rtts_s: Sequence[float],
    flows: tuple[float, float],
    settings: dict[str, Any],
) -> LinearModel:
    """Return the measured model of a law whose model does not depend on link and load.

    The law is measured with the fewest and the most flows, on the first and on the last link.

    Parameters
    ----------
    law : str or class
        FILE.py:NAME, or the class.
    links : sequence of Link
        The links.
    rtts_s : sequence of float
        RTT of each link in seconds.
    flows : (float, float)
        Smallest and largest number of flows.
    settings : dict
        Parameters of the law.

    Raises
    ------
    ScenarioError
        If the law has no linear model at any of these operating points, or different ones.
    """
    models: list[LinearModel] = []
    refusals: list[ScenarioError] = []
    for link, rtt_s in ((links[0], rtts_s[0]), (links[-1], rtts_s[-1])):
        for number in flows:
            bench, driven, _ = _read(law, link.with_load(number, rtt_s), settings, None)
            try:
                operating_point, _ = equilibrium(bench, driven, flows_on(bench.link))
            except ScenarioError as error:
                refusals.append(error)
            else:
                models.append(operating_point.model)
    if not models:
        raise refusals[0]
    if not all(_alike(model, models[0]) for model in models):
        raise ScenarioError(
            f"{bench.name}: the law has another linear model at every load, and a map needs one "
            "that is the same over its range, such as that of a law that integrates; a design "
            "measures it for one load"
        )
    return models[0]


def _alike(model: LinearModel, reference: LinearModel) -> bool:
    """Return True if two models have the same equilibrium queue and controller."""
    ours, theirs = model["sampled"], reference["sampled"]
    assert ours is not None
    assert theirs is not None
    if len(ours[1]) != len(theirs[1]):
        return False
    pairs = [(model["queue_pkts"], reference["queue_pkts"]), *zip(ours[1], theirs[1], strict=True)]
    return all(math.isclose(a, b, rel_tol=TOLERANCE) for a, b in pairs)


def is_python(law: object) -> bool:
    """Return True for a class, a function, or the text FILE.py:NAME."""
    return not isinstance(law, str) or ".py:" in law


def _absolute(kind: str) -> str:
    """Return FILE.py:NAME with the absolute path of the file."""
    path, _, name = kind.rpartition(":")
    return f"{Path(path).resolve()}:{name}"


def equilibrium(bench: Bench, law: DrivenLaw, plant: Plant) -> tuple[Equilibrium, list[str]]:
    """Return the equilibrium of the flows under the law with its linear model, and notes.

    Parameters
    ----------
    bench : Bench
        The law's link.
    law : DrivenLaw
        The law.
    plant : Plant
        The flows.

    Raises
    ------
    ScenarioError
        If the flows have no equilibrium under this law, or the law is not linear there.
    """
    link = bench.link

    def point(queue_pkts: float) -> OperatingPoint:
        rtt_s, capacity = link.rtt_s, bench.pkts_per_s
        return plant.flow_model.operating_point(link.flows, rtt_s, queue_pkts, capacity)

    queue_pkts, rest = _at_rest(bench, law, lambda queue: point(queue).probability)
    numerator, denominator = _controller(bench, rest, queue_pkts)
    error = _error(bench, rest, queue_pkts, numerator, denominator)
    if error > TOLERANCE:
        raise _refused(
            bench, f"its response to sines differs by {100 * error:.3g} % from that of a linear law"
        )
    zeros_at_one = abs(sum(denominator)) < INTEGRAL
    model: LinearModel = {
        "queue_pkts": queue_pkts,
        "average": None,
        "direct": 0.0,
        "sampled": (bench.interval_s, numerator, denominator),
        "one_sided": False,
        "age_s": 0.0,
        "integrates": zeros_at_one,
        "proportional": _proportional(numerator, denominator, zeros_at_one),
    }
    note = (
        f"The law's parameters are unchanged. Its linear model was measured: it has order "
        f"{len(denominator) - 1}, and is within {max(100 * error, 0.001):.2g} % of the law for "
        "sines up to half its sampling frequency."
    )
    return Equilibrium(point(queue_pkts), model), [note]


def _at_rest(
    bench: Bench, fresh: DrivenLaw, needed: Callable[[float], float]
) -> tuple[float, DrivenLaw]:
    """Return the queue at which the law has the probability that the flows need, and the law.

    The law is in the state that it has there.
    """

    def settled(queue_pkts: float) -> tuple[float, DrivenLaw]:
        law = fresh.copied()
        return float(bench.samples(law, np.full(SETTLING, queue_pkts))[-1]), law

    low, high = 0.0, float(bench.link.buffer_pkts)
    if settled(high)[0] < needed(high):
        raise _refused(
            bench, "even a full buffer does not bring it to the probability that the flows need"
        )
    if settled(low)[0] >= needed(low):
        raise _refused(bench, "it signals more than the flows need with an empty queue")
    low, high = _bisected(low, high, lambda queue: settled(queue)[0] >= needed(queue))
    (below, _), (above, law) = settled(low), settled(high)
    if above - below > 0.1 * needed(high):
        raise _refused(
            bench,
            f"it is a relay: its probability jumps from {below:.3g} to {above:.3g} at a queue of "
            f"{high:.4g} packets, where the flows need {needed(high):.3g}",
        )
    drift = _drift(bench, law, high)
    if abs(drift) * DRIFTING <= 1e-6 * above:
        return high, law
    return _integral_at_rest(bench, law, high, needed)


def _bisected(low: float, high: float, holds_at: Callable[[float], bool]) -> tuple[float, float]:
    """Return the neighbouring numbers between which `holds_at` becomes true."""
    for _ in range(80):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (low, middle) if holds_at(middle) else (middle, high)
    return low, high


def _drift(bench: Bench, law: DrivenLaw, queue_pkts: float) -> float:
    """Return the change of the probability per sample at a constant queue, after a transient."""
    response = bench.samples(law.copied(), np.full(2 * DRIFTING, queue_pkts))
    return float(response[-1] - response[DRIFTING - 1]) / DRIFTING


def _integral_at_rest(
    bench: Bench, law: DrivenLaw, queue_pkts: float, needed: Callable[[float], float]
) -> tuple[float, DrivenLaw]:
    """Return the queue at which the probability of a law that integrates is constant, and the law.

    The law is brought to the probability that the flows need.
    """
    low = queue_pkts
    while _drift(bench, law, low) >= 0:
        low *= 0.7
        if low < 1e-3 * queue_pkts:
            raise _refused(bench, "its probability keeps changing at every constant queue")
    low, high = _bisected(low, queue_pkts, lambda queue: _drift(bench, law, queue) > 0)
    rest_pkts = 0.5 * (low + high)
    probability = needed(rest_pkts)
    away = queue_pkts - rest_pkts
    for _ in range(20):
        response = bench.samples(law, np.full(DRIFTING, rest_pkts))
        missing = probability - float(response[-1])
        if abs(missing) < 1e-3 * probability:
            return rest_pkts, law
        # The integral needs this long at this distance from the equilibrium.
        aside = rest_pkts + math.copysign(max(away, 1e-3 * rest_pkts), missing)
        rate = abs(_drift(bench, law, aside))
        if rate == 0:
            break
        count = min(max(1, round(abs(missing) / rate)), 20 * SETTLING)
        share = abs(missing) / (rate * count)
        bench.samples(law, np.full(count, rest_pkts + share * (aside - rest_pkts)))
    raise _refused(bench, "it cannot be brought to the probability that the flows need")


def _controller(
    bench: Bench, rest: DrivenLaw, queue_pkts: float
) -> tuple[list[float], list[float]]:
    """Return numerator and denominator of the law's controller in z⁰, z⁻¹, ….

    They are fitted to its response to a deviation of one sample.
    """
    response = _impulse_response(bench, rest, queue_pkts)
    size = float(np.abs(response).max())
    if size == 0:
        raise _refused(bench, "its probability does not respond to a small deviation of the queue")
    for order in range(ORDERS + 1):
        rows = RESPONSE - order
        table = (
            np.column_stack([response[order - k - 1 : order - k - 1 + rows] for k in range(order)])
            if order
            else np.zeros((rows, 0))
        )
        # From z^-(order + 1) on, the response is the recursion alone.
        denominator = (
            np.concatenate(
                [[1.0], -np.linalg.lstsq(table[1:], response[order + 1 :], rcond=None)[0]]
            )
            if order
            else np.array([1.0])
        )
        denominator = _with_integral(denominator)
        numerator = np.convolve(denominator, response)[: order + 1]
        impulse = np.zeros(RESPONSE)
        impulse[0] = 1.0
        if np.abs(_filtered(numerator, denominator, impulse) - response).max() <= RESIDUAL * size:
            return [float(c) for c in numerator], [float(c) for c in denominator]
    raise _refused(bench, f"no controller of an order up to {ORDERS} responds as it does")


def _impulse_response(bench: Bench, rest: DrivenLaw, queue_pkts: float) -> Floats:
    """Return the response of the probability to a deviation in one sample, per packet."""
    constant = np.full(RESPONSE, queue_pkts)
    middle = bench.samples(rest.copied(), constant)
    for share in DEVIATIONS:
        size_pkts = share * max(queue_pkts, 1.0)
        moved = []
        for way in (1.0, -1.0):
            queues = constant.copy()
            queues[0] += way * size_pkts
            moved.append(bench.samples(rest.copied(), queues))
        up, down = moved
        difference = float(np.abs(up - down).max())
        if difference == 0:
            continue
        if float(np.abs(up + down - 2 * middle).max()) <= TOLERANCE * difference:
            return np.asarray((up - down) / (2 * size_pkts), float)
    if difference == 0:
        return np.zeros(RESPONSE)
    raise _refused(bench, "it does not respond to a small rise of the queue as to a small fall")


def _error(
    bench: Bench,
    rest: DrivenLaw,
    queue_pkts: float,
    numerator: list[float],
    denominator: list[float],
) -> float:
    """Return the largest relative difference between the law and its controller over sines.

    Their frequencies go from far below the sampling frequency to half of it.
    """
    samples = np.arange(SINES)
    constant = np.full(SINES, queue_pkts)
    middle = bench.samples(rest.copied(), constant)
    worst = 0.0
    for periods in PERIODS:
        turns = np.sin(2 * math.pi * periods * samples / SINES)
        deviation = min(DEVIATIONS) * max(queue_pkts, 1.0) * turns
        response = bench.samples(rest.copied(), constant + deviation) - middle
        expected = _filtered(np.array(numerator), np.array(denominator), deviation)
        worst = max(worst, float(np.linalg.norm(response - expected) / np.linalg.norm(expected)))
    return worst


def _filtered(numerator: Floats, denominator: Floats, inputs: Floats) -> Floats:
    from scipy import signal  # half a second to load

    return np.asarray(signal.lfilter(numerator, denominator, inputs), float)


def _with_integral(denominator: Floats) -> Floats:
    """Return the denominator with a root at exactly one, where it is one up to rounding."""
    if len(denominator) < 2:
        return denominator
    roots = np.roots(denominator)
    near = np.abs(roots - 1) < INTEGRAL
    if not near.any():
        return denominator
    return np.asarray(np.poly(np.where(near, 1.0, roots)).real, float)


def _proportional(numerator: list[float], denominator: list[float], integrates: bool) -> float:
    """Return the gain at high frequencies without that of an integral: K_p of a PI."""
    if not integrates:
        return sum(numerator) / sum(denominator)
    rest, _ = np.polydiv(denominator, [1.0, -1.0])
    growth = sum(numerator) / float(np.sum(rest))
    return abs(numerator[0] / denominator[0] - growth)


def _values(
    described: python_laws.Described, settings: dict[str, Any]
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the parameters as the law takes them, and as a scenario writes them.

    Raises
    ------
    ScenarioError
        If a parameter is unknown or missing, or its value is not a quantity of its unit.
    """
    names = [param.name for param in described.params]
    for name in settings:
        if name not in names:
            raise ScenarioError(
                f"{described.label}: {name} is not a parameter of this law; it has "
                f"{', '.join(names) or 'none'}"
            )
    values: dict[str, Any] = {}
    texts: list[tuple[str, str]] = []
    for param in described.params:
        value = settings.get(param.name, param.default)
        if value is None:
            raise ScenarioError(f"{described.label}: {param.name} is missing")
        values[param.name] = _value(described.label, param, value)
        texts.append((param.name, str(value)))
    return values, texts


#: Kinds of quantity by the unit of a parameter.
KINDS = {"s": "time", "p": "queue", "bit/s": "rate", "B": "size"}


def _value(label: str, param: python_laws.Parameter, value: Any) -> Any:
    if not isinstance(value, str) or param.shape == "text":
        return value
    from forebay import _native

    if param.unit:
        return _native.quantity(f"{label}.{param.name}", value, KINDS[param.unit])
    if param.shape == "flag":
        return value == "true"
    try:
        return int(value) if param.shape == "integer" else float(value)
    except ValueError:
        raise ScenarioError(f"{label}.{param.name}: {value!r} is not a number") from None


def _instance(prototype: Prototype, values: dict[str, Any]) -> Any:
    """Return a law with these parameters and a random generator."""
    label = getattr(prototype, "__name__", type(prototype).__name__)
    try:
        law = prototype(**values)
    except Exception as error:
        raise ScenarioError(f"{label}: raised {type(error).__name__}: {error}") from error
    if not hasattr(law, "rng"):
        # A law with slots may have no attribute for it.
        with contextlib.suppress(AttributeError):
            object.__setattr__(law, "rng", random.Random(1))
    if callable(getattr(law, "on_enqueue", None)) or not callable(getattr(law, "sample", None)):
        raise ScenarioError(
            f"{label}: the law decides packet by packet, so it has no probability whose gain could "
            "be measured; theory needs a law with the hook sample and without on_enqueue"
        )
    return law


def _interval_s(label: str, law: Any) -> float:
    """Return the sampling interval of the law in seconds."""
    from forebay import _native

    interval = law.interval
    text = interval if isinstance(interval, str) else quantities.time(interval)
    return _native.quantity(f"{label}.interval", text, "time")


def _refused(bench: Bench, reason: str) -> ScenarioError:
    return ScenarioError(f"{bench.name}: the law has no linear model on this link: {reason}")
