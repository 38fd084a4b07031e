"""Check the documents.

Links must lead to files, generated pages and pages of evidence must be current, and facts that two
documents state must agree.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tools import docs, evidence, lock
from tools.docs import gallery

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\]\(([^)#\s]+)")


def check() -> Iterator[str]:
    """Yield every finding about the documents."""
    yield from generated_pages()
    yield from links()
    yield from rust_version()
    yield from installation()
    yield from c_functions()
    yield from gallery_pictures()
    yield from evidence.outdated()
    yield from evidence.summary()
    yield from unpinned()


def generated_pages() -> Iterator[str]:
    """Yield each page of `tools.docs` that differs from what its declarations make."""
    for name, text in docs.pages().items():
        if (ROOT / "docs" / name).read_text() != text:
            yield f"docs/{name}: is not up to date; run `make docs`"


def links() -> Iterator[str]:
    """Yield each link of a page that leads to no file."""
    for page in PAGES:
        for target in LINK.findall(page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                yield f"{page.relative_to(ROOT)}: {target} does not exist"


def rust_version() -> Iterator[str]:
    """Yield each page that asks for another Rust than Cargo.toml."""
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    required = f"Rust {workspace['package']['rust-version']} or newer"
    for name in ("README.md", "docs/howto/install.md"):
        if required not in (ROOT / name).read_text():
            yield f"{name}: does not say {required!r}"


def installation() -> Iterator[str]:
    """Yield each text that installs Forebay from an index, where it is not published."""
    files = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/**/*.ipynb"), ROOT / "README.md"]
    files += [*ROOT.glob("python/forebay/**/*.py"), *ROOT.glob("python/forebay/**/*.j2")]
    for file in files:
        if re.search(r"pip install (forebay|['\"]forebay\[)", file.read_text("utf-8")):
            yield f"{file.relative_to(ROOT)}: installs forebay from an index"


def c_functions() -> Iterator[str]:
    """Yield each function that only one of the C header and docs/reference/capi.md has."""
    header = (ROOT / "crates" / "forebay-capi" / "include" / "forebay.h").read_text()
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    declared = set(re.findall(r"\b(forebay_\w+)\(", code))
    page = (ROOT / "docs" / "reference" / "capi.md").read_text()
    listed = set(re.findall(r"^\| `(forebay_\w+)", page, re.MULTILINE))
    for name in sorted(declared ^ listed):
        state = "not listed" if name in declared else "not declared"
        yield f"docs/reference/capi.md: {name} is {state}"


def gallery_pictures() -> Iterator[str]:
    """Yield each picture of the gallery without a command, and each file that no page shows."""
    try:
        pictures = {drawing.picture for drawing in gallery.drawings()}
    except ValueError as error:
        yield str(error)
        return
    for file in sorted(pictures ^ set((ROOT / "docs" / "images" / "gallery").glob("*.png"))):
        state = "missing" if file in pictures else "shown on no page"
        yield f"{file.relative_to(ROOT)}: is {state}"


def unpinned() -> Iterator[str]:
    """Yield each package without a hash, and each action of a workflow without a commit."""
    for name in lock.FILES:
        text = (lock.FOLDER / f"{name}.lock").read_text()
        for entry in re.split(r"^(?=[\w.-]+==)", text, flags=re.M)[1:]:
            if "--hash=sha256:" not in entry:
                yield f"requirements/{name}.lock: {entry.splitlines()[0]} has no hash"
    for file in [*(ROOT / ".github").rglob("*.yml"), *(ROOT / "templates").rglob("*.yml")]:
        for action in re.findall(r"uses:\s*(\S+)", file.read_text()):
            pinned = re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", action)
            if not pinned and not action.startswith("./"):
                yield f"{file.relative_to(ROOT)}: {action} is not pinned to a commit"
