"""One site of a server asks to be left alone for days: it is, and its neighbours are gathered; by the server's own log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.crash.test_politeness import PAGE, Garden, garden
from tests.support.origin import Answer, ok

pytestmark = pytest.mark.waits

DAYS = ok(b"User-agent: *\nCrawl-delay: 4000000\n")
BUSY = ok(b"", "Retry-After: 4000000", status="503 Service Unavailable")


def contacts_with(one: Garden, host: str) -> int:
    return sum(url.startswith(f"{host}/") for url, _begin, _end in one.origin.spans)


@pytest.mark.parametrize("how", ["crawl-delay", "retry-after"])
def test_what_one_site_asks_for_does_not_silence_its_neighbours(tmp_path: Path, how: str) -> None:
    loud: dict[str, Answer] = {"loud.evil/robots.txt": DAYS} if how == "crawl-delay" else {"loud.evil/0": BUSY}
    routes: dict[str, Answer] = {"loud.evil/0": PAGE, **loud, "loud.evil/1": PAGE, **{f"a.example/{n}": PAGE for n in range(6)}}
    with garden(tmp_path, routes, delay_s=0.05) as one:
        settings = tmp_path / "cf" / "shepherd.toml"
        settings.write_text(settings.read_text().replace("[politeness]", "[politeness]\nneighbours_s = 1"))
        one.must("shep-init", "-q")
        for weight, number in ((60_000, 0), (50_000, 1)):
            one.must("shep", "insert", "--weight", str(weight), f"http://loud.evil/{number}")
        one.plan(*(f"http://a.example/{n}" for n in range(3)))
        one.must("shep-reap", "--seconds", "30")
        assert contacts_with(one, "a.example") == 4  # with its robots.txt
        loud_contacts = contacts_with(one, "loud.evil")
        assert loud_contacts == (1 if how == "crawl-delay" else 2)
        one.must("shep-cork", "-q")
        one.plan(*(f"http://a.example/{n}" for n in range(3, 6)))
        one.must("shep-reap", "--seconds", "30")
        assert contacts_with(one, "a.example") == 7
        assert contacts_with(one, "loud.evil") == loud_contacts
        one.must("shep-cork", "-q")
        assert one.run("shep", "audit", "politeness").returncode == 0
        ask = json.loads(one.run("shep", "servers", "--json").stdout)["asks"]
        assert ask["site"] == "http://loud.evil" and ask["until"]
        for url in ("http://loud.evil/1", "http://a.example/1"):
            assert "http://loud.evil, until 2" in one.run("shep", "explain", url).stdout
        assert "asked to be left alone" in one.run("shep", "explain", "http://loud.evil/1").stdout
