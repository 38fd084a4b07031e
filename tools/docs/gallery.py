"""The pictures of `docs/evidence/gallery.md`: runs the commands of the page and takes what they drew.

python -m tools.docs.gallery
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence" / "gallery.md"
SECTION = re.compile(r"^## ", re.MULTILINE)
PICTURE = re.compile(r"!\[[^]]+\]\((?:\.\./)?(images/gallery/[\w-]+\.png)\)")
FILE = re.compile(r"^```toml\n(# ([\w-]+\.toml)\n.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```(?:sh|console)\n(?:\$ )?(forebay .+?)\n```", re.MULTILINE | re.DOTALL)
SOURCE = re.compile(r"`(results/[\w/.-]+\.png)`")


def sections() -> list[str]:
    """The sections of the page, each with a picture and where its command leaves it."""
    return SECTION.split(PAGE.read_text(encoding="utf-8"))[1:]


def draw(folder: Path) -> None:
    """Runs every command in `folder`, and copies its pictures to where the page shows them."""
    for section in sections():
        for text, name in FILE.findall(section):
            (folder / name).write_text(text, encoding="utf-8")
        for command in COMMAND.findall(section):
            print(command, flush=True)
            words = [sys.executable, "-m", "forebay.cli", *command.split()[1:]]
            subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (picture,), (source,) = PICTURE.findall(section), SOURCE.findall(section)
        to = PAGE.parents[1] / picture
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / source, to)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        draw(Path(temporary))
