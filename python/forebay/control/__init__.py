"""Control theory of a queue: plants, loops, and designs of laws.

`design.design("pi", rate="15Mbit/s", packet="500B", flows=60, rtt="200ms")` designs a law
for a link; `Loop` has the frequency response, margins and roots of any law with a linear model;
`DelaySystem` decides the stability of a linear system with a delay.
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
