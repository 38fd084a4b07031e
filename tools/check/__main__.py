"""Run the checks that are named, or the quick ones, and fail if there is a finding."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable

from tools.check import documents, public_names, site, snippets, source, wheel, words

CHECKS: dict[str, Callable[[], Iterable[str]]] = {
    "source": source.check,
    "documents": documents.check,
    "names": public_names.check_python,
    "crates": public_names.check_crates,
    "words": words.check,
    "snippets": snippets.check,
    "site": site.check,
    "wheel": wheel.check,
}
#: The checks that need seconds and no build.
QUICK = ("source", "documents", "names", "words", "snippets")


def main() -> None:
    """Print each finding on a line of its own."""
    parser = argparse.ArgumentParser(prog="python -m tools.check", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CHECKS))
    names = parser.parse_args().names or QUICK
    if unknown := set(names) - CHECKS.keys():
        parser.error(f"unknown check: {', '.join(sorted(unknown))}")
    findings = 0
    for name in names:
        for finding in CHECKS[name]():
            findings += 1
            print(f"{name}: {finding}", flush=True)
    sys.exit(min(findings, 1))


if __name__ == "__main__":
    main()
