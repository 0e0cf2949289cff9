"""The toy web in its other shapes: several processes, https, latency, one address, its own DNS."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shepherd.errors import PeerLost
from shepherd.formats.tables import Reason
from shepherd.reaper.fetch.guard import Guard
from shepherd.reaper.fetch.resolver import Resolver
from tests.support.waiting import PATIENCE_S, wait_until
from toyweb.dns import reply
from toyweb.log import AccessEntry, gaps, read_log
from toyweb.model import Model
from toyweb.plan import PageKind
from toyweb.residents import RESIDENTS, redirects_to_https
from toyweb.run import Running, start

BASE = "127.1.20.0"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Three processes, so everything that is true of one must be true of them together."""
    with start(Model(4, 50, BASE, zoo=True), tmp_path_factory.mktemp("wide"), 0, 0, "--processes", "3") as running:
        yield running


def get(web: Running, host: str, path: str = "/", tls: ssl.SSLContext | None = None) -> tuple[int, dict[str, str], bytes]:
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(socket.create_connection(web.static()[host], timeout=PATIENCE_S))
        connection = http.client.HTTPConnection(host)
        connection.sock = stack.enter_context(tls.wrap_socket(plain, server_hostname=host)) if tls else plain
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()


def trusting(web: Running) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(web.certificate_path))


def logged(web: Running, before: int, count: int) -> list[AccessEntry]:
    """What stands in the log behind its first lines; a line is written when its answer is sent, so it may be a moment behind."""
    wait_until(lambda: len(read_log(web.log_path)) >= before + count)
    return read_log(web.log_path)[before:]


def children(web: Running) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{web.pid}/task/{web.pid}/children").read_text().split()]


def test_processes_share_a_log_without_tearing_a_line(web: Running) -> None:
    before = len(read_log(web.log_path))
    hosts = [f"site{number}.toy.example" for number in range(40, 50)]
    asked = [(host, f"/none?{'x' * length}") for length in range(0, 6000, 300) for host in hosts]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda one: get(web, *one)[0], asked))
    assert set(answers) == {404}
    assert sorted((entry.host, entry.path) for entry in logged(web, before, len(asked))) == sorted(asked)


def test_processes_advance_together(tmp_path: Path) -> None:
    model = Model(4, 50, "127.1.21.0")
    page = next(page for page in model.pages() if page.kind is PageKind.MOVING)
    changing = [page for page in model.pages() if page.kind is PageKind.CHANGING][-8:]
    with start(model, tmp_path, 0, 0, "--processes", "3") as web:
        before = [get(web, page.host, page.path)[2] for page in changing]
        assert get(web, page.host, page.path)[0] == 200
        web.advance()
        assert get(web, page.host, page.path)[0] == 301
        after = [get(web, page.host, page.path)[2] for page in changing]
    assert all(old != new for old, new in zip(before, after, strict=True))


def test_fewer_servers_than_processes_share_every_port_and_ask_for_patience_once(tmp_path: Path) -> None:
    model = Model(4, 50, "127.1.22.0", per_address=50)
    limited = next(page for page in model.pages() if page.kind is PageKind.LIMITED)
    assert len(model.addresses) == 1
    with start(model, tmp_path, 0, 0, "--processes", "3") as web:
        assert [get(web, limited.host, limited.path)[0] for _ in range(12)] == [429, *(11 * [200])]
        assert len(children(web)) == 3


def test_death_of_one_process_ends_all(tmp_path: Path) -> None:
    with start(Model(4, 50, "127.1.23.0"), tmp_path, 0, 0, "--processes", "3") as web:
        helpers = children(web)
        os.kill(helpers[1], signal.SIGKILL)
        with pytest.raises(PeerLost, match="a process of the toy web ended before its time"):
            web._read_line()
    assert not any(Path(f"/proc/{pid}").exists() for pid in helpers)


def test_https_is_signed_by_the_authority_in_the_file(web: Running) -> None:
    before = len(read_log(web.log_path))
    hosts = ["calendar-endless.zoo.toy.example", "site3.toy.example", "www.site47.toy.example"]
    for host in hosts:
        assert get(web, host, tls=trusting(web))[0] == 200
    entries = logged(web, before, len(hosts))
    assert sorted((entry.scheme, entry.host) for entry in entries) == [("https", host) for host in hosts]


def test_http_leads_to_https_and_the_page_is_there(web: Running) -> None:
    host = f"site{RESIDENTS.index(redirects_to_https)}.toy.example"
    status, headers, _ = get(web, host)
    assert (status, headers["Location"]) == (301, f"https://{host}/")
    status, _, body = get(web, host, tls=trusting(web))
    assert status == 200 and len(body) > 9_000


@pytest.mark.parametrize("defect", ["expired", "wrong-name", "untrusted"])
def test_a_defective_certificate_is_refused_and_the_visit_logged(web: Running, defect: str) -> None:
    before = len(read_log(web.log_path))
    with pytest.raises(ssl.SSLCertVerificationError):
        get(web, f"tls-{defect}.zoo.toy.example", tls=trusting(web))
    assert [(entry.scheme, entry.host, entry.status) for entry in logged(web, before, 1)] == [("https", "", 0)]


def test_the_authority_may_not_sign_for_the_world(web: Running) -> None:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(web.certificate_path.read_bytes())
    constraints = certificate.extensions.get_extension_for_class(x509.NameConstraints)
    assert constraints.critical and constraints.value.permitted_subtrees == [x509.DNSName("toy.example")]


def test_latency_is_waited_and_logged(tmp_path: Path) -> None:
    with start(Model(4, 2, "127.1.24.0", plain=True), tmp_path, 0, 0, "--latency-ms", "150") as web:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda _: get(web, "site1.toy.example")[0], range(8))) == 8 * [200]
        entries = logged(web, 0, 8)
    assert all(entry.duration_s >= 0.149 for entry in entries)  # a timer counts in whole milliseconds
    servers, sites = gaps(entries)
    assert servers[0].most_at_once > 1 and sites[0].overlaps > 0  # they wait side by side


def test_one_address_has_a_port_for_each_server(tmp_path: Path) -> None:
    model = Model(4, 50, one_address=True)
    with start(model, tmp_path) as web:
        table = web.static()
        assert {address for address, _ in table.values()} == {"127.0.0.1"} == set(model.addresses)
        assert len({port for _, port in table.values()}) == model.servers == 25
        assert [get(web, f"site{number}.toy.example")[0] for number in (0, 10, 49)] == [200, 200, 200]


def test_a_cdn_has_its_sites_on_one_address(tmp_path: Path) -> None:
    model = Model(4, 2_000, "127.1.25.0", plain=True, per_address=100, cdn=1_800)
    with start(model, tmp_path) as web:
        table = web.static()
        assert len({table[f"site{number}.toy.example"] for number in range(200, 2_000)}) == 1
        assert len({address for address, _ in table.values()}) == 3
        assert get(web, "www.site1999.toy.example")[0] == 200


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_names_resolve_over_real_dns(tmp_path: Path) -> None:
    model, port = Model(4, 50, "127.1.26.0", zoo=True), free_udp_port()
    names = ["site7.toy.example", "www.site7.toy.example", "n987654.names-endless.zoo.toy.example", "site50.toy.example"]

    async def resolve() -> list[tuple[str, Reason]]:
        resolver = Resolver(Guard(("127.0.0.0/8",)), {}, nameservers=[f"127.0.0.1:{port}"], ipv6=False)
        try:
            answers = [await resolver.resolve(f"http://{name}") for name in names]
        finally:
            await resolver.close()
        return [(answer.address, Reason(answer.reason)) for answer in answers]

    with start(model, tmp_path, 0, 0, "--dns", str(port), "--processes", "2") as web:
        found = asyncio.run(resolve())
        address = web.static()["site7.toy.example"][0]
    endless = model.address_of(model.server_of("names-endless.zoo.toy.example") or 0)
    none = Reason.NONE
    assert found == [(address, none), (address, none), (endless, none), ("", Reason.NO_ADDRESS)]


ASK = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
NAME = b"\x05site3\x03toy\x07example\x00"


@pytest.mark.parametrize(
    ("query", "code", "answers"),
    [
        (ASK + NAME + b"\x00\x01\x00\x01", 0, 1),
        (ASK + NAME.upper() + b"\x00\x01\x00\x01", 0, 1),
        (ASK + NAME + b"\x00\x1c\x00\x01", 0, 0),
        (ASK + b"\x04nope\x03toy\x07example\x00\x00\x01\x00\x01", 3, 0),
        (ASK + b"\x03www\x07example\x03org\x00\x00\x01\x00\x01", 5, 0),
        (ASK + NAME[:9], 1, 0),
        (ASK + b"\xc0\x0c\x00\x01\x00\x01", 1, 0),
        (ASK + NAME + b"\x00", 1, 0),
    ],
)
def test_dns_answers_queries(query: bytes, code: int, answers: int) -> None:
    answer = reply(Model(4, 50, BASE), query)
    assert answer is not None and answer[:2] == ASK[:2]
    assert (answer[3] & 15, int.from_bytes(answer[6:8], "big")) == (code, answers)
    assert not answers or answer.endswith(socket.inet_aton("127.1.20.4"))


@pytest.mark.parametrize("datagram", [b"", b"short", b"\x12\x34\x84\x00" + ASK[4:] + NAME])
def test_dns_is_silent_to_what_is_no_query(datagram: bytes) -> None:
    assert reply(Model(4, 50, BASE), datagram) is None
