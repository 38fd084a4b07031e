"""Writes the reference of errors from the classes under `ForebayError`."""

from __future__ import annotations

from collections.abc import Iterator

import forebay
from forebay._base import errors as definitions
from forebay.report.tables import markdown_table
from tools.docs.docstrings import docstring, entries, sections

HEAD = """\
# Errors and exit statuses

This page lists the exceptions that Forebay raises in Python with their attributes, and the exit statuses and output streams of its commands.

## Exceptions

Every exception is a `forebay.ForebayError`, except `forebay.Interrupted`.
An exception carries its facts as attributes, so that a program need not parse the message.

```python
import forebay

try:
    forebay.run({"duration": "40furlongs"})
except forebay.ScenarioError as error:
    print(error, "|", error.key)
```

A message about a key or an argument is one line with the place, the key, the fault and what is expected:

```text
link.toml:4: bottleneck.rate: "40furlongs" is not valid; expected a rate with its unit, such as "45Mbit/s" (bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s)
link.toml: duration: missing; expected a time with its unit, such as "15ms" (ns, us, ms, s, min, h)
link.toml:5: bottleneck.bufer: unknown key; expected one of rate, burst, rate_back, rate_trace, delay, buffer, ecn, name, from, to (did you mean "buffer"?)
```

The tree, with the exceptions of Python that they also are:

"""

STATUSES = """\

## Exit statuses

| status | meaning | what remains |
|---|---|---|
| 0 | the command succeeded | the result |
| 1 | a run failed, a required claim was missed, a disk was full, or the scheduler of a study was unreachable | whatever had finished, with a line about the rest |
| 2 | bad input; one line names the file, the key, what is wrong and what would be right | nothing was written |
| 129, 130, 143 | the command was hung up (SIGHUP), interrupted (SIGINT, Ctrl-C) or terminated (SIGTERM) | whatever had finished; no process, namespace or temporary file |
| that of COMMAND | `forebay link … -- COMMAND` exits with the status of its command | the report of the link |

## Standard output and standard error

Results and warnings about them go to standard output; progress and errors go to standard error.
Progress is a bar on a terminal, and elsewhere a line every two seconds, which `2>/dev/null` suppresses.
`--json` prints one JSON document, or one for each run, and nothing else on standard output:

```console
$ forebay init link.toml
$ forebay run link.toml --seeds 1 --set duration=4s --set 'measure=["2s", "4s"]' --json | wc -l
$ forebay run link.toml --set bottleneck.rate=40furlongs 2>/dev/null || test $? = 2
```

## Ctrl-C

Ctrl-C ends a command with status 130 and keeps the finished runs.
While Python itself starts, the signal ends the process, which a shell also reports as 130.
In the first 20 ms, before any code of Forebay runs, Python may print a traceback of its own, and exit with 1 or continue.
"""


def errors() -> str:
    """Return the page in Markdown."""
    lines = ["```text", *_tree(forebay.ForebayError, ""), "```", ""]
    parts = [_section(error) for error in [*_classes(forebay.ForebayError), forebay.Interrupted]]
    return HEAD + "\n".join(lines + parts) + STATUSES


def _children(error: type[BaseException]) -> list[type[BaseException]]:
    """Return the direct subclasses that `forebay._base.errors` defines, in their order there."""
    order = list(vars(definitions).values())
    return [child for child in order if isinstance(child, type) and error in child.__bases__]


def _classes(error: type[BaseException]) -> Iterator[type[BaseException]]:
    """Yield an error and everything below it, depth first."""
    yield error
    for child in _children(error):
        yield from _classes(child)


def _tree(error: type[BaseException], indent: str) -> Iterator[str]:
    builtin = [base.__name__ for base in error.__bases__ if base.__module__ == "builtins"]
    suffix = f" ({', '.join(builtin)})" if indent and builtin else ""
    yield f"{indent}{error.__name__}{suffix}"
    for child in _children(error):
        yield from _tree(child, indent + "    ")


def _section(error: type[BaseException]) -> str:
    lines = [f"### {error.__name__}", ""]
    for title, body in sections(docstring(error)):
        if title == "Attributes":
            rows = [[f"`{name}`", kind, text] for name, kind, text in entries(body)]
            lines += [markdown_table(["attribute", "type", "meaning"], rows)]
        elif not title:
            lines += [*(" ".join(part.split()) + "\n" for part in body.split("\n\n"))]
    return "\n".join(lines)
