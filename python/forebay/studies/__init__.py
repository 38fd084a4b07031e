"""Studies: hundreds of thousands of runs, made once, kept in a store, and read as one frame.

`points` has what is to be run, `making` runs what is missing on an engine (`threads`, `cluster`),
`study` is what a user holds, and `page` shows it.
"""
