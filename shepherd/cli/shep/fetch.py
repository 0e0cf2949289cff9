"""shep fetch: ask for one document by hand, as politely as a reap would, and show what came; nothing is stored."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shepherd.config import Config
from shepherd.console import common, shared
from shepherd.errors import BadUrl, NothingToDo, UsageError

if TYPE_CHECKING:
    from shepherd.dispatch.single import Learnt, NotYet, Story
    from shepherd.filters import Filter
    from shepherd.politeness.manual import ManualContacts
    from shepherd.politeness.shared_contacts import SharedContacts
    from shepherd.store.state.database import Database, Writer
    from shepherd.store.state.directory import State
    from shepherd.urls import Url

SILENCE_MS: Final = 60_000
OWN_WAIT_S: Final = 60  # between robots.txt and the page, without --wait


@click.command("fetch")
@click.argument("url_text", metavar="URL")
@click.option("--wait", is_flag=True, help="Wait as long as politeness demands, instead of giving up.")
@common.database
@common.configured
@common.jsonable
@common.standard
def command(url_text: str, wait: bool, db: Path, config: Config, as_json: bool) -> None:
    """Fetch one document and show it, without storing it. The output has its status, headers and timings, what robots.txt says,
    and the links that would be followed.

    It does what a reap does: the guard, robots.txt (the stored file if that is fresh; else it is fetched first), the server's
    delay and next contact. It takes the lock, so during a reap it exits with status 3. It leaves a note in the inbox, so that the
    next reap does not ask the server too soon.

    If the server may not be asked yet, it exits with status 4, and prints from when on it may be; with --wait it waits, without
    the lock. Between robots.txt and the page it waits up to 60 seconds in any case. Exit status 4 also if robots.txt denies the
    URL or its host has no address that may be asked, 20 if the server gave no answer that can be used.

    \b
    Examples:
      shep fetch https://example.org/
      shep fetch --wait --json https://example.org/ | jq -r .links[]
    """
    from shepherd import urls
    from shepherd.filters import load_filter
    from shepherd.store.state.database import Database

    filters = load_filter(config.filter_path)
    try:
        url = urls.parse(filters.strip(shared.parse_given(url_text).href))
    except BadUrl as error:
        raise UsageError(f"{shared.redact(url_text)}: {error}") from None
    from shepherd.dispatch.reap import shared_contacts

    story, learnt = _Errand(Database(db), config, filters, url, wait, shared_contacts(config)).run()
    from shepherd.cli.shep import fetch_show as shep_fetch_show

    shep_fetch_show.show(story, learnt, filters, config, as_json)


@dataclass(frozen=True)
class _Errand:
    database: Database
    config: Config
    filters: Filter
    url: Url
    wait: bool
    shared: SharedContacts | None

    def run(self) -> tuple[Story, Learnt]:
        """Try until the server may be asked, or say when it may. Nothing is waited for under the lock, but for what a cut-off
        reap leaves unknown: while somebody else holds the lock, that starts anew."""
        from shepherd.dispatch.single import Learnt, NotYet

        learnt = Learnt()
        while True:
            with self.database.writing("shep fetch") as writer:
                try:
                    return self._attempt(writer, learnt), learnt
                except NotYet as later:
                    pause_s = self._pause_s(later, learnt)
            time.sleep(pause_s)

    def _attempt(self, writer: Writer, learnt: Learnt) -> Story:
        import asyncio

        import uvloop

        from shepherd.clock import read_clock, steady_clock_ms
        from shepherd.dispatch.single import NotYet
        from shepherd.politeness.manual import ManualContacts

        state, clock = writer.furthest(), steady_clock_ms()
        contacts = ManualContacts(self.database, state, self.config, clock, read_clock(), self.shared)
        while True:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                try:
                    return runner.run(_ask(self, state, contacts, clock, learnt))
                except NotYet as later:
                    if not later.ready.unsure:
                        raise
                    time.sleep(self._pause_s(later, learnt))

    def _pause_s(self, later: NotYet, learnt: Learnt) -> float:
        """How long to wait; NothingToDo where that is too long to be waited for unasked."""
        left_s = max(later.ready.at_ms / 1000 - time.time(), 0.01)
        if not self.wait and not (learnt.robots and left_s <= OWN_WAIT_S):
            when = shared.moment(math.ceil(later.ready.at_ms / 1000), int(time.time()))
            unsure = (
                "; a reap was cut off, or the clock was set, so it is unknown when it was last asked"
                if later.ready.unsure
                else ""
            )
            raise NothingToDo(
                f"{later.address}, the server of {later.url}, may be asked from {when} on{unsure}: ask again then, or give --wait"
            )
        common.LOG.info("waiting %.1f s until %s, the server of %s, may be asked", left_s, later.address, later.url)
        return left_s


async def _ask(errand: _Errand, state: State, contacts: ManualContacts, clock: Callable[[], int], learnt: Learnt) -> Story:
    from msgspec.structs import replace

    from shepherd.dispatch import reaper_sources as sources
    from shepherd.dispatch.reap import hello
    from shepherd.dispatch.reapers import Reaper
    from shepherd.dispatch.single import Single

    reapd = sources.local(errand.config.reap)
    silence_ms = round(errand.config.fetch.timeout_s * 1000) + SILENCE_MS  # we say nothing while it fetches
    try:
        peer = await reapd.connect()
        greeting = hello(state, errand.config, errand.filters)
        await Reaper.greet(0, peer, replace(greeting, silence_ms=silence_ms), clock)
        try:
            return await Single(peer, state, errand.config, errand.filters, contacts, clock).ask(errand.url, learnt)
        finally:
            await peer.close("that was all")
    finally:
        reapd.stop()
