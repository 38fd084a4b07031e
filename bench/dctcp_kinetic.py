"""Measure how integer arithmetic affects DCTCP: flows that are marked at random, ACK by ACK.

    python bench/dctcp_kinetic.py

Linux (net/ipv4/tcp_dctcp.c) keeps alpha in units of 1/1024. Each round trip subtracts a sixteenth,
rounded down, or everything below 16/1024, and adds 64 times the share of marks, rounded down: a
single mark in more than 64 packets adds nothing. The reduction of the window is rounded down, too.
The same flows with real numbers show which part of the marks is due to that. The program takes
about a minute.
"""

from __future__ import annotations

import numpy as np

FLOWS, SEED = 400, 1
#: Number of round trips to settle, and in total.
SETTLED, ROUNDS = 150, 450


def window_pkts(p: float, *, whole: bool, start_pkts: float) -> float:
    """Return the mean window of flows that are marked with probability p per packet.

    With `whole`, the arithmetic is in integers, as in Linux.
    """
    rng = np.random.default_rng(SEED)
    cwnd = np.full(FLOWS, np.round(start_pkts))
    alpha = np.full(FLOWS, np.round(2048 / start_pkts))
    credit = np.zeros(FLOWS)
    # Numbers of ACKs until the round of the estimate ends, and until the reduction ends.
    acks_left, reducing = cwnd * rng.random(FLOWS), np.zeros(FLOWS)
    acked, marked = np.zeros(FLOWS), np.zeros(FLOWS)
    down = np.floor if whole else (lambda value: value)
    rounds = acks = 0.0
    while rounds < ROUNDS:
        mark = rng.random(FLOWS) < p
        acked, marked, acks_left, reducing = acked + 1, marked + mark, acks_left - 1, reducing - 1
        over = acks_left <= 0
        fall = down(alpha / 16)
        if whole:
            fall = np.where(fall == 0, alpha, fall)
        alpha = np.where(over, np.minimum(alpha - fall + down(64 * marked / acked), 1024), alpha)
        acked, marked = np.where(over, 0, acked), np.where(over, 0, marked)
        acks_left = np.where(over, cwnd, acks_left)
        hit = mark & (reducing <= 0)
        reducing = np.where(hit, cwnd, reducing)
        cwnd = np.where(hit, np.maximum(cwnd - down(cwnd * alpha / 2048), 2), cwnd)
        credit += ~mark & (reducing <= 0)
        grown = credit >= cwnd
        credit = np.where(grown, 0, credit)
        cwnd = cwnd + grown
        share = (1 / cwnd).mean()
        rounds += share
        acks += 1 if rounds > SETTLED else 0
    return acks / (ROUNDS - SETTLED)


def main() -> None:
    """Print the table."""
    print("     p    in real numbers    as Linux counts: windows (packets), and p·W of each")
    for p in (0.13, 0.058, 0.046, 0.035, 0.025, 0.02, 0.015):
        real = window_pkts(p, whole=False, start_pkts=2 / p)
        whole = window_pkts(p, whole=True, start_pkts=2 / p)
        print(f"{p:7.3f}  {real:8.1f} {p * real:6.2f}  {whole:8.1f} {p * whole:6.2f}", flush=True)


if __name__ == "__main__":
    main()
