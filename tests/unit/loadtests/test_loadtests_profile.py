"""Stacks, as the sampler takes them and the profile reads them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from loadtests.profile import inclusive_counts, own_counts, parse_folded
from loadtests.sampler import Sampler, short

FOLDED = "main;app/a.py:f;app/a.py:f;json:dumps 3\nmain;app/a.py:f 2\nmain;loop 5\n"


def test_costs_by_function() -> None:
    stacks = parse_folded(FOLDED)
    assert own_counts(stacks) == {"json:dumps": 3, "app/a.py:f": 2, "loop": 5}
    # A function that calls itself counts once.
    assert inclusive_counts(stacks, "app/") == {"app/a.py:f": 5}


def test_files_are_told_without_the_machines_folders() -> None:
    assert short("/x/lib/python3.11/site-packages/aiohttp/client.py") == "aiohttp/client.py"
    assert short("/usr/lib/python3.11/uuid.py") == "python3.11/uuid.py"
    assert short(__file__) == "tests/unit/loadtests/test_loadtests_profile.py"


def test_the_sampler_finds_who_burns(tmp_path: Path) -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGPROF, signal.SIGUSR1, signal.SIGUSR2)}
    file = tmp_path / "stacks.folded"
    try:
        Sampler(file).install()
        signal.raise_signal(signal.SIGUSR1)
        burn()
        signal.raise_signal(signal.SIGUSR2)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    found = inclusive_counts(parse_folded(file.read_text()), "tests/")
    assert found["tests/unit/loadtests/test_loadtests_profile.py:burn"] == max(found.values())


def burn() -> None:
    """Enough for some samples, however coarse the kernel's clock is."""
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass


def test_lines_that_are_no_stacks_are_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_folded("no count\n")
