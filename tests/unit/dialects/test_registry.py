"""Which path speaks which dialect."""

from __future__ import annotations

from typing import get_args

from app.gateway.dialects import api_of, dialect_of
from app.gateway.dialects.base import DialectName

PATHS: dict[str, DialectName] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}


def test_each_path_has_its_dialect() -> None:
    found = {path: each.name for path in PATHS if (each := dialect_of("POST", path)) is not None}
    assert found == PATHS
    assert set(found.values()) == set(get_args(DialectName)), "a dialect has a path"
    assert [dialect_of("GET", each) for each in PATHS] == [None] * len(PATHS)
    assert dialect_of("POST", "/v1/messages/count_tokens") is None


def test_an_api_has_its_errors_and_keys_on_all_its_paths() -> None:
    paths = [*PATHS, "/v1/messages/count_tokens", "/v1/embeddings", "/v1/responses/resp_1"]
    assert [each for each in paths if api_of(each).x_api_key] == ["/v1/messages", "/v1/messages/count_tokens"]
    assert {api_of(each).name for each in paths} == {"chat", "messages"}
