"""A process that is killed while it replaces a result leaves one whole result."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

REPLACE_FOR_EVER = """
import itertools, sys
from forebay._base.publication import publish
for generation in itertools.count(int(sys.argv[2])):
    names = [f"{i}.txt" for i in range(40)] + [f"only-{generation % 2}.txt"]
    publish(sys.argv[1], dict.fromkeys(names, str(generation)), replaces=["*.txt"])
    print(generation, flush=True)
"""


def test_a_killed_replacement_leaves_one_whole_result(tmp_path: Path) -> None:
    """The files of two results never stand in one folder, wherever the process is killed."""
    out, rng, seen = tmp_path / "out", random.Random(1), set()
    (tmp_path / "out").mkdir()
    (out / "notes.md").write_text("a user's own file")
    for attempt in range(12):
        with subprocess.Popen(
            [sys.executable, "-c", REPLACE_FOR_EVER, str(out), str(100 * attempt)],
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(rng.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
        texts = {file.read_text() for file in out.glob("*.txt")}
        assert len(texts) == 1, texts
        assert len(list(out.glob("*.txt"))) == 41
        assert (out / "notes.md").read_text() == "a user's own file"
        seen |= texts
    assert len(seen) > 1
