"""Every route of the server: its handler, the roles that may use it, and what openapi.json says of it.

Add a route here. A handler gets an `Ask` and returns a response; app.py makes an answer of what it raises as Refused, or as an
error of Shepherd.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

import msgspec
from aiohttp import web

from shepherd.formats.stream import MEDIA_TYPE
from shepherd.readers.choice import WEIGHTS
from shepherd.report import servers, sites
from shepherd.serve import documents, feedback, files, leases, page, states
from shepherd.serve.openapi import (
    ANYTHING,
    BYTES,
    JSON,
    TEXT,
    Content,
    Operation,
    Parameter,
    answers,
    document,
    pattern,
    whole,
    word,
)
from shepherd.serve.service import Ask
from shepherd.serve.tokens import ClientRole
from shepherd.wire import api

Handler: TypeAlias = Callable[[Ask], Awaitable[web.StreamResponse]]
READERS: Final = (ClientRole.READ, ClientRole.MIRROR)
FLAG: Final = word(("0", "1"))
WEIGHT: Final = whole(0, WEIGHTS - 1)
LIMIT: Final = Parameter("limit", "How many; 20 if not given.", whole(1, page.MOST_ROWS))
CHOICE: Final = (
    Parameter(
        "part",
        "Part I of N, as I/N from 1/N to N/N, cut by the footprint of the site: a site is in one of them.",
        pattern("^[0-9]+/[0-9]+$"),
    ),
    Parameter("best", "So many of the heaviest, of those that the rest leaves.", whole(0)),
    Parameter("weight", "Only documents of at least this weight.", WEIGHT),
    Parameter("most_weight", "Only documents of at most this weight.", WEIGHT),
    Parameter("site", "Only documents of this site, a host or a URL, and of those that are the same.", TEXT),
    Parameter("section", "Only of this section, or of these, with commas between them.", TEXT),
    Parameter("robots", "1: robots files, too.", FLAG),
    Parameter("redirects", "1: pages that only lead to another, too.", FLAG),
    Parameter("since", "Only what differs from this state: added, changed, gone.", whole(0)),
)
AFTER: Final = Parameter("after", "Skip so many rows, to continue where a transfer broke off.", whole(0))
STREAM: Final = Content(
    "Frames of rows, each followed by the buckets of its rows as they are stored, and a last frame that says that it is complete "
    '(docs/formats.md, "Streams"). It ends with the connection.',
    {MEDIA_TYPE: BYTES},
    {
        "Shepherd-State": "The state that it is of.",
        "Shepherd-Items": "Rows of the whole choice.",
        "Shepherd-Gone": "Those of them that are gone.",
        "Shepherd-Bytes": "Of the buckets of the whole choice.",
    },
)
LEASE: Final = "/v1/leases/{lease}"


async def openapi(_ask: Ask) -> web.Response:
    """What this API is, for programs."""
    return web.Response(body=_document(), content_type=JSON)


@cache
def _document() -> bytes:
    return msgspec.json.format(msgspec.json.encode(document(ROUTES)), indent=1) + b"\n"


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    handler: Handler
    roles: tuple[ClientRole, ...]  # one of them is needed; none = open to all
    operation: Operation


ROUTES: Final = (
    Route(
        "GET",
        "/openapi.json",
        openapi,
        (),
        Operation("openapi", "This file.", {200: Content("This file.", {JSON: ANYTHING})}),
    ),
    # --- states and leases
    Route(
        "GET",
        "/v1/states",
        states.list_all,
        (*READERS, ClientRole.FEEDBACK),
        Operation(
            "states",
            "The closed states, the newest last.",
            {200: answers(api.ClosedStates, "The states, and the numbers that `since` may name.")},
        ),
    ),
    Route(
        "GET",
        "/v1/leases",
        leases.list_all,
        READERS,
        Operation(
            "leases",
            "Your leases; an admin's are everybody's.",
            {200: answers(api.LeaseList, "Leases that are not over.")},
        ),
    ),
    Route(
        "POST",
        "/v1/leases",
        leases.take,
        READERS,
        Operation(
            "take",
            "Lease a state, the newest by default: it stays until the lease is over or given back.",
            {201: answers(api.LeaseAnswer, "The lease. `Location` is where it is.")},
            (404, 408, 409, 413, 507),
            body={JSON: api.LeaseRequest},
        ),
    ),
    Route(
        "PUT",
        LEASE,
        leases.renew,
        READERS,
        Operation(
            "renew",
            "Let a lease last so long from now. Transfers renew by themselves.",
            {200: answers(api.LeaseAnswer, "The lease.")},
            (404, 408, 410, 413),
            body={JSON: api.RenewalRequest},
        ),
    ),
    Route(
        "DELETE",
        LEASE,
        leases.give_back,
        READERS,
        Operation("give_back", "Give a lease back.", {200: answers(api.LeaseAnswer, "What it was.")}, (404, 410)),
    ),
    # --- documents, files, feedback
    Route(
        "GET",
        f"{LEASE}/documents",
        documents.pull,
        (ClientRole.READ,),
        Operation(
            "documents",
            "Documents of the leased state, one row for each, in an order that never changes.",
            {200: STREAM},
            (404, 410),
            (*CHOICE, AFTER),
        ),
    ),
    Route(
        "GET",
        f"{LEASE}/count",
        documents.count,
        (ClientRole.READ,),
        Operation(
            "count",
            "How much `documents` would give.",
            {200: answers(api.DocumentCount, "How much.")},
            (404, 410),
            CHOICE,
        ),
    ),
    Route(
        "GET",
        f"{LEASE}/document",
        documents.pull_one,
        (ClientRole.READ,),
        Operation(
            "document",
            "One document, as a stream of one row. Of several equivalent ones the representative.",
            {200: STREAM},
            (404, 410),
            (
                Parameter("url", "Its URL.", TEXT),
                Parameter("footprint", "Or the footprint of one of its rows: site, then path.", pattern("^[0-9a-f]{32}$")),
            ),
        ),
    ),
    Route(
        "GET",
        f"{LEASE}/files",
        files.list_all,
        (ClientRole.MIRROR,),
        Operation("files", "The files of the leased state.", {200: answers(api.StateFiles, "All files.")}, (404, 410)),
    ),
    Route(
        "GET",
        f"{LEASE}/files/{{path:.+}}",
        files.get,
        (ClientRole.MIRROR,),
        Operation(
            "file",
            "A file, unchanged. Knows Range, If-Range and If-None-Match.",
            {
                200: Content("The file; its ETag differs from that of every other.", {"application/octet-stream": BYTES}),
                206: Content("The range of it.", {"application/octet-stream": BYTES}),
                304: Content("It is the one that you have."),
            },
            (404, 410, 416),
        ),
    ),
    Route(
        "POST",
        "/v1/feedback",
        feedback.upload,
        (ClientRole.FEEDBACK,),
        Operation(
            "feedback",
            "Leave weights in the inbox: all of an upload or nothing.",
            {202: answers(api.UploadAnswer, "It is durable, and says when it counts.")},
            (408, 413, 415, 507),
            body={"text/plain": TEXT, "application/octet-stream": BYTES},
        ),
    ),
    # --- the status page
    Route(
        "GET",
        "/",
        page.page,
        (),
        Operation(
            "page",
            "The status page. It holds no data.",
            {200: Content("The status page. It holds no data.", {"text/html": TEXT})},
        ),
    ),
    Route(
        "GET",
        "/static/{name}",
        page.static,
        (),
        Operation(
            "static",
            "A file of the status page.",
            {200: Content("A file of the status page.", {"text/javascript": TEXT, "text/css": TEXT, "image/svg+xml": TEXT})},
            (404,),
        ),
    ),
    Route(
        "GET",
        "/v1/status",
        page.status,
        (ClientRole.READ,),
        Operation(
            "status",
            "What is going on: what runs and how fast, disk, leases, the inbox.",
            {200: answers(api.StatusAnswer, "How things stand.")},
        ),
    ),
    Route(
        "GET",
        "/v1/history",
        page.history,
        (ClientRole.READ,),
        Operation(
            "history",
            "Past cycles, and how fast reaps were.",
            {200: answers(api.HistoryAnswer, "What was.")},
            parameters=(
                Parameter("cycles", "So many of the last cycles; 100 if not given.", whole(1, page.MOST_CYCLES)),
                Parameter("hours", "Speed of the last so many hours; 24 if not given.", whole(1, page.MOST_HOURS)),
            ),
        ),
    ),
    Route(
        "GET",
        "/v1/servers",
        page.server_table,
        (ClientRole.READ,),
        Operation(
            "servers",
            "Servers by delay and back-off, and those with most of something.",
            {200: answers(api.ServersAnswer, "Of the newest closed state.")},
            parameters=(
                Parameter("sort", "Most of what; delay if not given.", word(servers.SORTS)),
                LIMIT,
                Parameter("backing_off", "1: only those whose delay is longer because they failed.", FLAG),
            ),
        ),
    ),
    Route(
        "GET",
        "/v1/sites",
        page.site_table,
        (ClientRole.READ,),
        Operation(
            "sites",
            "The sites with most of something.",
            {200: answers(api.SitesAnswer, "Of the newest closed state.")},
            parameters=(Parameter("sort", "Most of what; gathered if not given.", word(sites.SORTS)), LIMIT),
        ),
    ),
    Route(
        "GET",
        "/v1/explain",
        page.explain,
        (ClientRole.READ,),
        Operation(
            "explain",
            "Why a URL is, or is not, gathered.",
            {200: answers(api.StoryAnswer, "The whole story of it.")},
            (503,),
            (Parameter("url", "The URL, as a person writes it.", TEXT, is_required=True),),
        ),
    ),
    Route(
        "GET",
        "/metrics",
        page.metrics,
        (ClientRole.READ,),
        Operation(
            "metrics",
            "For Prometheus; docs/metrics.md has the names.",
            {200: Content("Lines of text, format 0.0.4.", {"text/plain": TEXT})},
        ),
    ),
)
