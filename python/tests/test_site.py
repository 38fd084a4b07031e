"""The documentation as a site: built strictly, and every link and anchor leads somewhere."""

from __future__ import annotations

import importlib.util
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tools import docs
from tools.docs import commands, gallery, python, site

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """What a page links to and loads, and which anchors it has."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.title = ""
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag in ("script", "img", "iframe") and "src" in found:
            self.loads.append(found["src"])
        elif tag == "link" and found.get("rel") not in ("canonical",):
            self.loads.append(found.get("href", ""))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not here: nothing builds the site")
    out = tmp_path_factory.mktemp("site")
    site.build(out)
    return out


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in built.rglob("*.html") if file.name != "404.html"}


def test_every_page_of_the_repository_is_in_it(pages: dict[Path, Page], built: Path) -> None:
    sources = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").rglob("*.md")]
    wanted = {built / source.relative_to(ROOT).with_suffix(".html") for source in sources}
    wanted = {w.with_name("index.html") if w.stem == "README" else w for w in wanted}
    assert len(wanted) > 40
    assert wanted <= set(pages)
    assert {built / "docs" / name for name in ("cli.html", "python.html")} <= set(pages)


def test_no_link_is_broken(pages: dict[Path, Page]) -> None:
    broken, checked = [], 0
    for file, page in pages.items():
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            checked += 1
            anchor = unquote(parts.fragment)
            there = pages.get(target)
            # The theme's "back to top" needs no anchor.
            lost = there is not None and anchor and anchor not in there.anchors | {"__skip"}
            if not target.is_file() or lost:
                broken.append(f"{file.name}: {link}")
    assert checked > 2000
    assert broken == []


def test_nothing_comes_from_outside(pages: dict[Path, Page]) -> None:
    outside = {load for page in pages.values() for load in page.loads if "//" in load}
    assert outside == set()


def test_the_search_knows_every_page_and_needs_no_server(built: Path) -> None:
    text = (built / "search" / "search_index.js").read_text(encoding="utf-8")
    entries = json.loads(text.partition("=")[2].strip().rstrip(";"))["docs"]
    found = {entry["location"].partition("#")[0] for entry in entries}
    assert {"index.html", "docs/laws.html", "docs/cli.html"} <= found
    assert any("phase margin" in entry["text"] for entry in entries)


def test_the_reference_has_every_command_and_option() -> None:
    page = commands.page()
    from forebay.cli.app import app

    whole = app()
    names = [one.name or one.callback.__name__ for one in whole.registered_commands if one.callback]
    for group in whole.registered_groups:
        inside = group.typer_instance.registered_commands if group.typer_instance else []
        names += [f"{group.name} {one.name}" for one in inside]
    assert len(names) > 10
    assert [line[11:] for line in page.splitlines() if line.startswith("## forebay ")] == names
    assert "| `--seeds` `N` | Run with seeds 1 to N." in page


def test_the_reference_of_python_has_what_is_public() -> None:
    import forebay

    page = python.page()
    missing = [name for name in forebay.__all__ if f"### forebay.{name}\n" not in page]
    # The module has entries of its own.
    assert missing == ["__version__", "fluid"]
    assert "- `seeds`: number of seeds, 1 to `seeds`; the file's if None." in page
    assert " at 0x" not in page


def test_a_page_that_no_section_names_is_not_lost(tmp_path: Path) -> None:
    assert site.nav(["README.md", "docs/unknown.md"], tmp_path)[-1] == {"More": ["docs/unknown.md"]}
    assert set(docs.pages()) <= {
        Path(name).name for names in site.SECTIONS.values() for name in names
    }


def test_the_gallery_has_a_command_for_every_picture() -> None:
    """`make gallery` draws them; a picture that no command leaves would stop it."""
    shown = set()
    for section in gallery.sections():
        (picture,), (source,) = gallery.PICTURE.findall(section), gallery.SOURCE.findall(section)
        shown.add(ROOT / "docs" / picture)
        assert gallery.COMMAND.findall(section) or "From the same command" in section
        assert source.startswith("results/")
    assert shown == set((ROOT / "docs" / "images" / "gallery").glob("*.png"))
    assert sum(file.stat().st_size for file in shown) < 1e6


def test_commands_are_copied_without_their_prompt(built: Path) -> None:
    page = (built / "docs" / "tutorials" / "student.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", page)
    assert "forebay run lab.toml --seeds 2" in text
    assert "$ forebay" not in text
