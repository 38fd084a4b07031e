"""The cells of docs/evidence/reality.md, as their study has them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

CELLS = Path(__file__).parents[2] / "experiments" / "reality" / "cells.toml"
TEXT = CELLS.read_text()
[(AXES, POINTS)] = tomllib.loads(TEXT)["sweep"].items()
KEYS = AXES.split(", ")
LAWS = re.findall(r'^kind += "(.+)"', TEXT[TEXT.index("[[law]]") :], re.MULTILINE)
