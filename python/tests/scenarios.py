"""Scenarios that several files of tests share."""

from __future__ import annotations

#: Every kind of traffic and change that a description has words for.
DESCRIBED = b"""
duration = "10s"
[bottleneck]
rate = "10Mbit/s"
delay = "5ms"
buffer = "64kB"
[[traffic]]
kind = "ftp"
flows = 2
rtt = "40ms"
tcp = "linux-cubic"
pacing = true
ecn = "l4s"
[[traffic]]
kind = "onoff"
flows = 1
rtt = "40ms"
rate = "2Mbit/s"
bursts = 5.0
arrivals = 3.0
swing = 0.5
[[law]]
kind = "pi"
target = "5ms"
queue = "priority"
[[at]]
time = "3s"
set = { "bottleneck.rate" = "5Mbit/s", "traffic.0.flows" = 1 }
"""
