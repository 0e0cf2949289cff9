"""Feedback of indexers, into the inbox: streamed beside it, judged whole, and only then put in place.

A text is taken only if every line of it can be read: unlike a file in the inbox, an upload can be refused at once.
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
from shepherd.serve import lines
from shepherd.serve.answers import Refused, answer
from shepherd.serve.service import Ask, Service
from shepherd.store.disk import opening
from shepherd.store.state.inbox import FEEDBACK, Draft
from shepherd.store.state.inbox_files import item_frames, open_item
from shepherd.wire import api

WRITE_BYTES: Final = 1 << 20
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
    return answer(api.UploadAnswer(item, records, EFFECT), 202)


async def _receive(ask: Ask, beside: Draft, limit: int) -> int:
    stall_s, began_s, size, buffer = ask.service.settings.stall_s, time.monotonic(), 0, bytearray()
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
        buffer += data
        if buffer and (not data or len(buffer) >= WRITE_BYTES):
            await ask.work(_write, ask.service, beside, bytes(buffer))
            buffer.clear()
        if not data:
            return size


def _write(service: Service, beside: Draft, data: bytes) -> None:
    """Of all that waits, what other uploads bring meanwhile counts, too: it is in the same directory."""
    beside.write(data)
    waiting, most = service.database.inbox.waiting_bytes(FEEDBACK), service.settings.feedback_waiting_bytes
    if waiting > most:
        raise Refused(
            507,
            f"with this, {waiting} bytes of feedback would wait for the next cycle, where serve.feedback_waiting_bytes "
            f"allows {most}; nothing of it was taken, send it again later",
        )


def _judge(path: Path) -> int:
    """How many records an upload has; Refused if it is not one from front to end."""
    try:
        return _records(path) if uploads.is_binary(_beginning(path)) else lines.judge(path)
    except (Corruption, ValueError) as error:
        raise Refused(400, f"this is not feedback, and nothing of it was taken: {error}") from None


def _beginning(path: Path) -> bytes:
    with open_item(path) as fd:
        return opening.read_at(path, fd, len(MAGIC), 0)


def _records(path: Path) -> int:
    count = 0
    for part in map(uploads.unpack, item_frames(path)):
        if np.any(part["flags"] & ~FLAGS):
            raise ValueError("a record has unknown flags")
        count += len(part)
    return count
