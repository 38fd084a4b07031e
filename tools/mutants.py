"""Print what tests noticed of the mutants of a crate: a table of its files, and the survivors.

python -m tools.mutants target/mutants.out

`make mutants` runs `cargo mutants`, which writes the folder, and then this. Of several folders, the
later ones replace the outcomes of the same mutants in the earlier ones.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

#: Outcomes of a mutant as cargo-mutants names them, with the headings of their columns.
OUTCOMES = {
    "CaughtMutant": "caught",
    "Timeout": "timed out",
    "MissedMutant": "missed",
    "Unviable": "does not compile",
}


def outcomes(folders: Iterable[Path]) -> dict[str, tuple[str, str]]:
    """Return the file and the outcome of each mutant, by the mutant's name.

    Raises
    ------
    OSError
        If a folder has no outcomes.
    """
    by_name = {}
    for folder in folders:
        for outcome in json.loads((folder / "outcomes.json").read_text())["outcomes"]:
            if outcome["scenario"] != "Baseline":
                mutant = outcome["scenario"]["Mutant"]
                by_name[mutant["name"]] = (mutant["file"], outcome["summary"])
    return by_name


def table(by_name: Mapping[str, tuple[str, str]]) -> str:
    """Return a Markdown table with the outcomes of the mutants of each file, and of all files.

    A mutant that does not end is noticed, and one that does not compile is not counted.
    """
    rows = {}
    for file in sorted({file for file, _ in by_name.values()}):
        rows[f"`{file}`"] = Counter(summary for of, summary in by_name.values() if of == file)
    rows["all"] = Counter(summary for _, summary in by_name.values())
    lines = [
        f"| file | mutants | {' | '.join(OUTCOMES.values())} | noticed |",
        f"|---|{'---|' * (len(OUTCOMES) + 2)}",
    ]
    for name, counts in rows.items():
        noticed = counts["CaughtMutant"] + counts["Timeout"]
        viable = noticed + counts["MissedMutant"]
        numbers = " | ".join(str(counts[outcome]) for outcome in OUTCOMES)
        share = f"{100 * noticed / viable:.0f} %" if viable else ""
        lines.append(f"| {name} | {counts.total()} | {numbers} | {share} |")
    return "\n".join(lines)


def main() -> int:
    """Run the command line and return its exit status."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        by_name = outcomes(Path(folder) for folder in sys.argv[1:])
    except OSError as error:
        print(f"{error.filename}: {error.strerror}; run `make mutants` first", file=sys.stderr)
        return 2
    print(table(by_name))
    survivors = sorted(name for name, (_, summary) in by_name.items() if summary == "MissedMutant")
    if survivors:
        print("\nNo test noticed:", *survivors, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
