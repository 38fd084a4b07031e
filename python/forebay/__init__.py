"""Forebay: a workbench for active queue management.

`forebay.run("experiment.toml")` runs an experiment and gives a `Result` with its tables, its
figures and its report; `forebay.laws()` lists the laws, `forebay.schema()` gives the JSON
Schema of a scenario. `with forebay.link(...) as net:` puts real traffic behind a law.
`forebay.design` finds gains for a link, `forebay.map` says where a law is stable, `forebay.tune`
searches one law for a range of links, `forebay.fluid` has the fluid model. What they return draws
itself by `plot()`, and shows itself in a notebook.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from forebay._native import Packet, Queue, ScenarioError, __version__, laws, queues, schema
from forebay.lazy import getter

if TYPE_CHECKING:
    from forebay import fluid
    from forebay.control.mapped import map  # noqa: A004
    from forebay.control.notebook import design
    from forebay.link.net import link
    from forebay.report.result import Result
    from forebay.run.api import Interrupted, RunError, run
    from forebay.run.prototypes import Controller
    from forebay.run.sessions import session
    from forebay.study.api import study
    from forebay.tune.api import tune
else:
    # `forebay.run` and its like are functions, and folders have the same names. Python sets an
    # attribute to a folder once, when it is first loaded: so they are loaded here, and their names
    # freed (docs/decisions/006).
    from forebay import link, run, study, tune

    del link, run, study, tune

__all__ = [
    "Controller",
    "Interrupted",
    "Packet",
    "Queue",
    "Result",
    "RunError",
    "ScenarioError",
    "__version__",
    "design",
    "fluid",
    "laws",
    "link",
    "map",
    "queues",
    "run",
    "schema",
    "session",
    "study",
    "tune",
]

# Loaded when first asked for: numpy, polars and scipy take longer to load than `forebay laws`
# takes to run.
_LATER = {
    "Controller": "run.prototypes",
    "Interrupted": "run.api",
    "Result": "report.result",
    "RunError": "run.api",
    "design": "control.notebook",
    "link": "link.net",
    "map": "control.mapped",
    "run": "run.api",
    "session": "run.sessions",
    "study": "study.api",
    "tune": "tune.api",
}

_later = getter(__name__, _LATER)


def __getattr__(name: str) -> object:
    return import_module("forebay.fluid") if name == "fluid" else _later(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "fluid"})
