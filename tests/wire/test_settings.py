"""What travels of the configuration: files by their contents, secrets unseen, impossible values refused by name."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import certifi
import pytest

from shepherd import config
from shepherd.errors import ConfigError, PeerLost
from shepherd.wire import proxy, settings

PEM = Path(certifi.where()).read_text(encoding="ascii").split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"


def write_cf(directory: Path, text: str, **files: str) -> config.Config:
    (directory / "shepherd.toml").write_text(text)
    for name, content in files.items():
        (directory / name).write_text(content)
        (directory / name).chmod(0o600)
    return config.load(directory)


def test_files_are_read_at_the_dispatcher_and_travel_by_their_contents(tmp_path: Path) -> None:
    text = """[fetch]\nca_file = "ca"\nmin_tls = "1.3"\ntimeout_s = 7
[network]\nhosts = "names"\nproxy = "socks5://127.0.0.1:1080"\nproxy_auth = "secret"\nnameservers = ["127.0.0.1:53"]\n"""
    loaded = write_cf(tmp_path, text, ca=PEM, names="10.0.0.1 a.example\n10.0.0.2 a.example b.example\n", secret="me:pass:word\n")
    sent = settings.to_wire(loaded)
    assert str(tmp_path) not in str(sent)
    got = settings.from_wire(sent)
    assert got.limits == dataclasses.replace(config.FetchLimits(), timeout_s=7.0, min_tls="1.3")
    assert got.authorities == PEM
    assert got.hosts == {"a.example": ("10.0.0.1", "10.0.0.2"), "b.example": ("10.0.0.2",)}
    assert got.nameservers == ("127.0.0.1:53",)
    assert got.proxy == proxy.Proxy("socks5", "127.0.0.1", 1080, "me", "pass:word")
    assert got.compress == "lz4"


def test_no_settings_mean_the_defaults_and_unknown_ones_are_ignored() -> None:
    assert settings.from_wire({}) == settings.from_wire({"colour": "blue"}) == settings.Settings(config.FetchLimits())
    assert settings.from_wire(settings.to_wire(config.Config())) == settings.Settings(config.FetchLimits())


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"timeout_s": "long"}, "timeout_s"),
        ({"timeout_s": -1.0}, "timeout_s"),
        ({"verify_tls": 1}, "verify_tls"),
        ({"in_flight": 0}, "in_flight"),
        ({"memory_bytes": 0}, "memory_bytes"),
        ({"min_tls": "2.0"}, "min_tls"),
        ({"compress": "rar"}, "compress"),
        ({"nameservers": "127.0.0.1"}, "nameservers"),
        ({"hosts": ["a"]}, "hosts"),
        ({"hosts": {"a": ["b"]}}, "hosts"),
        ({"hosts": {"a": "10.0.0.1"}}, "hosts"),
        ({"authorities": "nonsense"}, "ca_file"),
        ({"authorities": 7}, "authorities"),
        ({"proxy": "ftp://127.0.0.1:1"}, "proxy"),
        ({"proxy": "http://127.0.0.1:99999"}, "proxy"),
        ({"proxy": f"http://{'x' * 70}:1"}, "proxy"),
    ],
)
def test_an_impossible_setting_ends_the_connection_and_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(PeerLost, match=named):
        settings.from_wire(given)


SECRET = "hunter2"


def test_a_password_of_a_proxy_is_shown_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    loaded = write_cf(tmp_path, '[network]\nproxy = "http://127.0.0.1:1"\nproxy_auth = "secret"\n', secret=f"me:{SECRET}")
    got = settings.from_wire(settings.to_wire(loaded))
    assert got.proxy is not None and got.proxy.password == SECRET
    assert SECRET not in f"{loaded!r} {got!r} {got.proxy!r} {got.proxy.url} {caplog.text}"
    for url in (f"http://me:{SECRET}@127.0.0.1:1", f"https://{SECRET}@x"):
        (tmp_path / "shepherd.toml").write_text(f'[network]\nproxy = "{url}"\n')
        with pytest.raises(ConfigError, match=r"proxy: must not hold a name or password") as caught:
            config.load(tmp_path)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "content", "why"),
    [
        (0o640, "me:x", "chmod 600"),
        (0o604, "me:x", "chmod 600"),
        (0o600, SECRET, "user:password"),
        (0o600, f"a:{SECRET}\nb", "user:password"),
    ],
)
def test_password_file_that_others_may_read_or_that_is_invalid_is_refused(
    tmp_path: Path, mode: int, content: str, why: str
) -> None:
    path = tmp_path / "secret"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=why) as caught:
        proxy.read_auth(path)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(("name", "content"), [("ca", ""), ("ca", "nonsense"), ("ca", "\xe9")])
def test_a_file_of_authorities_without_certificates_is_a_configuration_error(tmp_path: Path, name: str, content: str) -> None:
    loaded = write_cf(tmp_path, '[fetch]\nca_file = "ca"\n', **{name: content})
    with pytest.raises(ConfigError):
        settings.to_wire(loaded)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for key in ('[fetch]\nca_file = "gone"\n', '[network]\nhosts = "gone"\n', '[network]\nproxy_auth = "gone"\n'):
        with pytest.raises(ConfigError, match="gone"):
            settings.to_wire(write_cf(tmp_path, key))
