"""One PI for a whole range of links: the exact set of gains that stabilise every corner of it, and
the best of those that keep each loop robust. `pi_forms` has the laws that are a PI.

For the true loop, with delay, sampler and hold as they are, z = e^{jωT} is a root exactly where
(K_p − j·c·K_i)·G = −1, with c = (T/2)·cot(ωT/2) of the integral by Tustin's rule and G the pulse
transfer function of hold, delay and plant, times what the law itself puts around its gains. So
K_p(ω) = −Re 1/G and K_i(ω) = (Im 1/G)/c bound the set, beside K_i = 0 and the line of z = −1
(D-decomposition; Silva, Datta and Bhattacharyya 2005 for the plant without a sampler).
|1/(1 + L)| ≤ 2 is a quadratic in K_i at each K_p and ω.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

import forebay._native as _native
from forebay._base import quantities
from forebay._native import OperatingPoint, ScenarioError
from forebay.control import frequency_response, pi_forms
from forebay.control.frequency_response import Complexes, Floats, Terms
from forebay.control.loaded_link import PLAIN, LoadedLink, PerClass
from forebay.control.loop import Loop
from forebay.control.margins import ROBUST_PEAK
from forebay.control.pi_forms import PiLaw
from forebay.control.plant import REASONS
from forebay.control.plants import plant_on

#: PiGains a and b of which every law that is a PI has parameters: its path does not depend on them.
ANY = (2e-3, 1.9e-3)
#: The share of the RTT that a sampling interval takes where nobody gives one.
TAKEN = 0.2
#: Values of K_p that are tried.
TRIED = 160
#: A corner whose own best integral is this many times larger is one for gains of its own.
SLOW = 5.0


#: Rate, RTT and flows, as texts.
Place = tuple[str, str, Any]


class NamedLoad(Protocol):
    """A link and its load; rate and rtt as texts."""

    @property
    def rate(self) -> str: ...
    @property
    def rtt(self) -> str: ...
    @property
    def flows(self) -> float: ...


@dataclass(frozen=True)
class Corner:
    """A link at an end of every range, at its equilibrium.

    omega: frequencies up to half the sampling one; response: G there; integral: c there.
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
        """Return the K_p with which the loop without an integral starts to oscillate."""
        inverse = 1 / self.response
        re, im = (np.asarray(part, float) for part in (inverse.real, inverse.imag))
        turns = np.flatnonzero(np.signbit(im[1:]) != np.signbit(im[:-1]))
        share = im[turns] / (im[turns] - im[turns + 1])
        crossings = [*(-re[turns] - share * (re[turns + 1] - re[turns]))]
        # At z = −1 the curve is real.
        crossings.append(-float(inverse.real[-1]))
        return min((float(k) for k in crossings if k > 0), default=math.inf)

    def most_k_i(self, k_p: Floats) -> Floats:
        """Return the largest stabilising K_i at each K_p; 0 where there are none."""
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
    """A PI for all of some corners; k_p and k_i in the law's own unit of error, k_i per second."""

    k_p: float
    k_i: float
    interval_s: float

    @property
    def a(self) -> float:
        return self.k_p + 0.5 * self.k_i * self.interval_s

    @property
    def b(self) -> float:
        return self.k_p - 0.5 * self.k_i * self.interval_s


@dataclass(frozen=True)
class RangeDesign:
    """gains: for the whole range. loops: at each corner with them. own: the best gains of each
    corner alone. left_out: corners that no gains could serve, and why. inside: loops of a grid over
    the range, without the corners; middle: at the middle of each range, in its logarithm."""

    law: str
    gains: PiGains
    params: list[tuple[str, str]]
    corners: list[Corner]
    loops: list[Loop]
    own: list[PiGains]
    left_out: list[str]
    inside: list[Loop]
    middle: Loop

    def as_json(self) -> dict[str, Any]:
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
        """Return gains as the law's parameters; none where it cannot have them."""
        form = pi_forms.pi_law(self.law)
        return [] if form is None else form.texts(gains.a, gains.b)

    @property
    def suffices(self) -> bool:
        """True if one set of gains is nearly as good at every corner as gains of its own."""
        return max(gains.k_i for gains in self.own) <= SLOW * self.gains.k_i


def design_for_range(
    law: str,
    rates: Sequence[str],
    rtts: Sequence[str],
    flows: Sequence[float],
    packet: str = "1000B",
    target: str | None = None,
    interval: str | None = None,
    l4s_flows: float = 0.0,
    tcp: PerClass = PLAIN,
) -> RangeDesign:
    """Return the robust PI for every corner of these ranges: |1/(1 + L)| is at most 2.

    It rejects disturbances best, with the largest K_i (Åström and Hägglund 2006).
    target: of every corner; a quarter of each corner's bandwidth-delay product, at the slowest rate
    and the shortest RTT, if None. interval: a fifth of the shortest RTT with its queue, or the
    law's own if that is shorter, if None. l4s_flows, tcp: as of `design.design`, at every corner;
    an RTT may be a list of classes, with a range of rates or flows. Raises `ScenarioError`.
    """
    form = _pi_law(law)
    ranges = _ranges(rates, rtts, flows)
    if target is None:
        least = LoadedLink.from_texts(rates[0], packet, flows[0], rtts[0], tcp=tcp)
        target = f"{least.target_pkts:g}p"

    def link_at(place: Place) -> LoadedLink:
        rate, rtt, n = place
        return LoadedLink.from_texts(rate, packet, n, rtt, target, None, l4s_flows, tcp)

    ends_of = (dict.fromkeys(rates), dict.fromkeys(rtts), dict.fromkeys(flows))
    links = [link_at(place) for place in itertools.product(*ends_of)]
    interval_s = _interval_s(form, links, interval)
    ends = [(link, corner_on(form, link, target, interval_s)) for link in links]
    corners = [end for _, end in ends if isinstance(end, Corner)]
    left_out = [
        f"{link.rate}, {link.rtts}, {link.flows:g} flows: {end}"
        for link, end in ends
        if isinstance(end, str)
    ]
    if not corners:
        raise ScenarioError("--flows: found too many for every corner, allowed: fewer")
    gains = choose(corners, interval_s)
    a, b = gains.a, gains.b
    texts = form.texts(a, b)
    if not texts:
        raise ScenarioError(f"law: found a = {a:.4g}, b = {b:.4g}, allowed: those of {law}")
    params = [(form.keys[0], target), *texts, (form.keys[1], quantities.time(interval_s))]

    def loop_on(link: LoadedLink) -> Loop | None:
        return plant_on(link, law, params).loop_at(link.flows, link.rtt_s)

    loops = [loop for link, end in ends if isinstance(end, Corner) and (loop := loop_on(link))]
    if len(loops) < len(corners):
        raise ScenarioError(f"law: found no rest of {law} at every corner, allowed: a PI")
    own = [choose([corner], interval_s) for corner in corners]
    places, centre = _between(ranges)
    between = {place: loop for place in places if (loop := loop_on(link_at(place))) is not None}
    inside, middle = [*between.values()], between.get(centre, loops[0])
    return RangeDesign(law, gains, params, corners, loops, own, left_out, inside, middle)


def _pi_law(law: str) -> PiLaw:
    """Return the form of a PI. Raises `ScenarioError` for any other law."""
    form = pi_forms.pi_law(law)
    if form is None:
        raise ScenarioError(
            f'law: found "{law}" with a range, allowed: {", ".join(pi_forms.pi_laws())}; '
            "`forebay tune` searches other laws over a range"
        )
    return form


def _ranges(
    rates: Sequence[str], rtts: Sequence[str], flows: Sequence[float]
) -> list[tuple[list[Any], list[float]]]:
    """Return texts and numbers of each range. Raises `ScenarioError` for one from more to less."""
    ranges: dict[str, tuple[list[Any], list[float]]] = {
        "--rate": ([*rates], [_native.quantity("--rate", rate, "rate") for rate in rates]),
        # Classes of flows keep their RTTs.
        "--rtt": (
            [*rtts],
            [0.0 if "," in rtt else _native.quantity("--rtt", rtt, "time") for rtt in rtts],
        ),
        "--flows": ([f"{n:g}" for n in flows], [*flows]),
    }
    for key, (_, numbers) in ranges.items():
        if numbers[0] > numbers[-1] and (key != "--rtt" or numbers[-1] > 0):
            raise ScenarioError(
                f"{key}: found a range from more to less, allowed: from less to more"
            )
    return list(ranges.values())


def _interval_s(form: PiLaw, links: Sequence[LoadedLink], interval: str | None) -> float:
    """Return the interval that was given, or one that suits the shortest RTT with its queue."""
    if interval is not None:
        return _native.quantity("interval", interval, "time")
    shortest_s = min(
        link.shortest_s + 8 * link.packet_bytes * link.target_pkts / link.rate_bps for link in links
    )
    return min(form.interval_s, float(f"{TAKEN * shortest_s:.2g}"))


def _between(ranges: Sequence[tuple[list[Any], list[float]]]) -> tuple[list[Place], Place]:
    """Return the places with an end or the middle of each range, but the corners; and the middle of
    all."""
    middles = [math.sqrt(min(numbers) * max(numbers)) for _, numbers in ranges]
    texts = (quantities.rate(round(middles[0])), f"{1e3 * middles[1]:.9g}ms", f"{middles[2]:.9g}")
    axes = [
        dict.fromkeys(names if numbers[0] == numbers[-1] else [*names, text])
        for (names, numbers), text in zip(ranges, texts, strict=True)
    ]
    rate, rtt, flows = (list(axis)[-1] for axis in axes)
    corners = set(itertools.product(*(names for names, _ in ranges)))
    places = [(r, t, n) for r, t, n in itertools.product(*axes) if (r, t, n) not in corners]
    return places, (rate, rtt, flows)


def corner_on(form: PiLaw, link: LoadedLink, target: str, interval_s: float) -> Corner | str:
    """Return the plant of a link's flows behind a PI law's sampler, or why there is none, in words.

    Raises `ScenarioError` for a parameter that is wrong.
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
        return REASONS.get(how, "no rest of the law")
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
    """Return the plant of a link behind a sampler and hold, and behind a law's `path`.

    omega: frequencies; some thousands up to half the sampling one, which must be the last, if None.
    plant: with the age of what the law sees; of Reno as published if None.
    """
    if plant is None:
        poles = frequency_response.apart((point.tcp_pole, point.queue_pole))
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
    """Return the robust gains with the largest K_i at every corner, with K_p of at most so much."""
    most = min(most_k_p, *(corner.most_k_p() for corner in corners))
    k_p = np.union1d(np.linspace(0, most, TRIED)[1:-1], np.geomspace(1e-4 * most, most, TRIED)[:-1])
    k_i = np.min([corner.robust_k_i(k_p) for corner in corners], axis=0)
    best = int(k_i.argmax())
    if k_i[best] <= 0:
        raise ScenarioError("law: found no PI that is robust at every corner, allowed: less range")
    # What lies between two frequencies is not seen: a thousandth less.
    return PiGains(float(k_p[best]), 0.999 * float(k_i[best]), interval_s)
