"""Forebay: a workbench for active queue management.

`forebay.run("experiment.toml")` runs an experiment and gives a `Result` with its tables, its
figures and its report; `forebay.laws()` lists the laws, `forebay.schema()` gives the JSON
Schema of a scenario. `with forebay.link(...) as net:` puts real traffic behind a law.
`forebay.design` finds gains for a link, `forebay.map` says where a law is stable, `forebay.tune`
searches one law for a range of links, `forebay.fluid` has the fluid model. `forebay.suite` runs
RFC 7928, `forebay.replay` the papers, `forebay.validate` real flows beside simulated ones, and
`forebay.compare` sets two saved results side by side. What most of them return draws itself by
`plot()`, and shows itself in a notebook.
"""

import forebay.base.early_signals  # noqa: F401  # isort: skip

from importlib import import_module
from typing import TYPE_CHECKING

from forebay._native import Packet, Queue, ScenarioError, __version__, laws, queues, schema
from forebay.base.lazy_names import getter

if TYPE_CHECKING:
    from forebay import fluid
    from forebay.comparisons.compare import compare
    from forebay.designs.drawn_design import design
    from forebay.engines.run import Interrupted, RunError, run
    from forebay.links.net import link
    from forebay.mapping.stability_map import map  # noqa: A004
    from forebay.networks.network import Network
    from forebay.replays.replay import replay
    from forebay.results.result import Result
    from forebay.runs.sessions import session
    from forebay.scenarios.python_laws import Controller
    from forebay.studies.api import study
    from forebay.suites.suite import suite
    from forebay.tuning.tuning import tune
    from forebay.validation.validate import validate
__all__ = [
    "Controller",
    "Interrupted",
    "Network",
    "Packet",
    "Queue",
    "Result",
    "RunError",
    "ScenarioError",
    "__version__",
    "compare",
    "design",
    "fluid",
    "laws",
    "link",
    "map",
    "queues",
    "replay",
    "run",
    "schema",
    "session",
    "study",
    "suite",
    "tune",
    "validate",
]

# Loaded when first asked for: numpy, polars and scipy take longer to load than `forebay laws`
# takes to run.
_LATER = {
    "Controller": "scenarios.python_laws",
    "Interrupted": "engines.run",
    "Network": "networks.network",
    "Result": "results.result",
    "RunError": "engines.run",
    "compare": "comparisons.compare",
    "design": "designs.drawn_design",
    "link": "links.net",
    "map": "mapping.stability_map",
    "replay": "replays.replay",
    "run": "engines.run",
    "session": "runs.sessions",
    "study": "studies.api",
    "suite": "suites.suite",
    "tune": "tuning.tuning",
    "validate": "validation.validate",
}

_later = getter(__name__, _LATER)


def __getattr__(name: str) -> object:
    return import_module("forebay.fluid") if name == "fluid" else _later(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "fluid"})
