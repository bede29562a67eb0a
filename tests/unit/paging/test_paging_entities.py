"""Key entities of a content."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.features.paging.keys import MOST, NAME_CHARS, defined, entities


def test_what_is_named_in_code() -> None:
    text = "export async function verifyToken(t) {\nclass AuthError extends Error {\n  throw new TypeError('TOKEN_EXPIRED')\n"
    assert defined(text) == ["verifyToken", "AuthError"]
    found = entities(text, "src/auth.ts:1-40")
    assert found[0] == "src/auth.ts"
    assert {"verifyToken", "AuthError", "TypeError", "TOKEN_EXPIRED"} <= set(found)


def test_numbered_lines_name_the_same() -> None:
    assert defined("     1→def first():\n     2→    pass\n") == ["first"]


def test_files_and_urls() -> None:
    assert {"src/money.py", "https://a.example/x"} <= set(entities("see src/money.py and https://a.example/x."))


@given(st.text(max_size=2000))
def test_bounded(text: str) -> None:
    found = entities(text)
    assert len(found) <= MOST
    assert len(set(found)) == len(found)
    assert all(len(each) <= NAME_CHARS for each in found)
