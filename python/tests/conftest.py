"""A small scenario that runs in a moment, and the command line as others call it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from functools import cache, cached_property
from pathlib import Path

import pytest

from forebay.link import LinkError, settings
from forebay.link import run as run_link

# Every test makes its runs: one that found them in a store would test nothing. Those of the store
# choose their own.
os.environ["FOREBAY_STORE"] = "off"
# As the command has it; before numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

SCENARIO = """\
title    = "Two laws, two loads"
source   = "nothing but a test"
duration = "4s"
measure  = ["2s", "4s"]
seeds    = 2

[bottleneck]
rate   = "10Mbit/s"
delay  = "5ms"
buffer = "100p"

[[traffic]]
kind   = "ftp"
flows  = 5
packet = "1000B"
rtt    = ["40ms", "60ms", "80ms", "100ms"]
start  = { uniform = ["0s", "1s"] }

[[law]]
kind   = "pi"
target = "40p"

[[law]]
kind   = "droptail"

[sweep]
"traffic.0.flows" = [5, 20]
"""

#: Next to the built-in `pi`: the same arithmetic in the same order.
PROTOTYPES = """\
class PythonPi:
    interval = "6250us"
    target = 40
    a, b = 1.822e-5, 1.816e-5

    def __init__(self):
        self.p = self.error_1 = 0.0

    def sample(self, queue):
        error = queue.packets - self.target
        self.p = min(1.0, max(0.0, self.p + self.a * error - self.b * self.error_1))
        self.error_1 = error
        return self.p


class Raises(PythonPi):
    def sample(self, queue):
        if queue.packets > 10:
            raise ArithmeticError("ten is enough")
        return 0


class NoInterval:
    def sample(self, queue):
        return 0


class NoSample:
    interval = 0.01
"""

Cli = Callable[..., "subprocess.CompletedProcess[str]"]

# Under nohup it is ignored, and so would the commands under test.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def prototypes(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(PROTOTYPES)
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "forebay.cli", *map(str, arguments)]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs `forebay` in a directory of its own, with its output as text."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments), cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return run


@cache
def why_no_link() -> str:
    """Why this machine has no link for real traffic; empty where it has."""
    try:
        run_link(settings("10Mbit/s"), ["true"], timeout_s=60)
    except LinkError as error:
        return str(error)
    return "" if shutil.which("ping") else "ping is not here: apt-get install iputils-ping"


#: Until its input ends, takes naps of 2 ms, counts those that end over 5 ms late, and adds up how
#: many tasks want to run. A process of its own, so that no other code of Python keeps it from
#: waking.
NAPS = """
import select, sys, time
naps = late = tasks = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    start = time.monotonic()
    time.sleep(0.002)
    naps += 1
    late += time.monotonic() - start > 0.007
    with open("/proc/loadavg") as file:
        tasks += int(file.read().split()[3].split("/")[0])
print(late / max(naps, 1), tasks / max(naps, 1))
"""


class Punctuality:
    """Looks whether the machine has time for a link, whose packets otherwise leave late and whose
    programs wait."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", NAPS], stdin=pipe, stdout=pipe, text=True
        )

    @cached_property
    def late_and_tasks(self) -> tuple[float, float]:
        """Ends the watch; the share of late naps, and how many tasks wanted to run on average."""
        late, tasks = map(float, self.process.communicate()[0].split())
        return late, tasks

    def busy(self) -> bool:
        """One nap of a hundred ended late, or twice as many tasks as cores wanted to run; a test
        and its link are about as many as two cores."""
        late, tasks = self.late_and_tasks
        return late > 0.01 or tasks > 2 * (os.cpu_count() or 1)


WATCH = pytest.StashKey[Punctuality]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("realtime") and (why_not := why_no_link()):
        pytest.skip(why_not)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watches the machine while a test in real time runs."""
    if not item.get_closest_marker("realtime"):
        return (yield)
    watch = item.stash[WATCH] = Punctuality()
    try:
        return (yield)
    finally:
        watch.busy()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, object]:
    """A test in real time that fails on a machine that was late says nothing: it is void, and is
    shown as a failure that was expected."""
    report = yield
    watch = item.stash.get(WATCH, None)
    if report.failed and watch is not None and watch.busy():
        report.outcome = "skipped"
        report.wasxfail = "void: {:.0%} of naps ended late, and {:.1f} tasks wanted to run".format(
            *watch.late_and_tasks
        )
    return report
