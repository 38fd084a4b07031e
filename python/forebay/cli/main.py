"""Where the command `forebay` begins, and how it fails: one line, and a status.

Each command has a file beside this one. They are loaded late, so that Ctrl-C gets its line while
they are.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

#: Exit statuses.
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def main() -> None:
    """Entry point of the command `forebay`."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Runs one command line and returns its exit status."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        # A command writes when all is done; one that keeps what had finished says so itself.
        print("interrupted: nothing is left", file=sys.stderr)
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    import typer

    from forebay._native import ScenarioError
    from forebay.cli.app import app

    try:
        return app(arguments, prog_name="forebay", standalone_mode=False) or 0
    except ScenarioError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        # Without any argument, the help has been shown, and this is empty.
        line = wrong_option(error)
        if line:
            print(line, file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        # A full disk, say. One without a file is no fault of the machine, and keeps its traceback.
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        print(f"forebay: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return FAILED


def wrong_option(error: typer.TyperException) -> str:
    """One line on an option that is wrong; empty where there is nothing to say."""
    # Typer has pydantic read the values, whose errors say what was found.
    errors: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    option = max(getattr(getattr(error, "param", None), "opts", ()), key=len, default="")
    if errors and option:
        kind, limits = errors[0]["type"], errors[0].get("ctx", {})
        allowed = {
            "int_parsing": "a whole number",
            "float_parsing": "a number",
            "greater_than_equal": f"at least {limits.get('ge')}",
            "less_than_equal": f"at most {limits.get('le')}",
        }.get(kind, errors[0]["msg"])
        return f'{option}: found "{errors[0]["input"]}", allowed: {allowed}'
    message = getattr(error, "format_message", error.__str__)()
    return f"forebay: {message}".replace("'", '"') if message else ""
