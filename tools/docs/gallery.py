"""Draws the pictures in `docs/images/gallery` again, with the commands of the pages that show them.

A page shows such a picture with the command that draws it, and names the file that the command
leaves in a comment below: `<!-- gallery: results/pi-pd-load/figures/queue-1.png -->`.

    python -m tools.docs.gallery
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURE = re.compile(r"!\[[^]]+\]\([./]*(images/gallery/[\w-]+\.png)\)")
SOURCE = re.compile(r"^<!-- gallery: (results/[\w/.-]+\.png) -->$", re.MULTILINE)
FILE = re.compile(r"^```toml\n(# ([\w-]+\.toml)\n.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(forebay (?:run|design|map|fluid) .+)$", re.MULTILINE)


@dataclass(frozen=True)
class Drawing:
    """A picture of a page, and how to draw it.

    Attributes
    ----------
    page : Path
        The page that shows the picture.
    picture : Path
        The picture in `docs/images/gallery`.
    source : str
        The file that the command leaves, relative to the folder in which it runs.
    command : str
        The last command before the comment with `source`.
    """

    page: Path
    picture: Path
    source: str
    command: str


def drawings() -> Iterator[Drawing]:
    """Yield every picture of `docs/images/gallery` that a page shows.

    Raises
    ------
    ValueError
        If a page shows another number of pictures than it names sources, or shows one before any
        command.
    """
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        pictures, sources = PICTURE.findall(text), list(SOURCE.finditer(text))
        if len(pictures) != len(sources):
            raise ValueError(f"{page.relative_to(ROOT)}: a picture of the gallery has no source")
        for picture, source in zip(pictures, sources, strict=True):
            commands = COMMAND.findall(text[: source.start()])
            if not commands:
                raise ValueError(f"{page.relative_to(ROOT)}: no command draws {picture}")
            yield Drawing(page, DOCS / picture, source[1], commands[-1])


def draw(folder: Path) -> None:
    """Run each command once in `folder`, and copy the pictures that it leaves into the gallery.

    Parameters
    ----------
    folder : Path
        An empty folder for the scenarios of the pages and for the results.
    """
    finished: set[str] = set()
    for drawing in drawings():
        for text, name in FILE.findall(drawing.page.read_text(encoding="utf-8")):
            (folder / name).write_text(text, encoding="utf-8")
        if drawing.command not in finished:
            print(drawing.command, flush=True)
            words = [sys.executable, "-m", "forebay", *drawing.command.split()[1:]]
            subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            finished.add(drawing.command)
        drawing.picture.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / drawing.source, drawing.picture)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        draw(Path(temporary))
