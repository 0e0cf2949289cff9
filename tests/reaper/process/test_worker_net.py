"""What a worker says of names, certificates and proxies: its settings reach resolver and fetcher, its deadline covers both."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from shepherd.formats.tables import Kind, Reason, Result
from shepherd.reaper.fetch.exchange import retry_after_s
from tests.support import driver
from tests.support.dns import SERVFAIL, A, serve_dns
from tests.support.driver import FAR_MS, HTML, LINKS, Outcome, connected
from tests.support.origin import Origin, ok, serve
from tests.support.proxies import serve_proxy

GOOD = (Result.STORED, Reason.GATHERED)
PAGE = ok(LINKS, HTML)
CERTIFICATE = Path(__file__).resolve().parents[3] / "tests/support/self-signed.pem"


async def ask(origin: Origin, settings: dict[str, Any], url: str, **changes: Any) -> Outcome:
    async with connected(origin, static={}, settings=settings) as dispatcher:
        await dispatcher.rules()
        return await dispatcher.fetch("/x", url=url, **changes)


def test_the_deadline_covers_the_lookup_of_the_name() -> None:
    with serve({"/x": PAGE}) as origin:

        async def run() -> Outcome:
            async with serve_dns({}) as (_dns, server):
                settings = {"nameservers": [server], "timeout_s": 0.5}
                return await ask(origin, settings, f"http://silent.example:{origin.port}/x", deadline_ms=FAR_MS)

        outcome = driver.run(run())
        assert outcome.verdict == (Result.SOFT, Reason.LOOKUP) and not outcome.contacted
        assert origin.connections == 0


def test_a_request_that_came_too_late_does_not_blame_the_name_servers() -> None:
    with serve({"/x": PAGE}) as origin:

        async def run() -> Outcome:
            async with serve_dns({}) as (_dns, server):
                return await ask(origin, {"nameservers": [server]}, f"http://silent.example:{origin.port}/x", deadline_ms=1)

        outcome = driver.run(run())
        assert outcome.verdict == (Result.SOFT, Reason.DEADLINE) and not outcome.contacted


def test_failing_name_servers_are_distinct_from_a_name_that_has_moved() -> None:
    with serve({"/x": PAGE}) as origin:

        async def run() -> list[tuple[Result, Reason]]:
            async with serve_dns({"here.example": [(A, "127.0.0.1", 60)]}) as (dns, server):
                dns.codes["broken.example"] = SERVFAIL
                names = ("here.example", "broken.example", "gone.example")
                urls = [f"http://{name}:{origin.port}/x" for name in names]
                return [(await ask(origin, {"nameservers": [server]}, url)).verdict for url in urls]

        assert driver.run(run()) == [GOOD, (Result.SOFT, Reason.LOOKUP), (Result.SOFT, Reason.NO_ADDRESS)]
        assert len(origin.seen) == 1


def test_a_hosts_file_of_the_dispatcher_reaches_the_worker() -> None:
    with serve({"/x": PAGE}) as origin:
        settings = {"hosts": {"b.example": ["127.0.0.1"]}}
        assert driver.run(ask(origin, settings, f"http://b.example:{origin.port}/x")).verdict == GOOD


def test_a_proxy_of_the_dispatcher_reaches_the_worker() -> None:
    with serve({"/x": PAGE}) as origin, serve_proxy("http") as relay:
        relay.credentials = "me:secret"
        settings = {"hosts": {"b.example": ["127.0.0.1"]}, "proxy": f"http://127.0.0.1:{relay.port}", "proxy_auth": "me:secret"}
        assert driver.run(ask(origin, settings, f"http://b.example:{origin.port}/x")).verdict == GOOD
        assert relay.asked == [f"127.0.0.1:{origin.port}"]


@pytest.mark.parametrize(("trusted", "verdict"), [(True, GOOD), (False, (Result.SITE, Reason.TLS))])
def test_refused_certificate_is_the_sites_fault(trusted: bool, verdict: tuple[Result, Reason]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    authorities = CERTIFICATE.read_text().partition("-----END PRIVATE KEY-----\n")[2] if trusted else ""
    with serve({"/x": PAGE}, context) as origin:
        settings = {"hosts": {"a.example": ["127.0.0.1"]}, "authorities": authorities}
        outcome = driver.run(ask(origin, settings, f"https://a.example:{origin.port}/x"))
        assert outcome.verdict == verdict and outcome.contacted
        robots = driver.run(ask(origin, settings, f"https://a.example:{origin.port}/x", kind=Kind.ROBOTS))
        assert robots.verdict[1] == verdict[1]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0), ("120", 120), ("99999999999999", 4_294_967_295), ("-5", 0), ("1.5", 0), ("", 0), ("soon", 0), ("١٢", 0),
        ("Sun, 09 Sep 2001 01:47:00 GMT", 21), ("Sunday, 09-Sep-01 01:47:00 GMT", 21), ("Sun Sep  9 01:47:00 2001", 21),
        ("Sun, 09 Sep 2001 01:46:00 GMT", 0), ("Sun, 09 Sep 2001 02:47:00 +0100", 21), ("Sun, 99 Sep 2001 01:47:00 GMT", 0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", 0),
    ],
)  # fmt: skip
def test_retry_after_is_read_as_seconds_or_date(value: str, seconds: int) -> None:
    assert retry_after_s(value, 1_000_000_000_000) == seconds
