"""The Python blocks of README and docs agree with the types of the package.

A test runs every block, which takes minutes; this check needs seconds, and finds a name that the
package no longer has. The blocks of a page are one module, at the lines that they have in the page.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: A page shows how to use results that are there, so None is not looked for; a name may stand
#: for something else in a later block.
OPTIONS = (
    "--config-file=",
    "--no-strict-optional",
    "--allow-redefinition",
    "--follow-imports=silent",
    "--cache-dir=.mypy_cache/snippets",
)
FINDING = re.compile(r"(?P<module>\w+)\.py:(?P<line>\d+): error: (?P<text>.*)")


def module(text: str) -> str:
    """Return the Python blocks of a page, with an empty line for every other line."""
    lines, python = [], False
    for line in text.splitlines():
        fence = line.startswith("```")
        lines.append(line if python and not fence else "")
        if fence:
            python = line == "```python"
    return "\n".join(lines) + "\n"


def check(root: Path = ROOT) -> Iterator[str]:
    """Yield a finding for each block that the type checker refuses."""
    with tempfile.TemporaryDirectory() as folder:
        pages = {}
        for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
            if (code := module(page.read_text(encoding="utf-8"))).strip():
                name = str(page.relative_to(root))
                file = Path(folder, re.sub(r"\W", "_", name) + ".py")
                file.write_text(code, encoding="utf-8")
                pages[file.stem] = name
        files = [str(Path(folder, f"{stem}.py")) for stem in pages]
        answer = subprocess.run(
            [sys.executable, "-m", "mypy", *OPTIONS, *files],
            check=False,
            cwd=ROOT,
            env={"MYPYPATH": "python:."},
            capture_output=True,
            text=True,
        )
    for line in answer.stdout.splitlines():
        if (finding := FINDING.search(line)) and finding["module"] in pages:
            yield f"{pages[finding['module']]}:{finding['line']}: {finding['text']}"
    if answer.returncode not in (0, 1):
        yield answer.stdout + answer.stderr
