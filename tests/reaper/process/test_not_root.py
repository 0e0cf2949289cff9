"""A reapd that root has started never meets the web as root, wherever it is installed, unless `--user root` says so."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

from shepherd.addresses import UnixAddress
from shepherd.dispatch.reaper_sources import UnixSource
from shepherd.formats.tables import Reason, Result
from shepherd.wire import messages as wire
from tests.support.driver import FOOTPRINTS, HTML, LINKS, Dispatcher, greeting, run
from tests.support.origin import Answer, Origin, ok, serve
from tests.support.reaping import ROOT, planned
from tests.support.waiting import PATIENCE_S, children, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
CERTIFICATE = Path(__file__).resolve().parents[3] / "tests/support/self-signed.pem"  # for a.example
SITE_PACKAGES = Path(certifi.__file__).resolve().parents[1]
NOBODY, DAEMON = "65534", "1"


def hide(tmp_path: Path) -> Path:
    """Shepherd as root may have installed it: nobody else can read its files, nor the authorities that come with it."""
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "certifi").mkdir()
    (hidden / "certifi" / "__init__.py").write_text(f"def where():\n    return {str(hidden / 'bundle.pem')!r}\n")
    (hidden / "bundle.pem").write_text(CERTIFICATE.read_text())
    (hidden / "shepherd").symlink_to(ROOT / "shepherd")
    (hidden / "lib").symlink_to(SITE_PACKAGES)
    return hidden


@contextlib.contextmanager
def reapd(home: Path, *options: str, hidden: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    path = home / "reapd"
    paths = os.pathsep.join(map(str, (hidden, hidden / "lib"))) if hidden else str(ROOT)
    command = [sys.executable, "-m", "shepherd.cli", "reapd", "--listen", f"unix:{path}", *options]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=home, env={**os.environ, "PYTHONPATH": paths}, stderr=log, text=True)
    try:
        wait_until(lambda: "listening" in (home / "log").read_text() or process.poll() is not None)
        yield process, path
    finally:
        process.terminate()
        process.wait()


def uids(pid: int) -> set[str]:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return set(status["Uid"].split())


async def fetched(path: Path, origin: Origin) -> tuple[tuple[Result, Reason], set[str]]:
    """What comes of https://a.example/x, and as whom the worker runs."""
    peer = await UnixSource(UnixAddress(path)).connect()
    await peer.send(greeting(origin))
    welcome = await peer.receive()
    assert isinstance(welcome, wire.Welcome)
    dispatcher, site = Dispatcher(peer), FOOTPRINTS.half("https://a.example")
    await peer.send(wire.Robots(site, 404, b""))
    outcome = await dispatcher.fetch("/x", url="https://a.example/x", site=site, rules=site)
    whom = uids(welcome.pid)
    await peer.close("done")
    return outcome.verdict, whom


@contextlib.contextmanager
def secure() -> Iterator[Origin]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with serve({"/x": ok(LINKS, HTML)}, context) as origin:
        yield origin


def test_reapd_gives_up_root_although_only_root_can_read_its_files(tmp_path: Path) -> None:
    """What is needed is read before root is given up, the authorities to trust among it."""
    with secure() as origin, reapd(tmp_path, hidden=hide(tmp_path)) as (process, path):
        assert run(fetched(path, origin)) == ((Result.STORED, Reason.GATHERED), {NOBODY})
        assert uids(process.pid) == {NOBODY}


def test_reapd_trusts_the_authorities_that_come_with_shepherd(tmp_path: Path) -> None:
    with secure() as origin, reapd(tmp_path) as (_, path):
        assert run(fetched(path, origin)) == ((Result.SITE, Reason.TLS), {NOBODY})


def test_user_can_be_named_and_root_must_be(tmp_path: Path) -> None:
    with reapd(tmp_path, "--user", "daemon") as (process, _):
        assert uids(process.pid) == {DAEMON}
    with reapd(tmp_path, "--user", "root") as (process, _):
        assert uids(process.pid) == {"0"}
        assert "as root" in (tmp_path / "log").read_text()


def test_user_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with reapd(tmp_path, "--user", "nobody-at-all") as (process, path):
        assert process.wait(PATIENCE_S) == 2
        said = (tmp_path / "log").read_text()
        assert "nobody-at-all" in said and "--user" in said and "[reap] user" in said
        assert not path.exists(), "a socket that was left would keep the next reapd from its path"


@pytest.mark.parametrize(("reap", "whom"), [("", NOBODY), ('user = "daemon"', DAEMON)])
def test_reaper_that_a_reap_of_roots_starts_is_not_root(tmp_path: Path, reap: str, whom: str) -> None:
    looked = threading.Event()

    def hold(connection: socket.socket) -> None:
        looked.wait(PATIENCE_S)
        connection.sendall(ok(LINKS, HTML))

    routes: dict[str, Answer] = {"a.example/x": hold}
    with planned(tmp_path, routes, ["http://a.example/x"], [], reap, timeout_s=600) as made:
        reaping = made.start("shep-reap", "-q")
        while "a.example/x" not in made.request_counts():
            assert reaping.poll() is None
            time.sleep(0.01)
        (own,) = children(reaping.pid)
        assert [uids(own), *map(uids, children(own))] == [{whom}, {whom}]
        looked.set()
        _, log = reaping.communicate(timeout=PATIENCE_S)
        assert reaping.returncode == 0, log


def test_reap_of_roots_refuses_a_user_that_does_not_exist(tmp_path: Path) -> None:
    with planned(tmp_path, {"a.example/x": ok(LINKS, HTML)}, ["http://a.example/x"], [], 'user = "nobody-at-all"') as made:
        refused = made.run("shep-reap")
        assert refused.returncode == 20 and "[reap] user" in refused.stderr
