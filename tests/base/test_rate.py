"""Token buckets: never more in any second than the rate, and no saving up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.rate import ReapLimits, TokenBucket
from tests.support import sampling


@settings(max_examples=sampling.examples(200), deadline=None)
@given(st.floats(0.5, 50), st.lists(st.integers(0, 700), min_size=1, max_size=60))
def test_no_second_exceeds_the_rate(rate: float, steps: list[int]) -> None:
    now_ms, taken = 1_000, []
    bucket = TokenBucket(rate, now_ms)
    for step_ms in steps:
        now_ms += step_ms
        while not bucket.wait_ms(now_ms):
            bucket.take(now_ms)
            taken.append(now_ms)
    for begin in taken:
        # a bucket that was full gives a second's worth at once, and what comes in meanwhile
        assert sum(begin <= at < begin + 1_000 for at in taken) <= 2 * max(rate, 1) + 1


def test_wait_is_as_long_as_needed_and_no_longer() -> None:
    bucket = TokenBucket(4, 0)
    for _ in range(4):
        assert bucket.wait_ms(0) == 0
        bucket.take(0)
    assert bucket.wait_ms(0) == 250
    assert bucket.wait_ms(249) == 1
    assert bucket.wait_ms(250) == 0


def test_as_many_are_affordable_as_may_be_taken_one_by_one() -> None:
    limits = ReapLimits(4, 1_000, 0, now_ms=0)
    assert limits.affordable(0) == 4
    for _ in range(4):
        assert limits.wait_ms(0) == 0
        limits.charge_page(0)
    assert limits.affordable(0) == 0 and limits.wait_ms(0) == 250
    assert limits.affordable(500) == 2
    limits.charge_bytes(500, 5_000)
    assert limits.affordable(500) == 0, "bytes are owed"


def test_bytes_are_charged_after_they_arrive() -> None:
    limits = ReapLimits(0, 1_000, 0, now_ms=0)
    assert limits.wait_ms(0) == 0
    limits.charge_bytes(0, 5_000)
    assert limits.wait_ms(0) == 4_000
    assert limits.wait_ms(4_000) == 0


def test_connections_and_no_limits() -> None:
    limits = ReapLimits(0, 0, 3, now_ms=0)
    assert [limits.room(n, free=9) for n in (0, 2, 3, 4)] == [3, 1, 0, 0]
    assert limits.room(1, free=1) == 1
    limits = ReapLimits(0, 0, 0, now_ms=0)
    for _ in range(1000):
        limits.charge_page(0)
        limits.charge_bytes(0, 1 << 30)
    assert limits.wait_ms(0) == 0 and limits.room(10**6, free=7) == 7 and limits.affordable(0) > 10**6
