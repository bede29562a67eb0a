"""What `mneme import` makes of an export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from app.features.transfer.commands import BrokenExport, Exported

HEAD = {"export": {"version": 1, "user": "ana"}}
END: dict[str, dict[str, int]] = {"end": {}}


def message(n: int, **fields: Any) -> dict[str, Any]:
    row = {
        "session_id": "s", "turn_index": n, "sibling": 0, "message_id": f"m{n}", "role": "user", "content": f"said {n}",
        "content_parts": None, "created_at": "2026-01-01T00:00:00.000000Z", "metadata": {}, "hidden": False,
    }  # fmt: skip
    return {"table": "conversation_history", "row": row | fields}


def written(folder: Path, *lines: object) -> Path:
    path = folder / "export.jsonl"
    path.write_bytes(b"".join(each if isinstance(each, bytes) else orjson.dumps(each) + b"\n" for each in lines))
    return path


def said(path: Path) -> list[str]:
    return [orjson.loads(line)["content"] for line in Exported(path).lines()]


def test_messages_come_in_their_order_without_what_is_gone(tmp_path: Path) -> None:
    gone = [
        {"table": "suppressions", "row": {"item_id": item, "reason": reason}}
        for item, reason in (("m1", "forgotten"), ("m2", "superseded"))
    ]
    kept = [message(5), message(2), message(1), message(3, hidden=True), message(4, role="other")]
    path = written(tmp_path, HEAD, *kept, *gone, {"table": "facts", "row": {}}, END)
    assert said(path) == ["said 2", "said 5"]
    assert Exported(path).left_out == {"suppressions": 2, "facts": 1}


def test_a_session_has_its_name_or_its_id(tmp_path: Path) -> None:
    sessions = [
        {"table": "sessions", "row": {"session_id": i, "external_id": name}} for i, name in (("s", "mine"), ("t", None))
    ]
    path = written(tmp_path, HEAD, *sessions, message(1), message(2, session_id="t"), END)
    assert [orjson.loads(line)["session"] for line in Exported(path).lines()] == ["mine", "t"]


@pytest.mark.parametrize(
    "lines",
    [
        [HEAD, message(1)],
        [HEAD],
        [HEAD, b"no JSON\n", END],
        [HEAD, {"table": "conversation_history"}, END],
        [HEAD, b"7\n", END],
    ],
)
def test_one_that_is_not_whole_is_refused(tmp_path: Path, lines: list[object]) -> None:
    with pytest.raises(BrokenExport):
        Exported(written(tmp_path, *lines))


def test_what_is_no_export_is_told_apart(tmp_path: Path) -> None:
    assert Exported.is_one(written(tmp_path, HEAD))
    for other in (b"", b"{}\n", orjson.dumps({"session": "s", "user": "u", "role": "user"})):
        assert not Exported.is_one(written(tmp_path, other))
