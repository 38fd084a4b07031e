"""Compare two versions of Forebay: the output of each command, and every number of its pages.

    python -m tools.compare_versions OTHER

This program runs the same commands in this checkout and in OTHER, each with its own built module
(`make run` builds it), and names every difference. It is for changes that must move no number: exit
status 1 means that some did. Times and addresses of files differ from run to run and are ignored.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).parents[1]
SHORT = ("--set", "duration=8s", "--set", 'measure=["3s", "8s"]', "--set", "at=[]")

#: Commands whose output is compared; what one writes to OUT is compared, too.
COMMANDS: list[tuple[str, ...]] = [
    ("laws", "--json"),
    ("queues", "--json"),
    ("schema",),
    ("experiments", "--json"),
    ("explain", "target"),
    ("cite", "pi-pd/load"),
    ("run", "pi-pd/load", "--seeds", "2", "--json", *SHORT),
    ("run", "pi-pd/load", "--seeds", "3", "--out", "OUT", *SHORT),
    ("run", "rfc7928/9-1-mix", "--law", "fq-codel", "--law", "dualpi2", "--seeds", "1", "--json"),
    ("suite", "rfc7928", "--scenario", "7-1-web", "--law", "pi-pd", "--law", "fq-codel",
     "--seeds", "2", "--out", "OUT"),
    ("suite", "rfc7928", "--scenario", "5-1-friendly", "--law", "pie", "--law", "codel",
     "--seeds", "2", "--json"),
    ("fluid", "fluid/load-step", "--law", "pi", "--json"),
    ("fluid", "fluid/load-step", "--compare", "--law", "red", "--seeds", "1", "--json"),
    *(
        ("design", law, "--rate", rate, "--flows", flows, "--rtt", rtt, "--tcp", tcp, "--json")
        for law, tcp in [("pi", "reno"), ("red", "cubic"), ("pie", "cubic"), ("pi2", "dctcp"),
                         ("pi-pd", "reno"), ("rem", "linux-reno"), ("stpi", "reno")]
        for rate, flows, rtt in [("15Mbit/s", "60", "200ms"), ("100Mbit/s", "30", "40ms")]
    ),
    ("design", "pi", "--rate", "5..50Mbit/s", "--flows", "10..80", "--rtt", "40..200ms", "--json"),
    ("design", "dualpi2", "--rate", "50Mbit/s", "--flows", "10", "--rtt", "30ms", "--l4s-flows",
     "5", "--json"),
    ("design", "pi", "--rate", "50Mbit/s", "--flows", "10,20", "--rtt", "20ms,80ms", "--json"),
    ("map", "pi", "--rate", "15Mbit/s", "--flows", "10..300", "--rtt", "20..400ms", "--points",
     "30", "--simulate", "2", "--json"),
    ("map", "red", "--rate", "15Mbit/s", "--flows", "10..300", "--rtt", "20..400ms", "--points",
     "30", "--simulate", "0", "--tcp", "cubic", "--json"),
    ("tune", "--rate", "20Mbit/s", "--rtt", "100ms", "--flows", "5..10", "--law", "pi", "--seeds",
     "2", "--json"),
    ("replay", "pd-red", "--seeds", "1", "--json"),
]  # fmt: skip

#: Keys and lines that depend on the time or on the machine.
UNSTEADY = ("user_cpu_s", "elapsed_s", "file", "command", "forebay")
TOLD_TIME = re.compile(r"\b(in|took|of) [\d.]+ (s|min)\b|CPU|/tmp/\S+")
#: Relative difference that sums in another order may cause by rounding.
ROUNDING = 1e-9


class Text(HTMLParser):
    """The words of a page, without its scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.skipped = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002
        """Note the start of an element whose text is not compared."""
        self.skipped += tag in ("script", "style", "svg")

    def handle_endtag(self, tag: str) -> None:
        """Note the end of an element whose text is not compared."""
        self.skipped -= tag in ("script", "style", "svg")

    def handle_data(self, data: str) -> None:
        """Add the words of a text."""
        if not self.skipped:
            self.words += data.split()


def output(checkout: Path, command: tuple[str, ...]) -> dict[str, Any]:
    """Return the output of a command, its exit status, and the files that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["out" if word == "OUT" else word for word in command]
        environment = os.environ | {
            "PYTHONPATH": str(checkout / "python"),
            "FOREBAY_STORE": f"{folder}/store",
            "COLUMNS": "120",
        }
        done = subprocess.run(
            [sys.executable, "-m", "forebay", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        results: dict[str, Any] = {"status": done.returncode, "stderr": lines(done.stderr)}
        results["stdout"] = [parsed(line) for line in lines(done.stdout)]
        out = Path(folder) / "out"
        for file in sorted(out.rglob("*")) if out.exists() else ():
            name = str(file.relative_to(out))
            if file.suffix == ".json":
                results[name] = parsed(file.read_text())
            elif file.suffix == ".html":
                page = Text()
                page.feed(file.read_text())
                results[name] = page.words
            elif file.is_file():
                results[name] = "there"
    return results


def lines(text: str) -> list[str]:
    """Return the lines of a text without those that tell times."""
    return [line for line in text.splitlines() if not TOLD_TIME.search(line)]


def parsed(text: str) -> Any:
    """Return a text as JSON; the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """Yield each difference of two values, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            if key not in UNSTEADY:
                yield from differences(old.get(key), new.get(key), f"{where}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from differences(a, b, f"{where}/{i}")
    elif isinstance(old, float | int) and isinstance(new, float | int):
        if abs(old - new) > ROUNDING * max(abs(old), abs(new)):
            yield f"{where}: {old} -> {new}"
    elif old != new:
        yield f"{where}: {str(old)[:90]} -> {str(new)[:90]}"


def every_experiment() -> Iterator[tuple[str, ...]]:
    """Yield the command that runs each experiment with one seed, except studies.

    A study would have too many runs.
    """
    listed = output(ROOT, ("experiments", "--json"))["stdout"]
    for experiment in listed:
        if not experiment["name"].startswith("studies/"):
            yield "run", experiment["name"], "--seeds", "1", "--json"


def main(
    other_checkout: Annotated[Path, typer.Argument(help="The checkout of the other version.")],
    only: Annotated[str, typer.Option(help="Only commands with this in them.")] = "",
    limit: Annotated[int, typer.Option(help="Differences that are shown of a command.")] = 5,
) -> None:
    """Run every command in both checkouts and print the differences."""
    commands = [*COMMANDS, *every_experiment()]
    chosen = [command for command in commands if only in " ".join(command)]
    same = 0
    for command in chosen:
        differing = list(differences(output(other_checkout, command), output(ROOT, command)))
        same += not differing
        state = f"{len(differing)} differ" if differing else "same"
        print(f"{state}: forebay {' '.join(command)}")
        for line in differing[:limit]:
            print(f"    {line}")
    print(f"{same} of {len(chosen)} commands give the same")
    raise typer.Exit(same < len(chosen))


if __name__ == "__main__":
    typer.run(main)
