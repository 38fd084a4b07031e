"""Writes `requirements-dev.lock`: what pip takes today for Forebay and its development, exactly.

`pip lock` would name the host that a file came from; this names packages and versions alone.

    python bench/lock.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = "# `make lock` writes this file: what pyproject.toml's ranges came to.\n"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [each for extra in project["optional-dependencies"].values() for each in extra]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    done = subprocess.run(
        [*pip, "--report", "-", "--group", "dev", *project["dependencies"], *extras],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    chosen = [entry["metadata"] for entry in json.loads(done.stdout)["install"]]
    lines = sorted(f"{it['name'].lower()}=={it['version']}\n" for it in chosen)
    (ROOT / "requirements-dev.lock").write_text(HEAD + "".join(lines))


if __name__ == "__main__":
    main()
