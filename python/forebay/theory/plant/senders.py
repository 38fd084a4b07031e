"""Senders of TCP as the linear plant sees them: where a window rests, and how it moves there.

A flow has W packets in a round trip R, of which each is signalled with p a round trip later, so
that it gets λ = W·p/R signals per second. As Hollot et al. (2002) do, what a flow sent a round trip
ago counts as what it sends now; p itself is late.

- reno: W' = 1/R − W²p/(2R), as published (Misra, Gong and Towsley 2000): pW² = 2.
- linux-reno: the same growth under signals that come independently of each other: E[W²] is
  7/6·E[W]² (Ott, Kemperman and Mathis 1996: W = 1.31/√p).
- cubic (RFC 9438): flows on W(s) = C(s − K)³ + W_max, with fast convergence, s seconds after a
  signal. The equations of the mean s and W_max (Vardoyan, Hollot and Towsley 2018) have no linear
  part where they rest, at s = K: the curve is flat there. But flows stand at all ages. Of a
  population of them, hit independently at λ, the mean rests at 1.207·(R/p)^¾ packets, and answers p
  as `CUBIC` says; `python/tests/test_senders.py` has that population. In the Reno-friendly region
  (section 4.3) it is pW² = 3/2, of a W_est that Linux counts in whole packets and follows a
  round trip later, with half a packet less in flight, 1½ packets in all: W' = α/R −
  (α/1.5)·W(W + 3)p/R. A flow takes whichever is larger at each moment, so that its mean is above
  both where they are near: (W_cubic⁶ + W_friendly⁶)^⅙.
- dctcp (RFC 8257; Alizadeh et al. 2011): W' = 1/R − W·α/(2R), α' = (g/R)(p − α), with marks in all
  round trips: W = 2/p.
- prague: α as of DCTCP. A reduction takes a virtual round trip R_v = max(R, 25 ms), and the next
  one waits for a mark, so with x marks in R_v they come every R_v(1 + 1/x); unmarked packets alone
  grow: W' = (1 − p)R/R_v² − W·α/(2R_v)·x/(1 + x).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: E[W²]/E[W]² of Reno's sawteeth under independent signals.
SPREAD = 7 / 6
#: Growth of the Reno-friendly window in a round trip, 3(1 − β)/(1 + β), and pW² there (section 4.3
#: of RFC 9438).
ALPHA, FRIENDLY = 9 / 17, 1.5
#: Twice the packets by which Linux's window is behind W_est on average.
BEHIND_PKTS = 3.0
#: W/(R/p)^¾ of the mean of flows on RFC 9438's curve, in packets and seconds; its equation (5) has
#: 1.054 for one flow with even signals.
PLATEAU = 1.207
#: How the mean moves there: −δW/W per δp/p is (n2·x² + n1·x + n0)/(x³ + d2·x² + d1·x + d0) with
#: x = s/λ. n2 = (1 − β)E[W²]/E[W]²: what a signal takes at once; n0/d0 = 3/4. The rest is the best
#: fit to the population's answer to a step, to 0.3 % of it.
CUBIC = ((0.3819, 0.9103, 2.6), (4.340, 5.541, 3.4667))
#: Of the mean where both curves matter: within 3 % of packets between R = 25 and 490 ms.
BETWEEN = 6
#: A region with less of the window than this does not move.
SLIVER = 0.02
#: Gain of the estimate of the share of marks (RFC 8257 section 4.2, and the draft of Prague).
ESTIMATE_GAIN = 1 / 16
#: Shorter round trips of Prague grow and fall as one of this length.
REFERENCE_RTT_S = 0.025


@dataclass(frozen=True)
class Motion:
    """x' = a·x + b·δp(t − R) + e·δR, δW = c·x; a row for each operating point."""

    a: Floats
    b: Floats
    e: Floats
    c: Floats


@dataclass(frozen=True)
class Sender:
    """A sender in the plant.

    name: in `--tcp`. kind: the sender of scenarios. ecn: what its scenario asks of the link, if it
    lives on marks. least_pkts: it keeps no smaller window. window: at rest, in packets, of p and R.
    motion: around there, of p, R and the window. region: in words, what rules there; None where
    nothing else does.
    """

    name: str
    kind: str
    ecn: str | bool
    least_pkts: float
    window: Callable[[Floats, Floats], Floats]
    motion: Callable[[Floats, Floats, Floats], Motion]
    region: Callable[[float, float], str | None]


def _none(_p: float, _rtt_s: float) -> str | None:
    return None


def _rows(*columns: Floats) -> Floats:
    return np.stack(np.broadcast_arrays(*columns), -1)


def _aimd(name: str, kind: str, alpha: float, square: float) -> Sender:
    """W' = alpha/R − (alpha/square)·W²p/R: pW² = square."""

    def window(p: Floats, _rtt_s: Floats) -> Floats:
        return np.asarray(np.sqrt(square / p))

    def motion(_p: Floats, rtt_s: Floats, w: Floats) -> Motion:
        nothing = np.zeros_like(w)[..., None]
        return Motion(
            np.asarray(-2 * alpha / (w * rtt_s))[..., None, None],
            np.asarray(-alpha / square * w**2 / rtt_s)[..., None],
            nothing,
            nothing + 1.0,
        )

    return Sender(name, kind, False, 0.0, window, motion, _none)


# --- CUBIC ------------------------------------------------------------------------------------


def cubic_share(p: Floats, rtt_s: Floats) -> Floats:
    """How much of the mean window is RFC 9438's cubic; the rest is the Reno-friendly region."""
    ratio = _cubic_part(p, rtt_s) / _friendly_part(p)
    return np.asarray(1 / (1 + ratio**-BETWEEN))


def _cubic_part(p: Floats, rtt_s: Floats) -> Floats:
    return np.asarray(PLATEAU * (rtt_s / p) ** 0.75)


def _friendly_part(p: Floats) -> Floats:
    half = BEHIND_PKTS / 2
    return np.asarray(np.sqrt(FRIENDLY / p + half**2) - half)


def _cubic_window(p: Floats, rtt_s: Floats) -> Floats:
    both = _cubic_part(p, rtt_s) ** BETWEEN + _friendly_part(p) ** BETWEEN
    return np.asarray(both ** (1 / BETWEEN))


def _cubic_motion(p: Floats, rtt_s: Floats, w: Floats) -> Motion:
    """Both beside each other, each with its share. A longer RTT acts as less p on the cubic, whose
    clock is not the round trip."""
    share = cubic_share(p, rtt_s)
    # A sliver of the other region would only leave slow modes that nothing moves.
    share = np.where(share < SLIVER, 0.0, np.where(share > 1 - SLIVER, 1.0, share))
    rate = w * p / rtt_s
    (n2, n1, n0), (d2, d1, d0) = CUBIC
    a = np.zeros((*np.shape(w), 4, 4))
    f, slope = _friendly_part(p), ALPHA / FRIENDLY / rtt_s
    a[..., 0, 0] = -slope * (2 * f + BEHIND_PKTS) * p
    a[..., 1, 2] = a[..., 2, 3] = rate
    for i, d in enumerate((d0, d1, d2)):
        a[..., 3, 1 + i] = -d * rate
    nothing = np.zeros_like(w)
    friendly = -slope * (f + BEHIND_PKTS) * w * (1 - share)
    return Motion(
        a,
        _rows(friendly, nothing, nothing, rate / p),
        _rows(nothing, nothing, nothing, -rate / rtt_s),
        _rows(nothing + 1, *(-n * share * w for n in (n0, n1, n2))),
    )


def _cubic_region(p: float, rtt_s: float) -> str | None:
    share = float(cubic_share(np.asarray(p), np.asarray(rtt_s)))
    if share > 0.9:
        return "on the cubic of RFC 9438 section 4.4"
    if share < 0.1:
        return "in the Reno-friendly region (RFC 9438 section 4.3)"
    return f"between RFC 9438's Reno-friendly region and its cubic ({100 * share:.0f} % of it)"


# --- scalable senders -------------------------------------------------------------------------


def _dctcp_window(p: Floats, _rtt_s: Floats) -> Floats:
    return np.asarray(2 / p)


def _estimated(w_w: Floats, w_alpha: Floats, w_p: Floats, w_r: Floats, round_s: Floats) -> Motion:
    """A window with these slopes, and α after it."""
    a = np.zeros((*np.shape(w_w), 2, 2))
    g = ESTIMATE_GAIN / round_s
    a[..., 0, 0], a[..., 0, 1], a[..., 1, 1] = w_w, w_alpha, -g
    nothing = np.zeros_like(w_w)
    return Motion(a, _rows(w_p, g), _rows(w_r, nothing), _rows(nothing + 1, nothing))


def _dctcp_motion(p: Floats, rtt_s: Floats, w: Floats) -> Motion:
    nothing = np.zeros_like(w)
    return _estimated(-p / (2 * rtt_s), -w / (2 * rtt_s), nothing, nothing, rtt_s)


def _virtual_s(rtt_s: Floats) -> Floats:
    return np.maximum(rtt_s, REFERENCE_RTT_S)


def _prague_window(p: Floats, rtt_s: Floats) -> Floats:
    # x²/2 = (1 − p)(1 + x), with x = p·W·R_v/R.
    u = np.maximum(1 - p, 1e-12)
    x = u + np.sqrt(u**2 + 2 * u)
    return np.asarray(x * rtt_s / _virtual_s(rtt_s) / p)


def _prague_motion(p: Floats, rtt_s: Floats, w: Floats) -> Motion:
    virtual_s = _virtual_s(rtt_s)
    x = p * w * virtual_s / rtt_s
    share, slope = x / (1 + x), x / (1 + x) ** 2
    fall = w * p / (2 * virtual_s)
    short = rtt_s < virtual_s
    return _estimated(
        -p / (2 * virtual_s) * (share + slope),
        -w * share / (2 * virtual_s),
        -rtt_s / virtual_s**2 - fall * slope / p,
        np.where(short, (1 - p) / virtual_s**2 + fall * slope / rtt_s, 0.0),
        virtual_s,
    )


SENDERS = {
    sender.name: sender
    for sender in [
        _aimd("reno", "reno", 1.0, 2.0),
        _aimd("linux-reno", "linux-reno", 1.0, 2.0 / SPREAD),
        Sender("cubic", "linux-cubic", False, 1.0, _cubic_window, _cubic_motion, _cubic_region),
        Sender("dctcp", "dctcp", True, 2.0, _dctcp_window, _dctcp_motion, _none),
        Sender("prague", "prague", "l4s", 2.0, _prague_window, _prague_motion, _none),
    ]
}
