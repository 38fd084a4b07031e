"""Check that the words of the code do not get worse: docstrings, comments and names.

    python -m tools.check words                # fails if a count exceeds its threshold
    python -m tools.check.words                # prints every count next to its threshold
    python -m tools.check.words --list NAME    # prints the findings of a measure
    python -m tools.check.words --lower        # lowers thresholds to the present counts

CONTRIBUTING.md says how Forebay is written. A program cannot judge a sentence, but it can count
signs of a bad one, such as a docstring that begins with a preposition and has neither subject nor
verb. `words.toml` holds the largest count that each measure allows; a threshold may only fall.
"""

from __future__ import annotations

import argparse
import ast
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
THRESHOLDS = Path(__file__).with_name("words.toml")
PACKAGE = "python/forebay"

#: Words that cannot begin a sentence with a subject and a verb, or a phrase that names a thing.
HEADLESS = frozenset(
    {
        *("about", "above", "after", "against", "among", "and", "as", "at", "because", "before"),
        *("below", "beside", "between", "but", "by", "else", "for", "from", "here", "how", "if"),
        *("in", "into", "likewise", "neither", "nor", "not", "of", "on", "once", "or", "over"),
        *("since", "so", "than", "that", "then", "there", "to", "under", "until", "what", "when"),
        *("where", "whether", "which", "while", "who", "whose", "with", "within", "without"),
    }
)
#: Pronouns, participles and adverbs, which do not name the object that a variable holds.
EMPTY = frozenset(
    {
        *("any", "asked", "been", "begun", "each", "ended", "found", "given", "got", "had"),
        *("held", "here", "it", "kept", "known", "left", "made", "met", "most", "one", "other"),
        *("others", "read", "said", "seen", "shown", "some", "such", "taken", "them", "there"),
        *("these", "those", "told", "tried", "wanted", "what", "which"),
    }
)


@dataclass(frozen=True)
class Finding:
    """A place whose words need work.

    Attributes
    ----------
    measure : str
        Name of the measure, as in `words.toml`.
    place : str
        File and line, "FILE:LINE".
    text : str
        The name or the sentence at fault.
    """

    measure: str
    place: str
    text: str

    def __str__(self) -> str:
        """Return the place and the text in one line."""
        return f"{self.place}: {self.text}"


def is_headless(sentence: str) -> bool:
    """Return True if a sentence begins with a word of `HEADLESS`."""
    first = re.search(r"[A-Za-z']+", sentence)
    return first is not None and first[0].lower() in HEADLESS


# --- Python -------------------------------------------------------------------------------------


def python_findings(text: str, file: str) -> Iterator[Finding]:
    """Yield the findings in a file of Python.

    Parameters
    ----------
    text : str
        Contents of the file.
    file : str
        Path from the root; documentation of public names is required only in the package.
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            sentence = (ast.get_docstring(node) or "").partition("\n")[0]
            if is_headless(sentence):
                yield Finding(
                    "python_headless", f"{file}:{node.lineno}", f"{node.name}: {sentence}"
                )
        for name, line in bound_names(node):
            if name in EMPTY:
                yield Finding("python_empty_names", f"{file}:{line}", name)
    if file.startswith(PACKAGE):
        yield from undocumented_python(tree, file)


def bound_names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that a node binds, with its line."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, node.lineno
    elif isinstance(node, ast.arg):
        yield node.arg, node.lineno


def undocumented_python(tree: ast.Module, file: str) -> Iterator[Finding]:
    """Yield public functions and classes of a module without a docstring or its parameters.

    Parameters
    ----------
    tree : ast.Module
        The module.
    file : str
        Path of the module, for the findings.
    """
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_"):
            continue
        docstring = ast.get_docstring(node)
        if not docstring:
            yield Finding("python_undocumented", f"{file}:{node.lineno}", node.name)
        elif not isinstance(node, ast.ClassDef) and "Parameters\n---" not in docstring:
            arguments = node.args
            if len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]) > 1:
                yield Finding("python_parameters", f"{file}:{node.lineno}", node.name)


# --- Rust ---------------------------------------------------------------------------------------

ITEM = re.compile(
    r"\s*pub(?P<crate>\(crate\))? (?:(?:const|unsafe|async) )*"
    r"(?:fn|struct|enum|trait|type|const|static) (?P<name>\w+)"
)


def rust_findings(text: str, file: str) -> Iterator[Finding]:
    """Yield the findings in a file of Rust, without the tests at its end.

    Parameters
    ----------
    text : str
        Contents of the file.
    file : str
        Path from the root.
    """
    comment: tuple[int, str] | None = None
    brackets = 0
    for number, line in enumerate(text.partition("#[cfg(test)]")[0].splitlines(), 1):
        code = line.strip()
        if code.startswith("///"):
            comment = comment or (number, code.removeprefix("///").strip())
        elif brackets or code.startswith("#["):
            # An attribute, perhaps of several lines, stands between the comment and its item.
            brackets += code.count("[") - code.count("]")
        else:
            item = ITEM.match(line)
            if item and comment is None and not item["crate"]:
                yield Finding("rust_undocumented", f"{file}:{number}", item["name"])
            if item and comment and is_headless(comment[1]):
                place = f"{file}:{comment[0]}"
                yield Finding("rust_headless", place, f"{item['name']}: {comment[1]}")
            comment = None


# --- thresholds ---------------------------------------------------------------------------------

#: The measures of `words.toml`, with the property that each counts.
MEASURES = {
    "python_headless": "docstrings that begin without a subject or a verb",
    "python_empty_names": "variables and parameters named by a pronoun or a participle",
    "python_undocumented": "public functions and classes without a docstring",
    "python_parameters": "public functions whose docstring does not describe their parameters",
    "rust_headless": "doc comments that begin without a subject or a verb",
    "rust_undocumented": "public items without a doc comment",
}
#: Folders, suffixes and readers of the files that are measured.
SOURCES: tuple[tuple[str, str, Callable[[str, str], Iterable[Finding]]], ...] = (
    *((folder, "*.py", python_findings) for folder in (PACKAGE, "tools", "bench")),
    ("crates", "*/src/**/*.rs", rust_findings),
)


@cache
def findings() -> tuple[Finding, ...]:
    """Return every finding in the checkout, in the order of files and lines."""
    return tuple(
        finding
        for folder, pattern, reader in SOURCES
        for path in sorted((ROOT / folder).rglob(pattern))
        for finding in reader(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())
    )


def counts() -> dict[str, int]:
    """Return the number of findings of each measure."""
    by_measure = dict.fromkeys(MEASURES, 0)
    for finding in findings():
        by_measure[finding.measure] += 1
    return by_measure


def thresholds() -> dict[str, int]:
    """Return the largest count that each measure allows."""
    return tomllib.loads(THRESHOLDS.read_text("utf-8"))


def exceeded(present: Mapping[str, int], allowed: Mapping[str, int]) -> Iterator[str]:
    """Yield a line about each count above its threshold.

    Parameters
    ----------
    present : mapping of str to int
        The count of each measure.
    allowed : mapping of str to int
        The threshold of each measure; a measure without one allows no finding.
    """
    for measure, count in present.items():
        limit = allowed.get(measure, 0)
        if count > limit:
            yield (
                f"tools/check/words.toml: {measure}: {count} {MEASURES[measure]}, at most {limit} "
                f"allowed; `python -m tools.check.words --list {measure}` lists them"
            )


def lowered(present: Mapping[str, int], allowed: Mapping[str, int]) -> dict[str, int]:
    """Return thresholds that no count falls below; none is higher than before.

    Parameters
    ----------
    present : mapping of str to int
        The count of each measure.
    allowed : mapping of str to int
        The threshold of each measure.
    """
    return {measure: min(count, allowed.get(measure, count)) for measure, count in present.items()}


def check() -> Iterator[str]:
    """Yield a line about each count above its threshold, and print those that can be lowered."""
    present, allowed = counts(), thresholds()
    yield from exceeded(present, allowed)
    if lowered(present, allowed) != allowed:
        print(
            "words: counts have fallen below their thresholds; lower them with "
            "`python -m tools.check.words --lower`"
        )


def main() -> None:
    """Print counts or findings, or lower the thresholds."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.check.words",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", choices=MEASURES, metavar="NAME", help=", ".join(MEASURES))
    parser.add_argument("--lower", action="store_true", help="lower thresholds to the counts")
    options = parser.parse_args()
    present, allowed = counts(), thresholds()
    if options.list:
        print(*(finding for finding in findings() if finding.measure == options.list), sep="\n")
        return
    if options.lower:
        allowed = lowered(present, allowed)
        header = THRESHOLDS.read_text("utf-8").partition("\n\n")[0]
        lines = [f"{measure} = {limit}" for measure, limit in allowed.items()]
        THRESHOLDS.write_text("\n".join([header, "", *lines, ""]), "utf-8")
    for measure, count in present.items():
        print(f"{measure}: {count} of at most {allowed.get(measure, 0)} ({MEASURES[measure]})")


if __name__ == "__main__":
    main()
