"""A stored page as a person would read it: what stands between tags, a line for each block, without scripts and styles.

The bytes are a stranger's, and nobody confines this process: so there is no tree, only passes that take time in proportion to
their length. What they make of wild markup may be wild, too.
"""

from __future__ import annotations

import html
from typing import Final

from shepherd.expressions import Readable

MARKUP: Final = ("text/html", "application/xhtml+xml", "application/xml", "text/xml", "")  # older buckets do not say


def is_text(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in MARKUP or kind.startswith("text/") or kind.endswith(("+xml", "/json", "+json", "/javascript"))


def readable(text: str, content_type: str) -> str:
    """The text without its markup, if it is of a kind that has some; else as it is."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in MARKUP and not kind.endswith("+xml"):
        return text
    text = Readable.UNSEEN.sub(" ", text.replace("\0", " "))
    text = Readable.BLOCK.sub("\0", Readable.BLANKS.sub(" ", text))
    text = Readable.TAG.sub("", Readable.CELL.sub(" ", text))
    numbers, blanks = Readable.OVERLONG, Readable.BLANKS
    lines = (blanks.sub(" ", html.unescape(numbers.sub("\ufffd", line))).strip() for line in text.split("\0"))
    return "".join(f"{line}\n" for line in lines if line)
