"""Files that other programs wrote: their bytes, decompressed up to a limit, and their text."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from forebay._native import ScenarioError

#: Most bytes of a data file that a scenario names, compressed or not: it is held in memory.
MOST_DATA_BYTES = 10**9
#: How a compressed file begins, what reads it, and what the format is called.
COMPRESSIONS: list[tuple[bytes, Callable[[IO[bytes]], IO[bytes]], str]] = [
    (b"\x1f\x8b", lambda file: cast(IO[bytes], gzip.GzipFile(fileobj=file)), "gzip"),
    (b"BZh", bz2.BZ2File, "bzip2"),
    (b"\xfd7zXZ\x00", lzma.LZMAFile, "xz"),
]
#: Formats that Python's standard library cannot read: how a file begins, and what unpacks it.
UNPACKERS = [
    (b"\x28\xb5\x2f\xfd", "zstd -d"),
    (b"\x04\x22\x4d\x18", "lz4 -d"),
    (b"PK\x03\x04", "unzip"),
    (b"7z\xbc\xaf\x27\x1c", "7z x"),
]
#: Marks of the encoding at the start of a text; that of UTF-32 begins like that of UTF-16.
ENCODINGS = [
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
]


def read(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Return the contents of a file, decompressed if it is compressed.

    Parameters
    ----------
    path : path
        A regular file.
    most_bytes : int
        Largest size that is accepted, of the file and of what it decompresses to.

    Raises
    ------
    ScenarioError
        If the file cannot be read, is larger than `most_bytes`, or is compressed in a way that
        cannot be read.
    """
    name = printable(path)
    try:
        # A pipe or a device might never end.
        if not Path(path).is_file():
            reason = "is a folder" if Path(path).is_dir() else "does not exist or is no file"
            raise ScenarioError(f"{name}: {reason}")
        with Path(path).open("rb") as file:
            data = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{name}: cannot be read: {reason_of(error)}") from error
    if len(data) > most_bytes:
        raise ScenarioError(f"{name}: is larger than {_size(most_bytes)}, the most that is read")
    return decompressed(data, name, most_bytes)


def decompressed(data: bytes, name: str, most_bytes: int) -> bytes:
    """Return `data`, decompressed if it is gzip, bzip2 or xz, as its first bytes tell.

    Parameters
    ----------
    data : bytes
        Contents of the file.
    name : str
        Name of the file in errors.
    most_bytes : int
        Largest decompressed size that is accepted. Nothing beyond it is decompressed.

    Raises
    ------
    ScenarioError
        If the data are damaged, too large, or compressed by something else.
    """
    for start, command in UNPACKERS:
        if data.startswith(start):
            raise ScenarioError(
                f"{name}: is compressed in a format that Forebay does not read; unpack it first "
                f"with `{command}`, or compress it with gzip"
            )
    for start, opened, title in COMPRESSIONS:
        if not data.startswith(start):
            continue
        try:
            with opened(io.BytesIO(data)) as file:
                unpacked = file.read(most_bytes + 1)
        except (OSError, EOFError, zlib.error, lzma.LZMAError, MemoryError, ValueError) as error:
            raise ScenarioError(f"{name}: is damaged {title} data: {error}") from error
        if len(unpacked) > most_bytes:
            raise ScenarioError(
                f"{name}: is larger than {_size(most_bytes)} once decompressed, the most that is "
                "read"
            )
        return unpacked
    return data


def data(name: str, contents: bytes) -> bytes:
    """Return a capture, a list of packets or a rate trace as the reader of scenarios takes it.

    It is decompressed, and a text with a byte order mark is in UTF-8. Raises `ScenarioError`, as
    `decompressed` and `as_utf8` do.
    """
    printable_name = printable(name)
    return as_utf8(decompressed(contents, printable_name, MOST_DATA_BYTES), printable_name)


def as_utf8(data: bytes, name: str) -> bytes:
    """Return `data` as UTF-8 without a byte order mark, if it begins with a mark of Unicode.

    Anything else is returned as it is. Raises `ScenarioError` for a text that is not in the
    encoding of its mark.
    """
    for mark, encoding in ENCODINGS:
        if data.startswith(mark):
            try:
                return data[len(mark) :].decode(encoding).encode()
            except UnicodeError as error:
                raise ScenarioError(
                    f"{name}: begins like a text in {encoding.upper()}, and is none: {error}"
                ) from error
    return data


def text(data: bytes, name: str) -> str:
    """Return `data` as text: UTF-8, or what its byte order mark says.

    Bytes that are not UTF-8 become the replacement character, so that a device's name in Latin-1
    does not keep the numbers beside it from being read. Raises `ScenarioError` for binary data.
    """
    plain = as_utf8(data, name)
    if b"\x00" in plain[:4096]:
        raise ScenarioError(f"{name}: is binary data; expected a text")
    return plain.decode("utf-8", errors="replace")


def printable(path: str | os.PathLike[str]) -> str:
    """Return a path for a message: bytes that are not UTF-8 and control characters are escaped."""
    name = os.fspath(path).encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


def plain(text: str) -> str:
    """Return a text of a foreign file for a terminal: control characters and the like replaced."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def reason_of(error: Exception) -> str:
    """Return what the system says of an error, in lower case and without the file's name."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return reason[:1].lower() + reason[1:]


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count % (1 << 20) == 0 else f"{count / 1e6:g} MB"
