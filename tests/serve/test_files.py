"""Files for mirrors: all that a state has, as it is, in ranges, and only once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shepherd.client import Server, ServerLease
from shepherd.client.server import LeaseOver
from shepherd.errors import UsageError
from shepherd.formats.check import check64
from tests.support.serving import Serving


@pytest.fixture(scope="module")
def mirror(served: Serving) -> Iterator[Server]:
    with served.as_client("mirror") as server:
        yield server


@pytest.fixture(scope="module")
def lease(mirror: Server) -> Iterator[ServerLease]:
    with mirror.leased("test") as one:
        yield one


def test_every_file_of_a_state_is_served_as_it_is(served: Serving, mirror: Server, lease: ServerLease) -> None:
    state = served.database.closed()
    there = {str(path.relative_to(state.path)): path.read_bytes() for path in state.path.rglob("*") if path.is_file()}
    listed = {one.path: one for one in mirror.files(lease)}
    assert set(listed) == set(there)
    for path, data in there.items():
        assert b"".join(mirror.file(lease, path).chunks()) == data
        assert listed[path].length == len(data)
        if path.startswith("objects/") or path in ("control", "report.json") or path.endswith(".check"):
            assert listed[path].check == check64(data)


def test_range_gives_its_bytes(served: Serving, mirror: Server, lease: ServerLease) -> None:
    control = (served.database.closed().path / "control").read_bytes()
    size, where = len(control), f"/v1/leases/{lease.name}/files/control"
    for text, first, last in (
        ("0-0", 0, 1),
        ("5-9", 5, 10),
        ("-7", size - 7, size),
        (f"{size - 1}-", size - 1, size),
        ("3-999999", 3, size),
    ):
        answer = served.ask(where, name="mirror", headers={"Range": f"bytes={text}"})
        assert (answer.status_code, answer.content) == (206, control[first:last])
        assert answer.headers["Content-Range"] == f"bytes {first}-{last - 1}/{size}"
        assert int(answer.headers["Content-Length"]) == last - first
    for odd in ("bytes=9-5", "bytes=-", "bytes=0-1,3-4", "lines=1-2", "bytes=x-", "bytes = 0-1", "bytes=0-" + "9" * 30):
        answer = served.ask(where, name="mirror", headers={"Range": odd})
        assert (answer.status_code, answer.content) == (200, control), odd
    for beyond in (f"bytes={size}-", "bytes=999999-9999999", "bytes=-0"):
        answer = served.ask(where, name="mirror", headers={"Range": beyond})
        assert answer.status_code == 416 and answer.headers["Content-Range"] == f"bytes */{size}", beyond


def test_resumed_transfer_gets_the_rest_of_the_same_file(served: Serving, mirror: Server, lease: ServerLease) -> None:
    whole = mirror.file(lease, "control")
    data = b"".join(whole.chunks())
    assert data == (served.database.closed().path / "control").read_bytes()
    rest = mirror.file(lease, "control", start=100, tag=whole.tag)
    assert rest.start == 100 and b"".join(rest.chunks()) == data[100:]
    other = mirror.file(lease, "control", start=100, tag='"another"')
    assert other.start == 0 and b"".join(other.chunks()) == data
    same = mirror.file(lease, "control", have=whole.tag)
    assert same.is_same and list(same.chunks()) == []
    where = f"/v1/leases/{lease.name}/files/control"
    for tags, status in ((f'"x", {whole.tag}', 304), (f"W/{whole.tag}", 304), ("*", 304), ('"x"', 200)):
        assert served.ask(where, name="mirror", headers={"If-None-Match": tags}).status_code == status


def test_connection_is_used_again(served: Serving, mirror: Server, lease: ServerLease) -> None:
    """Files go past the event loop, and it must find the connection as it should be: many small ones come over one."""
    answers = [mirror.open("GET", f"/v1/leases/{lease.name}/files/{path}") for path in ("control", "report.json")]
    for answer in answers:
        assert answer.headers.get("Connection", "").lower() != "close"
        answer.close()
    with pytest.raises(UsageError, match="404: no file of this name"):
        mirror.file(lease, "unheard-of")
    with pytest.raises(LeaseOver):
        mirror.files(ServerLease("1-x-1-1", 2, 0))
