"""The runs of the study as one table: a row for each law at each link and sender."""

from __future__ import annotations

import json
from dataclasses import dataclass

import polars as pl

from forebay import _native
from forebay.campaign.study_points import Points
from forebay.experiment import run_rows as rows
from forebay.experiment.steady_state import FULL, MISSED
from forebay.experiment.store import Store

#: The axes of the study: their keys in the scenario, and their columns in the table.
AXES = {
    "bottleneck.rate": "rate_bps",
    "traffic.0.rtt": "rtt_s",
    "traffic.0.flows": "flows",
    "traffic.0.tcp": "tcp",
}
METRICS = ["delay_p95_s", "goodput_bps", "utilisation", "jain", "drop_rate", "queue_mean_pkts"]
#: A law keeps up with a link if its goodput is at least this share of the best law's.
KEEPS_UP = 0.95
#: Delays below this count as equal: a millisecond and a tenth of it make no difference to a user.
LEAST_S = 1e-3


@dataclass(frozen=True)
class Runs:
    """The runs of the study.

    Attributes
    ----------
    table : pl.DataFrame
        A row for each law at each point, with `AXES`, `METRICS` and these columns: goodput
        (relative to the link's rate), kept (relative to the best law's goodput at the point),
        window_pkts (product of rate and round trip per flow), missed (True if the set-point is
        missed on a full link; null for laws that do not steer to one).
    laws : list[str]
        The laws in the order of the scenario.
    points : int
        Number of points.
    failed : dict[str, int]
        Number of failed runs by law.
    cpu_s : float
        Processor time in seconds.
    designed : list[str]
        Laws that are designed for each link.
    per_flow : list[str]
        Laws with a queue for each flow.
    integrating : list[str]
        Laws that steer to a set-point.
    """

    table: pl.DataFrame
    laws: list[str]
    points: int
    failed: dict[str, int]
    cpu_s: float
    designed: list[str]
    per_flow: list[str]
    integrating: list[str]


def read(points: Points, store: Store) -> Runs:
    """Return the runs that are in the store.

    Raises
    ------
    ValueError
        If there are none.
    """
    listed = points.list_runs(store)
    columns = [*rows.KEY, "parameters", "fault", "user_cpu_s", *METRICS]
    stored = store.rows_of(listed["config"], columns).filter(
        (pl.col("link") == 0) & (pl.col("seed") == 1)
    )
    if stored.is_empty():
        raise ValueError(
            f"{points.name}: none of its runs is in the store; forebay study makes them"
        )
    settings = points.settings.rename(AXES)
    joined = listed.join(stored, on="config").join(settings, on="point")
    names = dict(enumerate(points.laws))
    joined = joined.with_columns(
        pl.col("law").replace_strict(names, return_dtype=pl.Enum(points.laws))
    ).sort("point", "law")
    failed = joined.filter(pl.col("fault").is_not_null())
    counts = {str(law): count for law, count in failed.group_by("law").len().iter_rows()}
    plan = points.part([0]).plan
    facts = plan.points[0]
    packet_bytes = facts.traffic[0].packet_bytes
    integrating = [law.label for law in facts.laws if law.integrates]
    good = joined.filter(pl.col("fault").is_null())
    targets = pl.Series(
        [
            _target(parameters, rate, packet_bytes) if law in integrating else None
            for law, parameters, rate in good.select("law", "parameters", "rate_bps").iter_rows()
        ],
        dtype=pl.Float64,
    )
    away = (good["queue_mean_pkts"] / targets - 1).abs() > MISSED
    missed = pl.select(pl.when(targets.is_not_null()).then((good["utilisation"] >= FULL) & away))
    table = good.with_columns(
        (pl.col("goodput_bps") / pl.col("rate_bps")).alias("goodput"),
        (pl.col("goodput_bps") / pl.col("goodput_bps").max().over("point")).alias("kept"),
        (pl.col("rate_bps") * pl.col("rtt_s") / (8 * packet_bytes * pl.col("flows"))).alias(
            "window_pkts"
        ),
        missed.to_series().alias("missed"),
    )
    return Runs(
        table.select(
            "point", "law", *AXES.values(), *METRICS, "goodput", "kept", "window_pkts", "missed"
        ),
        points.laws,
        joined["point"].n_unique(),
        counts,
        float(joined["user_cpu_s"].sum()),
        points.gains.laws,
        [law.label for law in facts.laws if law.per_flow],
        integrating,
    )


def _target(parameters: str, rate_bps: float, packet_bytes: int) -> float | None:
    """Return the set-point in packets; None if the law has none."""
    text = json.loads(parameters).get("target")
    if text is None:
        return None
    return _native.set_point_pkts("target", text, round(rate_bps), packet_bytes)
