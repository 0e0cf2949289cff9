"""What a configuration may not say although each value is of its type: ranges of single keys, and keys that need each other."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from shepherd.addresses import parse_listen, reaper_fault
from shepherd.config.settings import DAY_S, MOST, Config
from shepherd.errors import UsageError

MAX_DELAY_S: Final = 30 * DAY_S  # delays are kept as 32 bits of milliseconds, and double with each failure
MAX_RETRY_AFTER_S: Final = DAY_S  # what a Retry-After may ask for
MAX_BODY_BYTES: Final = 100 << 20  # an answer and its links must fit into one message of the protocol
MAX_IN_FLIGHT: Final = 10_000
MAX_WEIGHT: Final = 65_535
MIN_MEMORY_BYTES: Final = 1 << 20
MIN_PROCESS_BYTES: Final = 192 << 20  # of address space: with less, a process of a reapd cannot begin
MOST_WORKERS: Final = 1_000  # of one reapd
TLS_VERSIONS: Final = ("1.0", "1.1", "1.2", "1.3")
CODECS: Final = ("lz4", "zstd", "none")
LOG_FORMATS: Final = ("text", "json")
CURSOR: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")  # a directory is named so

_PROXY: Final = re.compile(r"(http|socks5)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})/?")
_NAMESERVER: Final = re.compile(r"(?P<host>[0-9.]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,5})")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TOKEN_WORDS: Final = "letters, digits and !#$%&'*+-.^_`|~"
_REACHABLE: Final = re.compile(r"[^\s@<>]+@[^\s@<>]+|https?://[^\s/]")


class ConfigFault(NamedTuple):
    """A key that cannot stay as it is. An empty key stands for its whole section, an empty section for the file."""

    section: str
    key: str
    why: str


class ValueRange(NamedTuple):
    low: float
    high: float
    note: str = ""  # follows the numbers


RANGES: Final[dict[tuple[str, str], ValueRange]] = {
    ("politeness", "delay_s"): ValueRange(0, MAX_DELAY_S, " seconds, which is 30 days"),
    ("politeness", "max_backoff"): ValueRange(0, 20, ", because the delay doubles with each step"),
    ("politeness", "neighbours_s"): ValueRange(0, DAY_S, " seconds, which is a day"),
    ("politeness", "most_slots"): ValueRange(0, 65_535),
    ("plan", "anticipate"): ValueRange(0, 90, " percent of a cycle"),
    ("plan", "important_weight"): ValueRange(0, MAX_WEIGHT, ", as all weights"),
    ("select", "hard_factor"): ValueRange(1, 1_000),
    ("select", "server_share"): ValueRange(0, 100, " percent"),
    ("select", "most_lost"): ValueRange(0, 100, " percent"),
    ("select", "optimism"): ValueRange(0, 100_000, " percent"),
    ("select", "hysteresis"): ValueRange(0, MAX_WEIGHT, ", as all weights"),
    ("merge", "insert_weight"): ValueRange(0, MAX_WEIGHT, ", as all weights"),
    ("merge", "weight_gap"): ValueRange(0, MAX_WEIGHT, ", as all weights"),
    ("fetch", "timeout_s"): ValueRange(0.1, DAY_S, " seconds"),
    ("fetch", "body_bytes"): ValueRange(0, MAX_BODY_BYTES, " bytes, which is 100 MiB"),
    ("fetch", "decoded_bytes"): ValueRange(0, MAX_BODY_BYTES, " bytes, which is 100 MiB"),
    ("fetch", "in_flight"): ValueRange(1, MAX_IN_FLIGHT),
    ("fetch", "memory_bytes"): ValueRange(MIN_MEMORY_BYTES, MOST, " bytes; the least is 1 MiB"),
    ("reap", "workers"): ValueRange(1, MOST_WORKERS, ", which is what one reapd serves"),
    ("reap", "checkpoint_s"): ValueRange(0.01, MOST, " seconds"),
    ("reap", "silence_s"): ValueRange(0.1, 3_600, " seconds"),
    ("reap", "parse_s"): ValueRange(0.1, MOST, " seconds"),
    ("store", "segment_bytes"): ValueRange(1 << 20, 1 << 31, " bytes: 1 MiB to 2 GiB"),
    ("store", "keep_states"): ValueRange(1, MOST, ", because the newest closed state is never deleted"),
    ("store", "partition_rows"): ValueRange(1, MOST),
    ("cleanup", "sparse"): ValueRange(0, 100, " percent"),
    ("cleanup", "small"): ValueRange(0, 50, " percent"),
    ("cleanup", "garbage"): ValueRange(0, 100, " percent"),
    ("master", "rounds_per_merge"): ValueRange(1, 1_000),
    ("master", "rank_every"): ValueRange(0, 1_000_000),
    ("master", "look_s"): ValueRange(0.1, 3_600, " seconds"),
    ("master", "retries"): ValueRange(0, 100),
    ("master", "retry_s"): ValueRange(0.1, DAY_S, " seconds"),
    ("hooks", "timeout_s"): ValueRange(0.1, DAY_S, " seconds"),
    ("serve", "keep_keys"): ValueRange(0, 1_000),
    ("serve", "lease_s"): ValueRange(1, 366 * DAY_S, " seconds, which is a year"),
    ("serve", "connections"): ValueRange(1, 10_000),
    ("serve", "connections_per_address"): ValueRange(0, 10_000),
    ("serve", "connections_per_client"): ValueRange(1, 10_000),
    ("serve", "stall_s"): ValueRange(0.1, 3_600, " seconds"),
    ("serve", "drain_s"): ValueRange(0, 3_600, " seconds"),
}


def faults_of(config: Config, wrong: Collection[tuple[str, str]] = ()) -> Iterator[ConfigFault]:
    """All that cannot be, in no particular order. Keys that are `wrong` already have their defaults here, so neither they nor
    what depends on others of their sections can be judged."""
    yield from (fault for fault in _single(config) if (fault.section, fault.key) not in wrong)
    sections = {section for section, _key in wrong}
    yield from (fault for fault in _together(config) if fault.section not in sections)


def _single(config: Config) -> Iterator[ConfigFault]:
    for (section, key), allowed in RANGES.items():
        value = getattr(getattr(config, section), key)
        if not allowed.low <= value <= allowed.high:
            yield ConfigFault(section, key, _beyond(allowed, value))
    for key, bonus in dataclasses.asdict(config.section_bonus).items():
        if bonus > MAX_WEIGHT:
            yield ConfigFault("section_bonus", key, _beyond(ValueRange(0, MAX_WEIGHT, ", as all weights"), bonus))
    yield from _texts(config)
    yield from _lists(config)


def _beyond(allowed: ValueRange, value: float) -> str:
    return f"must be from {allowed.low:.15g} to {allowed.high:.15g}{allowed.note}, not {value!r}"


def _texts(config: Config) -> Iterator[ConfigFault]:
    if not _TOKEN.fullmatch(config.identity.name):
        yield ConfigFault("identity", "name", f"must be a product token: {_TOKEN_WORDS}")
    if fault := contact_fault(config.identity.contact):
        yield ConfigFault("identity", "contact", fault)
    for name in config.export.cursors:
        if not CURSOR.fullmatch(name):
            yield ConfigFault("export", "cursors", f"{name!r} is not a name for a cursor: use letters, digits, _ . and -")
    if config.store.compress not in CODECS:
        yield ConfigFault("store", "compress", f"must be one of {', '.join(CODECS)}")
    if config.fetch.min_tls not in TLS_VERSIONS:
        yield ConfigFault("fetch", "min_tls", f"must be one of {', '.join(TLS_VERSIONS)}")
    if fault := proxy_fault(config.network.proxy):
        yield ConfigFault("network", "proxy", fault)
    if fault := process_fault(config.reap.worker_bytes):
        yield ConfigFault("reap", "worker_bytes", fault)
    if config.master.log_format not in LOG_FORMATS:
        yield ConfigFault("master", "log_format", f"must be one of {', '.join(LOG_FORMATS)}")
    if config.serve.listen and (fault := listen_fault(config.serve.listen)):
        yield ConfigFault("serve", "listen", fault)
    for key in ("before", "after", "on_error"):
        if fault := command_fault(getattr(config.hooks, key)):
            yield ConfigFault("hooks", key, fault)


def _lists(config: Config) -> Iterator[ConfigFault]:
    for reaper in config.reap.reapers:
        if fault := reaper_fault(reaper):
            yield ConfigFault("reap", "reapers", fault)
        elif reaper.startswith("tls:") and not config.reap.keys:
            yield ConfigFault("reap", "keys", f"name the dispatcher's key file, which {reaper} needs; shep-keys makes one")
    for server in config.network.nameservers:
        if not _is_nameserver(server):
            yield ConfigFault("network", "nameservers", f"{server!r} is neither an address nor address:port")
    for range_ in config.network.allow:
        try:
            ipaddress.ip_network(range_)
        except ValueError as error:
            yield ConfigFault("network", "allow", f"{range_!r} is not an address range: {error}")


def _together(config: Config) -> Iterator[ConfigFault]:
    if config.select.site_hard < config.select.site_soft:
        yield ConfigFault("select", "site_hard", "must not be below site_soft")
    if config.fetch.decoded_bytes < config.fetch.body_bytes:
        yield ConfigFault("fetch", "decoded_bytes", "must not be below body_bytes")
    serve = config.serve
    if bool(serve.certificate) != bool(serve.key):
        yield ConfigFault(
            "serve", "key" if serve.certificate else "certificate", "name both files, certificate and key, or neither"
        )
    if serve.listen and not listen_fault(serve.listen) and (fault := exposure_fault(config, serve.listen)):
        yield ConfigFault("serve", "listen", fault)


# --- single values, which programs also take as options -----------------------------------------------------------


def contact_fault(contact: str) -> str:
    """What is wrong with a contact address, or nothing."""
    if not (contact.isascii() and contact.isprintable()):
        return "must be plain ASCII on one line, because it is sent in a header"
    reachable = not contact or _REACHABLE.search(contact)
    return (
        ""
        if reachable
        else "must have a mail address or the URL of a page in it, such as me@example.org or https://example.org/bot"
    )


def agent_fault(agent: str) -> str:
    """What is wrong with a product token, which may have its version behind it; or nothing."""
    name, slash, version = agent.partition("/")
    good = _TOKEN.fullmatch(name) and (not slash or _TOKEN.fullmatch(version))
    return "" if good else f"must be a product token: {_TOKEN_WORDS}"


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


def command_fault(command: str) -> str:
    """What is wrong with a command that is split into words as a shell would, or nothing."""
    import shlex  # only where there is one

    try:
        return "must name a program" if command and not shlex.split(command) else ""
    except ValueError as error:
        return f"cannot be split into words: {error}"


def listen_fault(text: str) -> str:
    """What is wrong with an address to listen at, or nothing."""
    try:
        parse_listen(text)
    except UsageError as error:
        return str(error)
    return ""


def exposure_fault(config: Config, text: str) -> str:
    """Why readers may not be served at this address as the rest of [serve] stands, or nothing."""
    if parse_listen(text).is_loopback or config.serve.certificate or config.serve.insecure:
        return ""
    return (
        f"{text} can be reached from other machines, and what is sent there could be read on the way, tokens and all: "
        "set certificate and key, or insecure = true if something else encrypts"
    )


def _is_nameserver(text: str) -> bool:
    with_port = _NAMESERVER.fullmatch(text)
    host, port = with_port.group("host", "port") if with_port else (text, "53")
    try:
        return bool(ipaddress.ip_address(host.strip("[]"))) and 0 < int(port) < 65_536
    except ValueError:
        return False
