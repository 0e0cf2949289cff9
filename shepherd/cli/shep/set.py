"""shep set: give documents another weight, section, frequency, or pin them."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from shepherd import sections
from shepherd.cli.shep import edit_requests
from shepherd.cli.shep.edit_requests import FORGOTTEN, ROBOTS, EditOptions, EditRequest
from shepherd.console import selectors
from shepherd.console.selectors import Selection

MOST_WEIGHT = 65_535
TRUTHS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@click.command("set")
@selectors.selecting
@edit_requests.edit_options
def command(selection: Selection, options: EditOptions) -> None:
    """Set weight, section, frequency or pinning of documents. Write weight=N, section=NAME, frequency=1, 2 or 4, pinned=yes or
    no.

    Write these among the URLs, and choose documents by URLs or options as in other commands. It needs no lock, and takes effect
    at the start of the next cycle. An indexer's feedback may change a weight again, and a reap the section and the frequency. A
    pinned URL is exempt from all limits.

    \b
    Examples:
      shep set weight=60000 pinned=yes https://example.org/
      shep set frequency=4 --site example.org
      shep set weight=100 --glob '*/print/*' --dry-run
    """
    settings = dict(setting for text in selection.urls if (setting := read_setting(text)) is not None)
    if not settings:
        raise click.UsageError("say what to set: weight=N, section=NAME, frequency=1, 2 or 4, pinned=yes or no")
    urls = tuple(text for text in selection.urls if read_setting(text) is None)
    what = EditRequest("set", "set", settings, spares=(FORGOTTEN, ROBOTS))
    edit_requests.change(dataclasses.replace(selection, urls=urls), what, options)


def read_setting(text: str) -> tuple[str, Any] | None:
    """Key and value as a request has them; None if it is a URL, or something else that is none of ours."""
    key, sign, value = text.partition("=")
    if not sign or key not in READERS:
        return None
    try:
        return key, READERS[key](value)
    except ValueError as error:
        raise click.UsageError(f"{text!r}: {error}") from None


def _weight(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= MOST_WEIGHT):
        raise ValueError(f"a weight is a number from 0 to {MOST_WEIGHT}")
    return int(text)


def _frequency(text: str) -> int:
    if text not in ("1", "2", "4"):
        raise ValueError("a frequency is 1, 2 or 4 times in a refresh cycle")
    return int(text)


def _truth(text: str) -> bool:
    if text.lower() not in TRUTHS:
        raise ValueError("pinned is yes or no")
    return TRUTHS[text.lower()]


READERS = {"weight": _weight, "section": sections.section_number, "frequency": _frequency, "pinned": _truth}
