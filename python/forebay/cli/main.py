"""Where the command `forebay` begins, and how it fails: one line, and a status.

Each command has a file beside this one. They are loaded late, so that Ctrl-C gets its line while
they are.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay._base import signals
from forebay._base.errors import ParameterError, ScenarioError
from forebay.cli import output

if TYPE_CHECKING:
    import typer

#: Exit status of a command that failed, and of one whose input is at fault, as a law in Python may
#: be; `signals.status` has that of a stopped one.
FAILED, BAD_INPUT = 1, 2
#: Set by the shell that asks what it may offer.
COMPLETES = "_FOREBAY_COMPLETE"
#: Packages that few need, by their modules: the extras of pyproject.toml.
EXTRAS = {"control": "control>=0.10.1,<0.11", "prometheus_client": "prometheus-client>=0.21,<1"}
#: It passes signals on to its program.
PASSES_ON = "link"


def main() -> None:
    """Entry point of the command `forebay`."""
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
        # Before the command has begun.
        status = _interrupted()
    # What is left is to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)


def _open() -> bool:
    """Opens what the shell has closed, or files that are opened later would get its number.

    False, after a line on it, without standard output: tables and results would go nowhere, which
    one finds out better before the runs than after them.
    """
    closed = []
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            # The lowest free number is this one.
            os.open(os.devnull, os.O_RDWR)
            closed.append(fd)
    if 2 in closed:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    if 1 in closed:
        print(
            "forebay: standard output: found closed, allowed: open; > /dev/null for none",
            file=sys.stderr,
        )
    return 1 not in closed


def run_command(arguments: list[str]) -> int:
    """Runs one command line and returns its exit status."""
    standard = sys.stdout
    try:
        status = _run(arguments)
        gone = isinstance(sys.stdout, output.Output) and sys.stdout.lost
        return status or (FAILED if gone else 0)
    except KeyboardInterrupt:
        return _interrupted()
    finally:
        sys.stdout = standard


def _interrupted() -> int:
    """A command writes when all is done; one that keeps what had finished says so itself."""
    print("interrupted: nothing is left", file=sys.stderr)
    return signals.status()


def _run(arguments: list[str]) -> int:
    import typer

    from forebay._base import input_file
    from forebay.cli.app import app

    try:
        called = next((word for word in arguments if not word.startswith("-")), None)
        # What the shell offers after TAB are options, too.
        listed = COMPLETES not in os.environ
        whole = app(called if listed else None, listed=listed)
        return whole(arguments, prog_name="forebay", standalone_mode=False) or 0
    except ScenarioError as error:
        print(with_option(error), file=sys.stderr)
        return BAD_INPUT
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        # Names that are not UTF-8 have surrogates in Python; not every library and program takes
        # them.
        name = _not_utf8([*arguments, str(Path.cwd())])
        if not name:
            raise
        print(
            f"forebay: {input_file.printable(name)}: this name is not UTF-8, and cannot be used "
            f"here ({error.reason}); rename the file or folder",
            file=sys.stderr,
        )
        return BAD_INPUT
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        # Without any argument, the help has been shown, and this is empty.
        line = wrong_option(error)
        if line:
            print(line, file=sys.stderr)
        return BAD_INPUT
    except ModuleNotFoundError as error:
        package = EXTRAS.get(str(error.name).partition(".")[0])
        if package is None:
            raise
        print(f'forebay: this needs another package: pip install "{package}"', file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # The reader of our output has gone, and there is nothing else to do.
        output.close(sys.stdout)
        return FAILED
    except OSError as error:
        # A full disk, say. One without a file is no fault of the machine, and keeps its traceback.
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        print(f"forebay: {error.filename or 'output'}: {_in_words(error)}", file=sys.stderr)
        return FAILED


#: Options that have another name than the parameter of the library; a law by itself is an argument.
OPTIONS = {
    "laws": "--law",
    "overrides": "--set",
    "senders": "--tcp",
    "router": "--for",
    "law": "law",
    "kind": "kind",
}


def with_option(error: ScenarioError) -> str:
    """Return an error's line, in which the option stands for the library's parameter."""
    if not isinstance(error, ParameterError):
        return str(error)
    name = error.name
    # An argument, such as FILE, has no option.
    return error.text(name if name.isupper() else OPTIONS.get(name, f"--{name.replace('_', '-')}"))


def _not_utf8(names: list[str]) -> str:
    """Return the first name that is not UTF-8; empty if there is none."""
    return next((name for name in names if not _is_utf8(name)), "")


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


#: What the words of the system mean for a user.
MEANINGS = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota of the disk is used up"}


def _in_words(error: OSError) -> str:
    """Return what is wrong with a file: the words of the system, and what they mean."""
    meaning = MEANINGS.get(error.errno or 0)
    return f"{meaning} ({error.strerror})" if meaning else str(error.strerror)


def wrong_option(error: typer.TyperException) -> str:
    """Return one line on an option that is wrong; empty where there is nothing to say."""
    # Typer has pydantic read the values, whose errors have the value and the reason.
    errors: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    option = max(getattr(getattr(error, "param", None), "opts", ()), key=len, default="")
    if errors and option:
        kind, limits = errors[0]["type"], errors[0].get("ctx", {})
        allowed = {
            "int_parsing": "a whole number",
            "float_parsing": "a number",
            "greater_than_equal": f"at least {limits.get('ge')}",
            "less_than_equal": f"at most {limits.get('le')}",
            # A parser's own words (`declaration.path`).
        }.get(kind, errors[0]["msg"].removeprefix("Value error, "))
        return f'{option}: found "{errors[0]["input"]}", allowed: {allowed}'
    message = getattr(error, "format_message", error.__str__)()
    return f"forebay: {message}".replace("'", '"') if message else ""
