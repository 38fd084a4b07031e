"""A designed loop for other tools: python-control, and files for MATLAB, Octave and Simulink.

The loop of a law that acts through its sampler is exact in z: hold, plant, delay and sampler become
a pulse transfer function (`closed_loop_poles.pulse_transfer`). The plant alone is a state space
with a delay, which these tools accept. Only where a rational function in s is needed, the delay is
a Padé approximation of a stated order.
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
from forebay._base.errors import ParameterError
from forebay._native import ScenarioError
from forebay.control import closed_loop_poles, frequency_response
from forebay.control.frequency_response import Floats

if TYPE_CHECKING:
    from forebay.control.loop import Loop

#: Order of the Padé approximation of the delay.
ORDER = 5
#: Endings of the files that can be written.
ENDINGS = (".mat", ".json", ".csv")


def plant(loop: Loop) -> tuple[Floats, Floats]:
    """Return numerator and denominator in s of TCP, the queue and the law's average.

    They lead from probability to packets, without the delay, with the sign for which L is positive.
    """
    _one_path(loop)
    return closed_loop_poles.rational(loop.terms)


def discrete(loop: Loop) -> tuple[Floats, Floats, float] | None:
    """Return the exact loop in z as numerator and denominator, and its interval in seconds.

    Powers are highest first. None for a law that acts without its sampler.
    """
    t = loop.terms
    if t.interval_s is None or t.hybrid:
        return None
    top, bottom = closed_loop_poles.pulse_transfer(t)
    top = np.convolve([float(c) for c in t.numerator], top)
    bottom = np.convolve([float(c) for c in t.denominator], bottom)
    numerator, denominator = _padded(top, bottom)
    return numerator, denominator, float(t.interval_s)


def to_control(loop: Loop, order: int = ORDER) -> dict[str, Any]:
    """Return the loop as objects of python-control.

    Parameters
    ----------
    loop : Loop
        The loop.
    order : int, optional
        Order of the Padé approximation of the delay.

    Returns
    -------
    dict
        "plant" is a `TransferFunction` in s, with the delay approximated. "law" is one in z, or a
        gain. "loop" is exact in z for a law behind a sampler, or else approximated in s. "response"
        is L as an exact `FrequencyResponseData`.

    Raises
    ------
    ParameterError
        If the order is below 1.
    """
    import control  # type: ignore[import-untyped]

    if order < 1:
        raise ParameterError("order", order, "at least 1")
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
    """Return numerator and denominator with equal lengths: z⁻¹ and z then have the same numbers."""
    size = max(map(len, powers))
    return [np.pad(np.array(power, float), (0, size - len(power))) for power in powers]


def table(loop: Loop) -> dict[str, Any]:
    """Return the loop as numbers for .mat and JSON files.

    The plant is A, B, C, D and `delay_s`; law and loop are numerators and denominators in z; the
    frequency response is exact.
    """
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
    """Raise an error for a file that `save` could not write, before time is spent.

    Raises
    ------
    ParameterError
        If the ending is unknown, or the file cannot be written.
    """
    if path.suffix not in ENDINGS:
        raise ParameterError("export", str(path), f"a file that ends in {', '.join(ENDINGS)}")
    publication.check_file(path, "export")


def save(loop: Loop, path: Path) -> None:
    """Write the loop to a file: .mat, .json or .csv, by its ending.

    Parameters
    ----------
    loop : Loop
        The loop.
    path : Path
        The file.

    Raises
    ------
    ParameterError
        If the ending is another one.
    """
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
    """Return the frequency responses of loop, plant and sensitivity as CSV."""
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
            "the classes of flows have delays of their own, which only a .csv file can hold"
        )
