"""A WARC file is read in a confined process of its own, and whatever becomes of that, the import goes on."""

from __future__ import annotations

import io
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from shepherd.config import Reap
from shepherd.importing import reading, warc_file
from shepherd.importing.reading import ImportFile, records_of
from shepherd.importing.warc_file import Damage, Record
from tests.importing.crawl import crawl
from tests.support.waiting import children

MOST = 1 << 20
REAP = Reap()


def file_of(path: Path, ticks: list[int] | None = None, seekable: bool = True) -> ImportFile:
    return ImportFile(path.name, lambda: path.open("rb"), seekable, (ticks if ticks is not None else []).append)


@pytest.mark.parametrize("seekable", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_process_finds_what_a_reader_finds(tmp_path: Path, packed: bool, seekable: bool) -> None:
    whole = crawl(packed).data
    data = whole[: len(whole) // 2] + b"\x1f\x8b\x08 damaged WARC/1.0 " + whole
    (tmp_path / "x").write_bytes(data)
    ticks: list[int] = []
    found = list(records_of(file_of(tmp_path / "x", ticks, seekable), MOST, REAP))
    assert found == list(warc_file.records(io.BytesIO(data), MOST))
    assert any(isinstance(one, Damage) for one in found)
    assert sum(ticks) == len(data)


class PipedFile:
    """A file that goes on when the test writes to it, and its reader, which has found the first record."""

    def __init__(self) -> None:
        read_end, self.write_end = os.pipe()
        stream: BinaryIO = os.fdopen(read_end, "rb")
        self.found: Iterator[Record | Damage] = records_of(ImportFile("pipe", lambda: stream, False, lambda _: None), MOST, REAP)
        before = set(children(os.getpid()))
        os.write(self.write_end, crawl(packed=False).data)
        self.first = next(self.found)
        (self.pid,) = set(children(os.getpid())) - before


@pytest.fixture
def piped() -> Iterator[PipedFile]:
    pipe = PipedFile()
    yield pipe
    pipe.found.close()  # type: ignore[attr-defined]
    os.close(pipe.write_end)


def test_file_is_given_up_where_its_reader_was_killed(piped: PipedFile) -> None:
    os.kill(piped.pid, signal.SIGKILL)
    *_, last = itertools.chain([piped.first], piped.found)
    assert isinstance(last, Damage) and last.is_last
    assert "its rest is not read: the process that reads it has ended before it was done" in last.why


def test_reader_can_gain_no_rights_and_has_little_memory(piped: PipedFile) -> None:
    process = Path(f"/proc/{piped.pid}")
    assert "NoNewPrivs:\t1\n" in (process / "status").read_text()
    limits = {line[:25].strip(): line[25:].split() for line in (process / "limits").read_text().splitlines()}
    assert limits["Max address space"][:2] == [str(REAP.worker_bytes)] * 2
    assert limits["Max core file size"][:2] == ["0", "0"]


def test_reader_has_only_the_file_and_its_answer(piped: PipedFile, tmp_path: Path) -> None:
    """The lock and the tables of the database are open in the process that imports."""
    open_files = {number.name: os.readlink(number) for number in Path(f"/proc/{piped.pid}/fd").iterdir()}
    assert {place for name, place in open_files.items() if name not in ("0", "1", "2")} == set()


def test_reader_ends_when_nobody_wants_more(piped: PipedFile) -> None:
    piped.found.close()  # type: ignore[attr-defined]
    assert piped.pid not in children(os.getpid())


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "has ended before"),
        (b"\xff" * 8, "sends more than"),
        ((5).to_bytes(8, "little") + b"\xc1\xc1\xc1\xc1\xc1", "sends what is no record"),
        ((9).to_bytes(8, "little") + b"\x93", "sends what is no record"),
        ((4).to_bytes(8, "little") + b"\x92\x01\xa1x", "sends what is no record"),
    ],
)
def test_reader_that_was_taken_over_is_not_believed(sent: bytes, why: str) -> None:
    with pytest.raises(reading.LostReader, match=why):
        reading._next(io.BufferedReader(io.BytesIO(sent)), MOST)


def test_file_that_the_system_cannot_read_is_an_error_of_the_system(tmp_path: Path) -> None:
    """As it was when the import itself read it."""
    with pytest.raises(OSError, match="Bad file descriptor: 'x'"):
        list(records_of(ImportFile("x", lambda: (tmp_path / "x").open("wb"), True, lambda _: None), MOST, REAP))
