"""The engine `kernel`: what it refuses, how guests are built and kept, and runs on real Linux."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from guest_marks import needs_guest

import forebay
from forebay._base.errors import RunError
from forebay._base.temporary import own_prefix, temporary_folder
from forebay._native import ScenarioError
from forebay.experiment import engines, experiment
from forebay.linux import guests, kernel_engine

BOTTLENECK = '[bottleneck]\nrate = "15Mbit/s"\nbuffer = "150p"\ndelay = "1ms"\n'
FTP = (
    '[[traffic]]\nkind = "ftp"\ntcp = "linux-cubic"\nflows = {flows}\npacket = "1500B"\n'
    'rtt = "40ms"\nstart = {{ uniform = ["0s", "1s"] }}\n'
)
PROGRAM = '[[traffic]]\nkind = "program"\nflows = 1\npacket = "1500B"\nrtt = "40ms"\n'


def scenario(*traffic: str, law: str = 'kind = "codel"', more: str = "", duration: int = 12) -> str:
    top = f'duration = "{duration}s"\nmeasure = ["4s", "{duration}s"]\nseeds = 1\n'
    return f"{top}{more}{BOTTLENECK}[[law]]\n{law}\n{''.join(traffic)}"


@pytest.fixture
def some_guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A guest whose kernel is a script: it says something, and dies."""
    folder = tmp_path / "kernels" / "0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / guests.KERNEL).write_text("#!/bin/sh\necho a line of its console\nexit 3\n")
    (folder / guests.KERNEL).chmod(0o755)
    facts = {"digest": "0123456789abcdef0123", "release": "9.9", "source": "nothing", "hz": 1000}
    (folder / guests.FACTS).write_text(json.dumps(facts))
    program = tmp_path / "program"
    program.write_text("")
    monkeypatch.setenv(guests.VARIABLE, str(tmp_path / "kernels"))
    monkeypatch.setattr(guests, "PROGRAM", program)
    return folder


def test_without_a_guest_a_line_says_how_to_build_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, some_guest: Path
) -> None:
    monkeypatch.setenv(guests.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(
        ScenarioError, match=r"kernel needs a guest, and .*none.*forebay guest setup"
    ):
        forebay.run(scenario(FTP.format(flows=1)), engine="kernel")


def test_a_missing_first_process_is_reported_with_the_command_that_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, some_guest: Path
) -> None:
    monkeypatch.setattr(guests, "PROGRAM", tmp_path / "forebay-guest")
    with pytest.raises(
        ScenarioError, match=r"kernel needs forebay-guest, .*`make guest` builds it"
    ):
        forebay.run(scenario(FTP.format(flows=1)), engine="kernel")


@pytest.mark.kernel
def test_setup_builds_the_first_process_in_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the README has it, after `make run` alone: it was not there, and nothing built it."""
    # Elsewhere than in the package, where tests beside this one run guests with it.
    program = tmp_path / "forebay-guest"
    monkeypatch.setenv("MAKEFLAGS", f"GUEST={program} STAMPS={tmp_path}")
    guests.build_program()
    assert program.stat().st_mode & 0o111
    assert program.read_bytes()[:4] == b"\x7fELF"


def test_on_another_system_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, some_guest: Path
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(ScenarioError, match=r"Linux on x86_64, and this is Darwin on"):
        forebay.run(scenario(FTP.format(flows=1)), engine="kernel")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            scenario(FTP.format(flows=2001)),
            "traffic.flows: 2001 are too many; expected at most 2000 flows in all with --engine ",
        ),
        (
            scenario(FTP.format(flows=1).replace("linux-cubic", "prague")),
            r"traffic.0.tcp: .prague. is not valid; expected one of reno, .*dctcp with --engine",
        ),
        (
            scenario(FTP.format(flows=1).replace("1500B", "100B")),
            r"traffic.0.packet: .100B. is not valid; expected at least .142B. ",
        ),
        (
            scenario(
                '[[traffic]]\nkind = "cbr"\nflows = 1\nrate = "1Mbit/s"\npacket = "45B"\n'
                'rtt = "40ms"\n',
                law='kind = "droptail"',
            ),
            r"traffic.0.packet: .45B. is not valid; expected at least .46B. ",
        ),
        (
            scenario(FTP.format(flows=1) + 'access = "1Mbit/s"\n'),
            r"traffic.0.access: .1Mbit.s. is not valid; "
            "expected at least the rate of the bottleneck",
        ),
        (
            scenario(FTP.format(flows=1) + 'ecn = "l4s"\n'),
            r"traffic.0.ecn: .l4s. is not valid; expected true or false",
        ),
        (
            scenario(FTP.format(flows=1), '[kernel]\ntcp = "not one"\n'),
            "kernel.tcp: .not one. is not valid; expected a name of 1 to 15",
        ),
        (
            scenario(FTP.format(flows=1), '[kernel]\nsysctls = { "vm.swappiness" = 1 }\n'),
            "kernel.sysctls: .* is not valid; expected a sysctl below net",
        ),
        (
            scenario(PROGRAM + 'client = "true"\nfiles = "not here"\n'),
            "traffic.0.files: .not here. is not valid; expected a readable file",
        ),
        (
            scenario(PROGRAM + 'client = "true"\nfiles = "../secret"\n'),
            r"traffic.0.files: .\.\./secret. is not valid; expected a file in the folder of ",
        ),
    ],
)
def test_a_scenario_that_a_guest_cannot_run_is_refused_before_it_starts(
    text: str, line: str, some_guest: Path
) -> None:
    with pytest.raises(ScenarioError, match=line):
        forebay.run(text, engine="kernel")


def test_other_engines_say_that_they_pass_the_table_over() -> None:
    table = "[kernel]\noffloads = true\npcap = true\n"
    text = scenario(FTP.format(flows=1), table, duration=5)
    warned = "scenario: kernel.offloads, kernel.pcap count with the engine kernel alone"
    assert forebay.run(text).experiment.warning == warned
    # A link keeps packets.
    over_link = experiment.read(text, engine=engines.named("link", "engine"))
    assert over_link.warning == "scenario: kernel.offloads counts with the engine kernel alone"
    said_nothing = scenario(FTP.format(flows=1), "[kernel]\n", duration=5)
    assert experiment.read(said_nothing).warning == ""


def test_a_law_in_python_stays_outside(some_guest: Path) -> None:
    class Mine(forebay.Controller):
        interval = "10ms"

        def sample(self, queue: forebay.Queue) -> float:
            return 0.0

    with pytest.raises(ScenarioError, match="a guest has no Python"):
        forebay.run(scenario(FTP.format(flows=1)), laws=[Mine], engine="kernel")


def test_a_guest_that_dies_shows_its_last_lines_and_leaves_nothing(some_guest: Path) -> None:
    with pytest.raises(RunError, match=r"no outcome.json.*a line of its console"):
        forebay.run(scenario(FTP.format(flows=1)), engine="kernel")
    assert not list(kernel_engine._memory().glob(f"{own_prefix(os.getpid())}*"))


def test_an_exception_in_the_thread_of_a_guest_is_raised(
    monkeypatch: pytest.MonkeyPatch, some_guest: Path
) -> None:
    def execute(_: kernel_engine.GuestRun) -> None:
        raise ZeroDivisionError("a fault of the engine's own code")

    monkeypatch.setattr(kernel_engine.GuestRun, "execute", execute)
    with pytest.raises(ZeroDivisionError, match="own code"):
        forebay.run(scenario(FTP.format(flows=1)), engine="kernel")


def test_the_error_of_a_killed_guest_names_the_signal(some_guest: Path) -> None:
    (some_guest / guests.KERNEL).write_text("#!/bin/sh\necho its last line\nkill -SEGV $$\n")
    with pytest.raises(RunError, match=r"no outcome.json.*ended by SIGSEGV.*its last line"):
        forebay.run(scenario(FTP.format(flows=1)), engine="kernel")


def test_a_guest_without_enough_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch, some_guest: Path, tmp_path: Path
) -> None:
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(64 << 20, 64 << 20, 0))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(RunError, match=f"{tmp_path} has 0 MiB free, and a guest takes up to 256"):
        forebay.run(scenario(FTP.format(flows=1)), engine="kernel")


def test_folders_of_killed_runs_are_removed() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = kernel_engine._memory() / f"{own_prefix(gone.pid)}x"
    left.mkdir()
    kernel_engine.tidy()
    assert not left.exists()


def test_folders_of_others_are_not_removed(tmp_path: Path) -> None:
    """Others may write where temporary folders are, and name theirs as they like."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").write_text("")
    place = tmp_path / "place"
    place.mkdir()
    (place / f"{own_prefix(gone.pid)}link").symlink_to(target)
    (place / f"{own_prefix(gone.pid)}file").write_text("")
    (place / f"{own_prefix(os.getpid())}alive").mkdir()
    (place / f"{own_prefix(gone.pid)}mine").mkdir()
    if os.geteuid() == 0:
        other = place / f"{own_prefix(gone.pid)}other"
        other.mkdir()
        os.chown(other, 65534, 65534)
    with temporary_folder(place) as folder:
        left = {path.name.rpartition("-")[2] for path in place.iterdir()} - {Path(folder).name}
        left -= {Path(folder).name.rpartition("-")[2]}
        wanted = {"link", "file", "alive"} | ({"other"} if os.geteuid() == 0 else set())
        assert left == wanted
    assert (target / "file").exists()


def test_guests_are_listed_and_removed(some_guest: Path) -> None:
    (guest,) = guests.installed()
    assert (guest.release, guest.hz) == ("9.9", 1000)
    assert guests.chosen("0123") == guest
    with pytest.raises(ScenarioError, match=r'GUEST: "9" is unknown; .* 0123456789ab'):
        guests.chosen("9")
    guests.remove(guest)
    assert not some_guest.exists()
    assert guests.installed() == []


def test_a_missing_compiler_is_reported_with_the_packages_to_install(
    monkeypatch: pytest.MonkeyPatch, some_guest: Path
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ScenarioError, match=r"apt-get install gcc make flex bison bc"):
        guests.setup(guests.KernelSource())


def test_a_folder_without_a_kernel_tree_is_refused(tmp_path: Path, some_guest: Path) -> None:
    if any(shutil.which(program) is None for program in guests.PROGRAMS):
        pytest.skip("programs of a build are not here: flex, bison, bc")
    with pytest.raises(ScenarioError, match="it has no Makefile; expected a source tree of Linux"):
        guests.setup(guests.KernelSource(tree=tmp_path))


def test_a_tree_is_adapted_or_refused(tmp_path: Path) -> None:
    (tmp_path / "arch/um/os-Linux").mkdir(parents=True)
    config = tmp_path / "arch/um/Kconfig"
    source = tmp_path / "arch/um/os-Linux/util.c"
    config.write_text("config HZ\n\tint\n\tdefault 100\n\nconfig OTHER\n\tdefault 100\n")
    source.write_text(f"ssize_t os_getrandom(void *buf)\n{{\n{guests.RANDOM_BEFORE}}}\n")
    # Without the place for several calls it is a guest, too, and known as such.
    assert not guests._adapt(tmp_path, 1000)
    assert config.read_text().count("default 1000\n") == 1
    assert source.read_text().index("FOREBAY_SEED") < source.read_text().index("return getrandom")
    calls = tmp_path / "arch/um/kernel/skas/syscall.c"
    calls.parent.mkdir(parents=True)
    whole = f"{guests.CALLS_BEFORE}{{\n{guests.NUMBER_BEFORE}\tmore();\n}}\n"
    for text, taken in ((guests.CALLS_BEFORE, False), (whole, True)):
        calls.write_text(text)
        config.write_text("config HZ\n\tint\n\tdefault 100\n")
        source.write_text(f"{{\n{guests.RANDOM_BEFORE}}}\n")
        assert guests._adapt(tmp_path, 1000) == taken
        assert ("forebay_calls" in calls.read_text()) == taken
    handler = calls.read_text().partition(guests.CALLS_BEFORE)[2]
    assert handler == f"{{\n{guests.NUMBER_BEFORE}{guests.NUMBER_AFTER}\tmore();\n}}\n"
    source.write_text("another\n")
    with pytest.raises(guests.SetupError, match=r"util.c of this source is not as it was known"):
        guests._adapt(tmp_path, 100)


def test_a_guest_is_known_by_all_that_it_is_built_from() -> None:
    digests = {
        guests._digest(version, hz) for version in ("linux-source-1=1", "2") for hz in (100, 1000)
    }
    assert len(digests) == 4


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_a_guest_stays_on_an_idle_processor() -> None:
    sleep, spin = ["sleep", "30"], [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(words) for words in (sleep, spin, spin)]
    idle, busy, other = (process.pid for process in processes)
    try:
        first, second = kernel_engine.Placement(idle), kernel_engine.Placement(busy)
        places = [os.sched_getaffinity(pid) for pid in (idle, busy)]
        assert [len(place) for place in places] == [1, 1]
        assert places[0] != places[1]
        # Nobody sets it free of another but itself.
        os.sched_setaffinity(other, places[1])
        second.watch(time.monotonic())
        time.sleep(3 * kernel_engine.INTERVAL_S)
        second.watch(time.monotonic())
        assert os.sched_getaffinity(busy) != places[1]
        assert os.sched_getaffinity(idle) == places[0]
        second.end()
        first.end()
        assert not +kernel_engine._taken
    finally:
        for process in processes:
            process.kill()
            process.wait()


def mean(result: forebay.Result, metric: str) -> float:
    return float(result.metrics[metric].to_numpy().mean())


@needs_guest
@pytest.mark.parametrize(
    ("law", "names"),
    [
        ('kind = "codel"', ["count", "signalling", "delay"]),
        ('kind = "pie"', ["p", "delay"]),
        ('kind = "pi2"\nqueue = "dualpi2"', ["p_root"]),
    ],
)
def test_samples_have_the_state_that_the_kernels_qdisc_reports(law: str, names: list[str]) -> None:
    text = scenario(FTP.format(flows=4), law=law).replace('"150p"', '"150p"\necn = true')
    samples = forebay.run(text, engine="kernel").samples
    for name in names:
        values = samples[name].to_numpy()
        assert np.isfinite(values).all(), name
        assert values.max() > 0, name
    # TCP fills the queue, and a probability of four flows is small.
    for name in {"p", "p_root"} & set(names):
        assert samples.filter(pl.col("time_s") > 4)[name].to_numpy().mean() < 0.2


@needs_guest
def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    text = scenario(FTP.format(flows=5), law='kind = "pie"')
    first, second = (forebay.run(text, engine="kernel") for _ in range(2))
    assert first.metrics.equals(second.metrics)
    assert first.samples.equals(second.samples)
    assert first.delays.equals(second.delays)
    both = forebay.run(text, seeds=2, engine="kernel")
    one, other = both.metrics["queue_mean_pkts"].to_list()
    assert one == first.metrics["queue_mean_pkts"][0]
    assert one != other


@needs_guest
def test_a_guest_has_as_many_flows_as_it_allows() -> None:
    """Linux lets a process open 1024 files, fewer than the sockets of these flows."""
    text = scenario(FTP.format(flows=2000), law='kind = "droptail"', duration=8)
    # Room for the first window of each.
    overrides = {"bottleneck.rate": "100Mbit/s", "bottleneck.buffer": "20000p"}
    result = forebay.run(text, overrides=overrides, engine="kernel")
    sent = result.runs[0].flow_goodput_bps
    assert len(sent) == 2000
    assert sum(it > 0 for it in sent) > 1024


@needs_guest
@pytest.mark.parametrize("law", ['kind = "pi"\ntarget = "40p"', 'kind = "codel"'])
def test_calls_at_one_time_give_the_packets_of_calls_one_by_one(
    law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Endless flows, and connections that come and go."""
    mice = FTP.format(flows=4).replace('"ftp"', '"mice"').split("start")[0]
    text = scenario(FTP.format(flows=3), mice, law=law)
    guest = guests.chosen()
    if not guest.several_calls:
        pytest.skip("this guest's kernel takes no several calls")
    together = forebay.run(text, engine="kernel")
    one_by_one = replace(guest, several_calls=False)
    monkeypatch.setattr(guests, "chosen", lambda: one_by_one)
    before = forebay.run(text, engine="kernel")
    assert together.samples.equals(before.samples)
    assert together.delays.equals(before.delays)
    assert together.goodput.equals(before.goodput)


@needs_guest
@pytest.mark.parametrize("law", ['kind = "pi"\ntarget = "40p"', 'kind = "codel"'])
def test_simulator_and_kernel_agree(law: str) -> None:
    """A law of ours in the guest, and one that the kernel has."""
    linux = 'initial_window = "10p"\ndelayed_ack = true\nack_delay = "40ms"\nquick_acks = 16\n'
    more = f'{linux}header = "66B"\ngso = false\n'
    text = scenario(FTP.format(flows=10) + more, law=law, duration=40)
    kernel, packets = (forebay.run(text, engine=engine) for engine in ("kernel", "packets"))
    assert mean(kernel, "delay_mean_s") == pytest.approx(
        mean(packets, "delay_mean_s"), rel=0.15, abs=1e-3
    )
    assert mean(kernel, "drop_rate") == pytest.approx(mean(packets, "drop_rate"), rel=0.25)
    assert mean(kernel, "utilisation") == pytest.approx(mean(packets, "utilisation"), abs=0.02)


@needs_guest
def test_a_full_fifo_holds_its_buffer_exactly() -> None:
    """150 packets at 15 Mbit/s wait 120 ms, as the kernel's clock has it to the nanosecond."""
    flood = (
        '[[traffic]]\nkind = "cbr"\nflows = 1\nrate = "20Mbit/s"\npacket = "1500B"\nrtt = "40ms"\n'
    )
    result = forebay.run(scenario(flood, law='kind = "droptail"'), engine="kernel")
    (longest,) = result.delays.select(pl.max("delay_s")).row(0)
    # The histogram has three digits.
    assert longest == pytest.approx(0.120, rel=2e-3)
    assert mean(result, "drop_rate") == pytest.approx(0.25, abs=2e-3)
    assert mean(result, "utilisation") == pytest.approx(1.0, abs=1e-3)


@needs_guest
def test_applications_run_on_the_kernels_sockets() -> None:
    web = (
        '[[traffic]]\nkind = "web"\ntcp = "linux-cubic"\nflows = 5\nrequests = 4\nshape = 1.2\n'
        'scale = "8kB"\npacket = "1500B"\nrtt = "40ms"\n'
    )
    voice = '[[traffic]]\nkind = "voice"\nflows = 3\nrtt = "40ms"\n'
    result = forebay.run(scenario(web, voice, FTP.format(flows=2)), engine="kernel")
    assert result.transfers.height > 50
    assert mean(result, "flow_completion_p50_s") > 0.04
    assert mean(result, "voice_delay_s") == pytest.approx(0.02, abs=0.015)
    assert result.traffic["label"].n_unique() == 3
    assert (result.traffic["goodput_bps"] > 0).all()


@needs_guest
def test_a_rate_that_changes_is_followed() -> None:
    change = '[[at]]\ntime = "8s"\nset = { "bottleneck.rate" = "5Mbit/s" }\n'
    for law in ('kind = "pi"\ntarget = "40p"', 'kind = "codel"'):
        text = scenario(FTP.format(flows=5), change, law=law)
        samples = forebay.run(text, engine="kernel").samples
        late = samples.filter(pl.col("time_s") > 10)
        rate_bps = 8 * late["departed_bytes"].sum() / 2
        assert rate_bps == pytest.approx(5e6, rel=0.05), law


@needs_guest
def test_a_delay_that_changes_is_followed() -> None:
    """One flow without a queue: a window of data in each round trip, which doubles."""
    change = '[[at]]\ntime = "8s"\nset = { "bottleneck.delay" = "41ms" }\n'
    window = FTP.format(flows=1) + 'window = "20p"\n'
    for law in ('kind = "pi"\ntarget = "40p"', 'kind = "codel"'):
        samples = forebay.run(scenario(window, change, law=law), engine="kernel").samples
        early, late = (
            int(samples.filter(pl.col("time_s").is_between(*span))["departed_bytes"].sum())
            for span in ((5, 7), (10, 12))
        )
        # From 40 ms to 120 ms.
        assert early / late == pytest.approx(3, rel=0.1), law


@needs_guest
def test_a_buffer_that_changes_is_followed() -> None:
    flood = (
        '[[traffic]]\nkind = "cbr"\nflows = 1\nrate = "20Mbit/s"\npacket = "1500B"\nrtt = "40ms"\n'
    )
    change = '[[at]]\ntime = "8s"\nset = { "bottleneck.buffer" = "50p" }\n'
    for law in ('kind = "droptail"', 'kind = "pi"\ntarget = "140p"\nqueue = "fq"'):
        samples = forebay.run(scenario(flood, change, law=law), engine="kernel").samples
        queue = samples.filter(pl.col("time_s") > 10)["queue_pkts"]
        assert 35 <= queue.max() <= 50, law  # type: ignore[operator]
        if "droptail" in law:
            before = samples.filter(pl.col("time_s").is_between(5, 8))["queue_pkts"]
            assert before.min() >= 148  # type: ignore[operator]


@needs_guest
def test_packets_come_as_they_came_once(tmp_path: Path) -> None:
    """Sizes, flows, times and ECN of a list; a burst waits as long as the link takes."""
    lines = ["time_s,size_bytes,flow,ecn"]
    # Each 100 ms ten packets of 1000 bytes from two flows at once: the last waits for nine.
    lines += [f"{0.1 * i:.1f},1000,{'ab'[n % 2]},1" for i in range(120) for n in range(10)]
    (tmp_path / "list.csv").write_text("\n".join(lines) + "\n")
    traffic = '[[traffic]]\nkind = "arrivals"\nfile = "list.csv"\n'
    file = tmp_path / "came.toml"
    for law in ('kind = "droptail"', 'kind = "pi"\ntarget = "40p"\nqueue = "fq"'):
        file.write_text(scenario(traffic, law=law, more="").replace("15Mbit/s", "8Mbit/s"))
        kernel, packets = (forebay.run(file, engine=engine) for engine in ("kernel", "packets"))
        metrics = ["utilisation", "drop_rate", "goodput_bps"]
        # After a pause a shaper of the kernel's lets two packets go at once.
        if "queue" in law:
            assert mean(kernel, "delay_mean_s") == pytest.approx(0.0045, rel=2e-3), law
            metrics += ["delay_mean_s"]
        for metric in metrics:
            wanted = pytest.approx(mean(packets, metric), rel=5e-3, abs=1e-9)
            assert mean(kernel, metric) == wanted, (law, metric)
        assert kernel.flows["goodput_bps"].to_list() == pytest.approx(
            packets.flows["goodput_bps"].to_list(), rel=5e-3
        )


@needs_guest
def test_offloads_make_bursts_and_the_queue_sees_packets() -> None:
    """A window that comes in bursts waits longer, and no packet is larger than the link's."""
    flow = FTP.format(flows=1) + 'window = "40p"\n'
    text = scenario(flow, law='kind = "droptail"')
    off = forebay.run(text, engine="kernel")
    on = forebay.run(text, overrides={"kernel.offloads": "true"}, engine="kernel")
    for result in (off, on):
        # But for packets in the queue at the end, and of the handshake.
        samples = result.samples
        sizes = int(samples["departed_bytes"].sum()) / int(samples["arrivals"].sum())
        assert sizes == pytest.approx(1500, rel=0.01)
    assert not on.samples.equals(off.samples)
    assert mean(on, "goodput_bps") == pytest.approx(mean(off, "goodput_bps"), rel=0.05)


@needs_guest
def test_segments_that_nothing_cuts_come_to_the_queue_whole() -> None:
    """They count as the packets that they are on the wire."""
    text = scenario(FTP.format(flows=4), law='kind = "codel"')
    whole = forebay.run(text, overrides={"kernel.offloads": '"all"'}, engine="kernel")
    cut = forebay.run(text, overrides={"kernel.offloads": "true"}, engine="kernel")
    samples = whole.samples
    assert int(samples["departed_bytes"].sum()) / int(samples["arrivals"].sum()) > 2000
    for metric in ("utilisation", "goodput_bps"):
        assert mean(whole, metric) == pytest.approx(mean(cut, metric), rel=0.01)


@needs_guest
def test_a_full_fifo_is_the_same_under_either_shaper() -> None:
    """htb lets a packet go where its transmission begins, and tbf keeps it."""
    flood = (
        '[[traffic]]\nkind = "cbr"\nflows = 1\nrate = "20Mbit/s"\npacket = "1500B"\nrtt = "40ms"\n'
    )
    text = scenario(flood, law='kind = "droptail"')
    change = '[[at]]\ntime = "8s"\nset = { "bottleneck.rate" = "5Mbit/s" }\n'
    for more in ("", change):
        tbf, htb = (
            forebay.run(text + more, overrides={"kernel.shaper": shaper}, engine="kernel")
            for shaper in ('"tbf"', '"htb"')
        )
        assert mean(htb, "queue_mean_pkts") == pytest.approx(mean(tbf, "queue_mean_pkts"), abs=0.1)
        assert mean(htb, "delay_mean_s") == pytest.approx(mean(tbf, "delay_mean_s"), rel=5e-3)
        assert mean(htb, "drop_rate") == pytest.approx(mean(tbf, "drop_rate"), abs=2e-3)


@needs_guest
def test_small_datagrams_are_sent_as_they_are() -> None:
    """IPv4 asks for no more of a packet than of a device."""
    small = (
        '[[traffic]]\nkind = "cbr"\nflows = 1\nrate = "80kbit/s"\npacket = "100B"\nrtt = "40ms"\n'
    )
    result = forebay.run(scenario(small, law='kind = "droptail"'), engine="kernel")
    samples = result.samples
    assert int(samples["departed_bytes"].sum()) == 100 * int(samples["arrivals"].sum())


@needs_guest
def test_a_program_cannot_change_the_guest_of_other_runs(tmp_path: Path) -> None:
    program = PROGRAM + 'client = "rm -rf /run/tools/*; ls /run/tools | wc -l"\nstart = "1s"\n'
    file = tmp_path / "rm.toml"
    file.write_text(scenario(program, FTP.format(flows=1)))
    before = sorted(guests.chosen().tools.rglob("*"))
    forebay.run(file, engine="kernel")
    assert sorted(guests.chosen().tools.rglob("*")) == before


#: What a program tries, as root in its guest, to write to the host. Each way ends in a file of the
#: host's folder TARGET, which the guest sees read-only.
ESCAPES = r"""
umask 0
try() { "$@" >/dev/null 2>&1; }
# The file system of the host once more, and the one that is there made writable.
mkdir -p /run/host; try mount -t hostfs none /run/host -o /; try touch /run/host/TARGET/mount
try mount -o remount,rw /; try mount --bind -o rw TARGET /run/host; try touch TARGET/remount
try unshare --user --map-root-user --mount sh -c \
  "mount -t hostfs none /run/host -o / && touch /run/host/TARGET/user"
# Through the first process, which has all capabilities, and out of its root.
first=/proc/1/root; try touch "$first"/TARGET/init
try nsenter --target 1 --mount touch TARGET/nsenter
try nsenter --target 1 --mount mount -t hostfs none /run/host -o /
# Helpers that the kernel starts with all capabilities.
printf '#!/bin/sh\nmount -t hostfs none /run/host -o /\n' > /run/helper
echo 'touch /run/host/TARGET/helper' >> /run/helper
chmod 755 /run/helper
for file in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe \
  /proc/sys/kernel/hotplug /sys/kernel/uevent_helper; do
  try sh -c "echo '|/run/helper' > $file"; try sh -c "echo /run/helper > $file"
done
ulimit -c unlimited; sh -c 'kill -SEGV $$'; try ip link add name x type forebay
# The folder of the run, whose files the host reads again.
try touch /run/forebay/planted; try ln -s TARGET/planted /run/forebay/program-9
# A device of the host, and the guest's memory.
try mknod /run/disk b 98 0; try dd if=/dev/zero of=/run/disk count=1; try touch TARGET/plain
sleep 1
grep CapEff /proc/self/status; ls /run/forebay; ls /run/host
cat /proc/sys/net/ipv4/tcp_ecn >/dev/null && echo 1 > /proc/sys/net/ipv4/tcp_ecn && echo settings
ip link show lo >/dev/null && echo links
exit 0
"""


@needs_guest
def test_a_program_that_is_root_in_its_guest_writes_nothing_to_the_host(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o777)
    (tmp_path / "escape.sh").write_text(ESCAPES.replace("TARGET", str(target)))
    program = PROGRAM + 'client = "sh escape.sh"\nstart = "0s"\n'
    file = tmp_path / "escape.toml"
    file.write_text(scenario(program, FTP.format(flows=1), duration=8))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path != file}
    result = forebay.run(file, engine="kernel")
    result.report(tmp_path.parent / f"{tmp_path.name}-out")
    (said,) = (tmp_path.parent / f"{tmp_path.name}-out/programs").iterdir()
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path != file}
    assert after == before, said.read_text()
    lines = said.read_text().splitlines()
    # Network administration stays: CAP_NET_ADMIN is bit 12; CAP_SYS_ADMIN is bit 21.
    (kept,) = (int(line.split()[1], 16) for line in lines if line.startswith("CapEff"))
    assert kept >> 12 & 1 and not kept >> 21 & 1
    # What it planted where the run's folder is lies in the guest's memory, beside nothing else; the
    # file system of the host was never mounted again.
    said_by_shell = ("CapEff", "Segmentation fault")
    rest = [line for line in lines if not line.startswith(said_by_shell)]
    assert rest == ["planted", "program-9", "settings", "links"]


@needs_guest
def test_settings_of_the_hosts_are_followed() -> None:
    text = scenario(FTP.format(flows=1), law='kind = "droptail"')
    # 20 kB in 42 ms.
    small = {"kernel.sysctls": '{ "net.ipv4.tcp_wmem" = "4096 20000 20000" }'}
    free = forebay.run(text, engine="kernel")
    held = forebay.run(text, overrides=small, engine="kernel")
    assert mean(held, "goodput_bps") < 0.5 * mean(free, "goodput_bps")
    vegas = forebay.run(text, overrides={"kernel.tcp": "vegas"}, engine="kernel")
    # It slows down when packets wait.
    assert mean(vegas, "queue_mean_pkts") < 0.5 * mean(free, "queue_mean_pkts")
    for key, value, line in [
        (
            "kernel.sysctls",
            '{ "net.ipv4.no_such" = 1 }',
            r"no_such: unknown sysctl; expected a sysctl ",
        ),
        (
            "kernel.sysctls",
            '{ "net.ipv4.tcp_ecn" = "x" }',
            r"tcp_ecn: .x. is not valid; expected a value",
        ),
        (
            "kernel.tcp",
            "bbr9",
            r'kernel.tcp: "bbr9" is not valid; expected one of .*cubic.*--source DIR',
        ),
    ]:
        with pytest.raises(RunError, match=line):
            forebay.run(text, overrides={key: value}, engine="kernel")


@needs_guest
def test_output_of_programs_and_captures_are_in_the_result(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("of a file\n")
    (tmp_path / "hidden").write_text("")
    client = "cat words; ls; echo bad >&2; exit 7"
    program = PROGRAM + f'client = "{client}"\nfiles = "words"\n'
    file = tmp_path / "said.toml"
    kept = "[kernel]\npcap = true\n"
    file.write_text(scenario(program, FTP.format(flows=1), kept, duration=6))
    result = forebay.run(file, engine="kernel")
    result.report(tmp_path / "out")
    told = json.loads((tmp_path / "out/metrics.json").read_text())["programs"]
    (of_client,) = [{**one, "law": "", "point": ""} for one in told]
    assert (of_client["status"], of_client["end"], of_client["seed"]) == (7, "client", 1)
    said = (tmp_path / "out" / of_client["output"]).read_text()
    assert said == "of a file\nwords\nbad\n"
    (capture,) = (tmp_path / "out/pcap").iterdir()
    assert capture.name == "codel-1.pcapng"
    again = tmp_path / "again.toml"
    again.write_text(
        scenario(f'[[traffic]]\nkind = "arrivals"\nfile = "out/pcap/{capture.name}"\n', duration=6)
    )
    came = forebay.run(again).samples["arrivals"].sum()
    # But for packets in the queue at the end.
    assert came == pytest.approx(result.samples["arrivals"].sum(), abs=160)


@needs_guest
@pytest.mark.parametrize("asks", [True, False])
def test_hosts_of_programs_ask_for_ecn_where_the_scenario_says_so(
    asks: bool, tmp_path: Path
) -> None:
    """Either end may be the one that opens the connection."""
    look = "cat /proc/sys/net/ipv4/tcp_ecn"
    program = f'client = "{look}"\nserver = "{look}"\necn = {str(asks).lower()}\n'
    file = tmp_path / "ecn.toml"
    file.write_text(scenario(PROGRAM + program, duration=6))
    forebay.run(file, engine="kernel").report(tmp_path / "out")
    told = json.loads((tmp_path / "out/metrics.json").read_text())["programs"]
    said = [(tmp_path / "out" / one["output"]).read_text() for one in told]
    assert said == [f"{int(asks)}\n"] * 2


@needs_guest
def test_a_flow_keeps_its_hash_unless_the_scenario_says_otherwise(tmp_path: Path) -> None:
    look = 'client = "cat /proc/sys/net/core/txrehash"\n'
    for kernel, told in [("", "0\n"), ('[kernel]\nsysctls = { "net.core.txrehash" = 1 }\n', "1\n")]:
        file = tmp_path / "hash.toml"
        file.write_text(scenario(PROGRAM + look, kernel, duration=6))
        out = tmp_path / f"out{len(kernel)}"
        forebay.run(file, engine="kernel").report(out)
        (one,) = json.loads((out / "metrics.json").read_text())["programs"]
        assert (out / one["output"]).read_text() == told


@needs_guest
def test_programs_run_as_they_are(tmp_path: Path) -> None:
    python = sys.executable
    (tmp_path / "page").write_bytes(os.urandom(3_000_000))
    fetch = (
        "import os, time, urllib.request as u; t = time.time();"
        "n = len(u.urlopen('http://' + os.environ['FOREBAY_SERVER'] + ':8000/page').read());"
        "assert n == 3000000; print(n, time.time() - t)"
    )
    (tmp_path / "fetch.py").write_text(fetch)
    program = (
        f'[[traffic]]\nkind = "program"\nflows = 1\nclient = "{python} fetch.py"\n'
        f'server = "{python} -m http.server 8000"\npacket = "1500B"\nrtt = "40ms"\nstart = "5s"\n'
    )
    file = tmp_path / "web.toml"
    file.write_text(scenario(program, FTP.format(flows=1)))
    result = forebay.run(file, engine="kernel")
    # 3 MB within the window of 8 s, and what the protocols say besides.
    got_bps = result.flows.filter(pl.col("traffic") == 0)["goodput_bps"].sum()
    assert got_bps == pytest.approx(3e6, rel=0.03)
    again = forebay.run(file, engine="kernel")
    assert np.array_equal(result.samples["queue_pkts"], again.samples["queue_pkts"])


@needs_guest
def test_a_program_that_is_not_there_is_a_line(tmp_path: Path) -> None:
    program = PROGRAM + 'client = "./nowhere"\n'
    file = tmp_path / "none.toml"
    file.write_text(scenario(program, FTP.format(flows=1)))
    with pytest.raises(RunError, match=r"`./nowhere` of client ended with status 127.*not found"):
        forebay.run(file, engine="kernel")


@needs_guest
@pytest.mark.parametrize("looks", ["time.time() < 9e9", "True"])
def test_a_program_that_never_sleeps_fails_the_run(
    looks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_engine, "STILL_S", 3.0)
    (tmp_path / "spin.py").write_text(f"import time\nwhile {looks}:\n    pass\n")
    program = PROGRAM + f'client = "{sys.executable} spin.py"\nstart = "1s"\n'
    file = tmp_path / "spin.toml"
    file.write_text(scenario(program, FTP.format(flows=1)))
    with pytest.raises(RunError, match=r"clock stood still for 3 s .* polls the clock"):
        forebay.run(file, engine="kernel")
    assert not list(kernel_engine._memory().glob(f"{own_prefix(os.getpid())}*"))


def test_programs_need_an_engine_that_runs_them() -> None:
    program = PROGRAM + 'client = "true"\n'
    with pytest.raises(
        ScenarioError, match=r'kind: "program" cannot be simulated; expected .*--engine kernel'
    ):
        forebay.run(scenario(program))


@needs_guest
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_is_ended(how: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "long.toml"
    file.write_text(scenario(FTP.format(flows=20), duration=600))
    words = [sys.executable, "-m", "forebay", "run", str(file), "--engine", "kernel"]
    process = subprocess.Popen(
        [*words, "--out", str(tmp_path / "out")],
        stderr=(tmp_path / "said").open("wb"),
        stdout=subprocess.DEVNULL,
        env=os.environ | {"FOREBAY_STORE": "off"},
    )
    folders = f"{own_prefix(process.pid)}*"
    try:
        _until(lambda: bool(list(kernel_engine._memory().glob(f"{folders}/progress"))))
        assert process.poll() is None, (tmp_path / "said").read_text()
        process.send_signal(how)
        process.wait(30)
    finally:
        process.kill()
    _until(lambda: not _guests_of(process.pid))
    kernel_engine.tidy()
    assert not list(kernel_engine._memory().glob(folders))


def _until(condition: object, patience_s: float = 60) -> None:
    assert callable(condition)
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def _guests_of(pid: int) -> list[str]:
    """Processes with a folder of this process's runs in their command line."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes()
        except OSError:
            continue
        if f"{own_prefix(pid)}".encode() in words:
            found.append(file.parent.name)
    return found
