"""Forebay: a workbench for active queue management.

`forebay.run("experiment.toml")` runs an experiment and gives a `Result` with its tables, its
figures and its report; `forebay.laws()` lists the laws, `forebay.schema()` gives the JSON
Schema of a scenario. `with forebay.link(...) as net:` puts real traffic behind a law.
`forebay.design` finds gains for a link, `forebay.stability_map` says where a law is stable,
`forebay.tune` searches one law for a range of links, `forebay.fluid` has the fluid model.
`forebay.suite` runs RFC 7928, `forebay.replay` the papers, `forebay.validate` compares real flows
with simulated ones, and `forebay.compare` compares two saved results. What most of them return
draws itself by `plot()`, and shows itself in a notebook. Every error is a `ForebayError`.
"""

TYPE_CHECKING = False  # `typing` itself takes longer to load than all of this file

if TYPE_CHECKING:
    from forebay import fluid
    from forebay._base.errors import (
        ForebayError,
        FormatError,
        Interrupted,
        LinkError,
        ParameterError,
        RunError,
        ScenarioError,
        StoreError,
    )
    from forebay._native import Packet, Queue, __version__, laws, queues, schema
    from forebay.campaign.replay import replay
    from forebay.campaign.run_study import study
    from forebay.campaign.suite import suite
    from forebay.comparison.compare import compare
    from forebay.comparison.validate import validate
    from forebay.control.design import design
    from forebay.control.link import Link
    from forebay.control.stability_map import stability_map
    from forebay.env.network import Network, session
    from forebay.experiment.result import Result, run
    from forebay.linux.link_process import link
    from forebay.scenario.python_laws import Controller
    from forebay.tuning.ranges import LinkRange
    from forebay.tuning.tuning import tune

__all__ = [
    "Controller",
    "ForebayError",
    "FormatError",
    "Interrupted",
    "Link",
    "LinkError",
    "LinkRange",
    "Network",
    "Packet",
    "ParameterError",
    "Queue",
    "Result",
    "RunError",
    "ScenarioError",
    "StoreError",
    "__version__",
    "compare",
    "design",
    "fluid",
    "laws",
    "link",
    "queues",
    "replay",
    "run",
    "schema",
    "session",
    "stability_map",
    "study",
    "suite",
    "tune",
    "validate",
]

# Modules of the names, which are loaded when they are first asked for: numpy, polars and scipy take
# longer to load than `forebay laws` takes to run.
_MODULES = {
    "_base.errors": "ForebayError FormatError Interrupted LinkError ParameterError RunError "
    "ScenarioError StoreError",
    "_native": "Packet Queue __version__ laws queues schema",
    "campaign.replay": "replay",
    "campaign.run_study": "study",
    "campaign.suite": "suite",
    "comparison.compare": "compare",
    "comparison.validate": "validate",
    "control.design": "design",
    "control.link": "Link",
    "control.stability_map": "stability_map",
    "env.network": "Network session",
    "experiment.result": "Result run",
    "linux.link_process": "link",
    "scenario.python_laws": "Controller",
    "tuning.ranges": "LinkRange",
    "tuning.tuning": "tune",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "fluid":
        return import_module("forebay.fluid")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'forebay' has no attribute {name!r}")
    return getattr(import_module(f"forebay.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
