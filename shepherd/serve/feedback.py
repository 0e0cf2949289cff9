"""Feedback of indexers, into the inbox: streamed beside it, judged whole, and only then put in place.

A text is taken only if every line of it can be read: who uploads over the network is there to be told, unlike who drops a file.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

import numpy as np
from aiohttp import web

from shepherd.errors import Corruption
from shepherd.formats import feedback as uploads
from shepherd.formats.feedback import FeedbackFlag
from shepherd.formats.frame import MAGIC
from shepherd.serve.answers import Refused, answer
from shepherd.serve.service import Ask
from shepherd.store import fsio, logs
from shepherd.store.inbox import Draft
from shepherd.urls import parse

WRITE_BYTES: Final = 1 << 20
LINE_BYTES: Final = 4_096
LEAST_PER_S: Final = 1_024  # bytes, on the average of an upload that takes longer than a stall may
FLAGS: Final = np.uint16(sum(FeedbackFlag))
EFFECT: Final = "with the next cycle, which begins with shep-feedback where feedback waits"


async def upload(ask: Ask) -> web.Response:
    ask.parameters()
    limit = ask.service.settings.feedback_bytes
    if (ask.request.content_length or 0) > limit:
        raise Refused(413, f"an upload has at most {limit} bytes here (serve.feedback_bytes); send several")
    if ask.request.headers.get("Content-Encoding", "identity") != "identity":
        raise Refused(415, "send feedback as it is, without a Content-Encoding")
    database = ask.service.database
    item = database.new_item_name(ask.service.now_ms())
    beside = await ask.work(database.inbox.draft_feedback, item)
    with beside:
        size = await _receive(ask, beside, limit)
        records = await ask.work(_judge, beside.beside)
        await ask.work(beside.keep)
    ask.notes |= {"item": item, "records": records, "received": size}
    return answer({"item": item, "records": records, "takes_effect": EFFECT}, 202)


async def _receive(ask: Ask, beside: Draft, limit: int) -> int:
    stall_s, began_s, size, held = ask.service.settings.stall_s, time.monotonic(), 0, bytearray()
    while True:
        try:
            with ask.receiving():
                async with asyncio.timeout(stall_s):
                    data = await ask.request.content.readany()
        except TimeoutError:
            raise Refused(408, f"nothing came for {stall_s:g} s; nothing was taken, send it again") from None
        size += len(data)
        if size > limit:
            raise Refused(413, f"an upload has at most {limit} bytes here (serve.feedback_bytes); send several")
        late_s = time.monotonic() - began_s - stall_s
        if late_s > 0 and size < late_s * LEAST_PER_S:
            raise Refused(408, f"it comes slower than {LEAST_PER_S} bytes a second; nothing was taken, send it again")
        held += data
        if held and (not data or len(held) >= WRITE_BYTES):
            await ask.work(beside.write, bytes(held))
            held.clear()
        if not data:
            return size


def _judge(path: Path) -> int:
    """How many records an upload has; Refused if it is not one from front to end."""
    try:
        return _records(path) if uploads.is_binary(_beginning(path)) else _lines(path)
    except (Corruption, ValueError) as error:
        raise Refused(400, f"this is no feedback, and nothing of it was taken: {error}") from None


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(MAGIC))


def _records(path: Path) -> int:
    count = 0
    for part in uploads.unpack(logs.mapped(path)):
        if np.any(part["flags"] & ~FLAGS):
            raise ValueError("a record has flags that nobody knows")
        count += len(part)
    return count


def _lines(path: Path) -> int:
    count, number = 0, 0
    with fsio.reading(path), path.open("rb") as file:
        while line := file.readline(LINE_BYTES):
            number += 1
            if len(line) == LINE_BYTES:
                raise ValueError(f"line {number}: longer than {LINE_BYTES} bytes")
            try:
                text = line.decode()
                if text.strip():
                    uploads.parse_line(text, _footprint)
                    count += 1
            except ValueError as error:
                raise ValueError(f"line {number}: {str(error)[:200]}") from None
    if not count:
        raise ValueError("it is empty")
    return count


def _footprint(text: str) -> tuple[int, int]:
    """Only whether it is a URL matters here; shep-feedback finds what it means."""
    parse(text, strict=True)
    return 0, 0
