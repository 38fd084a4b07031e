"""One scenario, simulated and run with real flows, for `forebay validate`.

`mapping` turns a scenario into links and real flows, `real` runs them (`transfers` are the short
ones), `comparison` lays both sides beside each other, `causes` says why they differ, and `page`
writes all of it, with `pictures`.
"""
