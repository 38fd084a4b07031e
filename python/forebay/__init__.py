"""Forebay: a workbench for active queue management.

`forebay.run("experiment.toml")` runs an experiment and gives a `Result` with its tables, its
figures and its report; `forebay.laws()` lists the laws, `forebay.schema()` gives the JSON
Schema of a scenario. `with forebay.link(...) as net:` puts real traffic behind a law.
"""

from typing import TYPE_CHECKING

from forebay._native import Queue, ScenarioError, __version__, laws, schema
from forebay.prototypes import Controller

if TYPE_CHECKING:
    from forebay.api import Interrupted, RunError, run
    from forebay.emulator import link
    from forebay.result import Result

__all__ = [
    "Controller",
    "Interrupted",
    "Queue",
    "Result",
    "RunError",
    "ScenarioError",
    "__version__",
    "laws",
    "link",
    "run",
    "schema",
]

# Loaded when first asked for: numpy, polars and scipy take longer to load than `forebay laws`
# takes to run.
_LATER = {
    "run": "api",
    "RunError": "api",
    "Interrupted": "api",
    "Result": "result",
    "link": "emulator",
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f"forebay.{_LATER[name]}"), name)
    raise AttributeError(f"module 'forebay' has no attribute {name!r}")
