"""A small scenario that runs in a moment, and the command line as others call it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from unittest import mock

import pytest

from forebay import _native
from forebay._base import signals
from forebay.cli.main import main
from forebay.report import style
from forebay.scenario.builder import toml

if TYPE_CHECKING:
    from forebay.experiment.result import Result

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


def one_bottleneck(
    measure: tuple[str, str],
    rate: str,
    buffer: str,
    more: str = "",
    *,
    delay: str = "5ms",
    seeds: int | None = None,
) -> str:
    """A scenario with one bottleneck that ends with its window of `measure`; `more` are tables."""
    first = "" if seeds is None else f"seeds = {seeds}\n"
    start, end = measure
    return f"""{first}duration = "{end}"
measure = ["{start}", "{end}"]
[bottleneck]
rate = "{rate}"
delay = "{delay}"
buffer = "{buffer}"
{more}"""


def table(name: str, **keys: Any) -> str:
    """A table of one of a scenario's lists, such as `[[traffic]]`."""
    return toml({name: [keys]})


def two_laws(first: str, second: str) -> str:
    return table("law", kind=first) + table("law", kind=second)


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

# Under nohup and in a shell's background they are ignored, and so would the commands under test.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def prototypes(tmp_path: Path) -> Path:
    return prototypes_file(tmp_path, PROTOTYPES)


def prototypes_file(folder: Path, text: str) -> Path:
    """Laws in Python, in a file."""
    path = folder / "mine.py"
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def no_run_in_a_unit_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse runs of every engine where tests say that they execute none."""
    if request.path.parent.name != "unit":
        return

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a unit test executes a run: move it to python/tests/simulation")

    monkeypatch.setattr(_native.Plan, "start", refuse)
    for name in ("fluid_run", "fluid_halving", "guest_run", "link_run"):
        monkeypatch.setattr(_native, name, refuse, raising=False)


@pytest.fixture(scope="module")
def out(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the result of a module's tests."""
    directory = tmp_path_factory.mktemp("out") / "result"
    result.report(directory)
    return directory


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "forebay", *map(str, arguments)]


def started(cwd: Path, *words: object, **options: Any) -> subprocess.Popen[str]:
    """A command under way, whose output and errors are read as text."""
    return subprocess.Popen(
        command(*words),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def line_on_a_terminal(line: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A line of the shell on a terminal of its own, and what that showed."""
    words = ["script", "-qec", line, "/dev/null"]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


#: They enter other namespaces, serve until they are stopped, or take over the terminal.
OWN_PROCESS = {"link", "studio", "doctor", "validate"}


@pytest.fixture
def process(tmp_path: Path) -> Cli:
    """Runs `forebay` as a process, in a directory of its own, with its output as text."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments), cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def cli(tmp_path: Path, process: Cli) -> Cli:
    """What `process` does, in this process: the start of Python and the import of libraries are
    most of a short command's time. Commands that are about processes have one of their own."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        if arguments and str(arguments[0]) in OWN_PROCESS:
            return process(*arguments)
        return run_here(command(*arguments), tmp_path)

    return run


def run_here(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command line of `command` in this process, and leaves the process as it was."""
    with as_a_process(folder) as (out, err):
        try:
            with mock.patch.object(sys, "argv", words[2:]):
                main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            traceback.print_exc()
            status = 1
        texts = []
        for file in (out, err):
            file.flush()
            file.seek(0)
            texts.append(file.read())
    return subprocess.CompletedProcess(words, status, *texts)


@contextmanager
def as_a_process(folder: Path) -> Iterator[tuple[TextIO, TextIO]]:
    """What a process of Python has of its own: streams, a folder, environment, signals, warnings
    that are printed, and settings of the package. What goes to the streams can be read."""
    with ExitStack() as stack:
        names = ("stdout", "stderr", "stdin")
        streams = [
            stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in names
        ]
        for name, stream in zip(names, streams, strict=True):
            stack.enter_context(mock.patch.object(sys, name, stream))
        stack.enter_context(mock.patch.dict(os.environ))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("default")
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        warnings.showwarning = lambda message, category, filename, lineno, file=None, line=None: (
            print(warnings.formatwarning(message, category, filename, lineno), file=sys.stderr)
        )
        for number in signals.ENDING:
            stack.callback(signal.signal, number, signal.getsignal(number))
            signal.signal(
                number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            )
        stack.callback(setattr, sys, "unraisablehook", sys.unraisablehook)
        stack.callback(signals._came.clear)
        stack.callback(style.use, "screen")
        stack.callback(os.chdir, Path.cwd())
        os.chdir(folder)
        yield streams[0], streams[1]


@cache
def why_no_link() -> str:
    """Why this machine has no link for real traffic; empty where it has."""
    # What only Linux has.
    from forebay.linux import LinkError, settings
    from forebay.linux import run as run_link

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
    needs_link = item.get_closest_marker("realtime") or item.get_closest_marker("link")
    if needs_link and (why_not := why_no_link()):
        pytest.skip(why_not)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch the machine while a test in real time runs."""
    if item.get_closest_marker("realtime") is None:
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


#: Tests that take seconds go first, or a core ends the run alone with one of them.
LONG = (
    "test_docs.py::test_every_block_runs",
    "test_link_arguments.py::test_any_command_line_runs_or_is_refused_in_a_line",
)


#: Marked as Linux's own, whole, beside the tests in `linux`.
LINUX = {"test_docs", "test_full_disk", "test_interrupt", "test_study_failures"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        links = item.get_closest_marker("link") is not None
        if links or item.path.stem in LINUX or item.path.parent.name == "linux":
            item.add_marker("linux")
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONG))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was skipped, a line for each reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for report in terminalreporter.stats.get("skipped", []):
        _, _, reason = report.longrepr
        by_reason[reason.removeprefix("Skipped: ")].append(report.nodeid)
    if not by_reason:
        return
    terminalreporter.section("skipped, and why")
    for reason, tests in sorted(by_reason.items(), key=lambda each: -len(each[1])):
        files = sorted({Path(test.partition("::")[0]).name for test in tests})
        terminalreporter.line(f"{len(tests):4} {reason} ({', '.join(files)})")
