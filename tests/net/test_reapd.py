"""The real reapd with its processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.errors import Locked, PeerLost, UsageError
from shepherd.formats.tables import Reason, Result
from shepherd.net import entrance, wire
from shepherd.net.addresses import Descriptor, UnixAddress, parse_address
from shepherd.net.sources import UnixSource
from tests.net.driver import (
    HTML,
    LINKS,
    Dispatcher,
    greeting,
    run,
)
from tests.net.origin import Origin, ok, serve


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@contextlib.contextmanager
def running(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "shepherd.cli", "reapd", "--listen", f"unix:{path}", "--quiet"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < until and not answers(path):
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.wait()


async def join(path: Path, origin: Origin) -> tuple[Dispatcher, int]:
    peer = await UnixSource(UnixAddress(path)).connect()
    await peer.send(greeting(origin))
    welcome = await peer.receive()
    assert isinstance(welcome, wire.Welcome)
    return Dispatcher(peer), welcome.pid


async def lost(peer: wire.Peer) -> bool:
    """Wait for the end of a connection, however it comes."""
    with contextlib.suppress(PeerLost):
        while await peer.receive() is not None:
            pass
    await peer.close()
    return True


def is_running(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_every_connection_has_a_worker_of_its_own_that_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "reapd"
    with serve({"/x": ok(LINKS, HTML)}) as origin, running(path) as process:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

        async def work() -> None:
            first, first_pid = await join(path, origin)
            second, second_pid = await join(path, origin)
            assert len({first_pid, second_pid, process.pid}) == 3
            await first.peer.close()
            while is_running(first_pid):
                await asyncio.sleep(0.01)
            await second.rules()
            assert (await second.fetch("/x")).verdict == (Result.STORED, Reason.GATHERED)
            process.send_signal(signal.SIGTERM)
            assert await lost(second.peer)

        run(work())
        assert process.wait(20) == 0


def test_no_worker_outlives_a_killed_reapd(tmp_path: Path) -> None:
    path = tmp_path / "reapd"
    with serve({}) as origin, running(path) as process:

        async def work() -> None:
            dispatcher, pid = await join(path, origin)
            process.kill()
            assert await lost(dispatcher.peer)
            while is_running(pid):
                await asyncio.sleep(0.01)

        run(work())


def test_a_killed_worker_takes_nobody_along(tmp_path: Path) -> None:
    path = tmp_path / "reapd"
    with serve({"/x": ok(LINKS, HTML)}) as origin, running(path):

        async def work() -> None:
            first, first_pid = await join(path, origin)
            second, _ = await join(path, origin)
            os.kill(first_pid, signal.SIGKILL)
            assert await lost(first.peer)
            await second.rules()
            assert (await second.fetch("/x")).verdict == (Result.STORED, Reason.GATHERED)
            third, _ = await join(path, origin)
            await third.peer.close()
            await second.peer.close()

        run(work())


def test_a_path_in_use_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "reapd"
    with entrance.listen(path), pytest.raises(Locked, match="another reapd"):
        entrance.listen(path)
    with pytest.raises(UsageError, match="nobody listens"):
        entrance.listen(path)
    with pytest.raises(UsageError, match="unix:PATH"):
        parse_address("127.0.0.1:80")
    with pytest.raises(UsageError, match="not a socket"):
        entrance.entrance(Descriptor(99))
    with pytest.raises(UsageError, match="cannot listen"):
        entrance.listen(tmp_path / ("x" * 200))
