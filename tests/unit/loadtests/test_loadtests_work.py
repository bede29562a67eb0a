"""What is asked, and what memories are filled with."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

import orjson

from loadtests.fill import SESSION, lines
from loadtests.texts import Talk
from loadtests.work import questions


def test_talk_is_the_same_for_the_same_seed() -> None:
    one, same, other = Talk("a"), Talk("a"), Talk("b")
    told = [one.said() for _ in range(5)]
    assert told == [same.said() for _ in range(5)]
    assert told != [other.said() for _ in range(5)]
    assert not any("{" in text for text in told)


def test_an_answer_has_as_many_words_as_asked() -> None:
    assert [len(Talk(1).words(n)) for n in (0, 1, 200)] == [0, 1, 200]


def test_a_past_goes_forward_in_sessions_of_turns() -> None:
    told = [orjson.loads(each) for each in lines("u", SESSION * 2 + 3)]
    assert len(told) == SESSION * 2 + 3
    assert len({each["session"] for each in told}) == 3
    assert {each["user"] for each in told} == {"u"}
    assert [each["role"] for each in told[:3]] == ["user", "assistant", "user"]
    times = [datetime.fromisoformat(each["created_at"]) for each in told]
    assert all(before < after for before, after in pairwise(times))
    assert list(lines("u", 3)) == list(lines("u", 3))
    assert list(lines("u", 3)) != list(lines("v", 3))


def test_everyone_is_asked_the_same_for_users_in_turn() -> None:
    mneme = questions("stream", 1, [("X-Mneme-Memory", "off")], 3, "seed")
    direct = questions("stream", 2, [], 3, "seed")
    asked = []
    for n in range(6):
        ours, theirs = mneme(1, n), direct(1, n)
        assert ours.partition(b"\r\n\r\n")[2] == theirs.partition(b"\r\n\r\n")[2]
        assert f"X-Mneme-User: bench-{(1 + n) % 3}".encode() in ours
        assert b"X-Mneme-Memory: off" in ours
        asked.append(orjson.loads(ours.partition(b"\r\n\r\n")[2]))
    assert all(each["stream"] is True for each in asked)
    assert len({each["messages"][1]["content"] for each in asked}) > 1
