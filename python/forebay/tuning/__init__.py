"""One law for a range of links: `tune("5..50Mbit/s", "20..200ms", "10..400")`.

`gain_search` finds gains that keep their margins at the worst corner, in the spaces of `candidates`
and by `local_models`; `calm_regions` those of a PI, without a search. `check` runs every candidate
with packets at the corners and in the middle. `tuning` chooses the best for the goal and tests it
against the papers' defaults with other seeds. `findings` is what that tells, as plain values and in
sentences; `picture` and `page` show it.
"""
