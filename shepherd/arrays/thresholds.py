"""Bars: at which row the room of a group is full, exactly, for any number of groups, in bounded memory.

The rows of all groups stand in one order, best first: by the weight that is compared, then by row. `places` gives each row its
place in this order as a number of `place_bits` bits, so no two rows tie, and a bar is one number: rows before it fit. It is found
digit by digit. Each pass over the rows counts them (or adds up what they need) by the next digits of their place, as far as they
can still matter; the groups share the memory for that, so the more groups, the fewer digits a pass settles. As soon as only few
rows can matter, one pass collects and sorts them, and that is the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import run_starts
from shepherd.formats.tables import I64, U16, Array, Bools

WEIGHT_BITS = 16
MOST_BITS = 23  # of the counters of one pass: 64 MiB of them
CACHED_BITS = 18  # of counters that each partition can have for itself
ENOUGH_BITS = 8  # for one pass: they leave few rows to look at
MOST_COLLECTED = 1 << 22  # rows: 32 MiB of them
NO_BAR = 1 << 62  # everything fits


@dataclass(frozen=True)
class Search:
    """The first row of a group that does not fit is at `low` or less than 2^bits behind it; `room` is what fits before it."""

    low: I64
    room: I64
    crowded: Bools  # false: everything fits
    bits: int
    waiting: int = NO_BAR  # how many rows are there, in all groups; not known at first

    @property
    def is_done(self) -> bool:
        return self.bits == 0 or not self.crowded.any()

    @property
    def few(self) -> bool:
        """Whether the rows that can matter are few enough to be collected: each is one number, its group and its place."""
        return self.waiting <= MOST_COLLECTED and self.bits + (len(self.low) - 1).bit_length() < 63

    @property
    def step(self) -> int:
        """How many bits the next pass settles: as many as there are counters for in the cache, or with many groups in memory."""
        of_groups = (len(self.low) - 1).bit_length()
        return min(self.bits, WEIGHT_BITS, max(CACHED_BITS - of_groups, min(MOST_BITS - of_groups, ENOUGH_BITS), 1))

    @property
    def counters(self) -> int:
        return len(self.low) << self.step

    @property
    def bars(self) -> I64:
        """For each group the place of the first row that does not fit."""
        return np.where(self.crowded, self.low, NO_BAR)


@dataclass(frozen=True)
class CounterTally:
    """What the rows of one partition need, by counter: all of them, or only those that they touch, each once."""

    counter: Array | slice
    amount: I64


def row_bits(rows: int) -> int:
    return max(rows - 1, 0).bit_length()


def as_key_and_row(bars: I64, bits: int) -> tuple[U16, I64]:
    """The weight and row of bars: what has more weight fits, and of what has the same weight the rows before."""
    key = np.where(bars < NO_BAR, 65_535 - (bars >> bits), 0)
    return key.astype(np.uint16), np.where(bars < NO_BAR, bars & ((1 << bits) - 1), NO_BAR)


def places(key: U16, row: I64, bits: int) -> I64:
    """Places of rows in the order of all rows; `bits` is what `row_bits` says of the whole index."""
    return (65_535 - key.astype(np.int64)) << bits | row


def begin(room: I64, bits: int) -> Search:
    """`bits` as for `places`; a group without room fits nothing."""
    nothing = np.zeros(len(room), np.int64)
    return Search(nothing, np.maximum(room, 0), np.ones(len(room), np.bool_), WEIGHT_BITS + bits)


@dataclass(frozen=True)
class Members:
    """Rows that compete for room."""

    row: I64
    key: U16
    group: Array
    amount: I64 | None = None  # None: each needs 1


@dataclass(frozen=True)
class Window:
    """By group: the weights that do not decide yet whether a row fits."""

    best: U16
    worst: U16
    all_weights: bool  # before the first pass


def window(search: Search, bits: int) -> Window:
    best = np.where(search.crowded, 65_535 - (search.low >> bits), 0)
    worst = np.where(search.crowded, 65_535 - (search.low + (1 << search.bits) - 1 >> bits), 65_535)
    first = search.bits == WEIGHT_BITS + bits
    return Window(best.astype(np.uint16), np.maximum(worst, 0).astype(np.uint16), first)


def tally(search: Search, members: Members, bits: int) -> CounterTally:
    """Count rows, or add up their amounts. The members may be more than those in the window, but not fewer."""
    group, amount = members.group, members.amount
    shift = search.bits - search.step
    if shift >= bits and search.bits == WEIGHT_BITS + bits:  # the first pass looks at weights alone
        counter = (65_535 - members.key >> (shift - bits)).astype(np.int64)
    else:
        inside, offset = _offsets(search, members, bits)
        counter, group = offset >> shift, group.take(inside)
        amount = amount.take(inside) if amount is not None else None
    if len(search.low) > 1:
        counter |= group.astype(np.int64) << search.step
    return _add_up(counter, amount, search.counters)


def _offsets(search: Search, members: Members, bits: int) -> tuple[I64, I64]:
    """Which members can matter, and how far behind the lowest place of their group they stand."""
    offset = places(members.key, members.row, bits) - search.low.take(members.group)
    inside = np.flatnonzero((offset >= 0) & (offset < 1 << search.bits) & search.crowded.take(members.group))
    return inside, offset.take(inside)


def collect(search: Search, members: Members, bits: int) -> I64:
    """The members that can matter, each as one number, when they are `few`. All of them need 1."""
    inside, offset = _offsets(search, members, bits)
    return members.group.take(inside).astype(np.int64) << search.bits | offset


def finish(search: Search, collected: I64) -> Search:
    """The bars by all that `collect` has found: in each crowded group the first row behind as many as have room."""
    ordered = np.sort(collected)
    groups = np.flatnonzero(search.crowded)
    first = np.searchsorted(ordered, groups << search.bits)
    low = search.low.copy()
    low[groups] += ordered.take(first + search.room.take(groups)) & ((1 << search.bits) - 1)
    return Search(low, np.zeros_like(search.room), search.crowded, 0, 0)


def _add_up(counter: I64, amount: I64 | None, counters: int) -> CounterTally:
    if counters <= 8 * len(counter):
        if amount is None:
            total = np.bincount(counter, minlength=counters)
        else:
            total = np.zeros(counters, np.int64)
            np.add.at(total, counter, amount)
        return CounterTally(slice(None), total)
    order = None if amount is None else np.argsort(counter, kind="stable")
    ordered = np.sort(counter.astype(np.uint32)) if order is None else counter[order]
    first = np.flatnonzero(run_starts(ordered))
    if order is None or amount is None:
        return CounterTally(ordered[first], np.diff(np.append(first, len(ordered))))
    return CounterTally(ordered[first], np.add.reduceat(amount[order], first) if len(first) else np.zeros(0, np.int64))


def narrow(search: Search, total: I64) -> Search:
    """What the tallies of all partitions, added up, leave to be found."""
    running = np.cumsum(total.reshape(len(search.low), -1), axis=1)
    over = running > search.room[:, None]
    crowded = search.crowded & over[:, -1]
    digit = np.argmax(over, axis=1)
    before = np.where(digit > 0, running[np.arange(len(digit)), digit - 1], 0)
    bits = search.bits - search.step
    low = np.where(crowded, search.low + (digit << bits), search.low)
    waiting = (running[np.arange(len(digit)), digit] - before) * crowded  # amounts, where rows need more than 1
    return Search(low, np.where(crowded, search.room - before, search.room), crowded, bits, int(waiting.sum()))


def must_be_read(search: Search, bits: int, start: I64, stop: I64) -> Bools:
    """Which of the partitions from row `start` to row `stop` hold rows that the next pass must look at."""
    if search.bits >= bits:
        return np.ones(len(start), np.bool_)
    first = search.low[search.crowded] & ((1 << bits) - 1)
    last = first + (1 << search.bits)
    marks = np.zeros(len(start) + 1, np.int64)
    np.add.at(marks, np.searchsorted(stop, first, side="right"), 1)
    np.add.at(marks, np.searchsorted(start, last, side="left"), -1)
    return np.asarray(np.cumsum(marks)[:-1] > 0)
