"""An honest answer of a reaper to one request, for tests to bend."""

from __future__ import annotations

import hashlib

import numpy as np
from msgspec import structs

from shepherd import urls
from shepherd.config import FetchLimits
from shepherd.dispatch.contribute import Contributions
from shepherd.dispatch.items import Item
from shepherd.dispatch.verify import PendingRequest, Verifier
from shepherd.formats import bucket, contrib
from shepherd.formats.journal import Entry
from shepherd.formats.tables import JournalFlag, Kind, Reason, Result
from shepherd.wire import messages as wire

KEY = bytes(range(16))
PRINTS = urls.Footprints(KEY)
URL = urls.parse("http://a.example/x")
NORM, PATH, SITE = PRINTS.of(URL)
ASKED_MS, NOW_MS = 1_800_000_000_000, 1_800_000_000_900
STATE, FILTER_VERSION, WEIGHT, QKEY = 7, 77, 500, 9
ITEM = Item(Kind.PAGE, NORM, PATH, SITE, SITE, SITE, weight=WEIGHT)
ASKED = PendingRequest(ITEM, QKEY, QKEY, URL.href, ASKED_MS)
BODY = b"hello"
DIGEST = hashlib.sha256(BODY).digest()
HREFS = ("http://a.example/", "http://a.example/b?c=d", "https://www.b.example/e%20f", "http://c.example:81/g")


def a_bucket(**changed: object) -> bytes:
    fields: dict[str, object] = {
        "site": SITE,
        "path": PATH,
        "time_ms": ASKED_MS + 5,
        "state": STATE,
        "attributes": [("U", URL.href.encode()), ("D", DIGEST)],
        "body": BODY,
    }
    return bucket.pack(**(fields | changed))  # type: ignore[arg-type]


def a_block(hrefs: tuple[str, ...] = HREFS) -> contrib.Block:
    """Links as a reaper makes them."""
    links = urls.batch(URL.href, hrefs, PRINTS)
    sites, first = np.unique(links.site, return_index=True)
    return contrib.Block(
        norm=links.norm,
        path=links.path,
        site=links.site,
        lastmod=np.zeros(len(links), "<u4"),
        parent=np.zeros(len(links), "<u4"),
        parent_weight=np.full(len(links), WEIGHT, "<u2"),
        flags=np.zeros(len(links), "<u2"),
        section=np.zeros(len(links), "u1"),
        texts=[text.encode() for text in links.paths],
        sites=sites,
        norms=links.norm[first],
        names=[links.sites[at].encode() for at in first.tolist()],
        parents_site=np.array([SITE], "<u8"),
        parents_path=np.array([PATH], "<u8"),
        filter_version=FILTER_VERSION,
    )


RECORD = Entry(
    norm=NORM,
    path=PATH,
    site=SITE,
    digest=int.from_bytes(DIGEST[:8], "little"),
    start_ms=ASKED_MS + 1,
    end_ms=ASKED_MS + 5,
    body_bytes=len(BODY),
    status=200,
    flags=int(JournalFlag.CONTACTED),
    kind=Kind.PAGE,
    result=Result.STORED,
    reason=Reason.GATHERED,
)


def a_result(record: Entry = RECORD, **changed: object) -> wire.FetchResult:
    plain = wire.FetchResult(1, record.pack(), a_bucket(), contrib.encode(a_block()), "", b"", 0, b"", 0, 0)
    return structs.replace(plain, **changed)


def a_verifier(written: list[bytes] | None = None) -> tuple[Verifier, Contributions]:
    blocks: list[bytes] = [] if written is None else written
    contributions = Contributions(lambda _records, block: blocks.append(bytes(block)), FILTER_VERSION)
    return Verifier(KEY, STATE, FILTER_VERSION, FetchLimits(), contributions), contributions
