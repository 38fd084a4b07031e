"""Real flows as an engine: the kernel's own TCP over a link of `forebay link`, in real time.

A run takes as long as its scenario says, on this machine alone, and is void where the machine was
too busy; it is then made again a few times, and in the end counts as void, with a warning. No two
runs are alike, so that none is stored.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay._base.temporary import tidy
from forebay._native import ScenarioError
from forebay.experiment.engines import file_name
from forebay.linux import flow_mapping as mapping
from forebay.linux.real_flows import Limits, RealRuns

if TYPE_CHECKING:
    from forebay.experiment.engines import Key, Planned, RunningBatch


@dataclass(frozen=True)
class LinkEngine:
    """Links of this machine.

    links: runs at a time, each on a link of its own; threads do not count, since runs that share a
    core would be void. limits: when a run is void, and how often it is then made.
    """

    links: int = 1
    limits: Limits = field(default_factory=Limits)
    name: str = "link"
    in_words: str = "run with this machine's own TCP over a link, in real time"
    runs_programs: bool = True
    kernel_keys: tuple[str, ...] = ("pcap",)

    def check(self, experiment: Planned) -> None:
        """Real flows are ftp, mice, web and programs over one link that does not change. Raises
        `ScenarioError`, also without the program that makes the flows."""
        plans = mapping.link_plans(experiment)
        for plan in plans:
            plan.settings(1, self.limits.void_lateness, self.limits.void_rate)
        if any(plan.long_flows for plan in plans) and shutil.which("iperf3") is None:
            raise ScenarioError(
                "--engine: found link without iperf3, which makes its flows, allowed: "
                "apt-get install iperf3"
            )

    def version(self) -> None:
        """No two runs are alike."""

    def start(
        self,
        experiment: Planned,
        threads: int,  # noqa: ARG002
        *,
        samples: bool,
        only: Collection[Key],
    ) -> RunningBatch:
        """Laws take turns, so that a busy spell of the machine hits all of them."""
        plans = {(plan.index, plan.number): plan for plan in mapping.link_plans(experiment)}
        keys = sorted(only, key=lambda key: (key[2], key[0], key[1]))
        tidy()
        called = {key: file_name(experiment.plan, key) for key in keys}
        return RealRuns(
            plans, keys, links=self.links, limits=self.limits, samples=samples, called=called
        )


ENGINE = LinkEngine()
