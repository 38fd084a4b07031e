"""The plant that a link's flows are: Reno's as published, classic and L4S flows, or a mix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay.control.classes import Coupled
from forebay.control.link import Link
from forebay.control.mix import Mix


def on(link: Link, law: str, params: Sequence[tuple[str, Any]]) -> Coupled | Mix:
    """A law among the link's flows. Raises `ScenarioError` for a parameter that is wrong, and for
    flows that the law does not suit."""
    return Mix.on(link, law, params) if link.groups else Coupled.on(link, law, params)
