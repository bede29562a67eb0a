"""The measurement of many cassettes runs, and finds what it looks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.cassettes import made, measure
from mneme_replay.files import numbered, write
from mneme_replay.requests import MATCHINGS


def test_it_tells_of_every_matching(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, numbered(made(60)))
    measure(tmp_path)
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told] == ["load", "memory", *MATCHINGS, "memory"]
    assert "60 cassettes" in told[0]
    assert all("(20 of 20 with the one it was)" in line for line in told[2:5])
