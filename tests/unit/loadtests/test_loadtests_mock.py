"""The mock upstream, without a socket."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from loadtests.mock_upstream import Script, app, keeping
from loadtests.serving import Application
from tests.support.tables import each_of


async def ask(path: str, body: bytes, application: Application = app) -> tuple[int, list[bytes]]:
    """Status and body pieces."""
    sent: list[MutableMapping[str, Any]] = []
    halves = [body[: len(body) // 2], body[len(body) // 2 :]]

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": halves.pop(0), "more_body": bool(halves)}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await application({"type": "http", "path": path}, receive, send)
    assert sent[-1].get("more_body", False) is False
    return sent[0]["status"], [each["body"] for each in sent[1:]]


async def chat(model: str, asked: str = "Hello?", **fields: Any) -> tuple[int, list[bytes]]:
    body = {"model": model, "messages": [{"role": "user", "content": asked}], **fields}
    return await ask("/v1/chat/completions", orjson.dumps(body))


def test_a_script_is_in_the_name() -> None:
    assert Script.of("gpt-4o-mock") == Script(20, 0.0, 200)
    assert Script.of("any:chunks=3;gap_ms=1.5;status=429") == Script(3, 1.5, 429)


@each_of("model", ["m:chunk=3", "m:chunks=many", "m:chunks"])
def test_a_wrong_script_is_refused(model: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Script.of(model)


async def test_a_plain_answer() -> None:
    status, pieces = await chat("m:chunks=7")
    answer = orjson.loads(b"".join(pieces))
    assert status == 200
    assert len(answer["choices"][0]["message"]["content"].split()) == 7
    assert answer["usage"]["completion_tokens"] == 7


async def test_a_stream_sends_each_event_by_itself() -> None:
    status, pieces = await chat("m:chunks=5", stream=True)
    assert status == 200
    # The role, five words, the end, [DONE]; and the empty end of the body.
    assert len(pieces) == 9
    assert all(each.startswith(b"data: ") and each.endswith(b"\n\n") for each in pieces[:-1])
    assert pieces[-2:] == [b"data: [DONE]\n\n", b""]


async def test_usage_comes_where_it_is_asked_for() -> None:
    _, without = await chat("m:chunks=5", stream=True)
    _, pieces = await chat("m:chunks=5", stream=True, stream_options={"include_usage": True})
    assert len(pieces) == len(without) + 1
    assert orjson.loads(pieces[-3].removeprefix(b"data: "))["usage"]["completion_tokens"] == 5


async def test_answers_depend_on_the_question() -> None:
    answers = {b"".join((await chat("m", f"Question {n}?"))[1]) for n in range(20)}
    assert len(answers) > 5
    assert await chat("m", "The same?") == await chat("m", "The same?")


async def test_errors_have_openais_shape() -> None:
    for status, given in (
        (429, await chat("m:status=429")),
        (400, await chat("m:what=1")),
        (400, await ask("/v1/x", b"[")),
    ):
        assert given[0] == status
        assert orjson.loads(b"".join(given[1]))["error"]["message"]


async def test_it_tells_its_window() -> None:
    status, pieces = await ask("/v1/models", b"")
    assert status == 200
    assert orjson.loads(pieces[0])["data"][0]["max_model_len"] == 131_072


async def test_bodies_are_kept_where_the_name_asks_for_it(tmp_path: Path) -> None:
    file, bodies = (
        tmp_path / "kept",
        [b'{"model": "m:keep=1",\n "n": 1}', b'{"model": "m", "n": 2}', b'{"model": "m:keep=1"}'],
    )
    for body in bodies:
        status, _ = await ask("/v1/chat/completions", body, keeping(file))
        assert status == 200
    assert file.read_bytes().splitlines() == [bodies[0].replace(b"\n", b" "), bodies[2]]
