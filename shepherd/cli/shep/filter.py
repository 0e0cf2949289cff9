"""shep filter check: what the filter says of a URL and of its site, and by which lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.config import Config
from shepherd.console import common, shared
from shepherd.formats import kinds

if TYPE_CHECKING:
    from shepherd.filters import Filter


@click.group("filter")
def command() -> None:
    """Try out cf/filter."""


@command.command("check")
@click.argument("url_texts", nargs=-1, required=True, metavar="URL...")
@click.option("--address", metavar="ADDRESS", help="Judge as if this were the address of the sites.  [default: not known]")
@common.database_of_cf
@common.configured
@common.jsonable
@common.standard
def check(url_texts: tuple[str, ...], address: str | None, config: Config, as_json: bool) -> None:
    """Show what the filter does with each URL, and which lines decide.

    It prints the URL as given, parsed and stripped; whether it is accepted, by which line, and by which pattern of it; its
    section; the group and the settings of its site, each with its line. Nothing is read of a database but its configuration.

    Lines about address ranges apply where the host of a URL is an address; with --address they apply to all hosts, as in a cycle
    once a site has been looked up.

    With `-` it reads URLs from stdin, one a line. A bad URL is reported with its reason and the others are processed, with exit
    status 2 at the end.

    \b
    Example:
      shep filter check 'http://www.example.org/a/b.zip?utm_source=x'
    """
    from shepherd.filters import load_filter

    check = _Check(load_filter(config.filter_path), config.filter_path, _qkey(address))
    shared.each_given(url_texts, as_json, lambda text: _show(check.of(text), as_json))


def _qkey(address: str | None) -> int:
    from shepherd.urls import qkey_of_address

    if address is None:
        return 0
    try:
        return qkey_of_address(address)
    except ValueError:
        raise click.BadParameter(f"{address} is not an address", param_hint="--address") from None


@dataclass(frozen=True)
class _Check:
    filter: Filter
    path: Path
    qkey: int  # of the server to assume, or 0

    def of(self, text: str) -> dict[str, Any]:
        from shepherd.sections import section_name

        url = shared.parse_given(text)
        href = self.filter.strip(url.href)
        verdict = self.filter.judge(href, self.qkey)
        set_lines = {line.name: line for line in self.filter.set_lines(url.site, self.qkey)}
        record: dict[str, Any] = {"given": text, "parsed": url.href, "stripped": href}
        record["verdict"] = {
            "value": "accept" if verdict.accepted else "reject",
            "why": self.filter.why(href, self.qkey) or "no line matches",
            **self._place(verdict.line, verdict.text),
        }
        section = self.filter.section_of(href, self.qkey)
        record["section"] = {"value": section_name(section.section), **self._place(section.line, section.text)}
        group = set_lines.pop("group", None)
        number = {"number": kinds.GROUP.json(group.value)} if group else {}
        record["group"] = {"value": group.value_text, **number, **self._place(group.line, group.text)} if group else None
        record["settings"] = {
            name: {"value": line.value_text, **self._place(line.line, line.text)} for name, line in sorted(set_lines.items())
        }
        return record

    def _place(self, line: int, text: str) -> dict[str, Any]:
        return {"file": self.path, "line": line, "text": text}


def _show(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        common.emit_json(record)
        return
    for name, value in {
        **record,
        **{f"set {name}": setting for name, setting in record["settings"].items()},
        "settings": None,
    }.items():
        if isinstance(value, dict):
            why = f" ({value['why']})" if "why" in value else ""
            value = f"{value['value']}{why}{_by(value)}"
        if value:
            click.echo(f"{name:<17}  {common.escape(value)}")
    click.echo()


def _by(place: dict[str, Any]) -> str:
    if place["line"]:
        return f": {place['file']}, line {place['line']}: {place['text']}"
    return f": {place['text']}" if place["text"] else ""
