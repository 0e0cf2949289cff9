"""A reaper that lies in every field: nothing that it makes up gets past the verifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from shepherd.dispatch.verify import Answer
from shepherd.errors import BadUrl, Corruption
from shepherd.formats import bucket, contrib
from shepherd.formats.journal import LAYOUT, Entry
from shepherd.formats.tables import JOURNAL, Result
from shepherd.wire import messages as wire
from tests.dispatch import results as answers
from tests.dispatch.results import ASKED, ASKED_MS, ITEM, NOW_MS, PRINTS, a_block, a_bucket, a_result
from tests.support import sampling

Draw = Callable[[st.SearchStrategy[Any]], Any]
BYTES = st.binary(max_size=200)


def number(name: str) -> st.SearchStrategy[int]:
    info = np.iinfo(JOURNAL[name])
    return st.one_of(st.integers(int(info.min), int(info.max)), st.integers(0, 12))


@st.composite
def lied_records(draw: Draw) -> Entry:
    lies = draw(st.dictionaries(st.sampled_from(Entry._fields), st.none(), max_size=4))
    return answers.RECORD._replace(**{name: draw(number(name)) for name in lies})


@st.composite
def lied_blocks(draw: Draw) -> bytes:
    block = a_block()
    for name in draw(st.sets(st.sampled_from([field.name for field in dataclasses.fields(block)]), max_size=2)):
        value = getattr(block, name)
        if isinstance(value, np.ndarray):
            top = int(np.iinfo(value.dtype).max)
            changed: Any = np.array([draw(st.one_of(st.just(one), st.integers(0, top))) for one in value.tolist()], value.dtype)
        elif isinstance(value, list):
            changed = [draw(st.one_of(st.just(one), st.binary(max_size=30))) for one in value]
        else:
            changed = draw(st.integers(0, (1 << 64) - 1))
        block = dataclasses.replace(block, **{name: changed})
    data = contrib.encode(block)
    lied: bytes = draw(st.one_of(st.just(data), flipped(data)))
    return lied


def flipped(data: bytes) -> st.SearchStrategy[bytes]:
    """The same bytes but for one."""
    return st.builds(
        lambda at, bits: data[:at] + bytes((data[at] ^ bits,)) + data[at + 1 :],
        st.integers(0, len(data) - 1),
        st.integers(1, 255),
    )


LIED_BUCKETS = st.one_of(
    st.just(a_bucket()),
    st.just(b""),
    flipped(a_bucket()),
    st.builds(
        lambda site, path, state, time_ms, url: a_bucket(
            site=site, path=path, state=state, time_ms=time_ms, attributes=[("U", url), ("D", answers.DIGEST)]
        ),
        *(st.one_of(st.just(value), st.integers(0, (1 << 32) - 1)) for value in (ITEM.site, ITEM.path, answers.STATE, ASKED_MS)),
        st.one_of(st.just(answers.URL.href.encode()), BYTES),
    ),
)
MESSAGES = st.one_of(
    st.builds(
        lambda record, stored, links, location, rules, status: wire.FetchResult(
            1, record.pack(), stored, links, location, rules, status, b"", 0, 0
        ),
        lied_records(),
        LIED_BUCKETS,
        st.one_of(st.just(b""), lied_blocks(), BYTES),
        st.one_of(st.just(""), st.text(max_size=40)),
        st.one_of(st.just(b""), BYTES),
        st.one_of(st.just(0), st.integers(0, 65_535)),
    ),
    st.builds(lambda record: structs.replace(a_result(), record=record), st.binary(min_size=100, max_size=LAYOUT.size)),
)


def is_sound(answer: Answer, written: list[bytes]) -> None:
    """Whatever is believed could have been written by an honest reaper that was asked this."""
    record = answer.record
    assert (record.norm, record.path, record.site, record.kind) == (ITEM.norm, ITEM.path, ITEM.site, ITEM.kind)
    assert ASKED_MS <= record.start_ms <= record.end_ms <= NOW_MS
    assert (record.qkey, record.reaper) == (answers.QKEY, 4)
    Result(record.result)
    if answer.bucket:
        found = bucket.parse(answer.bucket)
        assert found.url == answers.URL.href and found.header.length == len(answer.bucket)
        assert (found.header.site, found.header.path, found.header.state) == (ITEM.site, ITEM.path, answers.STATE)
    for data in written:
        block = contrib.decode(data)
        names = dict(zip(block.sites.tolist(), block.names, strict=True))
        for site, norm, path, text in zip(
            block.site.tolist(), block.norm.tolist(), block.path.tolist(), block.texts, strict=True
        ):
            name = names[site].decode("ascii")
            assert (PRINTS.norm(name), PRINTS.half(text.decode("ascii")), PRINTS.half(name)) == (norm, path, site)
        assert int(block.parent_weight.max()) <= ITEM.weight
        assert (block.parents_site.tolist(), block.parents_path.tolist()) == ([ITEM.site], [ITEM.path])


@settings(max_examples=sampling.examples(400), deadline=None)
@given(MESSAGES)
def test_lie_is_refused_or_harmless(message: wire.FetchResult) -> None:
    written: list[bytes] = []
    verifier, contributions = answers.a_verifier(written)
    try:
        answer = verifier.checked(message, ASKED, 4, NOW_MS)
    except (Corruption, BadUrl):
        return
    if answer.links is not None:
        contributions.add(answer.links.block, answer.links.rows, answer.links.texts)
    contributions.flush()
    is_sound(answer, written)


def test_honest_answer_is_written_down() -> None:
    written: list[bytes] = []
    verifier, contributions = answers.a_verifier(written)
    answer = verifier.checked(a_result(), ASKED, 4, NOW_MS)
    assert answer.links is not None
    contributions.add(answer.links.block, answer.links.rows, answer.links.texts)
    contributions.flush()
    is_sound(answer, written)
    assert contrib.decode(written[0]).texts == a_block().texts
