"""The worked examples of docs/formats.md: every hexdump of a section, as bytes, and how one is written."""

from __future__ import annotations

import re
from pathlib import Path

FORMATS = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
_LINE = re.compile(r"([0-9a-f]{4})  ((?:[0-9a-f]{2} ?){1,16}) +\S.*")


def hexdump(data: bytes) -> str:
    """The bytes as docs/formats.md shows them."""
    lines = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        text = "".join(chr(byte) if 0x20 < byte < 0x7F else "." for byte in part)
        lines.append(f"{at:04x}  {part.hex(' '):<47}  {text}\n")
    return "".join(lines)


def examples(title: str) -> list[bytes]:
    """The bytes of each hexdump between the heading that begins so and the next one."""
    found = re.search(rf"^#+ {re.escape(title)}.*?\n(.*?)(?=^#+ |\Z)", FORMATS.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"docs/formats.md has no heading {title!r}"
    blocks = re.findall(r"^```\n(0000  .*?)^```$", found[1], re.MULTILINE | re.DOTALL)
    dumps = [_bytes(block) for block in blocks]
    assert blocks == [hexdump(data) for data in dumps], f"a hexdump under {title!r} is not well formed"
    return dumps


def _bytes(block: str) -> bytes:
    matches = [_LINE.fullmatch(line) for line in block.splitlines()]
    return b"".join(bytes.fromhex(match[2]) for match in matches if match)
