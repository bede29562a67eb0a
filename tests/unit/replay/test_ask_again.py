"""Two answers compared."""

from __future__ import annotations

from typing import Any

from app.features.replay.routes import ReplayedAnswer, difference
from app.gateway.dialects import answer_of
from app.gateway.dialects.chat import CHAT
from tests.support.journey import completion, stream
from tests.support.tables import each_of

TOOL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


def heard(reply: Any, **more: Any) -> ReplayedAnswer:
    return ReplayedAnswer(200, answer_of(b"".join(reply.chunks), CHAT), 10, **more)


def test_a_stream_and_a_whole_answer_that_say_the_same_are_the_same() -> None:
    told = difference(heard(completion("One\ntwo")), heard(stream("One", "\ntwo")))
    assert told["identical"]
    assert told["text"]["difference"] == []


def test_other_words_are_shown_line_by_line() -> None:
    told = difference(heard(completion("One\ntwo")), heard(completion("One\nthree"), completion=2))
    assert not told["identical"]
    assert told["text"]["difference"] == ["--- was", "+++ now", "@@ -1,2 +1,2 @@", " One", "-two", "+three"]
    assert told["completion_tokens"] == {"was": None, "now": 2}
    assert told["latency_ms"] == {"was": 10, "now": 10}


@each_of(("arguments", "same"), [('{"a":1}', True), ('{"a":2}', False)])
def test_tools_are_compared_by_name_and_arguments(arguments: str, same: bool) -> None:
    other = {**TOOL, "id": "call_2", "function": {"name": "f", "arguments": arguments}}
    was, now = (heard(completion(None, tool_calls=[each])) for each in (TOOL, other))
    told = difference(was, now)
    assert told["tool_calls"]["was"] == [{"name": "f", "arguments": '{"a":1}'}]
    assert told["identical"] is same


def test_no_answer_is_another_answer() -> None:
    told = difference(heard(completion("One")), ReplayedAnswer(None, None, 5, error="unreachable"))
    assert not told["identical"]
    assert told["error"] == {"was": None, "now": "unreachable"}
    assert not difference(ReplayedAnswer(429, None, 1), ReplayedAnswer(200, None, 1))["identical"]
    assert not difference(heard(completion("x")), heard(completion("x"), error="cut"))["identical"]


def test_what_is_no_answer_at_all_has_no_choices() -> None:
    assert answer_of(b"<html>", CHAT).choices == []
    assert answer_of(b"", CHAT).choices == []
