"""cf/shepherd.toml as frozen dataclasses: one class per section, one field per key, defaults here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DAY_S: Final = 86_400
MOST: Final = 10**15  # of any number: times, sizes and counts beyond it are slips


@dataclass(frozen=True)
class Identity:
    """[identity]: how the reaper introduces itself."""

    name: str = "shepherd"  # product token, also the agent that robots.txt is read for
    contact: str = ""  # address or page for webmasters; needed to gather anything but loopback


@dataclass(frozen=True)
class Politeness:
    """[politeness]: how often a server may be asked."""

    delay_s: float = 10.0
    shared: str = ""  # directory of the contacts that databases of a machine share; empty = one of this user's
    max_backoff: int = 6  # the delay doubles at most this many times after failures
    neighbours_s: int = 60  # what one site may ask of the others on its server, at most; of itself it may ask more
    sites_per_slot: int = 500  # an address with so many sites more is asked by one more at a time, as a CDN's; 0 = never
    most_slots: int = 20  # that an address gets so
    robots_ttl_s: int = DAY_S
    robots_retry_s: int = 3_600  # an unreachable robots.txt is asked again after this
    robots_give_up_s: int = 30 * DAY_S  # after this long unreachable, its pages become errors
    qkey_ttl_s: int = DAY_S
    qkey_retry_s: int = 3_600  # a name that does not resolve is looked up again after this
    qkey_reset_s: int = 30 * DAY_S  # a name last looked up in vain this long ago counts as never looked up


@dataclass(frozen=True)
class Plan:
    """[plan]: what a reap is given to do."""

    reap_s: int = 3_600
    refresh_s: int = 30 * DAY_S
    retry_s: int = DAY_S  # the first retry of an error; doubled with each further one
    max_retries: int = 4  # an error that failed this often is dead
    max_pages: int = 5_000_000
    optimism: int = 200  # percent of what earlier reaps have managed; 0 = only max_pages counts
    anticipate: int = 10  # percent of its cycle that a page may be early, where a plan has room for it; 0 = never
    important_weight: int = 50_000  # what weighs more is gathered twice as often


@dataclass(frozen=True)
class Select:
    """[select]: how much is kept."""

    gathered: int = 80_000_000
    sleeping: int = 100_000_000
    site_soft: int = 100_000
    site_hard: int = 200_000
    fresh: int = 20_000  # new URLs of one site that one select lets through
    hysteresis: int = 500  # added to the weight of what was gathered
    server_share: int = 50  # percent of a server's time in a refresh cycle that its documents may need; 0 = no limit
    hard_factor: int = 2  # the hard limit of a server or section is so many times the soft one
    space_bytes: int = 0  # what the buckets of all gathered pages may take; 0 = no limit
    average_bytes: int = 20_000  # estimate for a page that is not gathered yet
    optimism: int = 200  # percent of the measured speed that a refresh cycle is expected to have; 0 = no limit
    most_lost: int = 10  # percent of the gathered pages; a select that would lose more stops
    most_lost_floor: int = 100  # so many may always be lost


@dataclass(frozen=True)
class PerSection:
    """A number for each section that has a name (shepherd/sections.py)."""

    none: int = 0
    html: int = 0
    text: int = 0
    pdf: int = 0
    office: int = 0
    image: int = 0
    audio: int = 0
    video: int = 0
    feed: int = 0
    data: int = 0
    archive: int = 0
    other: int = 0


@dataclass(frozen=True)
class Sections(PerSection):
    """[sections]: most documents of each section that are gathered or to be gathered; 0 = no limit."""


@dataclass(frozen=True)
class SectionBonus(PerSection):
    """[section_bonus]: what select adds to the weight of the documents of each section."""


@dataclass(frozen=True)
class Merge:
    """[merge]: what a new URL starts with."""

    insert_weight: int = 40_000
    weight_gap: int = 1_000  # a linked URL starts this far below its best parent


@dataclass(frozen=True)
class FetchLimits:
    """[fetch]: limits of one exchange; sent to the reapers."""

    timeout_s: float = 60.0  # lookup, connect, TLS, headers and body together
    min_bytes_per_s: int = 64  # after the first 10 s
    body_bytes: int = 16 * 1024 * 1024
    decoded_bytes: int = 64 * 1024 * 1024
    header_bytes: int = 64 * 1024
    links_per_page: int = 10_000
    requisites: bool = False  # also gather what pages need to be shown
    in_flight: int = 200  # per worker
    memory_bytes: int = 256 * 1024 * 1024  # per worker, of bodies that arrive or wait to be answered
    verify_tls: bool = True
    min_tls: str = "1.2"  # 1.0, 1.1, 1.2 or 1.3
    ca_file: str = ""  # beside shepherd.toml: the authorities to trust, instead of those that come with Shepherd


@dataclass(frozen=True)
class Reap:
    """[reap]: the dispatcher."""

    workers: int = 1  # connections to each reaper, each a process there
    checkpoint_s: float = 10.0
    reapers: tuple[str, ...] = ()  # unix:PATH and tls:HOST:PORT; none = a reapd of our own
    keys: str = ""  # the dispatcher's key file, beside shepherd.toml, for tls:
    silence_s: float = 30.0  # a reaper that sends nothing for so long is lost
    recycle: int = 100_000  # answers, after which a worker of our own reapd is replaced; 0 = never
    worker_bytes: int = 2 << 30  # address space of a process of our own reapd; 0 = no limit
    parse_s: float = 20.0  # at one page, before its process is killed
    user: str = "nobody"  # whom our own reapd runs as, if root starts it
    pages_per_s: float = 0.0  # of all reapers together, as the next two; 0 = no limit
    bytes_per_s: int = 0  # as received
    connections: int = 0  # at a time
    lookups_per_s: float = 100.0  # names that name servers are asked for; 0 = no limit
    lookups_per_domain: int = 1_000  # new names below one registrable domain, in a reap; 0 = no limit
    size_bytes: int = 0  # of all segments of the state with what the reap adds; 0 = no limit
    reserve_bytes: int = 128 * 1024 * 1024  # of the disk that a reap leaves free


@dataclass(frozen=True)
class Network:
    """[network]: which addresses may be reached."""

    allow: tuple[str, ...] = ()  # ranges that the guard lets through although they are not global
    static: str = ""  # a file of `host address port` lines, beside shepherd.toml, used instead of DNS
    hosts: str = ""  # a file of `address host ...` lines as /etc/hosts has, beside shepherd.toml, used instead of DNS
    nameservers: tuple[str, ...] = ()  # `address` or `address:port`; none = those of the system
    proxy: str = ""  # http://host:port or socks5://host:port, for every fetch
    proxy_auth: str = ""  # a file beside shepherd.toml with `user:password`, which nobody else may read


@dataclass(frozen=True)
class Store:
    """[store]: the database."""

    segment_bytes: int = 1024 * 1024 * 1024
    compress: str = "lz4"  # lz4, zstd or none: for bodies that came uncompressed
    keep_states: int = 2
    keep_journals: int = 10  # of states that are deleted; 0 = none
    partition_rows: int = 500_000


@dataclass(frozen=True)
class Cleanup:
    """[cleanup]: when buckets are copied together, and how much room they may take."""

    sparse: int = 50  # percent: a segment of which less is needed is copied
    small: int = 25  # percent of segment_bytes: shorter segments are joined
    size_bytes: int = 0  # of all segments of a state; above it bodies of least weight go; 0 = no limit
    reserve_bytes: int = 1024 * 1024 * 1024  # of the disk that a copy leaves free
    batch_bytes: int = 0  # most that one batch copies; 0 = what the disk has room for
    garbage: int = 20  # percent of all segments that a cleanup would free: above it a master runs one; 0 = not for that
    every_s: int = 7 * DAY_S  # a master runs a cleanup at least so often; 0 = not because of that
    pause_s: int = 3_600  # but not sooner after the last one, unless the disk is short


@dataclass(frozen=True)
class Export:
    """[export]: archives that miss nothing."""

    cursors: tuple[str, ...] = ()  # of shep-export: no closed state is deleted before all of them have come past it


@dataclass(frozen=True)
class Master:
    """[master]: how `shepherd` runs the programs."""

    rounds_per_merge: int = 1  # plan, reap and cork so often before what they found is merged
    cycle_s: float = 60.0  # from the start of one cycle of `run` to that of the next, at least
    pause_s: float = 300.0  # where nothing is due, until the next plan
    look_s: float = 5.0  # how often the inbox is looked at meanwhile
    retries: int = 3  # how often in a row a cycle that failed is tried again, if it may be better then
    retry_s: float = 30.0  # before the first time; doubled with each further one
    rank_every: int = 0  # cycles from one shep-rank to the next; 0 = never
    recover: bool = True  # shep-recover runs by itself where a program asks for it
    log_format: str = "text"  # of `run`: text (key=value) or json


@dataclass(frozen=True)
class Hooks:
    """[hooks]: commands of the operator's own, which a master runs; none where empty."""

    before: str = ""  # each program; if it fails, the program is not run
    after: str = ""
    on_error: str = ""  # when a cycle has failed
    timeout_s: float = 60.0  # then a command is killed


@dataclass(frozen=True)
class Serve:
    """[serve]: readers over HTTP."""

    listen: str = ""  # HOST:PORT; where it is set, `shepherd run` starts shep-serve
    certificate: str = ""  # files beside shepherd.toml, PEM: with them it is HTTPS
    key: str = ""
    insecure: bool = False  # plain HTTP where others than this machine can reach it
    keep_keys: int = 8  # states of which readers can ask what is new since, when they are deleted
    lease_s: int = DAY_S  # longest that a reader may hold a state without a sign of life
    pinned_bytes: int = 0  # that leases keep on the disk; above it there are no new ones; 0 = no limit
    connections: int = 256  # at a time
    connections_per_address: int = 64  # of them, whoever it is; 0 = no limit
    connections_per_client: int = 16  # requests of one client that are under way at a time
    requests_per_s: float = 200.0  # of one client; 0 = no limit
    bytes_per_s: int = 0  # to one client; 0 = no limit
    feedback_bytes: int = 1 << 30  # largest upload
    feedback_waiting_bytes: int = 4 << 30  # of uploads that no cycle has taken yet
    stall_s: float = 30.0  # a reader that takes nothing for so long, or an upload that brings nothing, is dropped
    drain_s: float = 5.0  # when it is to end, so long it lets requests under way finish


@dataclass(frozen=True)
class Config:
    identity: Identity = field(default_factory=Identity)
    politeness: Politeness = field(default_factory=Politeness)
    plan: Plan = field(default_factory=Plan)
    select: Select = field(default_factory=Select)
    sections: Sections = field(default_factory=Sections)
    section_bonus: SectionBonus = field(default_factory=SectionBonus)
    merge: Merge = field(default_factory=Merge)
    fetch: FetchLimits = field(default_factory=FetchLimits)
    reap: Reap = field(default_factory=Reap)
    network: Network = field(default_factory=Network)
    store: Store = field(default_factory=Store)
    cleanup: Cleanup = field(default_factory=Cleanup)
    export: Export = field(default_factory=Export)
    master: Master = field(default_factory=Master)
    hooks: Hooks = field(default_factory=Hooks)
    serve: Serve = field(default_factory=Serve)
    directory: Path = Path("cf")

    @property
    def filter_path(self) -> Path:
        return self.directory / "filter"

    @property
    def equiv_path(self) -> Path:
        return self.directory / "url-equiv"

    @property
    def static_path(self) -> Path | None:
        return self._beside(self.network.static)

    @property
    def hosts_path(self) -> Path | None:
        return self._beside(self.network.hosts)

    @property
    def proxy_auth_path(self) -> Path | None:
        return self._beside(self.network.proxy_auth)

    @property
    def keys_path(self) -> Path:
        return self.directory / self.reap.keys

    @property
    def ca_path(self) -> Path | None:
        return self._beside(self.fetch.ca_file)

    @property
    def shared_path(self) -> Path | None:
        return self._beside(self.politeness.shared)

    @property
    def tokens_path(self) -> Path:
        return self.directory / "tokens"

    def _beside(self, name: str) -> Path | None:
        return self.directory / name if name else None

    @property
    def user_agent(self) -> str:
        from shepherd import __version__

        contact = f" (+{self.identity.contact})" if self.identity.contact else ""
        return f"{self.identity.name}/{__version__}{contact}"
