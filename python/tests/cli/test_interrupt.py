"""Ctrl-C keeps what has finished, and leaves nothing half-written."""

from __future__ import annotations

import importlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import command, started

from forebay._base import signals
from forebay.cli.main import main, run_command
from forebay.experiment import execution

#: 4000 runs of some tenths of a second.
LONG = ["--seeds", 1000, "--set", "duration=300s", "--set", "sample=100ms"]


def interrupt(
    scenario: Path, wanted: int, *options: object, number: signal.Signals = signal.SIGINT
) -> tuple[int, str, str]:
    """Sends a signal once `wanted` runs have ended; returns status, output and errors."""
    process = started(scenario.parent, "run", scenario, *options)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        # "3 of 20000 runs, 0 %, about 2 min left"
        lines.append(line)
        if int(line.split()[0]) >= wanted:
            break
    process.send_signal(number)
    out, errors = process.communicate()
    return process.returncode, out, "".join(lines) + errors


def test_finished_runs_are_kept(scenario: Path) -> None:
    # Nobody would wait for the end of it.
    status, out, errors = interrupt(scenario, 1, *LONG)
    assert status == 130, errors
    assert "interrupted: " in errors
    assert "Traceback" not in errors
    results = scenario.parent / "results"
    assert [path.name for path in results.iterdir()] == ["two"]
    written = json.loads((results / "two" / "metrics.json").read_text())
    assert written["partial"] is True
    assert 1 <= len(written["runs"]) < 4000
    page = (results / "two" / "report.html").read_text()
    assert f"Partial result: {len(written['runs'])} of 4000 runs" in page
    assert "Report: results/two/report.html" in out


def test_thousands_of_finished_runs_are_kept_at_once(scenario: Path) -> None:
    """Tables of samples and the page took 400 s for the runs of 10,000 seeds."""
    short = ["--seeds", 10_000, "--law", "droptail", "--set", "duration=1s"]
    begun = [*short, "--set", 'measure=["0.5s","1s"]', "--no-store"]
    status, out, errors = interrupt(scenario, 300, *begun, number=signal.SIGTERM)
    assert status == 128 + signal.SIGTERM, errors
    folder = scenario.parent / "results" / "two"
    assert sorted(path.name for path in folder.iterdir()) == [
        "costs.json", "metrics.json", "metrics.parquet",
    ]  # fmt: skip
    written = json.loads((folder / "metrics.json").read_text())
    assert written["partial"] is True and len(written["runs"]) >= 300
    assert "results/two has the metrics of the finished runs" in errors
    assert "Report" not in out


def test_a_checkpoint_ends_long_work_whose_signal_is_held() -> None:
    signals.checkpoint()
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with signals.held(checkpoints=True) as interrupted:
            signals.checkpoint()
            signal.raise_signal(signal.SIGINT)
            assert interrupted
            with pytest.raises(KeyboardInterrupt):
                signals.checkpoint()
        signals.checkpoint()
    finally:
        signal.signal(signal.SIGINT, former)


#: Sixty figures, which take longer to draw than the test waits.
MANY = ["--seeds", 1, "--law", "red", "--set", "duration=30s", "--set", "sample=1ms"]
POINTS = '"traffic.0.flows" = [5, 20, 21, 22]'


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_figures_are_drawn_loses_no_run(
    scenario: Path, number: signal.Signals
) -> None:
    scenario.write_text(scenario.read_text().replace('"traffic.0.flows" = [5, 20]', POINTS))
    out = scenario.parent / "results" / "two"
    process = started(scenario.parent, "run", scenario, *MANY)
    # The table is shown when the numbers are there, and before the first figure.
    assert process.stdout is not None
    shown = ""
    while "processor time" not in shown:
        shown += process.stdout.readline()
    assert json.loads((out / "metrics.json").read_text())["partial"] is False
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    kept = "interrupted while drawing; the tables and the finished figures are in results/two"
    assert kept in errors
    assert "Traceback" not in errors
    assert len(json.loads((out / "metrics.json").read_text())["runs"]) == 4
    assert not (out / "report.html").exists()
    assert [path.name for path in out.parent.iterdir()] == ["two"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_keep_finished_runs(scenario: Path, number: signal.Signals) -> None:
    status, _, errors = interrupt(scenario, 1, *LONG, "--no-report", number=number)
    assert status == 128 + number, errors
    assert "Traceback" not in errors
    written = json.loads((scenario.parent / "results" / "two" / "metrics.json").read_text())
    assert written["partial"] is True


def test_a_terminal_that_goes_away_takes_no_run_with_it(scenario: Path) -> None:
    """Closing the window of a terminal sends SIGHUP, and refuses whatever is written then."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(scenario.parent)
        words = command("run", scenario, *LONG, "--no-report")
        os.execv(words[0], words)
    seen = b""
    while not re.search(rb"[1-9]\d* of 4000", seen):
        seen += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    written = json.loads((scenario.parent / "results" / "two" / "metrics.json").read_text())
    assert len(written["runs"]) >= 1


def test_a_part_does_not_replace_the_whole(scenario: Path) -> None:
    whole = [*LONG[:1], 30, *LONG[2:], "--no-report"]
    done = subprocess.run(
        command("run", scenario, *whole), cwd=scenario.parent, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    numbers = scenario.parent / "results" / "two" / "metrics.json"
    before = numbers.read_bytes()
    status, _, errors = interrupt(scenario, 1, *whole)
    assert status == 130, errors
    assert "results/two already has these runs and more" in errors
    assert numbers.read_bytes() == before


def test_with_json_too(scenario: Path) -> None:
    status, out, errors = interrupt(scenario, 1, *LONG, "--json")
    assert status == 130, errors
    assert len([json.loads(line) for line in out.splitlines()]) >= 1
    assert [path.name for path in scenario.parent.iterdir()] == ["two.toml"]


def test_nothing_is_left_where_nothing_had_finished(scenario: Path) -> None:
    status, out, errors = interrupt(scenario, 0, "--set", "duration=1000h", "--set", "sample=1s")
    assert status == 130, errors
    assert out == ""
    assert "interrupted: 0 of 8 runs had finished\n" in errors
    assert [path.name for path in scenario.parent.iterdir()] == ["two.toml"]


def test_other_commands_say_that_nothing_is_left(scenario: Path) -> None:
    text = scenario.read_text()
    scenario.unlink()
    # Whoever reads it waits for the rest.
    os.mkfifo(scenario)
    process = subprocess.Popen(
        command("fluid", scenario), cwd=scenario.parent, stderr=subprocess.PIPE, text=True
    )
    with scenario.open("w") as pipe:
        pipe.write(text[:100])
        pipe.flush()
        process.send_signal(signal.SIGINT)
    # Closed, the pipe ends a read that began just after the signal had come.
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "interrupted; no output was written\n")
    assert list(scenario.parent.iterdir()) == [scenario]


def test_while_it_loads_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupts:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "forebay.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "forebay.cli.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupts(), *sys.meta_path])
    assert run_command(["laws"]) == 130
    assert capsys.readouterr().err == "interrupted; no output was written\n"


@pytest.mark.linux
@pytest.mark.parametrize(("words", "status"), [(["-m", "forebay"], -signal.SIGINT), ([], 1)])
def test_while_the_command_loads(words: list[str], status: int) -> None:
    """The command ends without a traceback; a program that uses the package gets its exception."""
    program = f"""
import os, signal, sys
sys.orig_argv[1:] = {words!r}
class Interrupts:
    def find_spec(self, name, *_):
        if name == "forebay.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
try:
    import forebay.cli.main
except KeyboardInterrupt:
    sys.exit(1)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (status, "")


def test_native_code_is_not_broken_off() -> None:
    # A job in the background ignores it.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    ended = []

    def native() -> None:
        signal.raise_signal(signal.SIGINT)
        ended.append(True)

    try:
        with pytest.raises(KeyboardInterrupt):
            execution.unbroken(native)
    finally:
        signal.signal(signal.SIGINT, former)
    assert ended


@pytest.fixture
def kept_signals() -> Iterator[None]:
    """Handlers of signals that are the same after the test: a command ends by ignoring them, and
    the processes of later tests would inherit that."""
    former = {number: signal.getsignal(number) for number in signals.ENDING}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


def test_before_the_command_has_begun(
    kept_signals: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As soon as signals are caught: a line, and no traceback."""

    def caught() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(signals, "catch", caught)
    monkeypatch.setattr(sys, "argv", ["forebay", "laws"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "interrupted; no output was written\n"


@pytest.fixture
def caught(kept_signals: None) -> Iterator[None]:
    """Signals as a command catches them."""
    hook = sys.unraisablehook
    for number in signals.ENDING:
        signal.signal(number, signal.SIG_DFL)
    signals.catch()
    yield
    sys.unraisablehook = hook
    signals._came.clear()


@pytest.mark.parametrize("number", signals.ENDING)
def test_a_signal_waits_until_the_import_system_has_its_locks_in_order(
    caught: None, number: signal.Signals
) -> None:
    """`forebay run` never ended where Ctrl-C came between two lines of importlib: its main thread
    kept a lock for which the thread that loaded the figures waited."""
    locks = importlib._bootstrap._get_module_lock.__code__  # type: ignore[attr-defined]
    frame = SimpleNamespace(f_code=locks)
    handle = signal.getsignal(number)
    assert callable(handle)
    put_off = False
    with pytest.raises(KeyboardInterrupt):
        handle(number, frame)  # type: ignore[arg-type]
        put_off = True
        time.sleep(60)
    assert put_off


def test_a_signal_that_python_discards_comes_again(
    caught: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a callback of a weak reference raises is printed and forgotten: a command whose Ctrl-C
    came there went on to its end, with status 0."""

    class Anything:
        pass

    thing = Anything()
    _reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        del thing
        time.sleep(60)
    assert capsys.readouterr().err == ""


def test_only_the_main_thread_loads_modules(scenario: Path) -> None:
    """One that is interrupted while it imports takes half-loaded modules away from the other."""
    program = f"""
import sys, threading
from forebay.cli.run import run
from forebay.cli import run as module
from forebay.cli.main import run_command
prepare, threads = module._prepare_report, []
module._prepare_report = lambda *arguments: (
    threads.append(threading.current_thread()), prepare(*arguments)
)
status = run_command(["run", {str(scenario)!r}, "--no-store", "--set", "duration=200s"])
assert status == 0 and threads == [threading.main_thread()], (status, threads)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=scenario.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
