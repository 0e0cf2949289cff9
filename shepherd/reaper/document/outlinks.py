"""The links of a document as a contrib block: filtered, normalised and footprinted here, so the dispatcher only collects them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from shepherd import urls
from shepherd.errors import BadUrl
from shepherd.formats import contrib
from shepherd.formats.tables import ContribFlag
from shepherd.reaper.fetch.exchange import Context
from shepherd.wire import messages as wire

_HTTPS: Final = int(ContribFlag.HTTPS)


@dataclass(frozen=True)
class Outlinks:
    """URLs that we would gather; flags and times by href, for the few that have any."""

    links: urls.Links
    flags: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)


def clean_href(context: Context, base: str, link: str) -> str | None:
    """The URL that a link means, as it would be contributed; None where the filter rejects it."""
    try:
        return context.filter.clean(urls.join(base, link).href)
    except BadUrl:
        return None


def distinct_links(context: Context, base: str, links: list[str], otherwise: str) -> urls.Links:
    """The distinct URLs of links that we would gather; `otherwise` is the base where the page's own, `base`, cannot be used."""
    try:
        return urls.batch(base, links, context.footprints, context.filter.clean)
    except BadUrl:
        return urls.batch(otherwise, links, context.footprints, context.filter.clean)


def times_of(context: Context, base: str, times: Mapping[str, int]) -> dict[str, int]:
    """The times of links as written, by href."""
    times_by_href: dict[str, int] = {}
    for link, seconds in times.items():
        if seconds and (href := clean_href(context, base, link)):
            times_by_href[href] = max(seconds, times_by_href.get(href, 0))
    return times_by_href


def block(context: Context, fetch: wire.Fetch, outlinks: Outlinks) -> bytes:
    """A contrib block with the requested document as the parent; empty where there are no links."""
    links, flags, times = outlinks.links, outlinks.flags, outlinks.times
    count = len(links)
    if not count:
        return b""
    first_position: dict[str, int] = {}
    for position, name in enumerate(links.sites):
        first_position.setdefault(name, position)
    site_positions = list(first_position.values())
    marks = [_HTTPS if href.startswith("https:") else 0 for href in links.hrefs]
    if flags:
        marks = [mark | flags.get(href, 0) for mark, href in zip(marks, links.hrefs, strict=True)]
    sections = context.filter.sections_of(links.hrefs)
    return contrib.encode(
        contrib.Block(
            norm=links.norm,
            path=links.path,
            site=links.site,
            lastmod=np.array([times.get(href, 0) for href in links.hrefs], "<u4") if times else np.zeros(count, "<u4"),
            parent=np.zeros(count, "<u4"),
            parent_weight=np.full(count, fetch.weight, "<u2"),
            flags=np.array(marks, "<u2"),
            section=np.array(sections, "u1") if sections else np.zeros(count, "u1"),
            texts=[text.encode("ascii") for text in links.paths],
            sites=links.site[site_positions],
            norms=links.norm[site_positions],
            names=[name.encode("ascii") for name in first_position],
            parents_site=np.array([fetch.site], "<u8"),
            parents_path=np.array([fetch.path], "<u8"),
            filter_version=context.filter.version,
        )
    )
