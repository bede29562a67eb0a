"""How a page of messages becomes turns, and what content parts are called."""

from __future__ import annotations

from typing import Any

from app.features.ui.rendering import ContentPiece, MarkedWords, pieces, plain, pretty, turns, whole
from tests.support.tables import each_of

SESSION = "own"
KB3 = "A" * 4096
"""Base64 of 3 KB."""
PNG = ContentPiece("Image", "image/png, 3 KB", "")
TOOL_USE = ContentPiece("Tool use", "search", pretty({"type": "tool_use", "name": "search"}))


def message(turn: int, role: str = "user", content: object = "hello", **given: Any) -> dict[str, Any]:
    return {
        "id": f"{turn}.{given.get('sibling', 0)}", "session_id": SESSION, "turn_index": turn, "sibling": 0, "parent_id": None,
        "role": role, "content": content, "name": None, "tool_calls": None, "tool_call_id": None,
    } | given  # fmt: skip


@each_of("depth", [10, 300, 1000])
def test_what_is_nested_deep_breaks_no_page(depth: int) -> None:
    text = "[" * depth + "]" * depth
    assert pretty(text).replace("\n", "").replace(" ", "") == text
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    assert pretty(value) == ("(nested too deep to be shown)" if depth > 254 else pretty(f"[{text}]"))


def test_what_is_missing_between_messages_is_a_gap() -> None:
    made = turns([message(1), message(4), message(5)], SESSION, before=0)
    assert [(each.index, each.missing) for each in made] == [(1, 0), (4, 2), (5, 0)]
    assert turns([message(3)], SESSION, before=0)[0].missing == 2, "at the beginning, too"
    assert turns([message(3)], SESSION, before=2)[0].missing == 0, (
        "of a later page the beginning stands on an earlier one"
    )


def test_of_answers_to_one_question_the_one_is_shown_that_was_gone_on_from() -> None:
    answers = [message(2, "assistant", f"answer {n}", sibling=n) for n in range(3)]
    assert [turn.shown.row["content"] for turn in turns([message(1), *answers], SESSION, before=0)] == [
        "hello",
        "answer 2",
    ]
    made = turns([message(1), *answers, message(3, parent_id="2.1")], SESSION, before=0)
    assert made[1].shown.row["content"] == "answer 1"
    assert [each.row["content"] for each in made[1].others] == ["answer 0", "answer 2"]


def test_a_branch_begins_where_its_own_messages_do() -> None:
    shared = [message(n, session_id="parent") for n in (1, 2)]
    own = [message(n) for n in (3, 4)]
    child = {"id": "child", "branch_turn_index": 3}
    made = turns([*shared, *own], SESSION, before=0, branches=[child])
    assert [each.begins for each in made] == [False, False, True, False]
    assert [list(each.branches) for each in made] == [[], [], [child], []]


def test_a_tools_result_has_its_name() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q":"lamps"}'}}
    custom = {"id": "c2", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    said = [
        message(1, "assistant", None, tool_calls=[call, custom, "broken"]),
        message(2, "tool", "[]", tool_call_id="c1"),
        message(3, "tool", "x", tool_call_id="gone", name="old"),
        message(4, "tool", "x", tool_call_id="gone"),
    ]
    made = turns(said, SESSION, before=0)
    assert [(each.name, each.arguments) for each in made[0].shown.calls] == [
        ("search", '{\n  "q": "lamps"\n}'), ("shell", "ls"),
    ]  # fmt: skip
    assert [each.shown.tool for each in made] == [None, "search", "old", "a tool"]


def test_a_page_does_not_cut_a_turn_in_two() -> None:
    three = [message(n) for n in (7, 8, 9)]
    assert whole(three, 3) == (three, None)
    assert whole(three, 2) == (three[1:], 8)
    two_of_one = [message(8), message(8, sibling=1), message(9)]
    assert whole(two_of_one, 2) == (two_of_one[2:], 9), "the turn is shown whole on the page before"
    all_of_one = [message(8, sibling=n) for n in range(3)]
    assert whole(all_of_one, 2) == (all_of_one, 8)


@each_of(
    ("part", "named"),
    [
        ("plain", ContentPiece("", "", "plain")),
        ({"type": "text", "text": "said"}, ContentPiece("", "", "said")),
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{KB3}"}}, PNG),
        ({"type": "image_url", "image_url": {"url": "javascript:alert(1)"}}, ContentPiece("Image", "javascript:alert(1)", "")),
        ({"type": "input_image", "image_url": "https://x.example/a.png"}, ContentPiece("Image", "https://x.example/a.png", "")),
        ({"type": "input_image", "file_id": "file-1"}, ContentPiece("Image", "file-1", "")),
        ({"type": "input_audio", "input_audio": {"format": "wav", "data": KB3}}, ContentPiece("Audio", "wav, 3 KB", "")),
        ({"type": "file", "file": {"filename": "a.pdf"}}, ContentPiece("File", "a.pdf", "")),
        ({"type": "refusal", "refusal": "No."}, ContentPiece("Refusal", "", "No.")),
        ({"type": "thinking", "thinking": "Hm."}, ContentPiece("Reasoning", "", "Hm.")),
        ({"type": "tool_use", "name": "search"}, TOOL_USE),
        ({"type": "image_url"}, ContentPiece("Image", "", "")),
        ({"type": "input_audio", "input_audio": None}, ContentPiece("Audio", "", "")),
        (7, ContentPiece("Part", "", "7")),
    ],
)  # fmt: skip
def test_content_parts_are_named(part: object, named: ContentPiece) -> None:
    assert pieces([part]) == [named]


def test_contents_that_are_no_list() -> None:
    assert pieces(None) == pieces("") == pieces([]) == []
    assert pieces("text") == [ContentPiece("", "", "text")]
    assert pieces({"odd": 1}) == [ContentPiece("Content", "", '{\n  "odd": 1\n}')]


def test_json_is_laid_out_and_other_text_left_alone() -> None:
    assert pretty('{"a":1}') == pretty({"a": 1}) == '{\n  "a": 1\n}'
    assert pretty("12") == "12"
    assert pretty("{broken") == "{broken"


def test_a_cards_data_in_lines_and_a_rest() -> None:
    lines, rest = plain({"sku": "A1", "price": 3, "sold": False, "none": None, "rows": [1], "more": {"x": 1}})
    assert lines == [("sku", "A1"), ("price", "3"), ("sold", "false"), ("none", "–")]
    assert rest == {"rows": [1], "more": {"x": 1}}


MESSAGE_ID = "01a1f89d-0350-74d5-8000-000000000001"
PARTS = [
    {"type": "text", "text": "Good day."},
    {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
    {"type": "text", "text": "I live in Lisbon."},
]


@each_of(
    "content, span, marked",
    [
        ("I live in Lisbon.", (0, 16), [(0, 16)]),
        ("🙂 I live in Lisbon.", (2, 18), [(2, 18)]),
        (PARTS, (10, 26), [None, None, (0, 16)]),
        (PARTS, (0, 4), [(0, 4), None, None]),
        (PARTS, (5, 12), [(5, 9), None, (0, 2)]),
        ("Hello", (90, 99), [None]),
        ("Hello", (3, 99), [(3, 5)]),
    ],
)
def test_the_words_that_were_learned_from_are_marked(
    content: object, span: tuple[int, int], marked: list[tuple[int, int] | None]
) -> None:
    words = MarkedWords.parse(f"{MESSAGE_ID}.{span[0]}-{span[1]}")
    (turn,) = turns([message(1, content=content, id=MESSAGE_ID)], SESSION, before=0, marked=words)
    assert [piece.marked for piece in turn.shown.pieces] == marked
    (turn,) = turns([message(1, content=content)], SESSION, before=0, marked=words)
    assert {piece.marked for piece in turn.shown.pieces} == {None}, "another message"


@each_of("text", [None, "", "nonsense", f"{MESSAGE_ID}.4-4", f"{MESSAGE_ID}.9-4", f"{MESSAGE_ID}.-1-4", "x.1-4"])
def test_a_link_that_names_no_words_marks_none(text: str | None) -> None:
    assert MarkedWords.parse(text) is None
