"""What `shep fetch` brought, as text or JSON. Whatever came from the web is escaped."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from shepherd.config import FILE, Config
from shepherd.console import common
from shepherd.errors import NothingToDo, PeerLost
from shepherd.formats import kinds
from shepherd.formats.vocabulary import reason_text

if TYPE_CHECKING:
    from shepherd.dispatch.single import Learnt, ManualAnswer, Story
    from shepherd.filters import Filter
    from shepherd.report.robots import RobotsVerdict

NO_CONTACT = "no contact address is set, so only loopback is asked: set contact in [identity] of shepherd.toml"


def show(story: Story, learnt: Learnt, filters: Filter, config: Config, as_json: bool) -> None:
    """Print it, and end with the exit status of its outcome."""
    robots_verdict = _robots(story, config)
    if as_json:
        common.emit_json(_json(story, learnt, robots_verdict, filters))
    else:
        for label, text in _lines(story, learnt, robots_verdict, filters):
            click.echo(f"{label:<11}  {common.escape(text)}")
    _end(story, robots_verdict, config)


def _is_loopback(site: str) -> bool:
    """Whether the site is named by an address of this machine, for which nobody else need know whom to write to."""
    host = urlsplit(site).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _end(story: Story, robots_verdict: RobotsVerdict | None, config: Config) -> None:
    from shepherd.formats.tables import Reason, Result

    answer = story.answer
    if not story.place.address:
        hint = ""
        if story.place.reason == Reason.GUARD:
            allow = f"set allow in [network] of {config.directory / FILE} to let Shepherd reach it"
            anonymous = not config.identity.contact and not _is_loopback(story.url.site)
            hint = f"; {NO_CONTACT}, or {allow}" if anonymous else f"; {allow}"
        raise NothingToDo(f"{story.url.site}: {reason_text(story.place.reason)}{hint}")
    if answer is None:
        raise NothingToDo(f"{story.url.site}/robots.txt cannot be reached, so nothing of the site is fetched")
    if answer.result == Result.DENIED:
        raise NothingToDo(f"{story.url.href} was not fetched: {robots_verdict.why if robots_verdict else 'robots.txt denies it'}")
    if not answer.head:
        raise PeerLost(f"{story.url.href}: {reason_text(answer.reason)}")


def _robots(story: Story, config: Config) -> RobotsVerdict | None:
    from shepherd.report.robots import RobotsVerdict, judge
    from shepherd.urls import ROBOTS_PATH

    rules, url = story.rules, story.url
    if rules is None:
        return None
    file: dict[str, Any] = {"url": f"{url.site}{ROBOTS_PATH}", "source": rules.source, "status": kinds.STATUS.json(rules.status)}
    file |= {"checked": kinds.TIME_S.json(rules.checked_s)} if rules.checked_s else {}
    if 200 <= rules.status < 300:
        return judge(url, config.identity.name, file, rules.body)
    if not rules.status:
        return RobotsVerdict(url.href, url.site, config.identity.name, file, "denied", "it cannot be reached")
    why = "the filter says to ignore it" if rules.source == "ignored" else f"status {rules.status} counts as no robots.txt at all"
    return RobotsVerdict(url.href, url.site, config.identity.name, file, "allowed", why)


# --- text -------------------------------------------------------------------------------------------------------


def _lines(story: Story, learnt: Learnt, robots_verdict: RobotsVerdict | None, filters: Filter) -> Iterator[tuple[str, str]]:
    yield "url", story.url.href
    verdict = filters.judge(story.url.href, story.place.server.qkey)
    if not verdict.accepted:
        yield "filter", f"rejected, so a cycle would not gather it: line {verdict.line}: {verdict.text}"
    yield "address", story.place.address or "none"
    for robots_answer in learnt.robots:
        yield "asked for", f"{robots_answer.url}: {_outcome(robots_answer)}, {_timings(robots_answer)}"
    if robots_verdict is not None:
        line = f": line {robots_verdict.line[0]}: {robots_verdict.line[1]}" if robots_verdict.line else f": {robots_verdict.why}"
        checked = (
            f", checked {robots_verdict.file['checked']}" if robots_verdict.file and "checked" in robots_verdict.file else ""
        )
        yield "robots.txt", f"{robots_verdict.verdict} ({story.rules.source if story.rules else ''}{checked}){line}"
    if story.ready is not None:
        yield "delay", f"{story.ready.delay_ms / 1000:g} s from the end of this fetch"
    if story.answer is not None and story.answer.contacted:
        yield from _answer_lines(story.answer)


def _outcome(answer: ManualAnswer) -> str:
    status = answer.record.status
    return f"status {status}" if status else kinds.REASON.text(answer.reason)


def _timings(answer: ManualAnswer) -> str:
    total_ms = answer.record.download_ms
    if not answer.record.status:
        return f"ended after {total_ms} ms without a usable answer"
    return f"connected after {answer.connect_ms} ms, first byte after {answer.first_byte_ms} ms, done after {total_ms} ms"


def _answer_lines(answer: ManualAnswer) -> Iterator[tuple[str, str]]:
    status, *headers = _head(answer)
    yield "status", status or kinds.REASON.text(answer.reason)
    for header in headers:
        yield "header", header
    yield "timings", _timings(answer)
    record, attributes = answer.record, answer.attributes()
    yield "size", f"{record.wire_bytes} bytes received, {record.body_bytes} of body decoded"
    for label, letter in (("type", "T"), ("charset", "C"), ("title", "t"), ("truncated", "X"), ("redirect to", "E")):
        if letter in attributes:
            yield label, common.escape(attributes[letter])
    if "D" in attributes:
        yield "digest", attributes["D"].hex()
    yield "outcome", kinds.REASON.text(answer.reason)
    for link in answer.links():
        yield "link", link


def _head(answer: ManualAnswer) -> list[str]:
    """The status line, or nothing, and the headers, each on a line."""
    lines = [common.escape(line) for line in answer.head.split(b"\n")]
    return [lines[0].removesuffix("\\r"), *(line.removesuffix("\\r") for line in lines[1:] if line.removesuffix("\\r"))]


# --- JSON -------------------------------------------------------------------------------------------------------


def _json(story: Story, learnt: Learnt, robots_verdict: RobotsVerdict | None, filters: Filter) -> dict[str, Any]:
    from shepherd.report.robots import as_object

    verdict = filters.judge(story.url.href, story.place.server.qkey)
    return {
        "url": story.url.href,
        "filter": {"accepted": verdict.accepted, "line": verdict.line, "text": verdict.text},
        "address": story.place.address or None,
        "robots_requests": [_answer_json(robots_answer) for robots_answer in learnt.robots],
        "robots": as_object(robots_verdict) if robots_verdict else None,
        "delay_ms": story.ready.delay_ms if story.ready else None,
        "answer": _answer_json(story.answer) if story.answer else None,
        "reason": kinds.REASON.json(story.answer.reason if story.answer else story.place.reason),
        "links": story.answer.links() if story.answer else [],
    }


def _answer_json(answer: ManualAnswer) -> dict[str, Any]:
    from shepherd.formats.tables import KINDS

    status_line, *headers = _head(answer)
    attributes = answer.attributes()
    texts = {
        name: common.escape(attributes[letter]) if letter in attributes else None
        for name, letter in (("content_type", "T"), ("charset", "C"), ("title", "t"), ("truncated", "X"), ("redirect_to", "E"))
    }
    numbers = ("status", "start_ms", "end_ms", "download_ms", "wire_bytes", "body_bytes", "retry_after_s", "crawl_delay_ms")
    return {
        "url": answer.url,
        "contacted": answer.contacted,
        "outcome": kinds.REASON.text(answer.reason),
        **kinds.row_as_json(KINDS["journal"], {name: getattr(answer.record, name) for name in numbers}),
        "status_line": status_line,
        "headers": headers,
        "connect_ms": answer.connect_ms,
        "first_byte_ms": answer.first_byte_ms,
        "digest": attributes["D"].hex() if "D" in attributes else None,
        **texts,
    }
