"""Fetches for tests: one after the other or all at once, with a Fetcher of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import uvloop

from shepherd.config import FetchLimits
from shepherd.reaper.fetch.fetcher import Fetcher, Request, Response
from shepherd.reaper.fetch.guard import Guard

LOOPBACK = ("127.0.0.0/8",)


def request(port: int, path: str = "/x", *, scheme: str = "http", host: str = "a.example", **changes: Any) -> Request:
    values: dict[str, Any] = {"timeout_s": 20, "body_bytes": 1 << 20} | changes
    return Request(f"{scheme}://{host}{path}", values.pop("address", "127.0.0.1"), port, **values)


def fetch_all(
    requests: Sequence[Request],
    *,
    limits: FetchLimits | None = None,
    at_once: bool = False,
    guard: Guard | None = None,
    **options: Any,
) -> list[Response]:
    async def run() -> list[Response]:
        fetcher = Fetcher(guard or Guard(LOOPBACK), "shepherd/test", limits or FetchLimits(), **options)
        try:
            if at_once:
                return await asyncio.gather(*map(fetcher.fetch, requests))
            return [await fetcher.fetch(one) for one in requests]
        finally:
            fetcher.close()

    return uvloop.run(run())
