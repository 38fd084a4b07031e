"""Tests of the check that words do not get worse (`tools/check/words.py`)."""

from __future__ import annotations

import pytest

from tools.check import words


@pytest.mark.parametrize(
    ("sentence", "headless"),
    [
        ("Of a queue, its length.", True),
        ("Whether the link is full.", True),
        ("Return the length of the queue.", False),
        ("Office hours of the link.", False),
        ("", False),
    ],
)
def test_a_sentence_is_headless_if_it_begins_with_a_preposition_or_relative_word(
    sentence: str, headless: bool
) -> None:
    assert words.is_headless(sentence) == headless


def test_each_measure_of_python_reports_file_and_line() -> None:
    text = '''
def bare(queue):
    pass

def length(queue, unit):
    """Return the length of a queue."""
    found = [it for it in queue]
    return found

def _hidden(one):
    """As `length`."""
'''
    findings = [str(finding) for finding in words.python_findings(text, "python/forebay/x.py")]
    assert sorted(findings) == [
        "python/forebay/x.py:10: _hidden: As `length`.",
        "python/forebay/x.py:10: one",
        "python/forebay/x.py:2: bare",
        "python/forebay/x.py:5: length",
        "python/forebay/x.py:7: found",
        "python/forebay/x.py:7: it",
    ]


def test_only_the_package_must_document_public_names() -> None:
    text = "def bare(queue, unit):\n    pass\n"
    assert not list(words.python_findings(text, "tools/x.py"))


def test_each_measure_of_rust_looks_past_attributes_and_skips_tests() -> None:
    text = """
/// Of a queue.
#[derive(
    Clone
)]
pub struct Length;
pub fn bare() {}
pub(crate) fn private() {}
/// Returns the length.
pub fn length() {}
#[cfg(test)]
mod tests { pub fn untested() {} }
"""
    findings = {finding.measure: str(finding) for finding in words.rust_findings(text, "lib.rs")}
    assert findings == {
        "rust_headless": "lib.rs:2: Length: Of a queue.",
        "rust_undocumented": "lib.rs:7: bare",
    }


def test_a_count_above_its_threshold_is_a_finding() -> None:
    assert not list(words.exceeded({"rust_headless": 2}, {"rust_headless": 2}))
    (line,) = words.exceeded({"rust_headless": 3}, {"rust_headless": 2})
    assert "rust_headless: 3 " in line and "at most 2 " in line


def test_a_threshold_falls_with_its_count_and_never_rises() -> None:
    allowed = {"rust_headless": 2, "rust_undocumented": 5}
    present = {"rust_headless": 3, "rust_undocumented": 1}
    assert words.lowered(present, allowed) == {"rust_headless": 2, "rust_undocumented": 1}
