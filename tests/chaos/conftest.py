"""What is hurt here: a real server, a Postgres of its own, and the TCP route between them.

Short forms are deterministic. Long ones (`heavy`) draw faults and times from a seed, which a failing run prints;
`MNEME_CHAOS_SEED` repeats it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support.chaos_server import ChaosServer, complaints
from tests.support.ledger import Ledger
from tests.support.server import MnemeServer


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what its servers complained about."""
    report = yield
    if report.failed:
        for given in getattr(item, "funcargs", {}).values():
            server = given.server if isinstance(given, ChaosServer) else given
            if isinstance(server, MnemeServer):
                report.sections.append(("the server's complaints", complaints(server)))
    return report


@pytest.fixture
def rng() -> random.Random:
    """Draws faults and times."""
    seed = int(os.environ.get("MNEME_CHAOS_SEED") or random.SystemRandom().randrange(10**9))
    print(f"MNEME_CHAOS_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """What this test's clients saw the end of."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    yield ledger
    ledger.close()
