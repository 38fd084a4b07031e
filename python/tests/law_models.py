"""Models of a law of each kind, with parameters for one link."""

from __future__ import annotations

from forebay._native import LawModel

PI = [("target", "175p"), ("a", "7.853e-5"), ("b", "7.827e-5")]
#: A law of each kind of model, with parameters for 15 Mbit/s of 500-byte packets.
LAWS = {
    "pi": PI,
    "pid": [],
    "pi-pd": [("alpha", "2e-4")],
    "pi-avg": [("target", "175p"), ("k_p", "0.06"), ("k_i", "0.03")],
    "p-avg": [("k_p", "0.05")],
    "red": [("min_th", "50p"), ("max_th", "300p"), ("w_q", "1e-4")],
    "pd-red": [("target", "175p"), ("max_th", "335p")],
    "rem": [("target", "175p")],
    "stpi": [],
    "stred": [("max_th", "400p")],
}


def law_model(kind: str, params: list[tuple[str, str]] | None = None) -> LawModel:
    """Return the model of a law on 15 Mbit/s with packets of 500 bytes."""
    given = LAWS[kind] if params is None else params
    return LawModel(kind, given, 15_000_000, 500, 800.0)
