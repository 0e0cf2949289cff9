"""The sections: kinds of documents that limits tell apart. The numbers stand on disk, the names in configuration and filter."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Section(IntEnum):
    """What the column `section` says of a document."""

    OTHER = 0  # or not told apart
    HTML = 1
    TEXT = 2
    PDF = 3
    IMAGE = 4
    FEED = 5
    DOCUMENT = 6  # of an office
    MEDIA = 7  # sound and film
    DATA = 8  # code and data


SECTION_NAMES: Final[dict[str, Section]] = {section.name.lower(): section for section in Section}
