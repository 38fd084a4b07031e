"""What is attached on this machine: a file for each device with what `attach` did to it.

The law itself is held by its device and needs no file. The files are root's alone: their folder is
checked before anything in it is believed, and each file is read by itself, so one that is
damaged, or of a later version, concerns no other device.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from forebay._base import registries
from forebay._native import ScenarioError
from forebay.linux.device_qdiscs import DeviceQdisc

#: This folder goes with the last law, and with the machine's next start.
RUN = Path("/run/forebay")
ATTACHED = RUN / "attached"
LOCK = "lock"
#: Version of the files; a file of a later version is left alone.
VERSION = 2
#: How long a command waits for another one before it says so, and how often it looks.
QUIET_S, LOOKS_S = 1.0, 0.05
MOST_BYTES = 1 << 20
#: Longest name of a device and of a qdisc, in bytes.
NAME_BYTES = 15
MADE = ("shaper", "tcx", "clsact", "filter")


class RecordError(ValueError):
    """A record that cannot be used; the text says why."""


@dataclass(frozen=True)
class Attached:
    """A device with a law.

    Attributes
    ----------
    device : str
        Name of the device when the law was attached.
    ifindex, namespace : int
        Number of the device, and cookie of its network namespace.
    law, params
        The law, and its parameters as given or designed.
    rate_bps : int
        Rate of IP packets, in bit/s.
    buffer_pkts : float
        Buffer of the shaper.
    packet_bytes, header_bytes : int
        Usual packet as the shaper counts it, and the device's header in it.
    engine : str
        One of `programs.FRONTS`, or the kind of the kernel's own qdisc.
    made : list of str
        What was made: "shaper", "tcx", "clsact", "filter".
    before : list of DeviceQdisc, optional
        The qdiscs that were there; None for the kernel's default.
    program : int
        Identifier of the law's program; 0 before it is loaded, and without one.
    maps : dict
        Identifiers of its maps, by name.
    boot : str
        The start of the machine in which the law was attached.
    """

    device: str
    ifindex: int
    namespace: int
    law: str
    params: dict[str, Any]
    rate_bps: int
    buffer_pkts: float
    packet_bytes: int
    header_bytes: int
    ecn: bool
    engine: str
    made: list[str] = field(default_factory=list)
    before: list[DeviceQdisc] | None = None
    program: int = 0
    maps: dict[str, int] = field(default_factory=dict)
    boot: str = ""

    @property
    def key(self) -> str:
        """The device's number and namespace, which no other record has."""
        return f"{self.ifindex}@{self.namespace}"

    @property
    def qdisc(self) -> str:
        """The kernel's name for a qdisc of this law: each device has its own, of 15 letters."""
        return f"fb{self.namespace & 0xFFFFFFFF:x}_{self.ifindex:x}"[:NAME_BYTES]

    @property
    def file(self) -> Path:
        """Path of the record."""
        return ATTACHED / f"{self.key}.json"

    def write(self) -> None:
        """Write the record, whole or not at all. Raises `OSError`."""
        value = {"version": VERSION, **asdict(self)}
        _make_folder(ATTACHED)
        unfinished = ATTACHED / f".{self.key}.{os.getpid()}"
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        unfinished.unlink(missing_ok=True)
        try:
            file = os.open(unfinished, how, 0o600)
            try:
                _write(file, json.dumps(value, indent=1).encode())
            finally:
                os.close(file)
            unfinished.rename(self.file)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise OSError(
                error.errno, os.strerror(error.errno or errno.EIO), str(self.file)
            ) from None

    def forget(self) -> None:
        """Delete the record."""
        self.file.unlink(missing_ok=True)


def boot() -> str:
    """Return what tells this start of the machine from others."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read() -> tuple[list[Attached], list[RecordProblem]]:
    """Return the records of every namespace, and those that cannot be used.

    Raises
    ------
    ScenarioError
        If others than root may write to the folder of the records: then none is believed.
    """
    attached: list[Attached] = []
    problems: list[RecordProblem] = []
    if not _is_trusted(RUN) or not _is_trusted(ATTACHED):
        return attached, problems
    try:
        files = sorted(ATTACHED.iterdir())
    except FileNotFoundError:
        return attached, problems
    for file in files:
        if file.suffix != ".json" or file.name.startswith("."):
            continue
        try:
            attached.append(_record(file))
        except FileNotFoundError:
            continue
        except _LaterRecordError as error:
            problems.append(RecordProblem(file, str(error), later=True))
        except (OSError, ValueError) as error:
            why = error.strerror or "" if isinstance(error, OSError) else str(error)
            problems.append(RecordProblem(file, why))
    return attached, problems


@dataclass(frozen=True)
class RecordProblem:
    """A record that cannot be used; `later`: it was written by a later version of Forebay."""

    file: Path
    why: str
    later: bool = False

    def remove(self) -> bool:
        """Delete the record; return False for a folder with something in it, which stays."""
        try:
            if self.file.is_dir() and not self.file.is_symlink():
                self.file.rmdir()
            else:
                self.file.unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def __str__(self) -> str:
        """Return the file, its fault and the remedy in one line."""
        advice = (
            "use that version of Forebay for its device"
            if self.later
            else "`forebay detach --stale` removes it"
        )
        return f"{self.file}: {self.why}; {advice}"


class _LaterRecordError(RecordError):
    pass


def _record(file: Path) -> Attached:
    """Read one record. Raises `OSError` and `ValueError`."""
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or not _is_private(status):
            raise RecordError("not a file that only root can write")
        if status.st_size > MOST_BYTES:
            raise RecordError(f"{status.st_size} bytes are too many for a record")
        data = os.read(handle, MOST_BYTES)
    finally:
        os.close(handle)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise RecordError("damaged: not JSON") from None
    attached = _validated(value)
    if file.name != f"{attached.key}.json":
        raise RecordError("its name is not that of its device")
    return attached


def is_device_name(name: str) -> bool:
    """Return True if Linux could call a device so (dev_valid_name of net/core/dev.c)."""
    data = os.fsencode(name)
    forbidden = any(byte in b"/: \t\n\v\f\r\0" for byte in data)
    return 0 < len(data) <= NAME_BYTES and name not in (".", "..") and not forbidden


def _is_identifier(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 32


#: What each field of a record must be: its type in JSON, what is true of its value, and the fault.
RULES: list[tuple[str, type | tuple[type, ...], Callable[[Any], bool], str]] = [
    ("device", str, is_device_name, "is not the name of a device"),
    *(
        (name, int, lambda number: 0 < number < 1 << 64, "is no positive number of 64 bits")
        for name in ("ifindex", "namespace", "rate_bps", "packet_bytes")
    ),
    ("law", str, lambda law: law in registries.laws(), "is not known"),
    (
        *("params", dict),
        lambda params: all(isinstance(value, (str, int, float)) for value in params.values()),
        "has a value that is neither text nor number",
    ),
    ("buffer_pkts", (int, float), lambda pkts: 0 < pkts < math.inf, "is not positive"),
    ("header_bytes", int, lambda size: 0 <= size < 1 << 16, "is no number of 16 bits"),
    ("ecn", bool, lambda _: True, ""),
    (
        *("engine", str),
        lambda engine: re.fullmatch(r"[a-z0-9_]{1,15}", engine) is not None,
        "is not the name of a qdisc",
    ),
    ("made", list, lambda words: all(word in MADE for word in words), "has unknown words"),
    ("program", int, _is_identifier, "is no number of 32 bits"),
    (
        *("maps", dict),
        lambda maps: all(map(_is_identifier, maps.values())),
        "has an identifier that is no number of 32 bits",
    ),
    ("boot", str, lambda _: True, ""),
]


def _validated(value: Any) -> Attached:
    """Return the record of a JSON value. Raises `RecordError` if it is damaged or too new."""
    if not isinstance(value, dict):
        raise RecordError("damaged: not a JSON object")
    version = value.pop("version", None)
    if type(version) is int and version > VERSION:
        raise _LaterRecordError(f"written by a later Forebay (record version {version})")
    if version != VERSION:
        raise RecordError(f"record version {version!r}; this Forebay reads {VERSION}")
    names = {attribute.name for attribute in fields(Attached)}
    if set(value) != names:
        wrong = ", ".join(sorted(str(name) for name in set(value) ^ names))
        raise RecordError(f"damaged: missing or unknown fields ({wrong})")
    for name, kind, holds, fault in RULES:
        # True is a number, too.
        if not isinstance(value[name], kind) or isinstance(value[name], bool) != (kind is bool):
            raise RecordError(f"damaged: {name} has the wrong type")
        if not holds(value[name]):
            raise RecordError(f"damaged: {name} {fault}")
    before = value["before"]
    if before is not None:
        if not isinstance(before, list) or not before:
            raise RecordError("damaged: before is no list of qdiscs")
        try:
            value["before"] = [DeviceQdisc.from_json(qdisc) for qdisc in before]
        except ValueError as error:
            raise RecordError(f"damaged: {error}") from None
    return Attached(**value)


# --- the folder, and one command at a time ------------------------------------------------------


@contextmanager
def alone() -> Iterator[None]:
    """Let one command at a time change what is attached.

    The lock is on a file that only root can open, in a folder that only root can enter: nobody
    else can hold it. It ends with its process. What is left of the folder goes afterwards.
    """
    file = _locked()
    try:
        yield
    finally:
        tidy()
        os.close(file)


def _locked() -> int:
    while True:
        _make_folder(RUN)
        if not _is_trusted(RUN):
            continue
        try:
            how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(RUN / LOCK, how, 0o600)
        except FileNotFoundError:
            # Another command has just removed the folder.
            continue
        try:
            _wait_for(file)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), (RUN / LOCK).stat(follow_symlinks=False)):
                    os.ftruncate(file, 0)
                    with suppress(OSError):  # a full disk: the number is for others to read
                        os.pwrite(file, str(os.getpid()).encode(), 0)
                    return file
        except BaseException:
            os.close(file)
            raise
        # Its last holder has removed it.
        os.close(file)


def _wait_for(file: int) -> None:
    deadline_s = time.monotonic() + QUIET_S
    while time.monotonic() < deadline_s:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(LOOKS_S)
    holder = os.pread(file, 20, 0).decode(errors="replace")
    process = f" (process {holder})" if holder.isdigit() else ""
    print(
        f"waiting for another forebay command that attaches or detaches{process}",
        file=sys.stderr,
        flush=True,
    )
    fcntl.flock(file, fcntl.LOCK_EX)


def tidy() -> None:
    """Remove what the last law leaves; call it with the lock held."""
    with suppress(FileNotFoundError):
        for file in ATTACHED.iterdir():
            # A file of a command that was killed while it wrote.
            if file.name.startswith("."):
                file.unlink(missing_ok=True)
        if not any(ATTACHED.iterdir()):
            ATTACHED.rmdir()
    with suppress(FileNotFoundError):
        if [file.name for file in RUN.iterdir()] == [LOCK]:
            (RUN / LOCK).unlink()
            RUN.rmdir()


def _make_folder(folder: Path) -> None:
    """Make a folder for root alone, whatever the umask."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)


def _is_trusted(folder: Path) -> bool:
    """Return False if there is no such folder. Raises `ScenarioError` where others may write."""
    try:
        status = folder.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(status.st_mode) or not _is_private(status):
        raise ScenarioError(
            f"{folder}: users other than root can write there, so its records are not used; "
            f"remove laws by hand if there are any, then the folder: `rm -r {folder}`"
        )
    return True


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
