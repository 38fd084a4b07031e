"""The fluid model: TCP's windows and the queues as delay-differential equations.

`run` takes a `Model` built here, `scenario` one from a scenario file. `forebay.fluid.packets`
compares the fluid with packets.
"""

from forebay.fluid.engine import Bottleneck, Change, Class, Model
from forebay.fluid.traces import Traces, halving, run, scenario

__all__ = ["Bottleneck", "Change", "Class", "Model", "Traces", "halving", "run", "scenario"]
