"""All that is wrong with a configuration: shepherd.toml, and the files beside it or named in it, each read as a program would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from shepherd import config as configuration
from shepherd.config import Config
from shepherd.errors import ConfigError, FileFaults, ShepherdError


def examine(cf: Path) -> tuple[Config, list[str]]:
    """The configuration, and all that is wrong with it and with the files that it names."""
    config, complaints = configuration.examine(cf)
    return config, complaints + list(_faults(config, named=not complaints))  # where keys are wrong, names of files may be, too


def _faults(config: Config, named: bool) -> Iterator[str]:
    """The faults of the files beside shepherd.toml, also of those `named` there, each in the words of its reader."""
    for read in _readings(config, named):
        try:
            read()
        except FileFaults as error:
            yield from error.faults
        except ShepherdError as error:
            yield str(error)


def _readings(config: Config, named: bool) -> Iterator[Callable[[], object]]:
    from shepherd.equiv import load_equiv
    from shepherd.filters import load_filter

    yield lambda: load_filter(config.filter_path)
    yield lambda: load_equiv(config.equiv_path)
    if not named:
        return
    if path := config.static_path:
        from shepherd.wire.hosts import read_static

        yield lambda: read_static(path)
    if hosts := config.hosts_path:
        from shepherd.wire.hosts import read_hosts

        yield lambda: read_hosts(hosts)
    if auth := config.proxy_auth_path:
        from shepherd.wire.proxy import read_auth

        yield lambda: read_auth(auth)
    if config.reap.keys:
        from shepherd.wire.tls import Role, read_keys

        yield lambda: read_keys(config.keys_path, Role.DISPATCHER, datetime.now(UTC))
    if authorities := config.ca_path:
        yield lambda: _read_authorities(authorities)


def _read_authorities(path: Path) -> None:
    import ssl

    try:
        ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{path}: [fetch] ca_file: cannot be used: {error}") from error
