"""The visible text of a page, of which the simhash is made: what stands between tags, without scripts and styles."""

from __future__ import annotations

from typing import Any, Final

from shepherd.expressions import Markup

MAX_PAGE: Final = 1024 * 1024  # bytes of a page that are read where there is no tree


def text_of_tree(body: Any, hidden: list[str]) -> bytes:
    """The visible text of a tree; `hidden` are the texts of its scripts and styles, in their order.

    Nodes are not removed from the tree: one removed inside another that is removed, too, would be freed twice.
    """
    if body is None:
        return b""
    text: str = body.text(separator=" ")
    pieces, position = [], 0
    for piece in hidden:
        start = text.find(piece, position)
        if start < 0:
            break
        pieces.append(text[position:start])
        position = start + len(piece)
    return "".join((*pieces, text[position:])).encode("utf-8", "replace")


def text_of_tags(page: bytes) -> bytes:
    """The visible text, roughly, of a page for which a tree would be too expensive."""
    return Markup.HIDDEN.sub(b" ", page[:MAX_PAGE])
