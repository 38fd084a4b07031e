"""Two sets of runs compared: saved results, and engines on the same scenario.

The room is not called `compare`, since `forebay.compare` is a function.
"""
