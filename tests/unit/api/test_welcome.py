"""What a fact says: each of its values, by its key."""

from __future__ import annotations

from typing import Any

import pytest

from app.api.welcome import Welcome
from app.errors import BadBody
from app.memory.secrets import unwelcome


@pytest.mark.parametrize(
    ("key", "value", "seen"),
    [
        ("lives_in", "Lisbon", ["lives in: Lisbon"]),
        ("pets", ["Bolt", {"cat_name": "Tom"}], ["pets: Bolt", "cat name: Tom"]),
        ("answers", {"yes": True, "none": None, "many": 3}, ["many: 3"]),
    ],
)
def test_every_value_is_judged_with_its_key(key: str, value: Any, seen: list[str]) -> None:
    judged: list[str] = []

    def notes(text: str) -> bool:
        judged.append(text)
        return False

    Welcome(notes).check_fact(key, value)
    assert judged == seen


def test_what_was_found_is_not_told() -> None:
    with pytest.raises(BadBody) as refused:
        Welcome(lambda text: "Falcon" in text).check_memory("Works on Falcon", None)
    assert "Falcon" not in str(refused.value)


def test_secrets_are_welcome_where_the_settings_say_so() -> None:
    secret = "The password is hunter2"
    assert unwelcome(False, ())(secret)
    assert not unwelcome(True, ())(secret)
    assert unwelcome(True, (), ["hunter"])(secret)
