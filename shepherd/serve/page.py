"""The status page: its files, which are open to all and hold no data, and the figures that it shows, for readers.

The page may run its own scripts and nothing else: no script, style or connection of elsewhere, and no text as markup.
"""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

from aiohttp import web

from shepherd.report import servers, sites
from shepherd.serve.answers import Refused, answer
from shepherd.serve.metrics import CONTENT_TYPE
from shepherd.serve.service import Ask
from shepherd.wire import api

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
KINDS: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
FILES: Final = ("index.html", "page.css", "page.js", "chart.js", "show.js", "explain.js", "icon.svg")
MOST_CYCLES: Final = 1_000
MOST_HOURS: Final = 24 * 31
MOST_ROWS: Final = 200
EXPLAINING: Final = 2  # at a time, of all clients: an unknown URL is looked for in the whole inbox


# --- the page ---------------------------------------------------------------------------------------------------


async def page(ask: Ask) -> web.Response:
    return _file("index.html")


async def static(ask: Ask) -> web.Response:
    name = ask.request.match_info["name"]
    if name not in FILES:
        raise Refused(404, "there is no such file")
    return _file(name)


def _file(name: str) -> web.Response:
    data = resources.files("shepherd.serve").joinpath("static", name).read_bytes()
    kind = KINDS[name.rpartition(".")[2]]
    return web.Response(body=data, content_type=kind, charset="utf-8", headers={"Content-Security-Policy": POLICY})


# --- its data ---------------------------------------------------------------------------------------------------


async def status(ask: Ask) -> web.Response:
    ask.parameters()
    return answer(api.StatusAnswer(**await ask.work(ask.service.figures.status)))


async def history(ask: Ask) -> web.Response:
    parameters = ask.parameters()
    cycles, hours = _number(parameters, "cycles", 100, MOST_CYCLES), _number(parameters, "hours", 24, MOST_HOURS)
    return answer(api.HistoryAnswer(**await ask.work(ask.service.figures.history, cycles, hours)))


async def server_table(ask: Ask) -> web.Response:
    parameters = ask.parameters()
    sort, limit = _word(parameters, "sort", "delay", servers.SORTS), _number(parameters, "limit", 20, MOST_ROWS)
    slowed = _word(parameters, "backing_off", "0", {"0": 0, "1": 1}) == "1"
    return answer(api.ServersAnswer(**await ask.work(ask.service.figures.servers, sort, limit, slowed)))


async def site_table(ask: Ask) -> web.Response:
    parameters = ask.parameters()
    sort, limit = _word(parameters, "sort", "gathered", sites.SORTS), _number(parameters, "limit", 20, MOST_ROWS)
    return answer(api.SitesAnswer(**await ask.work(ask.service.figures.sites, sort, limit)))


async def explain(ask: Ask) -> web.Response:
    url = ask.parameters().get("url", "")
    if not url:
        raise Refused(400, "say in `url` what is to be explained")
    if ask.service.explaining >= EXPLAINING:
        raise Refused(503, "other URLs are being explained; try again in a moment", {"Retry-After": "1"})
    ask.service.explaining += 1
    try:
        story = await ask.work(ask.service.figures.explain, url)
        return answer(api.StoryAnswer(input_text=story.pop("given"), **story))
    finally:
        ask.service.explaining -= 1


async def metrics(ask: Ask) -> web.Response:
    ask.parameters()
    return web.Response(body=await ask.work(ask.service.metrics.exposed), headers={"Content-Type": CONTENT_TYPE})


def _number(parameters: dict[str, str], name: str, default: int, most: int) -> int:
    text = parameters.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= most):
        raise Refused(400, f"`{name}` is a whole number from 1 to {most}")
    return int(text)


def _word(parameters: dict[str, str], name: str, default: str, words: dict[str, Any]) -> str:
    word = parameters.get(name, default)
    if word not in words:
        raise Refused(400, f"`{name}` is one of {', '.join(words)}")
    return word
