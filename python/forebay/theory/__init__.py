"""Control theory of a queue: plants, loops, and designs of laws.

`design.design.design("pi", rate="15Mbit/s", packet="500B", flows=60, rtt="200ms")` designs a law
for a link; `Loop` has the frequency response, margins and roots of any law with a linear model;
`DelaySystem` decides the stability of a linear system with a delay.
"""

from typing import TYPE_CHECKING

from forebay._native import LawModel, OperatingPoint
from forebay.base.lazy_names import getter

if TYPE_CHECKING:
    from forebay.theory.loop.delay_system import DelaySystem
    from forebay.theory.loop.loop import Loop
    from forebay.theory.loop.margins import Margins
    from forebay.theory.plant.published import PublishedPlant

__all__ = ["DelaySystem", "LawModel", "Loop", "Margins", "OperatingPoint", "PublishedPlant"]

# Loaded when first asked for, as scipy takes a while.
_LATER = {
    "DelaySystem": "loop.delay_system",
    "Loop": "loop.loop",
    "Margins": "loop.margins",
    "PublishedPlant": "plant.published",
}

__getattr__ = getter(__name__, _LATER)
