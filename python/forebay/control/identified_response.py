"""The loop's gain over frequency from samples of a closed loop.

A law asks for a probability p, and chance makes of it the signals s = p·λ + e, with arrivals λ.
What came by chance, e, depends on nothing before, and so tells cause from effect where the loop is
closed: with cross-spectra, L(jω) = −S_pe/S_se, both per packet (an instrumental variable;
Söderström and Stoica 1983). TCP's own noise, which passes the same loop, drops out.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forebay.control.counters import Floats
from forebay.control.queue_estimate import NORMAL, chance, held
from forebay.control.queue_records import QueueRecord

#: Round trips in a segment, and bands per decade of frequency.
TRIPS, BANDS = 60.0, 8
#: Fewest segments.
FEWEST = 6


@dataclass(frozen=True)
class IdentifiedResponse:
    """L over frequency; the loop is stable if the record is at rest.

    omega_rad_s: centres of the bands. gain: L at them. size_error: half the interval of |L|, as a
    share; phase_error_deg: of its angle.
    """

    omega_rad_s: Floats
    gain: NDArray[np.complexfloating]
    size_error: Floats
    phase_error_deg: Floats

    @property
    def crossover_rad_s(self) -> float:
        """Where |L| falls through one; nan where no band shows it."""
        size = np.log(np.abs(self.gain))
        for i in range(len(size) - 1):
            if size[i] > 0 >= size[i + 1]:
                share = size[i] / (size[i] - size[i + 1])
                low, high = np.log(self.omega_rad_s[i : i + 2])
                return float(np.exp(low + share * (high - low)))
        return math.nan

    @property
    def phase_margin_deg(self) -> float:
        """180° and the angle of L at the crossover."""
        at = self.crossover_rad_s
        if math.isnan(at):
            return math.nan
        angle = np.degrees(np.unwrap(np.angle(self.gain)))
        # An integral and TCP's poles lag: the first angle is between 0 and −360°.
        angle -= 360 * math.ceil(angle[0] / 360 - 1e-9)
        return 180 + float(np.interp(math.log(at), np.log(self.omega_rad_s), angle))


def loop_response(series: QueueRecord, rtt_s: float) -> IdentifiedResponse | None:
    """The loop's gain; None without a probability, and for a record of too few round trips."""
    if series.p is None or not np.any(series.p > 0) or not series.signals.sum() > 0:
        return None
    dt_s = series.interval_s
    length = 1 << math.ceil(math.log2(TRIPS * rtt_s / dt_s))
    starts = range(0, len(series.arrivals) - length + 1, length // 2)
    if len(starts) < FEWEST:
        return None
    law, by_chance = held(series.p), chance(series)
    per_packet = series.signals.sum() / (law * series.arrivals).sum() * series.arrivals.mean()
    window = np.hanning(length)

    def spectrum(values: Floats, start: int) -> NDArray[np.complexfloating]:
        part = values[start : start + length]
        return np.asarray(np.fft.rfft(window * (part - part.mean())))

    asked = np.array([spectrum(law, i) for i in starts])
    drawn = np.array([spectrum(by_chance / per_packet, i) for i in starts])
    given = np.array([spectrum(series.signals / per_packet, i) for i in starts])
    omega = 2 * math.pi * np.fft.rfftfreq(length, dt_s)
    highest = min(4 / rtt_s, 0.5 * math.pi / dt_s)
    edges = np.geomspace(omega[2], highest, max(3, round(BANDS * math.log10(highest / omega[2]))))
    rows = []
    for low, high in itertools.pairwise(edges):
        band = (omega >= low) & (omega < high)
        if not band.any():
            continue
        to_law = (asked[:, band] * drawn[:, band].conj()).sum(1)
        to_signals = (given[:, band] * drawn[:, band].conj()).sum(1)
        gain = -to_law.sum() / to_signals.sum()
        power = np.abs(asked[:, band]) ** 2
        # A law that never moves has no response.
        if not power.any():
            continue
        coherence = abs(to_law.sum()) ** 2 / (power.sum() * (np.abs(drawn[:, band]) ** 2).sum())
        # Leaving out one segment after the other; half of them are new with half of overlap.
        left = -(to_law.sum() - to_law) / (to_signals.sum() - to_signals)
        apart = left - left.mean()
        error = math.sqrt(2 * (len(left) - 1) / len(left) * float((np.abs(apart) ** 2).sum()) / 2)
        if coherence * len(starts) * band.sum() > 3 and error < 0.5 * abs(gain):
            share = NORMAL * error / abs(gain)
            centre = float(omega[band].mean())
            rows.append((centre, gain, share, math.degrees(share)))
    if len(rows) < 3:
        return None
    return IdentifiedResponse(*(np.array(column) for column in zip(*rows, strict=True)))
