"""Forebay: a workbench for active queue management.

`forebay.run("experiment.toml")` runs an experiment and gives a `Result` with its tables, its
figures and its report; `forebay.laws()` lists the laws, `forebay.schema()` gives the JSON
Schema of a scenario. `with forebay.link(...) as net:` puts real traffic behind a law.
"""

from typing import TYPE_CHECKING

from forebay._native import Queue, ScenarioError, __version__, laws, queues, schema
from forebay.lazy import getter
from forebay.run.prototypes import Controller

if TYPE_CHECKING:
    from forebay.link.net import link
    from forebay.report.result import Result
    from forebay.run.api import Interrupted, RunError, run
    from forebay.study.api import study
else:
    # `forebay.run`, `forebay.link` and `forebay.study` are functions, and folders have the same
    # names. Python sets an attribute to a folder once, when it is first loaded: so they are loaded
    # here, and their names freed (docs/decisions/006).
    from forebay import link, run, study

    del link, run, study

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
    "queues",
    "run",
    "schema",
    "study",
]

# Loaded when first asked for: numpy, polars and scipy take longer to load than `forebay laws`
# takes to run.
_LATER = {
    "Interrupted": "run.api",
    "Result": "report.result",
    "RunError": "run.api",
    "link": "link.net",
    "run": "run.api",
    "study": "study.api",
}

__getattr__ = getter(__name__, _LATER)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
