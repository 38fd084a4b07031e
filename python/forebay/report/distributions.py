"""Figures of shares: how long packets waited, by law and by class, and how long transfers took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from forebay.report import style
from forebay.report.sheet import Curve, Floats, Panel, Scale, Sheet

if TYPE_CHECKING:
    from forebay._native import ClassObserved, Observed
    from forebay.experiment.result import Result

#: Of a logarithmic axis; a wait that is shorter is none to a reader.
LEAST_MS = 0.01
#: Share of packets, in %, below which a curve is not shown.
LEAST_PERCENT = 0.01


def delay(result: Result, point: int, link: int) -> Sheet:
    """Share of packets that waited longer than a given time, one curve per law."""
    curves = []
    for index, law in result.laws(point):
        delay_ms, longer = waited_longer(result.observed_at(point, index, link), 1e-5)
        if len(delay_ms):
            # Before the shortest wait, every packet waited longer.
            x, y = np.concatenate([[0.0], delay_ms]), np.concatenate([[1.0], longer])
            tags = {"law": law.label}
            curves.append(Curve(law.label, tags, index, x, 100 * y, width=1.5))
    return Sheet(
        f"delay-{link}",
        Scale("Queuing delay", "ms", zero=True),
        Scale("Packets that waited longer", "%", log=True, least=LEAST_PERCENT),
        [Panel("", curves)],
        step=True,
    )


def classes(result: Result, point: int, link: int) -> Sheet:
    """Share of the packets of a class that waited no longer, a panel per law that has classes."""
    panels = []
    for index, law in result.laws(point):
        series = []
        for i, name in enumerate(result.class_names(point, index, link)):
            observed = result.observed_at(point, index, link)
            mine = [
                packet_class
                for observation in observed
                for packet_class in observation.classes
                if packet_class.name == name
            ]
            delay_ms, shorter = waited_no_longer(mine)
            look = style.of_traffic(i)
            series.append(Curve(name, {"class": name}, look, delay_ms, 100 * shorter, width=1.5))
        if series:
            panels.append(Panel(law.label, series))
    return Sheet(
        f"classes-{link}",
        Scale("Queuing delay", "ms", log=True, least=LEAST_MS, note=", logarithmic"),
        Scale("Packets that waited no longer", "%", range=(0.0, 102.0)),
        panels,
        step=True,
    )


def completions(result: Result, point: int, link: int) -> Sheet:
    """Share of transfers that took no longer, a panel per traffic, a curve per law."""
    info = result.plan.points[point]
    panels = []
    for kind in with_transfers(result, point, link):
        series = []
        for index, law in result.laws(point):
            took = took_s(result, point, index, link, kind)
            if len(took):
                share = 100 * np.arange(len(took) + 1) / len(took)
                x, tags = np.concatenate([took[:1], took]), {"law": law.label}
                series.append(Curve(law.label, tags, index, x, share))
        panels.append(Panel(info.traffic[kind].label, series))
    return Sheet(
        f"completion-{link}",
        Scale("Completion time", "s", log=True, note=", logarithmic"),
        Scale("Transfers that took no longer", "%", range=(0.0, 102.0)),
        panels,
        step=True,
    )


def shows_classes(result: Result, point: int, link: int) -> bool:
    """Whether any law's queue told classes of packets apart there."""
    return any(result.class_names(point, law, link) for law, _ in result.laws(point))


def shows_completions(result: Result, point: int, link: int) -> bool:
    """Whether any transfer was done there."""
    return bool(with_transfers(result, point, link))


def waited_longer(observed: Sequence[Observed], least: float) -> tuple[Floats, Floats]:
    """Delays in ms, and the share of packets that waited longer, where it is above `least`.

    Empty without packets.
    """
    delay_ms, share = _cumulated(observed)
    if not len(share) or share[-1] == 0:
        return delay_ms[:0], share[:0]
    # The last bin's share is zero; a logarithmic axis cannot show it.
    longer = 1 - share / share[-1]
    return delay_ms[longer > least], longer[longer > least]


def waited_no_longer(observed: Sequence[ClassObserved]) -> tuple[Floats, Floats]:
    """Delays in ms, at least `LEAST_MS`, and the share of packets that waited no longer."""
    delay_ms, count = _cumulated(observed)
    # The curve begins on the axis, at a class's least delay.
    delay_ms = np.maximum(delay_ms, LEAST_MS)
    share = count / max(1.0, count[-1]) if len(count) else count
    return np.concatenate([delay_ms[:1], delay_ms]), np.concatenate([[0.0], share])


def with_transfers(result: Result, point: int, link: int) -> list[int]:
    """Traffic of which any run has seen a transfer done."""
    seen = [
        one.transfer_traffic
        for law, _ in result.laws(point)
        for one in result.observed_at(point, law, link)
    ]
    return [int(kind) for kind in np.unique(np.concatenate(seen))] if seen else []


def took_s(result: Result, point: int, law: int, link: int, kind: int) -> Floats:
    """Times that the transfers of one traffic took under a law, sorted."""
    seen = result.observed_at(point, law, link)
    return np.sort(np.concatenate([one.transfer_s[one.transfer_traffic == kind] for one in seen]))


def _cumulated(observed: Sequence[Observed] | Sequence[ClassObserved]) -> tuple[Floats, Floats]:
    """Delays in ms, sorted, and how many packets waited no longer."""
    delay_ms = 1e3 * np.concatenate([one.delay_s for one in observed])
    packets = np.concatenate([one.delay_packets for one in observed]).astype(float)
    order = np.argsort(delay_ms, kind="stable")
    return delay_ms[order], np.cumsum(packets[order])
