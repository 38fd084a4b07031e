"""What a name that is not known may have been meant as."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def hint(name: str, known: Iterable[str], most: int = 1) -> str:
    """The end of a message, with a space before it: the names nearest to this one, if any is."""
    near = get_close_matches(name, list(known), most)
    named = " or ".join(f'"{one}"' for one in near)
    return f" (did you mean {named}?)" if near else ""
