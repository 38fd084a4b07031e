"""A Dask cluster of this machine that only the process which started it can use.

Dask's scheduler and workers run whatever a client sends them. On a machine with several users
they therefore speak TLS with a certificate that is made for one cluster and never leaves its
processes' memory, listen on loopback alone, and serve no web pages.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Nanny, Scheduler, SpecCluster, Worker
from distributed.security import Security
from distributed.system import MEMORY_LIMIT

from forebay._base.temporary import temporary_folder

HOST, PROTOCOL = "127.0.0.1", "tls://"


class LocalScheduler(Scheduler):
    """A scheduler without the HTTP server, which knows no certificates."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Open no port for web pages: Dask opens one even if the dashboard is switched off."""


class LocalWorker(Worker):
    """A worker without the HTTP server, which knows no certificates."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Open no port for web pages: Dask opens one even if the dashboard is switched off."""


@contextmanager
def local_cluster(workers: int) -> Iterator[SpecCluster]:
    """Start a scheduler and `workers` workers of one thread each, and end them on exit.

    Raises
    ------
    ImportError
        If ``cryptography``, which makes the certificate, is not installed.
    OSError, RuntimeError
        If the processes do not start.
    """
    security = Security.temporary()  # type: ignore[no-untyped-call]
    # Workers unpickle what they have spilled to disk, so its folder is this user's alone.
    with temporary_folder() as folder:
        shared = {"host": HOST, "protocol": PROTOCOL, "security": security, "dashboard": False}
        worker = {
            "cls": Nanny,
            "options": {
                **shared,
                "worker_class": LocalWorker,
                "nthreads": 1,
                "memory_limit": MEMORY_LIMIT // workers,
                "local_directory": folder,
                "silence_logs": logging.CRITICAL,
            },
        }
        with SpecCluster(  # type: ignore[no-untyped-call]
            workers=dict.fromkeys(range(workers), worker),
            scheduler={"cls": LocalScheduler, "options": {**shared, "port": 0}},
            worker=worker,
            security=security,
            silence_logs=logging.CRITICAL,
        ) as started:
            yield started
