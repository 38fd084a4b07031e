"""Classic and L4S flows under one coupled law: where both settle, and the loop that they close.

A PI controller of the classic queue's delay d has the output p'. A classic packet is signalled
with p_C = p'², an L4S packet marked with p_L = k·p' (RFC 9332 section 2.1; De Schepper et al.,
CoNEXT 2016), so that the windows W_C = √2/p' of Reno and W_L = 2/(k·p') of a scalable sender rest
where N_C·W_C/R_C + N_L·W_L/R_L = C. An L4S flow so counts as (√2/k)·R_C/R_L flows of Reno, and
the law has the operating point of that many. L4S packets have a queue of their own that is
next to empty: their RTT R_L has no classic delay in it, and their queue's own marks, above its
step, are none at rest.

Around that point, with C_C for the classic flows' share of the link and g for the gain of the
estimate α of the share of marks (RFC 8257 section 3.3):

W_C' = 1/R_C − W_C²/(2R_C)·p'(t − R_C)²
W_L' = 1/R_L − W_L·α/(2R_L), α' = (g/R_L)·(k·p'(t − R_L) − α)
d' = (N_C·W_C(t − d0)/(T_p + d) + N_L·W_L/R_L − C)/C_C

A classic packet counts in the head's delay once it is the head; an L4S packet takes the link from
the head at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import forebay._native as _native
from forebay._native import FlowModel, ScenarioError
from forebay.theory.loop import frequency_response
from forebay.theory.loop.frequency_response import Terms
from forebay.theory.loop.loop import Loop
from forebay.theory.plant.classes_at_rest import CoupledClass, CoupledEquilibrium
from forebay.theory.plant.loaded_link import LoadedLink
from forebay.theory.plant.plant import Equilibrium, Plant

if TYPE_CHECKING:
    from forebay._native import LawModel, OperatingPoint

#: Gain of a scalable sender's estimate of the share of marks (RFC 8257 section 4.2, and the
#: draft of Prague).
ESTIMATE_GAIN = 1 / 16
#: The queue in which all packets wait in one line.
ONE_LINE = "fifo"


def check_coupled(link: LoadedLink, law: str, model: LawModel) -> tuple[float, bool]:
    """k of a law beside flows of L4S, and whether these have a queue of their own. Raises
    `ScenarioError` for a law that is not coupled, or does not integrate."""
    if model.coupling is None:
        names = [entry["name"] for entry in _native.laws() if entry["coupled"]]
        raise ScenarioError(
            f"--l4s-flows: found {link.l4s_flows:g} with {law}, which tells no classes "
            f"apart, allowed: 0, or one of {', '.join(names)}"
        )
    if model.coupling <= 0:
        raise ScenarioError("--set coupling: found 0, allowed: above 0 with L4S flows")
    point = _native.OperatingPoint(1.0, link.rtt_s, model.capacity_pkts_per_s)
    linear = model.linear(point)
    if linear is not None and not linear["integrates"]:
        raise ScenarioError(
            f"--l4s-flows: found {link.l4s_flows:g} with {law} without an integral, "
            "allowed: 0, or a gain that integrates"
        )
    queue = next(entry["queue"] for entry in _native.laws() if entry["name"] == law)
    return model.coupling, queue != ONE_LINE


class DelayLoop(Loop):
    """The loop of both classes through the delay of the head."""

    held = "Queuing delay at the link's rate"


@dataclass(frozen=True)
class CoupledPlant(Plant):
    """A law among classic flows and a number of L4S flows beside them.

    l4s_flows: how many. apart: whether L4S packets have a queue of their own.
    """

    law: LawModel
    l4s_flows: float
    coupling: float
    apart: bool = True

    @staticmethod
    def on_link(link: LoadedLink, law: str, params: Sequence[tuple[str, Any]]) -> CoupledPlant:
        """Raises `ScenarioError` for a parameter that is wrong, and for a law that is not coupled,
        or does not integrate."""
        model = link.model(law, params)
        return CoupledPlant(model, link.l4s_flows, *check_coupled(link, law, model))

    def weight(self, rtt_classic_s: float, queue_s: float) -> float:
        """How many flows of Reno need the p' that one L4S flow needs."""
        return math.sqrt(2) / self.coupling * rtt_classic_s / self._rtt_s(rtt_classic_s, queue_s)

    def _rtt_s(self, rtt_classic_s: float, queue_s: float) -> float:
        return rtt_classic_s - queue_s if self.apart else rtt_classic_s

    @property
    def flow_model(self) -> FlowModel:
        return FlowModel.coupled(self.l4s_flows, self.coupling, self.apart)

    def coupled_classes(self, equilibrium: Equilibrium) -> CoupledEquilibrium:
        point, model = equilibrium
        queue_s = model["queue_pkts"] / point.capacity_pkts_per_s
        root = math.sqrt(point.probability)
        l4s_flows = self.l4s_flows
        classic_flows = point.flows - l4s_flows * self.weight(point.rtt_s, queue_s)
        p_l = self.coupling * root
        return CoupledEquilibrium(
            root,
            self.coupling,
            CoupledClass(classic_flows, math.sqrt(2) / root, point.rtt_s, point.probability),
            CoupledClass(l4s_flows, 2 / p_l, self._rtt_s(point.rtt_s, queue_s), p_l),
            queue_s * self._left_pkts_per_s(point, queue_s),
        )

    def _left_pkts_per_s(self, point: OperatingPoint, queue_s: float) -> float:
        """What the queue that the law sees gets of the link."""
        if not self.apart:
            return point.capacity_pkts_per_s
        share = 1 - self.l4s_flows * self.weight(point.rtt_s, queue_s) / point.flows
        return point.capacity_pkts_per_s * share

    def terms(self, equilibria: Sequence[Equilibrium]) -> Terms:
        """The classic flows' path to the delay, and that of the L4S flows beside it."""
        built = frequency_response.terms(equilibria)
        classic, scalable = [], []
        for equilibrium in equilibria:
            point, model = equilibrium
            rest = self.coupled_classes(equilibrium)
            capacity, root = point.capacity_pkts_per_s, rest.root
            age_s = model["age_s"]
            queue_s = model["queue_pkts"] / capacity
            # The law's model is of p'² by packets at the link's rate: 2p'/C of p' by delay.
            unit = capacity / (2 * root) / self._left_pkts_per_s(point, queue_s)
            n_c, w_c, r_c = rest.classic.flows, rest.classic.window_pkts, rest.classic.rtt_s
            w_l, r_l = rest.l4s.window_pkts, rest.l4s.rtt_s
            classic.append((unit * n_c / r_c * w_c**2 * root / r_c, r_c + age_s))
            g = ESTIMATE_GAIN / r_l
            scalable.append(
                (
                    unit * self.l4s_flows / r_l * self.coupling * w_l / (2 * r_l) * g,
                    1 / (w_l * r_l),
                    g,
                    1 / r_c,
                    r_l if self.apart else r_l + age_s,
                )
            )
        k_l, a_l, g_l, h, delay_s = (
            frequency_response.column(each) for each in zip(*scalable, strict=True)
        )
        k_c, delay_c_s = (frequency_response.column(each) for each in zip(*classic, strict=True))
        beside = Terms(k_l, frequency_response.apart((h, a_l, g_l)), delay_s, 0.0, built.interval_s)
        return replace(built, gain=k_c, delay_s=delay_c_s, beside=beside)

    def loop(self, equilibrium: Equilibrium) -> Loop:
        return DelayLoop(*equilibrium, self.terms([equilibrium]))
