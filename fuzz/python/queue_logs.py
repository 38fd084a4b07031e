"""Logs of `tc -s -j qdisc` and scrapes of a link, as `forebay identify` reads them.

Usage: python queue_logs.py SECONDS SEED
"""

from __future__ import annotations

import gzip
import json
import tempfile
import warnings
from pathlib import Path

import driver

from forebay.control import queue_estimate as estimate
from forebay.control import queue_records

FOLDER = tempfile.TemporaryDirectory()


def tc_log(count: int = 150) -> bytes:
    """Return a log of mq with two children, of which one sends 12 packets in every interval."""
    lines = []
    for i in range(count):
        rows = [
            {"kind": "mq", "handle": "0:", "dev": "eth0", "root": True, "bytes": 18000 * i},
            {"kind": "pie", "handle": "0:", "dev": "eth0", "parent": ":2", "bytes": 18000 * i},
            {"kind": "pie", "handle": "0:", "dev": "eth0", "parent": ":1", "bytes": 0},
        ]
        rows[1] |= {"packets": 12 * i, "drops": i // 9, "qlen": 20 + i % 5, "prob": 0.01}
        lines.append(f"{1.7e9 + 0.01 * i:.6f} {json.dumps(rows)}")
    return "\n".join(lines).encode()


def scrapes(count: int = 150) -> bytes:
    """Return scrapes of `forebay link --metrics`."""
    text = []
    for i in range(count):
        text.append(f"# time {1.7e9 + 0.1 * i:.3f}")
        for name, value in [
            ("current_queue_length", 20 + i % 5),
            ("bytes_total", 180000 * i),
            ("packets_total", 120 * i),
            ("drops_total", i // 9),
        ]:
            text.append(f'forebay_link_{name}{{direction="up"}} {value}')
        text.append('forebay_link_law_state{direction="up",name="p"} 0.01')
    return "\n".join(text).encode()


INPUTS = [tc_log(), scrapes(), gzip.compress(tc_log(), mtime=0)]


def target(data: bytes) -> None:
    """Identify every queue of a log, and write what was found."""
    file = Path(FOLDER.name) / "log"
    file.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for queue in queue_records.read_records(file):
            part = queue.window(0.0, None)
            numbers = estimate.identify(part, 0.1)
            if numbers.rtt_s.known:
                estimate.loop_response(part, numbers.rtt_s.value)
            for value in (numbers.rate_bps, numbers.loss, numbers.rtt_s, numbers.flows):
                assert not value.known or 0 <= value.low <= value.value <= value.high, numbers
            json.dumps(numbers.to_dict(), allow_nan=False).encode()


if __name__ == "__main__":
    driver.main(target, INPUTS)
