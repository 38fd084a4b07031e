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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from forebay import _native
from forebay._native import ScenarioError
from forebay.control import gain
from forebay.control.gain import Terms
from forebay.control.link import Link
from forebay.control.loop import Loop

if TYPE_CHECKING:
    from forebay._native import LawModel, LinearModel, OperatingPoint

#: Gain of a scalable sender's estimate of the share of marks (RFC 8257 section 4.2, and the
#: draft of Prague).
ESTIMATE_GAIN = 1 / 16
#: Of a fixed point: relative change at which it is found, and steps until it is given up.
SAME, STEPS = 1e-12, 200
#: The queue in which all packets wait in one line.
ONE_LINE = "fifo"

Cell = tuple["OperatingPoint", "LinearModel"]


@dataclass(frozen=True)
class Classes:
    """Where both classes rest.

    root: p'. coupling: k. window_*_pkts, rate_*_pkts_per_s: of a flow. rtt_*_s: with what it
    waits for. queue_pkts: of both classes.
    """

    root: float
    coupling: float
    classic_flows: float
    l4s_flows: float
    window_classic_pkts: float
    window_l4s_pkts: float
    rtt_classic_s: float
    rtt_l4s_s: float
    queue_pkts: float

    @property
    def rate_classic_pkts_per_s(self) -> float:
        return self.window_classic_pkts / self.rtt_classic_s

    @property
    def rate_l4s_pkts_per_s(self) -> float:
        return self.window_l4s_pkts / self.rtt_l4s_s

    @property
    def ratio(self) -> float:
        """Rate of an L4S flow over that of a classic one; √2/k·R_C/R_L."""
        return self.rate_l4s_pkts_per_s / self.rate_classic_pkts_per_s

    @property
    def probability_classic(self) -> float:
        """p_C."""
        return self.root**2

    @property
    def probability_l4s(self) -> float:
        """p_L."""
        return self.coupling * self.root

    def as_json(self) -> dict[str, Any]:
        return {
            "p_root": self.root,
            "coupling": self.coupling,
            "rate_ratio": self.ratio,
            "classic": {
                "flows": self.classic_flows,
                "window_pkts": self.window_classic_pkts,
                "rtt_s": self.rtt_classic_s,
                "probability": self.probability_classic,
                "rate_pkts_per_s": self.rate_classic_pkts_per_s,
            },
            "l4s": {
                "flows": self.l4s_flows,
                "window_pkts": self.window_l4s_pkts,
                "rtt_s": self.rtt_l4s_s,
                "probability": self.probability_l4s,
                "rate_pkts_per_s": self.rate_l4s_pkts_per_s,
            },
        }


class DelayLoop(Loop):
    """The loop of both classes through the delay of the head."""

    held = "Queuing delay at the link's rate"


@dataclass(frozen=True)
class Coupled:
    """A law on a link with a number of L4S flows beside the classic ones, or with none.

    law: as it is. bare: the same with a set-point of zero, whose model is without the age of the
    head. apart: whether L4S packets have a queue of their own.
    """

    law: LawModel
    bare: LawModel
    flows: float = 0.0
    coupling: float = math.nan
    apart: bool = True

    @staticmethod
    def on(link: Link, law: str, params: Sequence[tuple[str, Any]]) -> Coupled:
        """Raises `ScenarioError` for a parameter that is wrong, and for L4S flows under a law
        that is not coupled, or does not integrate."""
        model = link.model(law, params)
        if not link.l4s_flows:
            return Coupled(model, model)
        entry = next((one for one in _native.laws() if one["name"] == law), None)
        defaults = {} if entry is None else {p["name"]: p["default"] for p in entry["params"]}
        if entry is None or "coupling" not in defaults:
            names = [
                one["name"]
                for one in _native.laws()
                if any(p["name"] == "coupling" for p in one["params"])
            ]
            raise ScenarioError(
                f"--l4s-flows: found {link.l4s_flows:g} with {law}, which tells no classes "
                f"apart, allowed: 0, or one of {', '.join(names)}"
            )
        given: Mapping[str, Any] = dict(params)
        coupling = float(given.get("coupling", defaults["coupling"]))
        bare = link.model(law, [*((k, v) for k, v in params if k != "target"), ("target", "0p")])
        if coupling <= 0:
            raise ScenarioError("--set coupling: found 0, allowed: above 0 with L4S flows")
        made = Coupled(model, bare, link.l4s_flows, coupling, entry["queue"] != ONE_LINE)
        point = _native.OperatingPoint(1.0, link.rtt_s, model.capacity_pkts_per_s)
        linear = model.linear(point)
        if linear is not None and not linear["integrates"]:
            raise ScenarioError(
                f"--l4s-flows: found {link.l4s_flows:g} with {law} without an integral, "
                "allowed: 0, or a gain that integrates"
            )
        return made

    def weight(self, rtt_classic_s: float, queue_s: float) -> float:
        """How many flows of Reno need the p' that one L4S flow needs."""
        return math.sqrt(2) / self.coupling * rtt_classic_s / self._rtt_s(rtt_classic_s, queue_s)

    def _rtt_s(self, rtt_classic_s: float, queue_s: float) -> float:
        return rtt_classic_s - queue_s if self.apart else rtt_classic_s

    def alike(self, flows: float, propagation_s: float, _queue_pkts: float = 0.0) -> float:
        """How many flows of Reno alone need the p' of these and of the L4S flows, where the law
        holds its queue."""
        if not self.flows:
            return flows
        total = flows + self.flows * math.sqrt(2) / self.coupling
        for _ in range(STEPS):
            found = self.law.operate(total, propagation_s)
            if found is None:
                break
            point, model = found
            queue_s = model["queue_pkts"] / point.capacity_pkts_per_s
            last, total = total, flows + self.flows * self.weight(point.rtt_s, queue_s)
            if abs(total - last) <= SAME * total:
                break
        return total

    def operate(self, flows: float, propagation_s: float) -> Cell | None:
        """Where both classes settle: the point of as many flows of Reno as need the same p', and
        the law there; None where there is no equilibrium."""
        total = self.alike(flows, propagation_s)
        found = self.law.operate(total, propagation_s)
        if found is None or not self.flows:
            return found
        point, model = found
        bare = self.bare.linear(point)
        if bare is None or self.coupling * math.sqrt(point.probability) >= 1:
            return None
        # The head's age is a delay of the classic path here, not of the law.
        return point, {**model, "sampled": bare["sampled"]}

    def rest(self, flows: float, propagation_s: float) -> tuple[str, float | None, float | None]:
        """As `LawModel.rest`, of both classes: "saturated" also where k·p' is 1 or more."""
        how, queue_pkts, p = self.law.rest(self.alike(flows, propagation_s), propagation_s)
        if self.flows and how == "linear" and self.operate(flows, propagation_s) is None:
            found = self.law.operate(self.alike(flows, propagation_s), propagation_s)
            root = math.sqrt(found[0].probability) if found else math.nan
            return "saturated", queue_pkts, self.coupling * root
        return how, queue_pkts, p

    def split(self, cell: Cell) -> Classes | None:
        """Both classes at a point of `operate`; None without L4S flows."""
        if not self.flows:
            return None
        point, model = cell
        queue_s = model["queue_pkts"] / point.capacity_pkts_per_s
        root = math.sqrt(point.probability)
        return Classes(
            root,
            self.coupling,
            point.flows - self.flows * self.weight(point.rtt_s, queue_s),
            self.flows,
            math.sqrt(2) / root,
            2 / (self.coupling * root),
            point.rtt_s,
            self._rtt_s(point.rtt_s, queue_s),
            queue_s * self._left_pkts_per_s(point, queue_s),
        )

    def _left_pkts_per_s(self, point: OperatingPoint, queue_s: float) -> float:
        """What the queue that the law sees gets of the link."""
        if not self.apart:
            return point.capacity_pkts_per_s
        share = 1 - self.flows * self.weight(point.rtt_s, queue_s) / point.flows
        return point.capacity_pkts_per_s * share

    def terms(self, cells: Sequence[Cell]) -> Terms:
        """Loops at points of `operate`, as `gain.terms` has them: the classic flows' path to the
        delay, and that of the L4S flows beside it."""
        built = gain.terms(cells)
        if not self.flows:
            return built
        classic, scalable = [], []
        for cell in cells:
            (point, model), here = cell, self.split(cell)
            assert here is not None
            capacity, root = point.capacity_pkts_per_s, here.root
            age_s = model["queue_pkts"] / capacity
            # The law's model is of p'² by packets at the link's rate: 2p'/C of p' by delay.
            unit = capacity / (2 * root) / self._left_pkts_per_s(point, age_s)
            n_c, w_c, r_c = here.classic_flows, here.window_classic_pkts, here.rtt_classic_s
            w_l, r_l = here.window_l4s_pkts, here.rtt_l4s_s
            classic.append((unit * n_c / r_c * w_c**2 * root / r_c, r_c + age_s))
            g = ESTIMATE_GAIN / r_l
            scalable.append(
                (
                    unit * self.flows / r_l * self.coupling * w_l / (2 * r_l) * g,
                    1 / (w_l * r_l),
                    g,
                    1 / r_c,
                    r_l if self.apart else r_l + age_s,
                )
            )
        k_l, a_l, g_l, h, delay_s = (gain.column(one) for one in zip(*scalable, strict=True))
        k_c, delay_c_s = (gain.column(one) for one in zip(*classic, strict=True))
        beside = Terms(k_l, gain.apart((h, a_l, g_l)), delay_s, 0.0, built.interval_s)
        return replace(built, gain=k_c, delay_s=delay_c_s, beside=beside)

    def loop(self, cell: Cell) -> Loop:
        return (DelayLoop if self.flows else Loop)(*cell, self.terms([cell]))

    def at(self, flows: float, propagation_s: float) -> Loop | None:
        """The loop where the flows settle; None where they do not."""
        cell = self.operate(flows, propagation_s)
        return None if cell is None else self.loop(cell)
