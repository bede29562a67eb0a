"""What a start does not load: each of these cost a server or a worker tens of milliseconds, and megabytes ever after."""

import asyncio
import subprocess
import sys

import httpx
import numpy as np
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from app.providers.embeddings import WordLlamaEmbedder
from app.providers.tokens import Tokenizers
from app.server.main import Later
from tests.support.tables import each_of

NEITHER = {
    "app.server.routes",
    "app.features.ui",
    "fastapi",
    "httpx",
    "jinja2",
    "mcp",
    "opentelemetry.sdk",
    "rich",
    "wordllama",
}


@each_of(
    ("imported", "unwanted"),
    [
        (
            "app.cli.serve, app.server.core, app.server.supervise, app.server.main, app.server.http",
            NEITHER | {"pgqueuer"},
        ),
        ("app.cli.serve, app.server.worker", NEITHER | {"starlette", "uvicorn"}),
    ],
)
def test_what_is_not_imported(imported: str, unwanted: set[str]) -> None:
    command = f"import sys, {imported}; print(*({unwanted!r} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert told.stdout.split() == []


async def test_encodings_are_loaded_for_the_models_that_need_them() -> None:
    tokenizers = Tokenizers()
    await tokenizers.ready("gpt-4o")
    assert tokenizers._loaded.keys() == {"o200k_base"}
    await tokenizers.ready("llama-3")
    assert tokenizers._loaded.keys() == {"o200k_base", "cl100k_base"}


def test_the_weights_stay_in_their_file() -> None:
    embedder = WordLlamaEmbedder()
    embedder.embed_now(["warm"])
    assert isinstance(embedder._tokens, np.memmap)
    assert not embedder._tokens.flags.writeable


async def test_what_is_made_later_is_made_once() -> None:
    made: list[ASGIApp] = []

    def make() -> ASGIApp:
        made.append(PlainTextResponse("here"))
        return made[-1]

    later = Later(make)
    assert not made
    async with httpx.AsyncClient(transport=httpx.ASGITransport(later), base_url="http://mneme") as client:
        answers = await asyncio.gather(*(client.get("/") for _ in range(3)))
    assert [each.text for each in answers] == ["here"] * 3
    assert len(made) == 1
