"""Secrets and personal numbers that a client states outright are refused as those are that are said in a conversation."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import httpx
import pytest

from app.store.pools import Pool
from tests.support.rows import find_tables
from tests.support.wired_api import build_api, error_of, make_space

CARD = "4111 1111 1111 1111"
TEXTS = {
    "a card": f"Pays with {CARD}",
    "a key": "Uses sk-proj-abcdefghijklmnop1234",
    "a password": "The password of the safe is hunter2",
}


def check(answer: httpx.Response, param: str) -> None:
    assert answer.status_code == 400, answer.text
    error = error_of(answer)
    assert (error["code"], error["param"], error["type"]) == ("not_remembered", param, "invalid_request_error")
    assert CARD not in answer.text


@pytest.mark.parametrize("what", TEXTS)
async def test_no_way_in_takes_a_secret(client: httpx.AsyncClient, admin: asyncpg.Connection[Any], what: str) -> None:
    text = TEXTS[what]
    word = text.split()[-1]
    check(await client.post("/api/v1/memories", json={"user": "ana", "text": text}), "text")
    many = [{"user": "ana", "text": "Likes tea"}, {"user": "ana", "text": text}]
    check(await client.post("/api/v1/memories", json=many), "text")
    assert (await client.get("/api/v1/memories?user=ana")).json()["memories"] == [], "all or nothing"
    made = (await client.post("/api/v1/memories", json={"user": "ana", "text": "Likes tea"})).json()["id"]
    check(await client.patch(f"/api/v1/memories/{made}", json={"text": text}), "text")
    check(await client.patch(f"/api/v1/memories/{made}", json={"tags": ["fine", text]}), "tags")
    corrected = {"answer": "no", "correction": text}
    check(await client.post(f"/api/v1/memories/{made}/validate", json=corrected), "correction")
    batch = {"create": [{"user": "ana", "text": text}, {"user": "ana", "text": "Has a boat"}], "update": [
        {"id": made, "text": text}]}  # fmt: skip
    done = (await client.post("/api/v1/memories/batch", json=batch)).json()
    assert [each["done"] for each in done["results"]] == ["failed", "created", "failed"]
    assert {each["error"]["code"] for each in done["results"] if each["error"]} == {"not_remembered"}
    check(await client.put("/api/v1/users/ana/facts/note", json={"value": {"deep": [text]}}), "value")
    assert await find_tables(admin, word) == set()


async def test_a_facts_key_says_what_its_value_is(client: httpx.AsyncClient) -> None:
    check(await client.put("/api/v1/users/ana/facts/pin_code", json={"value": 1234}), "value")
    check(await client.put("/api/v1/users/ana/facts/bank", json={"value": {"password": "hunter2"}}), "value")
    fine = await client.put("/api/v1/users/ana/facts/shoe_size", json={"value": 42})
    assert fine.status_code == 201, fine.text


async def test_an_import_keeps_the_turn_as_it_was_said(client: httpx.AsyncClient) -> None:
    """It is no memory; what is learned from it is held to the same settings."""
    line = {"session": "s", "user": "ana", "role": "user", "content": TEXTS["a card"]}
    sent = await client.post(
        "/api/v1/import", content=json.dumps(line), headers={"content-type": "application/x-ndjson"}
    )
    assert sent.status_code == 200, sent.text


async def test_the_settings_decide(pool: Pool, admin: asyncpg.Connection[Any], database: str) -> None:
    space = await make_space(admin)
    cases: list[tuple[dict[str, Any], str, int]] = [
        ({"store_secrets": True}, TEXTS["a key"], 201),
        ({"store_secrets": True, "refuse_pii": ["card"]}, TEXTS["a card"], 400),
        ({}, "Can be reached at ana@example.com", 201),
        ({"refuse_pii": ["email"]}, "Can be reached at ana@example.com now", 400),
        ({"refuse_patterns": ["project [a-z]+"]}, "Works on Project Falcon", 400),
    ]
    for given, text, status in cases:
        api = await build_api(pool, space, dsn=database, **given)
        async with api.client() as client:
            answer = await client.post("/api/v1/memories", json={"user": "ana", "text": text})
        assert answer.status_code == status, (given, answer.text)
