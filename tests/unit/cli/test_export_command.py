"""What `mneme export` makes of an answer: whole, or no file."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import httpx
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st

from app.features.transfer.commands import ExportFailed, _Seen, fetch_user

BASE = "http://mneme.test"
URL = f"{BASE}/api/v1/users/a%2Fb/export"
WHOLE = b'{"export":{}}\n{"table":"users","row":{}}\n{"end":{"users":1}}\n'


@respx.mock
def test_a_whole_export_is_a_file(tmp_path: Path) -> None:
    route = respx.get(URL).mock(return_value=httpx.Response(200, content=WHOLE))
    assert fetch_user("a/b", BASE, "mneme_k", tmp_path / "out", messages=False) == 3
    assert (tmp_path / "out").read_bytes() == WHOLE
    assert route.calls.last.request.headers["x-mneme-key"] == "mneme_k"


@respx.mock
@pytest.mark.parametrize("content", [WHOLE[:-1], WHOLE[:-10], b'{"export":{}}\n', b""])
def test_one_that_broke_off_is_none(tmp_path: Path, content: bytes) -> None:
    respx.get(URL).mock(return_value=httpx.Response(200, content=content))
    with pytest.raises(ExportFailed, match="broke off"):
        fetch_user("a/b", BASE, None, tmp_path / "out", messages=False)
    assert list(tmp_path.iterdir()) == []


@respx.mock
@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, json={"error": {"message": "There is no such user."}}),
        httpx.Response(502, content=b"<html>"),
        httpx.ConnectError("refused"),
    ],
)
def test_a_refusal_is_told(tmp_path: Path, answer: httpx.Response | Exception) -> None:
    respx.get(URL).mock(side_effect=[answer])
    with pytest.raises(ExportFailed, match=r"There is no such user|HTTP 502|cannot be reached"):
        fetch_user("a/b", BASE, None, tmp_path / "out", messages=True)
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.integers(0, len(WHOLE))))
def test_wherever_it_is_cut_the_last_line_is_seen(cuts: list[int]) -> None:
    seen, places = _Seen(), sorted({0, *cuts, len(WHOLE)})
    for start, end in pairwise(places):
        seen.add(WHOLE[start:end])
    assert (seen.lines, seen.last) == (3, b'{"end":')
