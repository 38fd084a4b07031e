"""The wheel: it is built, installed into a fresh environment, and used in an empty folder.

Its dependencies are those of the environment that the tests run in, which saves minutes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MATURIN = Path(sys.executable).parent / "maturin"
SCENARIO = (ROOT / "README.md").read_text().partition("# my-link.toml\n")[2].partition("```")[0]

#: The installed command: its output.
Forebay = Callable[..., str]

pytestmark = pytest.mark.skipif(
    not MATURIN.exists() or shutil.which("cargo") is None,
    reason="maturin or cargo is not here: nothing builds a wheel",
)


def run(*words: object, cwd: Path, fails: bool = False, **env: str) -> str:
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == fails, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the Rust that is built already: what is as it was is not compiled again."""
    out = tmp_path_factory.mktemp("dist")
    run(MATURIN, "build", "--release", "--locked", "--out", out, cwd=ROOT)
    (found,) = out.glob("*.whl")
    return found


def test_the_wheel_has_the_first_process_of_guests(wheel: Path) -> None:
    """Git ignores the program, and what Git ignores maturin leaves out unless it is named."""
    program = ROOT / "python/forebay/linux/forebay-guest"
    if not program.exists():
        pytest.skip("`make guest` builds it")
    with zipfile.ZipFile(wheel) as archive:
        entry = archive.getinfo("forebay/linux/forebay-guest")
        assert entry.external_attr >> 16 & 0o111
        assert archive.read(entry) == program.read_bytes()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has nothing of this checkout."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, symlinks=True)
    programs = home / "bin"
    # The newer environment's own files come first; ours by name are the checkout's, and left out.
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    run(
        *(sys.executable, "-m", "pip", "--python", programs / "python", "install"),
        *("--quiet", "--no-deps", "--no-index", wheel),
        cwd=home,
    )
    # A path in a .pth file is searched, but .pth files there, such as the checkout's, are not read.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("empty")


@pytest.fixture
def forebay(installed: Path, empty: Path) -> Forebay:
    def call(*words: object, fails: bool = False) -> str:
        return run(
            installed / "forebay", *words, cwd=empty, fails=fails, XDG_CACHE_HOME=str(empty / "c")
        )

    return call


def test_it_is_the_wheels_and_not_the_checkouts(installed: Path, empty: Path) -> None:
    where = run(installed / "python", "-c", "import forebay; print(forebay.__file__)", cwd=empty)
    assert where.startswith(str(installed.parent))


def test_one_wheel_is_for_every_python_and_has_every_experiment(wheel: Path) -> None:
    assert re.search(r"-cp311-abi3-manylinux_2_\d+_\w+\.whl$", wheel.name), wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    ours = {
        f"forebay/{path.relative_to(ROOT)}"
        for path in (ROOT / "experiments").rglob("*")
        if path.is_file()
    }
    assert len(ours) > 60
    assert {name for name in names if name.startswith("forebay/experiments/")} == ours
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"forebay"}
    assert not [name for name in names if "/tests/" in name or "trace" in Path(name).suffix]
    # docs/install.md says 4 MB.
    assert wheel.stat().st_size < 6e6


def test_the_tour_of_the_readme(forebay: Forebay, empty: Path) -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert forebay("--version").strip() == f"forebay {version}"
    assert "pi-pd" in forebay("laws")
    (empty / "my-link.toml").write_text(SCENARIO)
    short = ["--set", "duration=20s", "--set", 'measure=["10s","20s"]', "--seeds", 1]
    forebay("run", "my-link.toml", *short, "--law", "pi")
    assert (empty / "results" / "my-link" / "report.html").is_file()
    quick = [*short, "--law", "pi", "--no-report"]
    forebay("run", "experiments/pi-pd/load.toml", *quick, "--out", "by-path")
    forebay("run", "pi-pd/load", *quick, "--out", "by-name")
    numbers = [(empty / of / "metrics.json").read_text() for of in ("by-path", "by-name")]
    assert numbers[0].replace("experiments/pi-pd/load.toml", "pi-pd/load") == numbers[1]
    assert "such as pi-pd/load" in forebay("run", "pi-pd/laod", fails=True)
    gains = ["--rate", "15Mbit/s", "--packet", "500B", "--flows", 60, "--rtt", "200ms"]
    assert "phase margin" in forebay("design", "pi", *gains, "--target", "175p")
    assert list((empty / "results" / "design-pi").glob("*.toml"))
    forebay("fluid", "fluid/load-step", "--law", "pi", "--json")


def test_papers_are_replayed(forebay: Forebay, empty: Path) -> None:
    # A slow link has fewer packets; its numbers are not the paper's.
    forebay("replay", "pd-red", "--seeds", 1, "--set", "bottleneck.rate=2Mbit/s")
    page = (empty / "results" / "replay" / "pd-red.html").read_text()
    assert page.count("<svg") > 3
    assert str(empty.parent) not in page


def test_suites_are_found(forebay: Forebay) -> None:
    at = ["--link", "2Mbit/s,10ms", "--seeds", 1, "--json"]
    lines = forebay("suite", "rfc7928", "--scenario", "8-1-mild", "--law", "pi", *at)
    assert json.loads(lines.splitlines()[0])["law"] == "pi"


def test_the_source_distribution_has_what_builds_it(tmp_path: Path) -> None:
    run(MATURIN, "sdist", "--out", tmp_path, cwd=ROOT)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    wanted = {"Cargo.lock", "pyproject.toml", "crates/forebay-py/build.rs", "README.md"}
    assert wanted | {"experiments/pi-pd/load.toml", "experiments/arrivals/uplink.pcap"} <= names


#: Makes of the native module what a build without real traffic has.
WITHOUT_LINK = """
import importlib.util, pathlib, sys
folder = pathlib.Path(importlib.util.find_spec("forebay").origin).parent
spec = importlib.util.spec_from_file_location("forebay._native", next(folder.glob("_native*.so")))
sys.modules["forebay._native"] = _native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(_native)
for name in ("LinkSettings", "LinkReady", "LinkOutcome", "link_run", "link_enter", "link_queue"):
    delattr(_native, name)
from forebay.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "words",
    [["link", "--rate", "1Mbit/s", "--", "true"], ["doctor"], ["validate", "reality/reno"]],
)
def test_a_build_without_linux_says_so_in_one_line(words: list[str], tmp_path: Path) -> None:
    line = run(sys.executable, "-c", WITHOUT_LINK, *words, cwd=tmp_path, fails=True)
    assert line.startswith("link: needs Linux")
    assert line.count("\n") == 1


def test_a_build_without_linux_does_the_rest(tmp_path: Path) -> None:
    assert "--rate" in run(sys.executable, "-c", WITHOUT_LINK, "link", "--help", cwd=tmp_path)
    short = ["--set", "duration=20s", "--set", 'measure=["10s","20s"]', "--seeds", "1", "--json"]
    run(sys.executable, "-c", WITHOUT_LINK, "run", "pi-pd/load", *short, cwd=tmp_path)


@pytest.mark.parametrize("target", ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"])
def test_elsewhere_nothing_of_linux_is_linked(target: str) -> None:
    tree = ["tree", "--locked", "-p", "forebay-py", "-e", "normal", "--prefix", "none"]
    crates = {
        line.split()[0]
        for line in run("cargo", *tree, "--target", target, cwd=ROOT).splitlines()
        if re.match(r"[\w-]+ v\d", line)
    }
    assert {"forebay-sim", "forebay-fluid", "pyo3"} <= crates
    assert not crates & {"forebay-link", "nix", "caps", "netlink-sys"}
