"""The guests of the kernel engine: a kernel each, with the tools that set up its network.

A kernel's source, fetched or local, is built as User-mode Linux that is exactly repeatable; with it
comes iproute2.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
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

from forebay._base.errors import ParameterError
from forebay._base.progress import Progress
from forebay._native import ScenarioError

#: The variable with the folder of guests, in place of one of the user's cache.
VARIABLE = "FOREBAY_KERNELS"
#: The parts of a guest: its kernel, iproute2 with its libraries, and what it was built from.
KERNEL, TOOLS, FACTS = "linux", "tools", "guest.json"
#: The guest's first process, built with the package.
PROGRAM = Path(__file__).with_name("forebay-guest")
SETUP = "`forebay guest setup` builds one in some minutes, without root"


@dataclass(frozen=True)
class Guest:
    """A guest on this machine.

    Attributes
    ----------
    digest : str
        Digest of what it was built from, which `source` names.
    release : str
        What `uname -r` prints in it.
    hz : int
        Ticks of its clock in a second.
    several_calls : bool
        True if its kernel takes several system calls at one time.
    """

    folder: Path
    digest: str
    release: str
    source: str
    hz: int
    several_calls: bool = False

    @property
    def kernel(self) -> Path:
        """Path of the kernel."""
        return self.folder / KERNEL

    @property
    def tools(self) -> Path:
        """Path of the programs in the guest."""
        return self.folder / TOOLS

    @property
    def size_bytes(self) -> int:
        """Size of all files in bytes."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())


def place() -> Path:
    """Return the folder of all guests."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "forebay" / "kernels"


def installed() -> list[Guest]:
    """Return the guests that are complete, the newest first."""
    complete: list[tuple[float, Guest]] = []
    for file in place().glob(f"*/{FACTS}"):
        # Another file, a guest of an earlier version, or one that is just removed.
        with suppress(OSError, ValueError, TypeError):
            complete.append(
                (file.stat().st_mtime, Guest(file.parent, **json.loads(file.read_text())))
            )
    complete.sort(key=lambda row: row[0], reverse=True)
    return [guest for _, guest in complete]


def chosen(name: str | None = None) -> Guest:
    """Return the guest whose digest begins with `name`, or the newest. Raises `ScenarioError`."""
    check_machine()
    all_guests = installed()
    if not all_guests:
        raise ScenarioError(f"engine: kernel needs a guest, and {place()} has none; {SETUP}")
    if name is None:
        return all_guests[0]
    of_name = [guest for guest in all_guests if guest.digest.startswith(name)]
    if len(of_name) != 1:
        digests = ", ".join(guest.digest[:12] for guest in all_guests)
        raise ScenarioError(f'GUEST: "{name}" is unknown; expected the first letters of {digests}')
    return of_name[0]


def check_system() -> None:
    """Raise `ScenarioError` on a system for which there are no guests."""
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        host = f"{system} on {machine}"
        raise ScenarioError(f"engine: kernel needs Linux on x86_64, and this is {host}")


def check_machine() -> None:
    """Raise `ScenarioError` on a machine on which no guest runs."""
    check_system()
    if not PROGRAM.exists():
        raise ScenarioError(
            f"engine: kernel needs {PROGRAM.name}, the first process of a guest, which this "
            "package lacks; `make guest` builds it in a checkout (Debian: libc6-dev), and wheels "
            "for Linux on x86_64 have it"
        )


def remove(guest: Guest) -> None:
    """Delete a guest. Raises `OSError`."""
    # Its facts first: what is left of it, if anything, is no guest.
    (guest.folder / FACTS).unlink()
    shutil.rmtree(guest.folder)


Watch = Callable[[Progress], None]

DATA = Path(__file__).with_name("guest")
#: The root of the checkout that this package may be in.
CHECKOUT = Path(__file__).parents[3]
#: Debian's suite with the newest kernel and tools.
SUITE = "sid"
#: Programs that a build calls, with their Debian packages.
PROGRAMS = {name: name for name in ["gcc", "make", "flex", "bison", "bc", "tar", "dpkg"]} | {
    "xz": "xz-utils",
    "apt-get": "apt",
    "setpriv": "util-linux",
}
#: Headers that a build includes, likewise.
HEADERS = {"/usr/include/stdio.h": "libc6-dev"}
#: Packages that iproute2 runs with.
TOOL_PACKAGES = [
    "iproute2", "libc6", "libbpf1", "libcap2", "libelf1t64", "libmnl0", "libselinux1",
    "libpcre2-8-0", "libtirpc3t64", "libgssapi-krb5-2", "libkrb5-3", "libk5crypto3",
    "libkrb5support0", "libcom-err2", "libkeyutils1", "libssl3t64", "libxtables12", "zlib1g",
    "libzstd1", "libdb5.3t64",
]  # fmt: skip
TOOL_PROGRAMS = ("ip", "tc", "ss")
LOADER = "ld-linux-x86-64.so.2"
#: Parts of a kernel's source that User-mode Linux is not built of; each has its Kconfig.
UNNEEDED = (
    "Documentation", "arch/arm", "arch/arm64", "arch/mips", "arch/powerpc", "drivers/accel",
    "drivers/clk", "drivers/gpu", "drivers/iio", "drivers/infiniband", "drivers/media",
    "drivers/net/ethernet", "drivers/net/wireless", "drivers/pinctrl", "drivers/scsi",
    "drivers/staging", "drivers/usb", "samples", "sound", "tools/perf", "tools/testing",
)  # fmt: skip
#: About as many lines as a build prints, of which its progress is a share.
BUILD_LINES = 1100
#: Ticks of the guest's clock in a second; timers of TCP and PIE are rounded to them.
HZ = 1000
#: Lines of a failed command that its error shows.
LAST_LINES = 3
#: Lines of source files that a build changes: the file, the line before, the line after.
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
#: Configuration of a guest's kernel, in DATA.
PATCHES = ("seeded_random.c", "several_calls.c")


class SetupError(RuntimeError):
    """A step that failed, in one line."""


@dataclass(frozen=True)
class KernelSource:
    """The origin of a kernel's source."""

    #: A local tree; None for Debian's.
    tree: Path | None = None
    suite: str = SUITE
    hz: int = HZ


def setup(source: KernelSource, watch: Watch | None = None) -> tuple[Guest, bool]:
    """Return the guest of a source, which is built unless it exists.

    Parameters
    ----------
    source : KernelSource
        Source of the kernel.
    watch : callable, optional
        Called with the progress.

    Returns
    -------
    (Guest, bool)
        The guest, and True if it was built.

    Raises
    ------
    ScenarioError
        If the machine or the tree cannot build a guest.
    SetupError
        If a step fails; its files are removed.
    """
    check_system()
    _check_programs()
    if source.tree is not None:
        _check_tree(source.tree)
    place().mkdir(parents=True, exist_ok=True)
    started_s = time.monotonic()

    def report(fraction: float, stage: str) -> None:
        if watch:
            watch(Progress(fraction, 0, 1, time.monotonic() - started_s, f": {stage}"))

    if not PROGRAM.exists():
        report(0.0, "building the guest's first process")
        build_program()
    check_machine()
    with _folder(place()) as work:
        report(0.0, "asking for packages")
        version = _identity(source, work)
        digest = _digest(version, source.hz)
        for guest in installed():
            if guest.digest == digest:
                return guest, False
        report(0.01, "fetching packages")
        _fetch(work, [*TOOL_PACKAGES, *([version] if source.tree is None else [])])
        report(0.1, "unpacking")
        folder = work / "guest"
        _tools(work, folder / TOOLS)
        tree = _tree(source, work)
        report(0.2, "configuring")
        several_calls = _adapt(tree, source.hz)
        release = _build(tree, folder / KERNEL, lambda share: report(0.2 + 0.8 * share, "building"))
        origin = str(source.tree) if source.tree is not None else f"Debian's {version}"
        guest = Guest(place() / digest[:16], digest, release, origin, source.hz, several_calls)
        facts = {name: value for name, value in vars(guest).items() if name != "folder"}
        (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n")
        shutil.rmtree(guest.folder, ignore_errors=True)
        folder.rename(guest.folder)
        return guest, True


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
            f"guest setup: programs are missing; install them with `apt-get install {names}`"
        )


def _check_tree(tree: Path) -> None:
    for file in ("Makefile", "arch/um/Kconfig", "arch/um/os-Linux/util.c"):
        if not (tree / file).is_file():
            expected = "a source tree of Linux"
            raise ParameterError("source", tree, expected, reason=f"it has no {file}")


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    """Make a folder to build in, and remove it; folders of builds that were killed go, too."""
    for old in parent.glob(".build-*"):
        pid = old.name.removeprefix(".build-").partition("-")[0]
        if not Path(f"/proc/{pid}").exists():
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f".build-{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _call(words: list[str], where: Path, line: Callable[[], None] | None = None) -> str:
    """Return what a program prints. Raises `SetupError`; its processes end with the call."""
    output: deque[str] = deque(maxlen=4000)
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
            output.append(printed)
            if line:
                line()
        status = process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if status != 0:
        lines = [text.strip() for text in output if text.strip()]
        errors = [text for text in lines if re.search(r"error|E:|fail|No space", text, re.I)]
        # The last lines of make only repeat that something failed; the cause is in earlier lines.
        causes = [text for text in errors if not text.startswith("make")]
        last = (causes or errors or lines)[-LAST_LINES:]
        raise SetupError(f"{Path(words[0]).name} failed: {' | '.join(last) or status}")
    return "".join(output)


def _apt(work: Path, suite: str = SUITE) -> list[str]:
    """Return options with which apt reads one suite of this machine's mirror.

    They leave apt's own lists and settings unchanged.
    """
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
    """Return the mirror of Debian in apt's own configuration, with its options there."""
    etc = Path("/etc/apt")
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    address = re.compile(r"https?://\S+/debian(?=/?\s)|\bmirror\+file:\S+")
    for file in files:
        with suppress(OSError, UnicodeDecodeError):
            for line in file.read_text().splitlines():
                match = address.search(line + " ")
                if match and not line.lstrip().startswith("#"):
                    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
                    option = f"[signed-by={keys}] " if Path(keys).exists() else ""
                    return option + match[0]
    raise ScenarioError(
        "guest setup: /etc/apt names no mirror of Debian; add one, or give a source tree of Linux "
        "on a machine with iproute2"
    )


def _identity(source: KernelSource, work: Path) -> str:
    """Return the identity of a source: Debian's package with its version, or a tree's state."""
    _call(["apt-get", *_apt(work, source.suite), "update", "-qq"], work)
    if source.tree is None:
        depends = _call(["apt-cache", *_apt(work), "depends", "linux-source"], work)
        package = re.search(r"Depends: (linux-source-\S+)", depends)
        if not package:
            raise SetupError(f"apt-cache has no linux-source in the suite {source.suite}")
        details = _call(["apt-cache", *_apt(work), "show", package[1]], work)
        version = re.search(r"^Version: (\S+)", details, re.MULTILINE)
        return f"{package[1]}={version[1]}" if version else package[1]
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
    """Return the digest of all that a guest is built from."""
    parts = [version, str(hz)]
    parts += [(DATA / name).read_text() for name in ("guest.config", *PATCHES)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _fetch(work: Path, packages: list[str]) -> None:
    folder = work / "packages"
    folder.mkdir()
    _call(["apt-get", *_apt(work), "download", "-qq", *packages], folder)


def _tools(work: Path, tools: Path) -> None:
    """Copy iproute2 and what it is linked to into folders of their own."""
    root = work / "root"
    for package in (work / "packages").glob("*.deb"):
        if not package.name.startswith("linux-source"):
            _call(["dpkg", "-x", str(package), str(root)], work)
    (tools / "bin").mkdir(parents=True)
    (tools / "lib").mkdir()
    for program in TOOL_PROGRAMS:
        files = [file for file in root.rglob(f"*bin/{program}") if file.is_file()]
        if not files:
            raise SetupError(f"iproute2 has no {program}")
        shutil.copy(files[0], tools / "bin" / program)
    for file in root.rglob("*.so*"):
        if "gconv" not in file.parts and file.is_file() and "linux-gnu" in str(file):
            shutil.copy(file, tools / "lib" / file.name)
    loaders = [file for file in root.rglob(LOADER) if file.is_file()]
    if not loaders:
        raise SetupError(f"libc6 has no {LOADER}")
    shutil.copy(loaders[0], tools / "lib" / LOADER)


def _tree(source: KernelSource, work: Path) -> Path:
    """Return a tree that may be changed."""
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
    # The archive is in blocks, which xz decompresses on all cores.
    _call(["tar", "--use-compress-program=xz -T0", "-xf", str(archive), *without], work)
    (tree,) = work.glob("linux-source-*")
    return tree


def _adapt(tree: Path, hz: int) -> bool:
    """Change the clock's ticks, random numbers, and the number of system calls at one time.

    Returns True if the tree takes several calls at one time. Raises `SetupError`.
    """

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
        "arch/um/os-Linux/util.c", lambda text: text.replace(RANDOM_BEFORE, seeded + RANDOM_BEFORE)
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


def _build(tree: Path, kernel: Path, watch: Callable[[float], None]) -> str:
    """Build the kernel, and return its release."""
    um = ["ARCH=um", "KBUILD_BUILD_TIMESTAMP=2026-01-01", "KBUILD_BUILD_USER=forebay"]
    um += ["KBUILD_BUILD_HOST=forebay"]
    config = f"KCONFIG_ALLCONFIG={DATA / 'guest.config'}"
    _call(["make", *um, config, "allnoconfig"], tree)
    lines = 0

    def count() -> None:
        nonlocal lines
        lines += 1
        watch(min(lines / BUILD_LINES, 0.99))

    cores = len(os.sched_getaffinity(0))
    _call(["make", f"-j{cores}", *um, "linux"], tree, count)
    kernel.parent.mkdir(parents=True, exist_ok=True)
    _call(["strip", "-g", "-o", str(kernel), str(tree / "linux")], tree)
    return _call(["make", "-s", *um, "kernelrelease"], tree).strip().splitlines()[-1]
