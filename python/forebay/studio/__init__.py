"""The studio: a page on loopback that shows a control loop while one moves its parts.

`state` has the settings of the page, and `scenario` the experiment that they describe. `packets`
and `theory` calculate the curves, `session` answers one page, and `server` serves only that page,
at the address of `sockets`.
"""
