"""The links on which bench/fluid_senders.py compares the fluid with packets."""

from __future__ import annotations

import random
import re
import tomllib
from dataclasses import dataclass, replace

import numpy as np

from forebay._native import ScenarioError, Sweep
from forebay.experiment import automatic_gains, experiment

PACKET_BITS = 8 * 1500

#: Parameters of laws per packet of queue: a link with ten times the packets needs a tenth of them.
PER_PACKET = {"a", "b", "k_p", "k_i", "k_d", "w_q"}


@dataclass(frozen=True)
class Link:
    """A link and its law.

    Attributes
    ----------
    mbit_per_s : float
        Rate in Mbit/s.
    rtt_ms : float
        Round trip in ms.
    flows : int
        Number of flows.
    law : str
        The table of the law in TOML.
    settled_s : float, default 40
        Start of the means, in seconds.
    step_s : float, default 80
        Time at which a seventh of the flows leaves, in seconds.
    end_s : float, default 130
        End of the run, in seconds.
    sample_ms : float, default 50
        Time between samples, in ms.
    """

    mbit_per_s: float
    rtt_ms: float
    flows: int
    law: str
    settled_s: float = 40
    step_s: float = 80
    end_s: float = 130
    sample_ms: float = 50

    @property
    def pkts_per_s(self) -> float:
        """The rate in packets per second."""
        return self.mbit_per_s * 1e6 / PACKET_BITS

    def text(self, sender: str) -> str:
        """Return the scenario for a sender."""
        buffer_pkts = int(max(4 * self.pkts_per_s * self.rtt_ms / 1e3, 400))
        leaving = max(round(self.flows / 7), 1)
        ecn = '"l4s"' if sender == "prague" else "true"
        traffic = "\n".join(
            f"""
[[traffic]]
label  = "{label}"
kind   = "ftp"
flows  = {flows}
tcp    = "{sender}"
ecn    = {ecn}
packet = "1500B"
rtt    = "{self.rtt_ms}ms"
access = "10Gbit/s"
start  = {{ uniform = ["0s", "1s"] }}
{stop}"""
            for label, flows, stop in [
                ("stay", self.flows - leaving, ""),
                ("leave", leaving, f'stop = "{self.step_s}s"'),
            ]
        )
        return f"""
duration = "{self.end_s}s"
measure  = ["{self.settled_s}s", "{self.step_s}s"]
sample   = "{self.sample_ms}ms"

[bottleneck]
rate   = "{self.mbit_per_s}Mbit/s"
delay  = "{self.rtt_ms / 4}ms"
buffer = "{buffer_pkts}p"
ecn    = true
{traffic}
[[law]]
{self.law}
"""

    def designed(self, sender: str) -> tuple[Link, str]:
        """Return the link with numbers in place of `gains = "auto"`, and lines on their design."""
        experiment_ = experiment.read(self.text(sender))
        (law,) = tomllib.loads(experiment_.text)["law"]
        words = [f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v!r}" for k, v in law.items()]
        return replace(self, law="\n".join(words)), "; ".join(experiment_.designed)

    def times(self, factor: int) -> Link:
        """Return the link with `factor` times the flows and the rate.

        Windows, round trips, probabilities and the loop stay the same. The law must have numbers.
        """

        def longer(match: re.Match[str]) -> str:
            key, value = match.groups()
            if key in PER_PACKET:
                return f"{key} = {float(value) / factor!r}"
            if value.endswith('p"'):
                return f'{key} = "{float(value[1:-2]) * factor!r}p"'
            return match.group()

        law = re.sub(r"(?m)^(\w+) = (.*)$", longer, self.law)
        return replace(
            self, mbit_per_s=self.mbit_per_s * factor, flows=self.flows * factor, law=law
        )


PI = 'kind = "pi"\ntarget = "{}p"\ngains = "auto"'
PI_PD = 'kind = "pi-pd"\ntarget = "{}p"\ngains = "auto"'


def red(min_th: int, max_th: int, max_p: float, w_q: float) -> str:
    """Return the table of RED."""
    return f'kind = "red"\nmin_th = "{min_th}p"\nmax_th = "{max_th}p"\nmax_p = {max_p}\nw_q = {w_q}'


#: Links for senders that respond to the share of marks: PI, a step, a ramp on the queue, and a
#: coupled law.
SCALABLE = {
    "a": Link(100, 40, 30, PI.format(100), 20, 40, 60),
    "b": Link(100, 20, 10, red(40, 41, 1.0, 1.0), 20, 40, 60),
    "c": Link(100, 40, 30, red(20, 420, 0.6, 1.0), 20, 40, 60),
    "d": Link(100, 40, 20, 'kind = "pi2"', 20, 40, 60),
}

#: Links for CUBIC and Reno, chosen by hand; some replace others that did not settle.
CLASSIC = {
    "A": Link(5, 40, 5, PI.format(30)),
    "B": Link(10, 20, 5, 'kind = "pie"'),
    "C": Link(30, 200, 30, red(50, 850, 0.015, 1e-3)),
    "D": Link(50, 200, 20, PI.format(200), 60, 110, 180),
    "E": Link(100, 100, 70, PI.format(300)),
    "F": Link(100, 50, 20, PI_PD.format(200)),
    "G": Link(200, 100, 100, 'kind = "pie"'),
    "H": Link(200, 200, 60, red(100, 3100, 0.0021, 1e-3), 60, 110, 180),
    "I": Link(300, 100, 100, PI.format(500)),
    "J": Link(500, 150, 120, PI.format(1000), 60, 110, 180),
    "K": Link(1000, 20, 50, 'kind = "pie"'),
    "L": Link(1000, 50, 500, red(200, 4000, 0.03, 1e-5)),
    "M": Link(1000, 200, 200, PI.format(2000), 60, 110, 180),
}

#: The laws of random links, which are equally frequent.
DRAWN_LAWS = ("pi", "pi-pd", "pid", "red", "pie", "pi2")
#: Ranges of the rate in Mbit/s, the round trip in ms and the window in packets; each is drawn
#: uniformly on a logarithmic scale.
RATES, RTTS, WINDOWS = (5.0, 1000.0), (10.0, 200.0), (8.0, 100.0)
#: Smallest number of flows, of which one leaves.
FEWEST_FLOWS = 7


def drawn(count: int, seed: int, sender: str) -> dict[str, Link]:
    """Return random links with the gains and set-points of `gains = "auto"`.

    A draw is repeated if its link has fewer than seven flows, or if the design refuses the law,
    calls it unstable, or has an S above 2; nothing else is excluded. Means begin after one and a
    half times the designed settling time, and after at least 40 s.
    """
    rng = random.Random(seed)

    def evenly(low: float, high: float) -> float:
        return low * (high / low) ** rng.random()

    links: dict[str, Link] = {}
    while len(links) < count:
        law = DRAWN_LAWS[len(links) % len(DRAWN_LAWS)]
        mbit_per_s, rtt_ms, window = evenly(*RATES), evenly(*RTTS), evenly(*WINDOWS)
        # Links have two digits. The set-point is a quarter of the packets in flight.
        mbit_per_s, rtt_ms = float(f"{mbit_per_s:.2g}"), float(f"{rtt_ms:.2g}")
        on_the_way = 1.25 * mbit_per_s * 1e3 * rtt_ms / PACKET_BITS
        flows = round(on_the_way / window)
        if flows < FEWEST_FLOWS:
            continue
        link = Link(mbit_per_s, rtt_ms, flows, f'kind = "{law}"\ngains = "auto"')
        try:
            (request,) = Sweep(link.text(sender).encode(), "link").gains_requests([])
            design = automatic_gains.fitted(automatic_gains.of_request(request))
        except ScenarioError as error:
            print(f"another link is drawn: {error}")
            continue
        calm = design.sensitivity is not None and round(design.sensitivity, 1) <= 2
        if design.settling_s is None or not calm:
            print(f"another link is drawn: {design.line}")
            continue
        settled_s = round(max(40, 1.5 * design.settling_s))
        step_s = settled_s + round(max(40, design.settling_s / 2))
        links[f"{seed}.{len(links) + 1}"] = replace(
            link,
            settled_s=settled_s,
            step_s=step_s,
            # The end is late enough for an oscillation, and so early that noise does not dominate.
            end_s=step_s + round(float(np.clip(4 * design.settling_s, 10, 150))),
            sample_ms=min(50, round(rtt_ms / 2)),
        )
    return links
