"""What pads a conversation, and the conversation of our own."""

from __future__ import annotations

from datetime import datetime

import orjson

from app.evaluating import Question, Sheet
from loadtests.bigger import PLANTED, SESSION, first_user, padding, planted


def test_the_conversation_of_our_own_answers_each_question_once() -> None:
    sheet = planted()
    assert len(sheet.questions) == PLANTED
    assert len({each.question for each in sheet.questions}) == PLANTED
    lines = [orjson.loads(each) for each in sheet.lines]
    texts = {each["metadata"]["id"]: each["content"] for each in lines}
    for each in sheet.questions:
        name, thing = each.question.split()[2], each.question.rstrip("?").split()[-1]
        holding = [key for key, text in texts.items() if text.startswith(f"{name} bought a {thing} in ")]
        assert holding == list(each.evidence)
    assert sheet.lines == planted().lines, "the same every time"


def test_padding_is_the_same_for_the_same_turns_and_lies_around_what_was_planted() -> None:
    sheet = planted()
    whole = list(padding(sheet, 0, 95))
    assert len(whole) == 95
    assert list(padding(sheet, 0, 50)) + list(padding(sheet, 50, 95)) == whole
    lines = [orjson.loads(each) for each in whole]
    assert {each["user"] for each in lines} == {"planted"}
    assert len({each["session"] for each in lines}) == -(-95 // SESSION)
    times = sorted(datetime.fromisoformat(orjson.loads(each)["created_at"]) for each in sheet.lines)
    reach = times[-1] - times[0]
    found = [datetime.fromisoformat(each["created_at"]) for each in lines]
    assert all(times[0] - reach <= each <= times[-1] + 2 * reach for each in found)


def test_padding_speaks_under_the_same_names() -> None:
    lines = [
        orjson.dumps(
            {
                "user": "u",
                "session": "s",
                "role": role,
                "name": name,
                "content": "x",
                "created_at": "2025-01-01T00:00:00Z",
            }
        )
        for role, name in (("user", "Vera"), ("assistant", "Otto"))
    ]
    sheet = Sheet(lines, {"u": {}}, [Question(user="u", question="?", evidence=["1"])])
    names = {(each["role"], each["name"]) for each in map(orjson.loads, padding(sheet, 0, 4))}
    assert names == {("user", "Vera"), ("assistant", "Otto")}


def test_only_the_first_user_is_padded() -> None:
    lines = [orjson.dumps({"user": user, "content": "x"}) for user in ("a", "b")]
    questions = [Question(user=user, question="?", evidence=["1"]) for user in ("b", "a", "b")]
    sheet = first_user(Sheet(lines, {"a": {}, "b": {}}, questions))
    assert [each.user for each in sheet.questions] == ["b", "b"]
    assert [orjson.loads(each)["user"] for each in sheet.lines] == ["b"]
