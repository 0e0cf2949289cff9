"""Sections by media type, and what names and numbers an operator may use."""

from __future__ import annotations

import pytest

from shepherd.sections import Section, section_name, section_number, section_of_type


@pytest.mark.parametrize(
    ("media_type", "section"),
    [
        ("text/html", Section.HTML),
        ("application/xhtml+xml", Section.HTML),
        ("application/pdf", Section.PDF),
        ("application/rss+xml", Section.FEED),
        ("application/vnd.oasis.opendocument.text", Section.OFFICE),
        ("application/vnd.rar", Section.ARCHIVE),
        ("application/json", Section.DATA),
        ("text/css", Section.DATA),
        ("text/plain", Section.TEXT),
        ("image/svg+xml", Section.IMAGE),
        ("audio/ogg", Section.AUDIO),
        ("video/webm", Section.VIDEO),
        ("application/octet-stream", Section.OTHER),
        ("", Section.NONE),
    ],
)
def test_media_type_has_its_section(media_type: str, section: Section) -> None:
    assert section_of_type(media_type) == section


def test_names_and_numbers_read_back() -> None:
    for number in (*Section, 32, 255):
        assert section_number(section_name(number)) == number
    for wrong in ("pages", "31x", "5", "256", "-1", "٣٢"):
        with pytest.raises(ValueError, match="is not a section"):
            section_number(wrong)
