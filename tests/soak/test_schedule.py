"""The schedule of the soak: the same for the same seed, and with something of everything in it."""

from __future__ import annotations

from itertools import pairwise

from tests.soak.schedule import HOW_OFTEN, What, schedule


def test_seed_and_length_decide_what_happens() -> None:
    assert schedule(1, 300) == schedule(1, 300)
    assert schedule(1, 300) != schedule(2, 300)


def test_soak_of_two_minutes_has_something_of_everything() -> None:
    for seed in range(20):
        found = schedule(seed, 120)
        assert {event.what for event in found} == set(What)
        assert found == sorted(found, key=lambda event: event.at_s)
        kills = [event.at_s for event in found if event.what is What.KILL]
        assert max(later - earlier for earlier, later in pairwise(kills)) <= HOW_OFTEN[What.KILL].gap_s[1]
