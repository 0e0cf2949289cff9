"""The status page in a real browser: it loads, shows what the API says, explains, and neither asks nor runs anything foreign."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shepherd.formats.tables import Reason, RowType
from shepherd.report import logbook
from shepherd.store.disk import locks, names
from shepherd.urls import qkey_of_address
from tests.browser import chromium
from tests.browser.chromium import Chromium
from tests.support.page_states import PAGES, SITES, Page, Site, make_herd
from tests.support.serving import Serving, serving, token_of
from tests.worlds import DAY, NOW

MARKUP = "<img src=x onerror=alert(1)><script>document.title='owned'</script>"
HOSTILE = Page(
    "http://b.example/%3Cscript%3E",
    RowType.GATHERED,
    Reason.REDIRECT,
    None,
    {"S": b"HTTP/1.1 301 Moved", "E": b"http://b.example/" + MARKUP.encode() + "\u202e\x1b]0;".encode()},
    {"status": 301, "checked": NOW - DAY, "gathered": NOW - DAY},
)
SERVERS = {
    "qkey": [qkey_of_address("127.0.0.7"), qkey_of_address("127.0.0.9")],
    "next_ms": [(NOW + 60) * 1_000, 0],
    "delay_ms": [10_000, 500],
    "backoff": [3, 0],
    "errors": [7, 0],
    "fetches": [9, 3_000],
    "slots": [1, 1],
}
ERRORS = {"client-error": 12, "dns": 3, MARKUP: 1}


def logs(db: Path, now: float) -> None:
    """A day of cycles, and a reap under way that is this process."""

    def cycle(n: int) -> dict[str, Any]:
        reap = {"pages": 900 + 37 * (n % 7), "wire_bytes": 10**7 * n, "errors": ERRORS}
        reports = {
            "plan": {"pages": 1_000 + n}, "reap": reap, "cork": {}, "merge": {"new": 50 * (n % 5)}, "select": {"forgotten": n},
            "record": {},
        }  # fmt: skip
        steps = [
            {"step": f"shep-{name}", "seconds": 2.5 + 60 * (name == "reap"), "status": 0, "report": report}
            for name, report in reports.items()
        ]
        start = int(now) - 3_600 * (24 - n)
        return {"start": start, "seconds": 75.0, "status": 0, "state": f"{n:06}", "steps": steps}

    def minute(n: int) -> dict[str, Any]:
        told = {"time": now - 60 * (400 - n), "state": "x", "seconds": 60.0, "pages": 3_000 + 40 * (n % 60)}
        return told | {"wire_bytes": 10**8 + 10**6 * (n % 60), "errors": n % 4, "active": 30}

    figures = {"pages": 1_234, "wire_bytes": 56_789_000, "errors": 42, "active": 17, "seconds": 61.7}
    told = {"program": "shep-reap", "pid": os.getpid(), "since": now - 62, "phase": "000003.reap", "done": 1_234, "total": 5_000}
    (db / "log").mkdir(exist_ok=True)
    (db / "log" / logbook.CYCLES).write_text("".join(json.dumps(cycle(n)) + "\n" for n in range(1, 25)))
    (db / "log" / logbook.MINUTES).write_text("".join(json.dumps(minute(n)) + "\n" for n in range(300)))
    (db / "log" / logbook.NOW).write_text(json.dumps(told | {"unit": "page", "figures": figures}))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    import time

    home = tmp_path_factory.mktemp("page")
    sites = (*SITES, Site("http://b.example", {"qkey": qkey_of_address("127.0.0.9")}))
    herd = make_herd(home, (*PAGES, HOSTILE), sites, servers=SERVERS)
    logs(herd.db, time.time())
    herd.store.lease(None, MARKUP, "a \u202e" + MARKUP, time.time_ns() // 1_000_000, 3_600)
    held = locks.lock(herd.db / names.LOCK, "shep-reap")
    try:
        with serving(home) as one:
            yield one
    finally:
        held.release()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = chromium.find()
    if program is None:
        pytest.skip("no Chromium is there (on Debian: apt install chromium)")
    one = Chromium(program, tmp_path_factory.mktemp("profile"))
    try:
        yield one
    finally:
        one.close()


@pytest.fixture
def page(browser: Chromium, served: Serving) -> Iterator[Chromium]:
    """The page with all its figures; afterwards nothing may have been complained about, or asked for elsewhere."""
    browser.resize(1280, 900)
    show(browser, served)
    yield browser
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith(f"{served.url}/")] == []
    assert browser.value("document.title") == "Shepherd"


def show(browser: Chromium, served: Serving) -> None:
    browser.open(f"{served.url}/#token={token_of('reader')}")
    shown = ("#tiles data", "#cycle-table td", "#errors tr", "#delays tr", "#servers td", "#sites td", "#disk data", "#leases td")
    for selector in shown:
        browser.wait(f"document.querySelector({json.dumps(selector)})")


def numbers(page: Chromium, selector: str) -> list[float]:
    """What <data> elements hold: the number itself, whatever it is shown as."""
    found: list[float] = page.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => Number(e.value))")
    return found


# --- figures ----------------------------------------------------------------------------------------------------


def test_numbers_on_the_page_are_those_of_the_api(page: Chromium, served: Serving) -> None:
    status, history = served.ask("/v1/status").json(), served.ask("/v1/history").json()
    servers, sites = served.ask("/v1/servers").json(), served.ask("/v1/sites").json()
    totals = status["totals"]
    for name, value in {
        "rows": totals["rows"], "gathered": totals["gathered"], "sites": totals["sites"], "servers": totals["servers"],
        "backing-off": totals["backing_off"], "state": totals["state"], "reap-pages": 1_234, "reap-errors": 42, "active": 17,
    }.items():  # fmt: skip
        assert numbers(page, f"#figure-{name}") == [value], name
    last = history["cycles"][-1]
    for name in ("planned", "pages", "errors", "new", "forgotten"):
        assert numbers(page, f"#last-{name} data") == [last[name]], name
    assert page.value("document.querySelectorAll('#cycle-table tbody tr').length") == len(history["cycles"]) == 24
    assert page.value("document.querySelectorAll('#duration-plot g').length") == 24
    assert numbers(page, "#errors data") == list(history["errors"].values()) == [24 * 12, 24 * 3, 24]
    assert numbers(page, "#delays data") == [one["servers"] for one in servers["delays"]][: len(numbers(page, "#delays data"))]
    assert sum(numbers(page, "#delays data")) == servers["servers"] == 2
    gathered = [one["gathered"] for one in sites["top"]]
    assert numbers(page, "#sites td:nth-child(2) data") == gathered and sum(gathered) == totals["gathered"]
    assert numbers(page, "#disk data")[0] == status["disk"]["segments_bytes"]


def test_phase_and_progress_are_those_of_the_reap(page: Chromium) -> None:
    assert page.text("#phase").startswith("shep-reap: 000003.reap, for ")
    assert page.value("document.querySelector('#bar').value") == pytest.approx(1_234 / 5_000)
    assert page.text("#bar-text") == "1,234 of 5,000 pages (24 %)"


def test_figures_move_with_the_reap(page: Chromium, served: Serving) -> None:
    told = json.loads((served.home / "db" / "log" / logbook.NOW).read_text())
    told["done"] = told["figures"]["pages"] = 2_500
    try:
        (served.home / "db" / "log" / logbook.NOW).write_text(json.dumps(told))
        page.wait("document.querySelector('#figure-reap-pages').value === '2500'")
        assert page.text("#bar-text") == "2,500 of 5,000 pages (50 %)"
    finally:
        told["done"] = told["figures"]["pages"] = 1_234
        (served.home / "db" / "log" / logbook.NOW).write_text(json.dumps(told))


def test_choice_of_servers_is_applied(page: Chromium) -> None:
    page.value("document.querySelector('#server-sort').dispatchEvent(new Event('change'))")
    page.value("document.querySelector('#server-slowed').click()")  # while the other is under way
    page.wait("document.querySelectorAll('#servers tbody tr').length === 1")
    assert "127.0.0.7" in page.text("#servers") and "x8" in page.text("#servers")


# --- explain ----------------------------------------------------------------------------------------------------


def explain(page: Chromium, url: str) -> str:
    page.value("document.querySelector('#story').replaceChildren()")
    page.type("#url", url)
    page.wait("document.querySelector('#story .verdict, #story .note')")
    return page.text("#story")


def test_explain_shows_what_the_api_answers(page: Chromium, served: Serving) -> None:
    text = explain(page, "HTTP://A.example/private/../new?x=1&utm_source=y#z")
    told = served.ask("/v1/explain", params={"url": "HTTP://A.example/private/../new?x=1&utm_source=y#z"}).json()
    assert page.text("#story .verdict") == told["verdict"]
    assert told["stripped"] == "http://a.example/new?x=1" and told["stripped"] in text
    assert told["footprint"]["path"] in text and "without utm_source=y" in text


def test_invalid_url_is_answered_with_the_reason(page: Chromium) -> None:
    assert "control character or blank at column 8" in explain(page, "nothing at all")
    page.complaints[:] = [text for text in page.complaints if "status of 400" not in text]  # the browser notes each refusal


# --- what others wrote ------------------------------------------------------------------------------------------


def test_markup_of_the_web_is_shown_as_text_and_not_run(page: Chromium) -> None:
    assert MARKUP in page.text("#leases") and "a \\u{202e}<img" in page.text("#leases")
    assert MARKUP in page.text("#errors")
    text = explain(page, HOSTILE.url)
    assert "<img src=x onerror=alert(1)>" in text and "\u202e" not in text and "\x1b" not in text
    assert "<svg/onload=alert(2)>" in explain(page, 'http://b.example/?"><svg/onload=alert(2)>')
    assert page.value("document.querySelectorAll('main script, main img').length") == 0


def test_policy_stops_markup_even_if_the_page_slips(page: Chromium) -> None:
    """The policy holds where the page would not: no script of elsewhere, none inline, no text as markup."""
    slips = (
        "document.body.innerHTML = '<b>x</b>'",
        "document.createElement('img').setAttribute('onerror', 'window.slipped = 1')",
        "setTimeout('window.slipped = 1')",
    )
    for slip in slips:
        refused = page.value(f"(() => {{ try {{ {slip}; return 'taken'; }} catch (error) {{ return error.name; }} }})()")
        assert refused == "TypeError", slip
    assert page.value("fetch('http://127.0.0.2:9/').then(() => 'sent', (error) => error.name)") == "TypeError"
    assert page.value("window.slipped") is None
    assert page.complaints
    page.complaints.clear()
    page.requests[:] = [url for url in page.requests if "127.0.0.2" not in url]


# --- tokens -----------------------------------------------------------------------------------------------------


def test_token_leaves_the_address_and_is_remembered(page: Chromium, served: Serving) -> None:
    assert page.value("location.href") == f"{served.url}/"
    page.open(f"{served.url}/")
    page.wait("document.querySelector('#tiles data')")  # of this tab it is known
    page.value("document.querySelector('#leave').click()")
    assert page.value("document.querySelector('main').hidden") is True and page.value("sessionStorage.length") == 0
    page.type("#token", token_of("reader"))
    page.wait("!document.querySelector('main').hidden && document.querySelector('#tiles data')")
    assert page.value("document.querySelector('#token').value") == ""


def test_wrong_token_shows_the_refusal(page: Chromium, served: Serving) -> None:
    page.value("sessionStorage.clear()")
    page.open(f"{served.url}/#token=wrong")
    page.wait("document.querySelector('#refusal').textContent")
    assert "token" in page.text("#refusal") and page.value("document.querySelector('main').hidden") is True
    page.complaints[:] = [text for text in page.complaints if "status of 401" not in text]


# --- who looks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [320, 390, 800])
def test_page_fits_the_screen(page: Chromium, served: Serving, width: int) -> None:
    page.resize(width, 844, is_phone=width < 500)
    show(page, served)
    explain(page, "http://a.example/" + "x" * 1_500)
    page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.value("document.documentElement.scrollWidth") <= width


def test_every_control_and_plot_has_a_name(page: Chromium) -> None:
    explain(page, "http://a.example/")
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = {
        "button",
        "textbox",
        "searchbox",
        "combobox",
        "checkbox",
        "progressbar",
        "progressIndicator",
        "image",
        "link",
        "region",
    }
    named = [(one["role"]["value"], one.get("name", {}).get("value", "")) for one in tree if not one.get("ignored")]
    found = [(role, name) for role, name in named if role in roles]
    assert len(found) > 20 and [role for role, name in found if not name.strip()] == []
    assert page.value("[...document.querySelectorAll('table')].every((t) => t.querySelector('th'))") is True
    plots = page.value("[...document.querySelectorAll('svg[role=img]')].map((one) => one.getAttribute('aria-label'))")
    assert len(plots) == 8 and all("at most" in text for text in plots)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(page: Chromium, served: Serving, scheme: str) -> None:
    """Contrast of at least 4.5 (WCAG AA) between every tone of text and of marks, and what is behind them."""
    page.prefer(scheme)
    try:
        ratios: dict[str, float] = page.value(CONTRAST)
    finally:
        page.prefer("light")
    assert len(ratios) > 10 and {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}


CONTRAST = """(() => {
  const root = getComputedStyle(document.documentElement);
  const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (name) => {
    const hex = root.getPropertyValue("--" + name).trim();
    const [r, g, b] = [1, 3, 5].map((at) => linear(parseInt(hex.slice(at, at + 2), 16) / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const ratio = (a, b) => Math.max(light(a) / light(b), light(b) / light(a));
  const found = { "on-accent/accent": ratio("on-accent", "accent") };
  for (const ground of ["ground", "card", "soft"]) {
    const inks = ["ink", "quiet", "accent", "bad", ...(ground === "card" ? "abcdefghij" : "")];
    for (const ink of inks) found[ink + "/" + ground] = ratio(ink, ground);
  }
  return found;
})()"""
