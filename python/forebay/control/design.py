"""A law designed for a link: operating point, gains, margins, reasons, and a file that runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay import _native, units
from forebay._native import LawModel, OperatingPoint, ScenarioError
from forebay.control.loop import Loop, Margins
from forebay.control.rates import RateLoop
from forebay.report.words import quantity as spaced
from forebay.run.scenario import Dumbbell, Law, Value

if TYPE_CHECKING:
    from forebay._native import LinearModel, Parameter

#: The set-point where none is given: this share of what is under way without a queue.
TARGET_SHARE = 0.25
#: A set-point is at least this, or there is no queue to control.
LEAST_TARGET_PKTS = 5.0
#: Fast retransmit needs three packets after the lost one.
LEAST_WINDOW_PKTS = 4.0
#: Standard deviation of a window that moves evenly between 2/3 and 4/3 of its mean.
SAWTOOTH_SHARE = 1 / (3 * math.sqrt(3))
#: With room for this number of standard deviations of the queue, the probability seldom reaches
#: zero.
ROOM = 4.0


@dataclass(frozen=True)
class Link:
    """A link and its load.

    rate, packet, rtt: texts with units; rtt is propagation both ways, without queueing.
    target_pkts: queue length to hold; buffer_pkts: packets that the buffer holds.
    """

    rate: str
    packet: str
    flows: float
    rtt: str
    target_pkts: float
    buffer_pkts: int

    @staticmethod
    def of(
        rate: str,
        packet: str,
        flows: float,
        rtt: str,
        target: str | None = None,
        buffer: str | None = None,
    ) -> Link:
        """With a set-point of a quarter of the bandwidth-delay product where none is given, and
        a buffer of one such product or twice the set-point, whichever is more. A set-point that
        is a delay counts as what this link sends in that time.

        Raises `ScenarioError`.
        """
        rate_bps = _native.quantity("--rate", rate, "rate")
        packet_bytes = _native.quantity("--packet", packet, "size")
        rtt_s = _native.quantity("--rtt", rtt, "time")
        for key, value in [("--rate", rate_bps), ("--packet", packet_bytes), ("--rtt", rtt_s)]:
            if value <= 0:
                raise ScenarioError(f"{key}: found 0, allowed: more than zero")
        if not (math.isfinite(flows) and flows > 0):
            raise ScenarioError(f"--flows: found {flows:g}, allowed: more than zero")
        product_pkts = rate_bps * rtt_s / (8 * packet_bytes)
        target_pkts = (
            max(float(round(TARGET_SHARE * product_pkts)), LEAST_TARGET_PKTS)
            if target is None
            else _native.set_point_pkts("--target", target, round(rate_bps), round(packet_bytes))
        )
        if not target_pkts > 0:
            raise ScenarioError("--target: found 0, allowed: more than zero")
        buffer_pkts = (
            max(product_pkts, 2 * target_pkts)
            if buffer is None
            else _native.quantity("--buffer", buffer, "queue")
        )
        if buffer_pkts < target_pkts:
            raise ScenarioError(
                f'--target: found "{target_pkts:g}p", allowed: at most the buffer, '
                f'"{buffer_pkts:g}p"'
            )
        return Link(rate, packet, flows, rtt, target_pkts, math.ceil(buffer_pkts))

    @property
    def rtt_s(self) -> float:
        return _native.quantity("--rtt", self.rtt, "time")

    @property
    def rate_bps(self) -> int:
        return round(_native.quantity("--rate", self.rate, "rate"))

    @property
    def packet_bytes(self) -> int:
        return round(_native.quantity("--packet", self.packet, "size"))

    def model(self, law: str, params: Sequence[tuple[str, Parameter]]) -> LawModel:
        """A law on the link. Raises `ScenarioError` for a parameter that is wrong."""
        buffer_pkts = float(self.buffer_pkts)
        return LawModel(law, params, self.rate_bps, self.packet_bytes, buffer_pkts)


@dataclass(frozen=True)
class Design:
    """A designed law on its link.

    gains: the designed numbers, under the papers' names.
    params: the law's parameters, name and value as a text.
    point: the network at the queue where the law settles.
    loop: None for laws of rates, which have no loop of queue and probability.
    """

    law: str
    link: Link
    gains: dict[str, float]
    params: list[tuple[str, str]]
    notes: list[str]
    point: OperatingPoint
    loop: Loop | None
    rates: RateLoop | None = None

    @property
    def queue_pkts(self) -> float:
        """Where the queue settles."""
        return self.link.target_pkts if self.loop is None else self.loop.model["queue_pkts"]

    @property
    def stable(self) -> bool:
        """By the exact test: every root of the loop decays."""
        if self.loop is not None:
            return self.loop.stable
        assert self.rates is not None
        return self.rates.system.stable()

    @property
    def margins(self) -> Margins | None:
        return None if self.loop is None else self.loop.margins

    @property
    def settling_s(self) -> float:
        """4/|Re s| of the slowest root: 2 % of a disturbance are left."""
        if self.loop is not None:
            return self.loop.settling_s
        assert self.rates is not None
        root = self.rates.system.rightmost().real
        return -4 / root if root < 0 else math.inf

    def as_json(self) -> dict[str, Any]:
        """What `forebay design --json` prints; what is not finite is None."""
        margins = self.margins
        values: dict[str, Any] = {
            "law": self.law,
            "gains": {name: _finite(gain) for name, gain in self.gains.items()},
            "params": dict(self.params),
            "operating_point": {
                "window_pkts": self.point.window_pkts,
                "probability": self.point.probability,
                "rtt_s": self.point.rtt_s,
                "queue_pkts": self.queue_pkts,
            },
            "margins": {
                "phase_deg": margins and _finite(margins.phase_deg),
                "gain_db": margins and _finite(margins.gain_db),
                "delay_s": margins and _finite(margins.delay_s),
                "sensitivity_peak": margins and _finite(margins.sensitivity),
            },
            "crossover_rad_s": margins and _finite(margins.crossover_rad_s),
            "settling_s": _finite(self.settling_s),
            "stable": self.stable,
        }
        return values

    def toml(self) -> str:
        """A scenario with the designed law, ready for `forebay run`."""
        title = f"{self.law} designed for {self.link.flows:g} flows"
        target_pkts = self.queue_pkts
        return f"# {self.law}.toml\n" + scenario(
            self.link, self.law, self.params, title, target_pkts
        )

    def commands(self) -> list[str]:
        """Command lines that use the gains; the first runs the file of `toml`."""
        name = f"{self.law}.toml"
        sets = " ".join(f"--set {key}={value}" for key, value in self.params)
        link = self.link
        few, many = max(1, round(link.flows / 4)), max(2, round(link.flows * 4))
        commands = [
            f"forebay run {name}",
            f"forebay run {name} --set traffic.0.flows={many} --seeds 5",
        ]
        if self.loop is not None:
            commands.append(
                f"forebay map {self.law} --rate {link.rate} --packet {link.packet} "
                f"--flows {few}..{many} "
                f"--rtt {_scaled(link.rtt_s, 0.25)}..{_scaled(link.rtt_s, 4)} "
                f"--buffer {link.buffer_pkts}p {sets}"
            )
        return commands

    def reasons(self) -> str:
        """One paragraph from the link to the margins."""
        link, point = self.link, self.point
        per_s = point.capacity_pkts_per_s
        sentences = [
            f"{link.flows:g} flows with {spaced(link.rtt)} of propagation share "
            f"{per_s:,.0f} packets per second. With {self.queue_pkts:.1f} packets in the queue the "
            f"RTT is R = {1e3 * point.rtt_s:.1f} ms, so a flow has W0 = RC/N = "
            f"{point.window_pkts:.2f} packets under way, for which TCP needs a signal for one "
            f"packet in {1 / point.probability:.0f}: p0 = 2/W0² = {100 * point.probability:.4g} %.",
            f"Near this point TCP's windows answer with a pole at 2N/(R²C) = {point.tcp_pole:.3g} "
            f"rad/s and the queue with one at 1/R = {point.queue_pole:.3g} rad/s, after a delay of "
            "R.",
            *self.notes,
        ]
        if point.window_pkts < LEAST_WINDOW_PKTS:
            sentences.append(
                "With windows this small TCP lives on timeouts, which the model does not know: "
                "believe the packets."
            )
        if abs(self.queue_pkts - link.target_pkts) > 0.01 * link.target_pkts:
            sentences.append(
                f"The law does not hold the wanted {link.target_pkts:g} packets: where TCP has its "
                f"p0, the queue is at {self.queue_pkts:.1f}."
            )
        if self.loop is None:
            sentences.append(self._rate_reasons())
        else:
            sentences += self._loop_reasons(self.loop)
        return " ".join(sentences)

    def _rate_reasons(self) -> str:
        assert self.rates is not None
        root = self.rates.system.rightmost()
        verdict = "stable" if self.stable else "unstable"
        return (
            f"The law acts on rates, not on the queue: its loop is {verdict}, with the rightmost "
            f"root at {root.real:.3g} ± {root.imag:.3g}j rad/s."
        )

    def _loop_reasons(self, loop: Loop) -> list[str]:
        margins = loop.margins
        sampled = (
            f"With the sampler at {1e3 * loop.interval_s:.4g} ms counted exactly, the"
            if loop.interval_s
            else "The"
        )
        if math.isnan(margins.crossover_rad_s):
            cross = f"{sampled} loop gain stays below one"
        else:
            cross = (
                f"{sampled} loop gain falls through one at {margins.crossover_rad_s:.3g} rad/s "
                f"with a phase margin of {margins.phase_deg:.1f}°"
            )
        gain = (
            f"a gain margin of {margins.gain_db:.1f} dB"
            if math.isfinite(margins.gain_db)
            else "no gain that would make it oscillate"
        )
        sentences = [f"{cross} and {gain}."]
        if not loop.stable:
            root = loop.roots[0]
            sentences.append(
                f"The loop is unstable: its rightmost root, {root.real:.3g} ± "
                f"{abs(root.imag):.3g}j rad/s, grows."
            )
        else:
            delay = (
                f"It would bear {1e3 * margins.delay_s:.0f} ms more delay. "
                if math.isfinite(margins.delay_s)
                else ""
            )
            sentences.append(
                f"{delay}A disturbance is amplified {margins.sensitivity:.2f} times at worst, and "
                f"falls to 2 % in about {loop.settling_s:.3g} s."
            )
            sentences.append(self._reach())
            sentences += self._cut(loop)
        if loop.model["one_sided"]:
            sentences.append(
                "All this holds while the queue stays on one side of its set-point; samples in "
                "which it crosses are predictive, and nonlinear."
            )
        return sentences

    def _cut(self, loop: Loop) -> list[str]:
        """Whether the sawteeth of the windows take the probability of a law that integrates the
        queue itself to zero, where the integral loses what is cut off, and the queue settles lower.
        """
        model = loop.model
        if not model["integrates"] or model["average"] is not None or model["one_sided"]:
            return []
        swing_pkts = SAWTOOTH_SHARE * self.point.window_pkts * math.sqrt(self.link.flows)
        room_pkts = self.point.probability / model["proportional"]
        if room_pkts >= ROOM * swing_pkts:
            return []
        key = self._model().slowed_by
        slower = f" A smaller {key} (`--set {key}=…`) leaves more room." if key else ""
        return [
            f"Beware: {room_pkts:.0f} packets below the set-point the probability is cut at zero, "
            f"and the flows' sawteeth alone swing the queue by ±{swing_pkts:.0f}: it will settle "
            f"below the set-point.{slower}"
        ]

    def _reach(self) -> str:
        """How far the load and the RTT may move before these gains oscillate."""
        law, link = self._model(), self.link

        def stable(flows: float, rtt_s: float) -> bool:
            loop = Loop.at(law, flows, rtt_s)
            return loop is not None and loop.stable

        fewest = _edge(lambda factor: stable(link.flows * factor, link.rtt_s), 1e-3)
        longest = _edge(lambda factor: stable(link.flows, link.rtt_s * factor), 1e3)
        parts = []
        if fewest is not None:
            parts.append(f"down to {link.flows * fewest:.3g} flows")
        if longest is not None:
            parts.append(f"up to {1e3 * link.rtt_s * longest:.3g} ms of propagation")
        if not parts:
            return "The same parameters stay stable at any load and RTT that is not absurd."
        return f"At the other numbers as given, they stay stable {' or '.join(parts)}."

    def _model(self) -> LawModel:
        return self.link.model(self.law, self.params)


def scenario(
    link: Link,
    law: str,
    params: Sequence[tuple[str, str]],
    title: str,
    target_pkts: float,
    duration_s: float = 60.0,
    sweep: Mapping[str, Sequence[Value]] | None = None,
) -> str:
    """A scenario of long-lived flows over the link, in TOML; the first third is not measured."""
    return Dumbbell(
        title=title,
        duration_s=duration_s,
        measure_from_s=duration_s / 3,
        rate=link.rate,
        fastest_bps=link.rate_bps,
        delay_s=link.rtt_s / 4,
        buffer_pkts=link.buffer_pkts,
        flows=max(1, round(link.flows)),
        packet=link.packet,
        rtt=link.rtt,
        laws=[Law(law, params)],
        target_pkts=target_pkts,
        sweep=sweep or {},
    ).text()


def design(
    law: str,
    rate: str,
    flows: float,
    rtt: str,
    packet: str = "1000B",
    target: str | None = None,
    buffer: str | None = None,
    sets: Mapping[str, Any] | None = None,
) -> Design:
    """Designs a law for a link.

    law: its name in `forebay laws`.
    rate, packet, rtt: such as "15Mbit/s", "500B", "200ms"; rtt is propagation, both ways.
    target: queue length or queuing delay to hold, such as "175p" or "40ms"; a quarter of the
        bandwidth-delay product if None.
        {"target": "175p"} in `sets` asks for the same.
    buffer: such as "800p"; the bandwidth-delay product, or twice the target if that is more.
    sets: what the design is asked for ({"beta": 0.3}), and parameters of the law that it leaves
        alone ({"interval": "10ms"}).

    A law without a design rule is analysed with its parameters as they are. Raises
    `ScenarioError` for a law, quantity or parameter that is wrong, and for a law that has
    neither a design rule nor a linear model.
    """
    given = {key: units.plain(value) for key, value in (sets or {}).items()}
    if _has(law, "target"):
        target = _one_target(target, given.pop("target", None))
    link = Link.of(rate, packet, flows, rtt, target, buffer)
    names = [name for name, _, _ in link.model(law, []).goals]
    params = [(key, value) for key, value in given.items() if key not in names]
    if _has(law, "target"):
        params.append(("target", f"{link.target_pkts:.12g}p"))
    base = link.model(law, params)
    capacity = base.capacity_pkts_per_s
    wanted = OperatingPoint(flows, link.rtt_s + link.target_pkts / capacity, capacity)
    if wanted.probability >= 1:
        most = 2**-0.5 * capacity * wanted.rtt_s
        raise ScenarioError(
            f"--flows: found {flows:g}, allowed: at most {most:.3g} with this rate, RTT and "
            "target; with windows below √2 packets no signal slows TCP down enough"
        )
    goals = [(key, value) for key, value in given.items() if key in names]
    designed = base.design(wanted, link.target_pkts, goals)
    values = dict(params)
    if designed is not None:
        values |= dict(designed["params"])
        # What was set by hand stays, even where the rule has its own opinion.
        values |= {key: value for key, value in given.items() if key not in names}
    final = link.model(law, list(values.items()))
    shown = list(values.items())
    gains = designed["gains"] if designed is not None else {}
    notes = (
        designed["notes"]
        if designed is not None
        else ["The law has no design rule: these are its parameters as they are."]
    )
    found: tuple[OperatingPoint, LinearModel] | None = final.operate(flows, link.rtt_s)
    if found is not None:
        return Design(law, link, gains, shown, notes, found[0], Loop(*found))
    if designed is not None and final.rate_control is not None:
        utilisation, k_p, k_i, k_d = final.rate_control
        rates = RateLoop(capacity, flows, wanted.rtt_s, k_i, k_p, k_d, utilisation)
        return Design(law, link, gains, shown, notes, wanted, None, rates)
    if final.linear(wanted) is None and designed is None:
        raise ScenarioError(
            f'law: found "{law}", which has neither a design rule nor a linear model, allowed: '
            f"{', '.join(_designable(wanted))}"
        )
    raise ScenarioError(
        f"law: {law} cannot signal what {flows:g} flows need; allowed: fewer flows or other "
        "parameters"
    )


def _designable(point: OperatingPoint) -> list[str]:
    """Laws with a design rule or a linear model, on a link large enough for their defaults."""
    found = []
    for law in (entry["name"] for entry in _native.laws()):
        model = LawModel(law, [], 10**9, 1000, 1e6)
        if model.linear(point) is not None or model.design(point, 1e3, []) is not None:
            found.append(law)
    return found


def _has(law: str, param: str) -> bool:
    laws = {entry["name"]: entry for entry in _native.laws()}
    return law in laws and any(spec["name"] == param for spec in laws[law]["params"])


def _one_target(option: str | None, param: str | None) -> str | None:
    """The set-point, which may be given as an option or as the law's parameter."""
    if option is not None and param is not None and option != param:
        raise ScenarioError(
            f'--set target: found "{param}" beside --target "{option}", allowed: one of them'
        )
    return option if param is None else param


def _edge(stable: Callable[[float], bool], far: float) -> float | None:
    """The factor between 1 and `far` at which stability ends; None where it does not."""
    good, step = 1.0, far ** (1 / 24)
    while stable(good * step):
        good *= step
        if abs(math.log(good)) >= abs(math.log(far)) - 1e-9:
            return None
    bad = good * step
    for _ in range(12):
        middle = math.sqrt(good * bad)
        if stable(middle):
            good = middle
        else:
            bad = middle
    return good


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _scaled(seconds: float, factor: float) -> str:
    return f"{1e3 * seconds * factor:.4g}ms"
