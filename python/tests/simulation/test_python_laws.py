"""Laws written in Python, next to the built-in ones."""

from __future__ import annotations

import hashlib
import json
import math
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import PROTOTYPES, Cli, command, prototypes_file
from polars.testing import assert_frame_equal

import forebay
from forebay._base.quantities import Packets, Seconds
from forebay.experiment import experiment
from forebay.scenario import python_laws as prototypes_of

CLASSES: dict[str, Any] = {}
exec(PROTOTYPES, CLASSES)
PythonPi = CLASSES["PythonPi"]


def test_a_python_pi_is_the_built_in_one_bit_for_bit(scenario: Path) -> None:
    result = forebay.run(scenario, laws=["pi", PythonPi])
    metrics = result.metrics.drop("parameters")
    for table in (result.samples, metrics, result.delays):
        ours, theirs = (
            table.filter(pl.col("law") == law).drop("law") for law in ("pi", "PythonPi")
        )
        assert len(ours) > 0
        assert_frame_equal(ours, theirs, check_exact=True)
    assert (result.samples["p"] > 0).any()


def test_on_the_command_line(cli: Cli, scenario: Path, prototypes: Path) -> None:
    done = cli("run", scenario, "--law", "pi", "--law", "mine.py:PythonPi", "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    by_law: dict[str, list[Any]] = {"pi": [], "PythonPi": []}
    for line in lines:
        del line["costs"]
        by_law[line["law"]].append(line["metrics"])
    assert len(by_law["pi"]) == 4
    assert by_law["pi"] == by_law["PythonPi"]
    assert all(metrics["qacd_pkts"] > 0 for metrics in by_law["pi"])


class Recorder:
    """Keeps what it sees; for one run at a time."""

    interval = 0.01
    seen: list[Any]

    def sample(self, queue: Any) -> float:
        self.seen.append(queue)
        return 0.1


def test_a_law_in_python_sees_the_state_of_the_queue(scenario: Path) -> None:
    Recorder.seen = []
    result = forebay.run(scenario, laws=[Recorder], overrides={"traffic.0.flows": 5}, seeds=1)
    # One sample every 10 ms in 4 s; the last falls on the end.
    assert len(Recorder.seen) in (399, 400)
    queue = Recorder.seen[-1]
    assert (queue.limit_packets, queue.rate_bps) == (100, 10_000_000)
    for queue in Recorder.seen:
        assert 0 <= queue.packets <= 100
        assert queue.bytes <= 1000 * queue.packets
    # The sampling times are those of the trace.
    assert max(queue.packets for queue in Recorder.seen) == result.samples["queue_pkts"][:-1].max()


@pytest.mark.parametrize(("interval", "samples"), [("500ms", 8), (0.25, 16), ("2s", 2)])
def test_intervals(scenario: Path, interval: float | str, samples: int) -> None:
    Recorder.seen = []
    law = type("Timed", (Recorder,), {"interval": interval})
    forebay.run(scenario, laws=[law], overrides={"traffic.0.flows": 5}, seeds=1)
    assert len(Recorder.seen) in (samples - 1, samples)


class Constant:
    interval = "10ms"

    def sample(self, queue: Any) -> float:
        return 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, 1.5, 7, True, "much", None, [0.1]])
def test_an_invalid_probability_fails_the_run(scenario: Path, value: Any) -> None:
    law = type("Odd", (Constant,), {"sample": lambda self, queue: value})
    with pytest.raises(forebay.RunError) as caught:
        forebay.run(scenario, laws=[law], seeds=1)
    message = caught.value.message
    assert f"Odd.sample: {value!r} is not valid; expected a probability from 0 to 1" in message
    assert (
        message.startswith("test_python_laws.py:") or "simulation/test_python_laws.py:" in message
    )


def test_an_exception_ends_the_runs_and_names_one(scenario: Path) -> None:
    with pytest.raises(forebay.RunError) as caught:
        forebay.run(scenario, laws=["pi", CLASSES["Raises"]], threads=1)
    error = caught.value
    assert (error.law, error.point, error.seed) == ("Raises", "traffic.0.flows = 5", 1)
    assert "Raises.sample: raised ArithmeticError: ten is enough" in error.message
    # What had finished is not lost; the run before this one had, and perhaps some after it.
    assert error.result.partial
    assert set(error.result.metrics["law"]) == {"pi"}


def test_an_exception_on_the_command_line(cli: Cli, scenario: Path, prototypes: Path) -> None:
    done = cli(
        *("run", scenario, "--law", "pi", "--law", "mine.py:Raises", "--threads", 1, "--json"),
        *("--out", "out", "--no-report"),
    )
    assert done.returncode == 2
    line = PROTOTYPES.splitlines().index('            raise ArithmeticError("ten is enough")') + 1
    first, second, *_ = done.stderr.splitlines()
    assert first == (
        f"Raises at traffic.0.flows = 5, seed 1, failed: mine.py:{line}: Raises.sample: "
        "raised ArithmeticError: ten is enough"
    )
    assert second == f'    mine.py:{line} in sample: raise ArithmeticError("ten is enough")'
    assert "Traceback" not in done.stderr
    assert re.search(r"stopped: [1-4] of 8 runs had finished and are reported\n", done.stderr)
    assert {json.loads(line)["law"] for line in done.stdout.splitlines()} == {"pi"}
    written = json.loads((scenario.parent / "out" / "metrics.json").read_text())
    assert written["partial"] is True


@pytest.mark.parametrize("interval", [0, -1, float("nan"), True, "10", "never", None, "2min"])
def test_intervals_that_are_refused(scenario: Path, interval: Any) -> None:
    law = type("Odd", (Constant,), {"interval": interval})
    required = r"Odd\.interval: .*(1us to 60s|time between two samples)"
    with pytest.raises(forebay.ScenarioError, match=required):
        forebay.run(scenario, laws=[law])


def test_two_of_one_name_are_refused(scenario: Path) -> None:
    with pytest.raises(
        forebay.ScenarioError,
        match='--law: "PythonPi" occurs twice; expected laws with different labels',
    ):
        forebay.run(scenario, laws=[PythonPi, PythonPi])


#: Laws with parameters and hooks.
HOOKED = """\
from dataclasses import dataclass
from typing import Annotated

from forebay._base.quantities import Packets, Probability, Range, Seconds


@dataclass
class Relay:
    interval: Seconds = 0.01
    target: Packets = 40
    high: Annotated[Probability, Range(0, 0.5)] = 0.1

    def sample(self, queue):
        return self.high if queue.packets > self.target else 0.0


@dataclass
class Timid:
    \"\"\"Signals packets that have waited too long, as they leave.\"\"\"

    limit: Seconds = 0.03
    gain: float = 1.0
    verdict: str = "mark"

    def on_dequeue(self, queue, packet):
        late = packet.sojourn_s > self.limit
        return self.verdict if late and self.rng.random() < self.gain else "pass"


class Watching:
    def __init__(self):
        self.ages = []

    def on_enqueue(self, queue, packet):
        assert packet.sojourn_s == 0
        assert 0 <= queue.head_age_s <= queue.now_s
        assert packet.ecn == "not-ect" and packet.tcp and not packet.marks
        assert packet.flow < 5
        return "drop" if queue.packets > 30 else "pass"

    def on_dequeue(self, queue, packet):
        assert queue.idle_s is None or queue.idle_s >= 0
        assert packet.bytes > 0
        return "pass"


class Endless:
    caught = 0

    def on_enqueue(self, queue, packet):
        while self.caught < 2:
            try:
                while True:
                    pass
            except KeyboardInterrupt:
                self.caught += 1
        raise KeyboardInterrupt
"""


@pytest.fixture
def hooked(tmp_path: Path) -> Path:
    return prototypes_file(tmp_path, HOOKED)


def with_laws(scenario: Path, laws: str) -> Path:
    """The scenario with these laws instead of its own."""
    text = scenario.read_text()
    path = scenario.with_name("own.toml")
    path.write_text(text[: text.index("[[law]]")] + laws)
    return path


def test_a_scenario_names_a_prototype_and_its_parameters(
    cli: Cli, scenario: Path, hooked: Path
) -> None:
    path = with_laws(
        scenario,
        """
        [[law]]
        kind = "mine.py:Relay"
        target = "20p"
        [[law]]
        kind = "mine.py:Relay"
        label = "high"
        high = 0.3
        [sweep]
        "law.Relay.target" = ["20p", "60p"]
        """,
    )
    done = cli("run", path, "--seeds", 1, "--set", "law.high.interval=20ms", "--json")
    assert done.returncode == 0, done.stderr
    read = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["law"] for line in read] == ["Relay", "high"] * 2
    queues = {(line["point"], line["law"]): line["metrics"]["queue_mean_pkts"] for line in read}
    low, high = (queues[f"law.Relay.target = {pkts}p", "Relay"] for pkts in (20, 60))
    assert low < high

    plan = experiment.read(path, overrides=["law.high.interval=20ms"]).plan
    [first, second] = plan.points[0].laws
    assert (first.label, first.kind, first.target_pkts) == ("Relay", None, 20)
    assert dict(second.params) == {"interval": "20ms", "target": "40p", "high": 0.3}
    assert first.source.startswith("mine.py:Relay, SHA-256 ")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("target", "20", '"?20"? is not valid; expected a number of packets, such as "200p"'),
        ("high", "0.7", "0.7 is not valid; expected a value from 0 to 0.5"),
        ("interval", "-1s", '"-1s" is not valid; expected a time from 0s to 2500000h'),
        (
            "gain",
            "1",
            "unknown key; expected one of kind, label, queue, gains, interval, target, high "
            r'\(did you mean "gains"\?\)',
        ),
        (
            "interval",
            "1h",
            "3600.0 is not valid; expected a number of seconds or a time .*, from 1us to 60s",
        ),
    ],
)
def test_parameters_that_are_refused(
    cli: Cli, scenario: Path, hooked: Path, key: str, value: str, message: str
) -> None:
    done = cli("run", scenario, "--law", "mine.py:Relay", "--set", f"law.Relay.{key}={value}")
    assert done.returncode == 2
    line = rf"error: --set: law\.Relay\.{key}: {message}\n"
    assert re.fullmatch(line, done.stderr), done.stderr
    assert not (scenario.parent / "results").exists()


def test_hooks_see_single_packets(scenario: Path, hooked: Path) -> None:
    laws = ["pi", *(prototypes_of.load(f"{hooked}:{name}") for name in ("Timid", "Watching"))]
    result = forebay.run(scenario, laws=laws, seeds=1, overrides={"traffic.0.flows": 5})
    worst_s = dict(result.metrics.select("law", "delay_p99_s").iter_rows())
    assert worst_s["Timid"] < worst_s["pi"]
    watched = result.samples.filter(law="Watching")
    assert watched["queue_pkts"].max() == 31
    assert watched["forced_drops"].sum() > 0 == watched["early_drops"].sum()


def test_random_numbers_come_from_the_seed(scenario: Path, hooked: Path) -> None:
    laws = with_laws(scenario, '[[law]]\nkind = "mine.py:Timid"\ngain = 0.5\nlimit = "5ms"\n')
    one, two = (
        forebay.run(laws, overrides={"traffic.0.flows": 5}, threads=threads) for threads in (1, 2)
    )
    assert_frame_equal(one.samples, two.samples, check_exact=True)
    seeds = [one.samples.filter(seed=seed)["queue_pkts"].to_list() for seed in (1, 2)]
    assert seeds[0] != seeds[1]


def test_a_verdict_that_is_none(cli: Cli, scenario: Path, hooked: Path) -> None:
    done = cli(
        *("run", scenario, "--law", "mine.py:Timid", "--set", "law.Timid.verdict=ECN"),
        *("--set", "law.Timid.limit=0s", "--seeds", 1, "--threads", 1),
    )
    assert done.returncode == 2
    line = next(
        n for n, text in enumerate(HOOKED.splitlines(), 1) if "return self.verdict if" in text
    )
    first, second = done.stderr.splitlines()[-2:]
    assert first.endswith(
        f"seed 1, failed: mine.py:{line}: Timid.on_dequeue: 'ECN' is not valid; "
        'expected "pass", "mark" or "drop"'
    )
    assert second == "stopped: 0 of 2 runs had finished"


def test_an_endless_hook_is_interrupted(scenario: Path, hooked: Path) -> None:
    child = subprocess.Popen(
        [*command("run", scenario, "--law", "pi", "--law", "mine.py:Endless", "--json")],
        cwd=scenario.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    # A run beside it is made; the others wait for the endless one.
    time.sleep(2)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr


def test_a_digest_changes_with_the_file_of_a_law(hooked: Path) -> None:
    def digest() -> str | None:
        prototype = prototypes_of.load(f"{hooked}:Relay")
        assert not isinstance(prototype, str)
        return prototypes_of.digest(prototype)

    before = digest()
    assert before == digest() == hashlib.sha256(HOOKED.encode()).hexdigest()
    hooked.write_text(HOOKED + "\n")
    assert digest() != before


def test_the_fluid_model_takes_a_prototype(cli: Cli, scenario: Path, hooked: Path) -> None:
    done = cli("fluid", scenario, "--law", "mine.py:Relay", "--out", "fluid")
    assert done.returncode == 0, done.stderr


class Dice(forebay.Controller):
    """Signals with a probability that it draws itself."""

    interval = 0.01

    def sample(self, queue: Any) -> float:
        return 0.02 * self.rng.random() if queue.packets > 20 else 0.0


@pytest.mark.parametrize("engine", ["packets", "fluid"])
def test_a_law_has_its_generator_under_every_engine(scenario: Path, engine: str) -> None:
    results = [forebay.run(scenario, laws=[Dice], seeds=2, engine=engine) for _ in range(2)]
    samples = [result.samples.filter(pl.col("p") > 0)["p"] for result in results]
    assert len(samples[0]) > 0
    assert samples[0].equals(samples[1])
    # Each seed has random numbers of its own.
    by_seed = results[0].samples.filter(pl.col("p") > 0).partition_by("seed")
    assert not by_seed[0]["p"].equals(by_seed[1]["p"])


@pytest.mark.parametrize("seeds", [[1, 2], "two", 1.5, True, {}])
def test_a_number_of_seeds_that_is_none_is_one_line(scenario: Path, seeds: Any) -> None:
    with pytest.raises(forebay.ScenarioError, match=r"^seeds: .*; expected a whole number"):
        forebay.run(scenario, seeds=seeds)


@dataclass
class Threshold(forebay.Controller):
    interval: Seconds = 0.01
    target: Packets = 60

    def sample(self, queue: Any) -> float:
        return 0.02 if queue.packets > self.target else 0.0


def test_a_class_of_a_notebook_has_parameters(scenario: Path) -> None:
    fixed = partial(Threshold, target=20)
    overrides = {"law.Threshold.target": "80p", "traffic.0.flows": 20}
    result = forebay.run(scenario, laws=[Threshold], overrides=overrides, seeds=1)
    [info] = result.plan.points[0].laws
    assert dict(info.params) == {"interval": "10ms", "target": "80p"}
    # What is already filled in is no parameter.
    other = forebay.run(scenario, laws=[fixed], overrides={"traffic.0.flows": 20}, seeds=1)
    [info] = other.plan.points[0].laws
    assert (info.label, info.target_pkts) == ("Threshold", 20)
    means = [one.metrics["queue_mean_pkts"][0] for one in (result, other)]
    assert means[0] > means[1]


#: A law that says that it was loaded.
NOTICED = """
from pathlib import Path
(Path(__file__).parent / "loaded").write_text("")
class Law:
    interval = 0.01
    def sample(self, queue):
        return 0.0
"""


def test_a_scenario_loads_no_law_from_outside_its_folder(
    cli: Cli, scenario: Path, tmp_path: Path
) -> None:
    """Whoever runs a scenario has looked at its folder, and not at the others of the machine."""
    (tmp_path / "evil.py").write_text(NOTICED)
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "below/law.py").write_text(NOTICED)
    text = scenario.read_text()
    for path in ("../evil.py", "below/../../evil.py", tmp_path / "evil.py"):
        (folder / "s.toml").write_text(f'{text}\n[[law]]\nkind = "{path}:Law"\n')
        done = cli("run", "folder/s.toml", "--seeds", 1, "--no-report")
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1, done.stderr
        assert re.match(r"error: folder/s\.toml:\d+: law\.\d+\.kind: ", done.stderr), done.stderr
        assert str(path) in done.stderr and 'without ".."' in done.stderr
    assert not (tmp_path / "loaded").exists()
    (folder / "s.toml").write_text(f'{text}\n[[law]]\nkind = "./below/law.py:Law"\n')
    done = cli("run", "folder/s.toml", "--law", "Law", "--seeds", 1, "--no-report")
    assert done.returncode == 0, done.stderr
    assert (folder / "below/loaded").exists()


def test_a_law_that_does_not_run_is_not_loaded(cli: Cli, scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "noticed.py").write_text(NOTICED)
    (tmp_path / "other.py").write_text(NOTICED.replace("loaded", "other"))
    text = f'{scenario.read_text()}\n[[law]]\nkind = "noticed.py:Law"\n'
    (tmp_path / "s.toml").write_text(text)
    for laws in (["pi"], ["other.py:Law"]):
        words = [word for law in laws for word in ("--law", law)]
        done = cli("run", "s.toml", *words, "--seeds", 1, "--no-report", "--force")
        assert done.returncode == 0, done.stderr
    forebay.run(tmp_path / "s.toml", laws=[Threshold], seeds=1)
    assert not (tmp_path / "loaded").exists()
    assert (tmp_path / "other").exists()
    done = cli("run", "s.toml", "--law", "noticed.py:Law", "--seeds", 1, "--force")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "loaded").exists()
