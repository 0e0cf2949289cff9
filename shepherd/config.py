"""cf/shepherd.toml as frozen dataclasses: one class per section, one field per key, defaults here and nowhere else.

An unknown section or key, a wrong type or an impossible value is a ConfigError that names the file and the key.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shepherd import tomlsection
from shepherd.addresses import reaper_fault
from shepherd.errors import ConfigError

FILE = "shepherd.toml"
DAY_S = 86_400
MAX_DELAY_S = 30 * DAY_S  # delays are kept as 32 bits of milliseconds, and double with each failure
MAX_BODY_BYTES = 100 << 20  # an answer and its links must fit into one message of the protocol
MAX_IN_FLIGHT = 10_000
MIN_MEMORY_BYTES = 1 << 20
MOST_WORKERS = 1_000  # of one reapd
MIN_PROCESS_BYTES = 192 << 20  # of address space: with less, a process of a reapd cannot begin
TLS_VERSIONS = ("1.0", "1.1", "1.2", "1.3")
_PROXY = re.compile(r"(http|socks5)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})/?")
_NAMESERVER = re.compile(r"(?P<host>[0-9.]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,5})")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
MAX_RETRY_AFTER_S = DAY_S  # what a Retry-After may ask for, and the longest that a stored time may let a server wait


@dataclass(frozen=True)
class Identity:
    """[identity]: how the reaper introduces itself."""

    name: str = "shepherd"  # product token, also the agent that robots.txt is read for
    contact: str = ""  # address or page for webmasters; needed to gather anything but loopback


@dataclass(frozen=True)
class Politeness:
    """[politeness]: how often a server may be asked."""

    delay_s: float = 10.0
    max_backoff: int = 6  # the delay doubles at most this many times after failures
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
class Fetch:
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
    pages_per_s: float = 0.0  # of all reapers together, as the next two; 0 = no limit
    bytes_per_s: int = 0  # as received
    connections: int = 0  # at a time
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


@dataclass(frozen=True)
class Config:
    identity: Identity = field(default_factory=Identity)
    politeness: Politeness = field(default_factory=Politeness)
    plan: Plan = field(default_factory=Plan)
    select: Select = field(default_factory=Select)
    sections: Sections = field(default_factory=Sections)
    section_bonus: SectionBonus = field(default_factory=SectionBonus)
    merge: Merge = field(default_factory=Merge)
    fetch: Fetch = field(default_factory=Fetch)
    reap: Reap = field(default_factory=Reap)
    network: Network = field(default_factory=Network)
    store: Store = field(default_factory=Store)
    cleanup: Cleanup = field(default_factory=Cleanup)
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

    def _beside(self, name: str) -> Path | None:
        return self.directory / name if name else None

    @property
    def user_agent(self) -> str:
        from shepherd import __version__

        contact = f" (+{self.identity.contact})" if self.identity.contact else ""
        return f"{self.identity.name}/{__version__}{contact}"


def load(directory: Path) -> Config:
    """Read `directory/shepherd.toml`; a missing file means all defaults."""
    path = directory / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config(directory=directory)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    return _build(path, tree, directory)


def _build(path: Path, tree: dict[str, Any], directory: Path) -> Config:
    sections = {f.name: f.default_factory for f in dataclasses.fields(Config) if f.name != "directory"}
    built: dict[str, Any] = {}
    for section, table in tree.items():
        if section not in sections:
            raise ConfigError(f"{path}: unknown section [{section}]; there are {', '.join(sections)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {section} must be a section, written [{section}]")
        built[section] = tomlsection.read(path, section, sections[section](), table)  # type: ignore[operator]
    config = Config(**built, directory=directory)
    _check(path, config)
    return config


def contact_fault(contact: str) -> str:
    """What is wrong with a contact address, or nothing."""
    plain = contact.isascii() and contact.isprintable()
    return "" if plain else "must be plain ASCII on one line, because it is sent in a header"


def proxy_fault(url: str) -> str:
    """What is wrong with the URL of a proxy, or nothing. The URL is not repeated: somebody may have put a password there."""
    if not url or ((parts := _PROXY.fullmatch(url)) and 0 < int(parts.group("port")) < 65_536):
        return ""
    if "@" in url:
        return "must not hold a name or password: put `user:password` into a file of mode 0600, and name that in proxy_auth"
    return "must be http://host:port or socks5://host:port"


def process_fault(size: int) -> str:
    """What is wrong with a limit to the address space of a reapd's process, or nothing."""
    possible = not size or size >= MIN_PROCESS_BYTES
    return "" if possible else f"must be 0 for no limit, or at least {MIN_PROCESS_BYTES} bytes, which is 192 MiB"


def _is_nameserver(text: str) -> bool:
    with_port = _NAMESERVER.fullmatch(text)
    host, port = with_port.group("host", "port") if with_port else (text, "53")
    try:
        return bool(ipaddress.ip_address(host.strip("[]"))) and 0 < int(port) < 65_536
    except ValueError:
        return False


def _check(path: Path, config: Config) -> None:
    def impossible(key: str, why: str) -> None:
        raise ConfigError(f"{path}: {key}: {why}")

    if not _TOKEN.fullmatch(config.identity.name):
        impossible("[identity] name", "must be a product token: letters, digits and !#$%&'*+-.^_`|~")
    if fault := contact_fault(config.identity.contact):
        impossible("[identity] contact", fault)
    if config.politeness.max_backoff > 20:
        impossible("[politeness] max_backoff", "must be at most 20: the delay doubles with each step")
    if config.politeness.most_slots > 65_535:
        impossible("[politeness] most_slots", "must be at most 65535")
    if config.politeness.delay_s > MAX_DELAY_S:
        impossible("[politeness] delay_s", f"must be at most {MAX_DELAY_S} seconds, which is 30 days")
    if max(config.fetch.body_bytes, config.fetch.decoded_bytes) > MAX_BODY_BYTES:
        impossible("[fetch] body_bytes and decoded_bytes", f"must be at most {MAX_BODY_BYTES} bytes, which is 100 MiB")
    if config.fetch.in_flight > MAX_IN_FLIGHT or config.fetch.timeout_s > DAY_S:
        impossible("[fetch] in_flight and timeout_s", f"must be at most {MAX_IN_FLIGHT} and {DAY_S} seconds")
    if config.fetch.timeout_s < 0.1 or config.reap.checkpoint_s < 0.01:
        impossible("[fetch] timeout_s and [reap] checkpoint_s", "must be at least 0.1 and 0.01 seconds")
    if config.store.compress not in ("lz4", "zstd", "none"):
        impossible("[store] compress", "must be lz4, zstd or none")
    if config.store.keep_states < 1:
        impossible("[store] keep_states", "must be at least 1: the newest closed state is never deleted")
    if not 1 << 20 <= config.store.segment_bytes <= 1 << 31:
        impossible("[store] segment_bytes", "must be from 1 MiB to 2 GiB")
    if config.store.partition_rows < 1:
        impossible("[store] partition_rows", "must be at least 1")
    if config.cleanup.sparse > 100 or config.cleanup.small > 50:
        impossible("[cleanup] sparse and small", "must be at most 100 and 50 percent")
    if config.select.site_hard < config.select.site_soft:
        impossible("[select] site_hard", "must not be below site_soft")
    if not 1 <= config.select.hard_factor <= 1_000:
        impossible("[select] hard_factor", "must be from 1 to 1000")
    if max(config.select.server_share, config.select.most_lost) > 100:
        impossible("[select] server_share and most_lost", "are percentages: at most 100")
    if config.plan.anticipate > 90:
        impossible("[plan] anticipate", "is a percentage of a cycle: at most 90")
    if config.select.optimism > 100_000:
        impossible("[select] optimism", "is a percentage: at most 100000")
    if max(config.select.hysteresis, *dataclasses.astuple(config.section_bonus)) > 65_535:
        impossible("[select] hysteresis and [section_bonus]", "weights go from 0 to 65535")
    if config.fetch.decoded_bytes < config.fetch.body_bytes:
        impossible("[fetch] decoded_bytes", "must not be below body_bytes")
    if not 0.1 <= config.reap.silence_s <= 3_600 or config.reap.parse_s < 0.1:
        impossible("[reap] silence_s and parse_s", "must be at least 0.1 seconds, and silence_s at most an hour")
    if config.reap.workers < 1 or config.fetch.in_flight < 1:
        impossible("[reap] workers and [fetch] in_flight", "must be at least 1")
    if config.reap.workers > MOST_WORKERS:
        impossible("[reap] workers", f"must be at most {MOST_WORKERS}, which is what one reapd serves")
    if fault := process_fault(config.reap.worker_bytes):
        impossible("[reap] worker_bytes", fault)
    for reaper in config.reap.reapers:
        if fault := reaper_fault(reaper):
            impossible("[reap] reapers", fault)
        if reaper.startswith("tls:") and not config.reap.keys:
            impossible("[reap] keys", f"name the dispatcher's key file, which {reaper} needs; shep-keys makes one")
    if config.plan.important_weight > 65_535:
        impossible("[plan] important_weight", "must be at most 65535, the largest weight")
    if max(config.merge.insert_weight, config.merge.weight_gap) > 65_535:
        impossible("[merge]", "weights go from 0 to 65535")
    if config.fetch.memory_bytes < MIN_MEMORY_BYTES:
        impossible("[fetch] memory_bytes", f"must be at least {MIN_MEMORY_BYTES} bytes, which is 1 MiB")
    if config.fetch.min_tls not in TLS_VERSIONS:
        impossible("[fetch] min_tls", f"must be one of {', '.join(TLS_VERSIONS)}")
    if fault := proxy_fault(config.network.proxy):
        impossible("[network] proxy", fault)
    for server in config.network.nameservers:
        if not _is_nameserver(server):
            impossible("[network] nameservers", f"{server!r} is neither an address nor address:port")
    for range_ in config.network.allow:
        try:
            ipaddress.ip_network(range_)
        except ValueError as error:
            impossible("[network] allow", f"{range_!r} is not an address range: {error}")


def find_cf(given: Path | None) -> Path:
    """--cf, else SHEPHERD_CF, else cf/ beside the working directory."""
    return given or Path(os.environ.get("SHEPHERD_CF") or "cf")


def find_db(given: Path | None) -> Path:
    """--db, else SHEPHERD_DB, else db/ beside the working directory."""
    return given or Path(os.environ.get("SHEPHERD_DB") or "db")
