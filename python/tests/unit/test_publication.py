"""Files that appear whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from forebay._base.publication import publication, publish, publish_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_each_kind_of_content_is_written_as_its_name_says(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1, 2]})
    written = publish(
        tmp_path / "new" / "out",
        {
            "text.md": "µ\n",
            "raw.png": b"\x89",
            "values.json": {"a": [1, None]},
            "table.parquet": frame,
            "table.csv": frame,
            "own.txt": lambda path: path.write_text("by itself"),
        },
    )
    assert [path.name for path in written] == [
        *("text.md", "raw.png", "values.json", "table.parquet", "table.csv", "own.txt")
    ]
    text, raw, values, table, csv, own = written
    assert text.read_bytes() == "µ\n".encode()
    assert raw.read_bytes() == b"\x89"
    assert json.loads(values.read_text()) == {"a": [1, None]}
    assert pl.read_parquet(table).equals(frame) and pl.read_csv(csv).equals(frame)
    assert own.read_text() == "by itself"
    assert names(tmp_path / "new") == ["out"]
    # As any folder that is made.
    (tmp_path / "other").mkdir()
    assert text.parent.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_failed_publication_leaves_the_folder_unchanged(tmp_path: Path) -> None:
    publish(tmp_path / "out", {"a.txt": "old", "b.txt": "old"})

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device", str(path))

    with pytest.raises(OSError, match="No space"):
        publish(tmp_path / "out", {"a.txt": "new", "c.txt": fail}, replaces=["b.txt"])
    assert names(tmp_path / "out") == ["a.txt", "b.txt"]
    assert (tmp_path / "out" / "a.txt").read_text() == "old"
    with pytest.raises(OSError, match="No space"):
        publish(tmp_path / "none" / "out", {"c.txt": fail})
    assert names(tmp_path) == ["out"]


def test_former_files_go_and_others_stay(tmp_path: Path) -> None:
    publish(tmp_path, {"figures": lambda path: path.mkdir(), "old-1.png": b"", "mine.txt": "kept"})
    publish(tmp_path, {"old-2.png": b""}, replaces=["old-*.png", "figures"])
    assert names(tmp_path) == ["mine.txt", "old-2.png"]


def test_an_interruption_keeps_only_the_folder_named_by_keep(tmp_path: Path) -> None:
    for keep, left in [("figures", ["figures"]), ("", [])]:
        out = tmp_path / (keep or "nothing")
        with pytest.raises(KeyboardInterrupt), publication(out, keep=keep) as unfinished:
            (unfinished / "figures").mkdir()
            (unfinished / "figures" / "a.png").write_bytes(b"")
            raise KeyboardInterrupt
        assert (names(out) if out.exists() else []) == left


def test_links_and_devices_are_written_and_not_replaced(tmp_path: Path) -> None:
    real, link = tmp_path / "real.md", tmp_path / "link.md"
    real.write_text("old")
    link.symlink_to(real)
    publish_file(link, "new")
    assert link.is_symlink() and real.read_text() == "new"
    publish_file(Path("/dev/null"), "gone")
    assert not Path("/dev/null").is_file()
    publish_file(tmp_path / "plain.md", "text")
    assert (tmp_path / "plain.md").read_text() == "text"
    assert names(tmp_path) == ["link.md", "plain.md", "real.md"]


def test_an_open_folder_and_its_own_folders_stay_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    publish(out, {"a.txt": "old", "b.txt": "old"})
    before = out.stat().st_ino
    monkeypatch.chdir(out)
    publish(out, {"a.txt": "new"}, replaces=["*.txt"])
    assert (out.stat().st_ino, names(out)) == (before, ["a.txt"])
    monkeypatch.chdir(tmp_path)
    (out / "own").mkdir()
    publish(out, {"c.txt": "new"}, replaces=["*.txt"])
    assert (out.stat().st_ino, names(out)) == (before, ["c.txt", "own"])
    (out / "own").rmdir()
    publish(out, {"d.txt": "new"}, replaces=["*.txt"])
    assert out.stat().st_ino != before
    assert (names(out), names(tmp_path)) == (["d.txt"], ["out"])
