"""What `make` sets up: Rust in the clone, programs, exact versions; and release notes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import lock
from tools.release_notes import release_notes

ROOT = Path(__file__).parents[3]
SETUP = ROOT / "tools" / "setup.sh"
#: All that the script calls of the system; no compiler, apt, Rust or sudo.
CALLED = (
    "sh id uname cut tail head grep sed sort tr mkdir rm chmod cat sha256sum ldd dirname python3"
)

#: Stands for rustup-init: installs a cargo that says where its homes are.
INIT = """\
#!/bin/sh
echo "$@" > "$CARGO_HOME.called"
mkdir -p "$CARGO_HOME/bin"
printf '#!/bin/sh\\necho "$CARGO_HOME $RUSTUP_HOME $1"\\n' > "$CARGO_HOME/bin/cargo"
chmod +x "$CARGO_HOME/bin/cargo"
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder for PATH with the commands that every system has."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in CALLED.split():
        # A version manager's shim of Python needs more than these.
        base = Path(sys.base_prefix, "bin", "python3")
        found = base if name == "python3" else shutil.which(name)
        assert found, name
        (folder / name).write_text(f'#!/bin/sh\nexec {found} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def setup(bare: Path, *words: object, **env: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", SETUP, *map(str, words)],
        env={"PATH": str(bare), "HOME": "/nowhere"}
        | {name: str(value) for name, value in env.items()},
        capture_output=True,
        text=True,
        check=False,
    )


def fetched(folder: Path, **changed: str) -> dict[str, str]:
    """The variables by which the Makefile says what is fetched, with an address on this disk."""
    machine = os.uname().machine
    place = folder / "archive" / "1.2.3" / f"{machine}-unknown-linux-gnu"
    place.mkdir(parents=True)
    (place / "rustup-init").write_text(INIT)
    digest = hashlib.sha256(INIT.encode()).hexdigest()
    return {
        "RUST": "1.95.0",
        "RUSTUP": (folder / "archive").as_uri(),
        "RUSTUP_VERSION": "1.2.3",
        "RUSTUP_SHA256": f"other=00 {machine}={digest}",
        **changed,
    }


def answer(bare: Path, name: str, text: str) -> None:
    (bare / name).write_text(f"#!/bin/sh\necho '{text}'\n")
    (bare / name).chmod(0o755)


def test_rust_comes_into_the_clone_and_nowhere_else(bare: Path, tmp_path: Path) -> None:
    folder = tmp_path / "clone" / ".rust"
    done = setup(bare, "rust", folder, "1.88", **fetched(tmp_path))
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("Rust: found none, needed 1.88; fetching 1.95.0 into ")
    assert "--no-modify-path" in (folder / "cargo.called").read_text()
    # By a wrapper, which goes where the clone goes.
    moved = folder.parent.rename(tmp_path / "moved") / ".rust"
    told = subprocess.run(
        [moved / "bin" / "cargo", "build"], capture_output=True, text=True, check=True
    )
    assert told.stdout == f"{moved}/cargo {moved}/rustup build\n"


@pytest.mark.parametrize(("version", "fetches"), [("1.9.0", True), ("1.88.0", False)])
def test_rust_that_is_new_enough_stays(
    bare: Path, tmp_path: Path, version: str, fetches: bool
) -> None:
    answer(bare, "rustc", f"rustc {version} (0123456 2025-01-01)")
    answer(bare, "cargo", f"cargo {version}")
    done = setup(bare, "rust", tmp_path / ".rust", "1.88", **fetched(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (f"found {version}, needed 1.88" in done.stdout) == fetches
    assert (tmp_path / ".rust" / "bin" / "cargo").exists() == fetches


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"RUSTUP": "file:///nowhere"}, "not fetched"),
        ({"RUSTUP_SHA256": f"{os.uname().machine}={'0' * 64}"}, "is not the file"),
        ({"RUSTUP_SHA256": "other=00"}, "nothing to fetch for"),
    ],
)
def test_without_rust_one_line_says_what_to_install(
    bare: Path, tmp_path: Path, changed: dict[str, str], why: str
) -> None:
    done = setup(bare, "rust", tmp_path / ".rust", "1.88", **fetched(tmp_path, **changed))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert why in line
    assert "install Rust 1.88 or newer" in line
    assert not (tmp_path / ".rust" / "cargo").exists()


def test_a_missing_program_is_named_with_its_package(bare: Path) -> None:
    done = setup(bare, "programs", "needed", "cc=gcc,libc6-dev", "sh=dash")
    assert done.returncode == 1
    assert done.stderr == (
        "missing: cc; install them, then try again (Debian: apt-get install gcc libc6-dev)\n"
    )
    done = setup(bare, "programs", "tests", "ps=procps", "iperf3=iperf3")
    assert done.returncode == 0
    assert done.stdout == (
        "not installed: ps iperf3; tests that need them are skipped"
        " (Debian: apt-get install procps iperf3)\n"
    )


def test_python_that_is_too_old_is_named(bare: Path, tmp_path: Path) -> None:
    done = setup(bare, "venv", tmp_path / "venv", "3.99", PYTHON="python3")
    assert done.returncode == 1
    assert re.fullmatch(r"Python: found 3\.\S+, needed 3\.99 or newer; .*\n", done.stderr)


def test_what_the_lint_group_needs_stays_out_of_a_run() -> None:
    """`make lock-check` resolves; this looks where packages stand."""
    names = {
        name: set(re.findall(r"^([\w.-]+)==", (lock.FOLDER / f"{name}.lock").read_text(), re.M))
        for name in lock.FILES
    }
    assert {"maturin", "polars", "numpy"} <= names["run"]
    assert "mypy" in names["lint"]
    assert "pytest" in names["test"]
    assert not names["run"] & {"mypy", "ruff", "pytest", "mkdocs", "playwright", "uv"}
    assert lock.pinned().keys() == set().union(*names.values())


def test_release_notes_are_the_section_of_a_version() -> None:
    text = (
        "# Changelog\n\n## Unreleased\n\n### Added\n\n### Fixed\n"
        "\n## 0.2.0 - 2026-12-01\n\n### Added\n- One thing,\n  in two lines.\n\n### Changed\n"
        "\n## [0.1.0] - 2026-01-01\n\n### Added\n- All.\n"
    )
    assert release_notes(text, "0.2.0") == "### Added\n- One thing,\n  in two lines.\n"
    assert release_notes(text, "0.1.0") == "### Added\n- All.\n"
    with pytest.raises(ValueError, match="Unreleased has no entry"):
        release_notes(text, "Unreleased")
    with pytest.raises(ValueError, match=r'no version "0\.3\.0", only Unreleased'):
        release_notes(text, "0.3.0")
