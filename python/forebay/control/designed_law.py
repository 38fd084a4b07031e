"""The result of a design: `Design`, a law on its link with operating point, gains and margins.

The linear model holds near the set-point. Two distances from it are to be compared with the
standard deviation of the queue:

- The probability is cut at zero below the set-point (`Design.headroom`). An integral loses what is
  cut off, so the queue settles lower.
- PIE's gains step with its probability (`Design.gain_step`; RFC 8033 section 4.2). A change of p
  that crosses a step is made with the gains of its start: upwards with the smaller gains, and
  downwards with the larger ones. p thus loses at each crossing, and the integral makes up for it by
  a queue above the set-point. With gains g1 below and g2 above the step, a sample loses (g2/g1 −
  g1/g2)/4 times the mean square of the change times the density of p at the step. The loss vanishes
  if p changes by small amounts.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from forebay._base import quantities, registries, words
from forebay._base.errors import ParameterError
from forebay._base.words import check_choice
from forebay._native import LawModel, OperatingPoint
from forebay.control import expected_queue, export
from forebay.control.ack_clocking import AckClockedEquilibrium, AckClockedPlant
from forebay.control.delay_system import RateLoop
from forebay.control.expected_queue import Expected, LimitCycle
from forebay.control.link import PLAIN, Link, scenario_toml
from forebay.control.loop import Loop
from forebay.control.margins import Margins
from forebay.control.plant import CoupledEquilibrium, MixedEquilibrium, Plant
from forebay.control.plants import plant_on
from forebay.control.senders import SENDERS

if TYPE_CHECKING:
    import polars as pl

    from forebay.report.plot import Plot

#: Figures of a loop: gain and phase over frequency, gain over phase, the queue after 10 % more
#: flows have started, L in the complex plane, and the roots of the closed loop.
LoopPicture = Literal["bode", "nichols", "step", "nyquist", "roots"]
#: Headroom in standard deviations of the queue with which the probability seldom reaches zero.
DEVIATIONS = 4.0
#: Smallest standard deviation of the queue, which is counted in whole packets.
LEAST_DEVIATION_PKTS = 0.5
#: Gains step where they differ by a factor of `STEPS` between probabilities that differ by `NEAR`.
STEPS, NEAR = 1.5, 2 ** (1 / 8)


class Headroom(NamedTuple):
    """The distance below the set-point at which the probability is cut at zero.

    Attributes
    ----------
    headroom_pkts : float
        The distance in packets.
    deviation_pkts : float
        Standard deviation of the queue that the windows' sawteeth cause.
    """

    headroom_pkts: float
    deviation_pkts: float

    @property
    def suffices(self) -> bool:
        """True if the queue's own oscillation seldom takes the probability to zero."""
        return self.headroom_pkts >= DEVIATIONS * self.deviation_pkts


class GainStep(NamedTuple):
    """A step in the gain schedule of a law.

    Attributes
    ----------
    probability : float
        Signal probability at the step.
    factor : float
        Factor by which the gains grow above it.
    headroom_pkts : float
        Distance of the queue with that probability from the set-point.
    deviation_pkts : float
        Standard deviation of the queue that the windows' sawteeth cause.
    """

    probability: float
    factor: float
    headroom_pkts: float
    deviation_pkts: float


@dataclass(frozen=True)
class RobustSetting:
    """A loop that is not robust, and the nearest setting that makes it robust.

    Attributes
    ----------
    peak : float
        Sensitivity peak of the loop.
    key, value : str or None
        The setting; None if no setting helps.
    then : float or None
        Sensitivity peak with the setting.
    loop : Loop or None
        The loop with the setting.
    """

    peak: float
    key: str | None = None
    value: str | None = None
    then: float | None = None
    loop: Loop | None = field(default=None, repr=False, compare=False)

    @property
    def phase_deg(self) -> float | None:
        """Phase margin with the setting, in degrees."""
        return None if self.loop is None else self.loop.margins.phase_deg

    def to_dict(self) -> dict[str, Any]:
        """Return the setting and its margins as JSON can hold them."""
        return {
            "sensitivity_peak": self.peak,
            "set": self.key and f"{self.key}={self.value}",
            "sensitivity_peak_then": self.then,
            "phase_deg_then": self.phase_deg,
        }


@dataclass(frozen=True)
class Design:
    """A designed law on its link.

    Attributes
    ----------
    law : str
        Name of the law.
    link : Link
        The link and its flows.
    target_pkts : float
        The set-point in packets.
    gains : dict of str to float
        The gains of the design rule, under the papers' names.
    params : list of (name, value)
        The law's parameters, as texts.
    notes : list of str
        Sentences of the design rule on its choices.
    point : OperatingPoint
        The operating point; with other senders that of the number of Reno flows that need the same
        signal probability.
    loop : Loop or None
        The loop; None for laws that act on rates, which have no loop of queue and probability.
    rates : RateLoop or None
        The loop of a law that acts on rates.
    published : Loop or None
        The loop at the law's default sampling interval, where that is too long for the RTT and the
        design has another interval.
    impossible_s : float or None
        That default interval, where the rule has no gains for it.
    advice : RobustSetting or None
        The setting that would make the loop robust; None for a robust loop.
    unstable_goal : RobustSetting or None
        The setting of this design, where the rule's default goals give no stable loop.
    gain_params : tuple of str
        The parameters that the rule has chosen, except set-point and interval.
    classes : CoupledEquilibrium or None
        The equilibrium of classic and L4S flows, where there are both.
    senders : MixedEquilibrium or None
        The equilibrium of all classes of flows, where they are not Reno flows with one RTT.
    source : str
        FILE.py:NAME or the label of a law written in Python, whose linear model was measured.
    """

    law: str
    link: Link
    target_pkts: float
    gains: dict[str, float]
    params: list[tuple[str, str]]
    notes: list[str]
    point: OperatingPoint
    loop: Loop | None
    rates: RateLoop | None = None
    published: Loop | None = None
    impossible_s: float | None = None
    advice: RobustSetting | None = None
    unstable_goal: RobustSetting | None = None
    gain_params: tuple[str, ...] = ()
    classes: CoupledEquilibrium | None = None
    senders: MixedEquilibrium | None = None
    source: str = ""

    @property
    def kind(self) -> str:
        """Name of the law in a scenario."""
        return self.source or self.law

    @property
    def modelled_elsewhere(self) -> bool:
        """True if the law's linear model is also known for other loads and links."""
        return not self.source

    @property
    def title(self) -> str:
        """The law, the link and the flows, as figures and pages name the design."""
        link = self.link
        addition = f" and {link.l4s_flows:g} of L4S" if link.l4s_flows else ""
        addition += f" of {link.senders}" if link.groups else ""
        law, rate = registries.title_of(self.law), words.quantity(link.rate)
        return f"{law} for {rate}, {link.flows:g} flows{addition}"

    @cached_property
    def sawtooth(self) -> Loop | None:
        """The law's loop with ACK clocking and sawtooth windows.

        It is closer to packets than the published plant of `loop`. None if such flows have no
        equilibrium, for laws that act on rates, for measured laws, and for flows other than Reno
        flows with one RTT.
        """
        if self.loop is None or self.source or self.classes or self.senders:
            return None
        return AckClockedPlant(self.model()).loop_at(self.link.flows, self.link.rtt_s)

    @cached_property
    def expected(self) -> Expected | None:
        """Statistics of the queue of `sawtooth` under TCP's own losses; None if it is unstable."""
        return None if self.sawtooth is None else expected_queue.expected(self.sawtooth)

    @cached_property
    def cycle(self) -> LimitCycle | None:
        """Limit cycle of the queue of `sawtooth`; None for a stable loop."""
        return None if self.sawtooth is None else expected_queue.limit_cycle(self.sawtooth)

    @property
    def queue_pkts(self) -> float:
        """Queue of all classes at the equilibrium, in packets."""
        if self.classes is not None:
            return self.classes.queue_pkts
        return self.held_pkts

    @property
    def window_pkts(self) -> float:
        """Mean window of a flow at the equilibrium, in packets."""
        if self.senders is None:
            return self.point.window_pkts
        classes = self.senders.classes
        windows = sum(group.flows * group.window_pkts for group in classes)
        return windows / sum(group.flows for group in classes)

    @property
    def held_pkts(self) -> float:
        """The tracked queuing delay, in packets that the link sends in that time."""
        return self.target_pkts if self.loop is None else self.loop.model["queue_pkts"]

    @property
    def stable(self) -> bool:
        """True if all roots of the closed loop decay, by an exact test."""
        return self._closed.stable

    @property
    def margins(self) -> Margins | None:
        """Margins of the loop; None without a loop."""
        return None if self.loop is None else self.loop.margins

    @property
    def settling_s(self) -> float:
        """Settling time to 2 % in seconds: 4/|Re s| of the slowest root."""
        return self._closed.settling_s

    @property
    def _closed(self) -> Loop | RateLoop:
        """The loop of the queue, or of the rates."""
        closed = self.loop or self.rates
        assert closed is not None
        return closed

    def to_dict(self) -> dict[str, Any]:
        """Return the document of `forebay design --json`; None stands for NaN and infinity."""
        margins = self.margins
        return {
            "law": self.law,
            "gains": {name: quantities.finite(gain) for name, gain in self.gains.items()},
            "params": dict(self.params),
            "operating_point": {
                "window_pkts": self.window_pkts,
                "probability": self.point.probability,
                "rtt_s": self.point.rtt_s,
                "queue_pkts": self.queue_pkts,
            },
            "classes": self.classes and self.classes.to_dict(),
            "senders": self.senders and self.senders.to_dict(),
            "margins": _margins(margins),
            "crossover_rad_s": margins and quantities.finite(margins.crossover_rad_s),
            "settling_s": quantities.finite(self.settling_s),
            "stable": self.stable,
            "interval_s": self.loop and self.loop.interval_s,
            "at_published_interval": self.published
            and {"interval_s": self.published.interval_s, "stable": self.published.stable}
            | _margins(self.published.margins),
            "advice": self.advice and self.advice.to_dict(),
            "sawtooth": self._sawtooth_json(),
        }

    def _sawtooth_json(self) -> dict[str, Any] | None:
        loop = self.sawtooth
        if loop is None:
            return None
        equilibrium = AckClockedEquilibrium.at_probability(loop.point.probability)
        return {
            "operating_point": {
                "window_pkts": equilibrium.window_pkts,
                "probability": equilibrium.probability,
                "rtt_s": loop.point.rtt_s,
                "queue_pkts": loop.model["queue_pkts"],
            },
            "margins": _margins(loop.margins),
            "crossover_rad_s": quantities.finite(loop.margins.crossover_rad_s),
            "settling_s": quantities.finite(loop.settling_s),
            "stable": loop.stable,
            "expected": self.expected and asdict(self.expected),
            "limit_cycle": self.cycle and asdict(self.cycle),
        }

    def toml(self) -> str:
        """Return a scenario with the designed law, ready for `forebay run`."""
        title = f"{registries.title_of(self.law)} designed for {self.link.flows:g} flows"
        text = scenario_toml(self.link, self.kind, self.params, title, self.queue_pkts)
        return f"# {self.law}.toml\n{text}"

    def commands(self) -> list[str]:
        """Return command lines that use the gains; the first runs the file of `toml`."""
        name = f"{self.law}.toml"
        if self.source:
            return [f"forebay run {name}"]
        overrides = " ".join(f"--set {key}={value}" for key, value in self.params)
        link = self.link
        beside = f"--l4s-flows {link.l4s_flows:g} " if link.l4s_flows else ""
        few, many = max(1, round(link.flows / 4)), max(2, round(link.flows * 4))
        more = " ".join(
            f"--set traffic.{i}.flows={max(1, round(4 * group.flows))}"
            for i, group in enumerate(link.groups)
        )
        commands = [
            f"forebay run {name}",
            # The second run has a folder of its own, since a result is not replaced.
            f"forebay run {name} {more or f'--set traffic.0.flows={many}'} --seeds 5 "
            f"--out results/{self.law}-{many}",
        ]
        if self.loop is not None:
            rate, rtt = link.rate, f"{_scaled(link.rtt_s, 0.25)}..{_scaled(link.rtt_s, 4)}"
            if link.groups:
                beside += f"--tcp {link.senders} "
            if len(link.groups) > 1:
                few_bps, rtt = round(link.rate_bps / 4), link.rtts
                rate = f"{quantities.rate(few_bps)}..{quantities.rate(4 * link.rate_bps)}"
            commands.append(
                f"forebay map {self.law} --rate {rate} --packet {link.packet} "
                f"--flows {few}..{many} --rtt {rtt} --buffer {link.buffer_pkts}p "
                f"{beside}{overrides}"
            )
        return commands

    def model(self) -> LawModel:
        """Return the law with its parameters on the link."""
        return self.link.model(self.law, self.params)

    def among_flows(self) -> Plant:
        """Return the plant of the link's flows under the law."""
        return plant_on(self.link, self.law, self.params)

    @property
    def headroom(self) -> Headroom | None:
        """The distance at which the probability is cut at zero; None without an integral."""
        if self.loop is None or not integrates_queue(self.loop):
            return None
        p = self.loop.point.probability if self.senders is None else self.senders.probability
        return Headroom(p / self.loop.model["proportional"], self._deviation_pkts)

    @property
    def gain_step(self) -> GainStep | None:
        """The nearest step of the gain schedule that the queue's own oscillation reaches.

        Both plants are considered, since packets of Reno need a smaller p than 2/W².
        """
        if not self.modelled_elsewhere:
            return None
        law, deviation_pkts = self.model(), self._deviation_pkts
        loops = [loop for loop in (self.loop, self.sawtooth) if loop is not None]
        steps = [step_within(law, loop, deviation_pkts) for loop in loops]
        return min(filter(None, steps), key=lambda step: step.headroom_pkts, default=None)

    @property
    def _deviation_pkts(self) -> float:
        if self.senders is not None:
            return deviation_of_classes(self.senders)
        flows = [(PLAIN, self.link.flows, self.point.window_pkts)]
        return deviation_of_flows(flows, self.point.probability)

    # --- figures and other tools --------------------------------------------------------------

    @property
    def plant(self) -> tuple[Any, Any]:
        """Numerator and denominator in s of TCP, queue and average.

        The delay of `point.rtt_s` is not included.
        """
        return export.plant(self._queue_loop())

    def plot(self, kind: LoopPicture = "bode") -> Plot:
        """Draw the loop.

        Parameters
        ----------
        kind : {"bode", "nichols", "step", "nyquist", "roots"}, optional
            The figure.

        Raises
        ------
        ParameterError
            If there is no such figure.
        ScenarioError
            If the law acts on rates and has no loop of queue and probability.
        """
        from forebay.report import loops

        kinds = get_args(LoopPicture)
        check_choice("kind", kind, kinds)
        return loops.FIGURES[kind](self._queue_loop(), self.title)

    def report(self, out: str | os.PathLike[str]) -> list[Path]:
        """Write the numbers, the scenario and the figures to a folder, and return the files."""
        from forebay.report import designs

        return designs.write(self, Path(out))

    def to_control(self, order: int = export.ORDER) -> dict[str, Any]:
        """Return plant, law, loop and response as objects of python-control.

        Parameters
        ----------
        order : int, optional
            Order of the Padé approximation of the delay, where a rational function is needed.
        """
        return export.to_control(self._queue_loop(), order)

    def to_mat(self, path: str | os.PathLike[str]) -> None:
        """Write the loop to a file: .mat for MATLAB, Octave and Simulink, .json, or .csv."""
        export.save(self._queue_loop(), Path(path))

    def frame(self) -> pl.DataFrame:
        """Return a table with one row: the link, the parameters, the equilibrium and the margins.

        Tables of several designs may be joined with `polars.concat(…, how="diagonal")`.
        """
        import polars as pl

        margins = self.margins
        return pl.DataFrame(
            {
                "law": self.law,
                "rate_bps": self.link.rate_bps,
                "rtt_s": self.link.rtt_s,
                "flows": self.link.flows,
                "target_pkts": self.target_pkts,
                **dict(self.params),
                "queue_pkts": self.queue_pkts,
                "stable": self.stable,
                **_margins(margins),
                "crossover_rad_s": margins and quantities.finite(margins.crossover_rad_s),
                "settling_s": quantities.finite(self.settling_s),
            }
        )

    def __str__(self) -> str:
        """Return the law with its gains and margins in three lines."""
        margins = self.margins
        params = ", ".join(f"{name} = {value}" for name, value in self.params)
        verdict = "stable" if self.stable else "unstable"
        if margins is not None and self.stable:
            verdict += (
                f": phase margin {margins.phase_deg:.1f}°, gain margin {margins.gain_db:.1f} dB, "
                f"delay margin {1e3 * margins.delay_s:.4g} ms, sensitivity peak "
                f"{margins.sensitivity:.3g}, settling time {self.settling_s:.3g} s"
            )
        return f"{self.title}, RTT {self.link.rtts}\n  {params}\n  {verdict}"

    def _repr_html_(self) -> str:
        from forebay.report import notebook

        margins = self.margins
        rows = [[name, value] for name, value in self.params]
        rows.append(["queue", f"{self.queue_pkts:.4g} packets"])
        if margins is not None:
            rows += [
                ["phase margin", f"{margins.phase_deg:.1f}°"],
                ["gain margin", f"{margins.gain_db:.1f} dB"],
                ["delay margin", f"{1e3 * margins.delay_s:.4g} ms"],
                ["sensitivity peak", f"{margins.sensitivity:.3g}"],
            ]
        rows.append(["settling time", f"{self.settling_s:.3g} s"])
        rows.append(["stable", "yes" if self.stable else "no"])
        link = f"{self.link.rate}, {self.link.flows:g} flows, RTT {self.link.rtts}"
        figure = self.plot() if self.loop is not None else None
        return notebook.html(f"{self.law} for {link}", [], rows, figure)

    def _queue_loop(self) -> Loop:
        if self.loop is None:
            expected = "a law with a loop of the queue"
            raise ParameterError("law", self.law, expected, reason="it acts on rates")
        return self.loop


def step_within(law: LawModel, loop: Loop, deviation_pkts: float) -> GainStep | None:
    """Return the nearest step of a law's gain schedule within the queue's own oscillation.

    Parameters
    ----------
    law : LawModel
        The law, whose linear models at other loads are compared.
    loop : Loop
        The loop at the equilibrium.
    deviation_pkts : float
        Standard deviation of the queue.

    Returns
    -------
    GainStep or None
        None without a step, or for a law that does not integrate the queue.
    """
    if not integrates_queue(loop):
        return None
    slope, p0 = loop.model["proportional"], loop.point.probability
    reach = DEVIATIONS * deviation_pkts * slope
    steps = (
        GainStep(p, factor, abs(p - p0) / slope, deviation_pkts)
        for end in (min(p0 + reach, 1.0), max(p0 - reach, 0.01 * p0))
        for p, factor in _steps(law, loop.point, end)
    )
    return min(steps, key=lambda step: step.headroom_pkts, default=None)


def _steps(law: LawModel, point: OperatingPoint, end: float) -> Iterator[tuple[float, float]]:
    """Yield the probabilities up to `end` at which gains step, each with its factor."""

    def gain(p: float) -> float:
        flows = point.rtt_s * point.capacity_pkts_per_s * math.sqrt(p / 2)
        model = law.linear(OperatingPoint(flows, point.rtt_s, point.capacity_pkts_per_s))
        return math.nan if model is None else model["proportional"]

    def stepped(low: float, high: float) -> bool:
        return not 1 / STEPS < gain(high) / gain(low) < STEPS

    p0 = point.probability
    pieces = max(1, math.ceil(abs(math.log(end / p0) / math.log(NEAR))))
    way = [p0 * (end / p0) ** (i / pieces) for i in range(pieces + 1)]
    for a, b in itertools.pairwise(way):
        if not stepped(a, b):
            continue
        before, after = a, b
        for _ in range(40):
            middle = math.sqrt(before * after)
            before, after = (before, middle) if stepped(before, middle) else (middle, after)
        yield after, gain(max(before, after)) / gain(min(before, after))


def deviation_of_flows(senders: Iterable[tuple[str, float, float]], p: float) -> float:
    """Return the standard deviation of the queue that the windows' sawteeth cause.

    Parameters
    ----------
    senders : iterable of (str, float, float)
        Sender, number of flows and window in packets of each class.
    p : float
        Signal probability.
    """
    return math.hypot(
        LEAST_DEVIATION_PKTS,
        *(
            _window_deviation(SENDERS[tcp].reduction(p)) * window_pkts * math.sqrt(flows)
            for tcp, flows, window_pkts in senders
        ),
    )


def deviation_of_classes(equilibrium: MixedEquilibrium) -> float:
    """Return `deviation_of_flows` for classes; L4S flows have a queue without a set-point."""
    classes = [(c.tcp, c.flows, c.window_pkts) for c in equilibrium.classes if c.tcp in SENDERS]
    return deviation_of_flows(classes, equilibrium.probability)


def integrates_queue(loop: Loop) -> bool:
    """Return True if the law integrates the queue itself on both sides of the set-point."""
    model = loop.model
    return model["integrates"] and model["average"] is None and not model["one_sided"]


def _window_deviation(reduction: float) -> float:
    """Return standard deviation over mean of a window that grows linearly between reductions."""
    return reduction / (1 - reduction / 2) / math.sqrt(12)


def _margins(margins: Margins | None) -> dict[str, float | None]:
    def value(name: str) -> float | None:
        return None if margins is None else quantities.finite(getattr(margins, name))

    return {
        "phase_deg": value("phase_deg"),
        "gain_db": value("gain_db"),
        "delay_s": value("delay_s"),
        "sensitivity_peak": value("sensitivity"),
    }


def _scaled(seconds: float, factor: float) -> str:
    return f"{1e3 * seconds * factor:.4g}ms"
