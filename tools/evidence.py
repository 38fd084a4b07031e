"""Makes the pages of `docs/evidence` one after the other, and stamps them with their version.

    python -m tools.evidence                     # make evidence: every page, resumed if interrupted
    python -m tools.evidence reality.md          # these pages only
    python -m tools.evidence --plan              # what would be made, and how long it takes
    python -m tools.evidence stamp reality.md    # write the line of version and commit

A page states the results version and the commit that made it in one line below its title. The
pages, what makes them and how long that takes are in `tools/evidence.toml`. Without names, a page
counts as made once it states the present results version, so the same command continues where
it was stopped, also after the finished pages have been committed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "evidence"
STAMP = re.compile(
    r"^\*Results version (?P<version>\d+), commit `(?P<commit>[0-9a-f]+)`\.\*$", re.M
)
#: A row of the summary: its last cells are a link to a page and the results version.
SUMMARY = re.compile(r"\]\((?P<page>[\w-]+\.md)[^)]*\) \| (?P<version>\d+) \|$")
VERSION = re.compile(r"^pub const RESULTS_VERSION: u32 = (\d+);$", re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """A page of `docs/evidence` that runs make.

    Attributes
    ----------
    name : str
        The file in `docs/evidence`.
    minutes : int
        The time that it takes on two idle cores.
    make : str
        The target of the Makefile; empty if `command` makes the page.
    command : str
        What prints the numbers of a page that is edited by hand.
    outdated : str
        Why the page may be of an older results version; empty if it may not.
    """

    name: str
    minutes: int
    make: str = ""
    command: str = ""
    outdated: str = ""


@dataclass(frozen=True)
class Stamp:
    """The results version and the commit of a page."""

    version: int
    commit: str

    def __str__(self) -> str:
        """Return the line that a page shows."""
        return f"*Results version {self.version}, commit `{self.commit}`.*"


def pages() -> list[Page]:
    """Return the pages in the order of `tools/evidence.toml`."""
    table = tomllib.loads((ROOT / "tools" / "evidence.toml").read_text(encoding="utf-8"))
    return [Page(name, **entry) for name, entry in table["pages"].items()]


def results_version() -> int:
    """Return the results version of the simulator, as its source declares it."""
    text = (ROOT / "crates" / "forebay-sim" / "src" / "lib.rs").read_text(encoding="utf-8")
    match = VERSION.search(text)
    if match is None:
        raise ValueError("crates/forebay-sim/src/lib.rs: no RESULTS_VERSION")
    return int(match[1])


def commit() -> str:
    """Return the abbreviated name of the present commit."""
    words = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(
        words, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def stamp_of(name: str) -> Stamp | None:
    """Return the version and the commit that a page states; None if it states none."""
    match = STAMP.search((FOLDER / name).read_text(encoding="utf-8"))
    return Stamp(int(match["version"]), match["commit"]) if match else None


def stamp(name: str, value: Stamp) -> None:
    """Write the line of version and commit into a page, below its title.

    Parameters
    ----------
    name : str
        A file of `docs/evidence`, whose first line is its title.
    value : Stamp
        The version and commit; they replace those that the page states.
    """
    file = FOLDER / name
    text = file.read_text(encoding="utf-8")
    if STAMP.search(text):
        text = STAMP.sub(str(value), text, count=1)
    else:
        title, _, rest = text.partition("\n")
        text = f"{title}\n\n{value}\n\n{rest.lstrip()}"
    file.write_text(text, encoding="utf-8")


def outdated() -> list[str]:
    """Return a finding for each page without a stamp, and each that is older than it may be."""
    findings, current = [], results_version()
    for page in pages():
        if not (FOLDER / page.name).is_file():
            findings.append(f"tools/evidence.toml: docs/evidence/{page.name} does not exist")
            continue
        value = stamp_of(page.name)
        if value is None:
            findings.append(f"docs/evidence/{page.name}: does not state its results version")
        elif value.version < current and not page.outdated:
            findings.append(
                f"docs/evidence/{page.name}: is of results version {value.version}; the current "
                f"one is {current}. Run `make evidence`, or give a reason in tools/evidence.toml"
            )
        elif value.version == current and page.outdated:
            findings.append(f"tools/evidence.toml: {page.name} is current and needs no reason")
    return findings


def summary() -> list[str]:
    """Return a finding for each row of the summary whose version is not that of its page."""
    findings = []
    for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines():
        row = SUMMARY.search(line)
        value = stamp_of(row["page"]) if row else None
        if row and value and value.version != int(row["version"]):
            findings.append(
                f"docs/evidence/README.md: {row['page']} is of results version {value.version}, "
                f"not {row['version']}"
            )
    return findings


def make(names: list[str], *, plan: bool) -> int:
    """Make pages of evidence, and return an exit status.

    Parameters
    ----------
    names : list of str
        The pages to make; if empty, those of an older results version.
    plan : bool
        Whether only to print what would be made.
    """
    target = Stamp(results_version(), commit())
    selected = [page for page in pages() if page.name in names or not names]
    stamps = {page.name: stamp_of(page.name) for page in selected}
    current = {name for name, value in stamps.items() if value and value.version == target.version}
    pending = [page for page in selected if page.make and (names or page.name not in current)]
    hours = sum(page.minutes for page in pending) / 60
    print(f"{len(pending)} of {len(selected)} pages to make, about {hours:.1f} h on two idle cores")
    for page in pending:
        print(f"  {page.name}: make {page.make}, about {page.minutes} min")
    for page in selected:
        if not page.make:
            print(f"  {page.name}: by hand, from `{page.command}`, about {page.minutes} min")
    if plan:
        return 0
    finished: set[str] = set()
    for page in pending:
        if page.make not in finished:
            print(f"{page.name}: make {page.make}", flush=True)
            status = subprocess.run(["make", page.make], cwd=ROOT, check=False).returncode
            if status:
                print(f"error: make {page.make} failed; the same command resumes", file=sys.stderr)
                return 1
            finished.add(page.make)
        stamp(page.name, target)
    return 0


def main() -> int:
    """Run the command line and return its exit status."""
    words = sys.argv[1:]
    if words[:1] == ["stamp"]:
        for name in words[1:]:
            stamp(Path(name).name, Stamp(results_version(), commit()))
        return 0
    return make([Path(word).name for word in words if word != "--plan"], plan="--plan" in words)


if __name__ == "__main__":
    sys.exit(main())
