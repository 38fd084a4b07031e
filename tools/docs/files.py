"""The rows and columns of every Parquet file of a result, for the page of metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.report.tables import markdown_table

#: The name, the unit and the meaning of a column.
Column = tuple[str, str, str]


@dataclass(frozen=True)
class File:
    """A table of a result.

    Attributes
    ----------
    name : str
        Name of the file without its suffix.
    row : str
        The meaning of a row.
    columns : Sequence[Column]
        The columns.
    more : str, default ''
        Further columns, in words.
    """

    name: str
    row: str
    columns: Sequence[Column]
    more: str = ""


TRAFFIC: Column = ("traffic", "", "index of the `[[traffic]]`, from 0")
CLASS: Column = ("class", "", "name of the class")
DELAYS: list[Column] = [
    ("delay_s", "s", "upper end of the bin"),
    ("packets", "packets", "number of packets with such a delay, within `measure`"),
]

#: Columns of each file of `forebay run` and `forebay link`.
KEYS: list[Column] = [
    ("law", "", "label of the law"),
    ("point", "", "label of the point of the sweep; empty without a sweep"),
    ("seed", "", "seed of the run"),
    ("link", "", "name of the link"),
]

#: Inner values that laws and queues report. Each law has some of them.
REPORTED: list[Column] = [
    ("p", "1", "probability to signal a packet"),
    (
        "in_flight_pkts",
        "packets",
        "with `windows = true`: of a mean flow of `ftp`, at the bottleneck",
    ),
    ("p_root", "1", "`pi2`, `dualpi2`: its root, which the controller moves"),
    ("p_coupled", "1", "`dualpi2`: the coupled probability of the L4S queue"),
    ("average", "packets", "RED's kind: average queue"),
    ("max_p", "1", "RED's kind: probability at `max_th`"),
    ("capacity_pkts_per_s", "packets/s", "`stpi`, `stred`: estimate of the link's rate"),
    (
        "load",
        "1",
        "`stpi`, `stred`: estimate of N/(RC): flows, of the packets that they have under way",
    ),
    ("flows", "flows", "`stpi`, `stred`: estimate of the number of flows"),
    ("price", "1", "`rem`: the price"),
    ("virtual_queue_bytes", "bytes", "`avq`, `e-avq`: backlog of the virtual queue"),
    ("virtual_capacity_bps", "bit/s", "`avq`, `e-avq`: rate of the virtual queue"),
    ("arrival_bps", "bit/s", "`e-avq`: rate of arrivals"),
    ("gain", "1", "`e-avq`: gain of its neuron"),
    ("w_1", "1", "`e-avq`: weight of the error"),
    ("w_2", "1", "`e-avq`: weight of its change"),
    ("w_3", "1", "`e-avq`: weight of the change's change"),
    ("delay", "s", "`codel`, `pie`: the law's own reading of the queuing delay"),
    ("count", "packets", "`codel`, `cobalt`: signals since it began to signal"),
    ("signalling", "0 or 1", "`codel`, `cobalt`: whether it signals"),
    ("busy_queues", "queues", "`fq`: queues with packets"),
    ("new_queues", "queues", "`fq`: queues in the list of new ones"),
    ("low_packets", "packets", "`dualpi2`: backlog of the L4S queue"),
    ("sparse_queues", "queues", "`cake`: flows that are sparse"),
    ("bulk_queues", "queues", "`cake`: flows that are bulk"),
]

SAMPLES: list[Column] = [
    ("time_s", "s", "end of the interval of `sample`"),
    ("queue_pkts", "packets", "backlog at that time"),
    ("queue_bytes", "bytes", "backlog at that time"),
    ("arrivals", "packets", "arrivals in the interval, including dropped packets"),
    ("early_drops", "packets", "dropped as a signal of the law"),
    ("forced_drops", "packets", "dropped outright by the law or the queue"),
    ("overflow_drops", "packets", "dropped because the buffer was full"),
    ("marks", "packets", "CE-marked"),
    ("departed_bytes", "bytes", "bytes that left in the interval"),
    ("capacity_bits", "bit", "that the link could have carried in the interval"),
]

#: Files of `forebay run` and `forebay link`.
FILES = [
    File(
        "metrics",
        "a run and link",
        [
            ("parameters", "", "parameters of the law at this point, as JSON"),
            ("engine", "", "engine of the run, such as packets; link for `forebay link`"),
        ],
        "a column for each key of the sweep, and each metric",
    ),
    File(
        "samples",
        "an interval of `sample`, at a link",
        SAMPLES,
        "the inner values that the law and its queue report, below",
    ),
    File("delays", "a bin of the queuing delay, at a link", DELAYS),
    File(
        "flows",
        "a flow, at a link that it crosses",
        [
            TRAFFIC,
            ("flow", "", "number of the flow within its traffic, counted from 0"),
            ("rtt_s", "s", "propagation of the flow both ways; null for packets from a file"),
            ("goodput_bps", "bit/s", "in-order data of the flow, within `measure`"),
        ],
    ),
    File("classes", "a class of a queue", [CLASS], "each metric of a class, above"),
    File(
        "traffic",
        "a traffic, at a link that several cross",
        [TRAFFIC, ("label", "", "label of the traffic")],
        "each metric of a traffic, above",
    ),
    File("class_delays", "a class and a bin of its queuing delay", [CLASS, *DELAYS]),
    File(
        "transfers",
        "a transfer that was completed within `measure`",
        [
            TRAFFIC,
            ("packets", "packets", "size of the transfer"),
            ("took_s", "s", "time from the SYN to the last ACK"),
        ],
    ),
    File(
        "goodput",
        "an interval, and a flow or a quantile over flows",
        [
            ("time_s", "s", "end of the interval"),
            TRAFFIC,
            (
                "flow",
                "",
                "index of the flow, counted from 0, in traffic of up to 20 flows; otherwise null",
            ),
            (
                "quantile",
                "1",
                "share of the flows with less goodput, in larger traffic; otherwise null",
            ),
            ("goodput_bps", "bit/s", "in-order data in the interval"),
        ],
    ),
]

#: Files of `forebay validate`.
VALIDATE = [
    File(
        "metrics",
        "a run",
        [
            ("scenario", "", "file of the scenario"),
            ("side", "", "`simulated` or `real`"),
            *KEYS[:3],
            ("void", "", "True if the machine was late, so the run does not count"),
        ],
        "each metric, and `short_goodput_bps`, the goodput of the short transfers, in bit/s",
    ),
    File(
        "delays",
        "a run and a bin of its queuing delay",
        [
            ("scenario", "", "file of the scenario"),
            ("side", "", "`simulated` or `real`"),
            *KEYS[:2],
            ("run", "", "number of the run, from 1"),
            *DELAYS,
        ],
    ),
]

#: The file of `forebay map`.
MAP = File(
    "map",
    "a cell of the map",
    [
        ("flows", "flows", "number of flows"),
        ("rtt_s", "s", "RTT; if `--rate` is a range, `rate_bps` in bit/s instead"),
        ("gain_margin_db", "dB", "gain margin; null if there is no equilibrium"),
        ("stable", "", "True if the loop is stable; null if there is no equilibrium"),
        ("rest", "", "kind of equilibrium, such as linear, empty or full"),
    ],
)


def sections() -> str:
    """Return the sections of the page of metrics that describe files."""
    return HEAD.format(keys=_columns(KEYS)) + "\n".join(
        [
            *(_section(file) for file in FILES),
            "### Inner values of laws\n\nColumns of `samples.parquet`; null under a law that has no "
            f"such value.\n\n{_columns(REPORTED)}",
            DIFFERENCES,
            VALIDATE_HEAD,
            *(_section(file, " of `forebay validate`") for file in VALIDATE),
            _section(MAP, " of `forebay map`"),
        ]
    )


def _section(file: File, of: str = "") -> str:
    """Return the section of a file; `of` names its command if several have such a file."""
    more = f"\nIt {'also ' if file.columns else ''}has {file.more}.\n" if file.more else ""
    columns = f"\n{_columns(file.columns)}" if file.columns else ""
    return f"### `{file.name}.parquet`{of}\n\nA row for {file.row}.\n{columns}{more}"


def _columns(columns: Sequence[Column]) -> str:
    """Return a table of columns."""
    rows = ([f"`{name}`", unit, meaning] for name, unit, meaning in columns)
    return markdown_table(["column", "unit", "meaning"], rows)


HEAD = """
## Tables

`forebay run` and `forebay link` write these Parquet files to the folder of `--out`.
Numbers are in the unit of their column: shares of 1, not percent.
`classes`, `class_delays`, `traffic`, `transfers` and `goodput` are written if they have rows.
In each file, a row begins with

{keys}
"""

DIFFERENCES = """\
### `differences.csv` and `differences.tex`

If two laws have two seeds in common, a run and a study have the difference of every pair of laws in each metric that the table shows: as rows of `differences.csv`, and in `differences.tex` as a LaTeX table with booktabs.
`first` and `second` are the laws, and `difference` is the mean of the first minus that of the second over the `seeds` that both have.
`ci95` is half its 95 % confidence interval, and `p` is that of a paired t-test.
p values are adjusted by Holm's method for the number of tests of the same metric.
`beyond_chance` is true if p is below 0.05; these rows come first.
If all seeds give the same difference to the bit, there is no interval and no test, and these three are empty.
`point` is the label of the point, or "all points" for the means over all of them.
"""

VALIDATE_HEAD = """\
### Files of other commands

These files do not begin with the columns above.
"""
