"""Documents of a state on another machine, pulled from its shep-serve, which holds the state for as long as that takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from shepherd.client import Document, Pull, Server, ServerLease
from shepherd.client.document import WHAT
from shepherd.errors import PeerRefused
from shepherd.export.documents import DocumentFacts, Exported, GoneDocument, OnDamage
from shepherd.readers.choice import Choice
from shepherd.report.narrow import Narrowing
from shepherd.sections import section_name

PROGRAM: Final = "shep-export"


class RemoteSource:
    """`lease` is one of the server's. What is damaged on the way is pulled again; what is so over there is left out."""

    since_now = 0  # only revisits need it, and these are not served

    def __init__(
        self, server: Server, lease: ServerLease, choice: Choice, since: int | None, narrowed: Narrowing, on_damage: OnDamage
    ) -> None:
        self._server, self._lease, self._on_damage = server, lease, on_damage
        self.damaged = 0
        self._parameters = _parameters(choice) | narrowed.words() | {"since": since}
        self.state, self.since, self.now = lease.state, since, _time_made(server, lease.state)
        counts = server.count(lease, **self._parameters)
        self.items, self.bucket_bytes, self.gone_items = counts["items"], counts["bucket_bytes"], counts["gone"]

    def documents(self) -> Iterator[Exported | GoneDocument]:
        for document in Pull(self._server, self._parameters, PROGRAM, None, self._lease, progress=False, damaged="give"):
            if document.damage:
                self.damaged += 1
                self._on_damage(f"{self._server.url}: {document.damage}")
                continue
            facts = _facts(document)
            yield GoneDocument(facts, None) if document.is_gone else Exported(facts, document.bucket)


def _parameters(choice: Choice) -> dict[str, object]:
    """The choice as the server is asked for it (docs/serve.md)."""
    return {
        "part": f"{choice.part + 1}/{choice.parts}",
        "best": choice.best,
        "weight": choice.weight or None,
        "section": ",".join(map(section_name, choice.sections)) or None,
        "robots": choice.robots,
        "redirects": choice.redirects,
    }


def _time_made(server: Server, number: int) -> int:
    """When the state was made; it is leased, so the server has it."""
    for row in server.states()["states"]:
        if isinstance(row, Mapping) and row.get("state") == number and isinstance(row.get("made"), int):
            return int(row["made"])
    raise PeerRefused(f"{server.url}: it leases state {number}, and does not list it")


def _facts(document: Document) -> DocumentFacts:
    length = 0 if document.is_gone else document.bucket.header.length
    return DocumentFacts(length=length, what=WHAT.index(document.what), **document.columns)
