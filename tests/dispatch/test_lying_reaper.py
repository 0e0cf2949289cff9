"""A reaper that lies in every field: nothing that it makes up gets past the verifier."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from shepherd.config import FetchLimits
from shepherd.dispatch import reapers
from shepherd.dispatch.attribute_judges import JUDGES
from shepherd.dispatch.contribute import Contributions
from shepherd.dispatch.exchanges import Exchanges
from shepherd.dispatch.ledger import Ledger
from shepherd.dispatch.reapers import Reaper
from shepherd.dispatch.verify import Answer, Verifier
from shepherd.errors import BadUrl, Corruption
from shepherd.formats import bucket, contrib
from shepherd.formats.attributes import TABLE
from shepherd.formats.journal import LAYOUT, Entry
from shepherd.formats.tables import JOURNAL, Result
from shepherd.store.check import check
from shepherd.store.state.database import Database
from shepherd.store.state.harvest import Harvest
from shepherd.urls import Footprints, is_address_of, qkey_of_address
from shepherd.wire import messages as wire
from tests.crash import cycle_steps
from tests.dispatch import lies
from tests.dispatch import results as answers
from tests.dispatch.lies import Truth
from tests.dispatch.results import ASKED, ASKED_MS, ITEM, NOW_MS, PRINTS, a_block, a_bucket, a_result
from tests.support import sampling
from tests.support.harvests import begin, run

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


# --- one lie per field and attribute, by their tables ---------------------------------------------------------------

HREF = "http://a.example/{}"
LEADS_TO = "http://b.example/there"
LIE_MS = cycle_steps.NOW * 1000
MOST_LIES = 16  # of a group: every flag


def truths(href: str, prints: Footprints, state: int) -> Iterator[Truth]:
    """A document and a redirect."""
    for leads_to in ("", LEADS_TO):
        yield lies.truth(href, prints, state, 0, LIE_MS, leads_to)


def believed(verifier: Verifier, one: Truth, message: wire.FetchResult) -> Answer | None:
    try:
        return verifier.checked(message, one.request, 4, LIE_MS)
    except Corruption:
        return None


def a_judge() -> Verifier:
    contributions = Contributions(lambda _records, _block: None, 0)
    return Verifier(answers.KEY, 7, 0, FetchLimits(), contributions)


def test_every_attribute_of_the_table_has_a_judge_or_no_reaper_writes_it() -> None:
    assert set(JUDGES) | {"R"} == {letter for letter, attribute in TABLE.items() if not attribute.old}


def test_honest_document_and_redirect_with_every_attribute_hold() -> None:
    written = set()
    for one in truths(HREF.format(1), PRINTS, 7):
        assert believed(a_judge(), one, one.message()) is not None
        written |= set(one.attributes)
    assert written | {"X", "P"} == set(JUDGES), "a lie in an attribute is judged beside honest ones"


@pytest.mark.parametrize("letter", lies.LETTERS)
def test_attribute_that_cannot_be_one_is_refused(letter: str) -> None:
    for one in truths(HREF.format(1), PRINTS, 7):
        accepted = [bucket.parse(answer.bucket).attributes.get(letter) for message in lies.attribute_lies(one, letter)
                    if (answer := believed(a_judge(), one, message)) is not None]  # fmt: skip
        texts = [text for text in accepted if text is not None]
        if letter == "H":  # lines of anything, as they came
            assert max(map(len, texts)) < 1 << 16
        elif letter in "StE":  # one line of anything
            assert not any(b"\n" in text or len(text) > 1 << 16 for text in texts)
        else:  # numbers may be any that are as wide as they must be
            width = TABLE[letter].unit if letter in TABLE else 0
            assert [text for text in texts if not width or len(text) % width] == []


def test_redirect_is_believed_only_in_our_spelling() -> None:
    one = lies.truth(HREF.format(1), PRINTS, 7, 0, LIE_MS, LEADS_TO)
    for message in lies.message_lies(one, "location"):
        assert believed(a_judge(), one, message) is None
    assert believed(a_judge(), one, one.message(location="")) is not None  # a filter of the reaper rejects where it leads


def test_address_with_anything_behind_it_is_refused() -> None:
    for address in ("192.0.2.7", "2001:db8::1"):
        assert is_address_of(address, qkey_of_address(address))
    for text in ("192.0.2.7\n", "fe80::1%\n", "2001:DB8::1", "192.0.2.007", "", "x", "x" * 65_536):
        assert not is_address_of(text, qkey_of_address("fe80::1"))
        assert not is_address_of(text, qkey_of_address("2001:db8::1"))
        assert not is_address_of(text, qkey_of_address("192.0.2.7"))


def test_database_is_sound_after_every_lie(tmp_path: Path) -> None:
    """What was believed goes through cork, merge, select and record; a lie that gets so far must do no harm."""
    db = begin(tmp_path / "db", (HREF.format(0),))
    state = Database(db).closed()
    harvest = Harvest(tmp_path / "source", cycle_steps.SEGMENT_BYTES << 10)
    contributions = Contributions(harvest.contribute, 0)
    verifier = Verifier(state.control.key, state.number, 0, FetchLimits(), contributions)
    ledger = Ledger(harvest, contributions, lambda _record, _name: None, lambda _item, _record: None)
    count = refused = 0
    for number, group, place in itertools.product(range(MOST_LIES), lies.GROUPS, (0, 1)):
        # Each lie is about a URL of its own: of several records of one URL only the newest counts.
        one = list(truths(HREF.format(count), state.prints, state.number))[place]
        message = next(itertools.islice(group(one), number, None), None)
        if message is not None:
            answer, count = believed(verifier, one, message), count + 1
            if answer is None:
                refused += 1
            else:
                ledger.settle(one.request.item, answer, "a.example")
    contributions.flush()
    harvest.end(LIE_MS)
    Database(db).inbox.drop_harvest(cycle_steps.ITEM.format(7), tmp_path / "source")
    corked = run(db, "cork")
    assert "refused harvests" not in corked.report()
    run(db, "merge", "select", "record")
    assert [fault for fault in check.walk(Database(db)) if not fault.note] == []
    assert refused > count // 2 > 200


# --- what a reaper can make us hold ---------------------------------------------------------------------------------


def test_answers_that_nobody_works_on_hold_up_their_reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    size, most = 1 << 18, 1 << 20
    monkeypatch.setattr(reapers, "MOST_HELD_BYTES", most)
    count = 40

    async def scene() -> int:
        ours, theirs = socket.socketpair()
        peer, liar = await wire.adopt(ours), await wire.adopt(theirs)
        reaper, sizes_held = Reaper(1, peer, credits=count, silence_s=600), list[int]()

        def hold(reaper: Reaper, message: wire.Message) -> None:
            assert isinstance(message, wire.FetchResult)
            reaper.hold(message.size)
            sizes_held.append(message.size)

        async def lie() -> None:
            await liar.send(wire.Welcome(wire.VERSION, 1, count, []))
            for token in range(count):
                await liar.send(structs.replace(a_result(), token=token, bucket=bytes(size), links=b""))

        lying = asyncio.create_task(lie())
        assert isinstance(await peer.receive(), wire.Welcome)
        serving = asyncio.create_task(reaper.serve(hold, lambda: None, lambda _home, _tokens: None))
        while sum(sizes_held) <= most:
            await asyncio.sleep(0)
        for _ in range(1_000):  # enough for all of them, if anything were read
            await asyncio.sleep(0)
        held_up = len(sizes_held)
        reaper.release(sum(sizes_held))
        while len(sizes_held) < count:
            reaper.release(size)
            await asyncio.sleep(0)
        serving.cancel()
        await asyncio.gather(serving, lying, return_exceptions=True)
        await liar.close()
        await peer.close()
        return held_up

    assert asyncio.run(scene()) == most // size + 1


def test_repeated_deaths_are_stored_once() -> None:
    nothing = cast(Any, None)
    exchanges = Exchanges(*[nothing] * 10)
    exchanges.begin(1, ASKED)
    tracemalloc.start()
    for _ in range(5):
        for token in range(4_096):
            exchanges.on_death(token, "a reaper")
            exchanges.extend(1, token)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 16
