"""The database's own configuration, as `gather` makes it: the user's settings and filter, narrowed to the sites that were named.

It is made once, from the user's own, which is not written. From then on it is the database's: every program takes it, whoever
runs the database edits it, and `gather` adds to it what is named on its command line, and nothing else. Limits of a run are
not in it. What earlier versions left there, such limits and a list of places, is taken out when it is read.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shepherd import config as configuration
from shepherd.config import Config
from shepherd.console import cf_files, common
from shepherd.console.cf_files import Tree
from shepherd.errors import UsageError

if TYPE_CHECKING:
    from shepherd.filters.scope_lines import ScopeWord
    from shepherd.urls import Url

SITE, SUBDOMAINS, ANY = "site", "subdomains", "any"
SCOPES: Final = (SITE, SUBDOMAINS, ANY)
WHY: Final = "Made by gather for this database, from your own settings. Every program takes it from here; gather only adds to it."
ANYWHERE: Final = "default accept"

_OLD_PLACES: Final = "scope"  # a file of places, a line each
_OLD_HEAD: Final = re.compile(r"# Written by gather: only .*\nreject regex .*\n\n?")
_OLD_LIMITS: Final = ("max_pages", "reap_s")


def source_root() -> Path:
    """The source tree that we run from, or the working directory if we were installed."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "bin").is_dir() and (root / "cf").is_dir() else Path.cwd()


def user_directory() -> Path:
    """Where the user's own configuration is: SHEPHERD_CF, else cf/, else the defaults that came with the program."""
    directory = os.environ.get("SHEPHERD_CF")
    if directory:
        if not Path(directory).is_dir():
            raise UsageError(f"SHEPHERD_CF={directory}: not a directory")
        return Path(directory)
    return Path("cf") if Path("cf").is_dir() else common.default_files()


def is_there(own_cf: Path) -> bool:
    """Whether a database has a configuration of its own."""
    return (own_cf / cf_files.TOML).is_file()


def overlay(below: Tree, above: Tree) -> dict[str, dict[str, Any]]:
    """The settings of both; where both speak, `above` holds."""
    return {name: {**below.get(name, {}), **above.get(name, {})} for name in dict.fromkeys([*below, *above])}


@dataclass(frozen=True)
class CfDraft:
    """A configuration on its way into a database."""

    source: Path  # where it was read
    config: Config
    toml_text: str
    filter_text: str
    equiv_text: str

    def with_setting(self, section: str, key: str, value: str) -> CfDraft:
        return replace(self, toml_text=cf_files.with_setting(self.toml_text, section, key, value))

    def with_contact(self, contact: str) -> CfDraft:
        return self if contact == self.config.identity.contact else self.with_setting("identity", "contact", contact)

    def with_scope(self, urls: Sequence[Url], kind: str) -> CfDraft:
        """Its filter with what these URLs add to the scope."""
        from shepherd.filters.scope_lines import ScopeWord, read_words, with_words, without_words

        if kind == ANY:
            text = without_words(self.filter_text, read_words(self.filter_text, "filter"))
            return replace(self, filter_text=_with_default(text))
        sites = dict.fromkeys(url.norm for url in urls)
        words = [ScopeWord("host" if kind == SUBDOMAINS and not _is_address(norm) else "site", norm) for norm in sites]
        return replace(self, filter_text=with_words(self.filter_text, words))

    def write(self, own_cf: Path) -> None:
        """Put it in place, each file only where it is another."""
        from shepherd.store.disk import fsio

        own_cf.mkdir(parents=True, exist_ok=True)
        texts = {cf_files.TOML: self.toml_text, cf_files.FILTER: self.filter_text, cf_files.EQUIV: self.equiv_text}
        for name, text in texts.items():
            path = own_cf / name
            if not path.is_file() or path.read_bytes() != text.encode():
                fsio.replace_file(path, text.encode())
        fsio.unlink(own_cf / _OLD_PLACES)


def read(db_cf: Path) -> CfDraft:
    """The database's own configuration, or where there is none yet the user's, as it holds from another directory."""
    from shepherd.equiv import load_equiv
    from shepherd.filters import load_filter

    is_own = is_there(db_cf)
    source = db_cf if is_own else user_directory()
    config = configuration.load(source)
    load_filter(config.filter_path)  # its faults are reported with its own line numbers
    toml_text, equiv_text = cf_files.read_text(source), load_equiv(config.equiv_path).text
    draft = CfDraft(source, config, toml_text, cf_files.read_filter(source), equiv_text)
    if not is_own:
        draft = replace(draft, toml_text=f"# {WHY}\n\n{toml_text}")
        for section, key, path in _named_files(config):
            draft = draft.with_setting(section, key, str(path.resolve()))
    elif (db_cf / _OLD_PLACES).exists():
        draft = _without_old(draft, _old_words(db_cf / _OLD_PLACES))
    return draft


def _named_files(user: Config) -> Iterator[tuple[str, str, Path]]:
    """What shepherd.toml names beside itself, and where that is."""
    named = {
        ("network", "static"): user.static_path,
        ("network", "hosts"): user.hosts_path,
        ("network", "proxy_auth"): user.proxy_auth_path,
        ("fetch", "ca_file"): user.ca_path,
        ("reap", "keys"): user.keys_path if user.reap.keys else None,
        ("serve", "certificate"): user.directory / user.serve.certificate if user.serve.certificate else None,
        ("serve", "key"): user.directory / user.serve.key if user.serve.key else None,
    }
    for (section, key), path in named.items():
        if path is not None:
            yield section, key, path


def _with_default(text: str) -> str:
    from shepherd.filters import parse_filter

    if parse_filter(text).has_default:
        return text
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{ANYWHERE}\n"


def _is_address(norm: str) -> bool:
    return bool(re.fullmatch(r"[0-9.]+(:\d+)?|\[.*", norm))  # which has no subdomains


# --- what earlier versions wrote --------------------------------------------------------------------------------


def _old_words(path: Path) -> list[ScopeWord]:
    from shepherd.filters.scope_lines import ScopeWord

    try:
        places = path.read_text(encoding="ascii").split()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not ASCII at byte {error.start}; it lists sites, one host a line: mend or delete it") from None
    if "*" in places:
        return []
    return [ScopeWord("host" if place.startswith("*.") else "site", place.removeprefix("*.")) for place in places]


def _without_old(draft: CfDraft, words: Sequence[ScopeWord]) -> CfDraft:
    from shepherd.filters.scope_lines import with_words

    tree = cf_files.read_tree(draft.source)
    tree["plan"] = {key: value for key, value in tree.get("plan", {}).items() if key not in _OLD_LIMITS}
    text = _OLD_HEAD.sub("", draft.filter_text, count=1)
    text = with_words(text, words) if words else _with_default(text)
    return replace(draft, toml_text=cf_files.to_toml(tree, WHY), filter_text=text)


# --- loopback ---------------------------------------------------------------------------------------------------


def is_loopback(site: str, config: Config) -> bool:
    """Whether scheme://host[:port] is on this machine, by its address or by the user's static table."""
    host = re.sub(r":\d+$", "", site.partition("://")[2])
    return host == "localhost" or _is_loopback_address(_static(config).get(host, host.strip("[]")))


def _static(config: Config) -> dict[str, str]:
    path = config.static_path
    if path is None or not path.is_file():
        return {}
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 3}


def _is_loopback_address(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False
