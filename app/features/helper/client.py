"""The helper LLM behind an endpoint as OpenAI's."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from app.errors import HelperError, NotReady
from app.providers.helper import Shape
from app.settings import Settings

if TYPE_CHECKING:
    import httpx

BARE = {"X-Mneme-Memory": "off", "X-Mneme-Capture": "off"}
"""Where the helper is reached through Mneme, its own prompts are no conversation: learned from, each would lead to the next,
without end, and what they quote of a user would be kept as nobody's, where no erasure finds it."""


class HelperClient:
    """The helper LLM behind any OpenAI-compatible `/v1/chat/completions`. Never retries by itself: jobs do.

    It is asked for the shape by `response_format` (a strict JSON schema); a server that refuses that is asked once more with
    the schema in words. Whatever comes back is validated.
    """

    MAX_ANSWER_BYTES = 1 << 20
    """Of a whole HTTP body; an answer of some 4,000 tokens has a fiftieth of it."""
    SHOWN = 200
    """Characters of a bad answer that an error message shows."""

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        """`timeout_s`: seconds for a whole answer, the second try of a server without schemas included."""
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._model = model
        self._headers = BARE | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
        self._timeout = timeout_s
        import httpx  # 0.1 s, which a start without a helper need not spend

        self._client = client or httpx.AsyncClient()

    async def ask(self, shape: type[Shape], *, system: str, user: str, max_tokens: int) -> Shape:
        try:
            async with asyncio.timeout(self._timeout):
                text = await self._complete(shape, system, user, max_tokens)
        except TimeoutError as error:
            raise HelperError(f"the helper LLM gave no answer within {self._timeout:g} s") from error
        return self._parse(shape, text)

    async def close(self) -> None:
        """Give back connections."""
        await self._client.aclose()

    async def _complete(self, shape: type[BaseModel], system: str, user: str, max_tokens: int) -> str:
        schema = strict_schema(shape)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "max_completion_tokens": max_tokens,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": shape.__name__, "schema": schema, "strict": True},
            },
        }
        status, answer = await self._post(body)
        if status in (400, 422):
            words = f"{system}\n\nAnswer with one JSON object of this schema and nothing else:\n{json.dumps(schema)}"
            plain = {
                "model": self._model,
                "messages": [{"role": "system", "content": words}, {"role": "user", "content": user}],
                "max_tokens": max_tokens,
            }
            again, second = await self._post(plain)
            if again == 200:
                status, answer = again, second
        if status != 200:
            busy = " (too many requests)" if status == 429 else ""
            raise HelperError(f"the helper LLM answered status {status}{busy}: {self._show(answer)}")
        return self._content(answer, max_tokens)

    async def _post(self, body: dict[str, Any]) -> tuple[int, str]:
        """Status and body. A success is 200, whatever 2xx it was."""
        import httpx

        data = bytearray()
        try:
            async with self._client.stream(
                "POST", self._url, json=body, headers=self._headers, timeout=self._timeout
            ) as answer:
                async for chunk in answer.aiter_bytes():
                    data += chunk
                    if len(data) > self.MAX_ANSWER_BYTES:
                        raise HelperError(f"the helper LLM answered more than {self.MAX_ANSWER_BYTES} bytes")
                status = 200 if answer.is_success else answer.status_code
        except httpx.TimeoutException as error:
            raise HelperError(f"the helper LLM gave no answer within {self._timeout:g} s") from error
        except httpx.HTTPError as error:
            raise HelperError(f"the helper LLM cannot be reached: {type(error).__name__} {error}".rstrip()) from error
        return status, data.decode("utf-8", "replace")

    def _content(self, answer: str, max_tokens: int) -> str:
        try:
            choice = json.loads(answer)["choices"][0]
            message = choice["message"]
            text, refusal = message.get("content"), message.get("refusal")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise HelperError(f"the helper LLM's answer is no chat completion: {self._show(answer)}") from error
        if refusal:
            raise HelperError(f"the helper LLM refused: {self._show(str(refusal))}")
        if choice.get("finish_reason") == "length":
            raise HelperError(f"the helper LLM's answer was cut off at {max_tokens} tokens")
        if not isinstance(text, str) or not text.strip():
            raise HelperError("the helper LLM's answer is empty")
        return text

    def _parse(self, shape: type[Shape], text: str) -> Shape:
        problem: ValidationError | None = None
        for value in _objects(text):
            try:
                return shape.model_validate(value)
            except ValidationError as error:
                problem = problem or error
        if problem is None:
            raise HelperError(f"the helper LLM's answer holds no whole JSON object: {self._show(text)}")
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the object"
        raise HelperError(f"the helper LLM's answer has another shape: {where}: {first['msg']}") from problem

    def _show(self, text: str) -> str:
        flat = " ".join(text.split())
        return flat if len(flat) <= self.SHOWN else flat[: self.SHOWN] + "…"


def open_helper(settings: Settings) -> HelperClient:
    """The helper that the settings name. Raises `NotReady` if incomplete."""
    assert settings.helper_base_url is not None, "asked for where there is one"
    if not settings.helper_model:
        raise NotReady("MNEME_HELPER_BASE_URL is set, but not MNEME_HELPER_MODEL")
    key = settings.helper_api_key
    return HelperClient(
        settings.helper_base_url,
        model=settings.helper_model,
        api_key=key.get_secret_value() if key else None,
        timeout_s=settings.helper_timeout_s,
    )


def strict_schema(shape: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema in the form that strict structured output takes: every property required, no others allowed."""
    schema: dict[str, Any] = _strict(shape.model_json_schema())
    return schema


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {key: _strict(value) for key, value in node.items() if key not in ("default", "title")}
    if isinstance(properties := node.get("properties"), dict):
        out["properties"] = {name: _strict(value) for name, value in properties.items()}  # one may be named "title"
        out["required"] = list(properties)
        out["additionalProperties"] = False
    return out


_THOUGHT = re.compile(r"^.*</think>", re.DOTALL)  # a reasoning model that a server does not tidy up
_STARTS_TRIED = 64  # braces in prose before the object; each costs one attempt to parse


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Every JSON object in the text that is whole, the outermost ones, first to last.

    Nothing inside an object that the end of the text cuts off: a part of an answer is none.
    """
    text = _THOUGHT.sub("", text).rstrip()
    decoder = json.JSONDecoder()
    at = text.find("{")
    for _ in range(_STARTS_TRIED):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
                return
            end = at + 1
        except RecursionError:
            return
        else:
            if isinstance(value, dict):
                yield value
        at = text.find("{", end)
