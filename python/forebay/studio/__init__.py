"""The studio: a page on loopback that shows a control loop while one moves its parts.

`state` has what the page can be set to, `scenario` makes an experiment of it, `packets` and
`theory` what is drawn, `session` answers one page, and `server` lets only that page in.
"""
