"""A unix socket of another user: neither end tells it anything. For root only, who can be another user."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.addresses import UnixAddress
from shepherd.dispatch.reaper_sources import UnixSource
from shepherd.errors import PeerRefused
from shepherd.reaper.process.listener import UnixListener, open_listener
from shepherd.wire.unix_user import is_trusted, user_of_peer
from tests.support.somebody import NOBODY

for_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
PRELUDE = (
    f"import os, socket, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); s = socket.socket(socket.AF_UNIX)\n"
)
LISTEN = (
    PRELUDE
    + """
s.bind(sys.argv[1]); s.listen(); print('listening', flush=True)
c, _ = s.accept(); print(len(c.recv(1 << 16)), flush=True)
"""
)
CONNECT = PRELUDE + "s.connect(sys.argv[1]); print(len(s.recv(1)), flush=True)"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may use, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name) / "socket"


@contextlib.contextmanager
def somebody(script: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True, cwd="/")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@for_root
def test_dispatcher_sends_nothing_to_a_reaper_of_another_user(place: Path) -> None:
    with somebody(LISTEN, place) as process:
        assert process.stdout is not None and process.stdout.readline() == "listening\n"
        with pytest.raises(PeerRefused, match="and was sent nothing"):
            asyncio.run(UnixSource(UnixAddress(place)).connect())
        assert process.stdout.readline() == "0\n"


@for_root
def test_reapd_hangs_up_on_a_dispatcher_of_another_user(place: Path) -> None:
    listener = open_listener(UnixAddress(place))
    assert isinstance(listener, UnixListener)
    place.chmod(0o777)  # somebody has opened it
    with contextlib.closing(listener), somebody(CONNECT, place) as process:
        with pytest.raises(ConnectionAbortedError):
            listener.accept()
        assert process.stdout is not None and process.stdout.readline() == "0\n"


def test_both_ends_of_one_user_meet(place: Path) -> None:
    listener = open_listener(UnixAddress(place))
    with contextlib.closing(listener), socket.socket(socket.AF_UNIX) as ours:
        ours.connect(os.fspath(place))
        theirs, _address = listener.accept()
        with theirs:
            assert user_of_peer(theirs) == user_of_peer(ours) == os.geteuid()


def test_root_is_trusted_and_others_are_not() -> None:
    assert is_trusted(1000, own=1000) and is_trusted(0, own=1000)
    assert not is_trusted(1001, own=1000) and not is_trusted(NOBODY, own=0)
