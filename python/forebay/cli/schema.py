"""`forebay schema`: the JSON Schema of a scenario."""

import forebay._native as _native


def schema() -> None:
    """Print the JSON Schema of a scenario, for editors."""
    print(_native.schema())
