"""Messages of the commands, as plain text in one file per command below `messages`.

FOREBAY_RENEW_MESSAGES=1 rewrites the files, so that wording can be edited without touching a test.
Tests of behaviour assert the class of an error, its parameter and its value.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import SCENARIO, Cli

MESSAGES = Path(__file__).with_name("messages")
RENEWS = "FOREBAY_RENEW_MESSAGES" in os.environ

LINK = "--rate 15Mbit/s --flows 60 --rtt 200ms"
#: Calls with input that is wrong, by command.
CALLS: dict[str, list[str]] = {
    "forebay": ["nonsense", "--nonsense"],
    "init": [
        "--law nolaw -",
        "nowhere/x.toml",
        "two.toml",
        "--line vdsl3 --down 50Mbit/s --up 10Mbit/s -",
        "--line ethernet --rate 5Mbit/s -",
        "--down 50Mbit/s -",
    ],
    "explain": ["zz"],
    "laws": ["pie pike"],
    "queues": ["fqq"],
    "experiments": ["pi-pd/lode"],
    "cite": ["nothing-known", "text.toml"],
    "run": [
        "",
        "missing.toml",
        ".",
        "two.toml --seeds some",
        "two.toml --seeds -1",
        "two.toml --threads 0",
        "two.toml --sed 1",
        "two.toml --set nonsense",
        "two.toml --out two.toml",
        "two.toml --out=",
        "two.toml --style poster",
        "two.toml --engine ns-3",
        "two.toml --metric delay",
        "two.toml --law mine.py",
        "two.toml --law missing.py:Law",
        "two.toml --store two.toml",
    ],
    "study": ["two.toml --budget 0s", "two.toml --until 2%", "two.toml --until ci95=2%,goodput"],
    "fluid": ["two.toml --seeds 3", "two.toml --step-at 5", "two.toml --compare --step-at 9"],
    "suite": ["rfc7929", "rfc7928 --scenario 5-1-friend", "rfc7928 --page="],
    "replay": ["yours", "pi-pd --page x.md"],
    "figure": ["staqm-13"],
    "compare": ["two.toml missing", ". ."],
    "store": ["show --store nowhere", "export runs.txt", "export"],
    "design": [
        "pj " + LINK,
        "pi --rate 15Mbit/s --flows 60",
        f"pi {LINK} --from none",
        f"pi {LINK} --export x.foo",
        "pi --rate 15Mbit/s --flows 20..60 --rtt 200ms --buffer 500p",
        "pi --rate 15Mbit/s --flows 20..60 --rtt 200ms --set k=1",
        "pi --rate 15Mbit/s --flows x --rtt 200ms",
    ],
    "map": ["pi --rate 5Mbit/s --flows 10..40 --rtt 20ms --points 1"],
    "tune": ["--rate 5Mbit/s --flows 10..40"],
    "identify": ["missing", "two.toml --rtt 0ms", "two.toml --from 5s --to 4s"],
    "validate": ["two.toml --engines packets", "two.toml --engines fluid,ns-3"],
    "detach": ["", "eth0 --stale"],
    "guest": ["setup --hz 7"],
}


@pytest.mark.parametrize("name", CALLS)
def test_messages_are_those_of_the_file(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / "two.toml").write_text(SCENARIO)
    (tmp_path / "text.toml").write_text("[package]\n")
    (tmp_path / "mine.py").write_text("class Law:\n    pass\n")
    before = sorted(tmp_path.iterdir())
    lines = []
    for call in CALLS[name]:
        words = [*([] if name == "forebay" else [name]), *call.split()]
        done = cli(*words)
        assert (done.returncode, done.stdout) == (2, ""), (words, done.stderr)
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
        lines += [
            f"$ forebay {' '.join(words)}\n",
            done.stderr.replace(str(tmp_path), "HERE"),
            "\n",
        ]
    assert [path for path in sorted(tmp_path.iterdir()) if path.name != "__pycache__"] == before
    file = MESSAGES / f"{name}.txt"
    text = "".join(lines)
    if RENEWS:
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text
