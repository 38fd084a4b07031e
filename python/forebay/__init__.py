"""Forebay: a workbench for active queue management (AQM).

A law of active queue management can be simulated, analysed, tuned and run on real traffic:

- `run` executes an experiment, `study` a parameter study, `suite` the scenarios of RFC 7928, and
  `replay` the experiments of published papers.
- `design` computes a law's gains for a `Link`, `stability_map` shows where the law is stable, and
  `tune` recommends one law for a `LinkRange`. `fluid` is the fluid model of TCP.
- `compare` compares two saved results, and `validate` compares engines, for example simulated with
  real flows.
- `link` puts real traffic behind a law; `Network` and `session` drive a simulated network from
  another program.
- `Controller` is the base of laws written in Python, which see a `Queue` and `Packet`s. `laws`,
  `queues` and `schema` list what a scenario can name.

A quantity is a text with its unit (`"40ms"`) or a number in the base unit (`0.04`). `overrides`,
`laws`, `seeds`, `engine`, `store` and `threads` mean the same in every function. Results have the
methods `to_dict`, `frame`, `plot` and `report`, print as a short text, and show a table and a
figure in a notebook. Every error is a `ForebayError`.

>>> import forebay as fb
>>> link = fb.Link(rate="50Mbit/s", rtt="40ms", flows=30, buffer="100ms", senders="cubic")
>>> design = fb.design("pi", link, target="20ms")
>>> result = fb.run("scenario.toml", laws=["pi", "codel"], seeds=5)  # doctest: +SKIP
>>> result.cell(law="pi", metric="delay_p95_s").mean  # doctest: +SKIP

Importing this module has no side effects: each name loads its module when it is first used.
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

# The module of each name. It is loaded when the name is first used, since numpy, polars and scipy
# take longer to load than `forebay laws` takes to run.
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
