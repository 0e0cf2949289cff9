"""Bytes on their way to a reader that may have only so many a second: all of them, in order, and asked for by the portion."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from shepherd.serve.limits import Rate
from shepherd.serve.sender import FileSpans, _Line

DATA = os.urandom(300_000)


class Counted(Rate):
    """A rate whose clock never stands in the way; what was asked of it."""

    def __init__(self, per_s: float) -> None:
        super().__init__(per_s, per_s, lambda: 0.0)
        self.taken: list[float] = []

    def take(self, count: float) -> float:
        self.taken.append(count)
        super().take(count)
        return 0.0


def received(rate: Rate, path: Path) -> bytes:
    """What comes out of a line that is given ranges of 1,000 bytes, a few bytes, and a large range."""
    path.write_bytes(DATA)
    ours, theirs = socket.socketpair()
    got = bytearray()

    def drain() -> None:
        while data := theirs.recv(65_536):
            got.extend(data)

    reader = threading.Thread(target=drain)
    reader.start()
    with path.open("rb") as file, ours, theirs:
        ours.setblocking(False)
        line = _Line(ours, 5.0, rate, lambda: None)
        line.send_file(FileSpans(file.fileno(), list(range(0, 100_000, 1_000)), [1_000] * 100))
        line.send_bytes(b"between")
        line.send_file(FileSpans(file.fileno(), [100_000], [200_000]))
        line.settle()
        assert line.bytes_sent == len(DATA) + len(b"between")
        ours.shutdown(socket.SHUT_WR)
        reader.join()
    return bytes(got)


@pytest.mark.parametrize("per_s", [0, 8_000, 400_000, 80_000_000])
def test_bytes_arrive_in_order_and_take_their_rate_by_the_portion(tmp_path: Path, per_s: int) -> None:
    rate = Counted(per_s)
    sent = DATA[:100_000] + b"between" + DATA[100_000:]
    assert received(rate, tmp_path / "file") == sent
    if per_s:
        assert sum(rate.taken) == len(sent)  # what was taken and not used has been given back
        assert len(rate.taken) == -(-len(sent) // rate.portion) + 1
    else:
        assert rate.taken == []
