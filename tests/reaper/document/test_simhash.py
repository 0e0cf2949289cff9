"""The simhash: the same everywhere, near for texts that are near, far for others; and the text it is made of."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.cycle.equiv.rules import near
from shepherd.reaper.document.extract import extract
from shepherd.reaper.document.headers import HeaderFacts
from shepherd.reaper.document.simhash import simhash
from shepherd.reaper.fetch.exchange import ExtractOptions
from tests.support import sampling


def model(text: bytes) -> int | None:
    """The definition, bit by bit."""
    blanks = bytes.maketrans(bytes(range(0x20)), b" " * 0x20)
    words = [word for word in text[:65_536].lower().translate(blanks).split()[:1_024] if len(word) > 3]
    if not words:
        return None
    hashes = []
    for word in words:
        value = sum(byte * pow(0xD6E8FEB86659FD93, place, 1 << 64) for place, byte in enumerate(word, 1)) % (1 << 64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            value = (value ^ value >> shift) * factor % (1 << 64)
        hashes.append(value ^ value >> 31)
    return sum(1 << bit for bit in range(64) if 2 * sum(h >> bit & 1 for h in hashes) > len(hashes))


@settings(max_examples=sampling.examples(100), deadline=None)
@given(st.lists(st.binary(max_size=8), max_size=700))
def test_simhash_agrees_with_its_definition(words: list[bytes]) -> None:
    text = b" ".join(words)
    assert simhash(text) == model(text)
    assert simhash(text * 9) == model(text * 9)


def test_a_text_of_long_words_is_read_on_until_it_has_enough_of_them() -> None:
    words = [b"%030d" % n for n in range(1_500)]
    for count in (300, 400, 1_024, 1_025, 1_500):
        assert simhash(b"\n".join(words[:count])) == model(b"\n".join(words[:count]))


def test_simhash_is_the_same_on_every_machine() -> None:
    assert simhash(b"The shepherd counts the sheep before the gate is closed") == 0xA5000C840CC054E1
    assert simhash("Der Schäfer zählt die Schafe".encode()) == 0xC8902F67F35529E6
    assert simhash(b"a bc def") is None
    assert simhash(b"") is None


def prose(seed: int, words: int) -> list[str]:
    rng = random.Random(seed)
    return [f"word{min(int(rng.paretovariate(0.7)), 5_000)}" for _ in range(words)]


def test_a_few_changed_words_leave_it_near_and_another_text_does_not() -> None:
    text = prose(1, 800)
    first = simhash(" ".join(text).encode())
    changed = simhash(" ".join([*text[:400], "today", "is", "tuesday", *text[402:]]).encode())
    other = simhash(" ".join(prose(2, 800)[:50] + [f"other{n}" for n in range(700)]).encode())
    assert first is not None and changed is not None and other is not None
    assert near(first, changed)
    assert not near(first, other)


def test_a_long_text_is_near_to_itself_with_something_inserted() -> None:
    text = prose(5, 20_000)
    whole = simhash(" ".join(text).encode())
    longer = simhash(" ".join(["breaking", "news", *text]).encode())
    assert whole is not None and longer is not None
    assert near(whole, longer)


def of(html: str, header: str = "text/html") -> int | None:
    return extract(html.encode(), HeaderFacts(header), "http://a.example/", ExtractOptions(100)).simhash


def test_only_what_a_reader_sees_counts() -> None:
    seen = " ".join(prose(3, 100))
    plain = of(f"<html><head><title>x</title></head><body><p>{seen}</p></body>")
    assert plain == of(
        f"<body><script>changing stuff {seen[:50]}</script><p>{seen}</p><style>more stuff</style><!-- hidden words -->"
    )
    assert plain == of(f"<head><script>words inside</script></head><body class=more><div title='words here'>{seen}")
    assert plain == of(f"<body><svg><style><script>first second</script></style></svg>{seen}</body>")
    assert plain == of(seen, "text/plain")
    assert of("<body><script>only hidden words</script>") is None
    assert of(f"%PDF-{seen}", "application/pdf") is None


def test_a_page_without_a_tree_has_nearly_the_same() -> None:
    html = "<body>" + "".join(f"<p>{word}</p><script>hidden{n}</script>" for n, word in enumerate(prose(4, 2_000)))
    tame, wild = of(html), of(html + "<br>" * 10_000)
    assert tame is not None and wild is not None
    assert near(tame, wild)
