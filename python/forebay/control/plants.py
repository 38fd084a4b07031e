"""The plant that a link's flows are: Reno's as published, classic and L4S flows, or a mix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay._native import ScenarioError
from forebay.control.ack_clocking import AckClockedPlant
from forebay.control.coupled_classes import CoupledPlant
from forebay.control.loaded_link import LoadedLink
from forebay.control.mixed_senders import MixedPlant
from forebay.control.plant import Plant
from forebay.control.published_plant import PublishedPlant

#: How flows are described: by the published plant, or by that of `ack_clocking`.
WINDOWS = ("published", "sawtooth")


def plant_on(
    link: LoadedLink, law: str, params: Sequence[tuple[str, Any]], windows: str = WINDOWS[0]
) -> Plant:
    """A law among the link's flows, with one of `WINDOWS`. Raises `ScenarioError` for a parameter
    that is wrong, and for flows that the law or the windows do not suit."""
    if windows not in WINDOWS:
        raise ScenarioError(f'--windows: found "{windows}", allowed: {", ".join(WINDOWS)}')
    other = "--tcp, or with several RTTs" if link.groups else ""
    other = "--l4s-flows" if link.l4s_flows else other
    if windows != WINDOWS[0]:
        if other:
            raise ScenarioError(f'--windows: found "{windows}" with {other}, allowed: {WINDOWS[0]}')
        return AckClockedPlant(link.model(law, params))
    if link.groups:
        return MixedPlant.on_link(link, law, params)
    if link.l4s_flows:
        return CoupledPlant.on_link(link, law, params)
    return PublishedPlant(link.model(law, params))
