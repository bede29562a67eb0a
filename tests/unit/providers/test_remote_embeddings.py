"""The client of /v1/embeddings: batches, retries, and answers that are not what was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
import respx

from app.errors import Unavailable
from app.providers.embeddings import OpenAIEmbedder, blank

URL = "http://embedder.test/v1/embeddings"


class Naps:
    """Notes how long it was asked to sleep, and returns at once."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


@pytest.fixture
def naps() -> Naps:
    return Naps()


@pytest.fixture
async def embedder(naps: Naps) -> AsyncIterator[OpenAIEmbedder]:
    found = OpenAIEmbedder(
        "http://embedder.test/v1/", model="text-embedding-3-small", dimensions=3, api_key="sk-1", sleep=naps
    )
    yield found
    await found.close()


def answer(request: httpx.Request) -> httpx.Response:
    """Vectors that tell the length of each text, in reverse order: the index counts, not the place."""
    texts = json.loads(request.content)["input"]
    data = [{"index": i, "embedding": [float(len(text)), 0.0, 1.0]} for i, text in enumerate(texts)]
    return httpx.Response(200, json={"data": data[::-1]})


@respx.mock
async def test_rows_are_in_order_and_of_length_one(embedder: OpenAIEmbedder) -> None:
    route = respx.post(URL).mock(side_effect=answer)
    vectors = await embedder.embed(["a", "", "four", " "])
    assert vectors.dtype == np.float32
    assert list(blank(vectors)) == [False, True, False, True]
    assert np.allclose(vectors[0], np.array([1, 0, 1]) / np.sqrt(2))
    assert np.allclose(vectors[2], np.array([4, 0, 1]) / np.sqrt(17))
    body = json.loads(route.calls.last.request.content)
    assert body == {
        "model": "text-embedding-3-small",
        "input": ["a", "four"],
        "encoding_format": "float",
        "dimensions": 3,
    }
    assert route.calls.last.request.headers["authorization"] == "Bearer sk-1"


@respx.mock
async def test_nothing_is_asked_for_nothing(embedder: OpenAIEmbedder) -> None:
    route = respx.post(URL)
    assert (await embedder.embed([])).shape == (0, 3)
    assert blank(await embedder.embed(["", "\n"])).all()
    assert not route.called


@respx.mock
async def test_other_models_are_not_sent_dimensions() -> None:
    route = respx.post(URL).mock(side_effect=answer)
    embedder = OpenAIEmbedder("http://embedder.test/v1", model="BAAI/bge-m3", dimensions=3)
    await embedder.embed(["a"])
    assert "dimensions" not in json.loads(route.calls.last.request.content)
    assert "authorization" not in route.calls.last.request.headers
    assert embedder.space == "baai-bge-m3-3"
    await embedder.close()


@respx.mock
async def test_large_inputs_are_split(embedder: OpenAIEmbedder) -> None:
    route = respx.post(URL).mock(side_effect=answer)
    vectors = await embedder.embed(["x"] * 600)
    assert route.call_count == 3
    assert not blank(vectors).any()
    await embedder.embed(["é" * 100_000] * 100)
    assert route.call_count > 6
    for call in list(route.calls)[3:]:
        texts = json.loads(call.request.content)["input"]
        assert max(len(text.encode()) for text in texts) <= OpenAIEmbedder.MAX_INPUT_BYTES
        assert sum(len(text.encode()) for text in texts) <= OpenAIEmbedder.MAX_BATCH_BYTES
        assert set("".join(texts)) == {"é"}  # no character is cut in two


@respx.mock
async def test_it_waits_as_long_as_it_is_told(embedder: OpenAIEmbedder, naps: Naps) -> None:
    vector = {"data": [{"index": 0, "embedding": [1, 0, 0]}]}
    respx.post(URL).mock(
        side_effect=[
            httpx.Response(429, headers={"retry-after": "3"}),
            httpx.Response(503),
            httpx.ConnectError("down"),
            httpx.Response(200, json=vector),
        ]
    )
    assert not blank(await embedder.embed(["a"])).any()
    assert naps.taken[0] == 3
    assert len(naps.taken) == 3
    assert 0 < naps.taken[1] < naps.taken[2] * 4
    assert all(nap <= OpenAIEmbedder.LONGEST_PAUSE_S for nap in naps.taken)


@respx.mock
@pytest.mark.parametrize(
    "failure", [httpx.Response(500, text="boom"), httpx.Response(429), httpx.ReadTimeout("slow")], ids=str
)
async def test_it_gives_up(embedder: OpenAIEmbedder, failure: httpx.Response | Exception) -> None:
    route = respx.post(URL).mock(side_effect=[failure] * 9)
    with pytest.raises(Unavailable, match="does not answer"):
        await embedder.embed(["a"])
    assert route.call_count == OpenAIEmbedder.ATTEMPTS


@respx.mock
async def test_a_long_wait_is_not_waited(embedder: OpenAIEmbedder, naps: Naps) -> None:
    respx.post(URL).mock(return_value=httpx.Response(429, headers={"retry-after": "3600"}))
    with pytest.raises(Unavailable):
        await embedder.embed(["a"])
    assert naps.taken == []


@respx.mock
async def test_a_refusal_is_final(embedder: OpenAIEmbedder) -> None:
    route = respx.post(URL).mock(return_value=httpx.Response(401, text="bad key"))
    with pytest.raises(Unavailable, match="bad key"):
        await embedder.embed(["a"])
    assert route.call_count == 1


@respx.mock
@pytest.mark.parametrize("status", [400, 413, 422])
async def test_of_a_text_that_is_too_long_for_the_model_the_beginning_counts(
    embedder: OpenAIEmbedder, status: int
) -> None:
    """Many models take 512 tokens, and servers refuse the whole request for one text that has more."""
    limit = 1000

    def strict(request: httpx.Request) -> httpx.Response:
        if any(len(text) > limit for text in json.loads(request.content)["input"]):
            return httpx.Response(status, text="maximum context length")
        return answer(request)

    route = respx.post(URL).mock(side_effect=strict)
    texts = ["a" * n for n in (10, 7000, 20, 30, 40)]
    found = await embedder.embed(texts)
    lengths = found[:, 0] / found[:, 2]
    assert np.allclose(lengths, [10, 875, 20, 30, 40], rtol=1e-4)
    assert route.call_count <= 12


@respx.mock
@pytest.mark.parametrize("texts", [["a"], ["a" * 8000] * 256])
async def test_what_is_refused_however_short_is_refused_soon(embedder: OpenAIEmbedder, texts: list[str]) -> None:
    route = respx.post(URL).mock(return_value=httpx.Response(400, text="no such parameter"))
    with pytest.raises(Unavailable, match="no such parameter"):
        await embedder.embed(texts)
    assert route.call_count <= 14


@respx.mock
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("not json", "not an embeddings answer"),
        ("[]", "not an embeddings answer"),
        ('{"data": [{"index": 0}]}', "not an embeddings answer"),
        ('{"data": []}', "MNEME_EMBEDDER_DIMENSIONS"),
        ('{"data": [{"index": 0, "embedding": [1, 2]}]}', "MNEME_EMBEDDER_DIMENSIONS"),
        ('{"data": [{"index": 0, "embedding": [1, 2, NaN]}]}', "numbers"),
        ('{"data": [{"index": 0, "embedding": ["a", 2, 3]}]}', "not an embeddings answer"),
    ],
)
async def test_a_wrong_answer_is_no_vector(embedder: OpenAIEmbedder, body: str, says: str) -> None:
    respx.post(URL).mock(return_value=httpx.Response(200, text=body))
    with pytest.raises(Unavailable, match=says):
        await embedder.embed(["a"])
