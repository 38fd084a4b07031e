"""Builds the documentation as a site with search: `make site` writes it to `site/`.

The pages are those of the repository, and keep their places, so that their links also work on a
forge. They are copied together with the pages that are generated from declarations, and MkDocs
with the theme Material makes the site (decision 010). A source file that a page links to is copied
as text.

    python -m tools.docs.site [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.docs import commands, python

ROOT = Path(__file__).parents[2]
#: Pages that only the site has, with the functions that generate them.
GENERATED = {"docs/reference/cli.md": commands.page, "docs/reference/python.md": python.page}
#: Pages outside docs/.
HOME = "README.md"
OUTSIDE = [HOME, "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md"]

#: Sections of the site with their pages in order: a page, or the remaining pages of a folder.
#: Pages that no section names come last.
SECTIONS: dict[str, list[str]] = {
    "Start": ["docs/howto/install.md", "docs/tutorials/"],
    "How to": ["docs/howto/"],
    "Reference": [
        *("docs/reference/cli.md", "docs/reference/scenario.md", "docs/reference/laws.md"),
        *("docs/reference/queues.md", "docs/reference/metrics.md", "docs/reference/python.md"),
        "docs/reference/",
    ],
    "Explanation": ["docs/explanation/"],
    "Evidence": ["docs/evidence/", "experiments/"],
    "Contribute": ["docs/contribute/", "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md"],
}

LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)]*)?(\))")
CONSOLE = re.compile(r"^```console\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
#: The script that the search needs if the site is opened as files, and its address elsewhere.
WORKER, WORKER_OUTSIDE = (
    "assets/javascripts/iframe-worker.js",
    "https://unpkg.com/iframe-worker/shim",
)
#: Suffixes of files that a browser shows without a change.
SHOWN = {".md", ".png", ".svg", ".jpg"}


def stage(folder: Path) -> list[str]:
    """Copy every page and the files that they link to into a folder.

    Returns
    -------
    list[str]
        The names of the pages.
    """
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in _sources()}
    texts |= {name: page() for name, page in GENERATED.items()}
    for directory in ("docs/contribute/decisions", "experiments"):
        texts.setdefault(f"{directory}/README.md", _listing(directory, texts))
    linked: set[Path] = set()
    for name, text in texts.items():
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_linked(name, text, set(texts), linked), encoding="utf-8")
    for source in sorted(linked):
        copy = folder / _beside(source.relative_to(ROOT))
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    return sorted(texts)


def _sources() -> list[str]:
    """Return the name of every page of the repository."""
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").rglob("*.md")]
    return [*OUTSIDE, *(page.relative_to(ROOT).as_posix() for page in sorted(pages))]


def _beside(path: Path) -> Path:
    """Return the path of a linked file in the site.

    A source file gets a suffix that browsers display.
    """
    return path if path.suffix in SHOWN else path.with_name(f"{path.name}.txt")


def _linked(name: str, text: str, pages: set[str], linked: set[Path]) -> str:
    """Return a page with its links as the site has them.

    Parameters
    ----------
    name : str
        Name of the page.
    text : str
        The page.
    pages : set[str]
        The names of all pages.
    linked : set[Path]
        Receives the files that the page needs.
    """
    at = ROOT / name

    def replace(match: re.Match[str]) -> str:
        target, anchor = match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = (at.parent / target).resolve()
        if not path.is_relative_to(ROOT):
            return match[0]
        inside = path.relative_to(ROOT).as_posix()
        if path.is_dir():
            if f"{inside}/README.md" in pages:
                return f"{match[1]}{target.rstrip('/')}/README.md{anchor}{match[4]}"
            path = next(iter(sorted(path.glob("*.toml"))), path)
            target = f"{target.rstrip('/')}/{path.name}"
            inside = path.relative_to(ROOT).as_posix()
        if inside in pages or not path.is_file():
            return f"{match[1]}{target}{anchor}{match[4]}"
        linked.add(path)
        return f"{match[1]}{_beside(Path(target)).as_posix()}{match[4]}"

    return CONSOLE.sub(_without_prompts, LINK.sub(replace, text))


def _without_prompts(block: re.Match[str]) -> str:
    """Return a block of commands without prompts, which the site's copy button would include."""
    lines = block[1].splitlines()
    if not all(line.startswith("$ ") for line in lines):
        return block[0]
    return "\n".join(["```sh", *(line.removeprefix("$ ") for line in lines), "```"])


def _listing(directory: str, texts: dict[str, str]) -> str:
    """Return a page that lists the contents of a folder without a README."""
    lines = [f"# {Path(directory).name.capitalize()}", ""]
    for name, text in texts.items():
        if name.startswith(f"{directory}/"):
            lines.append(f"- [{_title(text)}]({name.removeprefix(f'{directory}/')})")
    if directory == "experiments":
        scenarios = sorted((ROOT / directory).glob("*/*.toml"))
        lines += ["", "The files:", ""]
        lines += [
            f"- [{path.relative_to(ROOT / directory)}]({path.relative_to(ROOT / directory)})"
            for path in scenarios
        ]
    return "\n".join(lines) + "\n"


def _title(text: str) -> str:
    """Return the title of a page."""
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    return re.sub(r"[`*]", "", heading[1]) if heading else "Untitled"


def nav(names: Sequence[str], folder: Path) -> list[dict[str, object]]:
    """Return the navigation: each section with those of its pages that exist."""
    remaining = dict.fromkeys(name for name in names if name != HOME)

    def entries(entry: str) -> Iterator[object]:
        if entry.endswith("/"):
            inside = [name for name in names if name.startswith(entry) and name in remaining]
            group = sorted(inside, key=lambda name: (not name.endswith("README.md"), name))
            first = f"{entry}README.md"
            title = _title((folder / first).read_text("utf-8")) if first in remaining else entry
            for name in group:
                del remaining[name]
            if group:
                yield {title: group}
        elif entry in remaining:
            del remaining[entry]
            yield entry

    # The home page must be at the top level for the theme to recognise it.
    sections: list[dict[str, object]] = [{"Forebay": HOME}] if HOME in names else []
    for section, pages in SECTIONS.items():
        inside = [item for page in pages for item in entries(page)]
        if inside:
            sections.append({section: inside})
    if remaining:
        sections.append({"More": list(remaining)})
    return sections


def build(out: Path) -> None:
    """Build the site in `out`.

    Raises
    ------
    CalledProcessError
        If a link or an anchor is broken.
    """
    folder = ROOT / ".make" / "staged-site"
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    names = stage(pages)
    settings = {
        "INHERIT": str(ROOT / "docs" / "mkdocs.yml"),
        "docs_dir": str(pages),
        "site_dir": str(out.resolve()),
        "nav": nav(names, pages),
        # MkDocs omits a folder of this name, which here holds repositories to start from.
        "exclude_docs": "!/templates/",
    }
    file = folder / "mkdocs.yml"
    # JSON is valid YAML.
    file.write_text(json.dumps(settings, indent=1), encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", file],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # decision 010 knows
        check=True,
    )
    _alone(out)


def _alone(out: Path) -> None:
    """Make the theme load the worker of its search from the site, and not from another host."""
    shutil.copyfile(ROOT / "docs" / "vendor" / "iframe-worker.js", out / WORKER)
    for page in out.rglob("*.html"):
        up = "../" * (len(page.relative_to(out).parts) - 1)
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(WORKER_OUTSIDE, f"{up}{WORKER}"), encoding="utf-8")


def main() -> None:
    """Run the command line."""
    arguments = argparse.ArgumentParser(prog="python -m tools.docs.site")
    arguments.add_argument("--out", type=Path, default=Path("site"))
    out = arguments.parse_args().out
    try:
        build(out)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    print(f"Site: {out / 'index.html'}")


if __name__ == "__main__":
    main()
