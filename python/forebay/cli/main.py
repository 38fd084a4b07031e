"""The entry point of the command `forebay`, which reports each error in one line with a status.

The modules of the commands are loaded late, so that Ctrl-C is reported in one line while they load.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay._base import signals
from forebay._base.errors import ParameterError, ScenarioError
from forebay.cli import output

if TYPE_CHECKING:
    import typer

#: Exit status of a command that failed, and of one whose input is wrong, such as a law in Python
#: that raises; `signals.status` is that of a stopped command.
FAILED, BAD_INPUT = 1, 2
#: Environment variable that a shell sets to ask for completions.
COMPLETES = "_FOREBAY_COMPLETE"
#: Optional packages by module: the extras of pyproject.toml.
EXTRAS = {"control": "control>=0.10.1,<0.11", "prometheus_client": "prometheus-client>=0.21,<1"}
#: The command that passes signals on to its program.
PASSES_ON = "link"


def main() -> None:
    """Run the command `forebay`."""
    open_streams = _open()
    output.replace_what_is_lacking()
    if not open_streams:
        sys.exit(BAD_INPUT)
    try:
        if sys.argv[1:2] == [PASSES_ON]:
            if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        else:
            signals.catch()
            # Before numpy is loaded. Matrices of loops have some dozens of rows, and threads for
            # them cost three times the processor time.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        status = run_command(sys.argv[1:])
    except KeyboardInterrupt:
        # The command has not begun yet.
        status = _interrupted()
    # Nothing is left to be interrupted. An interruption that was sent again may arrive here, and
    # Python would end with its signal in place of the status.
    try:
        signals.ignore()
    except KeyboardInterrupt:
        signals.ignore()
    sys.exit(status)


def _open() -> bool:
    """Open the standard streams that the shell has closed, whose numbers later files would get.

    Without standard output, tables and results would be lost: this is reported before any run.

    Returns
    -------
    bool
        True if there is a standard output.
    """
    closed = []
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            # The new file gets the lowest free number, which is that of the closed file.
            os.open(os.devnull, os.O_RDWR)
            closed.append(fd)
    if 2 in closed:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    if 1 in closed:
        print_error("standard output is closed; redirect it to /dev/null to discard it")
    return 1 not in closed


def run_command(arguments: list[str]) -> int:
    """Run a command line and return its exit status."""
    standard = sys.stdout
    try:
        status = _run(arguments)
        is_lost = isinstance(sys.stdout, output.Output) and sys.stdout.lost
        return status or (FAILED if is_lost else 0)
    except KeyboardInterrupt:
        return _interrupted()
    finally:
        sys.stdout = standard


def print_error(line: str) -> None:
    """Print an error on standard error."""
    print(f"error: {line}", file=sys.stderr)


def _interrupted() -> int:
    """Report an interruption before any output was written, and return the exit status."""
    print("interrupted; no output was written", file=sys.stderr)
    return signals.status()


def _run(arguments: list[str]) -> int:
    """Run a command line, report its error in one line, and return its exit status."""
    import typer

    from forebay.cli.app import GROUPS, app

    # Without a command, the answer is the list of commands.
    if not arguments or arguments in [[group] for group in GROUPS]:
        arguments = [*arguments, "--help"]
    try:
        called = arguments[0] if arguments and not arguments[0].startswith("-") else None
        # Completion needs the options, too.
        listed = COMPLETES not in os.environ
        whole = app(called if listed else None, listed=listed)
        return whole(arguments, prog_name="forebay", standalone_mode=False) or 0
    except ScenarioError as error:
        print_error(with_option(error, arguments))
        return BAD_INPUT
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        # Names that are not UTF-8 have surrogates in Python, which some libraries refuse.
        name = _not_utf8([*arguments, str(Path.cwd())])
        if not name:
            raise
        from forebay._base import input_file

        print_error(
            f"{input_file.printable(name)}: this name is not UTF-8 and cannot be used here "
            f"({error.reason}); rename the file or folder"
        )
        return BAD_INPUT
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        print_error(wrong_option(error))
        return BAD_INPUT
    except ModuleNotFoundError as error:
        package = EXTRAS.get(str(error.name).partition(".")[0])
        if package is None:
            raise
        print_error(f'a package is missing; install it with: pip install "{package}"')
        return FAILED
    except BrokenPipeError:
        # Nobody reads the output any more.
        output.close(sys.stdout)
        return FAILED
    except OSError as error:
        # An error of the machine, such as a full disk, names a file. Any other is a bug.
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        print_error(f"{error.filename or 'output'}: {_in_words(error)}")
        return FAILED


#: Options that have another name than the parameter of the library; a single law is an argument.
OPTIONS = {
    "laws": "--law",
    "overrides": "--set",
    "senders": "--tcp",
    "router": "--for",
    "law": "law",
    "kind": "kind",
}


def with_option(error: ScenarioError, arguments: Sequence[str] = ()) -> str:
    """Return an error's line with the option in place of the library's parameter.

    Parameters
    ----------
    error : ScenarioError
        The error.
    arguments : sequence of str
        The arguments of the command, with the options that the user gave.

    Returns
    -------
    str
        The line.
    """
    if not isinstance(error, ParameterError):
        text = str(error)
        name = error.key or text.partition(": ")[0]
        option = f"--{name.replace('_', '-')}"
        is_option = any(argument.partition("=")[0] == option for argument in arguments)
        if is_option and text.startswith(f"{name}: "):
            return option + text.removeprefix(name)
        return text
    name = error.name
    # The name of an argument, such as FILE, is not that of an option.
    return error.text(name if name.isupper() else OPTIONS.get(name, f"--{name.replace('_', '-')}"))


def _not_utf8(names: list[str]) -> str:
    """Return the first name that is not UTF-8, or an empty text."""
    return next((name for name in names if not _is_utf8(name)), "")


def _is_utf8(name: str) -> bool:
    """Return True if a name can be encoded in UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


#: Meanings of some errors of the system.
MEANINGS = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota of the disk is used up"}


def _in_words(error: OSError) -> str:
    """Return the reason of an error of the system, with its meaning."""
    meaning = MEANINGS.get(error.errno or 0)
    return f"{meaning} ({error.strerror})" if meaning else str(error.strerror)


def wrong_option(error: typer.TyperException) -> str:
    """Return the line of an error in an option."""
    # Typer reads values with pydantic, whose errors have the value and the reason.
    errors: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    option = max(getattr(getattr(error, "param", None), "opts", ()), key=len, default="")
    if errors and option:
        kind, limits = errors[0]["type"], errors[0].get("ctx", {})
        expected = {
            "int_parsing": "a whole number",
            "float_parsing": "a number",
            "greater_than_equal": f"at least {limits.get('ge')}",
            "less_than_equal": f"at most {limits.get('le')}",
            # Other errors are those of a parser, such as `declaration.path`.
        }.get(kind, errors[0]["msg"].removeprefix("Value error, "))
        return f'{option}: "{errors[0]["input"]}" is not valid; expected {expected}'
    message: str = getattr(error, "format_message", error.__str__)()
    missing = re.fullmatch(r"Missing (?:argument|option) '(.+)'\.", message)
    if missing:
        return f"{missing[1]} is required"
    unknown = re.fullmatch(r"No such (command|option):? '?([^' ]+?)'?\.?( \(.*\))?", message)
    if unknown:
        return f"unknown {unknown[1]} {unknown[2]}{unknown[3] or ''}"
    return message.replace("'", '"')
