"""Documents of a leased state, as a stream (docs/formats.md, "Streams"): a choice of them, or one alone."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from aiohttp import web

from shepherd import sections
from shepherd.errors import CHECK_LISTS, Corruption, UsageError
from shepherd.expressions import StoredForm
from shepherd.filters import load_filter
from shepherd.formats import stream
from shepherd.formats.tables import I64, split_oid
from shepherd.readers.choice import WEIGHTS, Choice, read_part
from shepherd.readers.reading import Batch, Reading
from shepherd.report.narrow import Narrowing
from shepherd.serve import leases, sender, single
from shepherd.serve.answers import Refused, answer
from shepherd.serve.sender import FileSpans, Piece
from shepherd.serve.service import Ask
from shepherd.store.disk import names, opening
from shepherd.store.state import keys
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.lease import Lease
from shepherd.wire import api

# --- handlers ---------------------------------------------------------------------------------------------------


async def pull(ask: Ask) -> web.StreamResponse:
    parameters = ask.parameters()
    leased = await ask.work(_find, ask, parameters, keeps=not ask.is_head)
    ask.notes |= {"state": leased.state.number, "items": leased.reading.items, **parameters}
    response = _response(leased.state, leased.reading.items, leased.reading.gone_items, leased.reading.bucket_bytes)
    pieces = _stream(leased.state, leased.reading.batches(_number(parameters, "after") or 0), ask.service.drain.is_on)
    return await sender.send(ask, response, pieces, leases.Keeper(ask.service, ask.who, leased.lease))


async def count(ask: Ask) -> web.Response:
    parameters = ask.parameters()
    leased = await ask.work(_find, ask, parameters)
    ask.notes |= {"state": leased.state.number, **parameters}
    reading = leased.reading
    return answer(api.DocumentCount(leased.state.number, reading.items, reading.gone_items, reading.bucket_bytes))


async def pull_one(ask: Ask) -> web.StreamResponse:
    parameters = ask.parameters()
    if len(parameters) != 1:
        raise Refused(400, "name one document, by `url` or by `footprint`")
    lease, state, batch = await ask.work(_find_one, ask, parameters)
    ask.notes |= {"state": state.number, **parameters}
    response = _response(state, 1, 0, int(batch.rows["length"].sum()))
    return await sender.send(
        ask, response, _stream(state, [batch], ask.service.drain.is_on), leases.Keeper(ask.service, ask.who, lease)
    )


def _response(state: State, items: int, gone_items: int, bucket_bytes: int) -> web.StreamResponse:
    response = sender.Unchunked()
    response.content_type = stream.MEDIA_TYPE
    figures = {"State": state.number, "Items": items, "Gone": gone_items, "Bytes": bucket_bytes}
    response.headers.update({f"Shepherd-{name}": str(figure) for name, figure in figures.items()})
    response.force_close()
    return response


# --- which documents a query means ------------------------------------------------------------------------------


def _choice_of(parameters: Mapping[str, str]) -> Choice:
    """The parameters as a choice, but for `since`; Refused says what is wrong with them."""
    best, weight = _number(parameters, "best"), _weight(parameters, "weight", 0)
    part, parts = _part(parameters)
    robots, redirects = _flag(parameters, "robots"), _flag(parameters, "redirects")
    return Choice(part, parts, best, weight, _sections(parameters), robots, redirects)


def _narrowed_of(parameters: Mapping[str, str]) -> Narrowing:
    """What else the documents are narrowed by."""
    return Narrowing(parameters.get("site"), _weight(parameters, "most_weight", WEIGHTS - 1))


def _weight(parameters: Mapping[str, str], name: str, default: int) -> int:
    weight = _number(parameters, name)
    if weight is not None and weight >= WEIGHTS:
        raise Refused(400, f"`{name}` is from 0 to {WEIGHTS - 1}")
    return default if weight is None else weight


def _number(parameters: Mapping[str, str], name: str) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    if not StoredForm.LENGTH.fullmatch(text):
        raise Refused(400, f"`{name}` is a number, not {text[:40]!r}")
    return int(text)


def _part(parameters: Mapping[str, str]) -> tuple[int, int]:
    text = parameters.get("part", "1/1")
    try:
        return read_part(text)
    except ValueError as error:
        raise Refused(400, f"`part` {text[:40]!r}: {error}") from None


def _sections(parameters: Mapping[str, str]) -> tuple[int, ...]:
    try:
        return (
            tuple(sections.section_number(name) for name in parameters["section"].split(",")) if "section" in parameters else ()
        )
    except ValueError as error:
        raise Refused(400, f"`section`: {error}") from None


def _flag(parameters: Mapping[str, str], name: str) -> bool:
    if parameters.get(name, "0") not in ("0", "1"):
        raise Refused(400, f"`{name}` is 0 or 1")
    return parameters.get(name) == "1"


def _since_of(parameters: Mapping[str, str], database: Database, state: State) -> State | None:
    """What is known of the state that the reader had before, which may be deleted since."""
    since_number = _number(parameters, "since")
    if since_number is None:
        return None
    if since_number > state.number:
        raise Refused(
            400, f"`since`: state {since_number} is newer than state {state.number}, which is leased; lease a newer one"
        )
    try:
        since = keys.state_or_keys(database, since_number)
    except UsageError as error:
        raise Refused(410, str(error)) from None
    if since.control.key != state.control.key:
        raise Refused(410, f"state {since_number} was made under another footprint key; read everything, and continue from there")
    return since


# --- in threads -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _LeasedReading:
    lease: Lease
    state: State
    reading: Reading


def _find(ask: Ask, parameters: dict[str, str], keeps: bool = False) -> _LeasedReading:
    """What is to be read, already counted: the headers say how much it is."""
    document_choice = _choice_of(parameters)
    lease, state = leases.opened(ask.service, ask.who, ask.request.match_info["lease"])
    since, narrowed = _since_of(parameters, ask.service.database, state), _narrowed_of(parameters)
    reading = Reading(state, document_choice, since, narrow=narrowed or None)
    _ = reading.items
    if keeps:  # from now on the reader may come back and ask what is new since this state
        keys.keep(ask.service.database, state, ask.service.settings.keep_keys)
    return _LeasedReading(lease, state, reading)


def _find_one(ask: Ask, parameters: dict[str, str]) -> tuple[Lease, State, Batch]:
    lease, state = leases.opened(ask.service, ask.who, ask.request.match_info["lease"])
    if "url" in parameters:
        return lease, state, single.by_url(state, load_filter(ask.service.config.filter_path), parameters["url"])
    return lease, state, single.by_footprint(state, parameters["footprint"])


def _stream(state: State, batches: Iterable[Batch], is_ending: Callable[[], bool]) -> Iterator[Piece]:
    """The frames of these batches. Where the server is to end it stops before one: the reader has all that came whole."""
    items, total = 0, 0
    with _Segments(state) as segments:
        for batch in batches:
            if is_ending():
                return
            yield stream.rows_frame(batch.rows)
            lengths = batch.rows["length"].astype(np.int64)
            yield from segments.spans(batch.oid.astype(np.int64), lengths)
            items, total = items + len(lengths), total + int(lengths.sum())
    yield stream.end_frame(items, total)


class _Segments:
    """The segments of a state, one open at a time."""

    def __init__(self, state: State) -> None:
        self._directory = state.path / names.OBJECTS
        self._number, self._fd = -1, -1

    def spans(self, oid: I64, lengths: I64) -> Iterator[FileSpans]:
        """Where these buckets are, which come in the order of their places: those that lie end to end are one range."""
        there = np.flatnonzero(lengths)
        oid, lengths = oid.take(there), lengths.take(there)
        starts = np.flatnonzero(np.append(True, oid[1:] != oid[:-1] + lengths[:-1])) if len(oid) else there
        sizes = np.add.reduceat(lengths, starts) if len(oid) else lengths
        segment, offset = split_oid(oid.take(starts))
        for first, last in itertools.pairwise([*np.flatnonzero(np.diff(segment, prepend=-1)).tolist(), len(segment)]):
            fd = self._open(int(segment[first]))
            yield FileSpans(fd, offset[first:last].tolist(), sizes[first:last].tolist())

    def _open(self, segment: int) -> int:
        if segment != self._number:
            self._close()
            path = self._directory / names.segment(segment)
            try:
                self._fd = opening.open_regular(path)
            except FileNotFoundError:
                raise Corruption("the segment is missing", path, advice=CHECK_LISTS) from None
            self._number = segment
        return self._fd

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._number, self._fd = -1, -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()
