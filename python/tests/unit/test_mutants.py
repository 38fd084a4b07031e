"""The table of the mutants that tests noticed."""

import json
from pathlib import Path

from tools import mutants


def write_outcomes(folder: Path, summaries: dict[str, str]) -> Path:
    """Write outcomes as cargo-mutants does, each for a mutant `file: change`."""
    folder.mkdir()
    scenarios: list[tuple[object, str]] = [("Baseline", "Success")]
    for name, summary in summaries.items():
        scenarios.append(({"Mutant": {"name": name, "file": name.split(":")[0]}}, summary))
    listed = [{"scenario": scenario, "summary": summary} for scenario, summary in scenarios]
    (folder / "outcomes.json").write_text(json.dumps({"outcomes": listed}))
    return folder


def test_the_table_counts_the_outcomes_of_each_file_and_of_all(tmp_path: Path) -> None:
    first = {
        "a.rs: + by -": "CaughtMutant",
        "a.rs: < by <=": "MissedMutant",
        "a.rs: *= by /=": "Timeout",
        "b.rs: f by Default": "Unviable",
        "b.rs: * by +": "MissedMutant",
    }
    folders = [
        write_outcomes(tmp_path / "first", first),
        write_outcomes(tmp_path / "second", {"b.rs: * by +": "CaughtMutant"}),
    ]
    assert mutants.table(mutants.outcomes(folders)).splitlines() == [
        "| file | mutants | caught | timed out | missed | does not compile | noticed |",
        "|---|---|---|---|---|---|---|",
        "| `a.rs` | 3 | 1 | 1 | 1 | 0 | 67 % |",
        "| `b.rs` | 2 | 1 | 0 | 0 | 1 | 100 % |",
        "| all | 5 | 2 | 1 | 1 | 1 | 75 % |",
    ]
