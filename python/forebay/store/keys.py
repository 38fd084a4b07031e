"""What a run is: a digest of all that its numbers depend on beside its seed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay._native import Plan

#: Bytes of a digest: among a million runs two are alike once in 10^26 stores.
DIGEST_BYTES = 16


def configs(plan: Plan, point: int) -> list[str | None]:
    """For each law, the digest of the point under it: link, traffic and law with every default.

    How the file is spelled, its prose and its other points are not in it. None for a prototype in
    Python: what its code does no text says, so its runs are not stored.
    """
    scenario, laws = plan.resolved(point)
    return [None if law is None else _digest(scenario, law) for law in laws]


def _digest(*texts: str) -> str:
    hash_ = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for text in texts:
        data = text.encode()
        hash_.update(len(data).to_bytes(8, "big") + data)
    return hash_.hexdigest()
