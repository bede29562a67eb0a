"""POST /api/v1/chat of the running server, with its worker: the answer, and all that memory had to do with it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.clients import Api, error_of, prompt_of
from tests.support.replies import chat_script, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

WORKER = True


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"RETRIEVAL_DEADLINE_MS": "5000", "DEFAULT_MODEL": "gpt-4o"}


def chat(mneme: MnemeServer, body: dict[str, Any], **headers: str) -> httpx.Response:
    return mneme.http.post("/api/v1/chat", json=body, headers=headers)


def told(mneme: MnemeServer, message: str, **more: Any) -> dict[str, Any]:
    answer = chat(mneme, {"message": message, **more})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_what_is_said_is_learned_listed_and_used(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    first = told(mneme, "Remember, Gai Media prefers Friday deliveries", user_id="user_123", session_id="monday")
    assert first["response"] == {"content": "All right.", "role": "assistant"}
    assert first["metadata"]["learning"] == "done"
    episode, memory = first["memories_created"]
    assert episode["memory_type"] == "episodic"
    assert episode["summary"].endswith("Remember, Gai Media prefers Friday deliveries")
    assert memory["memory_type"] == "semantic"
    assert "Friday" in memory["summary"]
    assert first["metadata"]["extraction_count"] == 2

    again = told(mneme, "And on which day should I plan them?", user_id="user_123", session_id="monday")
    assert again["metadata"]["session_id"] == first["metadata"]["session_id"]
    assert len(upstream.requests[-1].json()["messages"]) == 3, "Mneme supplies the history"
    (question,) = again["memories_created"]
    assert question["summary"] == "User asked: And on which day should I plan them?"

    later = told(mneme, "What does Gai Media prefer?", user_id="user_123")
    assert later["metadata"]["session_id"] != first["metadata"]["session_id"]
    known = {each["memory_id"]: each for each in later["augmentation"]["retrieved_memories"]}
    assert [each for each in known.values() if "Friday" in each["summary"]]
    assert len(known) == later["metadata"]["retrieval_count"]
    assert "Friday" in prompt_of(upstream.requests[-1])
    assert later["metadata"]["query_type"] == "factual_entity_focused"
    assert later["metadata"]["llm_model"] == "gpt-4o"
    assert set(later) == {
        "response", "augmentation", "memories_created", "entities_resolved", "conflicts", "metadata",
    }  # fmt: skip

    api = Api(mneme, user="user_123")
    explained = api.get(f"/calls/{later['metadata']['call_id']}/context")
    shown = {each["id"] for each in explained["items"] if each["chosen"]} | set(
        explained["sections"]["facts"]["memories"]
    )
    assert shown == {each.partition(":")[2] for each in known}, "one explanation, told twice"
    api.wait_for_quiet()


def test_errors(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    assert error_of(chat(mneme, {"message": "Hi", "stream": True}))["param"] == "stream"
    assert error_of(chat(mneme, {"user_id": "ana"}))["param"] == "message"
    upstream.script = lambda request: reply_json(
        {"error": {"message": "no such model", "type": "invalid_request_error", "param": "model", "code": "x"}},
        status="404 Not Found",
    )
    answer = chat(mneme, {"message": "Hi", "model": "nothing"})
    assert answer.status_code == 404
    assert error_of(answer)["message"] == "no such model"
    upstream.script = chat_script(lambda asked: "Fine.")
    assert told(mneme, "Hi")["response"]["content"] == "Fine."


def test_a_key_that_may_not_call_models(mneme: MnemeServer) -> None:
    key = mneme.create_key("writes", "--scope", "write")
    answer = chat(mneme, {"message": "Hi", "user_id": "ana"}, authorization=f"Bearer {key}")
    assert answer.status_code == 403
    assert error_of(answer)["code"] == "missing_scope"
