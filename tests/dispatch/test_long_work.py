"""A page whose bytes have come and that takes long to be worked on: it is waited for, and its server is not asked again."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd.dispatch.reap import GRACE_MS
from shepherd.reaper.process.parsing import INLINE_BYTES
from tests.support.driver import HTML, LINKS
from tests.support.origin import Answer, ok
from tests.support.reaping import planned, scripted_reapd

pytestmark = pytest.mark.waits

TIMEOUT_S = 2
LARGE = b"<p>%d</p>" + b"x" * INLINE_BYTES  # worked on in a child of its own, one after the other
# As bin/reapd, with a parser that is slow: two such pages take longer than the lease of a request lasts.
REAPD = f"""
import sys, time
from pathlib import Path
from shepherd.addresses import UnixAddress
from shepherd.reaper.document import extract
from shepherd.reaper.process import reapd
from shepherd.reaper.process.limits import WorkerLimits
whole = extract.extract
def slow(body, *rest):
    if len(body) > {INLINE_BYTES}:
        time.sleep({(TIMEOUT_S + GRACE_MS / 1000) * 0.7})
    return whole(body, *rest)
extract.extract = slow
reapd.main(UnixAddress(Path(sys.argv[1])), WorkerLimits(workers=2), None, "nobody")
"""


def test_page_that_waits_for_its_parser_longer_than_its_lease_lasts_is_fetched_once(tmp_path: Path) -> None:
    path = tmp_path / "reapd"
    routes: dict[str, Answer] = {f"s{n}.example/large": ok(LARGE % n, HTML) for n in range(2)}
    routes["small.example/"] = ok(LINKS, HTML)
    urls = [f"http://{route}" for route in routes]
    with scripted_reapd(path, REAPD), planned(tmp_path, routes, urls, [f"unix:{path}"], servers=3, timeout_s=TIMEOUT_S) as made:
        log = made.run("shep-reap")
        assert log.returncode == 0 and "not requested" not in log.stderr, log.stderr
        made.must("shep-cork", "-q")
        fates = made.fates()
        assert [fates[url] for url in urls] == [("gathered", "gathered")] * len(urls)
        assert [made.request_counts()[route] for route in routes] == [1] * len(routes)
