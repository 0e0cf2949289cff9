"""Requests from the inbox, as a contrib block: an insert is a contribution with a weight of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shepherd.config import Config
from shepherd.errors import BadUrl
from shepherd.filters import Filter
from shepherd.formats.contrib import Block
from shepherd.formats.tables import ContribFlag
from shepherd.store.inbox import Item, parse_request
from shepherd.urls import Footprints, Url, parse

MOST_TOLD = 100  # bad lines in a report
MOST_CHARACTERS = 400  # of the reason of each


@dataclass
class Requests:
    """What the waiting items ask for."""

    names: list[str] = field(default_factory=list)
    urls: list[Url] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


def read_requests(items: list[Item], filters: Filter, config: Config) -> Requests:
    """Every line of every item; a bad one is told and skipped, the others count."""
    found = Requests()
    for item in items:
        found.names.append(item.name)
        for number, line in item.lines():
            try:
                url, weight, flags = _insert(parse_request(line), filters, config)
            except (ValueError, BadUrl) as error:
                found.bad.append(f"{item.path.name} line {number}: {_short(str(error))}")
                continue
            found.urls.append(url)
            found.weights.append(weight)
            found.flags.append(flags)
    return found


def _short(text: str) -> str:
    """What anyone may have dropped must not make the report of a state large."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def _insert(request: dict[str, Any], filters: Filter, config: Config) -> tuple[Url, int, int]:
    weight = request.get("weight", config.merge.insert_weight)
    if type(weight) is not int or not 0 <= weight <= 65_535:
        raise ValueError(f"weight {weight!r} is not from 0 to 65535")
    given = parse(request["url"], strict=True)
    href = filters.clean(given.href)
    if href is None:
        verdict = filters.judge(filters.strip(given.href))
        raise BadUrl(f"{given.href} is rejected by filter line {verdict.line}: {verdict.text}")
    url = parse(href)
    flags = ContribFlag.INSERTED | ContribFlag.OWN_WEIGHT
    flags |= ContribFlag.PINNED if request.get("pinned") is True else 0
    flags |= ContribFlag.HTTPS if url.site.startswith("https:") else 0
    return url, weight, int(flags)


def as_block(requests: Requests, prints: Footprints, filter_version: int) -> Block:
    """The inserted URLs as contributions; they have no parent, so the parents' table has one empty row."""
    marks = np.array([prints.of(url) for url in requests.urls], np.uint64).reshape(-1, 3)
    sites, first = np.unique(marks[:, 2], return_index=True)
    count = len(requests.urls)
    return Block(
        norm=marks[:, 0].copy(),
        path=marks[:, 1].copy(),
        site=marks[:, 2].copy(),
        lastmod=np.zeros(count, np.uint32),
        parent=np.zeros(count, np.uint32),
        parent_weight=np.array(requests.weights, np.uint16),
        flags=np.array(requests.flags, np.uint16),
        section=np.zeros(count, np.uint8),
        texts=[url.path.encode("ascii") for url in requests.urls],
        sites=sites,
        norms=marks[first, 0],
        names=[requests.urls[i].site.encode("ascii") for i in first.tolist()],
        parents_site=np.zeros(1, np.uint64),
        parents_path=np.zeros(1, np.uint64),
        filter_version=filter_version,
    )
