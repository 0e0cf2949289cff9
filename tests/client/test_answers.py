"""What a server says to the client: the declared fields, each of its type, and no more bytes than an answer may have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shepherd.client import Server
from shepherd.client.server import MOST_OF
from shepherd.errors import PeerRefused
from shepherd.wire import api
from tests.support.liar import Answer, endless, lying, send_answer
from tests.support.segment_states import fill
from tests.support.serving import flock

STATE = {"state": 2, "made": 0, "urls": 1, "bucket_bytes": 0, "files": 0}
COUNT = {"state": 2, "items": 1, "gone": 0, "bucket_bytes": 7}
UPLOAD = {"item": "x", "records": 1, "takes_effect": "soon"}
CHECK = "0123456789abcdef"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("answers")
    fill(home, flock(3))
    yield home / "db"


def answering(value: Any) -> Answer:
    return lambda handler: send_answer(handler, value if isinstance(value, bytes) else json.dumps(value).encode())


def asked(db: Path, end: str, answer: Answer, call: Callable[[Server], Any]) -> Any:
    with lying(db, {end: answer}) as liar, Server(liar.url, "x", tries=1) as server:
        return call(server)


def count(server: Server) -> Any:
    with server.leased("x") as lease:
        return server.count(lease)


def files(server: Server) -> Any:
    with server.leased("x") as lease:
        return server.files(lease)


def test_fields_of_a_later_version_are_skipped(db: Path) -> None:
    later: dict[str, Any] = {"later": {"a": [{}] * 1000}}
    states = {"states": [STATE | later], "since": [1], **later}
    assert asked(db, "/v1/states", answering(states), Server.states) == {"states": [STATE], "since": [1]}
    assert asked(db, "/count", answering(COUNT | later), count) == COUNT
    assert asked(db, "/v1/feedback", answering(UPLOAD | later), lambda server: server.feedback(b"")) == UPLOAD


@pytest.mark.parametrize(
    ("end", "answer", "call", "named"),
    [
        ("/v1/states", {"states": [STATE | {"state": "2"}], "since": []}, Server.states, r"\$\.states\[0\]\.state"),
        ("/v1/states", {"states": []}, Server.states, "since"),
        ("/v1/states", [], Server.states, "object"),
        ("/v1/states", b'{"states": [], "since": [1e400]}', Server.states, "range"),
        ("/v1/states", b'{"states": [], "since": ["\xff"]}', Server.states, "not an answer of shep-serve"),
        ("/v1/states", b'{"later": ' + b"[" * 100_000, Server.states, "not an answer of shep-serve"),
        ("/count", COUNT | {"items": 1.5}, count, r"\$\.items"),
        ("/files", {"state": 2, "files": [{"path": "a", "length": 1, "check": "0x12"}]}, files, r"\$\.files\[0\]\.check"),
        ("/files", {"state": 2, "files": [{"path": 1, "length": 1, "check": CHECK}]}, files, r"\$\.files\[0\]\.path"),
        ("/v1/feedback", UPLOAD | {"records": None}, lambda server: server.feedback(b""), r"\$\.records"),
    ],
)
def test_answer_that_does_not_fit_is_refused_by_name(
    db: Path, end: str, answer: Any, call: Callable[[Server], Any], named: str
) -> None:
    with pytest.raises(PeerRefused, match=named):
        asked(db, end, answering(answer), call)


def test_answer_without_an_end_is_refused(db: Path) -> None:
    with pytest.raises(PeerRefused, match=f"more than {MOST_OF[api.ClosedStates]:,} bytes"):
        asked(db, "/v1/states", endless, Server.states)
