"""Studies: hundreds of thousands of runs, made once, kept in a store, and read as one frame.

`points` has what is to be run, `making` has what is missing made by workers (`threads`, `cluster`),
`study` is what a user holds, and `page` shows it.
"""
