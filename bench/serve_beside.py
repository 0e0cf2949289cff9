"""The part of bench/serve that gathers while others read: a reap of the same pages without readers and with eight, in turns.

The readers pull another database on the same machine, each limited by the server to 10 MB/s, again and again; a process of their
own throws the bytes away. Servers of the pages, the reap, the server and the readers share the cores.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from threading import Thread

import reap_ours
import reap_pages
import reap_servers
import serve_pull
from made_state import make_database
from made_web import make_web
from serve_pull import Served, cpu_s, tell

from shepherd.client import Server

READERS = 8
RATE = 10_000_000
RUNS = 11  # on a machine whose speed changes by the minute, neighbours in time are to be compared
HOSTS = 64


@dataclass(frozen=True)
class Run:
    pages_s: float
    cpu_s: float
    read_mb_s: float = 0.0
    server_cpu: float = 0.0  # of a core
    readers_cpu: float = 0.0


def beside(home: Path, args: argparse.Namespace) -> None:
    make_database(home / "db", make_web(args.rows, 1, True), 0, serve_pull.BODY)
    home.chmod(0o755)  # nginx's workers are another user's
    clients = {f"reader{n}": ["read"] for n in range(READERS)}
    with (
        reap_servers.nginx(home / "nginx", home / "www") as (port, _secure),
        serve_pull.serving(home, f"bytes_per_s = {RATE}", clients) as served,
    ):
        places = [f"127.1.0.{n + 1}:{port}" for n in range(HOSTS)]
        paths = reap_pages.write_site(home / "www", args.pages, places, "http")
        urls = [f"http://{place}{path}" for place in places for path in paths]
        alone, read = [], []
        for _ in range(RUNS):
            alone.append(gathered(home, urls))
            read.append(gathered_beside_readers(home, urls, served, list(clients)))
    before, after = max(one.pages_s for one in alone), max(one.pages_s for one in read)
    tell(f"gathered without readers, best of {RUNS}", f"{before:,.0f} pages/s, {min(one.cpu_s for one in alone):.2f} s CPU")
    tell(f"with {READERS} readers", f"{after:,.0f} pages/s, {min(one.cpu_s for one in read):.2f} s CPU")
    tell("slower by", f"{1 - after / before:.1%}", "10 %")
    pairs = [1 - one.pages_s / other.pages_s for one, other in zip(read, alone, strict=True)]
    tell("slower by, the middle of the pairs", f"{statistics.median(pairs):.1%}", "10 %")
    tell("the readers together", f"{max(one.read_mb_s for one in read):,.0f} MB/s")
    tell("the server's CPU meanwhile", f"{max(one.server_cpu for one in read):.1%} of a core")
    tell("the readers' CPU meanwhile", f"{max(one.readers_cpu for one in read):.1%} of a core")


def gathered(home: Path, urls: list[str]) -> Run:
    with tempfile.TemporaryDirectory(dir=home) as directory:
        done = reap_ours.reap(Path(directory) / "reap", urls)
    return Run(len(urls) / done.cost.wall_s, done.cost.cpu_s)


def gathered_beside_readers(home: Path, urls: list[str], served: Served, clients: list[str]) -> Run:
    with reading(served, clients) as (counts, pid):
        began, before = time.perf_counter(), (served.cpu_s(), cpu_s(pid))
        run = gathered(home, urls)
        seconds = time.perf_counter() - began
        server_s, readers_s = served.cpu_s() - before[0], cpu_s(pid) - before[1]
        return Run(run.pages_s, run.cpu_s, sum(counts) / 1e6 / seconds, server_s / seconds, readers_s / seconds)


@contextlib.contextmanager
def reading(served: Served, clients: list[str]) -> Iterator[tuple[list[int], int]]:
    """Readers for the time of the block: how many bytes each has had, and the process that they are."""
    counts = multiprocessing.Array("q", len(clients))
    over = multiprocessing.Event()
    process = multiprocessing.Process(target=_read_all, args=(served.url, clients, counts, over))
    process.start()
    time.sleep(1)  # until all of them have begun
    for n in range(len(clients)):
        counts[n] = 0
    try:
        assert process.pid is not None
        yield counts, process.pid  # type: ignore[misc]
    finally:
        over.set()
        process.join()


def _read_all(url: str, clients: list[str], counts: list[int], over: Event) -> None:
    threads = [Thread(target=_read, args=(url, name, counts, n, over)) for n, name in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _read(url: str, name: str, counts: list[int], place: int, over: Event) -> None:
    room = memoryview(bytearray(serve_pull.RECEIVE))
    with Server(url, name) as server, server.leased("bench") as lease:
        while not over.is_set():
            with serve_pull.http_stream(url, f"/v1/leases/{lease.name}/documents", name) as connection:
                while not over.is_set() and (count := connection.recv_into(room)):
                    counts[place] += count
