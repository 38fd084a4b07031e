"""The fluid model: windows of TCP and queues as delay-differential equations.

The equations are those of Misra, Gong and Towsley (2000), or of another sender. The law in them is
the same object that the packet simulator runs, so a law needs no second description.

- `engine` has the parts of a model (`Bottleneck`, `Class`, `Change`, `Model`) and `Fluid`, the
  engine that runs scenarios.
- `traces` runs models. `run` returns a `FluidTrace` of a `Model`, `scenario` the `Traces` of a
  scenario file, and `halving` measures the error of the integration.
- `packets` runs a scenario both as packets and as a fluid, and compares means and step responses.

>>> from forebay.fluid import Bottleneck, Class, Model, run
>>> model = Model([Bottleneck("pi", "30Mbit/s", buffer_pkts=1000)], [Class(60, "100ms")])
>>> trace = run(model)
>>> round(trace.queue_pkts[0, -1])
200

The model has neither timeouts nor slow start, and its flows live as long as the run. Start reading
at `engine`.
"""

from forebay.fluid.engine import Bottleneck, Change, Class, Model
from forebay.fluid.traces import Traces, halving, run, scenario

__all__ = ["Bottleneck", "Change", "Class", "Model", "Traces", "halving", "run", "scenario"]
