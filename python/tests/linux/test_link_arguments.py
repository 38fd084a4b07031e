"""Any command line of `forebay link` runs, or is refused in one line before anything does."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from conftest import command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from links import PATIENCE_S, needs_link, nothing_stays

from forebay import _native

__all__ = ["nothing_stays"]  # a fixture that is in force here

pytestmark = needs_link

LAWS = [law["name"] for law in _native.laws()]
NUMBER = st.one_of(
    st.integers(-3, 10**6).map(str),
    st.floats(-2, 1e9).map(str),
    st.sampled_from(["0", "-0", "1e3", "nan", "inf", "99999999999999999999", "٣", ""]),
)


def quantity(*units: str) -> st.SearchStrategy[str]:
    """A number with a unit that fits, or without one."""
    return st.builds(lambda number, unit: number + unit, NUMBER, st.sampled_from([*units, "", "x"]))


RATE = st.one_of(st.just("20Mbit/s"), quantity("bit/s", "kbit/s", "Mbit/s", "Gbit/s"))
TIME = st.one_of(st.just("3ms"), st.just("1..5ms"), quantity("ns", "us", "ms", "s"))
BUFFER = st.one_of(st.just("900p"), quantity("p", "B", "kB"))
SHARE = st.one_of(st.just("1%"), quantity("%"))
LAW = st.one_of(st.sampled_from(LAWS), st.text(max_size=5))
KEYS = sorted({param["name"] for law in _native.laws() for param in law["params"]})
ASSIGNMENT = st.builds(
    lambda key, value: f"{key}={value}",
    st.one_of(st.sampled_from(KEYS), st.text(max_size=5)),
    st.one_of(NUMBER, TIME, BUFFER, st.sampled_from(["true", "[1]", "{}"])),
)
WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)

OPTIONS = {
    "--delay": TIME,
    "--buffer": BUFFER,
    "--aqm": LAW,
    "--set": ASSIGNMENT,
    "--loss": SHARE,
    "--rate-up": RATE,
    "--delay-up": TIME,
    "--buffer-up": BUFFER,
    "--aqm-up": LAW,
    "--set-up": ASSIGNMENT,
    "--loss-up": SHARE,
    "--trace": WORD,
    "--measure": st.one_of(st.just("0s.."), TIME, WORD),
    "--sample": TIME,
    "--seed": NUMBER,
    "--mtu": NUMBER,
    "--device": st.one_of(st.sampled_from(["tun", "packets", "any"]), WORD),
    "--void-lateness": TIME,
    "--void-rate": SHARE,
    "--metrics": st.one_of(st.just("0"), NUMBER, WORD),
    "--pcap": st.just("captures"),
    "--out": st.just("out"),
}


def spelt(name: str) -> st.SearchStrategy[list[str]]:
    """`--name=value`, so that a value with a dash is not taken for another option."""
    return OPTIONS[name].map(lambda value: [f"{name}={value}"])


FLAGS = st.sampled_from([["--ecn"], ["--no-ecn"], ["--no-report"], ["--super-packets"], ["-q"]])
OPTION = st.one_of(st.sampled_from(sorted(OPTIONS)).flatmap(spelt), FLAGS)
COMMAND_LINE = st.builds(
    lambda rate, options: [f"--rate={rate}", *(word for option in options for word in option)],
    st.one_of(st.just("20Mbit/s"), RATE),
    st.lists(OPTION, max_size=4),
)


# Each starts Python, and a link where it is sound: few, without a limit on their time, and the
# same in every run of the tests.
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(options=COMMAND_LINE)
def test_any_command_line_runs_or_is_refused_in_a_line(options: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command("link", *options, "--", "touch", "ran"),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        ran = (Path(folder) / "ran").exists()
        assert done.returncode == (0 if ran else 2), done.stderr
        if not ran:
            assert done.stderr.count("\n") == 1, done.stderr
            assert done.stderr.startswith("error: "), done.stderr
            assert "allowed: " in done.stderr or "expected " in done.stderr, done.stderr
            assert list(Path(folder).iterdir()) == []
