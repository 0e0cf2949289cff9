"""The parts of bench/serve that pull and lease."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from made_state import make_database
from made_web import make_web

from shepherd.client import Server
from shepherd.client import pull as pull_documents
from shepherd.serve import tokens
from shepherd.store.state.database import Database

ROOT = Path(__file__).resolve().parents[1]
TOKEN = "bench"
BODY = 12_000
RECEIVE = 1 << 20
ROUNDS = 12
CLIENTS = 3
LEASES = 20


def tell(what: str, figure: str, aim: str = "") -> None:
    print(f"{what:58} {figure:>28}   {aim}", flush=True)


@dataclass(frozen=True)
class Served:
    url: str
    pid: int

    def cpu_s(self) -> float:
        return cpu_s(self.pid)


def cpu_s(pid: int) -> float:
    """What a process has used up so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serving(home: Path, settings: str = "", more: Mapping[str, list[str]] | None = None) -> Iterator[Served]:
    """A server over home/db; `more` are the roles of clients whose names are their tokens."""
    (home / "cf").mkdir()
    (home / "cf" / "shepherd.toml").write_text(f"[serve]\nrequests_per_s = 0.0\n{settings}\n")
    clients = {TOKEN: ["admin"], **(more or {})}
    tokens.write(home / "cf" / "tokens", [tokens.make_client(name, roles, name) for name, roles in clients.items()])
    command = [str(ROOT / "bin" / "shep-serve"), "--db", str(home / "db"), "--cf", str(home / "cf"), "--listen", "127.0.0.1:0"]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        yield Served(process.stdout.readline().strip().rstrip("/"), process.pid)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


# --- pull -------------------------------------------------------------------------------------------------------


def pull(home: Path, args: argparse.Namespace) -> None:
    web = make_web(args.rows, 1, True)
    make_database(home / "db", web, 0, BODY)
    with serving(home) as served, Server(served.url, TOKEN) as server, server.leased("bench") as lease:
        said = server.count(lease)
        path = f"/v1/leases/{lease.name}/documents"
        size = drained(lambda: http_stream(served.url, path))[0]
        with (home / "same").open("wb") as same:  # the same bytes, to be copied without any of us
            receive(http_stream(served.url, path), same.write)
        rounds = [one_round(served, home / "same", path) for _ in range(ROUNDS)]
        client_s, client_cpu_s = map(min, zip(*(by_client(served) for _ in range(CLIENTS)), strict=True))
    mb = size / 1e6
    tell("documents; bytes of their stream", f"{said['items']:,}; {mb:,.1f} MB")
    bare = max(mb / one.bare_s for one in rounds)
    ours = max(mb / one.ours_s for one in rounds)
    cpu = min(one.ours_cpu_s for one in rounds)
    tell("copied by sendfile through a socket", f"{bare:,.0f} MB/s")
    tell("pulled by plain HTTP", f"{ours:,.0f} MB/s, {ours / bare:.0%}", "60 %")
    tell("server's CPU at 100 MB/s", f"{cpu / mb * 100:.1%} of a core", "5 %")
    tell("sender's CPU at 100 MB/s, bare", f"{min(one.bare_cpu_s for one in rounds) / mb * 100:.1%} of a core")
    tell("pulled by shepherd.client, every bucket checked", f"{mb / client_s:,.0f} MB/s")
    tell("documents in a CPU second of the client", f"{said['items'] / client_cpu_s:,.0f}")


@dataclass(frozen=True)
class Round:
    bare_s: float
    bare_cpu_s: float
    ours_s: float
    ours_cpu_s: float


def one_round(served: Served, same: Path, path: str) -> Round:
    bare_cpu: list[float] = []
    _size, bare_s = drained(lambda: bare_stream(same, bare_cpu))
    before = served.cpu_s()
    _size, ours_s = drained(lambda: http_stream(served.url, path))
    return Round(bare_s, bare_cpu[0], ours_s, served.cpu_s() - before)


def by_client(served: Served) -> tuple[float, float]:
    """Seconds, and those of our CPU."""
    began, began_cpu = time.perf_counter(), time.process_time()
    for _document in pull_documents(served.url, TOKEN):
        pass
    return time.perf_counter() - began, time.process_time() - began_cpu


def drained(stream: Callable[[], socket.socket]) -> tuple[int, float]:
    """How many bytes came, and in how many seconds."""
    began = time.perf_counter()
    size = receive(stream())
    return size, time.perf_counter() - began


def receive(connection: socket.socket, keep: Callable[[memoryview], object] | None = None) -> int:
    room, size = memoryview(bytearray(RECEIVE)), 0
    with connection:
        while count := connection.recv_into(room):
            size += count
            if keep is not None:
                keep(room[:count])
    return size


def http_stream(url: str, path: str, token: str = TOKEN) -> socket.socket:
    """A connection behind the headers of the answer."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 0))
    request = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
    connection.sendall(request.encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    assert b" 200 " in head, head
    return connection


def bare_stream(same: Path, cpu: list[float]) -> socket.socket:
    """The file by sendfile from another process, which tells its CPU at the end."""
    listening = socket.create_server(("127.0.0.1", 0))
    told, telling = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            connection, _ = listening.accept()
            with same.open("rb") as file:
                began = time.process_time()
                left, offset = os.fstat(file.fileno()).st_size, 0
                while left:
                    count = os.sendfile(connection.fileno(), file.fileno(), offset, left)
                    left, offset = left - count, offset + count
                connection.close()
                os.write(telling, str(time.process_time() - began).encode())
        finally:
            os._exit(0)
    os.close(telling)
    connection = socket.create_connection(listening.getsockname())
    listening.close()

    def wait() -> None:
        cpu.append(float(os.read(told, 100) or b"0"))
        os.close(told)
        os.waitpid(pid, 0)

    threading.Thread(target=wait).start()
    return connection


# --- leases -----------------------------------------------------------------------------------------------------


def lease(home: Path, args: argparse.Namespace) -> None:
    web = make_web(args.large, 1, False)
    make_database(home / "db", web, 0)
    rows = Database(home / "db").closed().index.rows
    with serving(home) as served, Server(served.url, TOKEN) as server:
        took, gave = [], []
        for _ in range(LEASES):
            began = time.perf_counter()
            one = server.lease("bench")
            took.append(time.perf_counter() - began)
            began = time.perf_counter()
            server.give_back(one)
            gave.append(time.perf_counter() - began)
    tell(f"a lease of {rows:,} URLs, best and worst of {LEASES}", f"{min(took) * 1e3:.1f}, {max(took) * 1e3:.1f} ms", "50 ms")
    tell("given back", f"{min(gave) * 1e3:.1f}, {max(gave) * 1e3:.1f} ms", "50 ms")
