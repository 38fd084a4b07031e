"""Checks of the repository itself: its structure, its documents and what it is packaged as.

    python -m tools.check                 # what `make lint` runs: source, documents, names
    python -m tools.check site wheel      # what is named

Tests say what Forebay does; these say what a change must keep in order beside it. Each check
yields its findings as lines that begin with the file at fault.
"""
