"""Checks of the repository itself: its structure, its documents, its words and its packages.

    python -m tools.check                 # the quick checks, as in `make lint`
    python -m tools.check site wheel      # the checks with these names

Tests verify what Forebay does; these checks verify what a change must keep in order besides. Each
check yields its findings as lines that begin with the file at fault.
"""
