"""The documentation as a site: every page is in it, and every link and anchor leads somewhere."""

from __future__ import annotations

import importlib.util
import json
import re
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tools.docs import site

ROOT = Path(__file__).parents[2]
#: Schemes of links that lead out of the site.
OUTSIDE = ("http", "https", "mailto", "data")


class Page(HTMLParser):
    """The links, resources and anchors of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links, resources and anchors of a tag."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in ("script", "img", "iframe") and "src" in values:
            self.resources.append(values["src"])
        elif tag == "link" and values.get("rel") != "canonical":
            self.resources.append(values.get("href", ""))


def check() -> Iterator[str]:
    """Yield every finding about the site, which is built for it."""
    if importlib.util.find_spec("material") is None:
        yield "requirements/site.lock: mkdocs-material is not installed; run `make site`"
        return
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder)
        site.build(built)
        pages = {file: Page(file) for file in built.rglob("*.html") if file.name != "404.html"}
        yield from missing_pages(built, pages)
        for file, page in pages.items():
            yield from broken_links(file.relative_to(built), file, page, pages)
        yield from search_index(built)
        yield from prompts(built)


def missing_pages(built: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """Yield each page of the repository that is not in the site."""
    sources = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").rglob("*.md")]
    names = [source.relative_to(ROOT).with_suffix(".html") for source in sources]
    names += [Path("docs/reference/cli.html"), Path("docs/reference/python.html")]
    for name in names:
        file = built / (name.with_name("index.html") if name.stem == "README" else name)
        if file not in pages:
            yield f"{name.with_suffix('.md')}: is not in the site"


def broken_links(name: Path, file: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    """Yield each link of a page that leads nowhere, and each resource from another host."""
    for link in page.resources:
        if "//" in link and not link.startswith("data:"):
            yield f"{name}: loads {link}"
    for link in [*page.links, *page.resources]:
        parts = urlsplit(link)
        if parts.scheme in OUTSIDE:
            continue
        target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
        anchor = unquote(parts.fragment)
        # The theme's "back to top" needs no anchor.
        anchors = pages[target].anchors | {"", "__skip"} if target in pages else {anchor}
        if not target.is_file() or anchor not in anchors:
            yield f"{name}: {link} leads nowhere"


def search_index(built: Path) -> Iterator[str]:
    """Yield each page that the search, which needs no server, does not have."""
    text = (built / "search" / "search_index.js").read_text(encoding="utf-8")
    entries = json.loads(text.partition("=")[2].strip().rstrip(";"))["docs"]
    indexed = {entry["location"].partition("#")[0] for entry in entries}
    for name in ("index.html", "docs/reference/laws.html", "docs/reference/cli.html"):
        if name not in indexed:
            yield f"{name}: is not in the search index"


def prompts(built: Path) -> Iterator[str]:
    """Yield the tutorial if its commands would be copied with their prompts."""
    page = (built / "docs" / "tutorials" / "student.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", page)
    if "forebay run lab.toml --seeds 2" not in text or "$ forebay" in text:
        yield "docs/tutorials/student.md: its commands are shown with prompts"
