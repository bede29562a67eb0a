"""app/jobs/learn.py: what a job says, and how a conversation is cut into exchanges."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pytest
from msgspec.structs import replace

from app.errors import BadBody
from app.jobs.learn import LearnJob, split_exchanges
from app.jobs.learn_llm import LlmJob, plan_reading
from app.store.learning import SourceMessage
from tests.support.tables import each_of

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
WHOLE: dict[str, Any] = {
    "call": UUID(int=5),
    "tenant": UUID(int=1),
    "user": UUID(int=2),
    "session": UUID(int=3),
    "session_name": "chat-1",
    "messages": [UUID(int=10), UUID(int=11)],
    "confined": True,
    "from": AT,
    "to": AT,
}


def message(number: int, role: str, content: str = "…", calls: list[dict[str, Any]] | None = None) -> SourceMessage:
    return SourceMessage(UUID(int=number), number, role, content, calls or [], AT, {})


@each_of(
    "broken",
    [
        b"",
        b"[]",
        b"\xff",
        orjson.dumps({key: value for key, value in WHOLE.items() if key != "tenant"}),
        orjson.dumps(WHOLE | {"user": "somebody"}),
        orjson.dumps(WHOLE | {"messages": []}),
        orjson.dumps(WHOLE | {"messages": None}),
        orjson.dumps(WHOLE | {"from": "yesterday"}),
    ],
)
def test_a_payload_that_is_none_is_never_tried_again(broken: bytes) -> None:
    with pytest.raises(BadBody):
        LearnJob.parse(broken)


def test_each_exchange_is_read_by_the_llm_in_a_job_of_its_own_and_a_failed_one_waits_under_another_key() -> None:
    whole = LearnJob.parse(orjson.dumps(WHOLE))
    asked, answered = message(10, "user"), message(11, "assistant")
    (record,) = plan_reading(whole, split_exchanges([asked, answered]))
    job = LlmJob.parse(record.payload)
    assert job.messages == (UUID(int=10), UUID(int=11))
    assert (job.confined, job.session_name, job.since, job.tries) == (True, "chat-1", AT, 0)
    again = LlmJob.parse(replace(job, tries=1).to_record(1.0).payload)
    assert (again.tries, again.key) == (1, job.key)
    assert again.queue_key != job.queue_key == record.dedupe_key


def test_an_exchange_is_a_question_and_what_followed() -> None:
    call = {"type": "function", "function": {"name": "book", "arguments": "{}"}}
    found = split_exchanges(
        [
            message(1, "assistant", "an answer to what came before"),
            message(2, "user", "Book a table"),
            message(3, "assistant", "", [call]),
            message(4, "tool", "done"),
            message(5, "assistant", "Booked."),
            message(6, "user", "Thanks"),
        ]
    )
    first, second = found
    assert (first[0].user_text, first[0].tool_calls, first[0].assistant_text) == ("Book a table", [call], "Booked.")
    assert [each.message_id.int for each in first[1]] == [2, 3, 4, 5]
    assert (second[0].user_text, second[0].assistant_text, second[0].now) == ("Thanks", "", AT)


def test_without_a_word_of_the_user_there_is_nothing_to_learn_from() -> None:
    assert split_exchanges([message(1, "assistant"), message(2, "tool")]) == []
