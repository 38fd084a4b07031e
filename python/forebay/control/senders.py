"""Congestion controls of TCP in the linear plant: the window at equilibrium, and its dynamics.

`WindowLaw` in crates/forebay-theory/src/window_law.rs has the equations and their sources;
`python/tests/simulation/test_sender_models.py` compares them with independent calculations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import forebay._native as _native

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Motion:
    """The linearised window: x' = a·x + b·δp(t − R) + e·δR, δW = c·x.

    Attributes
    ----------
    a, b, e, c : array
        Coefficients, with a row for each operating point.
    clocked : array
        1 where ACKs clock the packets, so the rate is W/R + W'; 0 where it is W/R.
    """

    a: Floats
    b: Floats
    e: Floats
    c: Floats
    clocked: Floats


@dataclass(frozen=True)
class Sender:
    """A congestion control.

    Attributes
    ----------
    name : str
        Name in `forebay.Link(senders=…)` and in ``--tcp``.
    kind : str
        Name in scenarios.
    ecn : str or bool
        The value of ``ecn`` that its scenario needs, if marks control it.
    """

    name: str
    kind: str
    ecn: str | bool = False

    def window(self, p: Floats, rtt_s: Floats) -> Floats:
        """Return the window at equilibrium, in packets.

        Parameters
        ----------
        p : array
            Signal probability.
        rtt_s : array
            Round-trip time with queueing, in seconds.
        """
        p, rtt_s = np.broadcast_arrays(np.asarray(p, float), rtt_s)
        return _native.windows_pkts(self.name, p.ravel(), rtt_s.ravel()).reshape(p.shape)

    def motion(self, p: Floats, rtt_s: Floats) -> Motion:
        """Return the linearised window around equilibria.

        Parameters
        ----------
        p : array
            Signal probability.
        rtt_s : array
            Round-trip time with queueing, in seconds.
        """
        return Motion(*_native.window_motions(self.name, np.atleast_1d(p), np.atleast_1d(rtt_s)))

    def reduction(self, p: float) -> float:
        """Return the fraction of the window that a signal, or a round trip with marks, takes away.

        DCTCP and Prague reduce by their estimate of p (RFC 8257 section 3.3).
        """
        if self.ecn:
            return p / 2
        return 0.3 if self.name == "cubic" else 0.5  # RFC 9438 section 4.6, RFC 5681

    def region(self, p: float, rtt_s: float) -> str | None:
        """Return the region of the window law, in words; None if it has one region.

        Parameters
        ----------
        p : float
            Signal probability.
        rtt_s : float
            Round-trip time with queueing, in seconds.
        """
        if self.name == "prague" and self.motion(np.array(p), np.array(rtt_s)).clocked[0]:
            return (
                "below Prague's reference RTT of 25 ms: its rate depends on p alone, the queue "
                "integrates the rate, and ACKs clock the packets"
            )
        if self.name != "cubic":
            return None
        fraction = _native.cubic_share(p, rtt_s)
        if fraction > 0.9:
            return "on the cubic of RFC 9438 section 4.4"
        if fraction < 0.1:
            return "in the Reno-friendly region (RFC 9438 section 4.3)"
        return (
            f"between RFC 9438's Reno-friendly region and its cubic ({100 * fraction:.0f} % of it)"
        )


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
