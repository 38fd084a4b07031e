"""Print the notes of a release: its section of CHANGELOG.md.

python tools/release_notes.py 0.2.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def release_notes(changelog: str, version: str) -> str:
    """Return the text under the heading of a version; a part without an entry is omitted.

    Raises
    ------
    ValueError
        If the changelog does not have the version, or its section is empty.
    """
    parts = re.split(r"^## (.+)\n", changelog, flags=re.MULTILINE)
    sections = {
        title.split()[0].strip("[]"): text
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    if version not in sections:
        raise ValueError(f'there is no version "{version}", only {", ".join(sections)}')
    kinds = re.split(r"^(?=### )", sections[version], flags=re.MULTILINE)
    parts_with_entries = [
        kind.strip() for kind in kinds if re.search(r"^(?!#)\S", kind, re.MULTILINE)
    ]
    if not parts_with_entries:
        raise ValueError(f"{version} has no entry")
    return "\n\n".join(parts_with_entries) + "\n"


def main() -> int:
    """Run the command line and return its exit status."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(release_notes(CHANGELOG.read_text(), sys.argv[1]), end="")
    except ValueError as error:
        print(f"CHANGELOG.md: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
