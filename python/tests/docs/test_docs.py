"""The documentation runs: every command, snippet and scenario in README.md and docs/.

Blocks of one page run in order, in one folder of their own: a `toml` block that begins with
`# NAME.toml` is that file, a `python` block shares its names with those before it, and of a
`console` block every line after `$ ` is run.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import guest_marks
import matplotlib
import pytest
from conftest import OWN_PROCESS, command, run_here

from tools import docs

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(m[1], m[2]) for m in BLOCK.finditer(page.read_text())]


def runnable(page: Path) -> bool:
    return any(kind in {"python", "console", "toml"} for kind, _ in blocks(page))


def marks(page: Path) -> list[pytest.MarkDecorator]:
    text = page.read_text()
    return [
        *([pytest.mark.link] if "$ forebay link" in text else []),
        *(guest_marks.MARKS if "$ forebay run cubic.toml --engine kernel" in text else []),
    ]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks(page))
        for page in PAGES
        if runnable(page)
    ],
)
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    monkeypatch.chdir(tmp_path)
    # As a user has it, with the store on.
    monkeypatch.delenv("FOREBAY_STORE", raising=False)
    matplotlib.use("agg")
    names: dict[str, object] = {"__name__": "page"}
    for kind, text in blocks(page):
        if kind == "toml":
            name = re.match(r"# ([\w-]+\.toml)\n", text)
            if name:
                (tmp_path / name[1]).write_text(text)
        elif kind == "console":
            for line in re.findall(r"^\$ (.+)$", text, re.MULTILINE):
                _run(line)
        elif kind == "python":
            exec(compile(text, str(page), "exec"), names)


#: What only a shell does.
SHELL = re.compile(r"[|&;<>$`*?(){}!~#\\]")


def _run(line: str) -> None:
    words = shlex.split(line)
    if words[0] == "forebay" and words[1] not in OWN_PROCESS and not SHELL.search(line):
        here = run_here(command(*words[1:]), Path.cwd())
        assert here.returncode == 0, f"{line}\n{here.stdout}\n{here.stderr}"
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Pages on the project's own tools are read in a checkout.
    modules = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        env={**os.environ, "PATH": path, "PYTHONPATH": modules},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def test_scenario_page_has_a_section_for_each_part_once() -> None:
    titles = re.findall(r"^## (.+)$", docs.pages()["reference/scenario.md"], re.MULTILINE)
    assert len(titles) == len(set(titles))
    assert {"`[bottleneck]`", "`[[traffic]]`", "`[[law]]`", "`[[at]]`", "`[sweep]`"} <= set(titles)
