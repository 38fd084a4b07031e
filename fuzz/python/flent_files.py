"""Data files of flent, as `forebay compare` reads them.

Usage: python flent_files.py SECONDS SEED
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import driver

import forebay

FOLDER = tempfile.TemporaryDirectory()


def document(count: int = 40) -> bytes:
    """Return a sound file: pings alone on both sides of a load of two staged flows."""
    times = [round(0.5 * i, 3) for i in range(count)]
    inside = range(count // 4, 3 * count // 4)
    load = [8.0 if i in inside else None for i in range(count)]
    late = [4.0 if i in inside[5:] else None for i in range(count)]
    ping = [20.0 + (5.5 if i in inside else 0.0) for i in range(count)]
    results = {
        "Ping (ms) ICMP": ping,
        "Ping (ms) UDP BE": [*ping[:-1], None],
        "TCP upload::1": load,
        "TCP upload::2": late,
        "TCP upload::1::tcp_cwnd": load,
        "TCP upload sum": load,
        "UDP upload": load,
    }
    units = {name: {"UNITS": "ms" if "Ping" in name else "Mbits/s"} for name in results}
    metadata = {"NAME": "tcp_nup", "TITLE": "home", "LENGTH": 10, "TOTAL_LENGTH": 20}
    return json.dumps(
        {
            "version": 4,
            "x_values": times,
            "results": results,
            "raw_values": {"Ping (ms) ICMP": [{"t": 1.0, "val": 20.0}]},
            "metadata": {**metadata, "STEP_SIZE": 0.5, "SERIES_META": units},
        }
    ).encode()


def ours() -> bytes:
    """Return a file as `--flent` writes it."""
    told = json.loads(document())
    told["metadata"]["FOREBAY"] = {
        "title": "a link",
        "law": "pi",
        "settings": {"bottleneck.rate": "10Mbit/s", "traffic.0.flows": 3},
        "point": "rate = 10Mbit/s",
        "seed": 1,
        "measure_s": [5.0, 15.0],
        "round_trip_s": 0.02,
    }
    return json.dumps(told).encode()


INPUTS = [document(), ours(), gzip.compress(document(), mtime=0)]


def target(data: bytes) -> None:
    """Compare a file with itself, and write the numbers."""
    file = Path(FOLDER.name) / "x.flent"
    file.write_bytes(data)
    comparison = forebay.compare(file, file)
    json.dumps(comparison.to_dict(), allow_nan=False)
    str(comparison).encode()


if __name__ == "__main__":
    driver.main(target, INPUTS)
