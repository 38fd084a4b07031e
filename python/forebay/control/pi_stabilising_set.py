"""One PI for a range of links: the exact set of stabilising gains, and the best robust gains in it.

`pi_forms` has the laws that are a PI. For the true loop, with its delay, sampler and hold, z =
e^{jωT} is a root exactly where (K_p − j·c·K_i)·G = −1. Here c = (T/2)·cot(ωT/2) is that of the
integral by Tustin's rule, and G is the pulse transfer function of hold, delay and plant, times the
law's own path around its gains. K_p(ω) = −Re 1/G and K_i(ω) = (Im 1/G)/c therefore bound the set,
together with K_i = 0 and the line of z = −1 (D-decomposition; Silva, Datta and Bhattacharyya 2005
for the plant without a sampler). |1/(1 + L)| ≤ 2 is a quadratic inequality in K_i at each K_p and
ω.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from forebay._base import quantities
from forebay._base.errors import ParameterError
from forebay._native import OperatingPoint, ScenarioError
from forebay.control import frequency_response, pi_forms
from forebay.control.frequency_response import Complexes, Floats, Terms
from forebay.control.link import Link, quantity, whole
from forebay.control.loop import Loop
from forebay.control.margins import ROBUST_PEAK
from forebay.control.pi_forms import PiLaw
from forebay.control.plant import REASONS
from forebay.control.plants import plant_on

#: Gains a and b that every PI law can have; its path does not depend on them.
ANY = (2e-3, 1.9e-3)
#: Default sampling interval as a fraction of the RTT.
TAKEN = 0.2
#: Number of values of K_p that are tried.
TRIED = 160
#: Ratio of a corner's own best integral gain and the common one above which one set is too slow.
SLOW = 5.0


#: Rate, RTT and number of flows of a link.
Place = tuple[str, str, float]


class NamedLoad(Protocol):
    """A link and its load; rate and RTT are texts."""

    @property
    def rate(self) -> str:
        """Rate of the link, as a text."""

    @property
    def rtt(self) -> str:
        """RTT without a queue, as a text."""

    @property
    def flows(self) -> float:
        """Number of flows."""


@dataclass(frozen=True)
class Corner:
    """A link at one end of every range, at its equilibrium.

    Attributes
    ----------
    place : NamedLoad
        The link and its load.
    point : OperatingPoint
        Operating point.
    omega : array of shape (n,)
        Frequencies in rad/s, up to half the sampling frequency.
    response : array of shape (n,)
        G at these frequencies.
    integral : array of shape (n,)
        c at these frequencies.
    """

    place: NamedLoad
    point: OperatingPoint
    omega: Floats
    response: Complexes
    integral: Floats

    def boundary(self) -> tuple[Floats, Floats]:
        """Return K_p and K_i at which z = e^{jωT} is a root, over ω."""
        inverse = 1 / self.response[:-1]
        k_i = np.asarray(inverse.imag / self.integral[:-1], float)
        return np.asarray(-inverse.real, float), k_i

    def most_k_p(self) -> float:
        """Return the K_p with which the loop without an integral becomes unstable."""
        inverse = 1 / self.response
        re, im = (np.asarray(part, float) for part in (inverse.real, inverse.imag))
        turns = np.flatnonzero(np.signbit(im[1:]) != np.signbit(im[:-1]))
        share = im[turns] / (im[turns] - im[turns + 1])
        crossings = [*(-re[turns] - share * (re[turns + 1] - re[turns]))]
        # At z = −1 the curve is real.
        crossings.append(-float(inverse.real[-1]))
        return min((float(k) for k in crossings if k > 0), default=math.inf)

    def most_k_i(self, k_p: Floats) -> Floats:
        """Return the largest stabilising K_i at each K_p; 0 where there is none."""
        at_p, at_i = self.boundary()
        limit = self.most_k_p()
        largest = np.zeros(len(k_p))
        for j, k in enumerate(k_p):
            if not 0 <= k < limit:
                continue
            crossed = np.flatnonzero(np.signbit(at_p[1:] - k) != np.signbit(at_p[:-1] - k))
            share = (k - at_p[crossed]) / (at_p[crossed + 1] - at_p[crossed])
            k_i = at_i[crossed] + share * (at_i[crossed + 1] - at_i[crossed])
            largest[j] = min((float(x) for x in k_i if x > 0), default=0.0)
        return largest

    def robust_k_i(self, k_p: Floats) -> Floats:
        """Return the largest robust K_i at each K_p; 0 where there is none."""
        u = 1 + k_p[:, None] * self.response
        v = -1j * self.integral * self.response
        a = np.abs(v) ** 2
        half_b = (u * v.conj()).real
        c = np.abs(u) ** 2 - 1 / ROBUST_PEAK**2
        root = half_b**2 - a * c
        with np.errstate(all="ignore"):
            first = (-half_b - np.sqrt(np.maximum(root, 0))) / a
        first = np.where((root > 0) & (half_b < 0) & (a > 0), first, math.inf)
        largest = np.where((c < 0).any(1), 0.0, first.min(1))
        return np.asarray(np.where(np.isfinite(largest), largest, 0.0), float)


@dataclass(frozen=True)
class PiGains:
    """The gains of a PI.

    Attributes
    ----------
    k_p : float
        Proportional gain, in the law's unit of error.
    k_i : float
        Integral gain per second, in the law's unit of error.
    interval_s : float
        Sampling interval.
    """

    k_p: float
    k_i: float
    interval_s: float

    @property
    def a(self) -> float:
        """Gain of the error in p(k) = p(k−1) + a·e(k) − b·e(k−1)."""
        return self.k_p + 0.5 * self.k_i * self.interval_s

    @property
    def b(self) -> float:
        """Gain of the previous error."""
        return self.k_p - 0.5 * self.k_i * self.interval_s


@dataclass(frozen=True)
class RangeDesign:
    """One PI for a range of links.

    Attributes
    ----------
    law : str
        Name of the law.
    gains : PiGains
        Gains for the whole range.
    params : list of (name, value)
        Parameters of the law.
    corners, loops : list
        The corners, and the loop at each of them with these gains.
    own : list of PiGains
        The best gains of each corner alone.
    left_out : list of str
        Corners that no gains can serve, with the reason.
    inside : list of Loop
        Loops of a grid over the range, without the corners.
    middle : Loop
        Loop at the geometric middle of the ranges.
    """

    law: str
    gains: PiGains
    params: list[tuple[str, str]]
    corners: list[Corner]
    loops: list[Loop]
    own: list[PiGains]
    left_out: list[str]
    inside: list[Loop]
    middle: Loop

    def to_dict(self) -> dict[str, Any]:
        """Return the document of `forebay design --json` for a range."""
        return {
            "law": self.law,
            "gains": vars(self.gains),
            "params": dict(self.params),
            "suffices": self.suffices,
            "left_out": self.left_out,
            "corners": [
                {
                    "rate": corner.place.rate,
                    "rtt": corner.place.rtt,
                    "flows": corner.place.flows,
                    "stable": loop.stable,
                    "sensitivity_peak": loop.peak,
                    "settling_s": quantities.finite(loop.settling_s),
                    "own_gains": vars(own),
                    "own_params": dict(self.written(own)),
                }
                for corner, loop, own in zip(self.corners, self.loops, self.own, strict=True)
            ],
        }

    def written(self, gains: PiGains) -> list[tuple[str, str]]:
        """Return gains as parameters of the law; an empty list if it cannot have them."""
        form = pi_forms.pi_law(self.law)
        return [] if form is None else form.texts(gains.a, gains.b)

    @property
    def suffices(self) -> bool:
        """True if this set of gains is nearly as good at every corner as the corner's own gains."""
        return max(gains.k_i for gains in self.own) <= SLOW * self.gains.k_i


@dataclass(frozen=True)
class _Ranges:
    """Ranges of rate, RTT and number of flows, each with its two ends.

    Attributes
    ----------
    link : Link
        The link, for everything that no range varies.
    rates, rtts, flows : pair
        Ends of the ranges.
    varies_rtt : bool
        False if the flows keep the RTTs of the link.
    """

    link: Link
    rates: tuple[str, str]
    rtts: tuple[str, str]
    flows: tuple[float, float]
    varies_rtt: bool

    @classmethod
    def around(
        cls,
        link: Link,
        rates: tuple[str, str] | None,
        rtts: tuple[str, str] | None,
        flows: tuple[float, float] | None,
    ) -> _Ranges:
        """Return ranges around a link. Raises `ParameterError` for one from more to less."""
        ranges = cls(
            link,
            rates or (link.rate, link.rate),
            rtts or (link.rtts, link.rtts),
            flows or (link.flows, link.flows),
            varies_rtt=rtts is not None,
        )
        ranges.check_order()
        return ranges

    def default_target(self) -> str:
        """Return the set-point of the lowest rate, the shortest RTT and the fewest flows."""
        lowest = self.variant((self.rates[0], self.rtts[0], self.flows[0]))
        return f"{lowest.set_point_pkts():g}p"

    def variant(self, place: Place) -> Link:
        """Return the link at a place, with its own buffer."""
        rate, rtt, flows = place
        return self.link.varied(rate=rate, rtt=rtt if self.varies_rtt else None, flows=flows)

    def link_at(self, place: Place, target: str) -> Link:
        """Return the link at a place, with a buffer for the set-point."""
        variant = self.variant(place)
        return variant.with_buffer_for(variant.set_point_pkts(target))

    def corners(self, target: str) -> list[Link]:
        """Return the links at the corners of the ranges, each once."""
        places = itertools.product(self.rates, self.rtts, self.flows)
        return [self.link_at(place, target) for place in dict.fromkeys(places)]

    def ends(self) -> dict[str, tuple[float, float]]:
        """Return the ends of each range in base units; 0 for RTTs of several classes."""
        low, high = self.rates
        shortest, longest = self.rtts
        classes = "," in shortest
        return {
            "rate": (quantity("rate", low, "rate"), quantity("rate", high, "rate")),
            "rtt": (0.0, 0.0)
            if classes
            else (quantity("rtt", shortest, "time"), quantity("rtt", longest, "time")),
            "flows": self.flows,
        }

    def check_order(self) -> None:
        """Raise `ParameterError` for a range that goes from more to less."""
        flows = tuple(f"{number:g}" for number in self.flows)
        values = {"rate": self.rates, "rtt": self.rtts, "flows": flows}
        for name, (low, high) in self.ends().items():
            if low > high:
                raise ParameterError(name, "..".join(values[name]), "from less to more")

    def between(self) -> tuple[list[Place], Place]:
        """Return a grid over the ranges without its corners, and its centre.

        The grid has both ends and the geometric middle of each range.
        """
        ends = self.ends()
        middles = {name: math.sqrt(low * high) for name, (low, high) in ends.items()}
        texts = {
            "rate": quantities.rate(round(middles["rate"])),
            "rtt": f"{1e3 * middles['rtt']:.9g}ms",
            "flows": float(f"{middles['flows']:.9g}"),
        }
        axes: list[list[Any]] = [
            [values[0]] if ends[name][0] == ends[name][1] else [*values, texts[name]]
            for name, values in [("rate", self.rates), ("rtt", self.rtts), ("flows", self.flows)]
        ]
        rate, rtt, flows = (axis[-1] for axis in axes)
        corners = set(itertools.product(self.rates, self.rtts, self.flows))
        places = [place for place in itertools.product(*axes) if place not in corners]
        return places, (rate, rtt, flows)


def design_for_range(
    law: str,
    link: Link,
    *,
    rate: tuple[str, str] | None = None,
    rtt: tuple[str, str] | None = None,
    flows: tuple[float, float] | None = None,
    target: str | None = None,
    interval: str | None = None,
) -> RangeDesign:
    """Design one robust PI for every corner of ranges: |1/(1 + L)| is at most 2.

    Of the robust gains it has those with the largest K_i, which reject disturbances best (Åström
    and Hägglund 2006).

    Parameters
    ----------
    law : str
        Name of a law that is a PI.
    link : Link
        The link, for everything that no range varies.
    rate, rtt, flows : pair, optional
        Ends of the ranges. Flows of several classes keep their RTTs.
    target : str, optional
        Set-point of every corner; by default a quarter of the bandwidth-delay product at the lowest
        rate and the shortest RTT.
    interval : str, optional
        Sampling interval; by default a fifth of the shortest RTT with its queue, or the law's own
        interval if that is shorter.

    Raises
    ------
    ScenarioError
        If the law is not a PI, a range goes from more to less, or no gains are robust everywhere.
    """
    form = _pi_law(law)
    ranges = _Ranges.around(link, rate, rtt, flows)
    target = ranges.default_target() if target is None else target
    links = ranges.corners(target)
    interval_s = _interval_s(form, links, target, interval)
    corners_at, left_out = _corners(form, links, target, interval_s)
    if not corners_at:
        reason = "no corner of the ranges has an equilibrium"
        raise ParameterError("flows", whole(ranges.flows[0]), "fewer flows", reason=reason)
    corners = [corner for _, corner in corners_at]
    gains = choose(corners, interval_s)
    params = _params(law, form, gains, target, interval_s)

    def loop_on(at: Link) -> Loop | None:
        return plant_on(at, law, params).loop_at(at.flows, at.rtt_s)

    loops = [loop for at, _ in corners_at if (loop := loop_on(at)) is not None]
    if len(loops) < len(corners):
        raise ScenarioError(f"law: {law} has no equilibrium at some corner")
    own = [choose([corner], interval_s) for corner in corners]
    places, centre = ranges.between()
    loops_between = {place: loop_on(ranges.link_at(place, target)) for place in places}
    between = {place: loop for place, loop in loops_between.items() if loop is not None}
    inside, middle = [*between.values()], between.get(centre, loops[0])
    return RangeDesign(law, gains, params, corners, loops, own, left_out, inside, middle)


def _corners(
    form: PiLaw, links: Sequence[Link], target: str, interval_s: float
) -> tuple[list[tuple[Link, Corner]], list[str]]:
    """Return the links that have an equilibrium with their corners, and why others have none."""
    ends = [(link, corner_on(form, link, target, interval_s)) for link in links]
    left_out = [
        f"{link.rate}, {link.rtts}, {link.flows:g} flows: {end}"
        for link, end in ends
        if isinstance(end, str)
    ]
    return [(link, end) for link, end in ends if isinstance(end, Corner)], left_out


def _params(
    law: str, form: PiLaw, gains: PiGains, target: str, interval_s: float
) -> list[tuple[str, str]]:
    """Return the parameters of a PI. Raises `ScenarioError` if it cannot have such gains."""
    texts = form.texts(gains.a, gains.b)
    if not texts:
        raise ScenarioError(
            f"law: {law} cannot have the gains a = {gains.a:.4g}, b = {gains.b:.4g}"
        )
    return [(form.keys[0], target), *texts, (form.keys[1], quantities.time(interval_s))]


def _pi_law(law: str) -> PiLaw:
    """Return the form of a PI. Raises `ScenarioError` for any other law."""
    form = pi_forms.pi_law(law)
    if form is None:
        expected = f"{', '.join(pi_forms.pi_laws())} (`tune` searches any law over a range)"
        raise ParameterError("law", law, expected, reason="a range requires a PI")
    return form


def _interval_s(form: PiLaw, links: Sequence[Link], target: str, interval: str | None) -> float:
    """Return the interval that was given, or one that suits the shortest RTT with its queue."""
    if interval is not None:
        return quantity("interval", interval, "time")
    shortest_s = min(
        link.shortest_s + 8 * link.packet_bytes * link.set_point_pkts(target) / link.rate_bps
        for link in links
    )
    return min(form.interval_s, float(f"{TAKEN * shortest_s:.2g}"))


def corner_on(form: PiLaw, link: Link, target: str, interval_s: float) -> Corner | str:
    """Return the plant of a link's flows behind a PI law's sampler, or why there is none, in words.

    Parameters
    ----------
    form : PiLaw
        The law.
    link : Link
        The link and its flows.
    target : str
        The set-point.
    interval_s : float
        Sampling interval in seconds.

    Raises
    ------
    ScenarioError
        If a parameter is wrong.
    """
    gains = form.params(*ANY)
    assert gains is not None
    params: list[tuple[str, Any]] = [
        (form.keys[0], target),
        *gains,
        (form.keys[1], quantities.time(interval_s)),
    ]
    plant = plant_on(link, form.law, params)
    how, _, _, equilibrium = plant.settle(link.flows, link.rtt_s)
    path = None if equilibrium is None else pi_forms.law_path(equilibrium.model, *ANY)
    if equilibrium is None or path is None:
        return REASONS.get(how, "the law has no equilibrium")
    terms = plant.loop(equilibrium).terms
    return corner(link, equilibrium.point, interval_s, path, plant=terms)


def corner(
    place: NamedLoad,
    point: OperatingPoint,
    interval_s: float,
    path: ArrayLike = (1.0,),
    omega: Floats | None = None,
    plant: Terms | None = None,
) -> Corner:
    """Return the plant of a link behind a sampler and hold, and behind a law's path.

    Parameters
    ----------
    place : NamedLoad
        The link and its load.
    point : OperatingPoint
        Operating point.
    interval_s : float
        Sampling interval in seconds.
    path : array, optional
        The law's path in powers of z⁻¹.
    omega : array of shape (n,), optional
        Frequencies in rad/s, of which half the sampling frequency must be the last; by default some
        thousands up to there.
    plant : Terms, optional
        The plant with the law's measurement delay; by default that of Reno flows as published.
    """
    if plant is None:
        poles = frequency_response.separate_repeated_poles((point.tcp_pole, point.queue_pole))
        plant = Terms(point.plant_gain, poles, point.rtt_s, 0.0)
    t = plant.sampled(interval_s)
    high = math.pi / interval_s
    low = 1e-3 * min(point.tcp_pole, point.queue_pole, high)
    if omega is None:
        omega = np.union1d(
            np.geomspace(low, high, 1500), np.linspace(low, min(high, 40 / point.rtt_s), 2500)
        )
    late = np.exp(-1j * omega * interval_s)
    response = frequency_response.pulse(t, 1j * omega) * np.polyval(np.asarray(path)[::-1], late)
    # Where z = −1 it is real but for rounding, and the integral has no part in it.
    response[-1] = response[-1].real
    integral = 0.5 * interval_s / np.tan(0.5 * omega * interval_s)
    integral[-1] = 0.0
    return Corner(place, point, omega, response, integral)


def choose(corners: Sequence[Corner], interval_s: float, most_k_p: float = math.inf) -> PiGains:
    """Return the robust gains with the largest K_i for all corners.

    Parameters
    ----------
    corners : sequence of Corner
        The corners.
    interval_s : float
        Sampling interval in seconds.
    most_k_p : float, optional
        Upper bound of K_p.

    Raises
    ------
    ScenarioError
        If no gains are robust at every corner.
    """
    highest = min(most_k_p, *(corner.most_k_p() for corner in corners))
    k_p = np.union1d(
        np.linspace(0, highest, TRIED)[1:-1], np.geomspace(1e-4 * highest, highest, TRIED)[:-1]
    )
    k_i = np.min([corner.robust_k_i(k_p) for corner in corners], axis=0)
    best = int(k_i.argmax())
    if k_i[best] <= 0:
        raise ScenarioError("law: no PI is robust at every corner; expected a smaller range")
    # A thousandth less allows for extremes between two frequencies.
    return PiGains(float(k_p[best]), 0.999 * float(k_i[best]), interval_s)
