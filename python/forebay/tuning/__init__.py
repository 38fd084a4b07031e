"""One law with one set of parameters for a range of links: `forebay.tune`.

A tuning goes from a range to a recommendation in four steps:

    LinkRange ──search──▶ candidates ──screen──▶ choice ──test──▶ Tuning

- `ranges.LinkRange` has the operating points: the corners of the range, its middle, and steps of
  the rate and of the load.
- `candidates` has the laws with their search spaces, their linear models and the goals.
- `search` finds gains that keep |1/(1 + L)| at most 2 at every operating point.
- `check` runs every candidate with packets at those points.
- `tuning` chooses the best candidate for the goal, tries other set-points, and tests the choice
  against the papers' defaults with seeds that took no part in it.
- `recommendation.Tuning` is the result: plain values, sentences, scenarios and a page, which
  `figures` illustrates.

>>> import forebay
>>> links = forebay.LinkRange(rate="5..50Mbit/s", rtt="20..200ms", flows=(10, 400))
>>> tuning = forebay.tune(links, laws=["pi", "pie"], goal="balance")  # doctest: +SKIP
>>> print(tuning.toml())  # doctest: +SKIP

Start reading at `tuning.tune`, and go on with `_Search._stages`.
"""
