"""reapd over TLS: who is served, who is refused, and that it stays up whatever comes. Real processes, real certificates."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd import config
from shepherd.clock import steady_clock_ms
from shepherd.dispatch import reaper_sources as sources
from shepherd.dispatch.reapers import Reaper
from shepherd.errors import ConfigError, PeerLost, PeerRefused, UsageError
from shepherd.reaper.process.reapd import LINES
from shepherd.reaper.process.seats import SEATS
from shepherd.wire import authority, tls
from shepherd.wire import messages as wire
from shepherd.wire.tls import Role
from tests.support.driver import greeting, run
from tests.support.origin import Origin, serve
from tests.support.tls_reapd import NOW, Reapd, client, make_keys, running, serves
from tests.support.waiting import PATIENCE_S, children, wait_until

DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_keys(tmp_path_factory.mktemp("keys"))


async def greet(reapd: Reapd, context: ssl.SSLContext, origin: Origin) -> Reaper:
    peer = await tls.connect(reapd.address, context)
    try:
        return await Reaper.greet(1, peer, greeting(origin), steady_clock_ms())
    except BaseException:
        await peer.close()
        raise


def test_dispatcher_with_a_key_of_the_same_authority_is_served(keys: Path, tmp_path: Path) -> None:
    with running(keys / "ours/reaper.pem", tmp_path / "log") as reapd:
        assert serves(reapd, keys)
        assert reapd.dropped() == []


def plain_text(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection, contextlib.suppress(OSError):
        connection.sendall(wire.encode(wire.Ping(1, [], 0)))
        connection.recv(1000)


def leave_at_once(port: int) -> None:
    socket.create_connection(("127.0.0.1", port)).close()


def garbage(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection, contextlib.suppress(OSError):
        connection.sendall(b"\x16\x03\x01\xff\xff\x1b[31m" + bytes(range(256)) * 300)
        while connection.recv(1000):
            pass


def shake(context: ssl.SSLContext) -> Callable[[int], None]:
    """A client that is not ours, and what it gets: never a WELCOME."""

    def attempt(port: int) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(socket.create_connection(("127.0.0.1", port))) as connection:
            connection.sendall(wire.encode(greeting(Origin(1, {}))))
            got = connection.recv(1000)
            assert not got or isinstance(wire.decode(got[4:]), wire.Bye)

    return attempt


def lenient(certificate: Path | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """A client that checks nothing: the server must."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def test_stranger_is_refused_and_reapd_stays_up(keys: Path, tmp_path: Path) -> None:
    authority.make_authority(tmp_path / "old", 100, NOW - 90 * DAY)
    expired, _ = authority.issue(keys / "ours", Role.DISPATCHER, "expired", [], 1, NOW - 9 * DAY)
    strangers = {
        "no certificate": shake(lenient(None)),
        "another authority": shake(lenient(keys / "theirs/main.pem")),
        "expired": shake(lenient(expired)),
        "a reaper": shake(lenient(keys / "ours/reaper.pem")),
        "TLS 1.2": shake(lenient(keys / "ours/main.pem", ssl.TLSVersion.TLSv1_2)),
        "plain text": plain_text,
        "garbage": garbage,
        "an empty connection": leave_at_once,
    }
    with running(keys / "ours/reaper.pem", tmp_path / "log") as reapd:
        for attempt in strangers.values():
            attempt(reapd.port)
        wait_until(lambda: len(reapd.dropped()) >= len(strangers))
        assert len(reapd.dropped()) == len(strangers)
        assert "dispatcher" not in reapd.log.read_text().replace("connection dropped", "")  # none was taken for one
        assert not any(not character.isprintable() for line in reapd.log.read_text().splitlines() for character in line)
        assert reapd.process.poll() is None
        assert serves(reapd, keys)


def test_role_in_the_subject_is_judged_even_where_the_key_usage_would_do(keys: Path) -> None:
    with pytest.raises(PeerRefused, match="not for a dispatcher"):
        tls.peer_name({"subject": ((("organizationalUnitName", "reaper"),), (("commonName", "x"),))}, Role.DISPATCHER)
    with pytest.raises(PeerRefused):
        tls.peer_name({}, Role.REAPER)


@pytest.mark.parametrize("place", ["theirs/reaper.pem", "ours/elsewhere.pem"])
def test_reaper_of_another_authority_or_name_is_refused_by_the_dispatcher(keys: Path, tmp_path: Path, place: str) -> None:
    with running(keys / place, tmp_path / "log") as reapd:

        async def one() -> None:
            with pytest.raises(PeerRefused, match="no agreement on TLS"):
                await greet(reapd, client(keys / "ours/main.pem"), Origin(1, {}))

        run(one())


def test_dispatcher_learns_that_its_key_is_not_accepted(keys: Path, tmp_path: Path) -> None:
    """In TLS 1.3 a client's certificate is judged when it believes to be connected already."""
    context = client(keys / "theirs/main.pem")
    context.load_verify_locations(keys / "ours/authority.crt")
    with running(keys / "ours/reaper.pem", tmp_path / "log") as reapd:

        async def one() -> None:
            with pytest.raises((PeerRefused, PeerLost)) as caught:
                await greet(reapd, context, Origin(1, {}))
            assert isinstance(caught.value, PeerRefused)

        run(one())


def test_connection_beyond_the_most_workers_is_refused_with_the_reason(keys: Path, tmp_path: Path) -> None:
    with running(keys / "ours/reaper.pem", tmp_path / "log", "--workers", "2") as reapd:

        async def work() -> None:
            context = client(keys / "ours/main.pem")
            first, second = [await greet(reapd, context, Origin(1, {})) for _ in range(2)]
            with pytest.raises(PeerRefused, match="all 2 workers of this reaper are busy"):
                await greet(reapd, context, Origin(1, {}))
            await first.close()
            for _ in range(100):
                with contextlib.suppress(PeerRefused):
                    third = await greet(reapd, context, Origin(1, {}))
                    break
                await asyncio.sleep(0.1)
            await second.close()
            await third.close()

        run(work())


async def stay(port: int, address: str, opened: list[int]) -> None:
    """A stranger who says nothing, and comes again whenever it is sent away."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            opened.append(port)
            with contextlib.closing(writer):
                await reader.read()
        await asyncio.sleep(0.02)


def test_silent_strangers_keep_no_dispatcher_out_and_fill_no_log(keys: Path, tmp_path: Path) -> None:
    """They hold more connections than there are seats, from several addresses, and come again as often as they are sent away."""
    count = 3 * SEATS
    with running(keys / "ours/reaper.pem", tmp_path / "log", "--workers", "2") as reapd, serve({}) as origin:

        async def work() -> None:
            opened: list[int] = []
            strangers = [asyncio.create_task(stay(reapd.port, f"127.0.7.{n % 5 + 1}", opened)) for n in range(count)]
            while len(opened) < 2 * count:  # so all seats are taken, and they are sent away
                await asyncio.sleep(0.01)
            dispatchers = [await greet(reapd, client(keys / "ours/main.pem"), origin) for _ in range(2)]
            assert len(children(reapd.process.pid)) <= SEATS + 2
            for task in strangers:
                task.cancel()
            await asyncio.gather(*strangers, return_exceptions=True)
            for dispatcher in dispatchers:
                await dispatcher.close()

        run(work())
        assert len(reapd.dropped()) <= LINES + 5  # and one more a minute


def test_private_key_that_others_can_read_is_refused_with_what_to_do(keys: Path, tmp_path: Path) -> None:
    path = tmp_path / "reaper.pem"
    path.write_bytes((keys / "ours/reaper.pem").read_bytes())
    for mode in (0o640, 0o604, 0o666):
        path.chmod(mode)
        with pytest.raises(UsageError, match=f"chmod 600 {path}"):
            tls.read_keys(path, Role.REAPER, NOW)
    path.chmod(0o600)
    assert tls.read_keys(path, Role.REAPER, NOW).name == "reaper"


def test_key_file_of_the_other_role_out_of_date_or_damaged_is_refused(keys: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the key of a reaper, not of a dispatcher"):
        tls.read_keys(keys / "ours/reaper.pem", Role.DISPATCHER, NOW)
    with pytest.raises(UsageError, match="make another"):
        tls.read_keys(keys / "ours/reaper.pem", Role.REAPER, NOW + 6 * DAY)
    assert "ends on" in tls.warning(tls.read_keys(keys / "ours/reaper.pem", Role.REAPER, NOW), NOW)
    torn = tmp_path / "torn.pem"
    torn.write_bytes((keys / "ours/reaper.pem").read_bytes()[:700])
    torn.chmod(0o600)
    with pytest.raises(UsageError, match="not a key file"):
        tls.read_keys(torn, Role.REAPER, NOW)


def test_missing_key_file_of_a_dispatcher_is_named_once_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_text('[reap]\nreapers = ["tls:127.0.0.1:1"]\nkeys = "main.pem"\n')
    with pytest.raises(ConfigError) as caught:
        sources.configured(config.load(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'shepherd.toml'}: [reap] keys: {tmp_path / 'main.pem'}: cannot be read: No such file")
    assert message.count("main.pem") == 1


def keys_program(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shepherd.cli", "shep-keys", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_keys_are_for_their_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    home = tmp_path / "keys"
    os.umask(os.umask(0o000))
    assert "valid until" in keys_program("init", home).stdout
    made = keys_program("issue", home, "reaper", "r1", "--host", "r1.example", "--host", "2001:db8::1")
    assert made.returncode == 0 and "valid until" in made.stdout
    assert {path.stat().st_mode & 0o777 for path in home.iterdir()} == {0o600}
    before = {path: path.read_bytes() for path in home.iterdir()}
    for again in (("init", home), ("issue", home, "dispatcher", "r1"), ("issue", home, "reaper", "authority.crt/../r1")):
        refused = keys_program(*again)
        assert refused.returncode == 2, refused.stderr
    assert {path: path.read_bytes() for path in home.iterdir()} == before
    shown = keys_program("show", home / "r1.pem", home / "authority.crt").stdout
    [one, other] = [line.rpartition("; authority ")[2] for line in shown.splitlines()]
    assert one == other and len(one) == 16
    assert "reaper r1 at r1.example, 2001:db8::1: valid until" in shown and "729 days more" in shown
    assert "authority.crt: authority shepherd authority: valid until" in shown


def test_issuing_without_an_authority_says_what_to_do(tmp_path: Path) -> None:
    refused = keys_program("issue", tmp_path, "reaper", "r1")
    assert refused.returncode == 2 and "shep-keys init" in refused.stderr
