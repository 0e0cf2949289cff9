"""The lines of an upload of feedback, judged. Most are plain ones, which a pattern knows by the thousand; the others are parsed.

The pattern is narrower than the parser: what it knows, the parser takes. A property test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shepherd.expressions import StoredForm
from shepherd.formats import feedback as uploads
from shepherd.store.state.inbox_files import open_item
from shepherd.urls import parse

LINE_BYTES: Final = 4_096
BLOCK_BYTES: Final = 1 << 18  # at a time: nobody else gets a turn while a pattern is matched


def judge(path: Path) -> int:
    """How many lines say something; ValueError names the first that cannot be read."""
    count = number = 0
    for block in _blocks(path):
        end = 0
        while end < len(block):
            begin, end = end, _after_plain(block, end)
            plain = block.count(b"\n", begin, end)
            count, number = count + plain, number + plain
            if end < len(block):
                begin, end = end, block.find(b"\n", end) + 1 or len(block)
                number += 1
                count += _says_something(block[begin:end], number)
    if not count:
        raise ValueError("it is empty")
    return count


def _blocks(path: Path) -> Iterator[bytes]:
    """Whole lines, but for one that is too long."""
    with open_item(path) as fd, open(fd, "rb", closefd=False) as file:
        while block := file.read(BLOCK_BYTES):
            yield block if block.endswith(b"\n") else block + file.readline(LINE_BYTES)


def _after_plain(block: bytes, begin: int) -> int:
    match = StoredForm.FEEDBACK_LINES.match(block, begin)
    assert match, "it matches nothing at all, too"
    return match.end()


def _says_something(line: bytes, number: int) -> bool:
    if len(line) >= LINE_BYTES:
        raise ValueError(f"line {number}: longer than {LINE_BYTES} bytes")
    try:
        text = line.decode()
        if not text.strip():
            return False
        uploads.parse_line(text, _footprint)
        return True
    except ValueError as error:
        raise ValueError(f"line {number}: {str(error)[:200]}") from None


def _footprint(text: str) -> tuple[int, int]:
    """Only whether it is a URL matters here; shep-feedback finds what it means."""
    parse(text, strict=True)
    return 0, 0
