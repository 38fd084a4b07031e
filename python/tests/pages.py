"""What every HTML page of Forebay keeps, so that narrow screens and screen readers can use it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

#: Elements without an end.
VOID = {"meta", "link", "br", "hr", "img", "input", "use", "path", "rect", "circle"}
#: The text of a page of 1280 px.
WIDEST_PX = 1032


class _Page(HTMLParser):
    """Its elements, each with its attributes and the classes of those around it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str], set[str]]] = []
        self.headings: list[int] = []
        self._open: list[tuple[str, set[str]]] = []
        self.feed(text)
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        around = {name for _, classes in self._open for name in classes}
        self.found.append((tag, of, around))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self._open.append((tag, set(of.get("class", "").split())))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.found.append((tag, {}, set()))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID or (tag in ("tr", "td", "th", "li", "p") and self._open[-1][0] != tag):
            return
        assert self._open[-1][0] == tag, (tag, self._open)
        self._open.pop()


def check(text: str) -> list[str]:
    """Asserts what holds for every page; the names of its figures."""
    page = _Page(text)
    tags = [tag for tag, _, _ in page.found]
    assert ("html", {"lang": "en"}) in [(tag, of) for tag, of, _ in page.found]
    assert "width=device-width" in text
    assert tags.count("main") == tags.count("h1") == 1
    # No level is left out on the way down.
    assert page.headings[0] == 1
    steps = zip(page.headings, page.headings[1:], strict=False)
    assert all(after <= before + 1 for before, after in steps), page.headings
    names = []
    for tag, of, around in page.found:
        # What may be wider than a phone scrolls in a box of its own, with the keyboard too.
        if tag in ("table", "svg"):
            assert "scroll" in around, (tag, of)
        if "scroll" in of.get("class", "").split() or (
            tag == "pre" and "command" not in of.get("class", "")
        ):
            assert of.get("tabindex") == "0", (tag, of)
        if tag == "th":
            assert of.get("scope") == "col", of
        if tag == "svg":
            assert of.get("role") == "img", of
            assert of["aria-label"], of
            least = re.fullmatch(r"min-width: (\d+)px; max-width: \d+px", of["style"])
            assert least, of
            assert 400 < int(least[1]) <= WIDEST_PX
            names.append(of["aria-label"])
    return names
