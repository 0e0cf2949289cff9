"""gather without a URL: the toy web, gathered to its end, then refreshed once, to see what has changed and what has moved.

The toy web is the same at every run but for its version, which is kept beside its access log: so a run continues the last one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shepherd.cli.gather import cf as gather_cf
from shepherd.cli.gather.run import COMPLETE, Gatherer, claim, create, finish, insert
from shepherd.config import OWN_CF, CfPlace, Merge, load
from shepherd.config.places import BY_DATABASE
from shepherd.console import cf_files, cf_place, common
from shepherd.console.extras import need_toyweb
from shepherd.errors import UsageError

SITES: Final = 80
SEED: Final = 1
UNLIMITED: Final = 5_000_000
VERSION: Final = "version"  # a file with the version of the toy web that was served last
WHY: Final = "Written by gather for the toy web, at every run."
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "politeness": {"delay_s": 0.02},
    "select": {"site_soft": 60, "site_hard": 120},  # the calendar of one site has no end
    "reap": {"checkpoint_s": 1.0},
}
REFRESH: Final = {"refresh_s": 0, "retry_s": 0}  # everything is due: pages to see whether they changed, errors once more
INSERT_WEIGHT: Final = Merge().insert_weight


@dataclass(frozen=True)
class Home:
    """Where the toy web's database and all that belongs to it is."""

    db: Path
    cf: Path
    refresh_cf: Path
    web: Path


def home(db: Path | None) -> Home:
    """toy/ in the source tree; or all of it in the directory that --db names. Its configuration is the database's own."""
    if db is not None:
        return _home(db, db / OWN_CF / "web")
    toy = gather_cf.source_root() / "toy"
    return _home(toy / "db", toy / "web")


def _home(db: Path, web: Path) -> Home:
    return Home(db, db / OWN_CF, db / OWN_CF / "refresh", web)


def is_home(db: Path) -> bool:
    """Whether the toy web is gathered into this database."""
    return home(db).web.is_dir() or db.resolve() == home(None).db.resolve()


def gather(db: Path | None, pages: int | None, seconds: float, contact: str | None) -> int:
    """Gather the toy web until nothing is due, let it change, refresh once, and show what came of it; the exit status."""
    need_toyweb()
    from shepherd.master.children import Signals
    from toyweb import run
    from toyweb.model import BASE, Model
    from toyweb.server import has_many_addresses

    place, model = home(db), Model(SEED, SITES, one_address=not has_many_addresses(BASE))
    lock = claim(place.db)
    if lock is not None and not place.web.is_dir():
        raise UsageError(f"{place.db} is not a database of the toy web: give the URLs to gather, or another --db")
    place.web.mkdir(parents=True, exist_ok=True)
    version = _version(place.web)
    filter_text = f"{cf_files.read_filter(common.default_files())}\n{gather_cf.ANYWHERE}\n"  # it is loopback alone
    lock = lock or create(place.db, filter_text)
    settings = gather_cf.overlay(SETTINGS, _reaching(place.web, contact))

    for directory, plan in ((place.cf, {}), (place.refresh_cf, REFRESH)):
        cf_files.write(directory, gather_cf.overlay(settings, {"plan": plan}), filter_text, WHY)
    cf_place.note(place.db, CfPlace(place.cf, BY_DATABASE), load(place.cf))
    gatherer = Gatherer(place.db, lock, pages or UNLIMITED, seconds, Signals())
    refreshed = False
    with run.start(model, place.web, version=version) as web:
        common.LOG.info("the toy web: %d sites on %d servers, every request in %s", SITES, model.servers, web.log_path)
        insert(place.db, model.seeds(), INSERT_WEIGHT)
        ending = gatherer.until_done(place.cf)
        if ending is COMPLETE:
            web.advance()
            (place.web / VERSION).write_text(f"{version + 1}\n", encoding="ascii")
            common.LOG.info("some pages of the toy web have changed or moved: one cycle to refresh, then what it finds")
            refreshed = True
            ending = gatherer.refresh(place.refresh_cf) or gatherer.until_done(place.cf)
    return finish(gatherer, ending, place.cf, model.seeds()[0], refreshed)


def _reaching(web: Path, contact: str | None) -> dict[str, dict[str, Any]]:
    """Only loopback, and the toy web's own table of names and authority."""
    from toyweb.server import CERTIFICATE, STATIC

    reach: dict[str, dict[str, Any]] = {"network": {"allow": ["127.0.0.0/8"], "static": str((web / STATIC).resolve())}}
    reach["fetch"] = {"ca_file": str((web / CERTIFICATE).resolve())}
    return reach | {"identity": {"contact": contact or "nobody@localhost"}}


def _version(web: Path) -> int:
    path = web / VERSION
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return 0
    if not re.fullmatch("[0-9]{1,9}", text):
        raise UsageError(f"{path}: not the number of a version of the toy web; to start afresh, delete {web.parent}")
    return int(text)
