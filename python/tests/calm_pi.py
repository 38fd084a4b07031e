"""The PI that tests of `forebay.tuning` compare with packets."""

from __future__ import annotations

from forebay.tuning import search
from forebay.tuning.candidates import LocalModel
from forebay.tuning.ranges import LinkRange
from forebay.tuning.search import Region


def fastest_calm_pi(
    ranges: LinkRange, target_pkts: float, interval_s: float
) -> tuple[Region, dict[str, float], LocalModel]:
    """The calm gains of ranges with one condition that reject disturbances best: their region,
    themselves, and their loop there."""
    region = search.region_of("pi", ranges)
    assert region is not None
    point = region.fastest(target_pkts, interval_s)
    assert point is not None
    (local,) = region.local(point, ranges, ranges.conditions)
    assert local is not None
    return region, point, local
