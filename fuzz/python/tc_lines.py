"""Lines of tc(8), as `forebay init --tc` reads them.

Usage: python tc_lines.py SECONDS SEED
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import driver

from forebay.scenario import qdiscs

PUBLISHED = Path(__file__).parents[2] / "python/tests/unit/published_lines.toml"


def published_lines() -> list[bytes]:
    """Return the lines that users have published, each text as one input."""
    cases = tomllib.loads(PUBLISHED.read_text())
    return [case["text"].encode() for case in cases.values()]


def read_lines(data: bytes) -> None:
    """Read a text as lines of tc, for packets of 1500 bytes."""
    qdiscs.read(data.decode(errors="replace"), 1500)


if __name__ == "__main__":
    driver.main(read_lines, published_lines())
