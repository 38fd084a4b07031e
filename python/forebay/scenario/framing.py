"""What a line adds to an IP packet, as Linux counts it: link headers, cells and least sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from forebay.scenario import tc_text

#: Cells of a link layer, as a scenario's `cake` names them.
NONE, ATM, PTM = "none", "atm", "ptm"
#: What tc calls the link layers.
LINK_LAYERS = {"ethernet": NONE, "atm": ATM, "adsl": ATM}
#: Defaults of a size table (`tc_calc_size_table`).
TABLE_MTU, TABLE_SLOTS = 2047, 512


def with_cells(count: int, cells: str) -> int:
    """Return what `count` bytes take of a line: ATM sends 53 bytes for each 48 begun, PTM adds one
    for each 64 begun."""
    if cells == ATM:
        return math.ceil(count / 48) * 53
    return count + math.ceil(count / 64) if cells == PTM else count


def link_layer(about: str, text: str) -> str:
    """Return the cells of one of tc's link layers, which may be abbreviated."""
    for name, cells in LINK_LAYERS.items():
        if text and name.startswith(text):
            return cells
    raise tc_text.error(
        about, f'"{text}" is not a link layer of tc; it has {", ".join(LINK_LAYERS)}'
    )


@dataclass(frozen=True)
class Framing:
    """The bytes that a line adds to each IP packet.

    Attributes
    ----------
    overhead_bytes : int
        Headers and trailers, besides the IP packet.
    cells : str
        "none", "atm" or "ptm".
    mpu_bytes : int
        Least size of a packet with its overhead, before cells.
    """

    overhead_bytes: int = 0
    cells: str = NONE
    mpu_bytes: int = 0

    def wire_bytes(self, packet_bytes: int) -> int:
        """Return what an IP packet takes of the line."""
        return with_cells(max(packet_bytes + self.overhead_bytes, self.mpu_bytes), self.cells)


@dataclass(frozen=True)
class SizeTable:
    """A size table of tc (`stab`): what it makes of the size of a packet with its header.

    Sizes are rounded up to the table's slots, as in `__qdisc_calculate_pkt_len` of the kernel.
    """

    overhead: int = 0
    cells: str = NONE
    mpu: int = 0
    mtu: int = TABLE_MTU
    slots: int = TABLE_SLOTS

    def counted_bytes(self, length: int) -> int:
        """Return what a packet of `length` bytes counts for."""
        length += self.overhead
        if self.cells == NONE and self.mpu == 0:
            return max(1, length)
        log = 0
        while self.mtu >> log > self.slots - 1:
            log += 1
        slot = max(0, length - 1) >> log
        whole, rest = divmod(slot, self.slots)
        if whole == 0:
            return self._entry(slot, log)
        return self._entry(self.slots - 1, log) * whole + self._entry(rest, log)

    def _entry(self, slot: int, log: int) -> int:
        return with_cells(max((slot + 1) << log, self.mpu), self.cells)


def size_table(words: list[str]) -> SizeTable | None:
    """Return the size table of a line's words; None where it has none."""
    if not words:
        return None
    values: dict[str, str] = {}
    for word, value in zip(words[::2], words[1::2], strict=True):
        values[tc_text.completed(word, tc_text.STAB)] = value
    overhead = tc_text.signed("stab: overhead", values.get("overhead", "0"))
    cells = link_layer("stab: linklayer", values.get("linklayer", "ethernet"))
    mpu, mtu, slots = (
        tc_text.whole(f"stab: {name}", values.get(name, "0")) for name in ("mpu", "mtu", "tsize")
    )
    return SizeTable(overhead, cells, mpu, mtu or TABLE_MTU, slots or TABLE_SLOTS)
