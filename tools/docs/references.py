"""The page of references."""

from __future__ import annotations

from forebay.guide import cite
from forebay.report.tables import markdown_table

PAGE = """\
# References, and how to cite

Written by `make docs` from the entries of `forebay cite`. Short names in the left column are those
of `forebay replay`, of [experiments/](../../experiments) and of comments in the code.

## The five papers

{papers}
## What they build on, and what stands beside them

{others}
`forebay laws` names the source of every law, down to the equation.

## Citing a result

`forebay cite` prints BibTeX: of Forebay alone, or also of the sources of laws, queues, senders,
papers, a scenario file or a folder of results. For a folder it adds a comment that names the runs
and the command that repeats them.

```console
$ forebay cite pi-pd red > references.bib
```

Name your runs: `forebay --version`, the scenario file with `--set` and `--seeds` if any, and for a
published number the verdict of [papers.md](../evidence/papers.md). A report has all of that: the command that
repeats it is at its top, the scenario at its end. The same scenario, seed and version give the same
bits, so readers can check.

Forebay itself: [CITATION.cff](../../CITATION.cff).
"""


def references() -> str:
    """Return the page: every source, with the parts of Forebay that come from it."""
    papers = [
        [f"`{reference.paper}`", reference.sentence()]
        for reference in cite.references()
        if _of_five(reference)
    ]
    other_references = [
        [
            ", ".join(f"`{name}`" for name in reference.of or (reference.paper,)),
            reference.sentence(),
        ]
        for reference in cite.references()
        if not _of_five(reference)
    ]
    return PAGE.format(
        papers=markdown_table(["paper", "reference"], papers),
        others=markdown_table(["for", "reference"], other_references),
    )


def _of_five(reference: cite.Reference) -> bool:
    """Return True for one of the five papers that Forebay implements."""
    return bool(reference.paper and reference.of)
