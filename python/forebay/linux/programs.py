"""The programs that configure the kernel, and the privileges that they need.

The programs are `tc`, `ip` and `bpftool`, and `clang`, which compiles a law.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from forebay._native import ScenarioError

#: Bits of a set of capabilities (capabilities(7)).
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}
NETWORK = ("CAP_NET_ADMIN",)
#: CAP_SYS_ADMIN finds a law's maps by their identifiers.
LAW = ("CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN")
BPF = Path(__file__).with_name("bpf")
#: Front ends of a law in fixed point: a classifier before a shaper, or a qdisc that shapes.
CLASSIFIER, QDISC = "classifier", "qdisc"
FRONTS = (CLASSIFIER, QDISC)
#: The name of the classifier in the kernel.
PROGRAM_NAME = "forebay"
#: The Debian package of each program.
PACKAGES = {"tc": "iproute2", "ip": "iproute2", "bpftool": "bpftool", "clang": "clang"}
#: A header that comes in a package of its own.
HELPERS = ("bpf/bpf_helpers.h", "libbpf-dev")
INCLUDE = Path("/usr/include")
#: Least version of clang for a qdisc: earlier ones do not say in BTF what a pointer owns.
OWNING_CLANG = 16
#: The types of this kernel, which name a function of each qdisc that it has.
TYPES = Path("/sys/kernel/btf/vmlinux")


class KernelError(RuntimeError):
    """A request that the kernel or one of its programs refused."""


def need_capabilities(capabilities: tuple[str, ...], command: str) -> None:
    """Raise an error if this process lacks capabilities.

    Parameters
    ----------
    capabilities : tuple of str
        Names of the capabilities, such as "CAP_NET_ADMIN".
    command : str
        Name of the command, for the message.

    Raises
    ------
    ScenarioError
        If one is missing.
    """
    effective = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            effective = int(line.split()[1], 16)
    missing = [name for name in capabilities if not effective >> CAPABILITIES[name] & 1]
    if missing:
        raise ScenarioError(
            f"{command} requires {', '.join(missing)}; run it as root: `sudo forebay {command} ...`"
        )


def find(name: str) -> str | None:
    """Return the path of a program, also where only root's PATH has it."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def need(*names: str) -> None:
    """Raise `ScenarioError` with the packages to install, in one line."""
    packages = {name: PACKAGES[name] for name in names if find(name) is None}
    if "clang" in names and not (INCLUDE / HELPERS[0]).exists():
        packages[HELPERS[0]] = HELPERS[1]
    if packages:
        missing = ", ".join(packages)
        words = " ".join(sorted(set(packages.values())))
        raise ScenarioError(f"{missing}: not installed; install with `apt-get install {words}`")


def need_types() -> None:
    """Raise `ScenarioError` on a kernel in which no law of ours can run, in one line."""
    if not TYPES.exists():
        raise ScenarioError(
            f"a law in BPF requires Linux 6.4 or newer with CONFIG_DEBUG_INFO_BTF; this is Linux "
            f"{os.uname().release} without {TYPES}"
        )


def call(*words: str, files: Sequence[int] = ()) -> str:
    """Run a program, and return what it prints.

    Parameters
    ----------
    words : str
        The program and its arguments.
    files : sequence of int, optional
        File descriptors that the program inherits, under the same numbers.

    Raises
    ------
    KernelError
        If it fails; the text has the line in which it says why.
    """
    return os.fsdecode(_output(*words, files=files))


def answer(*words: str) -> Any:
    """Return the JSON that a program prints; an empty list if it prints nothing.

    A device's name may have any byte: iproute2 prints control characters unchanged, and escapes an
    apostrophe, which JSON does not allow. Raises `KernelError`.
    """
    text = re.sub(r"\\(.)", lambda escape: "'" if escape[1] == "'" else escape[0], call(*words))
    try:
        return json.loads(text or "[]", strict=False)
    except ValueError:
        raise KernelError(f"{shlex.join(words)}: printed no JSON") from None


def _output(*words: str, files: Sequence[int] = ()) -> bytes:
    program = find(words[0])
    if program is None:
        need(words[0])
    done = subprocess.run(
        [program or words[0], *words[1:]], capture_output=True, check=False, pass_fds=files
    )
    if done.returncode:
        lines = [line for line in os.fsdecode(done.stderr).splitlines() if line.strip()]
        causes = [line for line in lines if "Error" in line or "libbpf" in line] or lines
        why = causes[0].strip() if causes else f"status {done.returncode}"
        raise KernelError(f"{shlex.join(words)}: {why}")
    return done.stdout


def clang(least: int = 0) -> str:
    """Return the name of a clang of at least this version. Raises `ScenarioError`."""
    need("clang")
    newest = sorted(
        (int(at.name.removeprefix("clang-")), str(at))
        for folder in os.environ.get("PATH", os.defpath).split(":")
        for at in Path(folder).glob("clang-[0-9][0-9]")
    )
    (major, *_) = call("clang", "-dumpversion").split(".")
    if int(major) >= least:
        return "clang"
    if newest and newest[-1][0] >= least:
        return newest[-1][1]
    raise ScenarioError(
        f"front: a qdisc requires clang {least} or newer, and this is clang {major}; install it "
        f"with `apt-get install clang-{least}`"
    )


def offers(function: str, module: str) -> bool:
    """Return True if this kernel has a function.

    Parameters
    ----------
    function : str
        Name of the function.
    module : str
        Module that has it where the kernel itself does not.

    Returns
    -------
    bool
        True if the kernel or the module has it.
    """
    with suppress(OSError):
        if f"\0{function}\0".encode() in TYPES.read_bytes():
            return True
    if Path("/sys/module", module).exists():
        return True
    release = os.uname().release
    with suppress(OSError):
        return f"/{module}.ko" in Path("/lib/modules", release, "modules.dep").read_text()
    return False


def compile_law(law: str, front: str, qdisc: str) -> bytes:
    """Compile a law and its front end for BPF, without writing to a disk.

    Parameters
    ----------
    law : str
        Name of the law.
    front : str
        Front end, one of `FRONTS`.
    qdisc : str
        Name of the qdisc that it registers.

    Returns
    -------
    bytes
        The object.

    Raises
    ------
    KernelError
        If the compiler fails.
    ScenarioError
        If the compiler is missing or too old.
    """
    compiler = clang(OWNING_CLANG if front == QDISC else 0)
    machine = [str(folder) for folder in INCLUDE.glob("*-linux-gnu") if (folder / "asm").exists()]
    return _output(
        *(compiler, "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", f"-I{BPF}"),
        *(f"-I{folder}" for folder in machine[:1]),
        *(f"-DFOREBAY_LAW=laws/{law}.h", f"-DFOREBAY_QDISC={qdisc}"),
        *("-c", str(BPF / f"{front}.bpf.c"), "-o", "-"),
    )


@contextmanager
def in_memory(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the descriptor of a file in memory, and its path for a program that inherits it."""
    file = os.memfd_create("forebay", os.MFD_CLOEXEC)
    try:
        with open(file, "wb", closefd=False) as stream:
            stream.write(data)
        yield file, f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def has_header(law: str) -> bool:
    """Return True if the law exists in fixed point."""
    return (BPF / "laws" / f"{law}.h").exists()


def hexadecimal(data: bytes) -> Sequence[str]:
    """Return bytes in the notation of bpftool."""
    return ["hex", *(f"{byte:02x}" for byte in data)]
