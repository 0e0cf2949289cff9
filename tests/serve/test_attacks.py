"""Attacks on the server: no token, wrong role, path tricks, slow and oversized requests, forged feedback: all refused."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shepherd.formats.feedback import FEEDBACK, FeedbackFlag
from shepherd.formats.frame import FrameKind, pack_frame
from shepherd.serve import routes
from shepherd.store.disk import names
from tests.support.programs import call
from tests.support.segment_states import fill
from tests.support.serving import TOKENS, Serving, flock, serving, token_of
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.waits

SECRET = bytes(range(16)).hex()  # the footprint key of tests/support/segment_states.py


@pytest.fixture(scope="module")
def lease(served: Serving) -> Iterator[str]:
    with served.as_client("boss") as server, server.leased("test") as one:
        yield one.name


def exchange(served: Serving, data: bytes) -> bytes:
    """Bytes straight to the server, and all that comes back until it closes."""
    parts = urlsplit(served.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE_S) as connection:
        found = b""
        connection.sendall(data)
        while more := connection.recv(1 << 16):
            found += more
    return found


# --- who ----------------------------------------------------------------------------------------------------------


def ways() -> list[tuple[str, str, tuple[str, ...]]]:
    return [(route.method, route.path, tuple(route.roles)) for route in routes.ROUTES if route.roles]


def filled(path: str, lease: str) -> str:
    return path.replace("{lease}", lease).replace("{path:.+}", "control")


@pytest.mark.parametrize(("method", "path", "roles"), ways())
def test_route_is_closed_without_a_token_of_its_role(
    served: Serving, lease: str, method: str, path: str, roles: tuple[str, ...]
) -> None:
    where = filled(path, lease)
    nobody = [
        served.ask(where, method, ""),
        served.ask(where, method, "", headers={"Authorization": "Bearer "}),
        served.ask(where, method, "", headers={"Authorization": "Bearer wrong"}),
        served.ask(where, method, "", headers={"Authorization": f"Basic {token_of('boss')}"}),
        served.ask(where, method, "", headers={"Cookie": f"token={token_of('boss')}"}),
        served.ask(
            where, method, "", headers={"Authorization": "Bearer \N{LATIN SMALL LETTER E WITH ACUTE}".encode().decode("latin-1")}
        ),
    ]
    assert {answer.status_code for answer in nobody} == {401} and all(SECRET not in answer.text for answer in nobody)
    assert served.ask(f"{where}?token={token_of('boss')}", method, "").status_code == 400
    for name, has in TOKENS.items():
        if not set(has) & {*roles, "admin"}:
            answer = served.ask(where, method, name)
            assert answer.status_code == 403 and SECRET not in answer.text


def test_client_is_refused_what_is_not_its_own(served: Serving) -> None:
    with served.as_client() as server, server.leased("mine") as mine:
        for method, path in (("PUT", ""), ("DELETE", ""), ("GET", "/documents"), ("GET", "/count")):
            assert served.ask(f"/v1/leases/{mine.name}{path}", method, "other", data="{}").status_code == 403
        assert [one["lease"] for one in served.ask("/v1/leases", name="other").json()["leases"]] == []
        assert [one["lease"] for one in served.ask("/v1/leases").json()["leases"]] == [mine.name]
        assert mine.name in [one["lease"] for one in served.ask("/v1/leases", name="boss").json()["leases"]]
        assert served.ask(f"/v1/leases/{mine.name}", "PUT", "boss", data='{"seconds": 60}').status_code == 200
    local = served.database.lease(None, "reader", "shep lock: not the client's", 1_000 * int(time.time()), 600)
    try:
        assert served.ask(f"/v1/leases/{local.name}", "DELETE").status_code == 403
    finally:
        served.database.leases.remove(local)


def test_removed_client_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    cf = str(tmp_path / "cf")
    with serving(tmp_path) as served:
        made = call("shep-serve", "token", "add", "new", "--role", "read", "--role", "feedback", "--cf", cf)
        headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
        assert served.ask("/v1/states", name="", headers=headers).status_code == 200
        assert "new feedback,read\n" in call("shep-serve", "token", "list", "--cf", cf).stdout
        assert made.stdout.strip() not in (tmp_path / "cf" / "tokens").read_text()
        assert call("shep-serve", "token", "remove", "new", "--cf", cf).returncode == 0
        assert call("shep-serve", "token", "remove", "new", "--cf", cf).returncode == 4
        assert served.ask("/v1/states", name="", headers=headers).status_code == 401
        assert served.ask("/v1/states").status_code == 200
        (tmp_path / "cf" / "tokens").chmod(0o644)  # from now on anybody may have changed it
        assert served.ask("/v1/states").status_code == 401
        assert any("chmod 600" in event.get("text", "") for event in served.events())
        (tmp_path / "cf" / "tokens").chmod(0o600)
        assert served.ask("/v1/states").status_code == 200


def test_server_refuses_to_start_where_it_is_not_safe(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    where = ("--db", str(tmp_path / "db"), "--cf", str(tmp_path / "cf"))
    open_to_all = call("shep-serve", *where, "--listen", "0.0.0.0:0")
    assert open_to_all.returncode == 2 and "set certificate and key" in open_to_all.stderr
    (tmp_path / "cf" / "shepherd.toml").write_text("[serve]\ninsecure = true\n")
    without = call("shep-serve", *where, "--listen", "0.0.0.0:0")
    assert without.returncode == 2 and "no client is there" in without.stderr
    assert call("shep-serve", "token", "add", "me", "--role", "read", "--cf", str(tmp_path / "cf")).returncode == 0
    assert oct((tmp_path / "cf" / "tokens").stat().st_mode & 0o777) == "0o600"
    (tmp_path / "cf" / "tokens").chmod(0o640)
    readable = call("shep-serve", *where)
    assert readable.returncode == 2 and "chmod 600" in readable.stderr
    (tmp_path / "cf" / "shepherd.toml").write_text('[serve]\nlisten = "0.0.0.0:8731"\n')
    refused = call("shepherd", "check-config", "--cf", str(tmp_path / "cf"))
    assert refused.returncode == 2 and "insecure = true" in refused.stderr + refused.stdout


# --- where ----------------------------------------------------------------------------------------------------------


TRICKS = (
    "../control", "..%2fcontrol", "%2e%2e/%2e%2e/lock", "....//control", "/etc/passwd", "%2fetc%2fpasswd", "//etc/passwd",
    "control/", "./control", "index/../control", "index", "objects", "objects/..", "objects/0000000001", "control%00",
    "control%00.check", "CONTROL", "harvest", "../../../lease/lock", "..\\control", "control.check", "report.json.check",
    "link", "index/link", "\N{FULLWIDTH FULL STOP}\N{FULLWIDTH FULL STOP}/control", "%252e%252e/control", "control;x", "~/x",
)  # fmt: skip


def test_path_out_of_the_state_is_refused(served: Serving, lease: str) -> None:
    state = served.database.closed()
    state.path.joinpath("link").symlink_to("/etc/passwd")
    try:
        for trick in TRICKS:
            path = trick.encode("utf-8").decode("latin-1")
            answer = get(served, f"/v1/leases/{lease}/files/{path}", "mirror", admin=True)
            assert b" 404 " in answer.partition(b"\r\n")[0] or b" 400 " in answer.partition(b"\r\n")[0], (trick, answer[:300])
            assert b"root:" not in answer and SECRET.encode() not in answer
        for trick in ("..", "%2e%2e", "../../x", "a/b", names.LOCK, "0-x-1-1%2f..", "*"):
            answer = get(served, f"/v1/leases/{trick}/files/control", "mirror", admin=True)
            assert b" 404 " in answer.partition(b"\r\n")[0] or b" 410 " in answer.partition(b"\r\n")[0], trick
    finally:
        state.path.joinpath("link").unlink()


def get(served: Serving, path: str, name: str, admin: bool = False) -> bytes:
    """A path exactly as it is: no library tidies it up."""
    token = token_of("boss" if admin else name)
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    return exchange(served, head.encode("latin-1"))


def test_symlink_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path) as served, served.as_client("mirror") as server, server.leased("test") as lease:
        file = served.database.closed().path / "index" / "weight"
        length = file.stat().st_size
        (tmp_path / "outside").write_bytes(b"x" * length)
        file.unlink()
        file.symlink_to(tmp_path / "outside")
        answer = served.ask(f"/v1/leases/{lease.name}/files/index/weight", name="mirror")
        assert answer.status_code == 500 and "x" * length not in answer.text and str(tmp_path) not in answer.text


def test_symlink_in_the_place_of_a_directory_is_not_followed(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path) as served, served.as_client("mirror") as server, server.leased("test") as lease:
        index = served.database.closed().path / "index"
        index.rename(tmp_path / "outside")
        index.symlink_to(tmp_path / "outside")
        assert served.ask(f"/v1/leases/{lease.name}/files/index/weight", name="mirror").status_code == 500
        assert served.ask(f"/v1/leases/{lease.name}/files/control", name="mirror").status_code == 200


def test_request_under_another_host_name_is_refused(served: Serving) -> None:
    for host in ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", ""):
        assert served.ask("/v1/states", headers={"Host": host}).status_code in (400, 421), host
    for host in ("localhost", "127.0.0.1:1", "[::1]:8731", "LOCALHOST:80"):
        assert served.ask("/v1/states", headers={"Host": host}).status_code == 200, host


def test_answer_forbids_framing_sniffing_and_caching(served: Serving, lease: str) -> None:
    for path in ("/openapi.json", "/v1/states", "/nowhere", f"/v1/leases/{lease}/files/control"):
        headers = served.ask(path, name="boss").headers
        assert (headers["X-Content-Type-Options"], headers["X-Frame-Options"]) == ("nosniff", "DENY")
        assert "default-src" in headers["Content-Security-Policy"] and headers["Cache-Control"] == "no-store"
        assert headers["Server"] == "shepherd" and "Access-Control-Allow-Origin" not in headers


# --- how much, how slowly -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/v1/feedback", 405), ("POST", "/v1/states", 405), ("TRACE", "/openapi.json", 405),
        ("OPTIONS", "/v1/leases", 405), ("BREW", "/v1/leases", 400),
        ("GET", "/v2/states", 404), ("GET", "/v1/states/", 404), ("GET", "//v1/states", 404),
    ],
)  # fmt: skip
def test_unknown_method_or_path_is_a_client_error(served: Serving, method: str, path: str, status: int) -> None:
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    connection.request(method, path, headers={"Authorization": f"Bearer {token_of('boss')}"})
    assert connection.getresponse().status == status
    connection.close()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b"nul", b"\xff", b"[" * 60_000, b'{"purpose": 1}', b'{"purpose": ""}', b'{"purpose": "a\\u0000b"}',
        b'{"purpose": "x", "seconds": 0}', b'{"purpose": "x", "seconds": 1e9}',
        b'{"purpose": "x", "seconds": -1}',
        b'{"purpose": "x", "seconds": true}', b'{"purpose": "x", "state": "2"}', b'{"purpose": "x", "owner": "boss"}',
        b'{"purpose": "' + b"x" * 201 + b'"}',
    ],
)  # fmt: skip
def test_forged_lease_is_refused(served: Serving, body: bytes) -> None:
    before = served.database.leases.all()
    answer = served.ask("/v1/leases", "POST", data=body)
    assert answer.status_code == 400 and answer.json()["error"]
    assert served.database.leases.all() == before


def test_unknown_state_or_overlong_body_is_refused(served: Serving) -> None:
    assert served.ask("/v1/leases", "POST", data='{"purpose": "x", "state": 99}').status_code == 404
    assert served.ask("/v1/leases", "POST", data='{"purpose": "x", "state": -1}').status_code == 404
    assert served.ask("/v1/leases", "POST", data=b"{" + b" " * 70_000 + b"}").status_code == 413


@pytest.mark.parametrize(
    "query",
    [
        "part=0/1", "part=2/1", "part=1/0", "part=1", "part=-1/2", "part=1/99999999", "best=-1", "best=x", "best=1e3",
        "weight=65536", "section=unheard", "section=", "robots=yes", "since=x", "after=-1", "unknown=1", "best=1&best=2",
        "best=%20", "best=\u0663", "most_weight=65536", "site=%00", "site=a%20b",
    ],
)  # fmt: skip
def test_bad_choice_is_refused(served: Serving, query: str) -> None:
    with served.as_client() as server, server.leased("test") as lease:
        for what in ("documents", "count"):
            answer = served.ask(f"/v1/leases/{lease.name}/{what}?{query}")
            assert answer.status_code == 400 and answer.json()["error"], query


def test_headers_without_end_are_cut_off(tmp_path: Path) -> None:
    """A client that never finishes its headers is cut off; a flood of them is refused."""
    fill(tmp_path, flock(3))
    with serving(tmp_path, "stall_s = 1.0\n") as served:
        head = b"GET /v1/states HTTP/1.1\r\nHost: localhost\r\n"
        assert exchange(served, head) == b""  # which ends, because the server closes
        for flood in (head + b"X: " + b"x" * 100_000, head + b"X: x\r\n" * 10_000, b"GET " + b"x" * 100_000):
            with contextlib.suppress(ConnectionError):  # it may be cut off before it has sent all
                assert exchange(served, flood + b"\r\n\r\n").partition(b"\r\n")[0].endswith(b" 400 Bad Request")
        assert served.ask("/v1/states").status_code == 200


# --- feedback -------------------------------------------------------------------------------------------------------


def record(weight: int = 7, flags: int = FeedbackFlag.WEIGHT) -> bytes:
    import numpy as np

    return np.array([(1, 2, weight, flags, 0)], FEEDBACK).tobytes()


GOOD = pack_frame(FrameKind.FEEDBACK, 1, record())
FORGED = [
    b"", b"\n\n", b"GET / HTTP/1.1", b"http://a.example/ 70000\n", b"http://a.example/ -1\n", b"mailto:x 5\n", b"\xff\xfe 5\n",
    b"http://a.example/ 5\nhttp://a.example/ x\n", b"http://a.example/ 5 unknown\n", b"x" * 100_000, b"\x00" * 1_000,
    GOOD[:-1], GOOD + b"x", GOOD[:-1] + b"\xff", pack_frame(FrameKind.JOURNAL, 1, record()),
    pack_frame(FrameKind.FEEDBACK, 2, record()),
    pack_frame(FrameKind.FEEDBACK, 1, record(flags=64)), GOOD + GOOD[:10], b"SHF1", b"SHF1" + b"\xff" * 24,
]  # fmt: skip


@pytest.mark.parametrize("body", FORGED)
def test_forged_feedback_is_refused_whole(served: Serving, body: bytes) -> None:
    answer = served.ask("/v1/feedback", "POST", "weigher", data=body)
    assert answer.status_code == 400 and "nothing of it was taken" in answer.json()["error"]
    assert os.listdir(served.database.inbox.directory) == []


def test_feedback_arrives_and_is_applied(tmp_path: Path) -> None:
    from shepherd.client import feedback

    fill(tmp_path, flock(3))
    with serving(tmp_path, "feedback_bytes = 1000000\n") as served:
        inbox = served.database.inbox
        answer = served.ask("/v1/feedback", "POST", "weigher", data=GOOD * 10)
        assert (answer.status_code, answer.json()["records"]) == (202, 10)
        told = feedback(served.url, token_of("weigher"), [("http://h0.example/", 300), ("0" * 32, 5)])
        assert told["records"] == 2 and "shep-feedback" in told["takes_effect"]
        assert [item.path.read_bytes() for item in inbox.items("feedback")] == [
            GOOD * 10, b"http://h0.example/ 300\n" + b"0" * 32 + b" 5\n",
        ]  # fmt: skip
        assert call("shep-feedback", "--db", str(tmp_path / "db"), "--cf", str(tmp_path / "cf")).returncode == 0
        assert inbox.items("feedback") == []
        for too_much in (iter([GOOD] * 30_000), GOOD * 30_000):
            refused = served.ask("/v1/feedback", "POST", "weigher", data=too_much)
            assert refused.status_code == 413 and "serve.feedback_bytes" in refused.text
        packed = served.ask("/v1/feedback", "POST", "weigher", data=GOOD, headers={"Content-Encoding": "gzip"})
        assert packed.status_code == 415
        wait_until(lambda: os.listdir(inbox.directory) == [])


def test_slow_upload_is_cut_off(tmp_path: Path) -> None:
    """One that stops, and one that drips."""
    fill(tmp_path, flock(3))
    with serving(tmp_path, "stall_s = 0.5\n") as served:
        parts = urlsplit(served.url)
        head = (
            f"POST /v1/feedback HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token_of('weigher')}\r\n"
            "Content-Length: 100000\r\n\r\n"
        ).encode()
        for drips in (False, True):
            with socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE_S) as slow:
                slow.sendall(head + b"http://a.example/ 5\n")
                slow.settimeout(0.2)
                found = b""
                end_s = time.monotonic() + PATIENCE_S
                while b"408" not in found and time.monotonic() < end_s:
                    try:
                        found += slow.recv(1000)
                    except TimeoutError:
                        if drips:
                            slow.sendall(b"x")
                assert found.startswith(b"HTTP/1.1 408 ")
        assert os.listdir(served.database.inbox.directory) == []


# --- what is told ---------------------------------------------------------------------------------------------------


def test_log_has_every_request_and_no_token(served: Serving) -> None:
    served.ask(f"/v1/leases/{token_of('reader')}/count", "GET")
    with served.as_client("boss") as server, server.leased("test") as lease:
        served.ask(f"/v1/leases/{lease.name}/documents?site={token_of('boss')}", name="boss")
    served.ask("/v1/states", name="reader", params={"token": token_of("reader")})
    served.ask("/v1/states\r\nforged", name="boss")
    text = (served.home / "log").read_text()
    assert "the-token-of" not in text
    requests_ = [json.loads(line) for line in text.splitlines() if '"request"' in line]
    last = requests_[-2]
    assert (last["client"], last["method"], last["path"], last["status"]) == ("reader", "GET", "/v1/states", 400)
    assert last["bytes"] > 0 and last["seconds"] >= 0 and last["peer"] == "127.0.0.1"
    assert {"a bug in the server"} & {event.get("text") for event in served.events()} == set()
