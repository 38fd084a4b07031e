"""One scenario, simulated and run with real flows: what `forebay validate` stands on.

`mapping` turns a scenario into links and iperf3 flows, `real` runs them, `comparison` lays both
sides beside each other, and `page` writes them as Markdown.
"""

from forebay.validate.comparison import Comparison, Row, compare
from forebay.validate.mapping import LinkPlan, link_plans
from forebay.validate.real import Attempt, FlowError, run

__all__ = ["Attempt", "Comparison", "FlowError", "LinkPlan", "Row", "compare", "link_plans", "run"]
