"""Write `crates/forebay-net/rfc7928/`: the scenarios of RFC 7928 for a transport under test.

    python -m tools.external_suite

The first bulk flows of a scenario become external traffic, whose packets a program sends. A sweep
becomes a file for each of its points. `test_transport_network.py` compares the files with the
output of this module, and the list in `src/rfc7928.rs` with the files.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import tomlkit

ROOT = Path(__file__).parents[1]
SUITE = ROOT / "experiments" / "rfc7928"
FOLDER = ROOT / "crates" / "forebay-net" / "rfc7928"

#: Scenarios about a certain sender, which the transport replaces, or about starts of flows.
LEFT_OUT = {"4-5-dctcp", "8-4-load", "suite"}
#: The keys that external traffic takes from the flows that it replaces.
KEPT = ("flows", "packet", "rtt", "path", "access")


def scenarios() -> dict[str, str]:
    """Return the text of each file by its name."""
    texts = {}
    for path in sorted(SUITE.glob("*.toml")):
        if path.stem in LEFT_OUT:
            continue
        text = path.read_text()
        sweep = tomllib.loads(text).get("sweep")
        if sweep is None:
            texts[path.stem] = external(text)
            continue
        [(keys, rows)] = sweep.items()
        for row in rows:
            settings = dict(zip((key.strip() for key in keys.split(",")), row, strict=True))
            texts[f"{path.stem}-{row[0]}"] = external(text, settings)
    return texts


def external(text: str, settings: dict[str, Any] | None = None) -> str:
    """Return a scenario whose first bulk flows are external, at a point of its sweep."""
    document: Any = tomlkit.parse(text)
    traffic = document["traffic"]
    number = next(i for i, table in enumerate(traffic) if table["kind"] == "ftp")
    # The new table is on a line of its own, without the comments of the flows that it replaces.
    table = tomlkit.table()
    table["kind"] = "external"
    for key in KEPT:
        if key in traffic[number]:
            table[key] = traffic[number][key].unwrap()
    table.add(tomlkit.nl())
    traffic[number] = table
    for path, value in (settings or {}).items():
        *where, key = path.split(".")
        table_of_key = (
            document["bottleneck"] if where == ["bottleneck"] else by_label(traffic, where[1])
        )
        table_of_key[key] = value
    document.pop("sweep", None)
    return "\n".join(line.rstrip() for line in tomlkit.dumps(document).splitlines()) + "\n"


def by_label(traffic: Any, label: str) -> Any:
    """Return the table of the traffic with this label."""
    return next(table for table in traffic if table.get("label") == label)


def write() -> None:
    """Write the files."""
    texts = scenarios()
    for path in FOLDER.glob("*.toml"):
        path.unlink()
    for name, text in texts.items():
        (FOLDER / f"{name}.toml").write_text(text)


if __name__ == "__main__":
    write()
