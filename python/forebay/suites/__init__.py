"""Suites: every scenario of a folder under every law, as RFC 7928 asks of an AQM.

`scenarios` reads them and fits them to a link, `suite` makes the runs, `results` averages over
them, `advice` draws sentences from the numbers, `pictures` and `pages` write it down.
"""
