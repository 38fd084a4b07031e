"""Tests of the check of the documentation's Python blocks (`tools/check/snippets.py`)."""

from __future__ import annotations

from pathlib import Path

from tools.check import snippets

PAGE = """# A page

```console
$ python
```
```python
import forebay
link = forebay.Link(rate="10Mbit/s", rtt="100ms", flows=10)
link.colour
```
"""


def test_python_blocks_keep_the_lines_that_they_have_in_the_page() -> None:
    lines = snippets.module(PAGE).splitlines()
    assert lines[6:9] == PAGE.splitlines()[6:9]
    assert not any(lines[:6] + lines[9:])


def test_a_name_that_the_package_does_not_have_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(PAGE)
    assert list(snippets.check(tmp_path)) == [
        'README.md:9: "Link" has no attribute "colour"  [attr-defined]'
    ]
