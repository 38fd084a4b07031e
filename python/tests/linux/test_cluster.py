"""Who can use the cluster that a study runs on: only the process that started it, or those who
have its certificate."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from studies import environment

pytest.importorskip("distributed")
pytest.importorskip("cryptography")

pytestmark = pytest.mark.linux

STUDY = """
duration = "2s"
measure = ["1s", "2s"]
seeds = 2

[bottleneck]
rate = "10Mbit/s"
delay = "10ms"
buffer = "100p"

[[traffic]]
kind = "ftp"
flows = 2
rtt = "20ms"

[[law]]
kind = "pi2"
"""

#: What an intruder does: connects like a client, and has the scheduler run a function.
INTRUDER = """
import asyncio, os, sys
from distributed import Client
try:
    with Client(sys.argv[1], timeout="3s") as client:
        print("ran as", client.submit(os.getuid).result(timeout=5))
except Exception as error:
    print("refused:", type(error).__name__)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, int]]:
    """Address of the scheduler of a cluster of this machine, and the process that started it."""
    script = (
        "import sys\n"
        "from forebay.campaign.cluster import cluster\n"
        "if __name__ == '__main__':\n"
        "    with cluster('dask', 2) as engine:\n"
        "        assert engine.client.submit(int, '7').result() == 7\n"
        "        print(engine.address, flush=True)\n"
        "        sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    address = process.stdout.readline().strip()
    assert address, "the cluster does not start"
    yield address, process.pid
    process.stdin.close()
    assert process.wait(60) == 0


@pytest.fixture
def scheduler(cluster: tuple[str, int]) -> str:
    return cluster[0]


def _descendants(pid: int) -> set[int]:
    """The process and everything below it."""
    pairs = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    parents = [tuple(map(int, line.split())) for line in pairs.splitlines()]
    tree = {pid}
    while more := {child for child, parent in parents if parent in tree} - tree:
        tree |= more
    return tree


def _listeners(ancestor: int) -> list[tuple[str, int]]:
    """Addresses on which a process or one below it listens, IPv6 as its raw hexadecimal text."""
    inodes = set()
    for pid in _descendants(ancestor):
        try:
            links = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                address, _, port = words[1].partition(":")
                listening.append((address, int(port, 16)))
    return listening


def test_every_port_of_the_cluster_is_on_loopback_and_asks_for_a_certificate(
    cluster: tuple[str, int],
) -> None:
    scheduler, process = cluster
    assert scheduler.startswith("tls://127.0.0.1:")
    listening = _listeners(process)
    # The scheduler, and of each worker its own and its nanny's.
    assert len(listening) == 5
    assert {address for address, _ in listening} == {"0100007F"}
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for _, port in listening:
        plain = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with pytest.raises((OSError, http.client.HTTPException)):
            plain.request("GET", "/info/main/workers.html")
            plain.getresponse()
        # TLS 1.3 refuses the client after its handshake: with the first bytes that are read.
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            socket.create_connection(("127.0.0.1", port), timeout=5) as raw,
            context.wrap_socket(raw) as secure,
        ):
            while secure.recv(1 << 16):
                pass
            raise ConnectionResetError


@pytest.mark.parametrize("scheme", ["tls", "tcp"])
@pytest.mark.parametrize("user", ["same", "other"])
def test_a_client_without_the_certificate_is_refused(
    scheduler: str, scheme: str, user: str, tmp_path: Path
) -> None:
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if user == "other":
        if os.geteuid() != 0:
            pytest.skip("only root can become another user")
        tmp_path.chmod(0o755)
        probe = [*other, sys.executable, "-c", "import distributed"]
        if subprocess.run(probe, capture_output=True, check=False, cwd="/").returncode:
            pytest.skip("another user cannot read this Python")
    address = scheduler.replace("tls", scheme)
    done = subprocess.run(
        [*(other if user == "other" else []), sys.executable, "-c", INTRUDER, address],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=60,
        env={**environment(), "HOME": "/"},
    )
    assert done.stdout.startswith("refused: "), done.stdout + done.stderr


def test_a_scheduler_with_tls_takes_the_certificate_of_dasks_configuration(
    tmp_path: Path,
) -> None:
    (tmp_path / "go.py").write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from distributed.security import Security\n"
        "from forebay.campaign.cluster import local_cluster\n"
        "if __name__ == '__main__':\n"
        "    with local_cluster(1) as started:\n"
        "        security = started.security\n"
        "        Path('ca.pem').write_text(security.tls_ca_file)\n"
        "        Path('key.pem').write_text(security.tls_client_key)\n"
        "        print(started.scheduler_address, flush=True)\n"
        "        sys.stdin.read()\n"
    )
    (tmp_path / "s.toml").write_text(STUDY)
    process = subprocess.Popen(
        [sys.executable, "go.py"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        command = [sys.executable, "-m", "forebay", "study", "s.toml", "--on", address]
        command += ["--store", "store", "--out", "out", "--no-report"]
        prefix = "DASK_DISTRIBUTED__COMM__TLS__"
        mine = {
            f"{prefix}CA_FILE": "ca.pem",
            f"{prefix}CLIENT__CERT": "ca.pem",
            f"{prefix}CLIENT__KEY": "key.pem",
        }
        refused, done = (
            subprocess.run(
                command,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
                env={**environment(), **more},
            )
            for more in ({}, mine)
        )
    finally:
        process.stdin.close()
        process.wait(60)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1, refused.stderr
    assert "no Dask scheduler answers" in refused.stderr
    assert "distributed.comm.tls" in refused.stderr
    assert done.returncode == 0, done.stderr
    assert pl.read_parquet(tmp_path / "out/frame.parquet").height == 2
