"""A stored page as a person would read it: what stands between tags, a line for each block, without scripts and styles.

The bytes are a stranger's, and nobody confines this process: so there is no tree, only passes that take time in proportion to
their length. What they make of wild markup may be wild, too.
"""

from __future__ import annotations

import html
import re
from typing import Final

MARKUP: Final = ("text/html", "application/xhtml+xml", "application/xml", "text/xml", "")  # older buckets do not say

_UNSEEN: Final = re.compile(
    r"<(script|style|template|noscript)\b.*?(?:</\1|\Z)[^>]*+>?|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL
)
_BLOCK: Final = re.compile(
    r"</?(?:address|article|aside|blockquote|body|br|dd|details|div|dl|dt|fieldset|figcaption|figure|footer|form|frame|h[1-6]"
    r"|head|header|hr|li|main|nav|ol|option|p|pre|section|summary|table|title|tr|ul)\b[^>]*+>?",
    re.IGNORECASE,
)
_CELL: Final = re.compile(r"</?(?:td|th)\b[^>]*+>?", re.IGNORECASE)
_TAG: Final = re.compile(r"<[a-z/!?][^>]*+>?", re.IGNORECASE)
# Such a number stands for no character, and int() takes no 5,000 digits.
_OVERLONG: Final = re.compile(r"&#(?:[0-9]{10}[0-9]*+|[xX][0-9a-fA-F]{9}[0-9a-fA-F]*+);?")
_BLANKS: Final = re.compile(r"\s+")


def is_text(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in MARKUP or kind.startswith("text/") or kind.endswith(("+xml", "/json", "+json", "/javascript"))


def readable(text: str, content_type: str) -> str:
    """The text without its markup, if it is of a kind that has some; else as it is."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in MARKUP and not kind.endswith("+xml"):
        return text
    visible_text = _TAG.sub("", _CELL.sub(" ", _BLOCK.sub("\0", _BLANKS.sub(" ", _UNSEEN.sub(" ", text.replace("\0", " "))))))
    lines = (_BLANKS.sub(" ", html.unescape(_OVERLONG.sub("\ufffd", line))).strip() for line in visible_text.split("\0"))
    return "".join(f"{line}\n" for line in lines if line)
