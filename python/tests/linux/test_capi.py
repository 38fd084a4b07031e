"""The library for C: installed as a user would, its example in C, and the same through ctypes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

import forebay

ROOT = Path(__file__).parents[3]
TOOLS = ("cargo", "make", "cc", "pkg-config")

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in TOOLS), reason=f"needs {', '.join(TOOLS)}"
)


def run(*command: object, **env: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the library is installed; of the profile that the tests of Rust have built."""
    prefix = tmp_path_factory.mktemp("capi") / "usr"
    run("make", "capi-install", "CAPI_PROFILE=test", f"PREFIX={prefix}")
    return prefix


@pytest.fixture(scope="module")
def example(prefix: Path) -> Path:
    """The example in C, built as its first lines say."""
    where = prefix / "lib" / "pkgconfig"
    flags = run("pkg-config", "--cflags", "--libs", "forebay", PKG_CONFIG_PATH=str(where))
    program = prefix / "queue"
    source = ROOT / "examples" / "capi" / "queue.c"
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1"]
    run("cc", *strict, source, *flags.split(), "-lm", "-o", program)
    return program


def test_a_shell_needs_the_lines_that_the_installation_prints(tmp_path: Path) -> None:
    """Under a prefix where nobody looks, as `$HOME/.local`."""
    home = tmp_path / "home" / ".local"
    printed = run("make", "capi-install", "CAPI_PROFILE=test", f"PREFIX={home}")
    exports = re.findall(r"^export .*$", printed, re.MULTILINE)
    assert len(exports) == 2
    source, program = ROOT / "examples" / "capi" / "queue.c", tmp_path / "queue"
    build = f'cc "{source}" $(pkg-config --cflags --libs forebay) -lm -o "{program}"'
    # The first line is for compilers; the program knows where the library was.
    shell = ["sh", "-euc", "\n".join([exports[0], build])]
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(shell, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([program, "pie"], env=bare, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("arrived "), done.stderr
    # The second line is for programs that load it while they run.
    load = f"{exports[1]}\n{sys.executable} -c 'import ctypes; ctypes.CDLL(\"libforebay.so\")'"
    done = subprocess.run(
        ["sh", "-euc", load], env=bare, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # What is packed for others says nothing of a shell here.
    packed = run(
        "make", "capi-install", "CAPI_PROFILE=test", "PREFIX=/usr", f"DESTDIR={tmp_path / 'root'}"
    )
    assert "export" not in packed
    config = (tmp_path / "root" / "usr" / "lib" / "pkgconfig" / "forebay.pc").read_text()
    assert "rpath" not in config


@cache
def through_rust() -> dict[str, str]:
    """What the same loop counts without the interface of C, by law."""
    command = ["cargo", "test", "--quiet", "-p", "forebay-capi", "--test", "bottleneck"]
    # Alone, so that no other test writes in between.
    out = run(*command, "every_law", "--", "--nocapture")
    return dict(re.findall(r"^([\w-]+): (arrived .*)$", out, re.MULTILINE))


@pytest.mark.parametrize("law", [law["name"] for law in forebay.laws()])
def test_the_example_counts_as_rust_does(example: Path, prefix: Path, law: str) -> None:
    counts = run(example, law, LD_LIBRARY_PATH=str(prefix / "lib"))
    assert counts.strip() == through_rust()[law]


def test_a_wrong_setting_is_a_line(example: Path, prefix: Path) -> None:
    done = subprocess.run(
        [example, "pi", "target=900p"],
        env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    line = 'target: "900p" is not valid; expected at most the buffer, "800p"\n'
    assert (done.stdout, done.stderr) == ("", line)


def test_the_example_in_python(prefix: Path) -> None:
    """Any language that calls C: the same queue through ctypes."""
    library = prefix / "lib" / "libforebay.so"
    out = run(
        sys.executable, ROOT / "examples" / "capi" / "queue.py", library, "pie", "target=15ms"
    )
    assert re.fullmatch(r"sent \d+, marked \d+, lost \d+ packets; p = 0\.\d+\n", out)
    sent, marked, lost = map(int, re.findall(r"\d+(?=,| packets)", out)[:3])
    assert sent > 10_000
    assert marked > 0 < lost


def test_the_static_library(prefix: Path) -> None:
    source, program = ROOT / "examples" / "capi" / "queue.c", prefix / "static"
    include, library = prefix / "include", prefix / "lib" / "libforebay.a"
    system = ["-lm", "-lpthread", "-ldl", "-lgcc_s"]
    run("cc", source, f"-I{include}", library, *system, "-o", program)
    assert run(program, "pi").strip() == through_rust()["pi"]


def test_cplusplus_takes_the_header(prefix: Path, tmp_path: Path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("there is no c++")
    source = tmp_path / "empty.cc"
    source.write_text("#include <forebay.h>\nint main() { return 0; }\n")
    run("c++", "-Wall", "-Werror", "-fsyntax-only", f"-I{prefix / 'include'}", source)


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("reference/capi.md", r"left after \d+\.\d+ ms"),
        # 1228 bytes at 100, 10 and 100 Mbit/s, and half a round trip.
        ("howto/your-stack.md", r"^packet 7 after 21\.18 ms$"),
    ],
)
def test_blocks_of_the_page_run(prefix: Path, tmp_path: Path, name: str, printed: str) -> None:
    """The program in C of a page, built and run by the page's own lines."""
    page = (ROOT / "docs" / name).read_text()
    [program] = re.findall(r"^```c\n// (\w+\.c)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / program[0]).write_text(program[1])
    lines = re.findall(r"^(cc .*|\./.*)$", page, re.MULTILINE)
    assert len(lines) == 2
    done = subprocess.run(
        ["sh", "-euc", "\n".join(lines)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig"),
            "LD_LIBRARY_PATH": str(prefix / "lib"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(printed, done.stdout, re.MULTILINE)


def test_the_template_runs_under_a_law(prefix: Path, tmp_path: Path) -> None:
    """A transport in C in the scenarios of RFC 7928, as a copy of the template has it."""
    copy = tmp_path / "mine"
    shutil.copytree(ROOT / "templates" / "c", copy)
    where = {
        "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig"),
        "LD_LIBRARY_PATH": str(prefix / "lib"),
    }
    run("make", "-C", copy, "CFLAGS=-O2 -Wall -Wextra -Werror", "rfc7928", **where)
    lines = run(copy / "rfc7928", "fq-codel", **where).splitlines()
    names = {path.stem for path in (ROOT / "crates" / "forebay-net" / "rfc7928").glob("*.toml")}
    assert {line.split()[0] for line in lines} == names
    assert all(re.search(r"fq-codel +its share +\d+ %, utilisation +\d+ %", it) for it in lines)

    results = tmp_path / "results"
    run(copy / "rfc7928", "pie", **where, FOREBAY_RESULTS=str(results))
    rows = json.loads((results / "rfc7928.json").read_text())
    assert {row["scenario"] for row in rows} == names
    assert all(row["law"] == "pie" and row["passed"] and not row["failures"] for row in rows)
    assert all(0 < row["metrics"]["utilisation"] <= 1.05 for row in rows)
    suite = ElementTree.parse(results / "rfc7928.xml").getroot()
    assert {case.get("name") for case in suite.iter("testcase")} == names
