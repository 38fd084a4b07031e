"""What tests of guests share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forebay.linux import guests


def _why_none() -> str:
    try:
        guests.chosen()
    except ValueError as error:
        return str(error)
    return ""


#: Skipped where there is no guest; `make test-kernel` builds one.
MARKS = [
    pytest.mark.kernel,
    pytest.mark.skipif(bool(_why_none()), reason=f"{_why_none()} (`make test-kernel` builds one)"),
]


def needs_guest(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that runs real Linux."""
    for mark in MARKS:
        test = mark(test)
    return test
