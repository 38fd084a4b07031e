"""Pages that only the site has, and the order of its sections."""

from __future__ import annotations

from pathlib import Path

from tools.docs import commands, python, site


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


def test_the_python_reference_has_every_public_name() -> None:
    import forebay

    page = python.page()
    missing = [name for name in forebay.__all__ if f"### forebay.{name}\n" not in page]
    # The module has entries of its own.
    assert missing == ["__version__", "fluid"]
    assert "- `seeds` (int" in page
    assert " at 0x" not in page


def test_a_page_that_no_section_names_is_not_lost(tmp_path: Path) -> None:
    assert site.nav(["README.md", "docs/unknown.md"], tmp_path)[-1] == {"More": ["docs/unknown.md"]}
