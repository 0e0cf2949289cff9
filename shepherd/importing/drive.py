"""WARC files into a database: an existing crawl is taken over, round by round.

The database itself is the memory of an import: what its rows know of already is left out. So a second run of the same files goes
on where the first was killed, and a third finds nothing to do. Read round.py next, then gather.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import uvloop

from shepherd.config import Config
from shepherd.filters import Filter
from shepherd.importing import judge as warcjudge
from shepherd.importing.account import Account, RecordListener, RecordPlace
from shepherd.importing.gather import ROBOTS_FILES, Feed, Options, RoundGathering
from shepherd.importing.reading import ImportFile
from shepherd.importing.round import Nowhere, Round, Settling
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import State

ROWLESS: Final = "robots files of sites without a page"
MOST_BLOCK: Final = 64 << 20  # of a record: what a message can carry, whatever the configuration allows


class Importer:
    """One import. Once `stopping` is set, what has been read is taken in, and nothing more is read."""

    def __init__(self, config: Config, filters: Filter, options: Options, listener: RecordListener, now: int) -> None:
        self._config, self._filters, self._options, self._now = config, filters, options, now
        self.account = Account(listener)
        self.stopping = False

    def run(self, writer: Writer, files: Sequence[ImportFile], new_name: Callable[[], str]) -> None:
        """Take the files in, for the holder of the lock. `new_name` gives names of inbox items."""
        with contextlib.closing(self._feed(files)) as feed:
            self._run(writer, feed, new_name)

    def _run(self, writer: Writer, feed: Feed, new_name: Callable[[], str]) -> None:
        while not feed.ended and not self.stopping:
            settling = Settling(writer, self._config, self._now, new_name, self._options.jobs)
            state = settling.begin()
            with settling.draft() as urls, settling.draft() as documents:
                round_ = Round(urls.harvest, documents.harvest, state.prints, self._filters.version)
                self._gather(state, feed, round_, lambda: documents.harvest.stored_bytes)
                if len(round_) or round_.new:
                    self.account.settled.update(settling.take_in(round_, urls, documents, _TakeBack(self.account, feed)))
            last_name = writer.furthest().name
            if last_name != state.name:
                self.account.states.append(str(last_name))
            store = self._config.store
            writer.prune(store.keep_states, self._now, store.keep_journals, self._config.export.cursors)

    def rehearse(self, state: State, files: Sequence[ImportFile]) -> None:
        """Read and count all, and write nothing. Whether the document of a revisit is known, only the state to be would show."""
        with contextlib.closing(self._feed(files)) as feed:
            while not feed.ended and not self.stopping:
                self._gather(state, feed, Round(Nowhere(), Nowhere(), state.prints, self._filters.version), lambda: 0)

    def _feed(self, files: Sequence[ImportFile]) -> Feed:
        most = min(self._config.fetch.body_bytes + self._config.fetch.header_bytes, MOST_BLOCK)
        return Feed(files, most, self._config.reap)

    def _gather(self, state: State, feed: Feed, round_: Round, stored_bytes: Callable[[], int]) -> None:
        gathering = RoundGathering(state, self._config, self._filters, self._options, self._now, round_, self.account)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(gathering.run(feed, stored_bytes, lambda: self.stopping))
        self.account.new += round_.new
        self.account.links += round_.links.link_count


class _TakeBack:
    """Takes back that records were taken."""

    def __init__(self, account: Account, feed: Feed) -> None:
        self._account, self._feed = account, feed

    def on_rowless(self, place: RecordPlace) -> None:
        self._account.taken_by_kind[ROBOTS_FILES] -= 1
        self._account.leave(place, ROWLESS)

    def on_unknown(self, file: int, offset: int) -> None:
        self._account.taken_by_kind["revisits"] -= 1
        self._account.leave(self._feed.place(offset, file), warcjudge.UNKNOWN_REVISITS)
