"""A scenario to start from, with a comment on every key: the declarations' own sentences."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import forebay._native as _native
from forebay.base import registries

#: A number of packets.
PACKETS = re.compile(r"[\d.]+p")
#: Columns of the file.
WIDTH = 100


@dataclass(frozen=True)
class Starter:
    """What the scenario is about; quantities are texts with units, as a scenario has them.

    name: of the file, for its first line.
    rtts: propagation both ways; the flows take them in turn.
    buffer: None for a bandwidth-delay product of the longest of them.
    laws: kinds of `forebay laws`.
    """

    name: str
    rate: str
    rtts: Sequence[str]
    flows: int
    buffer: str | None
    laws: Sequence[str]

    @staticmethod
    def for_options(
        name: str,
        rate: str | None = None,
        rtts: Sequence[str] | None = None,
        flows: int | None = None,
        buffer: str | None = None,
        laws: Sequence[str] | None = None,
    ) -> Starter:
        """What is not given is that of `starter.toml`."""
        usual = tomllib.loads(
            resources.files("forebay.guide").joinpath("starter.toml").read_text("utf-8")
        )
        return Starter(
            name,
            rate or usual["rate"],
            rtts or usual["rtt"],
            flows or usual["flows"],
            buffer,
            laws or usual["laws"],
        )

    def text(self) -> str:
        """The file. Raises `ScenarioError` for a quantity that is none."""
        parts = [self._head(), self._bottleneck(), self._traffic(), self._laws(), SWEEP]
        return "\n".join(parts)

    def _head(self) -> str:
        lines = [
            f"# {self.name}, a scenario of Forebay. Run it:  forebay run {self.name}",
            "# A key after a # has its default. More on any of them:  forebay explain KEY",
            "",
        ]
        title = _key("", "title", '"Which law for my link?"')
        return "\n".join(
            [
                *lines,
                title,
                _key("", "duration", '"60s"'),
                _key("", "measure", '["30s", "60s"]'),
                _key("", "seeds", "3"),
                _key("", "sample"),
            ]
        )

    def _bottleneck(self) -> str:
        return "\n".join(
            [
                "",
                "# The link with the queue.",
                "[bottleneck]",
                _key("bottleneck", "rate", f'"{self.rate}"'),
                _key("bottleneck", "delay", '"5ms"'),
                _key("bottleneck", "buffer", f'"{self.buffer or self._product()}"'),
                _key("bottleneck", "ecn"),
            ]
        )

    def _product(self) -> str:
        """The bandwidth-delay product of the longest round trip, in packets of 1500 bytes."""
        rate_bps = _native.quantity("--rate", self.rate, "rate")
        rtt_s = max(_native.quantity("--rtt", rtt, "time") for rtt in self.rtts)
        return f"{max(20, round(rate_bps * rtt_s / (8 * 1500)))}p"

    def _traffic(self) -> str:
        rtts = ", ".join(f'"{rtt}"' for rtt in self.rtts)
        section = "traffic (ftp)"
        return "\n".join(
            [
                "",
                "# Long downloads. Other kinds: mice, web, pages, voice, video and more.",
                "[[traffic]]",
                'kind = "ftp"',
                _key(section, "flows", str(self.flows)),
                _key(section, "rtt", f"[{rtts}]"),
                _key(section, "packet", '"1500B"'),
                _key(section, "tcp", '"linux-cubic"'),
                _key(section, "ecn"),
                _key(section, "start", '{ uniform = ["0s", "1s"] }'),
            ]
        )

    def _laws(self) -> str:
        lines = ["", "# What is compared; `forebay laws` lists all, with their parameters."]
        for name in self.laws:
            lines += ["[[law]]", f'kind = "{name}"', *_gains(name), ""]
        return "\n".join(lines)


SWEEP = """\
# Every law also at other loads: take the # away.
# [sweep]
# "traffic.ftp.flows" = [5, 20, 80]
"""


def _gains(name: str) -> list[str]:
    """Numbers for this link, where the law's own are packets, which fit the link of a paper."""
    law = registries.laws().get(name)
    defaults = [param["default_text"] for param in law["params"]] if law else []
    if not any(PACKETS.fullmatch(text) for text in defaults):
        return []
    return [_key("law", "gains", '"auto"')]


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH - 2)]


def _key(section: str, name: str, value: str | None = None) -> str:
    """The line of a key under its meaning; after a # with its default, where no value is given."""
    key = _keys()[section, name]
    line = f"{name} = {value}" if value is not None else f"# {name} = {key['default']}"
    return "\n".join([*_comment(key["doc"]), line])


@cache
def _keys() -> dict[tuple[str, str], _native.KeyInfo]:
    declared = _native.keys()
    return {(key["section"], key["name"]): key for key in declared}
