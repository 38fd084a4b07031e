"""Control theory of a queue: plants, loops, designs of laws, and maps of stability.

A law and the TCP flows that it controls are a feedback loop with a dead time. This room goes from
a link to the margins of that loop:

    Link ──plant_on──▶ Plant ──equilibrium──▶ Loop ──▶ Margins, roots, step response

- `link.Link` is a bottleneck with its flows.
- `plant.Plant` finds the equilibrium of the flows under a law and linearises them there: Reno as
  published (`plant`), with ACK clocking (`ack_clocking`), or with several senders and RTTs
  (`plants`, `senders`).
- `loop.Loop` is the open loop L from signal probability to queue, with delay, sampler and hold
  exact. `frequency_response`, `margins`, `closed_loop_poles` and `delay_system` analyse it.
- `design.design` asks a law's rule for gains (`design_rule`) and corrects them where the loop is
  not robust, that is where the sensitivity peak Ms exceeds 2; `designed_law.Design` is the result.
  `pi_stabilising_set` has the exact set of robust gains of a PI, and `fitted_gains` designs laws
  with `gains = "auto"`.
- `stability_map` decides thousands of operating points at once.
- `expected_queue` and `loop` predict how much the queue moves, and `measured_law` measures
  the linear model of a law written in Python.
- `queue_records` and `queue_estimate` go the other way: from samples of a real queue to the link.

>>> import forebay
>>> link = forebay.Link(rate="15Mbit/s", rtt="200ms", flows=60, packet="500B")
>>> design = forebay.design("pi", link, target="175p")
>>> round(design.margins.gain_db, 1)
6.1

Start reading at `plant.py`, and go on with `loop.py` and `design.py`.
"""

from typing import TYPE_CHECKING

from forebay._base import getter
from forebay._native import LawModel, OperatingPoint

if TYPE_CHECKING:
    from forebay.control.delay_system import DelaySystem
    from forebay.control.loop import Loop
    from forebay.control.margins import Margins
    from forebay.control.plant import PublishedPlant

__all__ = ["DelaySystem", "LawModel", "Loop", "Margins", "OperatingPoint", "PublishedPlant"]

# Loaded when first asked for, as scipy takes a while.
_LATER = {
    "DelaySystem": "delay_system",
    "Loop": "loop",
    "Margins": "margins",
    "PublishedPlant": "plant",
}

__getattr__ = getter(__name__, _LATER)
