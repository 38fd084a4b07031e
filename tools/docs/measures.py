"""Writes the page of metrics, measures and tables from their declarations."""

from __future__ import annotations

from forebay import _native
from forebay._base.metrics import COST
from forebay.report.tables import markdown_table
from tools.docs import files


def metrics() -> str:
    """Return the page in Markdown."""
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
        "# Metrics and files of a result\n\n"
        "This page lists every metric of a run, and the columns of every table of a result.\n\n"
        "It is generated from the declarations by `make docs`; the code is `crates/forebay-trace`, and [Extend Forebay](../contribute/extend.md#add-a-metric) has the steps to add a metric.\n\n"
        "## Metrics and measures\n\n"
        "Every run has the metrics.\n"
        "`metrics.json` has them in s, bit/s and shares of 1; `costs.json` has what differs from call to call, such as `user_cpu_s`.\n"
        "`same_run` of `metrics.json` names the laws and points whose seeds all gave the same run, and therefore count as one.\n"
        "A paper's [claims](../howto/replay.md) use metrics and measures over any window.\n\n"
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
## Per-traffic results

If several `[[traffic]]` cross a link, `traffic` of each run in `metrics.json` and of each line of `--json` has these metrics by label.
`traffic.parquet` of a run and of a study has the same:

"""

CLASSES = """
## Classes

Some [queue disciplines](queues.md) distinguish classes of packets.
`dualpi2` has `l4s` and `classic`; `cake` has its tins (`best-effort`, `background`, `video`, `voice`, or `precedence-0` to `precedence-7`); `fq` has `sparse` and `bulk`, by the list from which a packet leaves; `priority` has `high` and `low`.
`classes` of each run in `metrics.json` and of each line of `--json` has for each class:

"""

QACD = '''
## QACD

The quadratic average of control deviation (QACD) is the distance of the queue from its set-point, in packets:

```
QACD = sqrt( Σ (Q_i − Q_ref)² / (N + 1) )
```

Q_i are the N samples of the queue within `measure`, one every `sample`, and Q_ref is the set-point: the scenario's `target`, or else each law's own.
CoDel and other laws that do not control their mean are compared with their target.
QACD includes the error of the mean and the standard deviation: except for the N + 1, its square is the sum of their squares.
A queue that is constantly 30 packets too long, and one that oscillates around the set-point with a standard deviation of 30 packets, both have a QACD of 30.
A law without a set-point, such as `droptail`, has no QACD unless the scenario has a `target`.
The definition is equation (17) of the PI-PD paper ([references](references.md)).

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
squares = ((queue.cast(float) - 40) ** 2).sum()
by_hand = (float(squares) / (len(queue) + 1)) ** 0.5
assert abs(by_hand - result.metrics["qacd_pkts"][0]) < 0.1
```
'''
