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
from functools import partial
from pathlib import Path

import pytest

from shepherd.addresses import Descriptor, UnixAddress, parse_address
from shepherd.dispatch.reaper_sources import UnixSource
from shepherd.errors import Locked, PeerLost, UsageError
from shepherd.formats.tables import Reason, Result
from shepherd.reaper.process import listener
from shepherd.wire import messages as wire
from tests.support.driver import HTML, LINKS, Dispatcher, greeting, run
from tests.support.origin import Origin, ok, serve
from tests.support.reaping import answering_reapd
from tests.support.waiting import PATIENCE_S, is_answering, wait_until


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
    with serve({"/x": ok(LINKS, HTML)}) as origin, answering_reapd(path) as process:
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
        assert process.wait(PATIENCE_S) == 0


def test_no_worker_outlives_a_killed_reapd(tmp_path: Path) -> None:
    path = tmp_path / "reapd"
    with serve({}) as origin, answering_reapd(path) as process:

        async def work() -> None:
            dispatcher, pid = await join(path, origin)
            process.kill()
            assert await lost(dispatcher.peer)
            while is_running(pid):
                await asyncio.sleep(0.01)

        run(work())


def test_killed_worker_does_not_disturb_the_others(tmp_path: Path) -> None:
    path = tmp_path / "reapd"
    with serve({"/x": ok(LINKS, HTML)}) as origin, answering_reapd(path):

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
    with listener.listen_at_path(path), pytest.raises(Locked, match="another reapd or program"):
        listener.listen_at_path(path)
    with pytest.raises(UsageError, match="unix:PATH"):
        parse_address("127.0.0.1:80")
    with pytest.raises(UsageError, match="not a socket"):
        listener.open_listener(Descriptor(99))
    with pytest.raises(UsageError, match="cannot listen"):
        listener.listen_at_path(tmp_path / ("x" * 200))


def test_reapd_can_be_started_again_where_one_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "reapd"
    with answering_reapd(path) as killed:
        assert is_answering(path)
        killed.kill()
        killed.wait()
        assert path.is_socket() and not is_answering(path)
        with answering_reapd(path):
            assert is_answering(path)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


def is_one_left(started: list[subprocess.Popen[str]]) -> bool:
    return sum(process.poll() is None for process in started) <= 1


def test_one_of_several_reapds_started_at_once_gets_the_path(tmp_path: Path) -> None:
    """Where nothing was, and where a dead one has left its socket; the others say so and end."""
    path = tmp_path / "reapd"
    command = [sys.executable, "-m", "shepherd.cli", "reapd", "--listen", f"unix:{path}", "--quiet"]
    for _ in range(2):
        started = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        try:
            wait_until(partial(is_one_left, started))
            (winner,) = [process for process in started if process.poll() is None]
            refused = [
                (process.returncode, process.stderr.read()) for process in started if process is not winner and process.stderr
            ]
            assert len(refused) == 3
            assert all(status == Locked.exit_status and "another reapd" in said for status, said in refused)
            with serve({}) as origin:

                async def work(origin: Origin = origin, winner: int = winner.pid) -> None:
                    dispatcher, pid = await join(path, origin)
                    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
                    await dispatcher.peer.close()
                    assert int(parent) == winner

                run(work())
        finally:
            for process in started:
                process.kill()
                process.communicate()
        assert path.is_socket() and not is_answering(path)


def unlistened(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> None:
    """A socket's file without a listener."""
    with socket.socket(socket.AF_UNIX, kind) as left:
        left.bind(str(path))


def test_what_is_not_a_dead_socket_of_ours_is_never_removed(tmp_path: Path) -> None:
    kept = {name: tmp_path / name for name in ("file", "directory", "link", "dangling", "foreign")}
    kept["file"].write_text("precious")
    kept["directory"].mkdir()
    unlistened(tmp_path / "dead")
    kept["link"].symlink_to(tmp_path / "dead")
    kept["dangling"].symlink_to(tmp_path / "nothing")
    unlistened(kept["foreign"])
    if os.geteuid() == 0:
        os.chown(kept["foreign"], 1, 1)
    else:
        del kept["foreign"]
    for path in kept.values():
        before = path.lstat()
        with pytest.raises(UsageError, match="choose another"):
            listener.listen_at_path(path)
        assert path.lstat() == before
    assert (tmp_path / "dead").is_socket()


def test_socket_of_a_reapd_that_is_too_busy_to_accept_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "reapd"
    with contextlib.ExitStack() as stack:
        stack.enter_context(listener.listen_at_path(path))
        full = False
        for _ in range(2 * listener.BACKLOG):
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            full = full or waiting.connect_ex(str(path)) != 0
        assert full
        with pytest.raises(Locked, match="another"):
            listener.listen_at_path(path)
        assert path.is_socket()


def test_memory_in_which_no_worker_could_run_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shepherd.cli", "reapd", "--listen", f"unix:{tmp_path}/reapd", "--memory"]
    refused = subprocess.run([*command, "1000000"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert refused.returncode == 2, refused.stderr
    assert "--memory" in refused.stderr and "192 MiB" in refused.stderr
    assert not (tmp_path / "reapd").exists()
