"""Read files that other programs wrote and that may be damaged or malicious.

Contents are decompressed up to a limit, and texts are decoded. JSON is parsed within a bound, and
its values are checked. A Parquet file that may be damaged is read by another process first, since
polars panics on such a file or asks for more memory than there is. The metrics that a link serves
are read from Prometheus' text format.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import math
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from forebay._base.errors import FormatError, plain, reason_of
from forebay._native import ScenarioError

if TYPE_CHECKING:
    from polars import DataFrame

#: Most bytes of a data file that a scenario names, compressed or not: it is held in memory.
MOST_DATA_BYTES = 10**9
#: First bytes of compressed formats, the function that opens a file, and the name of the format.
COMPRESSIONS: list[tuple[bytes, Callable[[IO[bytes]], IO[bytes]], str]] = [
    (b"\x1f\x8b", lambda file: cast(IO[bytes], gzip.GzipFile(fileobj=file)), "gzip"),
    (b"BZh", bz2.BZ2File, "bzip2"),
    (b"\xfd7zXZ\x00", lzma.LZMAFile, "xz"),
]
#: First bytes of formats that Python's standard library cannot read, and commands that unpack them.
UNPACKERS = [
    (b"\x28\xb5\x2f\xfd", "zstd -d"),
    (b"\x04\x22\x4d\x18", "lz4 -d"),
    (b"PK\x03\x04", "unzip"),
    (b"7z\xbc\xaf\x27\x1c", "7z x"),
]
#: Byte order marks; those of UTF-32 come first because they begin like those of UTF-16.
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
        Largest size that is accepted, of the file and of its decompressed contents.

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
    """Return `data`, decompressed if its first bytes are those of gzip, bzip2 or xz.

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

    The contents are decompressed, and a text with a byte order mark is converted to UTF-8.

    Parameters
    ----------
    name : str
        Name of the file.
    contents : bytes
        Its contents.

    Raises
    ------
    ScenarioError
        If the contents are damaged, too large, or not in the encoding of their mark.
    """
    printable_name = printable(name)
    return as_utf8(decompressed(contents, printable_name, MOST_DATA_BYTES), printable_name)


def as_utf8(data: bytes, name: str) -> bytes:
    """Return a text as UTF-8 without a byte order mark.

    Data that do not begin with a mark of Unicode are returned unchanged.

    Parameters
    ----------
    data : bytes
        The text.
    name : str
        Name of the file in errors.

    Raises
    ------
    ScenarioError
        If the text is not in the encoding of its mark.
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
    """Return data as text: UTF-8, or the encoding of their byte order mark.

    Bytes that are not UTF-8 become the replacement character, so that the name of a device in
    Latin-1 does not prevent the numbers next to it from being read.

    Parameters
    ----------
    data : bytes
        The contents of a file.
    name : str
        Name of the file in errors.

    Raises
    ------
    ScenarioError
        If the data are binary.
    """
    plain = as_utf8(data, name)
    if b"\x00" in plain[:4096]:
        raise ScenarioError(f"{name}: is binary data; expected a text")
    return plain.decode("utf-8", errors="replace")


def printable(path: str | os.PathLike[str]) -> str:
    """Return a path for a message: bytes that are not UTF-8 and control characters are escaped."""
    name = os.fspath(path).encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


def _size(count: int) -> str:
    """Return a number of bytes in words."""
    return f"{count >> 20} MiB" if count % (1 << 20) == 0 else f"{count / 1e6:g} MB"


#: Most lists and tables of a document: in memory each takes at least 60 bytes.
MOST_CONTAINERS = 2_000_000
#: The largest number in a document: no measured quantity exceeds it, and its square is finite.
LARGEST = 1e30
#: The number of levels to which lists and tables of a setting may be nested.
DEEPEST = 8


def parse_json(text: str) -> Mapping[str, Any]:
    """Return the table that a text in JSON holds.

    Raises
    ------
    FormatError
        If the text is no JSON, is no table, or would take too much memory.
    """
    if text.count("[") + text.count("{") > MOST_CONTAINERS:
        raise FormatError(f"it has more than {MOST_CONTAINERS:,} lists and tables")
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise FormatError("its lists are nested too deeply") from error
    except ValueError as error:
        raise FormatError(f"it is no JSON ({error})") from error
    return table(document, "the document")


def kind_of(value: Any) -> str:
    """Return the kind of a value for a message, such as "a table"."""
    kinds = {dict: "a table", list: "a list", str: "a text", bool: "a truth value"}
    return "missing" if value is None else kinds.get(type(value), "a number")


def table(value: Any, label: str) -> Mapping[str, Any]:
    """Return a value that must be a table.

    Parameters
    ----------
    value : Any
        The value in the document.
    label : str
        Name of the value in errors.

    Raises
    ------
    FormatError
        If the value is not a table.
    """
    if not isinstance(value, dict):
        raise FormatError(f"{label} is {kind_of(value)}; expected a table")
    return value


def optional_table(value: Any, label: str) -> Mapping[str, Any]:
    """Return a table; an absent one is empty.

    Parameters
    ----------
    value : Any
        The value in the document, or None.
    label : str
        Name of the value in errors.

    Raises
    ------
    FormatError
        If the value is not a table.
    """
    return {} if value is None else table(value, label)


def rows(value: Any, label: str) -> Sequence[Any]:
    """Return a value that must be a list.

    Parameters
    ----------
    value : Any
        The value in the document.
    label : str
        Name of the value in errors.

    Raises
    ------
    FormatError
        If the value is not a list.
    """
    if not isinstance(value, list):
        raise FormatError(f"{label} is {kind_of(value)}; expected a list")
    return value


def number(value: Any, label: str) -> float:
    """Return a value that must be a finite number.

    Parameters
    ----------
    value : Any
        The value in the document.
    label : str
        Name of the value in errors.

    Raises
    ------
    FormatError
        If the value is not a number, or is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"{label} is {kind_of(value)}; expected a number")
    # An integer may be too large for a float, and NaN compares with nothing.
    if not abs(value) <= LARGEST:
        raise FormatError(f"{label} is {str(value)[:20]}, which is out of range")
    return float(value)


def optional_number(value: Any, label: str) -> float | None:
    """Return a value that must be a finite number; None if it is absent or NaN.

    Parameters
    ----------
    value : Any
        The value in the document, or None.
    label : str
        Name of the value in errors.

    Raises
    ------
    FormatError
        If the value is not a number, or is out of range.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return number(value, label)


def text_value(value: Any, label: str) -> str:
    """Return a value that must be a text, without characters that a terminal cannot print.

    Parameters
    ----------
    value : Any
        The value in the document.
    label : str
        Name of the value in errors.

    Raises
    ------
    FormatError
        If the value is not a text.
    """
    if not isinstance(value, str):
        raise FormatError(f"{label} is {kind_of(value)}; expected a text")
    return plain(value)


def optional_text(value: Any, label: str) -> str:
    """Return a value that must be a text; "" if it is absent.

    Parameters
    ----------
    value : Any
        The value in the document, or None.
    label : str
        Name of the value in errors.

    Raises
    ------
    FormatError
        If the value is not a text.
    """
    return "" if value is None else text_value(value, label)


def seed(value: Any) -> int:
    """Return a value that must be a seed.

    Raises
    ------
    FormatError
        If the value is not a whole number of 64 bits.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"the seed is {kind_of(value)}; expected a whole number")
    if not 0 <= value < 2**64:
        raise FormatError(f"the seed is {str(value)[:20]}; expected 0 to 2^64 - 1")
    return value


def flag(value: Any, label: str) -> bool:
    """Return a value that must be true or false.

    Parameters
    ----------
    value : Any
        The value in the document.
    label : str
        Name of the value in errors.

    Raises
    ------
    FormatError
        If the value is neither.
    """
    if not isinstance(value, bool):
        raise FormatError(f"{label} is {kind_of(value)}; expected true or false")
    return value


def settings(value: Any) -> dict[str, Any]:
    """Return the settings of a point by key, without characters that a terminal cannot print."""
    entries = table(value, "settings")
    return {plain(key): _setting(item, DEEPEST) for key, item in entries.items()}


def _setting(value: Any, deeper: int) -> Any:
    """Return a setting; `deeper` is the number of levels to which it may be nested."""
    if deeper == 0:
        raise FormatError("a setting is nested too deeply")
    if isinstance(value, dict):
        return {plain(key): _setting(item, deeper - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_setting(item, deeper - 1) for item in value]
    if isinstance(value, str | bool):
        return plain(value) if isinstance(value, str) else value
    number(value, "a setting")
    return value


#: Largest file that is read.
MOST_BYTES = 1 << 30
#: Longest time that reading a file may take.
MOST_S = 300.0
#: A program that reads every value of a Parquet file; hashing forces the lazy decoding.
TRIAL = "import polars, sys; polars.read_parquet(sys.argv[1]).hash_rows()"


def read_parquet(file: Path, *, sound: bool = False) -> DataFrame:
    """Return the table of a file.

    Parameters
    ----------
    file : Path
        The file.
    sound : bool, optional
        True if the contents are known to be undamaged. By default another process reads the file
        first.

    Raises
    ------
    FormatError
        If the file cannot be read, is too large, or is damaged.
    """
    import polars as pl

    try:
        if file.stat().st_size > MOST_BYTES:
            raise FormatError(f"it is larger than {MOST_BYTES >> 20} MiB")
        if not sound:
            _try_elsewhere(file)
        return pl.read_parquet(file)
    except (OSError, ValueError, MemoryError, pl.exceptions.PolarsError) as error:
        raise FormatError(f"it is no Parquet ({_first_line(str(error))})") from error


def _try_elsewhere(file: Path) -> None:
    """Raise `FormatError` if another process fails to read the file."""
    import subprocess

    words = [sys.executable, "-c", TRIAL, str(file.absolute())]
    try:
        trial = subprocess.run(words, capture_output=True, timeout=MOST_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise FormatError(f"reading it takes more than {MOST_S:g} s") from error
    if trial.returncode == 0:
        return
    error_lines = trial.stderr.decode("utf-8", "replace").strip().splitlines()
    last = next(
        (line for line in reversed(error_lines) if line.startswith("polars.exceptions.")), ""
    )
    reason = last.partition(": ")[2]
    raise FormatError(f"it is no Parquet ({_first_line(reason)})" if reason else "it is damaged")


def _first_line(text: str) -> str:
    """Return the first line of a text."""
    return text.strip().partition("\n")[0]


PREFIX = "forebay_link_"


@dataclass(frozen=True)
class LinkSample:
    """One sample of a link's metrics.

    Attributes
    ----------
    name : str
        Name of the metric without `PREFIX`.
    labels : dict[str, str]
        Labels that identify the sample.
    value : float
        The value.
    """

    name: str
    labels: dict[str, str]
    value: float


def link_samples(text: str) -> Iterator[LinkSample]:
    """Yield the samples of links in a text, line by line; other lines are skipped."""
    from prometheus_client.parser import text_string_to_metric_families

    for line in text.splitlines():
        if not line.startswith(PREFIX):
            continue
        try:
            # A line at a time: several scrapes may follow each other, and repeat every family.
            families = list(text_string_to_metric_families(line))
        except ValueError:
            continue
        for family in families:
            for sample in family.samples:
                yield LinkSample(sample.name.removeprefix(PREFIX), sample.labels, sample.value)
