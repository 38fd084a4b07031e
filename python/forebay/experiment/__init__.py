"""One experiment: how it is read, which engine runs it, what is kept, and its result.

`experiment` reads a scenario as a plan, `engines` are what takes it, `execution` runs a plan,
`store` keeps finished runs, and `result` is what a user holds.
"""
