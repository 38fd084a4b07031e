"""Compute the constants of crates/forebay-fluid/src/senders/cubic.rs from simulated CUBIC flows.

    python bench/cubic_kinetic.py

Each flow follows the cubic of RFC 9438 and is signalled with probability p per packet,
independently; nothing else happens. For large windows the means scale with (R/p)^(3/4), so one
pair of R and p is enough. Reno-friendly windows follow separately. The program takes about a
minute.
"""

from __future__ import annotations

import numpy as np

BETA, C = 0.7, 0.4
FLOWS, SEED = 20_000, 1
#: Round trip in seconds, and signals per packet: they give windows of 140 packets.
RTT_S, P = 0.05, 1e-4
#: Steps per mean time between signals of a flow; number of such times to settle, and in total.
STEPS, SETTLED, TIMES = 200, 12, 40


def cubic() -> None:
    """Print the constants of flows on the cubic curve."""
    draws = np.random.default_rng(SEED)
    guess = 1.2 * (RTT_S / P) ** 0.75
    step_s = RTT_S / (P * guess) / STEPS
    w = np.full(FLOWS, guess)
    w_max, since_s = w.copy(), np.zeros(FLOWS)
    plateau_s = np.cbrt((1 - BETA) * w / C)
    origin = w.copy()
    sums = np.zeros(8)
    for turn in range(TIMES * STEPS):
        since_s += step_s
        w = C * (since_s - plateau_s) ** 3 + origin
        hit = draws.random(FLOWS) < -np.expm1(-P * w / RTT_S * step_s)
        # Fast convergence (RFC 9438, section 4.7).
        w_max[hit] = np.where(w < w_max, (1 + BETA) / 2 * w, w)[hit]
        w[hit] *= BETA
        origin[hit] = np.maximum(w_max, w)[hit]
        plateau_s[hit] = np.cbrt((origin - w) / C)[hit]
        since_s[hit] = 0
        if turn >= SETTLED * STEPS:
            means = [x.mean() for x in (w, w**2, since_s, since_s**2, plateau_s, plateau_s**2)]
            sums += [*means, hit.mean() / step_s, 1]
    w1, w2, s1, s2, k1, k2, signals, _ = sums / sums[-1]
    print(f"W·(p/R)^(3/4) {w1 * (P / RTT_S) ** 0.75:.3f}  E[W²]/E[W]² {w2 / w1**2:.3f}")
    print(f"λE[s] {signals * s1:.4f}  λ²E[s²] {signals**2 * s2:.4f}")
    print(f"λE[K] {signals * k1:.4f}  E[K²]/E[K]² {k2 / k1**2:.4f}")


def friendly(alpha: float, above: float) -> None:
    """Print the constants of Reno-friendly flows."""
    draws = np.random.default_rng(SEED)
    p, per_rtt = 1e-3, 8
    w = np.full(FLOWS, np.sqrt(1.7 / p))
    prior = w / BETA
    sums = np.zeros(3)
    for turn in range(600 * per_rtt):
        w = w + np.where(w >= prior, above, alpha) / per_rtt * (1 - p)
        hit = draws.random(FLOWS) < -np.expm1(-p * w / per_rtt)
        prior[hit] = w[hit]
        w[hit] *= BETA
        if turn > 200 * per_rtt:
            sums += [w.mean(), (w**2).mean(), 1]
    w1, w2, _ = sums / sums[-1]
    mean = (1 - BETA) * p * w2 / (1 - p)
    print(f"α {alpha:.3f}, above {above:.3f}: mean {mean:.3f}  E[W²]/E[W]² {w2 / w1**2:.4f}")


if __name__ == "__main__":
    cubic()
    friendly(8 / 15, 8 / 15)
    friendly(9 / 17, 1.0)
