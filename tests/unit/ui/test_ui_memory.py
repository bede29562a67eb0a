"""A memory's history for people, and what a form changes of it."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.ui.memories import Change, changed, event
from app.features.ui.visit import Refused
from tests.support.tables import each_of

HELD: dict[str, Any] = {
    "text": "Likes tea", "kind": "preference", "tier": 4, "tags": ["taste"], "metadata": {"a": 1}, "importance": 0.6499999,
    "confidence": 0.95, "expires_at": "2031-09-03T08:15:30.5Z",
}  # fmt: skip
FORM = {
    "text": "Likes tea", "kind": "preference", "tier": "4", "tags": "taste", "metadata": '{"a": 1}', "importance": "0.65",
    "confidence": "0.95", "expires_at": "2031-09-03T08:15",
}  # fmt: skip


def told(event_name: str, actor: str = "system", **sides: Any) -> dict[str, Any]:
    return {"at": "2031-09-03T08:15:00Z", "event": event_name, "actor": actor, "before": None, "after": None} | sides


def test_an_edit_says_what_changed_its_words_first() -> None:
    shown = event(
        told(
            "edited",
            "api",
            before={"importance": 0.5, "text": "old", "tags": ["a"], "expires_at": None},
            after={"importance": 0.9, "text": "new", "tags": ["a", "b"], "expires_at": "2032-01-01T00:00:00Z"},
        )
    )
    assert (shown.title, shown.actor) == ("Edited", "a client (API or page)")
    assert shown.changes == [
        Change("text", "text", "old", "new"),
        Change("expires at", "moment", None, "2032-01-01T00:00:00Z"),
        Change("importance", "plain", "0.50", "0.90"),
        Change("tags", "plain", "a", "a, b"),
    ]


def test_what_stayed_is_no_change() -> None:
    shown = event(
        told("confirmed", "user", before={"confidence": 0.95, "tier": 2}, after={"confidence": 0.95, "tier": 3})
    )
    assert shown.changes == [Change("tier", "plain", "2", "3")]
    assert shown.actor == "the user, in a conversation"


def test_what_took_its_place_is_a_memory() -> None:
    shown = event(told("superseded", before={"status": "active"}, after={"status": "superseded", "superseded_by": "x"}))
    assert shown.title == "Another took its place"
    assert Change("superseded by", "memory", None, "x") in shown.changes


def test_who_says_it_outright_adds_it() -> None:
    assert event(told("created", "api", after={"text": "x"})).title == "Added"
    assert event(told("created", "system", after={"text": "x"})).title == "Learned"


def test_an_event_that_is_not_known_here_still_shows() -> None:
    assert event(told("teleported", "martians")) == event(told("teleported", "martians"))
    assert (event(told("teleported")).title, event(told("teleported", "martians")).actor) == ("teleported", "martians")


def test_a_form_that_was_only_sent_changes_nothing() -> None:
    assert changed(HELD, FORM) == {}
    assert changed(HELD, {}) == {}


@each_of(
    ("field", "value", "body"),
    [
        ("text", " Likes\r\ncoffee ", {"text": "Likes\ncoffee"}),
        ("kind", "fact", {"kind": "fact"}),
        ("tier", "3", {"tier": 3}),
        ("tags", "", {"tags": []}),
        ("metadata", "", {"metadata": {}}),
        ("importance", "0.7", {"importance": 0.7}),
        ("confidence", "0", {"confidence": 0.0}),
        ("expires_at", "", {"expires_at": None}),
        ("expires_at", "2031-09-03T08:16", {"expires_at": "2031-09-03T08:16"}),
    ],
)
def test_a_form_changes_what_differs(field: str, value: str, body: dict[str, Any]) -> None:
    assert changed(HELD, FORM | {field: value}) == body


@each_of("text", ["much", "nan", "inf", "1e999"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="numbers from 0 to 1"):
        changed(HELD, FORM | {"importance": text})
