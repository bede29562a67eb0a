"""The page at /docs: every operation, and nothing from elsewhere."""

from __future__ import annotations

import re

import httpx
from fastapi import FastAPI
from pydantic import BaseModel

from app.api.ops import page, reference_router


class Told(BaseModel):
    words: list[str]


def make() -> FastAPI:
    app = FastAPI(title="Mneme", version="1", docs_url=None, redoc_url=None)
    app.include_router(reference_router())

    async def tell(name: str, body: Told | list[Told], loud: bool = False) -> None:
        """Tell <something> to somebody."""

    app.add_api_route("/api/v1/told/{name}", tell, methods=["POST"], tags=["telling"])
    return app


async def test_it_names_every_operation_and_loads_nothing() -> None:
    transport = httpx.ASGITransport(make())
    async with httpx.AsyncClient(transport=transport, base_url="http://mneme") as client:
        answer = await client.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "POST /api/v1/told/{name}" in answer.text
    assert "Tell &lt;something&gt; to somebody." in answer.text
    assert "Told or list of Told" in answer.text
    assert re.findall(r"(?:src|href)=\"([^\"]*)\"", answer.text) == ["openapi.json"]
    assert "//" not in answer.text
    assert "<script" not in answer.text


def test_what_a_document_leaves_out_is_left_out() -> None:
    shown = page({"info": {"title": "<x>", "version": "1"}, "paths": {"/a": {"get": {}}, "/b": {"head": {}}}})
    assert "&lt;x&gt;" in shown
    assert "<h2>other</h2>" in shown
    assert "/b" not in shown
