"""How a pull ends that is not read to its end: its lease is returned, and nothing is printed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shepherd.client import pull
from shepherd.errors import UsageError
from tests.support.programs import ROOT
from tests.support.serving import Serving, token_of

KEPT = """
import sys
from shepherd.client import pull
documents = iter(pull(sys.argv[1], sys.argv[2]))
print(next(documents).url)
"""


def test_pull_that_lives_until_the_interpreter_exits_ends_silently(served: Serving) -> None:
    command = [sys.executable, "-c", KEPT, served.url, token_of("reader")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("http") and done.stderr == ""
    assert served.database.leases.all() == []


def test_pull_can_be_closed_early(served: Serving) -> None:
    with pull(served.url, token_of("reader")) as documents:
        iterator = iter(documents)
        next(iterator)
        assert len(served.database.leases.all()) == 1
    assert served.database.leases.all() == [] and next(iterator, None) is None
    documents.close()
    with pytest.raises(UsageError, match="call pull again"):
        next(iter(documents))
    unused = pull(served.url, token_of("reader"))
    unused.close()
    with pytest.raises(UsageError, match="call pull again"):
        next(iter(unused))
