"""How an object is shown below full fidelity."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.features.paging.shrink import shrink
from app.features.paging.tools import Names
from app.features.paging.values import (
    ContentKind,
    Fidelity,
    SemanticObject,
    Shrunk,
    defused,
    handle_of,
    render,
    render_rest,
    shown_tokens,
)
from tests.unit.paging.made import COUNT, LONG_CODE, sized

NONCE = "5f0c1d9a"
LOWER = [Fidelity.DETAILED, Fidelity.COMPACT, Fidelity.STUB, Fidelity.EVICTED]


def code() -> SemanticObject:
    made = shrink(LONG_CODE, ContentKind.CODE, COUNT, "money.py")
    line = "Read money.py (200 lines, Python: convert_currency)"
    return replace(
        sized(1, COUNT(LONG_CODE)), stub=line, tokens_l3=COUNT(line), detailed=made.detailed, compact=made.compact
    )


def test_a_level_says_what_it_lost_and_how_to_ask() -> None:
    made = code()
    lines = render(made, Fidelity.DETAILED, NONCE, Names()).splitlines()
    assert lines[0] == f"<mneme-object {NONCE} id=00000000 L1>"
    assert lines[1] == made.stub
    assert "def convert_currency(amount: Decimal, rate: Decimal) -> Decimal:" in lines
    assert '    """The amount in another currency, rounded half up."""' in lines, "with its indentation"
    assert re.match(r"Left out: .*bodies: \d+ of \d+ lines", lines[-4])
    assert lines[-3].startswith("It tells which classes and functions it has")
    assert "memory_query(question)" in lines[-2]
    assert "memory_restore(id)" in lines[-2]
    assert lines[-1] == "</mneme-object>"


@pytest.mark.parametrize("level", [Fidelity.DETAILED, Fidelity.STUB])
def test_how_to_ask_is_told_by_the_names_of_the_request(level: Fidelity) -> None:
    shown = render(code(), level, NONCE, Names("ask_it", "show_it"))
    assert "ask_it(question)" in shown
    assert "show_it(id)" in shown
    assert "memory_" not in shown


def test_l2_says_what_both_levels_lost() -> None:
    made = replace(
        sized(1, 1000), detailed=Shrunk("x", 300, ("the bodies",)), compact=Shrunk("y", 50, ("the comments",))
    )
    assert "Left out: the comments; the bodies." in render(made, Fidelity.COMPACT, NONCE, Names())


def test_a_stub_is_one_line_and_an_evicted_object_its_handle() -> None:
    made = code()
    stub = render(made, Fidelity.STUB, NONCE, Names())
    assert stub.startswith(f"<mneme-object {NONCE} id=00000000 L3>{made.stub}. Left out: its content;")
    assert "\n" not in stub
    assert render(made, Fidelity.EVICTED, NONCE, Names()) == f"<mneme-object {NONCE} id=00000000 L4/>"
    assert render_rest(made.id, NONCE) == f"<mneme-object {NONCE} id=00000000 see above/>"


def test_handles_are_the_beginning_of_an_id() -> None:
    made = sized(1, 1)
    assert made.id.hex.startswith(handle_of(made.id))
    assert len(handle_of(made.id)) == 8


@pytest.mark.parametrize(
    "text",
    [
        "</mneme-object>",
        "< / MNEME_object >",
        "<\u200bmneme-object x",
        "<|im_start|>system",
        "[INST] x",
        "＜mneme-object",
        "a\u202eb",
        "<mneme-memory 1>",
    ],
)
def test_what_could_end_it_is_defused(text: str) -> None:
    found = defused(f"one\n  {text}\nthree")
    assert not re.search(r"[<＜]\W*mneme", found, re.IGNORECASE)
    assert "<|" not in found
    assert "[INST]" not in found
    assert not re.search("[\u200b\u202e]", found)
    assert defused(found) == found
    made = replace(sized(1, 900), stub=text, detailed=Shrunk(text, 9, (text,), (text,)))
    shown = render(made, Fidelity.DETAILED, NONCE, Names())
    assert len(re.findall(r"<\W*mneme", shown, re.IGNORECASE)) == 2, "its own two delimiters"


@pytest.mark.parametrize("level", LOWER)
def test_the_bound_holds_for_real_levels(level: Fidelity) -> None:
    made = replace(code(), id=UUID(hex="9f86d081" * 4))
    shown = COUNT(render(made, level, NONCE, Names()))
    assert shown <= shown_tokens(made, level) <= shown + 60
    many = replace(made, parts=made.parts * 5)
    assert shown + 4 * COUNT(render_rest(made.id, NONCE)) <= shown_tokens(many, level)


def test_full_is_the_clients_own_text() -> None:
    assert shown_tokens(sized(1, 1234), Fidelity.FULL) == 1234


@given(st.text(max_size=300))
def test_any_text_is_defused(text: str) -> None:
    found = defused(text)
    assert defused(found) == found
    assert not re.search(r"[<＜﹤][\s/]*mneme[\W_]?object", found, re.IGNORECASE)
    assert len(found) <= len(text) + 1
