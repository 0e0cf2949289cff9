"""One server, call by call. Nothing of the environment counts: no proxy, no netrc, no other authorities than asked for.

What may pass is tried again: a connection that is lost or does not come about, a server that is busy, or about to end. No error
has the token in it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, Self, TypeVar
from urllib.parse import quote

import msgspec
import requests
import urllib3
from msgspec import UNSET

from shepherd.client import credentials
from shepherd.client.deadline import DeadlineAdapter
from shepherd.errors import IoFailed, PeerLost, PeerRefused, UsageError
from shepherd.wire import api

R = TypeVar("R")
A = TypeVar("A", bound=msgspec.Struct)
CONNECT_S: Final = 10.0
READ_S: Final = 120.0  # a server that counts a large choice says nothing for a while
LONGEST_S: Final = 30.0  # between two tries
ANSWER_S: Final = 300.0  # for an answer in JSON to come whole, however it drips
PART: Final = 1 << 16
MOST_BYTES: Final = 1 << 16  # of an answer, where nothing else is said: what is decoded takes some dozen times as much memory
MOST_OF: Final[Mapping[type[msgspec.Struct], int]] = {
    api.ClosedStates: 1 << 20,  # a hundred bytes for each
    api.StateFiles: 1 << 24,  # the same
}
_NO_ANSWER: Final = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
_BROKEN: Final = (urllib3.exceptions.HTTPError, OSError)  # of an answer whose body comes
_BUSY: Final = (429, 502, 503, 504)  # 502 and 504 are what a proxy says of a server that is away


@dataclass(frozen=True)
class ServerLease:
    name: str
    state: int
    expires: int  # seconds since 1970, by the server's clock
    seconds: int = api.LEASE_S  # that it was granted for, which may be less than was asked; renew it well before they are over


@dataclass(frozen=True)
class ServerFile:
    path: str
    length: int
    check: int  # as control has it: of a column and its block table, check64 of the block table


class Patience:
    """Whether and when to try again: so many times in a row without any success."""

    def __init__(self, tries: Callable[[], int], pause: Callable[[float], object] = time.sleep) -> None:
        self._tries, self._pause, self._failed = tries, pause, 0

    def success(self) -> None:
        self._failed = 0

    def wait(self, error: PeerLost) -> None:
        """Sleep before the next try, as long as the server asked for; after the last one, the error."""
        at_least_s = error.seconds if isinstance(error, Busy) else 0.0
        self._failed += 1
        if self._failed >= self._tries():
            raise error
        self._pause(min(max(0.1 * 2**self._failed, at_least_s), LONGEST_S))


class Server:
    """`ca` is a file of authorities for https, instead of those that come with Python's certifi.

    With `insecure` the token goes also over http to another machine, where something else encrypts. `tries` says how often in a
    row it is asked before it is given up; one that has answered before is asked `later_tries` times, for it may be restarted.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        ca: Path | None = None,
        tries: int = 10,
        later_tries: int | None = None,
        insecure: bool = False,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.url, self.tries, self._later_tries = credentials.server(url, insecure), tries, later_tries
        self._pause, self._has_answered = pause, False
        token = credentials.token(token)
        if ca:
            credentials.refuse_authorities(ca)
        self._session = requests.Session()
        self._session.trust_env = False
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, DeadlineAdapter())
        self._session.verify = str(ca) if ca else True
        self._session.headers.update({"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._session.close()

    # --- states and leases

    def states(self) -> dict[str, Any]:
        """`states`, the newest last, and `since`, the numbers of those of which can be asked what is new since."""
        states: dict[str, Any] = msgspec.to_builtins(self._get(api.ClosedStates, "/v1/states"))
        return states

    def lease(self, purpose: str, state: int | None = None, seconds: int = api.LEASE_S) -> ServerLease:
        """Hold a state, the newest by default, so that it stays as it is."""
        request = api.LeaseRequest(purpose, UNSET if state is None else state, seconds)
        lease = self._send(api.LeaseAnswer, "POST", "/v1/leases", request)
        return ServerLease(lease.lease, lease.state, lease.expires, max(1, min(lease.expires - lease.taken_s, seconds)))

    def renew(self, lease: ServerLease, seconds: int | None = None) -> ServerLease:
        """Hold it so long from now; by default, as long as it was granted for."""
        requested_s = lease.seconds if seconds is None else seconds
        longer = self._send(api.LeaseAnswer, "PUT", f"/v1/leases/{lease.name}", api.RenewalRequest(requested_s))
        return replace(lease, expires=longer.expires, seconds=min(requested_s, lease.seconds))

    def renew_once(self, lease: ServerLease) -> None:
        """As long as it was granted for, without another try: for whoever renews by the clock."""
        data = msgspec.json.encode(api.RenewalRequest(lease.seconds))
        _decode(api.LeaseAnswer, self._once("PUT", f"/v1/leases/{lease.name}", data=data))

    def give_back(self, lease: ServerLease) -> None:
        """One that is over already is fine."""
        with contextlib.suppress(LeaseOver):
            self._send(api.LeaseAnswer, "DELETE", f"/v1/leases/{lease.name}")

    @contextlib.contextmanager
    def leased(self, purpose: str, state: int | None = None, seconds: int = api.LEASE_S) -> Iterator[ServerLease]:
        """A lease for the time of a block."""
        lease = self.lease(purpose, state, seconds)
        try:
            yield lease
        finally:
            with contextlib.suppress(PeerLost):  # then it ends by itself
                self.give_back(lease)

    def patience(self) -> Patience:
        """For what one wants of this server."""
        return Patience(self._most_tries, self._pause)

    def _most_tries(self) -> int:
        return self._later_tries if self._later_tries is not None and self._has_answered else self.tries

    def count(self, lease: ServerLease, **choice: object) -> dict[str, int]:
        """`items`, `gone` and `bucket_bytes` of a choice, as `pull` takes it."""
        counts: dict[str, int] = msgspec.to_builtins(self._get(api.DocumentCount, f"/v1/leases/{lease.name}/count", choice))
        return counts

    # --- files

    def files(self, lease: ServerLease) -> list[ServerFile]:
        """The files of the leased state."""
        answer = self._get(api.StateFiles, f"/v1/leases/{lease.name}/files")
        return [ServerFile(file.path, file.length, int(file.check, 16)) for file in answer.files]

    def file(self, lease: ServerLease, path: str, start: int = 0, tag: str = "", have: str = "") -> FileAnswer:
        """A file, from `start` on if it is still the one with this `tag`; nothing if it is the one whose tag we `have`."""
        headers = {"Range": f"bytes={start}-", "If-Range": tag} if start and tag else {}
        headers |= {"If-None-Match": have} if have else {}
        return FileAnswer(self.open("GET", f"/v1/leases/{lease.name}/files/{quote(path)}", headers=headers))

    # --- feedback

    def feedback(self, data: bytes | Iterable[bytes]) -> dict[str, Any]:
        """Upload feedback as docs/formats.md describes it; what came of it. It is sent once: a lost answer is PeerLost."""
        outcome: dict[str, Any] = msgspec.to_builtins(_decode(api.UploadAnswer, self._once("POST", "/v1/feedback", data=data)))
        return outcome

    # --- how

    def open(
        self, method: str, path: str, parameters: Mapping[str, object] | None = None, headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        """An answer whose body is still to come; a busy server is asked again."""
        return self._again(lambda: self.open_once(method, path, parameters, headers))

    def open_once(
        self, method: str, path: str, parameters: Mapping[str, object] | None = None, headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        """The same, for whoever asks again himself."""
        return self._once(method, path, parameters, headers=headers)

    def _get(self, kind: type[A], path: str, parameters: Mapping[str, object] | None = None) -> A:
        return self._again(lambda: _decode(kind, self._once("GET", path, parameters)))

    def _send(self, kind: type[A], method: str, path: str, body: msgspec.Struct | None = None) -> A:
        data = msgspec.json.encode(body) if body is not None else None
        return self._again(lambda: _decode(kind, self._once(method, path, data=data)))

    def _again(self, call: Callable[[], R]) -> R:
        patience = self.patience()
        while True:
            try:
                return call()
            except PeerLost as error:
                patience.wait(error)

    def _once(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, object] | None = None,
        data: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        query = {name: _text(value) for name, value in (parameters or {}).items() if value is not None and value is not False}
        try:
            answer = self._session.request(
                method, self.url + path, params=query, data=data, headers=headers, stream=True,
                allow_redirects=False, timeout=(CONNECT_S, READ_S),
            )  # fmt: skip
        except requests.exceptions.SSLError as error:
            raise PeerRefused(f"{self.url}: no agreement on TLS: {error}") from error
        except _NO_ANSWER as error:
            advice = "is shep-serve running there? Run the same command again when it is"
            raise PeerLost(f"{self.url}: the server does not answer: {error}; {advice}") from error
        except requests.exceptions.InvalidURL as error:
            raise UsageError(credentials.no_url(self.url, str(error))) from None
        except requests.RequestException as error:  # its text may have headers in it
            raise UsageError(f"{self.url}: a request that cannot be sent: {type(error).__name__}") from None
        except OSError as error:
            raise IoFailed(f"{self.url}: it cannot be asked: {error}") from error
        self._has_answered = True
        if answer.status_code >= 300 and answer.status_code != 304:
            _refuse(self.url, answer)
        return answer


class Busy(PeerLost):
    """The server asks for patience: it has too much to do, or is about to end."""

    def __init__(self, text: str, seconds: float) -> None:
        super().__init__(text)
        self.seconds = seconds


class LeaseOver(PeerRefused):
    """A lease, or what was known of a state, is not there any more."""


class FileAnswer:
    """A file on its way. `is_same`: it is the one that we have, and nothing comes."""

    def __init__(self, answer: requests.Response) -> None:
        self._answer = answer
        self.is_same = answer.status_code == 304
        self.tag = answer.headers.get("ETag", "")
        ranged = answer.headers.get("Content-Range", "") if answer.status_code == 206 else ""
        self.start = number(ranged.removeprefix("bytes ").partition("-")[0]) if ranged else 0

    def chunks(self, size: int = 1 << 20) -> Iterator[bytes]:
        """Its bytes from `start` on; PeerLost if they end too early."""
        try:
            while data := self._answer.raw.read1(size):  # what has come: a slow server is heard
                yield data
        except _BROKEN as error:
            raise PeerLost(f"the connection broke off: {error}") from error
        finally:
            self._answer.close()


def number(text: str) -> int:
    """A number of a header."""
    try:
        return int(text)
    except ValueError:
        raise PeerRefused(f"{text[:40]!r} in a header, where shep-serve has a number") from None


def _text(value: object) -> str:
    return "1" if value is True else str(value)


def _decode(kind: type[A], answer: requests.Response) -> A:
    """What an answer says: the fields that we know, each of its type."""
    try:
        with answer:
            data = _read(answer, MOST_OF.get(kind, MOST_BYTES))
        return msgspec.json.decode(data, type=kind)
    except _BROKEN as error:
        raise PeerLost(f"{answer.url}: the connection broke off: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerRefused(f"{answer.url}: this is not an answer of shep-serve: {error}") from error


def _read(answer: requests.Response, most_bytes: int) -> bytes:
    """The body of an answer, if it has at most so many bytes."""
    data, end_s = bytearray(), time.monotonic() + ANSWER_S
    while part := answer.raw.read1(PART):
        data += part
        if len(data) > most_bytes:
            raise PeerRefused(f"{answer.url}: this is not an answer of shep-serve: it has more than {most_bytes:,} bytes")
        if time.monotonic() > end_s:
            raise PeerLost(f"{answer.url}: the answer has not come whole in {ANSWER_S:.0f} s")
    return bytes(data)


def _refuse(url: str, answer: requests.Response) -> NoReturn:
    try:
        text = _decode(api.Refusal, answer).error[:2_000]
    except PeerRefused:
        text = "no reason is given; is this shep-serve?"
    message = f"{url} answers {answer.status_code}: {text}"
    if answer.status_code in _BUSY:
        seconds = answer.headers.get("Retry-After", "")
        raise Busy(f"{message}; run the same command again later", float(seconds) if seconds.isdecimal() else 1.0)
    if answer.status_code in (400, 404, 413, 415, 416):
        raise UsageError(message)
    raise (LeaseOver if answer.status_code == 410 else PeerRefused)(message)
