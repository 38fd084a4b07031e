"""One law for a range of links: `tune("5..50Mbit/s", "20..200ms", "10..400")`.

The linear model searches gains whose worst corner keeps its margins (`search`, over the spaces of
`candidates`, by `theory`); packets check every candidate at the corners and in the middle
(`check`); the best for the goal is tested against the papers' defaults with other seeds
(`tuning`), and shown (`picture`, `page`).
"""

from forebay.tune.tuning import Against, Tuning, tune

__all__ = ["Against", "Tuning", "tune"]
