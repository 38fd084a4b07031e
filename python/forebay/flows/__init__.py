"""A scenario as real flows over links of this machine, in real time.

`mapping` says which flows and which links, `real` runs them, `transfers` has the short ones.
"""
