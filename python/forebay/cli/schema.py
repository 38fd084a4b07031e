"""`forebay schema`: the JSON Schema of a scenario."""

from forebay import _native


def schema() -> None:
    """Print the JSON Schema of a scenario, for editors."""
    print(_native.schema())
