"""The wheel: built, installed into a fresh environment, and used in an empty folder.

Its dependencies are those of the current environment, which saves minutes. The variable `PROFILE`
names the profile of Cargo; artifacts of that profile are not built again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MATURIN = Path(sys.executable).parent / "maturin"
PROFILE = os.environ.get("PROFILE", "release")
#: Limit of the wheel's size; docs/howto/install.md says 4 MB.
WHEEL_BYTES = 6e6
#: Targets without Linux, and crates that none of them may link.
OTHER_TARGETS = ("x86_64-pc-windows-gnu", "aarch64-apple-darwin")
LINUX_CRATES = {"forebay-link", "nix", "caps", "netlink-sys"}
#: Options of short runs.
SHORT = ("--set", "duration=20s", "--set", 'measure=["10s","20s"]', "--seeds", "1")


class Installation:
    """An environment with the wheel and nothing of this checkout."""

    def __init__(self, home: Path, wheel: Path) -> None:
        venv.create(home / "environment", symlinks=True)
        self.programs = home / "environment" / "bin"
        self.folder = home / "empty"
        self.folder.mkdir()
        pip = (sys.executable, "-m", "pip", "--python", self.programs / "python", "install")
        call(*pip, "--quiet", "--no-deps", "--no-index", wheel, cwd=home)
        packages = sysconfig.get_path("purelib", vars={"base": str(home / "environment")})
        # A path in a .pth file is searched, but .pth files there, as the checkout's, are not read.
        dependencies = f"{sysconfig.get_path('purelib')}\n"
        Path(packages, "dependencies.pth").write_text(dependencies)

    def forebay(self, *words: object, status: int = 0) -> str:
        """Return the output of the installed command."""
        return call(self.programs / "forebay", *words, cwd=self.folder, status=status)


def call(*words: object, cwd: Path, status: int = 0) -> str:
    """Return the output of a program.

    Parameters
    ----------
    *words : object
        The program and its arguments.
    cwd : Path
        The folder in which it runs.
    status : int, default 0
        The expected exit status.

    Raises
    ------
    RuntimeError
        If it ends with another exit status.
    """
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**os.environ, "XDG_CACHE_HOME": str(cwd / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != status:
        line = " ".join(map(str, words))
        raise RuntimeError(f"{line}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check() -> Iterator[str]:
    """Yield every finding about the wheel and the source distribution."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        call(MATURIN, "build", "--profile", PROFILE, "--locked", "--out", folder, cwd=ROOT)
        (wheel,) = folder.glob("*.whl")
        yield from wheel_content(wheel)
        yield from use(Installation(folder, wheel))
        yield from source_distribution(folder)
    for target in OTHER_TARGETS:
        yield from linked_crates(target)


def wheel_content(wheel: Path) -> Iterator[str]:
    """Yield each difference of the wheel's files from those of the checkout."""
    if not re.search(r"-cp311-abi3-manylinux_2_\d+_\w+\.whl$", wheel.name):
        yield f"{wheel.name}: is not for every Python from 3.11"
    if wheel.stat().st_size > WHEEL_BYTES and PROFILE == "release":
        yield f"{wheel.name}: has {wheel.stat().st_size} bytes"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        guest = "forebay/linux/forebay-guest"
        program = ROOT / "python" / guest
        # Git ignores the program, and maturin leaves out what Git ignores unless it is named.
        if program.exists() and (
            guest not in names
            or archive.read(guest) != program.read_bytes()
            or not archive.getinfo(guest).external_attr >> 16 & 0o111
        ):
            yield f"{wheel.name}: lacks the first process of guests"
    experiments = {
        f"forebay/{path.relative_to(ROOT)}"
        for path in (ROOT / "experiments").rglob("*")
        if path.is_file()
    }
    packed = {name for name in names if name.startswith("forebay/experiments/")}
    for file in sorted(experiments ^ packed):
        yield f"{wheel.name}: {file} is {'missing' if file in experiments else 'no experiment'}"
    for file in sorted(names):
        foreign = not file.startswith("forebay/") and ".dist-info" not in file
        if foreign or "/tests/" in file or "trace" in Path(file).suffix:
            yield f"{wheel.name}: has {file}"


def use(installed: Installation) -> Iterator[str]:
    """Yield each way in which the installed command does not do what the README says.

    Raises
    ------
    RuntimeError
        If a command fails.
    """
    forebay, folder = installed.forebay, installed.folder
    python = installed.programs / "python"
    origin = call(python, "-c", "import forebay; print(forebay.__file__)", cwd=folder)
    if not origin.startswith(str(installed.programs.parent)):
        yield f"the environment imports {origin.strip()}"
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    if forebay("--version").strip() != f"forebay {workspace['package']['version']}":
        yield "forebay --version: is not the version of Cargo.toml"
    if "pi-pd" not in forebay("laws"):
        yield "forebay laws: lacks pi-pd"
    readme = (ROOT / "README.md").read_text()
    scenario = readme.partition("# my-link.toml\n")[2].partition("```")[0]
    (folder / "my-link.toml").write_text(scenario)
    forebay("run", "my-link.toml", *SHORT, "--law", "pi")
    if not (folder / "results" / "my-link" / "report.html").is_file():
        yield "forebay run my-link.toml: leaves no report"
    quick = [*SHORT, "--law", "pi", "--no-report"]
    forebay("run", "experiments/pi-pd/load.toml", *quick, "--out", "by-path")
    forebay("run", "pi-pd/load", *quick, "--out", "by-name")
    numbers = [(folder / name / "metrics.json").read_text() for name in ("by-path", "by-name")]
    if numbers[0].replace("experiments/pi-pd/load.toml", "pi-pd/load") != numbers[1]:
        yield "forebay run pi-pd/load: differs from the run by path"
    if "such as pi-pd/load" not in forebay("run", "pi-pd/laod", status=2):
        yield "forebay run pi-pd/laod: proposes no name"
    gains = ("--rate", "15Mbit/s", "--packet", "500B", "--flows", 60, "--rtt", "200ms")
    if "phase margin" not in forebay("design", "pi", *gains, "--target", "175p", "--out", "gains"):
        yield "forebay design: shows no phase margin"
    if not list((folder / "gains").glob("*.toml")):
        yield "forebay design: writes no scenario"
    forebay("fluid", "fluid/load-step", "--law", "pi", "--json")
    # A slow link has fewer packets; its numbers are not the paper's.
    forebay("replay", "pd-red", "--seeds", 1, "--set", "bottleneck.rate=2Mbit/s")
    page = (folder / "results" / "replay" / "pd-red.html").read_text()
    if page.count("<svg") <= 3 or str(folder.parent) in page:
        yield "forebay replay pd-red: its page lacks figures or names a folder of this machine"
    link = ["--link", "2Mbit/s,10ms", "--seeds", 1, "--json"]
    lines = forebay("suite", "rfc7928", "--scenario", "8-1-mild", "--law", "pi", *link)
    if json.loads(lines.splitlines()[0])["law"] != "pi":
        yield "forebay suite rfc7928 --json: the first line is not of pi"


def source_distribution(folder: Path) -> Iterator[str]:
    """Yield each file that the source distribution lacks to be built and used."""
    call(MATURIN, "sdist", "--out", folder, cwd=ROOT)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    needed = ["Cargo.lock", "pyproject.toml", "crates/forebay-py/build.rs", "README.md"]
    needed += ["experiments/pi-pd/load.toml", "experiments/arrivals/uplink.pcap"]
    for name in needed:
        if name not in names:
            yield f"{archive.name}: lacks {name}"


def linked_crates(target: str) -> Iterator[str]:
    """Yield each crate of Linux that the module of another system would link."""
    tree = ["tree", "--locked", "-p", "forebay-py", "-e", "normal", "--prefix", "none"]
    output = call("cargo", *tree, "--target", target, cwd=ROOT)
    crates = {line.split()[0] for line in output.splitlines() if re.match(r"[\w-]+ v\d", line)}
    if not crates >= {"forebay-sim", "forebay-fluid", "pyo3"}:
        yield f"cargo tree --target {target}: lacks the crates of the module"
    for crate in sorted(crates & LINUX_CRATES):
        yield f"crates/forebay-py/Cargo.toml: links {crate} for {target}"
