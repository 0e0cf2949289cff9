"""The two text formats that older gatherers left, v2 and v3.0 (docs/formats.md): read, never written.

They give the same attributes as v3.3 does. Cost and memory are linear in the text: a body of lines is joined without ever being a
list of them. What is wrong with a text is a ValueError that says what: the caller knows the place and makes it Corruption.
"""

from __future__ import annotations

from typing import Final

from shepherd.expressions import StoredForm
from shepherd.formats.attributes import HEX, NUMBER, TABLE, Attribute

MAX_LINES: Final = 1 << 20  # bytes of attribute lines


def read_v30(text: bytes) -> dict[str, bytes]:
    """The attributes of a v3.0 bucket, whose `text` ends with the empty line."""
    if text != b"\n" and not text.endswith(b"\n\n"):
        raise ValueError("the attributes do not end with an empty line")
    return _read_lines(text[:-1])


def read_v2(text: bytes, with_body: bool) -> tuple[dict[str, bytes], bytes]:
    """The attributes and the body of a v2 bucket; without the body, its lines are not looked at."""
    first = StoredForm.BODY_LINE.search(text)
    start = first.start() if first else len(text)
    return _read_lines(text[:start]), _read_body(text[start:]) if with_body else b""


def _read_body(text: bytes) -> bytes:
    """The body that lines of letter B and b spell.

    A line holds no line end, so `\\nB` is found at the beginning of lines and nowhere else.
    """
    if not text:
        return b""
    if not text.endswith(b"\n"):
        raise ValueError("the last body line is cut off")
    last = text.rfind(b"\n", 0, -1) + 1
    ended = text[last : last + 1] == b"B"
    if not ended:
        if text[last : last + 1] != b"b" or last + 2 == len(text):
            raise ValueError("the last line is neither a body line nor the rest of a body")
        text = text[:last] + b"B" + text[last + 1 :]
    if text[:1] != b"B" or text.count(b"\nB") != text.count(b"\n") - 1:
        raise ValueError("there is something else among the body lines")
    return text[1 : None if ended else -1].replace(b"\nB", b"\n")


def _read_lines(text: bytes) -> dict[str, bytes]:
    if len(text) > MAX_LINES:
        raise ValueError(f"{len(text)} bytes of attribute lines; at most {MAX_LINES} are allowed")
    if text and not text.endswith(b"\n"):
        raise ValueError("the last attribute line is cut off")
    lines: dict[str, list[bytes]] = {}
    before = ""
    for line in text[:-1].split(b"\n") if text else ():
        letter = line[:1].decode("latin-1")
        if not (letter.isascii() and letter.isalpha()) or letter in "Bb":
            raise ValueError(f"a line begins with {letter!r}, which is not the letter of an attribute")
        if letter != before and letter in lines:
            raise ValueError(f"attribute {letter!r} is there twice")
        lines.setdefault(letter, []).append(line[1:])
        before = letter
    return {letter: _contents(TABLE.get(letter), b"\n".join(parts)) for letter, parts in lines.items()}


def _contents(kind: Attribute | None, text: bytes) -> bytes:
    """What v3.3 would have stored of this text."""
    if kind is None or kind.form not in (HEX, NUMBER):
        return text
    if kind.form == HEX:
        size = len(text) // 2
        if not StoredForm.HEX.fullmatch(text) or size % kind.unit or not kind.unit <= size <= kind.unit * kind.most:
            raise ValueError(f"the {kind.name} is not spelt in hex, or has another length")
        return bytes.fromhex(text.decode("ascii"))
    number = int(text) if StoredForm.NUMBER.fullmatch(text) else 1 << 64
    if number >= 1 << (8 * kind.unit):
        raise ValueError(f"the {kind.name} is not a number of {kind.unit} bytes")
    return number.to_bytes(kind.unit, "little")
