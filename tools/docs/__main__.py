"""Writes every generated page into the folder that the command line names."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.docs import pages


def main() -> None:
    """Write the pages and print their paths."""
    folder = Path(sys.argv[1])
    for name, text in pages().items():
        (folder / name).write_text(text)
        print(folder / name)


if __name__ == "__main__":
    main()
