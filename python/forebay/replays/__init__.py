"""Replaying the papers: their experiments as scenario files, their claims beside them as data.

`claims` reads what a paper claims, `replay` makes the runs or finds them from before, `measures`
takes a value from a run, `verdicts` lays it beside the published one, `pages` writes it
down.
"""
