"""Lines to a home: their framing, their two directions, and what a router there does."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import forebay._native as _native
from forebay._base import quantities, registries
from forebay._base.words import hint
from forebay._native import ScenarioError
from forebay.scenario import router
from forebay.scenario.builder import Law
from forebay.scenario.tc_text import ATM, NONE, Framing

#: The directions of a line: towards the home, and from it.
DOWN, UP = "down", "up"
#: cake's isolation by hosts of the home, by direction.
ISOLATION = {DOWN: "dual-dsthost", UP: "dual-srchost"}
#: Words of cake for a router with NAT, which do not change the simulation.
WORDS = {DOWN: "nat ingress", UP: "nat"}
#: The largest IP packet where a line does not say another.
PACKET_BYTES = 1500


@dataclass(frozen=True)
class HomeLine:
    """A line to a home.

    Attributes
    ----------
    kind, about : str
        Its name in `lines.toml`, and what it is.
    framing : Framing
        What it adds to an IP packet.
    down_bps, up_bps : int
        Its rates, framing included.
    packet_bytes : int
        The largest IP packet.
    device : str
        The router's device towards the line.
    """

    kind: str
    about: str
    framing: Framing
    down_bps: int
    up_bps: int
    packet_bytes: int
    device: str

    def rate(self, direction: str) -> str:
        """Return the rate of a direction, framing included."""
        return quantities.rate(self.down_bps if direction == DOWN else self.up_bps)

    def packets_bps(self, direction: str) -> int:
        """Return the rate of IP packets of full size in a direction."""
        rate_bps = self.down_bps if direction == DOWN else self.up_bps
        return round(rate_bps * self.packet_bytes / self.framing.wire_bytes(self.packet_bytes))

    def notes(self) -> list[str]:
        """Return what a reader must know of the line's rates."""
        wire = self.framing.wire_bytes(self.packet_bytes)
        cells = f" in cells of {self.framing.cells.upper()}" if self.framing.cells != NONE else ""
        notes = [
            f"{self.kind} is {self.about}: an IP packet of {self.packet_bytes} bytes takes {wire} "
            f"bytes of the line{cells}.",
            "The shapers are set to the rates that were given. For the queues to be in the router, "
            "these must be below what the line gives: about 95 % of the modem's rate up and 90 % "
            "down.",
        ]
        if self.framing.cells == ATM:
            notes.append(
                "cake counts the cells of each packet. Under the other laws smaller packets take a "
                "larger share of the line than in the simulation."
            )
        return notes


def home_line(
    kind: str, down: str | None, up: str | None, direction: str, device: str | None
) -> HomeLine:
    """Return the line of a name, with the user's rates.

    Raises
    ------
    ScenarioError
        If the name, a rate or the direction is missing or unknown.
    """
    lines = _lines()
    if kind not in lines:
        raise ScenarioError(
            f'--line: "{kind}" is not a known line{hint(kind, lines)}; they are {", ".join(lines)}'
        )
    if direction not in ISOLATION:
        raise ScenarioError(f'--direction: "{direction}" is neither down nor up')
    for option, rate in (("--down", down), ("--up", up)):
        if rate is None:
            raise ScenarioError(
                f"{option}: the rate is missing, which --line needs; write for example "
                f"{option} 20Mbit/s"
            )
    entry = lines[kind]
    framing = Framing(
        entry.get("overhead_bytes", 0), entry.get("cells", NONE), entry.get("mpu_bytes", 0)
    )
    return HomeLine(
        kind,
        entry["about"],
        framing,
        round(_native.quantity("--down", down or "", "rate")),
        round(_native.quantity("--up", up or "", "rate")),
        entry.get("mtu_bytes", PACKET_BYTES),
        device or entry.get("device", router.DEVICE),
    )


def with_line(law: Law, line: HomeLine, direction: str) -> Law:
    """Return a law that counts by itself what the line adds; another law as it is."""
    if registries.parameter(law.kind, router.OWN_RATE) is None:
        return law
    own = {
        router.OWN_RATE: line.rate(direction),
        "isolation": ISOLATION[direction],
        "overhead": quantities.size(line.framing.overhead_bytes),
        "framing": line.framing.cells,
        "mpu": quantities.size(line.framing.mpu_bytes),
    }
    return replace(law, params=list((dict(law.params) | own).items()))


def other(direction: str) -> str:
    """Return the direction that is not under test."""
    return UP if direction == DOWN else DOWN


def words(direction: str) -> str:
    """Return cake's words for a router with NAT, which do not change the simulation."""
    return WORDS[direction]


@cache
def _lines() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("forebay.guide").joinpath("lines.toml").read_text())
