"""Errors carry data; what a person reads is put together of it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from shepherd.errors import CHECK_LISTS, Corruption, IoFailed, OldFormat, PlacedError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            Corruption("the block is damaged", Path("/db/norm"), 0, CHECK_LISTS),
            f"/db/norm at 0: the block is damaged; {CHECK_LISTS}",
        ),
        (Corruption("the file is missing", Path("/db/norm")), "/db/norm: the file is missing"),
        (Corruption("not a frame", offset=7), "at 7: not a frame"),
        (Corruption("a site has no name"), "a site has no name"),
    ],
)
def test_message_names_the_place_first_and_the_advice_last(error: PlacedError, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize("kind", [Corruption, IoFailed, OldFormat])
def test_error_of_another_process_keeps_its_data(kind: type[PlacedError]) -> None:
    there = kind("what", Path("/db/a: b"), 3, "advice")
    here = pickle.loads(pickle.dumps(there))
    assert (here.what, here.path, here.offset, here.advice) == ("what", Path("/db/a: b"), 3, "advice")
    assert str(here) == str(there)


def test_format_of_an_older_version_is_for_the_caller_to_bring_up_to_date() -> None:
    assert OldFormat("format version 1", "control").exit_status == 2
