"""nginx as a server to gather from, with its own log of what it was asked: for tests that a server of ours could flatter."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S, is_answering, wait_until

_SETTINGS = """
daemon off; worker_processes 1; pid {home}/pid; error_log {home}/error.log;
events {{ worker_connections 1024; }}
http {{
  types {{ text/html html; text/css css; text/plain txt; }} default_type application/octet-stream;
  log_format told escape=json '{{"scheme":"$scheme","host":"$host","path":"$request_uri","status":$status,'
    '"if_none_match":"$http_if_none_match","encoding":"$sent_http_content_encoding","protocol":"$server_protocol"}}';
  access_log {home}/access.log told;
  client_body_temp_path {home}/1; proxy_temp_path {home}/2; fastcgi_temp_path {home}/3; uwsgi_temp_path {home}/4;
  scgi_temp_path {home}/5;
  gzip on; gzip_vary on; gzip_min_length 100; gzip_types text/css text/plain; etag on; index index.html;
  server {{ listen 127.0.0.1:{plain}; listen 127.0.0.1:{secure} ssl http2;
            ssl_certificate {home}/cert.pem; ssl_certificate_key {home}/key.pem; root {root}; {more} }}
}}
"""


@dataclass(frozen=True)
class LoggedRequest:
    """One line of its log."""

    scheme: str
    host: str
    path: str
    status: int
    if_none_match: str
    encoding: str
    protocol: str


@dataclass(frozen=True)
class Nginx:
    home: Path
    plain: int  # ports
    secure: int

    @property
    def ca_file(self) -> Path:
        """Whom to trust: its certificate is its own authority."""
        return self.home / "cert.pem"

    def requests(self) -> list[LoggedRequest]:
        return [LoggedRequest(**json.loads(line)) for line in (self.home / "access.log").read_text().splitlines()]


def need() -> str:
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None or shutil.which("openssl") is None:
        pytest.skip("nginx and openssl are not installed (on Debian: apt install nginx-light openssl)")
    return program


@contextlib.contextmanager
def nginx(home: Path, root: Path, hosts: list[str], more: str = "") -> Iterator[Nginx]:
    """Serves `root` under all these names, over HTTP and over TLS with a certificate for them; `more` is for its server block."""
    program = need()
    home.mkdir(parents=True)
    home.chmod(0o755)
    names = ",".join(f"DNS:{host}" for host in hosts)
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += [
        "-subj",
        "/CN=nginx",
        "-addext",
        f"subjectAltName={names}",
        "-keyout",
        f"{home}/key.pem",
        "-out",
        f"{home}/cert.pem",
    ]
    subprocess.run(command, check=True, capture_output=True)
    plain, secure = _free_ports()
    (home / "conf").write_text(_SETTINGS.format(home=home, root=root, plain=plain, secure=secure, more=more))
    process = subprocess.Popen([program, "-p", home, "-c", home / "conf"], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_answering(("127.0.0.1", plain)) or process.poll() is not None)
        assert process.poll() is None, "nginx has ended"
        yield Nginx(home, plain, secure)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]
