"""Execute the training runs of a profile-guided build in the installed module.

    make wheel PGO=1      (tools/training.py calls this file)

The runs are the cases of `costs.py`, which are also measured. Code that no run executes would be
compiled for size, so every law, queue and sender, the fluid model and a design follow in short
runs. Their share of all packets is small.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import costs

import forebay
from forebay._base import registries

#: Simulated time of the runs whose code is not measured, in seconds.
SHORT_S = 2.0


def run(case: costs.Case, duration_s: float, engine: str = "packets") -> None:
    """Run a case on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.toml"
        file.write_text(case.scenario(duration_s))
        forebay.run(file, engine=engine, threads=1)


def main() -> None:
    """Run every case, then every law, queue and sender, the fluid model and a design."""
    measured = dict.fromkeys(case for bound in costs.BOUNDS for case in (bound.base, bound.case))
    for case in measured:
        run(case, case.durations_s[1])
    laws = [replace(costs.RED, law=law, law_keys="") for law in registries.laws()]
    queues = [
        replace(costs.RED, law_keys=f'{costs.RED_KEYS}\nqueue = "{queue}"')
        for queue in registries.queues()
    ]
    senders = [replace(costs.RED, tcp=sender) for sender in registries.senders()]
    for case in [*laws, *queues, *senders]:
        run(case, SHORT_S)
    run(costs.RED, SHORT_S, engine="fluid")
    link = forebay.Link(rate="45Mbit/s", rtt="100ms", flows=100, packet="500B", buffer="1125p")
    forebay.design("pi", link, target="20ms")


if __name__ == "__main__":
    main()
