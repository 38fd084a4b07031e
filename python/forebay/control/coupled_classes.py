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
from dataclasses import dataclass

from forebay.control.class_equilibria import CoupledClass, CoupledEquilibrium
from forebay.control.loop import Loop
from forebay.control.mixed_senders import MixedLoop, MixedPlant
from forebay.control.plant import Equilibrium


class DelayLoop(MixedLoop):
    """The loop of both classes through the delay of the head."""

    held = "Queuing delay at the link's rate"
    probability_step = Loop.probability_step


@dataclass(frozen=True)
class CoupledPlant(MixedPlant):
    """A law among flows of Reno with one RTT and a number of L4S flows beside them, of which design
    rules know."""

    @property
    def published(self) -> bool:
        return True

    def coupled_classes(self, equilibrium: Equilibrium) -> CoupledEquilibrium:
        point, model = equilibrium
        (_, l4s), root = self.classes, math.sqrt(point.probability)
        assert l4s.coupling is not None
        classic, scalable = (
            CoupledClass(rest.flows, rest.window_pkts, rest.rtt_s, p)
            for rest, p in zip(
                self.rests(equilibrium).classes,
                (point.probability, l4s.coupling * root),
                strict=True,
            )
        )
        # A queue of their own is next to empty.
        ahead = 0.0 if l4s.waits else scalable.flows * scalable.rate_pkts_per_s
        queue_pkts = model["queue_pkts"] * (1 - ahead / point.capacity_pkts_per_s)
        return CoupledEquilibrium(root, l4s.coupling, classic, scalable, queue_pkts)

    def mixed_senders(self, _equilibrium: Equilibrium) -> None:
        return None

    def loop(self, equilibrium: Equilibrium) -> DelayLoop:
        return DelayLoop(self, equilibrium, self.terms([equilibrium]))
