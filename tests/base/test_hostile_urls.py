"""Hostile URLs: the cases of the web platform, and shapes made to hurt, altered at random. A URL or BadUrl, and nothing else."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shepherd import urls
from shepherd.errors import BadUrl
from shepherd.filters import parse_filter
from tests.support import sampling

FILTER = parse_filter("reject ext jpg\nreject repeats 3\nreject depth 20\nstrip utm_* sid\n")
FOOTPRINTS = urls.Footprints(bytes(range(16)))
LONG = 1_000_000
SHAPES = (
    "http://" + "a." * LONG + "example/",
    "http://" + "a" * LONG + "/",
    "http://a.example/" + "/.." * LONG,
    "http://a.example/" + "%2e%2e/" * LONG,
    "http://a.example/" + "a/" * LONG,
    "http://a.example/?" + "&" * LONG,
    "http://a.example/?" + "utm_x=1&" * LONG,
    "http://a.example/" + "%25" * LONG,
    "http://a.example/" + "é" * LONG,
    "http://" + "@" * LONG + "a.example/",
    "http://a.example:" + "0" * LONG + "80/",
    "http://" + "9" * LONG + "/",
    "http://[" + ":" * LONG + "]/",
    "http://xn--" + "9" * LONG + "/",
    "http://" + "ß" * 60_000 + ".example/",
    "http://" + "\u0300" * 60_000 + ".example/",
    "\t\n\r" * LONG + "http://a.example/",
    "\\" * LONG,
    "#" + "x" * LONG,
    "http:" * LONG,
)
PIECES = ("/", "\\", "//", "..", "%2e", "%", "%00", "@", ":", "?", "#", "[", "]", "xn--", "\0", "\t", "\n", " ", "\x7f", "\x85",
          "\u202e", "\u3002", "ﬃ", "ß", "\ud800", "\U0001f411", "0x7f", "0177", "1e9", "4294967295", "::ffff:", "http:",
          "javascript:", "a" * 70, "a." * 130, "x" * 2_100)  # fmt: skip


@dataclass
class Score:
    """How many were tried, their outcome, and the longest that one took."""

    tried: int = 0
    taken: int = 0
    longest_s: float = 0.0


def cases(suite: Path) -> list[tuple[str, str]]:
    """Base and link of each case of the web platform that is text in UTF-8 or not."""
    found = json.loads((suite / "urltestdata.json").read_text(encoding="utf-8"))
    return [(case["base"] or "http://a.example/", case["input"]) for case in found if not isinstance(case, str)]


def hostile(suite: Path, altered: int, seed: int = sampling.SEED) -> Iterator[tuple[str, str]]:
    known = cases(suite)
    yield from known
    yield from (("http://a.example/dir/page", shape) for shape in SHAPES)
    dice = random.Random(seed)
    for _ in range(altered):
        base, link = dice.choice(known)
        for _ in range(dice.randint(1, 4)):
            at = dice.randint(0, len(link))
            link = link[:at] + dice.choice(PIECES) + link[at + dice.randint(0, 2) :]
        yield base, link


def try_all(links: Iterator[tuple[str, str]]) -> Score:
    score = Score()
    for base, link in links:
        begin = time.perf_counter()
        for attempt in (lambda: urls.parse(link), lambda: urls.join(base, link)):  # noqa: B023
            score.taken += judged(attempt)
        try:
            urls.batch(base, [link], FOOTPRINTS, FILTER.clean)
        except BadUrl:
            judge_base(base)
        score.longest_s = max(score.longest_s, time.perf_counter() - begin)
        score.tried += 1
    return score


def judge_base(base: str) -> None:
    """A batch refuses what it is relative to, never what is in it."""
    try:
        urls.parse(base)
    except BadUrl:
        return
    raise AssertionError(f"a link of {base!r} spoilt its batch")


def judged(attempt: Callable[[], urls.Url]) -> bool:
    """Whether it is a URL; if so, one that is safe to store, to send and to show."""
    try:
        url = attempt()
    except BadUrl as error:
        assert len(str(error)) < 5_000
        return False
    assert len(url.href) <= urls.MAX_URL_BYTES
    assert url.href.isascii() and url.href.isprintable() and not set(" <>#") & set(url.href)
    assert url.href.startswith(("http://", "https://")) and "@" not in url.site
    assert urls.parse(url.href, strict=True) == url
    return True


def test_hostile_urls_are_a_url_or_a_reason_and_nothing_else(suites: Callable[[str], Path], crash_sweep: bool) -> None:
    score = try_all(hostile(suites("url"), 200_000 if crash_sweep else 20_000))
    print(f"{score.tried:,} hostile URLs, {score.taken:,} times taken for one; the longest took {1000 * score.longest_s:.1f} ms")
    assert score.tried > 20_800 and score.taken > 5_000
