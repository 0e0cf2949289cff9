"""Feedback uploads: what an indexer thinks of documents (docs/formats.md). Binary, as frames of records, or text, a line each."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntFlag
from typing import Final

import numpy as np

from shepherd.errors import BadUrl, Corruption
from shepherd.expressions import StoredForm
from shepherd.formats.check import Bytes
from shepherd.formats.frame import MAGIC, Frame, FrameKind
from shepherd.formats.tables import Records

FEEDBACK: Final = np.dtype([("site", "<u8"), ("path", "<u8"), ("weight", "<u2"), ("flags", "<u2"), ("spare", "<u4")])


class FeedbackFlag(IntFlag):
    WEIGHT = 1  # the weight counts; without it the record is about references alone
    UNREFERENCED = 2  # nothing links to it any more
    REFERENCED = 4  # something does again


NAMES: Final = {"unreferenced": FeedbackFlag.UNREFERENCED, "referenced": FeedbackFlag.REFERENCED}
MOST_WEIGHT: Final = 65_535


def is_binary(data: Bytes) -> bool:
    """Whether an upload that begins so is of frames."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def unpack(frame: Frame) -> Records:
    """The records of a frame of a binary upload; Corruption, with the offset, if it is not one."""
    if frame.kind != FrameKind.FEEDBACK or len(frame.payload) != frame.records * FEEDBACK.itemsize:
        raise Corruption("not a frame of feedback", offset=frame.offset)
    return np.frombuffer(frame.payload, FEEDBACK)


def parse_line(line: str, footprint: Callable[[str], tuple[int, int]]) -> tuple[int, int, int, int]:
    """`URL-or-footprint WEIGHT|- [FLAG...]` as the fields of a record; `footprint` gives site and path of a URL.

    ValueError says what is wrong.
    """
    words = line.split()
    if len(words) < 2:
        raise ValueError("expected a URL or footprint, a weight or -, and flags")
    match = StoredForm.FOOTPRINT.fullmatch(words[0])
    try:
        site, path = (int(match[1], 16), int(match[2], 16)) if match else footprint(words[0])
    except BadUrl as error:
        raise ValueError(str(error)) from None
    flags = 0
    for word in words[2:]:
        if word not in NAMES:
            raise ValueError(f"unknown flag {word!r}; there are {', '.join(NAMES)}")
        flags |= NAMES[word]
    if words[1] == "-":
        if not flags:
            raise ValueError("neither a weight nor a flag")
        return site, path, 0, flags
    if not StoredForm.WEIGHT.fullmatch(words[1]) or int(words[1]) > MOST_WEIGHT:
        raise ValueError(f"weight {words[1]!r} is not from 0 to {MOST_WEIGHT}")
    return site, path, int(words[1]), flags | FeedbackFlag.WEIGHT
