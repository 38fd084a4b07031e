"""The page of metrics, measures and tables."""

from __future__ import annotations

from forebay import _native
from forebay._base.metrics import COST
from forebay.report.tables import markdown_table
from tools.docs import files


def metrics() -> str:
    """Return the page."""
    of_runs = {entry["name"] for entry in _native.metrics()} - {COST}
    rows = [
        [
            f"`{entry['claim']}`",
            f"`{entry['name']}`" if entry["name"] in of_runs else "",
            entry["title"],
            entry["unit"],
            entry["doc"],
        ]
        for entry in _native.measures()
    ]
    head = (
        "# Metrics and measures\n\n"
        "Written from the declarations by `make docs`. The code is `crates/forebay-trace`;\n"
        "[extend.md](../contribute/extend.md#add-a-metric) tells how to add to it.\n\n"
        "Every run has the metrics, in `metrics.json` in s, bit/s and shares of 1; `costs.json`\n"
        "has what differs from call to call, as `user_cpu_s`. `same_run` of `metrics.json` names\n"
        "the laws and points whose seeds all gave the same run: together they are the evidence of\n"
        "one. A paper's [claims](../howto/replay.md) take metrics and measures over any window.\n\n"
    )
    classes = [
        [f"`{entry['name']}`", entry["title"], entry["unit"], entry["doc"]]
        for entry in _native.class_metrics()
    ]
    traffic = [
        [f"`{entry['name']}`", entry["title"], entry["unit"], entry["doc"]]
        for entry in _native.traffic_metrics()
    ]
    return (
        head
        + markdown_table(["in claims", "in metrics.json", "title", "unit", "meaning"], rows)
        + QACD
        + CLASSES
        + markdown_table(["in metrics.json", "title", "unit", "meaning"], classes)
        + TRAFFIC
        + markdown_table(["in metrics.json", "title", "unit", "meaning"], traffic)
        + files.sections()
    )


TRAFFIC = """
## Traffic

Where several `[[traffic]]` cross a link, a run in `metrics.json` and a line of `--json` say under
`traffic`, by their labels, who gets what; `traffic.parquet` of a run and of a study has the same:

"""

CLASSES = """
## Classes

Some [queues](queues.md) tell classes of packets apart: `dualpi2` has `l4s` and `classic`, `cake`
its tins (`best-effort`, `background`, `video`, `voice`, or `precedence-0` to `precedence-7`), `fq`
has `sparse` and `bulk`, by the list from which a packet leaves, and `priority` has `high` and
`low`. For each class, a run in `metrics.json` and a line of `--json` have under `classes`:

"""

QACD = '''
## QACD

The quadratic average of control deviation says how far the queue is from its set-point, in packets:

```
QACD = sqrt( Σ (Q_i − Q_ref)² / (N + 1) )
```

Q_i are the N samples of the queue within `measure`, one every `sample`, and Q_ref is the
set-point: the scenario's `target`, or else each law's own. CoDel and other laws that do not steer
their mean to a set-point are measured against their target.
QACD counts both ways to miss. But for the N + 1, its square is the square of the mean distance
plus the square of the deviation: a queue that rests 30 packets too high and one that swings
around the set-point with a deviation of 30 both have 30. Less is better, and 0 is a queue that
stands still at its set-point. A law without a set-point, such as `droptail`, has none unless the
scenario has a `target`. The definition is eq. (17) of PI-PD
([references.md](references.md)).

```python
import forebay

scenario = """
duration = "20s"
[bottleneck]
rate = "10Mbit/s"
buffer = "100p"
[[traffic]]
kind = "ftp"
flows = 10
rtt = "60ms"
[[law]]
kind = "pi"
target = "40p"
"""
result = forebay.run(scenario, seeds=1)
start, end = 10, 20                      # the second half, since `measure` is not given
queue = result.samples.filter(result.samples["time_s"].is_between(start, end))["queue_pkts"]
by_hand = (((queue.cast(float) - 40) ** 2).sum() / (len(queue) + 1)) ** 0.5
assert abs(by_hand - result.metrics["qacd_pkts"][0]) < 0.1
```
'''
