"""The servers of bench/reap, all on loopback: nginx with plain files, and a server of prepared answers that can be slow.

127.0.0.0/8 has as many addresses as anyone needs: a server that listens on all of them is a server of its own for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NGINX = """
daemon off; master_process on; worker_processes 2; pid {directory}/nginx.pid; error_log {directory}/error.log;
events {{ worker_connections 16384; }}
http {{
  types {{ text/html html; text/plain txt; }} default_type text/html;
  access_log off; gzip on; gzip_types text/plain; sendfile on; tcp_nodelay on;
  client_body_temp_path {directory}/a; proxy_temp_path {directory}/b; fastcgi_temp_path {directory}/c;
  uwsgi_temp_path {directory}/d; scgi_temp_path {directory}/e;
  keepalive_requests 100000; keepalive_timeout {keepalive};
  server {{ listen 0.0.0.0:{port} backlog=8192; root {root}; }}
  {tls}
}}
"""
_TLS = "server {{ listen 0.0.0.0:{port} ssl backlog=8192; ssl_certificate {pem}; ssl_certificate_key {pem}; root {root}; }}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def nginx(directory: Path, root: Path, *, keepalive: int = 75, pem: Path | None = None) -> Iterator[tuple[int, int]]:
    """Serves `root` at two ports of every loopback address: plain, and with TLS where there is a certificate (else 0)."""
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if program is None:
        raise SystemExit("bench/reap needs nginx (on Debian: apt install nginx-light)")
    directory.mkdir(parents=True, exist_ok=True)
    plain, secure = free_port(), free_port() if pem else 0
    tls = _TLS.format(port=secure, pem=pem, root=root) if pem else ""
    settings = directory / "nginx.conf"
    settings.write_text(_NGINX.format(directory=directory, port=plain, root=root, tls=tls, keepalive=keepalive))
    process = subprocess.Popen([program, "-c", settings, "-p", directory])
    try:
        _wait_for(plain)
        yield plain, secure
    finally:
        process.terminate()
        process.wait(10)


def certificate(directory: Path) -> Path:
    """A key and a certificate for any name, in one file; nobody vouches for it."""
    directory.mkdir(parents=True, exist_ok=True)
    key, certificate, both = directory / "key.pem", directory / "cert.pem", directory / "both.pem"
    names = "subjectAltName=DNS:*.bench.example,IP:127.0.0.1"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=bench", "-addext", names, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


@contextlib.contextmanager
def slow_server(page: bytes, robots: bytes, latency_s: float, processes: int = 1) -> Iterator[int]:
    """Answers every path with one prepared page, so long after the request came; the port."""
    port = free_port()
    answers = {kind: _answer(kind, body) for kind, body in (("text/html", page), ("text/plain", robots))}
    running = [multiprocessing.Process(target=_serve, args=(port, answers, latency_s), daemon=True) for _ in range(processes)]
    for process in running:
        process.start()
    try:
        _wait_for(port)
        yield port
    finally:
        for process in running:
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join()


def _answer(kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class _Prepared(asyncio.Protocol):
    def __init__(self, answers: dict[str, bytes], latency_s: float) -> None:
        self._answers, self._latency_s = answers, latency_s
        self._asked = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._asked += data
        while (end := self._asked.find(b"\r\n\r\n")) >= 0:
            head, self._asked = self._asked[:end], self._asked[end + 4 :]
            kind = "text/plain" if head.startswith(b"GET /robots.txt ") else "text/html"
            if self._latency_s:
                asyncio.get_running_loop().call_later(self._latency_s, self._transport.write, self._answers[kind])
            else:
                self._transport.write(self._answers[kind])


def _serve(port: int, answers: dict[str, bytes], latency_s: float) -> None:
    import uvloop

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: _Prepared(answers, latency_s), "0.0.0.0", port, reuse_port=True, backlog=8192
        )
        await server.serve_forever()

    uvloop.run(main())


def _wait_for(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise SystemExit(f"the server on port {port} did not start")
