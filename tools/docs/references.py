"""Writes the page of references from the entries of `forebay cite`."""

from __future__ import annotations

from forebay.guide import cite
from forebay.report.tables import markdown_table

PAGE = """\
# References

This page lists the papers and standards that Forebay implements, and shows how to cite a result.

It is generated from the entries of `forebay cite` by `make docs`.
The short names in the left column are those of `forebay replay`, of [experiments/](../../experiments) and of comments in the code.

## The five papers

{papers}
## Other papers and standards

{others}
`forebay laws` names the source of every law, down to the equation.

## Cite a result

`forebay cite` prints BibTeX: of Forebay alone, or also of the sources of laws, queues, senders, papers, a scenario file or a folder of results.
For a folder it adds a comment that names the runs and the command that repeats them.

```console
$ forebay cite pi-pd red > references.bib
```

State the version (`forebay --version`), the scenario file, `--set` and `--seeds` if you used them, and for a published number its verdict in [The papers, replayed](../evidence/papers.md).
A report has the command that repeats it at its top, and the scenario at its end.
The same scenario, seed and version give the same results to the bit, so readers can check them.

[CITATION.cff](../../CITATION.cff) is the citation of Forebay itself.
"""


def references() -> str:
    """Return the page in Markdown: every source, with the laws, queues or papers that it is for."""
    papers = [
        [f"`{source.paper}`", source.sentence()] for source in cite.references() if _of_five(source)
    ]
    standards = [
        [", ".join(f"`{name}`" for name in source.of or (source.paper,)), source.sentence()]
        for source in cite.references()
        if not _of_five(source)
    ]
    return PAGE.format(
        papers=markdown_table(["paper", "reference"], papers),
        others=markdown_table(["for", "reference"], standards),
    )


def _of_five(source: cite.Reference) -> bool:
    """Return True for one of the five papers whose experiments are replayed."""
    return bool(source.paper and source.of)
