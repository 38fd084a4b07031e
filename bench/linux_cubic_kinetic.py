"""Compare Linux's CUBIC with RFC 9438: flows that are marked at random, ACK by ACK.

    python bench/linux_cubic_kinetic.py

net/ipv4/tcp_cubic.c evaluates the curve and the Reno-friendly window at most 32 times a second
while the window does not change, and the curve is in whole packets, rounded towards its plateau.
Each row has the mean packets in flight at one R and p: as Linux computes them, with an evaluation
at every ACK, and with the curve in real numbers, too. The program takes about a minute.
"""

from __future__ import annotations

import numpy as np

FLOWS, SEED = 500, 1
#: Number of round trips to settle, and in total.
SETTLED, ROUNDS = 150, 350
BETA, C, REFRESH_S, CLOCK_S = 717 / 1024, 410 / 1024, 1 / 32, 1e-3
#: Packets by which the flight shrinks per ACK during a reduction (RFC 9937).
LOSING = 0.3

#: R in seconds, p, and packets in flight at the start: links 1.3, 1.6, 1.2 and 1.1 of
#: docs/evidence/fluid.md.
POINTS = [(0.0138, 0.0147, 8), (0.0389, 0.00976, 11), (0.0125, 0.00224, 24), (0.1376, 0.0134, 10)]


def in_flight_pkts(rtt_s: float, p: float, start: float, *, refresh_s: float, whole: bool) -> float:
    """Return the mean packets in flight of marked flows."""
    rng = np.random.default_rng(SEED)
    down = np.floor if whole else (lambda value: value)
    least = 1.0 if whole else 0.02

    def every(value: float) -> np.ndarray:
        return np.full(FLOWS, value)

    cwnd, last_max, flight = every(start), every(1.2 * start), every(start)
    acks_per_packet, credit, reno, reno_credit = every(1e9), every(0), every(0), every(0)
    origin, plateau_s, epoch_s = every(0), every(0), every(-1)
    last_cwnd, last_s, reducing = every(-1), every(-9), every(-1)
    now_s = rng.random(FLOWS) * rtt_s
    packets = flow_s = 0.0
    while now_s.mean() < ROUNDS * rtt_s:
        took_s = rtt_s / np.maximum(flight, 1)
        now_s = now_s + took_s
        if now_s.mean() > SETTLED * rtt_s:
            packets, flow_s = packets + FLOWS * rtt_s, flow_s + took_s.sum()
        mark, busy = rng.random(FLOWS) < p, reducing > 0
        reducing = reducing - 1
        flight = np.where(busy, np.maximum(flight - LOSING * (flight > cwnd), cwnd), cwnd)
        hit, grows = mark & ~busy, ~mark & ~busy
        # bictcp_update
        reno_credit = np.where(grows, reno_credit + 1, reno_credit)
        looks = grows & ((last_cwnd != cwnd) | (now_s - last_s > refresh_s))
        ticked = np.floor(now_s / CLOCK_S) != np.floor(last_s / CLOCK_S)
        follows = looks & ((epoch_s < 0) | ticked)
        last_cwnd, last_s = np.where(follows, cwnd, last_cwnd), np.where(follows, now_s, last_s)
        begins = follows & (epoch_s < 0)
        epoch_s = np.where(begins, now_s, epoch_s)
        reno_credit, reno = np.where(begins, 1, reno_credit), np.where(begins, cwnd, reno)
        origin = np.where(begins, np.maximum(last_max, cwnd), origin)
        plateau_s = np.where(begins, np.cbrt((origin - cwnd) / C), plateau_s)
        at_s = now_s - epoch_s + rtt_s
        off = down(C * np.abs(at_s - plateau_s) ** 3)
        above = np.where(at_s < plateau_s, origin - off, origin + off) - cwnd
        curve = np.where(above >= least, down(cwnd / np.maximum(above, least)), 100 * cwnd)
        acks_per_packet = np.where(follows, curve, acks_per_packet)
        reno_each = np.maximum(np.floor(15 * cwnd / 8), 1)
        for _ in range(3):
            more = looks & (reno_credit > reno_each)
            reno_credit, reno = reno_credit - more * reno_each, reno + more
        friendly = np.floor(cwnd / np.maximum(reno - cwnd, 1))
        acks_per_packet = np.where(
            looks & (reno > cwnd), np.minimum(acks_per_packet, friendly), acks_per_packet
        )
        acks_per_packet = np.where(looks, np.maximum(acks_per_packet, 2), acks_per_packet)
        # tcp_cong_avoid_ai
        full = grows & (credit >= acks_per_packet)
        credit = np.where(full, 0, credit) + grows
        steps = np.where(grows & (credit >= acks_per_packet), np.floor(credit / acks_per_packet), 0)
        credit, cwnd = credit - steps * acks_per_packet, cwnd + full + steps
        # cubictcp_recalc_ssthresh, with fast convergence
        lower = np.where(cwnd < last_max, np.floor(cwnd * (1 + BETA) / 2), cwnd)
        last_max, reducing = np.where(hit, lower, last_max), np.where(hit, flight, reducing)
        cwnd = np.where(hit, np.maximum(np.floor(cwnd * BETA), 2), cwnd)
        epoch_s = np.where(hit, -1, epoch_s)
    return packets / flow_s


def main() -> None:
    """Print the table."""
    print("  R (s)        p  packets in flight: as Linux, looking at every ACK, curve in reals")
    for rtt_s, p, start in POINTS:
        results = [
            in_flight_pkts(rtt_s, p, start, refresh_s=refresh_s, whole=whole)
            for refresh_s, whole in [(REFRESH_S, True), (0.0, True), (0.0, False)]
        ]
        texts = "  ".join(f"{result:7.2f}" for result in results)
        print(f"{rtt_s:7.4f}  {p:.5f}  {texts}", flush=True)


if __name__ == "__main__":
    main()
