"""Make the profile with which a wheel is optimised for the runs of `bench/train.py`.

    python -m tools.training .make/forebay.profdata

An instrumented module is built with the linker of the system, and executes the training runs. The
wheel is then built with `RUSTFLAGS=-Cprofile-use=FILE`, by any linker. `maturin build --pgo` would
use one linker for both builds, and that of ziglang links no instrumented module.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: A folder of its own, so that other builds are not compiled again with other flags.
TARGET = ROOT / "target" / "training"


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.training", description=__doc__)
    parser.add_argument("profile", type=Path, help="file for the merged profile")
    arguments = parser.parse_args()
    merge = profdata_program()
    if not merge.exists():
        remedy = "install it with: rustup component add llvm-tools"
        print(f"{merge} is missing; {remedy}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        site = Path(folder) / "site"
        build_instrumented(site, counts)
        call([sys.executable, "bench/train.py"], PYTHONPATH=str(site))
        arguments.profile.parent.mkdir(parents=True, exist_ok=True)
        call([merge, "merge", "--output", arguments.profile.absolute(), counts])
    print(arguments.profile)
    return 0


def build_instrumented(site: Path, counts: Path) -> None:
    """Build a module that counts what it executes, and unpack it.

    Parameters
    ----------
    site : Path
        Folder for the unpacked package, to be put into Python's path.
    counts : Path
        Folder into which every process that loads the module writes its counts.
    """
    wheels = site.with_name("wheels")
    # With a target, cargo gives the flags to the module and not to programs of the build.
    options = ["--release", "--locked", "--target", host(), "--out", str(wheels)]
    call(
        [sys.executable, "-m", "maturin", "build", *options],
        RUSTFLAGS=f"-Cprofile-generate={counts}",
        CARGO_TARGET_DIR=str(TARGET),
    )
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)


def profdata_program() -> Path:
    """Return the path of rustup's `llvm-profdata`, whose format is that of the compiler."""
    root = subprocess.run(
        ["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True
    ).stdout.strip()
    suffix = ".exe" if os.name == "nt" else ""
    return Path(root) / "lib" / "rustlib" / host() / "bin" / f"llvm-profdata{suffix}"


def host() -> str:
    """Return the compiler's name of this machine, such as x86_64-unknown-linux-gnu."""
    version = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    line = re.search(r"^host: (\S+)$", version, re.MULTILINE)
    assert line, version
    return line[1]


def call(words: Sequence[str | Path], **environment: str) -> None:
    """Run a command at the root of the checkout, and raise CalledProcessError if it fails."""
    subprocess.run(words, cwd=ROOT, env={**os.environ, **environment}, check=True)


if __name__ == "__main__":
    sys.exit(main())
