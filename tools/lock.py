"""Write `requirements/`: exact versions for pyproject.toml's ranges, for every supported Python.

    python tools/lock.py            # takes today's versions
    python tools/lock.py --keep     # keeps the pinned versions, and adds what is missing
    python tools/lock.py --check    # fails if a supported Python cannot install the pinned versions

One resolution serves all: a package has one version, chosen for the oldest Python, and a marker if
only some Pythons need it. A file has only the packages that are not in the files before it, so that
`make run` installs no linter. pip refuses a file whose hash is not in the lock.
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
#: The supported versions of Python; the oldest is Debian 12's.
PYTHONS = ("3.11.2", "3.12", "3.13", "3.14")
LINUX = "x86_64-unknown-linux-gnu"
#: Platforms on which only the newest Python is checked, since its wheels appear last.
ELSEWHERE = ("aarch64-unknown-linux-gnu", "macos", "windows")
#: Each file, with the file that it includes; the names are those of pyproject.toml's groups.
FILES = {"run": None, "site": None, "test": "site", "lint": "test", "release": None}
#: The files whose packages are already there when a file is installed.
INSTALLED_WITH = {
    "run": [],
    "site": ["run"],
    "test": ["run", "site"],
    "lint": ["run", "site", "test"],
    "release": [],
}
HEAD = "# `make lock` writes this file: what pyproject.toml's ranges came to.\n"


def compile_requirements(*options: object) -> subprocess.CompletedProcess[str]:
    """Resolve requirements with uv; each package must have a wheel, so that nothing is built."""
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
    """Return the options that name the packages of a group.

    The group "run" also has the project and its extras.
    """
    project = ["pyproject.toml", "--all-extras"] if group == "run" else []
    return [*project, "--group", group]


def resolved(*options: object) -> dict[str, str]:
    """Return the entry of each package, with the hashes of its files, for every Python at once."""
    every = ("--universal", "--fork-strategy", "fewest", "--python-version", PYTHONS[0])
    done = compile_requirements("--generate-hashes", *every, *options)
    if done.returncode:
        sys.exit(done.stderr)
    # An entry begins at the margin; its hashes follow on indented lines.
    entries = re.findall(r"^[^\s#].*(?:\n[ \t].*)*", done.stdout, re.M)
    return {entry.partition("\\")[0].strip(): entry for entry in entries}


def write_locks(*, keep: bool) -> None:
    """Resolve every group and write the files."""
    whole = FOLDER / "whole.txt"
    FOLDER.mkdir(exist_ok=True)
    try:
        groups = [word for group in ("lint", "release") for word in ("--group", group)]
        pins = pinned() if keep else {}
        whole.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        packages = resolved(*of_group("run"), *groups, "--constraint", whole)
        whole.write_text("\n".join(packages))
        locked: dict[str, set[str]] = {}
        for name, before in FILES.items():
            entries = resolved(*of_group(name), "--constraint", whole)
            former = set().union(*(locked[companion] for companion in INSTALLED_WITH[name]))
            head = HEAD + (f"-r {before}.lock\n" if before else "")
            new = [entry for package, entry in entries.items() if package not in former]
            (FOLDER / f"{name}.lock").write_text(head + "".join(f"{entry}\n" for entry in new))
            locked[name] = set(entries)
    finally:
        whole.unlink(missing_ok=True)


def pinned() -> dict[str, str]:
    """Return the pinned version of every package."""
    pins: dict[str, str] = {}
    for file in FOLDER.glob("*.lock"):
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", file.read_text(), re.M):
            if pins.setdefault(name, version) != version:
                sys.exit(f"requirements/: {name} is pinned to {pins[name]} and to {version}")
    return pins


def faults_of(python: str, platform: str) -> list[str]:
    """Return what a Python lacks on a platform: a wheel, a fitting version, or a pin."""
    pins = pinned()
    where = ("--python-version", python, "--python-platform", platform)
    # The pins are constraints, so any other package in the resolution is a new one.
    locks = [word for name in FILES for word in ("--constraint", FOLDER / f"{name}.lock")]
    groups = ("--group", "lint", "--group", "release")
    done = compile_requirements(*where, *of_group("run"), *groups, *locks)
    if done.returncode:
        return [f"Python {python}, {platform}: {done.stderr.strip()}"]
    needed = dict(re.findall(r"^([\w.-]+)==(\S+)", done.stdout, re.M))
    return [
        f"Python {python}, {platform}: {name} {version} is not in requirements/"
        for name, version in needed.items()
        if pins.get(name) != version
    ]


def check_locks() -> int:
    """Check every supported Python, print the faults, and return an exit status."""
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
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        return check_locks()
    write_locks(keep=arguments.keep)
    return check_locks()


if __name__ == "__main__":
    sys.exit(main())
