"""Who must go where all seats are taken, by a clock of the test's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shepherd.reaper.process.seats import SEATS, SECURE_S, ArrivalSeats


def full_of(owners: list[str]) -> ArrivalSeats:
    """One arrival a second, from these addresses in turn."""
    seats = ArrivalSeats()
    for pid in range(SEATS):
        seats.add(pid, owners[pid % len(owners)], float(pid))
    assert seats.is_full()
    return seats


def test_whoever_has_most_seats_gives_up_the_oldest() -> None:
    seats = full_of(["few", "many", "many"])
    loser = seats.loser("new", SEATS)
    assert loser is not None and (loser.who, loser.pid) == ("many", 1)


def test_oldest_of_all_goes_where_each_has_one() -> None:
    seats = full_of([str(number) for number in range(SEATS)])
    loser = seats.loser("new", SEATS)
    assert loser is not None and loser.pid == 0


def test_newcomer_does_not_drive_out_its_own_burst() -> None:
    seats = ArrivalSeats()
    for pid in range(SEATS):
        seats.add(pid, "burst", 100.0)
    assert seats.loser("burst", 100.0 + SECURE_S / 2) is None
    loser = seats.loser("burst", 100.0 + SECURE_S)
    assert loser is not None and loser.pid == 0
    assert seats.loser("other", 100.0) is not None  # somebody else need not wait


@given(st.lists(st.sampled_from([f"stranger {number}" for number in range(SEATS - 1)]), max_size=200))
def test_only_seat_of_an_address_is_kept_against_strangers_from_fewer_addresses_than_seats(newcomers: list[str]) -> None:
    seats = ArrivalSeats()
    seats.add(0, "honest", 0.0)
    for pid, who in enumerate(newcomers, 1):
        if seats.is_full():
            loser = seats.loser(who, float(pid))
            if loser is None:
                continue
            seats.remove(loser.pid)
        seats.add(pid, who, float(pid))
        assert len(seats) <= SEATS
    assert 0 in seats.pids()
