"""Senders of TCP as the linear plant sees them: where a window rests, and how it moves there.

`WindowLaw` in crates/forebay-theory/src/window_law.rs has their equations and their sources;
`python/tests/unit/test_sender_models.py` holds them to other calculations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import forebay._native as _native

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Motion:
    """x' = a·x + b·δp(t − R) + e·δR, δW = c·x; a row for each operating point. clocked: 1 where
    packets leave as ACKs come, at W/R + W', 0 where at W/R."""

    a: Floats
    b: Floats
    e: Floats
    c: Floats
    clocked: Floats


@dataclass(frozen=True)
class Sender:
    """A sender in the plant.

    name: in `--tcp`. kind: the sender of scenarios. ecn: what its scenario asks of the link, if it
    lives on marks.
    """

    name: str
    kind: str
    ecn: str | bool = False

    def window(self, p: Floats, rtt_s: Floats) -> Floats:
        """Return the window at equilibrium, in packets."""
        p, rtt_s = np.broadcast_arrays(np.asarray(p, float), rtt_s)
        return _native.windows_pkts(self.name, p.ravel(), rtt_s.ravel()).reshape(p.shape)

    def motion(self, p: Floats, rtt_s: Floats) -> Motion:
        """Return the motion around an equilibrium, for one number or columns of numbers."""
        return Motion(*_native.window_motions(self.name, np.atleast_1d(p), np.atleast_1d(rtt_s)))

    def reduction(self, p: float) -> float:
        """Part of the window that a signal takes, or a round trip with marks: DCTCP's and Prague's
        by their estimate of p (RFC 8257 section 3.3)."""
        if self.ecn:
            return p / 2
        return 0.3 if self.name == "cubic" else 0.5  # RFC 9438 section 4.6, RFC 5681

    def region(self, p: float, rtt_s: float) -> str | None:
        """Return the region of the window law, in words; None if it has only one."""
        if self.name == "prague" and self.motion(np.array(p), np.array(rtt_s)).clocked[0]:
            return (
                "below Prague's reference RTT of 25 ms: its rate rests by p alone, the queue is an "
                "integral, and ACKs are its clock"
            )
        if self.name != "cubic":
            return None
        share = _native.cubic_share(p, rtt_s)
        if share > 0.9:
            return "on the cubic of RFC 9438 section 4.4"
        if share < 0.1:
            return "in the Reno-friendly region (RFC 9438 section 4.3)"
        return f"between RFC 9438's Reno-friendly region and its cubic ({100 * share:.0f} % of it)"


SENDERS = {
    sender.name: sender
    for sender in [
        Sender("reno", "reno"),
        Sender("linux-reno", "linux-reno"),
        Sender("cubic", "linux-cubic"),
        Sender("dctcp", "dctcp", ecn=True),
        Sender("prague", "prague", ecn="l4s"),
    ]
}
