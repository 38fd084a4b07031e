"""The fluid model: TCP's windows and the queues as delay-differential equations.

`run` takes a `Model` built here, `scenario` one from a scenario file. `forebay.fluid.packets` lays
the fluid beside the packets.
"""

from forebay.fluid.api import halving, run, scenario
from forebay.fluid.model import Bottleneck, Change, Class, Model
from forebay.fluid.traces import Traces

__all__ = ["Bottleneck", "Change", "Class", "Model", "Traces", "halving", "run", "scenario"]
