"""Eight readers and a mirror at once while states change and are deleted: no byte of another state than the leased one."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from shepherd.client import Server, pull
from shepherd.store.database import Database
from tests.pasture import Sheep, config, fill
from tests.serve.serving import PATIENCE_S, Serving, serving, token_of
from tests.serve.test_stream import succeed

READERS = 8
STATES = 4  # that are seen, at least
PULLS = 3


def generation(number: int) -> list[Sheep]:
    """Every document of a state says whose it is."""
    return [Sheep(f"http://h{n % 9}.example/{n}", now=b"%d of %d " % (n, number) * 200) for n in range(number, number + 150)]


def test_reader_sees_two_states_at_once(tmp_path: Path) -> None:
    fill(tmp_path, generation(2), segment_bytes=100_000)
    wrong: list[str] = []
    states: set[int] = set()
    done = threading.Event()
    with serving(tmp_path) as served:
        threads = [threading.Thread(target=_read, args=(served, wrong, states, part)) for part in range(READERS)]
        threads.append(threading.Thread(target=_mirror, args=(served, wrong)))
        maker = threading.Thread(target=_change, args=(tmp_path, done, wrong))
        for thread in (*threads, maker):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        maker.join()
        assert wrong == []
        assert len(states) >= STATES
        assert served.database.leases.all() == []


def _change(home: Path, done: threading.Event, wrong: list[str]) -> None:
    from shepherd.batch import cleanup
    from shepherd.errors import NothingToDo

    number = 3
    while not done.is_set() and number < 200:
        try:
            succeed(home, number, generation(number), keep=1)
            number = Database(home / "db").closed().number + 1
            if number % 3 == 0:
                with Database(home / "db").writing("test") as writer:
                    cleanup.run(writer, config(home / "cf", segment_bytes=100_000), 1_790_000_100, lambda _rows: None)
                number = Database(home / "db").closed().number + 1
        except NothingToDo:
            continue
        except Exception as error:
            wrong.append(f"the writer: {error!r}")
            return


def _read(served: Serving, wrong: list[str], states: set[int], part: int) -> None:
    try:
        end_s, pulls = time.monotonic() + PATIENCE_S, 0
        while pulls < PULLS or (len(states) < STATES and time.monotonic() < end_s):
            pulls += 1
            whole = part % 2 == 0
            documents = pull(served.url, token_of("reader"), part=None if whole else f"{part}/{READERS}")
            found = {document.url: document.body() for document in documents}
            assert documents.state is not None
            states.add(documents.state)
            bodies = {body.split()[2] for body in found.values()}
            if len(bodies) > 1 or (whole and len(found) != 150):
                wrong.append(f"state {documents.state}: {len(found)} documents of {bodies}")
    except Exception as error:
        wrong.append(f"reader {part}: {error!r}")


def _mirror(served: Serving, wrong: list[str]) -> None:
    try:
        with Server(served.url, token_of("mirror")) as server:
            for _ in range(PULLS):
                with server.leased("mirror") as lease:
                    state = served.database.closed(lease.state)
                    for file in server.files(lease):
                        data = b"".join(server.file(lease, file.path).chunks())
                        if data != (state.path / file.path).read_bytes():
                            wrong.append(f"state {lease.state}: {file.path} differs")
    except Exception as error:
        wrong.append(f"mirror: {error!r}")
