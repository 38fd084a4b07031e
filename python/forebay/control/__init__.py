"""The control bench: operating points, loops, margins, exact stability, designs and maps.

`design.design("pi", rate="15Mbit/s", packet="500B", flows=60, rtt="200ms", target="175p")`
designs a law for a link; `Loop` has the frequency response, margins and roots of any law with a
linear model; `DelaySystem` decides the stability of a linear system with a delay.
"""

from typing import TYPE_CHECKING

from forebay._native import LawModel, OperatingPoint

if TYPE_CHECKING:
    from forebay.control.delay import DelaySystem
    from forebay.control.loop import Loop, Margins, Plant

__all__ = ["DelaySystem", "LawModel", "Loop", "Margins", "OperatingPoint", "Plant"]

# Loaded when first asked for, as scipy takes a while.
_LATER = {"DelaySystem": "delay", "Loop": "loop", "Margins": "loop", "Plant": "loop"}


def __getattr__(name: str) -> object:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f"forebay.control.{_LATER[name]}"), name)
    raise AttributeError(f"module 'forebay.control' has no attribute {name!r}")
