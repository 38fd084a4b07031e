"""Scenarios as Python sees them: written, named, swept, and read from lines of tc(8).

The native module parses a scenario file and checks it. This room has everything around that:

- `builder` writes scenarios from Python. `builder.Dumbbell` is a bottleneck with long-lived flows,
  the scenario that designs, maps and searches run.
- `names` finds experiments that are called by name, such as `pi-pd/load`.
- `axes` describes a sweep: which keys vary together, and their values as numbers with a unit.
- `python_laws` loads laws written in Python. `Controller` documents the hooks of such a law.
- `tc_text`, `shapers` and `qdiscs` read the lines of Linux's traffic control as a law, its queue
  and its link; `router` writes such lines, and the configuration of OpenWrt's SQM.

>>> from forebay.scenario import router
>>> settings = router.settings(
...     "codel", [], rate_bps=20_000_000, packet_bytes=1500, buffer_pkts=1000
... )
>>> print(settings.tc[0])
tc qdisc replace dev eth0 root handle 1: tbf rate 20186667bit burst 3028 latency 1s

Text becomes typed values here: `tc_text.read` yields `Statement`s, `shapers.place` finds the queue
and the shapers above it, and `qdiscs.read` returns the `Qdisc` as a scenario has it. Start reading
at `builder`, and for lines of tc at `qdiscs.read`.
"""
