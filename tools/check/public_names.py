"""Public names of the Python package and of each crate, against the lists in `docs/reference/api/`.

A change that is meant renews the lists with `make api`.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff

from tools import public_api


def check_python() -> Iterator[str]:
    """Yield each difference of the package from its list, and each list that has no package."""
    lists = {file.stem for file in public_api.FOLDER.glob("*.txt")}
    for name in sorted(lists ^ {"python", *public_api.crates()}):
        state = "no package has this name" if name in lists else "missing"
        yield f"docs/reference/api/{name}.txt: {state}"
    yield from differences("python", public_api.python_api())


def check_crates() -> Iterator[str]:
    """Yield each difference of a crate from its list.

    One call of rustdoc for all crates resolves and documents what they share once.
    """
    for crate, text in public_api.public_api(public_api.crates()).items():
        yield from differences(crate, text)


def differences(name: str, current: str) -> Iterator[str]:
    """Yield the lines of a unified diff from the list of a package to its current names."""
    file = public_api.FOLDER / f"{name}.txt"
    listed = file.read_text().splitlines() if file.exists() else []
    diff = unified_diff(listed, current.splitlines(), file.name, "the code", lineterm="", n=0)
    for line in diff:
        if line[0] in "+-" and line[:3] not in ("+++", "---"):
            yield f"docs/reference/api/{name}.txt: {line}"
