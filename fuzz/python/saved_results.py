"""Results of runs and studies, as `forebay compare` reads them.

Usage: python saved_results.py SECONDS SEED

An input replaces each of the files, one after the other.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import driver

import forebay
from forebay import ScenarioError
from forebay.campaign import study_files as files
from forebay.campaign.study_files import FACTS, FRAME
from forebay.report.result_files import NUMBERS

SCENARIO = """\
title    = "A link"
duration = "2s"
measure  = ["1s", "2s"]
bottleneck = { rate = "2Mbit/s", delay = "5ms", buffer = "20p" }
traffic = [{ kind = "ftp", flows = 2, rtt = "40ms" }]
law = [{ kind = "codel" }, { kind = "droptail" }]
[sweep]
"bottleneck.delay" = ["5ms", "0.02s"]
"""
FILES = {NUMBERS: "run", FACTS: "study", FRAME: "study"}
FOLDER = tempfile.TemporaryDirectory()


def sound() -> dict[str, bytes]:
    """Return the files of a run and of a study, by name."""
    folder = Path(FOLDER.name)
    scenario = folder / "scenario.toml"
    scenario.write_text(SCENARIO)
    forebay.run(scenario, seeds=2).report(folder / "run")
    study = forebay.study(scenario, seeds=2, store=folder / "store")
    files.write(study, folder / "study", "forebay study", report=False)
    return {name: (folder / kind / name).read_bytes() for name, kind in FILES.items()}


SOUND = sound()
INPUTS = list(SOUND.values())


def target(data: bytes) -> None:
    """Compare results with themselves in which `data` replaces one file after the other."""
    refused: ScenarioError | None = None
    for name, kind in FILES.items():
        folder = Path(FOLDER.name) / kind
        (folder / name).write_bytes(data)
        try:
            comparison = forebay.compare(folder, folder)
            json.dumps(comparison.to_dict(), allow_nan=False)
            str(comparison).encode()
        except ScenarioError as error:
            if not str(error).isprintable():
                raise
            refused = error
        finally:
            (folder / name).write_bytes(SOUND[name])
    if refused and data not in INPUTS:
        raise refused


if __name__ == "__main__":
    driver.main(target, INPUTS)
