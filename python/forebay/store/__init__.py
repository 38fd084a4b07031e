"""A store of runs: what was run is found by what it depends on, and is not run again.

`rows` say what a run is and what is kept of it, `details` its arrays, `place` where that lies,
and `store` puts them together (docs/decisions/019).
"""
