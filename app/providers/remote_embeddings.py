"""Vectors from any `/v1/embeddings` endpoint: OpenAI's, vLLM's, and those that speak the same."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence

import httpx
import numpy as np
from numpy.typing import NDArray

from app.errors import Unavailable

Sleep = Callable[[float], Awaitable[None]]


_TOO_LONG = frozenset({400, 413, 422})
"""What servers answer to a text that is too long; to other mistakes, too."""


class _Refused(Unavailable):
    """The embedder refused what it was asked."""


class OpenAIEmbedder:
    """Asks an endpoint. Nothing is sent for texts without any visible character."""

    local = False
    duplicate_threshold = None
    """Which model answers is the operator's: so is the threshold, 0.92 in seed 000 §5.4 for vectors of this kind."""

    MAX_INPUT_BYTES = 8191
    """UTF-8 bytes of one text that are sent. A byte-level tokenizer makes at most one token a byte, so this keeps within
    the 8,191 tokens that OpenAI's models take, whatever the script."""
    LEAST_BYTES = 512
    """A text of this length fits every model that is used for this: what refuses it refuses something else."""
    MAX_BATCH_TEXTS = 256
    MAX_BATCH_BYTES = 262_144
    """Of one request; OpenAI takes at most 300,000 tokens."""
    ATTEMPTS = 4
    FIRST_PAUSE_S = 0.5
    LONGEST_PAUSE_S = 20.0
    """A `Retry-After` beyond this is not waited for: the job's own retry comes later."""

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        dimensions: int,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        client: httpx.AsyncClient | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`timeout_s`: seconds for one request. `dimensions` is checked on every answer."""
        self.dimensions = dimensions
        self.space = f"{re.sub(r'[^a-z0-9.]+', '-', model.lower()).strip('-')}-{dimensions}"
        self._url = base_url.rstrip("/") + "/embeddings"
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = timeout_s
        self._client = client or httpx.AsyncClient()
        self._sleep = sleep

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, d) float32, rows of length 1, zeros for blank texts. Raises `Unavailable`."""
        out = np.zeros((len(texts), self.dimensions), np.float32)
        for rows in self._batches(texts):
            out[rows] = await self._fitting([_shorten(texts[row], self.MAX_INPUT_BYTES) for row in rows])
        return out

    async def _fitting(self, inputs: list[str]) -> NDArray[np.float32]:
        """Vectors of what an endpoint may refuse because one of the texts is longer than its model takes (512 tokens, of
        many): the texts are asked for in halves until that one stands alone, and of it the first half, and so on."""
        try:
            return await self._ask(inputs)
        except _Refused:
            if len(inputs) > 1:
                half = len(inputs) // 2
                return np.concatenate([await self._fitting(inputs[:half]), await self._fitting(inputs[half:])])
            size = len(inputs[0].encode("utf-8", "replace"))
            if size <= self.LEAST_BYTES:
                raise
            return await self._fitting([_shorten(inputs[0], size // 2)])

    async def close(self) -> None:
        await self._client.aclose()

    def _batches(self, texts: Sequence[str]) -> Iterator[list[int]]:
        batch: list[int] = []
        size = 0
        for row, text in enumerate(texts):
            if not text.strip():
                continue
            weight = min(len(text) * 4, self.MAX_INPUT_BYTES)  # 4: the most bytes of a character
            if batch and (len(batch) >= self.MAX_BATCH_TEXTS or size + weight > self.MAX_BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(row)
            size += weight
        if batch:
            yield batch

    async def _ask(self, inputs: list[str]) -> NDArray[np.float32]:
        body: dict[str, object] = {"model": self._model, "input": inputs, "encoding_format": "float"}
        if self._model.startswith("text-embedding-3"):  # others refuse the parameter, or do not have it
            body["dimensions"] = self.dimensions
        pause = self.FIRST_PAUSE_S
        for attempt in range(self.ATTEMPTS):
            problem, retry_after = "", None
            try:
                answer = await self._client.post(self._url, json=body, headers=self._headers, timeout=self._timeout)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__} {error}".strip()
            else:
                if answer.is_success:
                    return self._read(answer, len(inputs))
                problem = f"status {answer.status_code}: {answer.text[:300]}"
                if answer.status_code in _TOO_LONG:
                    raise _Refused(f"the embedder refused: {problem}")
                if answer.status_code != 429 and answer.status_code < 500:
                    raise Unavailable(f"the embedder refused: {problem}")
                retry_after = _seconds(answer.headers.get("retry-after"))
            wait = retry_after if retry_after is not None else pause * random.uniform(0.5, 1.0)
            if attempt == self.ATTEMPTS - 1 or wait > self.LONGEST_PAUSE_S:
                raise Unavailable(f"the embedder does not answer: {problem}")
            await self._sleep(wait)
            pause = min(pause * 2, self.LONGEST_PAUSE_S)
        raise AssertionError("the loop returns or raises")

    def _read(self, answer: httpx.Response, expected: int) -> NDArray[np.float32]:
        try:
            data = sorted(answer.json()["data"], key=lambda item: item["index"])
            vectors = np.array([item["embedding"] for item in data], np.float32)
        except (ValueError, KeyError, TypeError) as error:
            raise Unavailable(f"the embedder's answer is not an embeddings answer: {answer.text[:200]}") from error
        if vectors.shape != (expected, self.dimensions):
            raise Unavailable(
                f"the embedder answered {vectors.shape} where {(expected, self.dimensions)} was asked: "
                "check MNEME_EMBEDDER_MODEL and MNEME_EMBEDDER_DIMENSIONS"
            )
        if not np.isfinite(vectors).all():
            raise Unavailable("the embedder answered with numbers that are none")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)


def _shorten(text: str, limit: int) -> str:
    data = text.encode("utf-8", "replace")
    return data[:limit].decode("utf-8", "ignore") if len(data) > limit else data.decode()


def _seconds(header: str | None) -> float | None:
    """A `Retry-After` in seconds; the form with a date is not used by these servers and counts as none."""
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
