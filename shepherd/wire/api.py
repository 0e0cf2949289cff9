"""What shep-serve and its clients send each other as JSON (docs/serve.md): one Struct for each answer and for each request.

The server encodes them, the client decodes them and takes nothing but what they declare, and openapi.json is made of them: what a
field is, stands here and nowhere else. A field without a default is always there. Times are seconds since 1970, unless a field
says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

MOST_PURPOSE: Final = 200  # characters
LEASE_S: Final = 3_600  # where nothing else is asked for

Time: TypeAlias = Annotated[int, Meta(description="Seconds since 1970.")]


class Refusal(Struct, frozen=True):
    error: str


# --- states and leases ------------------------------------------------------------------------------------------


class ClosedState(Struct, frozen=True):
    state: int
    made_s: Time = field(name="made")
    urls: Annotated[int, Meta(description="Rows of its index, gathered or not.")]
    bucket_bytes: Annotated[int, Meta(description="Of its segments, with what is superseded in them.")]
    files: int


class ClosedStates(Struct, frozen=True):
    states: list[ClosedState]
    since: Annotated[list[int], Meta(description="States that `since` may name; some are deleted already.")]


class LeaseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    purpose: Annotated[str, Meta(min_length=1, max_length=MOST_PURPOSE, description="Why you keep it; others see this.")]
    state: Annotated[int | UnsetType, Meta(description="The newest if it is not given.")] = UNSET
    seconds: Annotated[int, Meta(ge=1, description="The server may grant less; `expires` says how much.")] = LEASE_S


class RenewalRequest(Struct, frozen=True, forbid_unknown_fields=True):
    seconds: Annotated[int, Meta(ge=1, description="From now on; the server may grant less.")] = LEASE_S


class LeaseAnswer(Struct, frozen=True):
    lease: str
    state: int
    owner: str
    purpose: str
    taken_s: Time = field(name="taken")
    expires: Time


class LeaseList(Struct, frozen=True):
    leases: list[LeaseAnswer]


# --- documents, files, feedback ---------------------------------------------------------------------------------


class DocumentCount(Struct, frozen=True):
    state: int
    items: int
    gone_items: int = field(name="gone")
    bucket_bytes: int


class StateFile(Struct, frozen=True):
    path: str
    length: int
    check: Annotated[
        str,
        Meta(
            pattern="^[0-9a-f]{16}$",
            description="check64 of its bytes; of a column and its block table, that of the block table.",
        ),
    ]


class StateFiles(Struct, frozen=True):
    state: int
    files: list[StateFile]


class UploadAnswer(Struct, frozen=True):
    item: str
    records: int
    takes_effect: str


# --- what the status page shows ---------------------------------------------------------------------------------


class LockHolder(Struct, frozen=True):
    who: str
    since: Time
    orphaned: bool


class DiskUse(Struct, frozen=True):
    states_bytes: int
    segments_bytes: int
    free_bytes: int


class LeaseStatus(Struct, frozen=True):
    state: int
    owner: str
    purpose: str
    since: Time
    expires: Time
    expired: bool


class ReapStatus(Struct, frozen=True):
    pages: float
    wire_bytes: float
    errors: float
    active: Annotated[float, Meta(description="Servers that have something to give or are being asked.")]
    seconds: float


class ReapRate(Struct, frozen=True):
    pages_per_s: float
    bytes_per_s: float


class Backoff(Struct, frozen=True):
    times: Annotated[int, Meta(description="What the delay is multiplied with.")]
    servers: int


class StateTotals(Struct, frozen=True):
    state: int
    made_s: Time = field(name="made")
    rows: Annotated[int, Meta(description="URLs, robots files included.")]
    sites: int
    urls: int
    gathered: int
    servers: int
    backing_off: int
    backoffs: list[Backoff]


class ConfigurationUse(Struct, frozen=True):
    place: Annotated[str, Meta(description="The name of its directory.")]
    digest: Annotated[str, Meta(description="The same for configurations that say the same.")]
    is_last: Annotated[bool | None, Meta(description="Whether the database was last run with it; null if it never was.")]


class StatusAnswer(Struct, frozen=True):
    time: Annotated[float, Meta(description="When this was, in seconds since 1970.")]
    running: Annotated[LockHolder | None, Meta(description="Who holds the lock of the database.")]
    now: Annotated[
        dict[str, Any] | None,
        Meta(
            description="What the program that runs says of itself: program, pid, since, phase, done of total in unit, figures."
        ),
    ]
    states: Annotated[list[str], Meta(description="Every finished directory, the furthest last.")]
    fault: Annotated[str, Meta(description="Why the furthest cannot be opened; empty where all is well.")]
    disk: DiskUse
    cleaned: Annotated[int, Meta(description="When a cleanup last went over everything; 0 is never.")]
    leases: list[LeaseStatus]
    inbox: Annotated[dict[str, int], Meta(description="What waits, by kind.")]
    reap: Annotated[ReapStatus | None, Meta(description="The reap that runs.")]
    speed: Annotated[ReapRate | None, Meta(description="Of the last seconds of that reap.")]
    configuration: Annotated[ConfigurationUse, Meta(description="The one that answers here.")]
    totals: Annotated[StateTotals | None, Meta(description="What the newest closed state has.")]


class CycleFigures(Struct, frozen=True):
    """null is what no step counted."""

    start: Time
    seconds: float
    state: str | None
    status: int | None
    stopped: str | None
    planned: int | None
    pages: int | None
    errors: int
    error_classes: Annotated[dict[str, int], Meta(description="Failures by class.")]
    wire_bytes: int
    new: int | None
    forgotten: int | None
    steps: Annotated[list[tuple[str, float]], Meta(description="Name and seconds.")]


class ReapMinutes(Struct, frozen=True):
    time: Annotated[float, Meta(description="Seconds since 1970.")]
    seconds: float
    pages: float
    wire_bytes: float
    errors: float
    active: float


class HistoryAnswer(Struct, frozen=True):
    cycles: Annotated[list[CycleFigures], Meta(description="The newest last.")]
    errors: Annotated[dict[str, int], Meta(description="Failures by class, of these cycles together, most first.")]
    rates: Annotated[
        list[ReapMinutes],
        Meta(description="What reaps settled and received in so many seconds until `time`; the newest last."),
    ]


class DelayRange(Struct, frozen=True):
    from_ms: int
    below_ms: int | None
    servers: int
    backing_off: int


class ServerAsk(Struct, frozen=True):
    site: str
    crawl_delay_ms: int | None
    until: Annotated[str | None, Meta(description="It asked to be left alone until then.")]


class ServerRow(Struct, frozen=True):
    address: str
    sites: int
    pages: int
    fetches: int
    errors: int
    average_ms: int | None
    delay_ms: int
    backoff: Annotated[int, Meta(description="Doublings of the delay.")]
    slots: int
    group: str | None
    next_contact: str | None
    asks: Annotated[ServerAsk | None, Meta(description="The site that asks for most patience.")]


class ServersAnswer(Struct, frozen=True):
    state: int
    servers: int
    backing_off: Annotated[int, Meta(description="Whose delay is longer because they failed.")]
    delays: Annotated[list[DelayRange], Meta(description="By the delay that holds now.")]
    backoffs: list[Backoff]
    top: list[ServerRow]


class SiteRow(Struct, frozen=True):
    site: str
    scheme: str
    host: str
    urls: int
    gathered: int
    robots: Literal["answered", "absent", "unreachable", "not-asked", "ignored"]
    robots_status: int | None
    robots_checked: str | None
    robots_unreachable_since: str | None
    crawl_delay_ms: int | None
    filter_delay_ms: int | None
    server_delay_ms: int | None
    average_ms: int | None
    address: str | None
    address_checked: str | None


class SitesAnswer(Struct, frozen=True):
    state: int
    sites: int
    urls: int
    gathered: int
    top: list[SiteRow]


class StoryAnswer(Struct, frozen=True):
    """As `shep explain --json` prints it; files are named without their directories."""

    input_text: str = field(name="given")
    rules: Annotated[list[dict[str, Any]], Meta(description="The steps of normalisation.")]
    normalised: str
    strips: Annotated[list[dict[str, Any]], Meta(description="Parameters that the filter takes away, with its lines.")]
    stripped: Annotated[str, Meta(description="The URL without them: what the index knows it by.")]
    site: str
    path: str
    normalised_site: str
    equivalence: Annotated[dict[str, Any], Meta(description="The class of sites that are one.")]
    footprint: Annotated[dict[str, str], Meta(description="norm, path and site, 16 hexadecimal digits each.")]
    state: int
    waiting: Annotated[str | None, Meta(description="What waits for a URL that is not in the index.")]
    row: Annotated[dict[str, Any] | None, Meta(description="Of the index; null where there is none.")]
    filter: dict[str, Any]
    section: dict[str, Any]
    robots: dict[str, Any]
    standings: list[dict[str, Any]]
    site_row: dict[str, Any] | None
    server: dict[str, Any] | None
    asks: ServerAsk | None
    cycles: list[dict[str, Any]]
    outlook: str | None
    verdict: Annotated[str, Meta(description="One sentence that sums it up.")]
