"""Vectors of the laws' tests, which `bench/kernel_vectors.py` records on real Linux."""

from __future__ import annotations

import sys
from pathlib import Path

from guest_marks import needs_guest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "bench"))

from kernel_vectors import FOLDER, VECTORS, after_updates, updates, write  # noqa: E402


def test_the_repository_has_every_vector() -> None:
    assert {file.stem for file in FOLDER.glob("*.csv")} == set(VECTORS)


def test_times_of_updates_follow_from_samples() -> None:
    first_ns, period_ns, sample_ns = 123_456_789, 16_000_000, 1_013_000
    updates_until = [
        (at_ns, max(0, (at_ns - first_ns) // period_ns + 1))
        for at_ns in range(0, 5_000_000_000, sample_ns)
    ]
    samples = [(at_ns, {"p": max(number - 20, 0)}) for at_ns, number in updates_until]
    found_ns, found_period_ns = updates(samples, "p")
    # The first change is at the twenty-first update.
    assert abs(found_ns - (first_ns + 20 * period_ns)) < 20_000
    assert found_period_ns == period_ns
    after = list(after_updates(samples, found_ns, period_ns))
    assert [state["p"] for state in after[:4]] == [1, 2, 3, 4]


@needs_guest
def test_a_recorded_vector_is_recorded_again_to_the_letter(tmp_path: Path) -> None:
    write("codel", VECTORS["codel"], tmp_path)
    again, kept = ((folder / "codel.csv").read_text() for folder in (tmp_path, FOLDER))
    # Another kernel judges the packets alike.
    of_kernel = "# kernel = "
    assert [line for line in again.splitlines() if not line.startswith(of_kernel)] == [
        line for line in kept.splitlines() if not line.startswith(of_kernel)
    ]
