"""The errors of Forebay: one tree under `ForebayError`, whose members carry facts as attributes.

    ForebayError
    ├── ScenarioError        a scenario, a law or a setting that cannot be used (a `ValueError`)
    │   └── ParameterError   an argument that cannot be used: its name and value, what is expected
    │       └── OtherResultError   a folder that holds the result of another command
    ├── FormatError          a file that does not have the expected format (a `ValueError`)
    ├── RunError             a run that failed (a `RuntimeError`)
    ├── LinkError            a link that could not be set up (a `RuntimeError`)
    └── StoreError           a file of the store that cannot be used

`Interrupted` is a `KeyboardInterrupt`, so that `except Exception` does not swallow Ctrl-C. The
native module raises `ScenarioError`, too.
"""

from __future__ import annotations

from os import PathLike
from typing import Any


def plain(text: str) -> str:
    """Return a text with each character that a terminal cannot print replaced."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def reason_of(error: Exception) -> str:
    """Return the system's message of an error, in lower case and without the file's name."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return reason[:1].lower() + reason[1:]


class ForebayError(Exception):
    """The base class of all errors of Forebay."""


class ScenarioError(ForebayError, ValueError):
    """A scenario, a law or a setting that cannot be used, in one line.

    Attributes
    ----------
    file : str
        Name of the scenario; empty if the error is not about a file.
    line : int or None
        Line of the file, counted from 1; None if it is unknown.
    key : str
        Key of the scenario, such as "traffic.0.flows"; empty if the error is not about a key.
    expected : str
        Description of a correct value; empty if only the message has it.
    """

    def __init__(
        self,
        message: str = "",
        file: str = "",
        line: int | None = None,
        key: str = "",
        expected: str = "",
    ) -> None:
        super().__init__(message)
        self.file, self.line, self.key, self.expected = file, line, key, expected


#: Words with which a reason begins that goes on from the value.
RELATIVE = ("which ", "for ")


class ParameterError(ScenarioError):
    """An argument that cannot be used.

    Attributes
    ----------
    name : str
        Name of the parameter; the command line has an option for it.
    value : object
        The argument.
    expected : str
        Description of a correct argument.
    reason : str
        The fault of the argument; empty if `expected` implies it.
    item : str
        The part of the argument that is at fault; empty for the whole argument.
    """

    def __init__(
        self, name: str, value: object, expected: str, *, reason: str = "", item: str = ""
    ) -> None:
        self.name, self.value, self.expected = name, value, expected
        self.reason, self.item = reason, item
        super().__init__(self.text(name), key=name, expected=expected)

    def text(self, label: str) -> str:
        """Return the message with another label, such as "--store", in place of the name."""
        label = f"{label}: {self.item}" if self.item else label
        if self.value is None:
            return f"{label}: missing; expected {self.expected}"
        value = f'"{self.value}"' if isinstance(self.value, str | PathLike) else f"{self.value}"
        fault, reason = f"{value} is not valid", self.reason
        if reason.startswith("("):
            fault = f"{fault} {reason}"
        elif reason.startswith(RELATIVE):
            fault = f"{value}, {reason}, is not valid"
        elif reason:
            fault = f"{value}: {reason}"
        return f"{label}: {fault}; expected {self.expected}"


class OtherResultError(ParameterError):
    """A folder that holds the result of another command, which is replaced only on request.

    Attributes
    ----------
    command : str
        The command that made the result.
    undigested : bool
        True if the result has no digest, so it cannot be compared with the new one.
    """

    def __init__(self, name: str, value: object, command: str, *, undigested: bool) -> None:
        self.command = command
        self.undigested = undigested
        super().__init__(name, value, "")

    def text(self, label: str) -> str:
        """Return the message with another label; that of an option names an option."""
        version = " of a former version of Forebay" if self.undigested else ""
        force = "--force" if label.startswith("--") else "force=True"
        return (
            f'{label}: "{self.value}" holds the result of `{self.command}`{version}; use {force} '
            "to replace it, or another folder"
        )


class FormatError(ForebayError, ValueError):
    """A file that does not have the expected format, with the reason.

    The reason may quote the file; characters that a terminal cannot print are replaced.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(plain(reason))


class RunError(ForebayError, RuntimeError):
    """A run that failed.

    Attributes
    ----------
    law, point : str
        Labels of the law and of the point.
    seed : int
        Seed of the run.
    message : str
        The cause of the failure.
    result : Result or None
        The runs that had finished; None if they are not kept.
    """

    def __init__(
        self, law: str, point: str, seed: int, message: str, *, file: str = "", result: Any = None
    ) -> None:
        self.law, self.point, self.seed = law, point, seed
        self.message, self.result = message, result
        where, at = f"{file}: " if file else "", f" at {point}" if point else ""
        super().__init__(f"{where}{law}{at}, seed {seed}, failed: {message.rstrip()}")


class Interrupted(KeyboardInterrupt):
    """An interruption of a script by Ctrl-C.

    Attributes
    ----------
    result : Result
        The runs that had finished.
    """

    def __init__(self, result: Any) -> None:
        self.result = result
        super().__init__("interrupted; the finished runs are in .result")


class LinkError(ForebayError, RuntimeError):
    """A link that could not be set up, in one line."""


class StoreError(ForebayError):
    """A file of the store that cannot be used.

    Attributes
    ----------
    name : str
        Name of the file within its store.
    reason : str
        The fault of the file.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason
