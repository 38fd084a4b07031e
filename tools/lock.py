"""Writes `requirements/`: what pyproject.toml's ranges come to, exactly, for every Python promised.

    python tools/lock.py            # takes today's versions
    python tools/lock.py --check    # fails where a promised Python cannot install what is pinned

One resolution serves all: a package has one version, chosen for the oldest Python, and a marker
where only some need it. A file holds what is not in those before it, so that `make run` installs
no linter.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
#: The oldest is Debian 12's.
PYTHONS = ("3.11.2", "3.12", "3.13", "3.14")
LINUX = "x86_64-unknown-linux-gnu"
#: Of these the newest alone: wheels come late for it.
ELSEWHERE = ("aarch64-unknown-linux-gnu", "macos", "windows")
#: Each file, with the one that it goes on from; they have the names of pyproject.toml's groups.
FILES = {"run": None, "site": None, "test": "site", "lint": "test"}
HEAD = "# `make lock` writes this file: what pyproject.toml's ranges came to.\n"


def compile_requirements(*options: object) -> subprocess.CompletedProcess[str]:
    """What uv resolves, without a build of any package: a wheel must be there."""
    words = ["pip", "compile", "--quiet", "--no-annotate", "--no-header", "--only-binary", ":all:"]
    return subprocess.run(
        [Path(sys.executable).with_name("uv"), *words, *map(str, options)],
        cwd=ROOT,
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"},
        capture_output=True,
        text=True,
        check=False,
    )


def of_group(group: str) -> list[str]:
    """The options that name a group's packages; to run, the project and its extras, too."""
    project = ["pyproject.toml", "--all-extras"] if group == "run" else []
    return [*project, "--group", group]


def resolved(*options: object) -> list[str]:
    """Lines of all packages, for every Python at once."""
    every = ("--universal", "--fork-strategy", "fewest", "--python-version", PYTHONS[0])
    done = compile_requirements(*every, *options)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout.splitlines()


def write_locks() -> None:
    whole = FOLDER / "whole.txt"
    FOLDER.mkdir(exist_ok=True)
    try:
        whole.write_text("\n".join(resolved(*of_group("run"), "--group", "lint")))
        seen: set[str] = set()
        for name, before in FILES.items():
            lines = resolved(*of_group(name), "--constraint", whole)
            head = HEAD + (f"-r {before}.lock\n" if before else "")
            new = [line for line in lines if line not in seen]
            (FOLDER / f"{name}.lock").write_text(head + "".join(f"{line}\n" for line in new))
            seen.update(lines)
    finally:
        whole.unlink(missing_ok=True)


def pinned() -> dict[str, str]:
    """The version of every package, by its name."""
    pins: dict[str, str] = {}
    for file in FOLDER.glob("*.lock"):
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", file.read_text(), re.M):
            if pins.setdefault(name, version) != version:
                sys.exit(f"requirements/: {name} is pinned to {pins[name]} and to {version}")
    return pins


def faults_of(python: str, platform: str) -> list[str]:
    """What a Python lacks on a platform: a wheel, a version that allows it, or a pin."""
    pins = pinned()
    where = ("--python-version", python, "--python-platform", platform)
    # The pins constrain, and whatever they need beside them would be new.
    locks = [word for name in FILES for word in ("--constraint", FOLDER / f"{name}.lock")]
    done = compile_requirements(*where, *of_group("run"), "--group", "lint", *locks)
    if done.returncode:
        return [f"Python {python}, {platform}: {done.stderr.strip()}"]
    needed = dict(re.findall(r"^([\w.-]+)==(\S+)", done.stdout, re.M))
    return [
        f"Python {python}, {platform}: {name} {version} is not in requirements/"
        for name, version in needed.items()
        if pins.get(name) != version
    ]


def check_locks() -> int:
    promised = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    if not f"{PYTHONS[0]}.".startswith(promised.removeprefix(">=") + "."):
        sys.exit(f"tools/lock.py: the oldest Python is {PYTHONS[0]}, pyproject.toml: {promised}")
    cases = [(python, LINUX) for python in PYTHONS]
    cases += [(PYTHONS[-1], platform) for platform in ELSEWHERE]
    with ThreadPoolExecutor(2) as pool:
        lists = pool.map(lambda case: faults_of(*case), cases)
        faults = [fault for faults in lists for fault in faults]
    print(
        "\n".join(faults)
        or f"requirements/: {len(pinned())} packages serve Python {', '.join(PYTHONS)}"
    )
    return bool(faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        return check_locks()
    write_locks()
    return check_locks()


if __name__ == "__main__":
    sys.exit(main())
