"""A designed loop for other tools: python-control, and files for MATLAB, Octave and Simulink.

Of a law that acts through its sampler the loop is exact in z: hold, plant, delay and sampler become
a pulse transfer function (`closed_loop_poles.pulse_transfer`). The plant alone is a state space
and a delay, which those tools take as such; only what must be rational in s has a Padé
approximation of a stated order.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import io as matlab
from scipy import signal

from forebay._base import publication
from forebay._native import ScenarioError
from forebay.control import closed_loop_poles, frequency_response
from forebay.control.frequency_response import Floats

if TYPE_CHECKING:
    from forebay.control.loop import Loop

#: Order of the Padé approximation of the delay.
ORDER = 5
#: What a file may be, by its ending.
ENDINGS = (".mat", ".json", ".csv")


def plant(loop: Loop) -> tuple[Floats, Floats]:
    """Numerator and denominator in s of TCP, the queue and the law's average, without the delay;
    from probability, with the sign that makes L positive, to packets."""
    _one_path(loop)
    return closed_loop_poles.rational(loop.terms)


def discrete(loop: Loop) -> tuple[Floats, Floats, float] | None:
    """The whole loop in z, highest power first, and its interval in s; exact. None for a law that
    acts without its sampler."""
    t = loop.terms
    if t.interval_s is None or t.hybrid:
        return None
    top, bottom = closed_loop_poles.pulse_transfer(t)
    top = np.convolve([float(c) for c in t.numerator], top)
    bottom = np.convolve([float(c) for c in t.denominator], bottom)
    numerator, denominator = _padded(top, bottom)
    return numerator, denominator, float(t.interval_s)


def to_control(loop: Loop, order: int = ORDER) -> dict[str, Any]:
    """Objects of python-control.

    "plant": a `TransferFunction` in s with the delay by Padé of this order. "law": in z, or a gain.
    "loop": exact in z for a law behind a sampler, else in s with Padé. "response": L as an exact
    `FrequencyResponseData`.
    """
    import control  # type: ignore[import-untyped]

    if order < 1:
        raise ScenarioError(f"order: found {order}, allowed: at least 1")
    top, bottom = plant(loop)
    late, early = control.pade(float(loop.terms.delay_s), order)
    whole = control.tf(np.polymul(top, late), np.polymul(bottom, early))
    exact = discrete(loop)
    if exact is not None:
        law: Any = control.tf(*_padded(loop.terms.numerator, loop.terms.denominator), exact[2])
        loop_gain: Any = control.tf(exact[0], exact[1], exact[2])
    elif loop.terms.interval_s is None:
        law = control.tf([float(loop.terms.direct)], [1.0])
        loop_gain = law * whole
    else:
        law, loop_gain = None, None
    omega = loop.grid
    response = control.frd(loop.response(omega), omega, smooth=True)
    return {"plant": whole, "law": law, "loop": loop_gain, "response": response}


def _padded(*powers: Sequence[Any] | Floats) -> list[Floats]:
    """Numerator and denominator in z⁻¹ with as many powers: in z the same numbers."""
    size = max(map(len, powers))
    return [np.pad(np.array(power, float), (0, size - len(power))) for power in powers]


def table(loop: Loop) -> dict[str, Any]:
    """Everything as numbers, for .mat and JSON: the plant as A, B, C, D and `delay_s`, the law and
    the loop as numerators and denominators in z, and the exact frequency response."""
    top, bottom = plant(loop)
    a, b, c, d = signal.tf2ss(top, bottom)
    omega = loop.grid
    response = loop.response(omega)
    point = loop.point
    values: dict[str, Any] = {
        "A": a,
        "B": b,
        "C": c,
        "D": d,
        "delay_s": float(loop.terms.delay_s),
        "plant_numerator": top,
        "plant_denominator": bottom,
        "law_direct": float(loop.terms.direct),
        "omega_rad_s": omega,
        "loop_re": response.real,
        "loop_im": response.imag,
        "flows": point.flows,
        "rtt_s": point.rtt_s,
        "capacity_pkts_per_s": point.capacity_pkts_per_s,
        "queue_pkts": loop.model["queue_pkts"],
    }
    if loop.terms.interval_s is not None:
        numerator, denominator = _padded(loop.terms.numerator, loop.terms.denominator)
        values |= {
            "interval_s": float(loop.terms.interval_s),
            "law_numerator": numerator,
            "law_denominator": denominator,
        }
    exact = discrete(loop)
    if exact is not None:
        values |= {"loop_numerator": exact[0], "loop_denominator": exact[1]}
    return values


def check(path: Path) -> None:
    """Refuses a file that `save` could not write, before the time is spent. Raises
    `ScenarioError`."""
    if path.suffix not in ENDINGS:
        raise ScenarioError(
            f'--export: found "{path}", allowed: a file that ends in {", ".join(ENDINGS)}'
        )
    publication.check_file(path, "export")


def save(loop: Loop, path: Path) -> None:
    """Writes .mat, .json or .csv, by the ending. Raises `ScenarioError` for another."""
    if path.suffix == ".mat":
        rows = {
            key: np.atleast_2d(value) if isinstance(value, np.ndarray) else value
            for key, value in table(loop).items()
        }
        matlab.savemat(str(path), rows)
    elif path.suffix == ".json":
        plain = {
            key: value.tolist() if isinstance(value, np.ndarray) else value
            for key, value in table(loop).items()
        }
        path.write_text(json.dumps(plain) + "\n")
    elif path.suffix == ".csv":
        path.write_text(_csv(loop))
    else:
        check(path)


def _csv(loop: Loop) -> str:
    """The frequency response of loop, plant and sensitivity."""
    omega = loop.grid
    s = np.asarray(1j * omega, complex)
    responses = {
        "loop": loop.response(omega),
        "plant": frequency_response.plant(loop.terms, s),
        "sensitivity": frequency_response.sensitivity(loop.terms, s),
    }
    columns = {"omega_rad_s": omega}
    for name, values in responses.items():
        with np.errstate(divide="ignore"):
            columns[f"{name}_db"] = 20 * np.log10(np.abs(values))
        columns[f"{name}_deg"] = np.degrees(np.unwrap(np.angle(values)))
    out = io.StringIO()
    np.savetxt(
        out,
        np.column_stack(list(columns.values())),
        fmt="%.9g",
        delimiter=",",
        header=",".join(columns),
        comments="",
    )
    return out.getvalue()


def _one_path(loop: Loop) -> None:
    if loop.terms.parallel is not None:
        raise ScenarioError(
            "--export: found classes of flows with delays of their own, allowed: one (.csv has the "
            "response of all)"
        )
