"""The public names of Python and of each crate are listed in `docs/api/`, so that a rename is seen.

A change that is meant renews the lists: `make api`.
"""

from __future__ import annotations

import shutil
from difflib import unified_diff
from pathlib import Path

import pytest

from tools import public_api


def unlisted(name: str, found: str) -> list[str]:
    """How a list differs from what the code has: + for what is new, - for what is gone."""
    file = public_api.FOLDER / f"{name}.txt"
    listed = file.read_text().splitlines()
    return list(unified_diff(listed, found.splitlines(), file.name, "the code", lineterm="", n=0))


def test_every_package_has_a_list() -> None:
    files = {file.stem for file in public_api.FOLDER.glob("*.txt")}
    assert files == {"python", *public_api.crates()}


def test_the_list_of_python_is_that_of_the_code() -> None:
    found = public_api.python_api()
    assert "forebay.run(" in found
    assert unlisted("python", found) == []


# All in one call: what cargo looks up, and what it documents for several, it does once.
@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not here")
def test_the_lists_of_the_crates_are_those_of_the_code() -> None:
    found = public_api.public_api(public_api.crates())
    assert "struct forebay_sim::Session" in found["forebay-sim"]
    differing = {crate: unlisted(crate, text) for crate, text in found.items()}
    assert {crate: lines for crate, lines in differing.items() if lines} == {}


def test_a_rename_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = public_api.python_api()
    monkeypatch.setattr(public_api, "FOLDER", tmp_path)
    (tmp_path / "python.txt").write_text(found.replace("forebay.run(", "forebay.ran("))
    *_, gone, new = unlisted("python", found)
    assert gone.startswith("-forebay.ran(")
    assert new.startswith("+forebay.run(")
