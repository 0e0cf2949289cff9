"""The table of contacts that databases of a machine share: by a clock of the test's own, and in files as others leave them."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.errors import ConfigError
from shepherd.politeness import shared_contacts
from shepherd.politeness.shared_contacts import CHECK_MS, CLAIM_MS, FILE, LOCKED_MS, LOOK_MS, SharedContacts
from shepherd.urls import qkey_of_address
from tests.support import sampling
from tests.support.waiting import PATIENCE_S

SERVER, OTHER = qkey_of_address("192.0.2.7"), qkey_of_address("192.0.2.8")
DELAY_MS, LEASE_MS = 10_000, 25_000
Make = Callable[..., SharedContacts]


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Iterator[Make]:
    """Another database's view of the table."""
    views: list[SharedContacts] = []

    def one(*, with_loopback: bool = True) -> SharedContacts:
        views.append(SharedContacts(tmp_path / "shared", len(views) + 1, clock, with_loopback=with_loopback))
        return views[-1]

    yield one
    for view in views:
        view.close()


def take(view: SharedContacts, qkey: int = SERVER, delay_ms: int = DELAY_MS) -> int:
    return view.take(qkey, delay_ms, LEASE_MS)


def test_server_is_asked_by_one_database_at_a_time_with_the_delay_between(make: Make, clock: Clock) -> None:
    a, b = make(), make()
    assert take(a) == 0 and take(b, OTHER) == 0
    assert take(b) == LOOK_MS
    clock.now_ms += 300
    a.end(SERVER, True, DELAY_MS)
    assert take(b) == DELAY_MS + 1
    clock.now_ms += DELAY_MS
    assert take(b) == 1
    clock.now_ms += 1
    assert take(b) == 0 and take(a) == LOOK_MS


def test_own_contacts_are_left_to_the_own_engine(make: Make) -> None:
    a = make()
    assert [take(a) for _ in range(3)] == [0, 0, 0]  # a server with several slots
    a.end(SERVER, True, DELAY_MS)
    assert take(a) == 0


def test_longer_of_two_delays_holds_and_what_a_server_asked_for(make: Make, clock: Clock) -> None:
    a, b, c = make(), make(), make()
    take(a)
    a.end(SERVER, True, 60_000)
    assert take(b, delay_ms=1_000) == 60_001
    assert take(c, delay_ms=90_000) == 90_001


def test_lease_under_which_nobody_was_contacted_leaves_no_wait(make: Make) -> None:
    a, b = make(), make()
    take(a)
    a.end(SERVER, False, DELAY_MS)
    assert take(b) == 0


def test_lease_of_a_dead_database_ends_with_its_deadline_and_its_delay(make: Make, clock: Clock) -> None:
    a, b = make(), make()
    take(a)
    a.extend(SERVER, 40_000)
    clock.now_ms += 39_999
    assert take(b) == 1
    clock.now_ms += 1
    assert take(b) == DELAY_MS
    clock.now_ms += DELAY_MS
    assert take(b) == 0


def test_two_that_want_the_same_server_take_turns(make: Make, clock: Clock) -> None:
    a, b = make(), make()
    turns: list[SharedContacts] = []
    at_ms = {a: 0, b: 0}  # when each tries again
    while len(turns) < 20:
        for view in (a, b):  # the first always comes first, and is ready as soon as its own delay is over
            if clock.now_ms < at_ms[view]:
                continue
            wait_ms = take(view)
            if wait_ms:
                at_ms[view] = clock.now_ms + wait_ms
                continue
            turns.append(view)
            clock.now_ms += 50
            view.end(SERVER, True, DELAY_MS)
            at_ms[view] = clock.now_ms + DELAY_MS
        clock.now_ms += 1
    assert all(one is not after for one, after in pairwise(turns))


def test_turn_of_one_that_does_not_come_is_lost(make: Make, clock: Clock) -> None:
    a, b = make(), make()
    take(a)
    a.end(SERVER, True, DELAY_MS)
    wait_ms = take(b)
    clock.now_ms += DELAY_MS
    assert take(a) == wait_ms - DELAY_MS + CLAIM_MS
    clock.now_ms += wait_ms - DELAY_MS + CLAIM_MS
    assert take(a) == 0


def test_table_that_somebody_holds_keeps_nobody_waiting_and_loses_nothing(make: Make, tmp_path: Path, clock: Clock) -> None:
    a, b = make(), make()
    take(a)
    with (tmp_path / "shared" / FILE).open("rb") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        assert take(b, OTHER) == LOCKED_MS
        a.end(SERVER, True, DELAY_MS)
    assert take(b) == LOOK_MS  # the end was not said yet
    assert take(a, OTHER) == 0
    assert take(b) == DELAY_MS + 1


def test_table_that_was_removed_is_made_anew_and_found_by_all(make: Make, tmp_path: Path, clock: Clock) -> None:
    a, b = make(), make()
    (tmp_path / "shared" / FILE).unlink()
    clock.now_ms += CHECK_MS
    assert take(a) == 0
    assert take(b) == LOOK_MS


def test_table_of_an_earlier_start_of_the_machine_is_void(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    take(make())
    (tmp_path / "boot").write_text("01234567-89ab-cdef-0123-456789abcdef\n")
    monkeypatch.setattr(shared_contacts, "BOOT_ID", tmp_path / "boot")
    assert take(make()) == 0


def test_loopback_counts_only_in_a_directory_that_was_named(make: Make) -> None:
    a, b = make(with_loopback=False), make(with_loopback=False)
    for address in ("127.0.0.1", "127.9.8.7", "::1"):
        assert take(a, qkey_of_address(address)) == take(b, qkey_of_address(address)) == 0
    assert take(a) == 0 and take(b) == LOOK_MS


def test_directory_that_everybody_can_write_to_or_another_user_owns_is_refused(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / FILE).symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / FILE)
    for name in ("open", "link", "file", "full", "pipe", "fifo", "missing/below"):
        with pytest.raises(ConfigError, match=r"\[politeness\] shared|remove it"):
            SharedContacts(tmp_path / name, 1, clock, with_loopback=True)
    assert (tmp_path / "file").read_text() == ""


def test_unusable_directory_of_the_user_is_reported_and_a_named_one_refused(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setattr(shared_contacts, "DEFAULT", str(tmp_path / "open"))
    assert shared_contacts.of_machine(None, 1, clock) is None
    assert "not everybody can write to" in caplog.text
    with pytest.raises(ConfigError):
        shared_contacts.of_machine(tmp_path / "open", 1, clock)


def test_table_whose_place_is_spoilt_is_kept(make: Make, tmp_path: Path, clock: Clock) -> None:
    a, b = make(), make()
    (tmp_path / "shared" / FILE).unlink()
    (tmp_path / "shared" / FILE).mkdir()
    clock.now_ms += CHECK_MS
    assert take(a) == 0
    assert take(b) == LOOK_MS


@pytest.mark.parametrize("mode", [0o700, 0o770])
def test_table_is_for_those_who_may_write_into_its_directory(tmp_path: Path, clock: Clock, mode: int) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours").chmod(mode)
    SharedContacts(tmp_path / "ours", 1, clock, with_loopback=True).close()
    assert (tmp_path / "ours" / FILE).stat().st_mode & 0o777 == mode & 0o666


@settings(max_examples=sampling.examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["take", "end", "unasked", "die", "pass"])), max_size=120))
def test_no_two_databases_ask_too_soon_whatever_they_do(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    clock, directory = Clock(), tmp_path_factory.mktemp("table") / "shared"
    numbers = iter(range(1, 1_000))
    views = [SharedContacts(directory, next(numbers), clock, with_loopback=True) for _ in range(3)]
    begun: dict[int, int] = {}  # when each that asks now has begun
    last_ms, last = 0, -1  # the last end, and whose it was; one that dies may have ended as late as its lease
    for who, step in steps:
        clock.now_ms += 700
        if step == "take" and who not in begun and not take(views[who]):
            assert not begun, "two ask at once"
            assert who == last or clock.now_ms >= last_ms + DELAY_MS
            begun[who] = clock.now_ms
        elif step in ("end", "unasked") and who in begun:
            views[who].end(SERVER, step == "end", DELAY_MS)
            if step == "end":
                last_ms, last = clock.now_ms, who
            del begun[who]
        elif step == "die":
            if who in begun:
                last_ms = begun.pop(who) + LEASE_MS
                last = -1
            elif last == who:
                last = -1
            views[who].close()
            views[who] = SharedContacts(directory, next(numbers), clock, with_loopback=True)
        elif step == "pass":
            clock.now_ms += DELAY_MS // 2
        if begun and clock.now_ms >= next(iter(begun.values())) + LEASE_MS:  # the engine's lease is over
            (late,) = begun
            views[late].end(SERVER, True, DELAY_MS)
            last_ms, last = clock.now_ms, late
            begun.clear()
    for view in views:
        view.close()


KILLED = """
import os, sys, time
from pathlib import Path
from shepherd.politeness.shared_contacts import SharedContacts
view = SharedContacts(Path(sys.argv[1]), 77, lambda: time.monotonic_ns() // 1_000_000, with_loopback=True)
print(view.take(int(sys.argv[2]), 10_000, 600_000), flush=True)
os.kill(os.getpid(), 9)
"""


def test_lease_outlives_its_killed_process_until_its_deadline(make: Make, tmp_path: Path, clock: Clock) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "shared"), str(SERVER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.stdout, done.returncode) == ("0\n", -signal.SIGKILL), done.stderr
    view = make()
    clock.now_ms = 0  # before the lease, whatever the clock of the machine shows
    assert take(view) == LOOK_MS
