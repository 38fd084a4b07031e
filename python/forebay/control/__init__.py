"""The control bench: operating points, loops, margins, exact stability, designs and maps.

`design.design("pi", rate="15Mbit/s", packet="500B", flows=60, rtt="200ms", target="175p")`
designs a law for a link; `Loop` has the frequency response, margins and roots of any law with a
linear model; `DelaySystem` decides the stability of a linear system with a delay.
"""

from typing import TYPE_CHECKING

from forebay._native import LawModel, OperatingPoint
from forebay.lazy import getter

if TYPE_CHECKING:
    from forebay.control.delay import DelaySystem
    from forebay.control.loop import Loop
    from forebay.control.margins import Margins

__all__ = ["DelaySystem", "LawModel", "Loop", "Margins", "OperatingPoint"]

# Loaded when first asked for, as scipy takes a while.
_LATER = {"DelaySystem": "delay", "Loop": "loop", "Margins": "margins"}

__getattr__ = getter(__name__, _LATER)
