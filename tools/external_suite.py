"""Writes `crates/forebay-net/rfc7928/`: the scenarios of RFC 7928 for a transport under test.

    python -m tools.external_suite

The first bulk flows of a scenario become external traffic: a program sends their packets. A sweep
becomes a file for each of its points. `test_transport_network.py` compares the files with what this
writes, and the list in `src/rfc7928.rs` with the files.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import tomlkit

ROOT = Path(__file__).parents[1]
SUITE = ROOT / "experiments" / "rfc7928"
FOLDER = ROOT / "crates" / "forebay-net" / "rfc7928"

#: Scenarios of a sender that the transport takes the place of, or whose flows the scenario starts.
LEFT_OUT = {"4-5-dctcp", "8-4-load", "suite"}
#: What external traffic has of the flows in whose place it is.
KEPT = ("flows", "packet", "rtt", "path", "access")


def scenarios() -> dict[str, str]:
    """The text of each file, by its name."""
    found = {}
    for path in sorted(SUITE.glob("*.toml")):
        if path.stem in LEFT_OUT:
            continue
        text = path.read_text()
        sweep = tomllib.loads(text).get("sweep")
        if sweep is None:
            found[path.stem] = external(text)
            continue
        [(keys, rows)] = sweep.items()
        for row in rows:
            settings = dict(zip((key.strip() for key in keys.split(",")), row, strict=True))
            found[f"{path.stem}-{row[0]}"] = external(text, settings)
    return found


def external(text: str, settings: dict[str, Any] | None = None) -> str:
    """A scenario whose first bulk flows are external, at a point of its sweep."""
    document: Any = tomlkit.parse(text)
    traffic = document["traffic"]
    number = next(i for i, table in enumerate(traffic) if table["kind"] == "ftp")
    # On a line of its own, without the comments of the flows that were there.
    table = tomlkit.table()
    table["kind"] = "external"
    for key in KEPT:
        if key in traffic[number]:
            table[key] = traffic[number][key].unwrap()
    table.add(tomlkit.nl())
    traffic[number] = table
    for path, value in (settings or {}).items():
        *where, key = path.split(".")
        of = document["bottleneck"] if where == ["bottleneck"] else by_label(traffic, where[1])
        of[key] = value
    document.pop("sweep", None)
    return "\n".join(line.rstrip() for line in tomlkit.dumps(document).splitlines()) + "\n"


def by_label(traffic: Any, label: str) -> Any:
    return next(table for table in traffic if table.get("label") == label)


def write() -> None:
    found = scenarios()
    for path in FOLDER.glob("*.toml"):
        path.unlink()
    for name, text in found.items():
        (FOLDER / f"{name}.toml").write_text(text)


if __name__ == "__main__":
    write()
