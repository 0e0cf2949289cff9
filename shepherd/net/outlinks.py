"""The links of a page as a contrib block: filtered, normalised and footprinted here, so the dispatcher only collects them."""

from __future__ import annotations

import numpy as np

from shepherd import urls
from shepherd.formats import contrib
from shepherd.formats.tables import ContribFlag
from shepherd.net import wire
from shepherd.net.exchange import Context


def block(context: Context, fetch: wire.Fetch, links: urls.Links, flag: ContribFlag, flagged: str | None) -> bytes:
    """A contrib block of these links, with this page as their parent; the link `flagged` carries the flag."""
    count = len(links)
    if not count:
        return b""
    sites, first = np.unique(links.site, return_index=True)
    https = [ContribFlag.HTTPS if href.startswith("https:") else 0 for href in links.hrefs]
    own = [flag if href == flagged else 0 for href in links.hrefs]
    return contrib.encode(
        contrib.Block(
            norm=links.norm,
            path=links.path,
            site=links.site,
            lastmod=np.zeros(count, "<u4"),
            parent=np.zeros(count, "<u4"),
            parent_weight=np.full(count, fetch.weight, "<u2"),
            flags=np.array(https, "<u2") | np.array(own, "<u2"),
            section=np.array([context.filter.section_of(href).section for href in links.hrefs], "u1"),
            texts=[text.encode("ascii") for text in links.paths],
            sites=sites,
            norms=links.norm[first],
            names=[links.sites[at].encode("ascii") for at in first.tolist()],
            parents_site=np.array([fetch.site], "<u8"),
            parents_path=np.array([fetch.path], "<u8"),
            filter_version=context.filter.version,
        )
    )
