"""Types with a unit for parameters of laws written in Python; see `docs/howto/prototypes.md`."""

from forebay._base.quantities import (
    BitsPerSecond,
    Bytes,
    Packets,
    Probability,
    Range,
    Seconds,
    Unit,
)

__all__ = ["BitsPerSecond", "Bytes", "Packets", "Probability", "Range", "Seconds", "Unit"]
