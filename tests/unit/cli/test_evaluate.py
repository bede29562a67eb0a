"""What a file of an evaluation may say, and what counts as found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from app.errors import BadBody
from app.features.evaluate import found, read, table
from tests.support.context_samples import memory, message, source

TALK = {"user": "ana", "session": "s", "role": "user", "content": "I moved to Rome", "metadata": {"id": "1"}}
ASKED = {"user": "ana", "question": "Where does Ana live?", "evidence": ["1"], "kind": "plain"}


def written(folder: Path, *lines: Any) -> Path:
    file = folder / "talk.jsonl"
    file.write_bytes(b"\n".join(each if isinstance(each, bytes) else orjson.dumps(each) for each in lines))
    return file


def test_messages_and_questions(tmp_path: Path) -> None:
    sheet = read(written(tmp_path, TALK, b"", {**TALK, "metadata": {}}, ASKED))
    assert len(sheet.lines) == 2
    assert list(sheet.sessions) == [("ana", "s")]
    assert sheet.words["ana"] == {"1": ["i", "moved", "to", "rome"]}
    assert [(each.question, each.kind) for each in sheet.questions] == [("Where does Ana live?", "plain")]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([TALK], "no question"),
        ([TALK, {**ASKED, "evidence": ["2"]}], "the id 2"),
        ([TALK, {**ASKED, "user": "bo"}], "No message of bo"),
        ([TALK, {**ASKED, "evidence": []}], "no question"),
        ([TALK, {**ASKED, "answer": "Rome"}], "Line 2"),
        ([TALK, b"{"], "Line 2"),
        ([b"[1]", ASKED], "Line 1"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, lines: list[Any], why: str) -> None:
    with pytest.raises(BadBody, match=why):
        read(written(tmp_path, *lines))


def test_what_counts_as_found() -> None:
    long = " ".join(f"word{n}" for n in range(100))
    words = {"a": long.split(), "b": ["yes", "indeed", "so", "it", "is"]}

    def shown(text: str, name: str = "a") -> set[str]:
        return found(message(1, text, metadata={"id": name}), words)

    assert shown(long) == {"a"}
    assert shown(" ".join(long.split()[:25])) == {"a"}
    assert shown(" ".join(long.split()[:24])) == set()
    assert shown("yes indeed so it", "b") == {"b"}
    assert shown("yes indeed", "b") == set()
    assert shown(long, "unknown") == set()


def test_a_summary_of_everything_finds_nothing() -> None:
    words = {str(n): ["said"] for n in range(1, 4)}
    sources = [source(n) for n in range(1, 4)]

    def drawn(count: int) -> set[str]:
        item = memory(9, "a fact", provenance=sources[:count])
        named = [{**each, "metadata": {"id": str(n)}} for n, each in enumerate(item.sources or (), 1)]
        return found(item._replace(sources=named), words)

    assert [drawn(count) for count in (1, 2, 3)] == [{"1"}, {"1", "2"}, set()]


def test_the_table_has_a_row_for_each_kind() -> None:
    result = {
        "questions": 3, "recall": {500: 0.5, 1500: 0.75}, "kinds": {"plain": {500: 0.5, 1500: 0.75}}, "asked": {"plain": 3},
        "search_ms": {"p50": 1.0, "p95": 2.0},
        "prices": {"balanced": {"recall": 0.7, "tokens": 400, "precision": 0.3, "unrelated": None, "unrelated_median": None}},
    }  # fmt: skip
    lines = table(result).splitlines()
    assert lines[0].split() == ["recall", "within", "500", "1,500", "questions"]
    assert lines[1].split() == ["plain", "0.500", "0.750", "3"]
    assert lines[2].split() == ["all", "0.500", "0.750", "3"]
    assert lines[5].split() == ["balanced", "0.7", "400", "0.3", "-", "-"]
