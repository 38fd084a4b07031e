"""Engines: one scenario goes to any of them, and what comes back is a result like any other."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import SCENARIO, Cli, one_bottleneck, started
from links import commands_with, nothing_stays, wait_until  # noqa: F401  # one a fixture

import forebay
from forebay._base.metrics import METRICS, TRAFFIC_METRICS
from forebay._native import Fault, Run, ScenarioError
from forebay.experiment import descriptions, engines, execution, experiment
from forebay.experiment import run_rows as rows
from forebay.experiment import store as stores
from forebay.experiment.engines import PACKETS, Extras, Key, Planned, Remark, RunningBatch
from forebay.experiment.result import Result
from forebay.experiment.store_files import sealed_name
from forebay.fluid.engine import Fluid
from forebay.linux import LinkError, settings
from forebay.linux import run as run_link
from forebay.linux.link_engine import MADE_AGAIN, Limits, LinkEngine

SHORT = ["duration=3s", 'measure=["1s", "3s"]']
ONE_POINT = SCENARIO.partition("[sweep]")[0]

#: Senders that the link has without iperf3.
TRAFFIC = """\
[[traffic]]
kind   = "mice"
flows  = 6
packet = "1500B"
rtt    = "30ms"
on     = "400ms"
off    = "200ms"
tcp    = "cubic"
[[law]]
kind   = "pi"
target = "40p"
"""
MICE = one_bottleneck(("1s", "3s"), "15Mbit/s", "100p", TRAFFIC, delay="0s", seeds=1)


def test_every_engine_is_found_by_its_name() -> None:
    assert engines.NAMES[0] == PACKETS.name
    for name in engines.NAMES:
        found = engines.named(name)
        members = {member for member in vars(engines.Engine) if not member.startswith("_")}
        missing = sorted(members - set(dir(found)))
        assert not missing, f"the engine {name} lacks these members of Engine: {missing}"
        assert found.name == name
        assert found.in_words
    with pytest.raises(
        ScenarioError, match=r'engine: "fluids" is not valid.*; expected one of packets, fluid'
    ):
        engines.named("fluids")


def test_an_unknown_or_unsuitable_engine_is_refused_in_one_line(scenario: Path, cli: Cli) -> None:
    """Before anything runs, and nothing is written."""
    web = SCENARIO.replace('kind   = "ftp"', 'kind = "cbr"\nrate = "1Mbit/s"')
    (scenario.parent / "cbr.toml").write_text(web)
    refused = [
        (
            ("run", "two.toml", "--engine", "ns-3"),
            '--engine: "ns-3" is not valid; expected one of packets, fluid',
        ),
        (
            ("run", "cbr.toml", "--engine", "fluid"),
            'cbr.toml: traffic.0.kind: "cbr" is not valid; expected "ftp", since ',
        ),
        (
            ("run", "cbr.toml", "--engine", "link"),
            "cbr.toml: traffic.0.kind: cbr is not possible with real flows",
        ),
        (
            ("study", "cbr.toml", "--engine", "fluid"),
            'cbr.toml: traffic.0.kind: "cbr" is not valid; expected "ftp", since ',
        ),
        (
            ("study", "two.toml", "--engine", "link"),
            '--engine: "link": its runs cannot be repeated',
        ),
        (("replay", "pi-pd", "--engine", "link"), '--engine: "link": its runs cannot be repeated'),
        (
            ("suite", "rfc7928", "--engine", "fluid"),
            "expected fifo, since a link has one queue in the fluid model",
        ),
        (
            ("validate", "two.toml", "--engines", "packets"),
            '--engines: "packets" is not valid; expected two or more',
        ),
        (
            ("validate", "two.toml", "--engines", "fluid,fluid"),
            '--engines: "fluid,fluid" is not valid; expected two or more',
        ),
        (
            ("validate", "two.toml", "--engines", "fluid,ns-3"),
            '--engines: "ns-3" is not valid; expected one of packets, fluid',
        ),
    ]
    for words, says in refused:
        done = cli(*words)
        assert done.returncode == 2, done.stderr
        assert says in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
    assert sorted(path.name for path in scenario.parent.iterdir()) == ["cbr.toml", "two.toml"]


def test_a_fluid_run_has_the_fluids_means_in_whole_packets(scenario: Path) -> None:
    by_fluid = forebay.fluid.scenario(scenario)
    result = forebay.run(scenario, engine="fluid", seeds=1)
    assert len(by_fluid) == len(result.runs) == 4
    for trace, run in zip(by_fluid, result.runs, strict=True):
        time_s = run.samples["time_s"]
        np.testing.assert_allclose(time_s, trace.time_s)
        inside = time_s > 2
        queue = trace.queue_pkts[0]
        assert run.samples["queue_pkts"][inside].mean() == pytest.approx(
            queue[inside].mean(), abs=1.01 / inside.sum()
        )
        # A row is off by less than a packet, and what remains is carried on.
        assert np.abs(run.samples["queue_pkts"] - queue).max() <= 1.0
        np.testing.assert_array_equal(run.samples["p"], trace.probability[0])
        # What came is gone, lost or still there.
        drops = sum(
            int(run.samples[name].sum())
            for name in ("early_drops", "forced_drops", "overflow_drops")
        )
        gone = int(run.samples["departed_bytes"].sum()) // 1000
        left = int(run.samples["arrivals"].sum()) - drops - gone
        assert left == pytest.approx(queue[-1], abs=3)
        assert run.metrics["forwarded_packets"] == gone
        assert drops > 0
        # Every bit that left was somebody's; 40 of a packet's 1000 bytes are headers.
        assert run.metrics["goodput_bps"] == pytest.approx(
            0.96 * 10e6 * run.metrics["utilisation"], rel=0.01
        )
        # By Little, of the packets that left; the queue moves in so short a window.
        wait_s = run.metrics["queue_mean_pkts"] / (1250 * run.metrics["utilisation"])
        assert run.metrics["delay_mean_s"] == pytest.approx(wait_s, rel=0.05)
        assert np.isnan(run.metrics["flow_completion_p50_s"])
        assert set(METRICS) <= set(run.metrics)


#: Two traffics in one queue of 60 packets at 30 Mbit/s.
MIXED = """\
duration = "60s"
measure  = ["20s", "60s"]
bottleneck = { rate = "30Mbit/s", delay = "5ms", buffer = "400p", ecn = true }
[[traffic]]
label  = "one"
kind   = "ftp"
start  = "0s"
flows  = 20
rtt    = "40ms"
packet = "1500B"
tcp    = "linux-reno"
ecn    = true
[[traffic]]
label  = "other"
kind   = "ftp"
start  = "0s"
flows  = 20
rtt    = "160ms"
packet = "1500B"
tcp    = "linux-reno"
ecn    = true
[[law]]
kind   = "pi"
gains  = "auto"
target = "60p"
"""


def who_gets_what(text: str, engine: str | Fluid, seeds: int) -> tuple[dict[str, float], ...]:
    """Of each traffic, the means over the seeds."""
    result = forebay.run(text, engine=engine, seeds=seeds)
    return tuple(
        {name: result.traffic_cell(0, 0, label, name).mean for name in TRAFFIC_METRICS}
        for label in ("one", "other")
    )


@pytest.mark.parametrize(
    ("overrides", "off"),
    [
        ([], 0.06),
        # The same round trip; CUBIC beside Reno.
        ([('rtt    = "160ms"', 'rtt = "40ms"'), ("linux-reno", "linux-cubic")], 0.1),
    ],
)
def test_traffic_results_of_the_fluid_agree_with_packets(
    overrides: list[tuple[str, str]], off: float
) -> None:
    text = MIXED
    for one, other in overrides:
        # Of the second traffic alone.
        at = text.rindex(one)
        text = text[:at] + other + text[at + len(one) :]
    packets = who_gets_what(text, "packets", 5)
    fluids = who_gets_what(text, Fluid(sawtooth=True), 1)
    for fluid, packet in zip(fluids, packets, strict=True):
        for name in ("goodput_bps", "share", "flow_goodput_bps", "ratio"):
            assert fluid[name] == pytest.approx(packet[name], rel=off), name
        assert fluid["rtt_s"] == pytest.approx(packet["rtt_s"], rel=0.02)
        assert fluid["delay_mean_s"] == pytest.approx(packet["delay_mean_s"], rel=0.03)
        assert fluid["mark_rate"] == pytest.approx(packet["mark_rate"], rel=0.2)
        assert fluid["drop_rate"] == 0
        # Nothing is sent again, and so no share of it.
        assert np.isnan(fluid["resent_rate"])
    assert sum(fluid["share"] for fluid in fluids) == pytest.approx(1)


def test_traffic_results_cover_two_links_and_drops() -> None:
    """A traffic over both, and one over the second alone: each tells of those that cross it."""
    second = """\
[[link]]
name = "second"
from = "right"
to = "far"
rate = "20Mbit/s"
delay = "5ms"
buffer = "300p"
"""
    text = MIXED.replace("[[traffic]]", f"{second}[[traffic]]", 1).replace("ecn    = true\n", "")
    text = text.replace('label  = "one"', 'label = "one"\npath = ["left", "right", "far"]')
    text = text.replace('label  = "other"', 'label = "other"\npath = ["right", "far"]')
    (run,) = forebay.run(text, engine="fluid", seeds=1).runs
    _, second_link = run.links
    assert run.traffic == []
    one, other = (of.metrics for of in second_link.traffic)
    total = second_link.metrics["goodput_bps"]
    assert one["goodput_bps"] + other["goodput_bps"] == pytest.approx(total, rel=1e-3)
    # Both meet the same queue, and the same share is lost.
    assert one["drop_rate"] == pytest.approx(other["drop_rate"], rel=0.02)
    assert one["drop_rate"] == pytest.approx(second_link.metrics["drop_rate"], rel=0.02)
    assert one["delay_mean_s"] == pytest.approx(second_link.metrics["delay_mean_s"], rel=0.02)
    # The first link has no queue of its own: 20 Mbit/s leave 30 half empty.
    assert one["rtt_s"] == pytest.approx(0.04 + one["delay_mean_s"], abs=2e-3)


def test_marks_of_the_fluid_are_marks() -> None:
    text = ONE_POINT.replace('kind   = "ftp"', 'kind = "ftp"\necn = true')
    fluid, packets = (
        forebay.run(text, laws=["pi"], seeds=1, engine=name).runs[0].metrics
        for name in ("fluid", "packets")
    )
    assert fluid["mark_rate"] > 0
    assert fluid["drop_rate"] < fluid["mark_rate"]
    assert packets["mark_rate"] > 0
    assert fluid["utilisation"] == pytest.approx(packets["utilisation"], abs=0.1)


def test_a_fluid_run_can_be_given_up(scenario: Path) -> None:
    read = experiment.read(scenario, overrides=["duration=180s"], seeds=1)
    batch = Fluid(step="10us").start(read, 1, samples=True, only={(0, 0, 1)})
    end_s = time.monotonic() + 60
    while batch.progress() == 0 and time.monotonic() < end_s:
        time.sleep(0.01)
    assert 0 < batch.progress() < 1
    assert not batch.done
    batch.cancel()
    while not batch.done and time.monotonic() < end_s:
        time.sleep(0.01)
    assert batch.done
    assert batch.take() == ([], [])


def test_a_fluid_run_does_not_depend_on_its_threads(scenario: Path) -> None:
    one, two = (forebay.run(scenario, engine="fluid", threads=n, seeds=2) for n in (1, 2))
    assert one.samples.equals(two.samples, null_equal=True)
    assert one.metrics.equals(two.metrics, null_equal=True)


def test_a_store_keeps_the_runs_of_each_engine_separately(tmp_path: Path) -> None:
    def run(engine: str) -> execution.Execution:
        read = experiment.read(SCENARIO, overrides=SHORT, seeds=1, engine=engines.named(engine))
        return execution.execute(read, 2, store=stores.at(tmp_path / "store"))

    packets, fluid = run("packets"), run("fluid")
    assert packets.from_store == fluid.from_store == 0
    again = run("fluid")
    assert again.from_store == len(again.runs) == 4
    for before, after in zip(fluid.runs, again.runs, strict=True):
        np.testing.assert_array_equal(before.samples["queue_pkts"], after.samples["queue_pkts"])
        assert before.metrics["queue_mean_pkts"] == after.metrics["queue_mean_pkts"]
    kept = stores.at(tmp_path / "store").scan().collect()
    assert sorted(kept["engine"].unique()) == ["fluid", "packets"]
    assert kept.filter(pl.col("link") == 0).height == 8


def test_runs_of_packets_are_found_as_before(tmp_path: Path) -> None:
    """Their digests, and the files of a store, are older than the word engine."""
    plan = experiment.read(SCENARIO).plan
    assert rows.configs(plan, 0) == rows.configs(plan, 0, rows.MadeBy("packets", ""))
    assert rows.configs(plan, 0) != rows.configs(plan, 0, rows.MadeBy("fluid", "published"))
    store = stores.at(tmp_path / "store")
    read = experiment.read(SCENARIO, overrides=SHORT, seeds=1)
    execution.execute(read, 2, store=store)
    # Runs are stored every few seconds, so a slow machine writes several files.
    for number, name in enumerate(store.segments()):
        older = io.BytesIO()
        pl.read_parquet(tmp_path / "store" / name).drop("engine").write_parquet(older)
        store.place.remove(name)
        store.place.write(
            sealed_name(f"runs/{store.version}/older-{number}", older.getvalue()), older.getvalue()
        )
    longer = experiment.read(SCENARIO, overrides=SHORT, seeds=2)
    assert execution.execute(longer, 2, store=store).from_store == 4
    # Files with and without the column beside each other.
    assert len(store.segments()) > 1
    assert execution.execute(longer, 2, store=store).from_store == 8
    assert store.scan().collect()["engine"].null_count() == 4


@dataclass
class Doubted:
    """The simulator, but for a remark on its first run."""

    name: str = "doubted"
    in_words: str = "simulated, and doubted"
    runs_programs: bool = False
    kernel_keys: tuple[str, ...] = ()
    asked: list[Collection[Key]] = field(default_factory=list)

    def check(self, experiment: Planned) -> None:
        """Whatever can be read."""

    def version(self) -> str:
        return "1"

    def start(
        self, experiment: Planned, threads: int, *, samples: bool, only: Collection[Key]
    ) -> RunningBatch:
        self.asked.append(sorted(only))
        return DoubtedRuns(PACKETS.start(experiment, threads, samples=samples, only=only))


@dataclass
class DoubtedRuns:
    batch: RunningBatch
    more: str = ", one in doubt"
    extras: Mapping[Key, Extras] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.batch.done

    @property
    def remarks(self) -> Mapping[Key, Sequence[Remark]]:
        return {(0, 0, 1): [Remark("void", "too late")]}

    def progress(self) -> float:
        return self.batch.progress()

    def take(self) -> tuple[list[Run], list[Fault]]:
        return self.batch.take()

    def fail_longer_than(self, most_s: float) -> None:
        self.batch.fail_longer_than(most_s)

    def cancel(self) -> None:
        self.batch.cancel()


def test_a_run_with_a_remark_is_reported_and_not_stored(tmp_path: Path) -> None:
    by, store = Doubted(), stores.at(tmp_path / "store")
    read = experiment.read(ONE_POINT, overrides=SHORT, seeds=2, engine=by)
    told = []
    first = execution.execute(read, 2, lambda now: told.append(now.more), store=store)
    assert len(first.runs) == 4
    assert set(told) <= {", one in doubt", ""}
    said = [text for text, _ in descriptions.warnings(Result(read, first))]
    assert "PI: 1 of 2 runs: void, too late." in said
    second = execution.execute(read, 2, store=store)
    assert second.from_store == 3
    assert by.asked[1] == [(0, 0, 1)]


def test_a_result_says_which_engine_made_it(scenario: Path, cli: Cli) -> None:
    for name in ("packets", "fluid"):
        done = cli("run", "two.toml", "--engine", name, "--out", name)
        assert done.returncode == 0, done.stderr
        told = json.loads((scenario.parent / name / "metrics.json").read_text())
        assert told["engine"] == name
        assert ("--engine fluid" in told["command"]) == (name == "fluid")
        frame = pl.read_parquet(scenario.parent / name / "metrics.parquet")
        assert frame["engine"].unique().to_list() == [name]
        report = (scenario.parent / name / "report.html").read_text()
        in_words = engines.named(name).in_words
        assert in_words in " ".join(report.split())
        assert (in_words in " ".join(done.stdout.split())) == (name == "fluid")
    done = cli("run", "two.toml", "--engine", "fluid", "--json")
    assert {json.loads(line)["engine"] for line in done.stdout.splitlines()} == {"fluid"}

    done = cli("compare", "packets", "fluid", "--out", "both")
    assert done.returncode == 0, done.stderr
    assert "A was made by the engine packets, B by fluid." in " ".join(done.stdout.split())
    told = json.loads((scenario.parent / "both" / "compare.json").read_text())
    assert (told["A"]["engine"], told["B"]["engine"]) == ("packets", "fluid")
    assert {line["metric"] for line in told["differences"]} >= {"queue_mean_pkts"}


def test_a_study_is_made_by_any_engine(scenario: Path, cli: Cli) -> None:
    words = ("study", "two.toml", "--store", "store", "--no-report")
    made = {
        name: cli(*words, "--engine", name, "--out", name) for name in ("packets", "fluid", "fluid")
    }
    for name, done in made.items():
        assert done.returncode == 0, done.stderr
        told = json.loads((scenario.parent / name / "study.json").read_text())
        assert told["engine"] == name
    assert "0 new, 8 from the store" in cli(*words, "--engine", "fluid").stdout
    means = [
        pl.read_parquet(scenario.parent / name / "frame.parquet")["queue_mean_pkts"].mean()
        for name in made
    ]
    assert means[0] != means[1]
    fluid = forebay.run(scenario, engine="fluid").metrics["queue_mean_pkts"]
    assert means[1] == pytest.approx(fluid.mean())


def test_a_suite_and_a_paper_run_on_the_fluid(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "experiments" / "mine"
    folder.mkdir(parents=True)
    (folder / "two.toml").write_text(SCENARIO)
    quoted = json.dumps("mean('pi')")
    (folder / "two.claims.toml").write_text(
        '[points]\nfew = { "traffic.0.flows" = 5 }\n'
        '[[claim]]\nid = "full"\nwhere = "here"\nsays = "the queue is short"\n'
        f'value = {quoted}\npoint = "few"\npublished = "< 100"\n'
    )
    words = ("replay", "mine", "--experiments", "experiments", "--json", "--set", "seeds=1")
    done = cli(*words, "--engine", "fluid")
    assert done.returncode == 0, done.stderr
    by_fluid, by_packets = (json.loads(it.stdout)["ours"] for it in (done, cli(*words)))
    assert by_fluid != by_packets


def test_any_two_engines_are_laid_side_by_side(scenario: Path, cli: Cli) -> None:
    words = ("validate", "two.toml", "--engines", "fluid,packets", "--set", "traffic.0.flows=20")
    done = cli(*words, "--json", "--page", "page.md", "--out", "out")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["law"] for line in lines} == {"pi", "droptail"}
    by_fluid = forebay.run(scenario, engine="fluid", overrides=["traffic.0.flows=20"])
    for line in lines:
        assert len(line["fluid"]) == len(line["simulated"]) == 2
        delay = line["differences"]["delay"]
        means = [
            np.mean([run["delay_mean_s"] for run in line[side]]) for side in ("simulated", "fluid")
        ]
        assert delay["difference"] == pytest.approx(means[0] - means[1])
        assert delay["reference"] == pytest.approx(means[0])
    found = {run["delay_mean_s"] for line in lines for run in line["fluid"]}
    assert found == set(by_fluid.metrics["delay_mean_s"])
    text = (scenario.parent / "page.md").read_text()
    assert "fluid compared with simulated" in text
    assert "*fluid*, integrated in the fluid model of TCP;" in " ".join(text.split())
    assert "**Fluid**" in text
    assert "void" not in text
    assert "TSO" not in text
    written = json.loads((scenario.parent / "out" / "metrics.json").read_text())
    assert written["scenarios"][0]["engines"] == ["fluid", "packets"]


def needs_a_link() -> None:
    try:
        run_link(settings("10Mbit/s"), ["true"], timeout_s=60)
    except LinkError as error:
        pytest.skip(str(error))


@pytest.mark.realtime
def test_real_flows_are_a_result_like_any_other(tmp_path: Path) -> None:
    needs_a_link()
    (tmp_path / "mice.toml").write_text(MICE)
    # However late a busy machine is, these runs are sound; the next test has void ones.
    limits = Limits(attempts=1, void_lateness="10s", void_rate="100%")
    read = experiment.read(tmp_path / "mice.toml", engine=LinkEngine(limits=limits))
    store = stores.at(tmp_path / "store")
    told = []
    made = execution.execute(read, 2, lambda now: told.append(now.fraction), store=store)
    assert made.faults == []
    (run,) = made.runs
    assert made.remarks == {}
    # On the scenario's clock.
    assert run.samples["time_s"][0] == pytest.approx(0.01)
    assert run.samples["time_s"][-1] == pytest.approx(3.0, abs=0.02)
    assert run.link == "bottleneck"
    assert set(METRICS) <= set(run.metrics)
    assert run.metrics["forwarded_packets"] > 300
    assert run.metrics[MADE_AGAIN] == 0
    inside = run.samples["time_s"] > 1
    assert run.samples["queue_pkts"][inside].mean() == pytest.approx(
        run.metrics["queue_mean_pkts"], rel=0.02, abs=0.5
    )
    # The bar goes on while a run is under way.
    assert any(0 < each < 1 for each in told)
    assert execution.count_stored([read], store) == 0
    result = forebay.Result(read, made)
    result.report(tmp_path / "out")
    assert "real time" in (tmp_path / "out" / "report.html").read_text()
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["engine"] == "link"


@pytest.mark.link
def test_a_void_run_is_a_warning(tmp_path: Path) -> None:
    needs_a_link()
    # No machine is as punctual as that.
    limits = Limits(attempts=2, void_lateness="1us")
    short = MICE.replace('"3s"', '"1500ms"')
    read = experiment.read(short, engine=LinkEngine(limits=limits))
    made = execution.execute(read)
    (run,) = made.runs
    assert run.metrics[MADE_AGAIN] == 1
    ((key, said),) = made.remarks.items()
    assert key == (0, 0, 1)
    assert said[0].kind == "void"
    assert said[0].text.startswith("one packet in a thousand was ")
    warnings = [text for text, _ in descriptions.warnings(forebay.Result(read, made))]
    assert any(text.startswith("PI: 1 of 1 runs: void, one packet") for text in warnings)


@pytest.mark.link
def test_an_interrupted_real_run_leaves_nothing(tmp_path: Path) -> None:
    needs_a_link()
    (tmp_path / "mice.toml").write_text(MICE.replace('"3s"', '"60s"'))
    mark = f"PYTEST_ENGINES={tmp_path}"
    words = ("run", "mice.toml", "--engine", "link", "--out", "out")
    process = started(tmp_path, *words, env=os.environ | dict([mark.split("=", 1)]))
    try:
        wait_until(mark, runs="forebay.linux.transfers")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert "interrupted: 0 of 1 run had finished" in errors
        assert "Traceback" not in errors
        wait_until(mark, runs=None)
        assert commands_with(mark) == []
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "out" / "metrics.json").exists()


def test_no_engine_is_loaded_before_it_is_named() -> None:
    """What an engine needs takes a while to load."""
    look = (
        "import sys; from forebay.experiment import engines; engines.named('packets'); "
        "print([name for name in engines.MODULES.values() if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
