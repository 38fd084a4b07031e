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

import forebay._base.early_signals  # noqa: F401  # isort: skip

from importlib import import_module
from typing import TYPE_CHECKING

from forebay._base.lazy_names import getter
from forebay._native import Packet, Queue, ScenarioError, __version__, laws, queues, schema

if TYPE_CHECKING:
    from forebay import fluid
    from forebay.campaign.replay import replay
    from forebay.campaign.run_study import study
    from forebay.campaign.suite import suite
    from forebay.comparison.compare import compare
    from forebay.comparison.validate import validate
    from forebay.control.drawn_design import design
    from forebay.control.stability_map import map  # noqa: A004
    from forebay.env.network import Network
    from forebay.env.sessions import session
    from forebay.experiment.result import Result
    from forebay.experiment.run import Interrupted, RunError, run
    from forebay.linux.link_process import link
    from forebay.scenario.python_laws import Controller
    from forebay.tuning.tuning import tune
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
    "Controller": "scenario.python_laws",
    "Interrupted": "experiment.run",
    "Network": "env.network",
    "Result": "experiment.result",
    "RunError": "experiment.run",
    "compare": "comparison.compare",
    "design": "control.drawn_design",
    "link": "linux.link_process",
    "map": "control.stability_map",
    "replay": "campaign.replay",
    "run": "experiment.run",
    "session": "env.sessions",
    "study": "campaign.run_study",
    "suite": "campaign.suite",
    "tune": "tuning.tuning",
    "validate": "comparison.validate",
}

_later = getter(__name__, _LATER)


def __getattr__(name: str) -> object:
    return import_module("forebay.fluid") if name == "fluid" else _later(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "fluid"})
