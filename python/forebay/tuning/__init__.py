"""One law for a range of links: `tune("5..50Mbit/s", "20..200ms", "10..400")`.

`ranges` has the operating points, and `candidates` the laws with their search spaces and linear
models. `search` finds gains that keep their margins at every point. `check` runs every candidate
with packets at the corners and in the middle. `tuning` chooses the best for the goal and tests it
against the papers' defaults with other seeds. `recommendation` has what came of it as plain values,
sentences and a page, which `figures` illustrates.
"""
