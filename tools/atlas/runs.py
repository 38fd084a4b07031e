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

#: The axes of the study: what its scenario calls them, and what they are called here.
AXES = {
    "bottleneck.rate": "rate_bps",
    "traffic.0.rtt": "rtt_s",
    "traffic.0.flows": "flows",
    "traffic.0.tcp": "tcp",
}
METRICS = ["delay_p95_s", "goodput_bps", "utilisation", "jain", "drop_rate", "queue_mean_pkts"]
#: A law keeps up with the link where its goodput is at least this share of the best law's there.
KEEPS_UP = 0.95
#: Delays below this are alike: who waits a millisecond and who waits a tenth of it.
LEAST_S = 1e-3


@dataclass(frozen=True)
class Runs:
    """table: a row for each law at each point, with `AXES`, `METRICS` and

    goodput: as a share of the link's rate; kept: as a share of the best law's at the point;
    window_pkts: product of rate and round trip per flow; missed: whether the law's set-point is
    missed on a full link, null for laws without an integral of the distance to one.

    laws: in the order of the scenario. failed: reasons of failed runs by law.
    """

    table: pl.DataFrame
    laws: list[str]
    points: int
    failed: dict[str, int]
    cpu_s: float
    #: laws that are designed for each link, and laws with a queue for each flow
    designed: list[str]
    per_flow: list[str]
    #: laws that integrate the distance to a set-point
    integrating: list[str]


def read(points: Points, store: Store) -> Runs:
    """Return the runs that are in the store. Raises `ValueError` if there are none."""
    listed = points.list_runs(store)
    wanted = [*rows.KEY, "parameters", "fault", "user_cpu_s", *METRICS]
    stored = store.rows_of(listed["config"], wanted).filter(
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
    """The set-point in packets."""
    text = json.loads(parameters).get("target")
    if text is None:
        return None
    return _native.set_point_pkts("target", text, round(rate_bps), packet_bytes)
