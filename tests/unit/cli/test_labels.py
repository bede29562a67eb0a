"""A label for each source of a memory that a person judged."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.features.labels import build_labels
from tests.support.tables import each_of

SOURCE = {
    "session_id": "s", "message_id": "m", "turn_index": 3, "quote": "my Django app", "span": [4, 17], "way": "judge",
}  # fmt: skip


def make_row(**changed: Any) -> dict[str, Any]:
    at = datetime(2026, 11, 20, tzinfo=UTC)
    row = {
        "memory_id": UUID(int=1),
        "kind": "fact",
        "subject": None,
        "tags": ["project"],
        "event": "invalidated",
        "at": at,
    }
    return row | {"sources": [SOURCE]} | changed


@each_of(
    "row, expected",
    [
        (make_row(), [("project", None, "judge", "not_true", 2)]),
        (make_row(event="confirmed", subject="user"), [("project", "user", "judge", "confirmed", 2)]),
        (make_row(subject="wife"), [("project", "other", "judge", "not_true", 2)]),
        (make_row(kind="instruction", sources=[SOURCE | {"way": "rule"}]), [("wish", None, "rule", "not_true", 2)]),
        (
            make_row(kind="event", tags=["llm"], sources=[SOURCE | {"way": "llm"}]),
            [("plan", None, "llm", "not_true", 2)],
        ),
        (
            make_row(sources=[SOURCE, SOURCE | {"turn_index": 1}]),
            [("project", None, "judge", "not_true", n) for n in (2, 0)],
        ),
        (make_row(sources=[{**SOURCE, "way": None}]), []),
        (make_row(sources=[{**SOURCE, "span": [0, 0]}]), []),
        (make_row(sources=None), []),
    ],
)
def test_labels_of_a_memory(row: dict[str, Any], expected: list[tuple[Any, ...]]) -> None:
    labels = build_labels(row, with_text=False)
    assert [(label.kind, label.subject, label.way, label.verdict, label.message) for label in labels] == expected
    assert all(label.text is None for label in labels)
    assert all(label.text == "my Django app" for label in build_labels(row, with_text=True))
