"""Where a row stands between the limits of select: one byte, which says what has rejected it."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from shepherd.formats.tables import U8, Bools


class Place(IntEnum):
    """Where a row stands. First the places that no limit gives, then those that sleep, then those that are forgotten."""

    STAY = 0
    EXEMPT = 1  # stays whatever its weight, and takes its room before all others
    ROBOTS = 2  # stays if another row of its site does, and takes no room
    FORGOTTEN = 3  # forgotten before
    SITE_SOFT = 4
    FRESH = 5
    SERVER_SOFT = 6
    SECTION_SOFT = 7
    SPACE = 8
    BELOW_BAR = 9
    SITE_HARD = 10
    SERVER_HARD = 11
    SECTION_HARD = 12
    BELOW_SLEEP = 13
    SITE_EMPTY = 14  # a robots file without a page to ask it for
    UNREFERENCED = 15  # nothing links to it any more, and it has no content that would be worth keeping


# Numpy takes a member of an enumeration for a 64-bit number, and compares bytes with it at a tenth of the speed: hence these.
STAY, EXEMPTED, SITE_SOFT, FRESH = (np.uint8(p) for p in (Place.STAY, Place.EXEMPT, Place.SITE_SOFT, Place.FRESH))
SITE_HARD = np.uint8(Place.SITE_HARD)
SLEEPING_PLACES = np.uint8(Place.SITE_HARD - Place.SITE_SOFT)


def sleeps(place: U8) -> Bools:
    return np.asarray(place - SITE_SOFT < SLEEPING_PLACES)  # smaller ones have become large


def may_be_limited(place: U8) -> Bools:
    """What no hard limit has struck, and is not exempt from limits."""
    return np.asarray(stays(place) | sleeps(place))


def stays(place: U8) -> Bools:
    return np.asarray(place == STAY)


def over_soft(place: U8) -> Bools:
    """Struck by a soft limit of its site."""
    return np.asarray((place == SITE_SOFT) | (place == FRESH))


def is_out(place: U8) -> Bools:
    return np.asarray(place >= SITE_HARD)


def mark(rows: Bools, place: int) -> U8:
    """The place at these rows, STAY at all others: a choice by multiplication, far cheaper than np.where on a mask of bytes."""
    return rows.view(np.uint8) * np.uint8(place)
