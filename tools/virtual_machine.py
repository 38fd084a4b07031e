"""Run a command on Debian's newest kernel, with this machine's files, in virtual time.

    python -m tools.virtual_machine setup
    python -m tools.virtual_machine run [--limit SECONDS] -- COMMAND …

The machine is qemu's emulation of a processor whose clock counts its instructions, so a busy
host changes nothing; it needs neither root nor KVM. Its files are this machine's, read-only; /tmp,
/run and $OUT can be written to, and $OUT is returned. It exists for BPF: User-mode Linux (`forebay
guest setup`) has no BTF and no JIT, without which the kernel loads no program of Forebay.

A command that waits for a file of this machine sees its clock jump; a file that was read once stays
in memory.
"""

from __future__ import annotations

import argparse
import lzma
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from forebay.linux.guests import _apt, _call

#: The environment variable that names another folder than that in the user's cache.
VARIABLE = "FOREBAY_VIRTUAL_MACHINE"
QEMU = "qemu-system-x86_64"
#: Kernel modules: those that give access to this machine's files, and those that tests use.
MODULES = [
    *("9pnet_virtio", "9p", "veth", "dummy", "ifb", "tcp_dctcp", "tcp_bbr", "cls_bpf", "act_bpf"),
    *(
        "sch_ingress",
        "sch_tbf",
        "sch_htb",
        "sch_netem",
        "sch_codel",
        "sch_pie",
        "sch_red",
        "sch_fq",
    ),
]
MEMORY_MB = 2048
#: The clock advances by two nanoseconds per instruction.
CLOCK = "shift=1,sleep=off,align=off"
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
for module in $(/bin/busybox cat /modules.list); do /bin/busybox insmod /$module; done
options=trans=virtio,version=9p2000.L,msize=262144
/bin/busybox mount -t 9p -o $options,ro,cache=loose root /outside
for kind in proc:proc sysfs:sys devtmpfs:dev tmpfs:tmp tmpfs:run; do
    /bin/busybox mount -t ${kind%:*} none /outside/${kind#*:}
done
/bin/busybox mkdir -p /outside/run/netns /outside/run/out
/bin/busybox mount -t bpf bpf /outside/sys/fs/bpf
/bin/busybox mount -t 9p -o $options out /outside/run/out
/bin/busybox chroot /outside /bin/sh /run/out/$COMMAND
echo "@@STATUS $?"
/bin/busybox poweroff -f
"""


class MachineError(RuntimeError):
    """A missing requirement or a failure, as a one-line message."""


@dataclass(frozen=True)
class Done:
    """The outcome of a command.

    Attributes
    ----------
    status : int
        Exit status.
    output
        Everything that the command printed.
    """

    status: int
    output: str


def place() -> Path:
    """Return the folder of the kernel and the initial file system."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else Path.home() / ".cache" / "forebay" / "virtual-machine"


def refusal() -> str | None:
    """Return why no virtual machine can run here; None if one can."""
    if shutil.which(QEMU) is None:
        return f"needs {QEMU} (Debian: qemu-system-x86)"
    if not (place() / "vmlinuz").exists():
        return f"needs a virtual machine in {place()}: `python -m tools.virtual_machine setup`"
    return None


def setup() -> None:
    """Fetch Debian's kernel, unless it is there already.

    Raises
    ------
    MachineError
        If the package has no kernel with modules.
    SetupError
        If a command of apt or dpkg fails.
    """
    if (place() / "vmlinuz").exists():
        return
    place().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place(), prefix=".build-") as folder:
        work = Path(folder)
        apt = _apt(work)
        _call(["apt-get", *apt, "update", "-qq"], work)
        image = _depends(work, "linux-image-amd64", r"linux-image-\S+")[0]
        # Since Linux 7.0, the kernel and its modules are separate packages.
        parts = _depends(work, image, r"linux-(?:binary|modules)-\S+") or [image]
        _call(["apt-get", *apt, "download", "-qq", "busybox-static", *parts], work)
        for package in work.glob("*.deb"):
            _call(["dpkg", "-x", str(package), str(work / "root")], work)
        (busybox,) = [file for file in (work / "root").rglob("bin/busybox") if file.is_file()]
        kernels = [*(work / "root").rglob("vmlinuz*")]
        modules = {
            file.name.partition(".ko")[0].replace("-", "_"): file
            for file in (work / "root").rglob("*.ko*")
        }
        if not kernels or not modules:
            raise MachineError(f"{image} has no kernel with modules")
        (place() / "initrd").write_bytes(_initrd(busybox.read_bytes(), modules))
        shutil.copy(kernels[0], place() / "vmlinuz")


def run(command: str, limit_s: float = 600, out: Path | None = None) -> Done:
    """Run a command of the shell in the working folder, with root's rights.

    Parameters
    ----------
    command : str
        The command.
    limit_s : float, default 600
        Time limit in seconds.
    out : Path, optional
        A folder that the command sees as `$OUT`.

    Raises
    ------
    MachineError
        If no machine can run here, the limit is exceeded, or the machine ends early.
    """
    why = refusal()
    if why:
        raise MachineError(why)
    with tempfile.TemporaryDirectory(prefix="forebay-machine-") as folder:
        shared = out or Path(folder)
        passed_on = ["PATH", "PYTHONPATH", "HOME"]
        words = [f"export {name}={shlex.quote(os.environ.get(name, '/'))}" for name in passed_on]
        words += ["export OUT=/run/out PYTHONDONTWRITEBYTECODE=1", "ip link set lo up"]
        words += [f"cd {shlex.quote(str(Path.cwd()))}", command]
        handle, name = tempfile.mkstemp(dir=shared, prefix=".command-")
        script = Path(name)
        with os.fdopen(handle, "w") as file:
            file.write("\n".join(words) + "\n")
        kernel = f"console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable COMMAND={script.name}"
        machine = subprocess.Popen(
            [
                *(QEMU, "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", str(MEMORY_MB)),
                *("-icount", CLOCK, "-rtc", "clock=vm", "-kernel", str(place() / "vmlinuz")),
                *("-initrd", str(place() / "initrd"), "-nographic", "-no-reboot", "-nodefaults"),
                *("-append", kernel),
                *("-serial", "stdio", "-monitor", "none"),
                "-virtfs",
                "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap",
                "-virtfs",
                f"local,path={shared},mount_tag=out,security_model=none,multidevs=remap",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            printed = machine.communicate(timeout=limit_s)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(machine.pid, signal.SIGKILL)
            printed = machine.communicate()[0].decode(errors="replace")
            raise MachineError(f"longer than {limit_s:g} s: {printed[-2000:]}") from None
        except BaseException:
            # An interruption must not leave the machine running.
            os.killpg(machine.pid, signal.SIGKILL)
            raise
        finally:
            script.unlink(missing_ok=True)
    output, marker, rest = printed.replace("\r", "").partition("@@STATUS ")
    if not marker:
        raise MachineError(f"ended before its command: {output[-2000:]}")
    return Done(int(rest.split()[0]), output)


def _depends(work: Path, package: str, pattern: str) -> list[str]:
    """Return the dependencies of a Debian package that match a pattern."""
    text = _call(["apt-cache", *_apt(work), "depends", package], work)
    return re.findall(rf"Depends: ({pattern})", text)


def _initrd(busybox: bytes, modules: dict[str, Path]) -> bytes:
    """Return the initial file system as a cpio archive: busybox, `INIT` and the modules."""
    order: dict[str, bytes] = {}

    def load(name: str) -> None:
        name = name.replace("-", "_")
        # A module without a file is built into the kernel.
        if name in order or name not in modules:
            return
        data = modules[name].read_bytes()
        if modules[name].suffix == ".xz":
            data = lzma.decompress(data)
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for dependency in depends.group(1).decode().split(",") if depends else []:
            load(dependency)
        order[name] = data

    for name in MODULES:
        load(name)
    folders = ("bin", "dev", "proc", "outside", "sys", "modules")
    entries = [(name, 0o040755, b"") for name in folders]
    entries += [("bin/busybox", 0o100755, busybox), ("init", 0o100755, INIT.encode())]
    entries += [(f"modules/{name}.ko", 0o100644, data) for name, data in order.items()]
    listed = "\n".join(f"modules/{name}.ko" for name in order)
    entries += [("modules.list", 0o100644, listed.encode()), ("TRAILER!!!", 0, b"")]
    packed = bytearray()
    for number, (name, mode, data) in enumerate(entries, 1):
        named = name.encode() + b"\0"
        head = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(named), 0)
        packed += b"070701" + b"".join(b"%08X" % value for value in head) + named
        packed += b"\0" * (-len(packed) % 4) + data
        packed += b"\0" * (-len(packed) % 4)
    return bytes(packed)


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("setup")
    running = verbs.add_parser("run")
    running.add_argument("--limit", type=float, default=600)
    running.add_argument("--out", type=Path)
    running.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.verb == "setup":
        setup()
        return 0
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    try:
        done = run(" ".join(words), arguments.limit, arguments.out)
    except MachineError as error:
        print(error, file=sys.stderr)
        return 2
    print(done.output, end="")
    return done.status


if __name__ == "__main__":
    sys.exit(main())
