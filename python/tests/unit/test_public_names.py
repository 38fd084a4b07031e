"""A public name that was renamed is a finding of `tools.check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import public_api
from tools.check import public_names


def test_a_renamed_function_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current = public_api.python_api()
    assert "forebay.run(" in current
    monkeypatch.setattr(public_api, "FOLDER", tmp_path)
    (tmp_path / "python.txt").write_text(current.replace("forebay.run(", "forebay.ran("))
    removed, added = public_names.differences("python", current)
    assert removed.startswith("docs/reference/api/python.txt: -forebay.ran(")
    assert added.startswith("docs/reference/api/python.txt: +forebay.run(")
