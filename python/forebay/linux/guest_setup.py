"""Building a guest: a kernel's source, fetched or brought, becomes User-mode Linux that is exactly
repeatable; iproute2 comes beside it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from forebay._base.progress import Progress
from forebay._native import ScenarioError
from forebay.linux.installed_guests import (
    FACTS,
    KERNEL,
    PROGRAM,
    TOOLS,
    Guest,
    check_machine,
    check_system,
    installed,
    place,
)

Watch = Callable[[Progress], None]

DATA = Path(__file__).with_name("guest")
#: The root of the checkout that this package may be in.
CHECKOUT = Path(__file__).parents[3]
#: Debian's suite with the newest kernel and tools.
SUITE = "sid"
#: Programs that a build calls, with their Debian packages.
PROGRAMS = {
    "gcc": "gcc",
    "make": "make",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "xz": "xz-utils",
    "tar": "tar",
    "dpkg": "dpkg",
    "apt-get": "apt",
    "setpriv": "util-linux",
}
#: Headers that a build includes, likewise.
HEADERS = {"/usr/include/stdio.h": "libc6-dev"}
#: Packages that iproute2 runs with.
TOOL_PACKAGES = [
    "iproute2",
    "libc6",
    "libbpf1",
    "libcap2",
    "libelf1t64",
    "libmnl0",
    "libselinux1",
    "libpcre2-8-0",
    "libtirpc3t64",
    "libgssapi-krb5-2",
    "libkrb5-3",
    "libk5crypto3",
    "libkrb5support0",
    "libcom-err2",
    "libkeyutils1",
    "libssl3t64",
    "libxtables12",
    "zlib1g",
    "libzstd1",
    "libdb5.3t64",
]
TOOL_PROGRAMS = ("ip", "tc", "ss")
LOADER = "ld-linux-x86-64.so.2"
#: Parts of a kernel's source that User-mode Linux is not built of; each has its Kconfig.
UNNEEDED = ("Documentation", "samples", "tools/testing", "drivers/gpu", "drivers/media", "sound")
#: Lines that a build prints, about: what progress is measured against.
BUILD_LINES = 1100
#: Ticks of the guest's clock in a second; timers of TCP and PIE are rounded to them.
HZ = 1000
#: Lines of a failed command that its error shows.
LAST_LINES = 3
#: Lines of a source file that a build needs otherwise: file, before, after.
HZ_BEFORE = re.compile(r"(^config HZ\n(?:.*\n)*?\s+default )100$", re.MULTILINE)
RANDOM_BEFORE = "\treturn getrandom(buf, len, flags);\n"
CALLS_BEFORE = "void handle_syscall(struct uml_pt_regs *r)\n"
NUMBER_BEFORE = "\tUPT_SYSCALL_NR(r) = PT_SYSCALL_NR(r->gp);\n"
NUMBER_AFTER = """\
\tif (UPT_SYSCALL_NR(r) == FOREBAY_CALLS) {
\t\tforebay_calls(r);
\t\treturn;
\t}
"""
#: What is built into a guest's kernel, in DATA.
PATCHES = ("seeded_random.c", "several_calls.c")


class SetupError(RuntimeError):
    """A step that failed, in one line."""


@dataclass(frozen=True)
class KernelSource:
    """Where a kernel's source comes from."""

    #: A tree of somebody's; None for Debian's.
    tree: Path | None = None
    suite: str = SUITE
    hz: int = HZ


def setup(source: KernelSource, watch: Watch | None = None) -> tuple[Guest, bool]:
    """The guest of a source, built where it is not there yet, and whether it was.

    Raises `ScenarioError` for a machine or a tree that cannot build one, and `SetupError` where a
    step fails; nothing is left of it then.
    """
    check_system()
    _check_programs()
    if source.tree is not None:
        _check_tree(source.tree)
    place().mkdir(parents=True, exist_ok=True)
    started_s = time.monotonic()

    def tell(fraction: float, what: str) -> None:
        if watch:
            watch(Progress(fraction, 0, 1, time.monotonic() - started_s, f": {what}"))

    if not PROGRAM.exists():
        tell(0.0, "building the guest's first process")
        build_program()
    check_machine()
    with _folder(place()) as work:
        tell(0.0, "asking for packages")
        version = _identity(source, work)
        digest = _digest(version, source.hz)
        for guest in installed():
            if guest.digest == digest:
                return guest, False
        tell(0.01, "fetching packages")
        _fetch(work, [*TOOL_PACKAGES, *([version] if source.tree is None else [])])
        tell(0.1, "unpacking")
        made = work / "guest"
        _tools(work, made / TOOLS)
        tree = _tree(source, work)
        tell(0.2, "configuring")
        several_calls = _adapt(tree, source.hz)
        release = _build(tree, made / KERNEL, lambda share: tell(0.2 + 0.8 * share, "building"))
        said = str(source.tree) if source.tree is not None else f"Debian's {version}"
        facts = {"digest": digest, "release": release, "source": said, "hz": source.hz}
        facts["several_calls"] = several_calls
        (made / FACTS).write_text(json.dumps(facts, indent=2) + "\n")
        final = place() / digest[:16]
        shutil.rmtree(final, ignore_errors=True)
        made.rename(final)
        return Guest(final, digest, release, said, source.hz, several_calls), True


def build_program() -> None:
    """Build the first process of guests where this package is a checkout's; else do nothing.

    Raises `SetupError` where it cannot be built.
    """
    if (CHECKOUT / "Makefile").is_file() and (CHECKOUT / "crates/forebay-guest").is_dir():
        _call(["make", "guest"], CHECKOUT)


def _check_programs() -> None:
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    missing += [package for header, package in HEADERS.items() if not Path(header).exists()]
    if missing:
        names = " ".join(dict.fromkeys(missing))
        raise ScenarioError(
            "kernel setup: found a machine that lacks programs, allowed: one with them "
            f"(apt-get install {names})"
        )


def _check_tree(tree: Path) -> None:
    for file in ("Makefile", "arch/um/Kconfig", "arch/um/os-Linux/util.c"):
        if not (tree / file).is_file():
            raise ScenarioError(
                f"--source: found {tree}, which has no {file}, allowed: a tree of Linux's source"
            )


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    """A folder to build in, which does not stay; those of builds that were killed go, too."""
    for old in parent.glob(".build-*"):
        pid = old.name.removeprefix(".build-").partition("-")[0]
        if not Path(f"/proc/{pid}").exists():
            shutil.rmtree(old, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f".build-{os.getpid()}-", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _call(words: list[str], where: Path, line: Callable[[], None] | None = None) -> str:
    """What a program prints. Raises `SetupError`; its processes end with this one's wait."""
    said: deque[str] = deque(maxlen=4000)
    process = subprocess.Popen(
        words,
        cwd=where,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env=os.environ | {"LC_ALL": "C"},
    )
    try:
        assert process.stdout is not None
        for printed in process.stdout:
            said.append(printed)
            if line:
                line()
        status = process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if status != 0:
        lines = [one.strip() for one in said if one.strip()]
        errors = [one for one in lines if re.search(r"error|E:|fail|No space", one, re.I)]
        # Make repeats at its end that something failed; what did stands before.
        causes = [one for one in errors if not one.startswith("make")]
        last = (causes or errors or lines)[-LAST_LINES:]
        raise SetupError(f"{Path(words[0]).name} failed: {' | '.join(last) or status}")
    return "".join(said)


def _apt(work: Path, suite: str = SUITE) -> list[str]:
    """Options with which apt knows one suite of the mirror that this machine uses, and changes
    nothing of it."""
    lists, archives = work / "apt/lists/partial", work / "apt/cache/archives/partial"
    for folder in (lists, archives):
        folder.mkdir(parents=True, exist_ok=True)
    sources = work / "apt/sources.list"
    if not sources.exists():
        sources.write_text(f"deb {_mirror()} {suite} main\n")
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State::lists": work / "apt/lists",
        "Dir::Cache": work / "apt/cache",
        "APT::Sandbox::User": "root",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def _mirror() -> str:
    """Of Debian, as apt's own configuration has it, with the options that it has there."""
    etc = Path("/etc/apt")
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    address = re.compile(r"https?://\S+/debian(?=/?\s)|\bmirror\+file:\S+")
    for file in files:
        with suppress(OSError, UnicodeDecodeError):
            for line in file.read_text().splitlines():
                found = address.search(line + " ")
                if found and not line.lstrip().startswith("#"):
                    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
                    option = f"[signed-by={keys}] " if Path(keys).exists() else ""
                    return option + found.group(0)
    raise ScenarioError(
        "kernel setup: found no mirror of Debian in /etc/apt, allowed: one, or --source DIR "
        "and a machine with iproute2"
    )


def _identity(source: KernelSource, work: Path) -> str:
    """What tells a source from others: Debian's package with its version, or a tree's state."""
    _call(["apt-get", *_apt(work, source.suite), "update", "-qq"], work)
    if source.tree is None:
        said = _call(["apt-cache", *_apt(work), "depends", "linux-source"], work)
        found = re.search(r"Depends: (linux-source-\S+)", said)
        if not found:
            raise SetupError(f"apt-cache knows no linux-source in {source.suite}")
        shown = _call(["apt-cache", *_apt(work), "show", found.group(1)], work)
        version = re.search(r"^Version: (\S+)", shown, re.MULTILINE)
        return f"{found.group(1)}={version.group(1)}" if version else found.group(1)
    tree = source.tree.resolve()
    state = [str(tree)]
    if (tree / ".git").exists():
        state.append(_call(["git", "-C", str(tree), "rev-parse", "HEAD"], work))
        state.append(_call(["git", "-C", str(tree), "diff", "HEAD"], work))
    else:
        folders = [tree / name for name in ("net", "include", "kernel", "arch/um", "arch/x86/um")]
        files = (file for folder in folders for file in sorted(folder.rglob("*.[ch]")))
        state += [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    return hashlib.sha256("\n".join(state).encode()).hexdigest()


def _digest(version: str, hz: int) -> str:
    """Of all that a guest is built from."""
    parts = [version, str(hz)]
    parts += [(DATA / name).read_text() for name in ("guest.config", *PATCHES)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _fetch(work: Path, packages: list[str]) -> None:
    folder = work / "packages"
    folder.mkdir()
    _call(["apt-get", *_apt(work), "download", "-qq", *packages], folder)


def _tools(work: Path, tools: Path) -> None:
    """iproute2 and what it is linked to, in folders of their own."""
    root = work / "root"
    for package in (work / "packages").glob("*.deb"):
        if not package.name.startswith("linux-source"):
            _call(["dpkg", "-x", str(package), str(root)], work)
    (tools / "bin").mkdir(parents=True)
    (tools / "lib").mkdir()
    for program in TOOL_PROGRAMS:
        found = [file for file in root.rglob(f"*bin/{program}") if file.is_file()]
        if not found:
            raise SetupError(f"iproute2 has no {program}")
        shutil.copy(found[0], tools / "bin" / program)
    for file in root.rglob("*.so*"):
        if "gconv" not in file.parts and file.is_file() and "linux-gnu" in str(file):
            shutil.copy(file, tools / "lib" / file.name)
    loaders = [file for file in root.rglob(LOADER) if file.is_file()]
    if not loaders:
        raise SetupError(f"libc6 has no {LOADER}")
    shutil.copy(loaders[0], tools / "lib" / LOADER)


def _tree(source: KernelSource, work: Path) -> Path:
    """A tree that may be changed."""
    if source.tree is not None:
        tree = work / "tree"
        # Links to somebody's files; those that change are replaced.
        _call(["cp", "-rs", str(source.tree.resolve()), str(tree)], work)
        return tree
    (package,) = (work / "packages").glob("linux-source-*.deb")
    _call(["dpkg", "-x", str(package), str(work / "source")], work)
    (archive,) = (work / "source").rglob("linux-source-*.tar.xz")
    without = [
        word
        for folder in UNNEEDED
        for word in (f"--exclude=*/{folder}/*.[chSr]*", f"--exclude=*/{folder}/*.dts*")
    ]
    _call(["tar", "-xf", str(archive), *without], work)
    (tree,) = work.glob("linux-source-*")
    return tree


def _adapt(tree: Path, hz: int) -> bool:
    """The clock's ticks, random numbers from a seed, and several system calls at one time where the
    tree has the place for them; whether it has. Raises `SetupError`."""

    def replace(name: str, change: Callable[[str], str]) -> None:
        file = tree / name
        text = file.read_text()
        changed = change(text)
        if changed == text:
            raise SetupError(
                f"{name} of this source is not as it was known: it has nothing to adapt"
            )
        file.unlink()
        file.write_text(changed)

    if hz != 100:
        replace("arch/um/Kconfig", lambda text: HZ_BEFORE.sub(rf"\g<1>{hz}", text))
    seeded, several = ((DATA / name).read_text() for name in PATCHES)
    replace(
        "arch/um/os-Linux/util.c",
        lambda text: text.replace(RANDOM_BEFORE, seeded + RANDOM_BEFORE),
    )

    def with_calls(text: str) -> str:
        if CALLS_BEFORE not in text or NUMBER_BEFORE not in text:
            return text
        text = text.replace(CALLS_BEFORE, several + CALLS_BEFORE)
        # The last of them is its own.
        before, _, after = text.rpartition(NUMBER_BEFORE)
        return before + NUMBER_BEFORE + NUMBER_AFTER + after

    try:
        replace("arch/um/kernel/skas/syscall.c", with_calls)
    except (SetupError, OSError):
        # Runs cost more without, and are the same.
        return False
    return True


def _build(tree: Path, kernel: Path, tell: Callable[[float], None]) -> str:
    """Builds the kernel; its release."""
    um = ["ARCH=um", "KBUILD_BUILD_TIMESTAMP=2026-01-01", "KBUILD_BUILD_USER=forebay"]
    um += ["KBUILD_BUILD_HOST=forebay"]
    config = f"KCONFIG_ALLCONFIG={DATA / 'guest.config'}"
    _call(["make", *um, config, "allnoconfig"], tree)
    lines = 0

    def count() -> None:
        nonlocal lines
        lines += 1
        tell(min(lines / BUILD_LINES, 0.99))

    cores = len(os.sched_getaffinity(0))
    _call(["make", f"-j{cores}", *um, "linux"], tree, count)
    kernel.parent.mkdir(parents=True, exist_ok=True)
    _call(["strip", "-g", "-o", str(kernel), str(tree / "linux")], tree)
    return _call(["make", "-s", *um, "kernelrelease"], tree).strip().splitlines()[-1]
