"""A recorded link: its mean rate, and the range of rates that gains must hold over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from forebay._base import input_file
from forebay._native import ScenarioError
from forebay.experiment import experiment

#: Bytes that each time lets out.
BYTES = 1500
#: Rates are means over windows of this, far above a round trip, in s.
WINDOW_S = 1.0
#: Slower and faster windows than these percentiles do not count: no law holds a queue while the
#: link stands still.
PERCENTILES = (10.0, 90.0)


@dataclass(frozen=True)
class RecordedLink:
    """A trace of times at which 1500 bytes may leave.

    path: of the file, absolute. mean_bps, low_bps, high_bps, peak_bps: rates of windows of a
    second: of all, two percentiles, and the greatest. round_s: after which it begins anew.
    """

    path: str
    mean_bps: int
    low_bps: int
    high_bps: int
    peak_bps: int
    round_s: float

    @staticmethod
    def from_file(name: str) -> RecordedLink:
        """Raises `ScenarioError` for a file that cannot be read as times."""
        path = Path(name).resolve()
        text = experiment.FilesBeside(path)(path.name)
        if text is None:
            raise ScenarioError(f'--trace: found "{name}", allowed: a file that can be read')
        text = input_file.data(path.name, text)
        try:
            times_ms = np.array([int(line) for line in text.split()], float)
        except (ValueError, OverflowError):
            times_ms = np.empty(0)
        if not len(times_ms) or times_ms[-1] <= 0 or (np.diff(times_ms) < 0).any():
            raise ScenarioError(
                f'--trace: found "{name}", allowed: times in whole ms, one a line, none less than '
                "the one before"
            )
        round_s = 1e-3 * float(times_ms[-1])
        bits = 8.0 * BYTES
        windows = max(1, int(round_s / WINDOW_S))
        width_s = round_s / windows
        counts, _ = np.histogram(1e-3 * times_ms, bins=windows, range=(0.0, round_s))
        rates = counts * bits / width_s
        mean = bits * len(times_ms) / round_s
        low, high = np.percentile(rates, PERCENTILES)
        # A link that stands still in every tenth second has no least rate.
        low = max(low, 0.05 * mean)
        return RecordedLink(
            str(path), _rate(mean), _rate(low), _rate(max(high, low)), _rate(rates.max()), round_s
        )


def _rate(bps: float) -> int:
    """To three figures, as a scenario has it."""
    return round(float(f"{bps:.3g}"))
