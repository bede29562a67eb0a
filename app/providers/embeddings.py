"""Vectors for texts: the local static ones, MiniLM's, any `/v1/embeddings` endpoint, or none.

A vector is meaningful only inside its `space`; two spaces are never compared.
"""

from __future__ import annotations

import asyncio
import importlib.util
import random
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import orjson
from numpy.typing import NDArray
from tokenizers import Tokenizer

from app.errors import NotReady, Unavailable
from app.optional import needed
from app.settings import Settings

if TYPE_CHECKING:
    import httpx

_OPENAI_URL = "https://api.openai.com/v1"

UNMEASURED_THRESHOLD = 0.92
"""τ of an embedder that was not measured: seed 000 §5.4, for vectors such as text-embedding-3-small's."""

Vectors = NDArray[np.float32]
"""Shape (n, d), one row a text."""


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def space(self) -> str:
        """Names the vectors: the same text has the same vector in the same space, always."""

    @property
    def dimensions(self) -> int:
        """d; 0 when there are no vectors."""

    @property
    def local(self) -> bool:
        """True when `embed` needs no network and takes well under a millisecond a text: it may run inside a turn."""

    @property
    def duplicate_threshold(self) -> float | None:
        """The cosine above which two memories say the same (τ of seed 000 §5.4), as measured for this embedder; None: it was
        not measured, and `UNMEASURED_THRESHOLD` holds. `system_config.dedup_threshold` above 0 comes before both."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """(n, d) float32, rows of length 1; a row of zeros for a text without any word (see `blank`).

        Raises `Unavailable` when a remote embedder cannot answer.
        """

    async def close(self) -> None:
        """Give back connections."""


def blank(vectors: Vectors) -> NDArray[np.bool_]:
    """Which rows stand for nothing, and must be neither stored nor searched with. Shape (n,)."""
    return np.asarray(~vectors.any(axis=1))


class NoEmbedder:
    """No vectors: retrieval works by words alone."""

    space = "none"
    dimensions = 0
    local = True
    duplicate_threshold = 1.0

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return np.zeros((len(texts), 0), np.float32)

    async def close(self) -> None:
        return None


def find_wordllama(folder: Path | None = None) -> tuple[Path, Path]:
    """Return the files of the package's weights and of its tokenizer. `folder`: where it is installed; found by itself.

    Raises `NotReady` when they are not there.
    """
    folder = folder or package_folder("wordllama")
    weights = folder / "weights" / "l2_supercat_256.safetensors"
    tokenizer = folder / "tokenizers" / "l2_supercat_tokenizer_config.json"
    for file in (weights, tokenizer):
        if not file.is_file():
            raise NotReady(f"wordllama lacks {file.name}: reinstall it, or set MNEME_EMBEDDER=openai or none")
    return weights, tokenizer


class WordVectors:
    """Static vectors of single words: the mean over the word's tokens in the package wordllama, made unit length."""

    def __init__(self, folder: Path | None = None) -> None:
        """Raise `NotReady` when the weights are not there."""
        weights, tokenizer = find_wordllama(folder)
        self._tokens = _mapped(weights, "embedding.weight")
        self._tokenizer = _tokenizer(tokenizer)

    def find(self, word: str) -> NDArray[np.float32]:
        """Return the vector (256,) of a word in lower case."""
        ids = self._tokenizer.encode(word[:_WORD_CHARS], add_special_tokens=False).ids
        vector = self._tokens[ids].astype(np.float32).mean(axis=0)
        return cast(NDArray[np.float32], vector / max(float(np.linalg.norm(vector)), _TINY))


class WordLlamaEmbedder:
    """Static word vectors of the package wordllama (l2_supercat, 256 dimensions), pooled in our own way.

    A text's vector is the sum of its words' vectors, made unit length, minus a fixed mean, made unit length again. Each
    choice was measured as evidence recall in a 1,500-token block on the two kinds of conversation of the benchmark,
    against wordllama's own pooling (mean over the tokens as written; 0.48 on chat and 0.55 on work):

    - words are lower-cased before they are cut into tokens: chat 0.50 → 0.65. The vocabulary spells `Dog` and `dog` with
      unlike tokens;
    - a word counts as the mean of its tokens, so that a rare name of five tokens does not outweigh the question:
      0.54 → 0.65 on chat, −0.02 on work;
    - function words count 0.3 of the others. Priors by rank (Zipf over the order of a vocabulary, the weights of
      smooth inverse frequency) did no better: the lengths of these vectors already carry it;
    - a word said n times counts n^0.6: +0.03 on work;
    - the mean is that of `REFERENCE`, a page of ordinary sentences: +0.02 to +0.03 on work.
    """

    space = "wordllama-256-c1"
    dimensions = 256
    local = True
    duplicate_threshold = 0.75
    """The highest step of 0.05 at which the pair of seed 001 §4.3 (cosine 0.777) is merged. With the rules on words
    (`app.memory.compare.may_be_one`) none of 97 tuning and 97 held-out pairs of two facts is merged at it, and none of 578 that
    differ in one word; of pairs of one memory 52% and 44% are (`python -m loadtests.merging`, docs/explanation/learning.md).
    The cosine alone would merge 49 and 49 of the 97: these vectors hardly see numbers, a "not" or the order of words."""

    MAX_CHARS = 16_384
    MAX_WORDS = 2048
    """A longer text is known by its beginning."""
    WORDS_KEPT = 16_384
    """Word vectors kept ready, 1 KB each: with them a text needs no tokenizer."""

    FUNCTION_WORD = 0.3
    REPEAT_POWER = 0.6

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: where wordllama is installed; found by itself. Raises `NotReady` when the weights are not there.

        The files are read directly: importing wordllama reconfigures the root logger, and its loader looks for the
        tokenizer in a folder that does not exist, and then downloads it.
        """
        self._files = find_wordllama(folder)
        self._tokenizer: Tokenizer | None = None
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}
        self._mean = np.zeros(self.dimensions, np.float32)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return self.embed_now(texts)

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        """`embed` without a loop; some 30 µs for a question whose words were seen before."""
        with self._lock:
            if self._tokenizer is None:
                self._load()
            return self._pooled(texts)

    async def close(self) -> None:
        return None

    def _load(self) -> None:
        """At the first text: 0.1 s, and who only asks for the name of the space has none."""
        weights, tokenizer = self._files
        self._tokens = _mapped(weights, "embedding.weight")  # (32000, 256) float16
        self._words = np.empty((self.WORDS_KEPT, self.dimensions), np.float32)
        self._tokenizer = _tokenizer(tokenizer)
        self._mean = self._pooled(REFERENCE).mean(axis=0)

    def _pooled(self, texts: Sequence[str]) -> Vectors:
        out = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(out, texts, strict=True):
            self._pool(text, row)
        return out

    def _pool(self, text: str, out: NDArray[np.float32]) -> None:
        text = text[: self.MAX_CHARS]
        if not text.isascii():
            text = unicodedata.normalize("NFKC", text)
        words = _WORD.findall(text.lower())[: self.MAX_WORDS]
        if not words:
            return
        counts = Counter(words)
        if len(self._rows) + len(counts) > self.WORDS_KEPT:
            self._rows.clear()
        rows = [self._rows.get(word, -1) for word in counts]
        if -1 in rows:
            rows = [self._row(word) for word in counts]
        weights = np.fromiter(counts.values(), np.float32, len(counts)) ** self.REPEAT_POWER
        vector = weights @ self._words[rows]
        vector /= max(float(np.sqrt(vector @ vector)), _TINY)
        vector -= self._mean
        length = float(np.sqrt(vector @ vector))
        if length > _TINY:
            np.divide(vector, length, out=out)

    def _row(self, word: str) -> int:
        found = self._rows.get(word)
        if found is None:
            assert self._tokenizer is not None, "loaded before the first text"
            ids = self._tokenizer.encode(word[:_WORD_CHARS], add_special_tokens=False).ids
            vector = self._tokens[ids].astype(np.float32).mean(axis=0)
            found = len(self._rows)
            self._words[found] = vector * (self.FUNCTION_WORD if word in _FUNCTION_WORDS else 1.0)
            self._rows[word] = found
        return found


@cache
def _tokenizer(file: Path) -> Tokenizer:
    """One for all embedders of a process: to read it is nearly all that `_load` takes."""
    return Tokenizer.from_file(str(file))


def _mapped(file: Path, name: str) -> NDArray[np.float16]:
    """A float16 tensor of a safetensors file, read-only: of 16 MB only the pages that are looked at come into memory, once for
    all processes. The file is a header's length (8 bytes), the header as JSON, the tensors."""
    with file.open("rb") as opened:
        header_bytes = int.from_bytes(opened.read(8), "little")
        tensor = orjson.loads(opened.read(header_bytes))[name]
    start, _ = tensor["data_offsets"]
    return np.memmap(file, "<f2", "r", 8 + header_bytes + start, tuple(tensor["shape"]))


_TINY = 1e-9
_WORD_CHARS = 64  # of one word that the tokenizer sees: longer ones are hashes and base64, no words
_UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # Thai, Lao, Khmer, kana, Han
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+(?:['’][^\W_{_UNSPACED}]+)?")

_FUNCTION_TEXT = """
a an the and or but if then else of to in on at by for with from as into about over after before up down out off am is
are was were be been being do does did done doing have has had having i you he she it we they me him her us them my
your his its our their mine yours this that these those there here what which who whom whose when where why how not no
nor so than too very can could will would shall should may might must just also only own same such both each few more
most other some any all i'm you're he's she's it's we're they're i've you've we've they've i'd you'd we'd they'd i'll
you'll we'll they'll isn't aren't wasn't weren't don't doesn't didn't can't couldn't won't wouldn't shouldn't that's
what's let's
"""
_FUNCTION_WORDS = frozenset(_FUNCTION_TEXT.split())

REFERENCE = (
    "I was thinking about going out with some friends this weekend if the weather is nice.",
    "Can you help me write a short email to my manager about the project deadline?",
    "That sounds great, thank you so much for the help!",
    "What do you think about the new plan for next year?",
    "My family and I went to the park yesterday and had a really good time.",
    "Here are a few steps that you can follow to solve the problem.",
    "I need to find a better way to organise my work and my time.",
    "The function returns a list of values, and then the result is stored in the database.",
    "How was your day? I hope everything went well at work.",
    "We should talk about the budget before we make any decision.",
    "It depends on what you want to do and how much time you have.",
    "She told me that she had been learning to play the guitar for two years.",
    "First, make sure that the file exists, then open it and read each line.",
    "I really like this idea, but I am not sure that it will work for everyone.",
    "You could also try a different approach, for example using a smaller model.",
    "Last month we started a new course, and I have learned a lot since then.",
    "Do you have any advice for someone who wants to eat healthier food?",
    "Let me know if you have any questions or if you need more information.",
    "It was amazing to see so many people there, all of them so happy and kind.",
    "In order to improve the performance, you can cache the response of each request.",
)
"""Ordinary sentences of chat and work. Their mean vector is what all texts have in common, and says nothing."""


# --- any `/v1/embeddings` endpoint: OpenAI's, vLLM's, and those that speak the same --------------------------------------

Sleep = Callable[[float], Awaitable[None]]


_TOO_LONG = frozenset({400, 413, 422})
"""What servers answer to a text that is too long; to other mistakes, too."""


class _Refused(Unavailable):
    """The embedder refused what it was asked."""


REQUEST_TIMEOUT_S = 30.0
"""Seconds for one request to the embeddings endpoint: a full batch on a small CPU server takes some 10. A question waits no
longer than the retrieval deadline."""


class OpenAIEmbedder:
    """Asks an endpoint. Nothing is sent for texts without any visible character."""

    local = False
    duplicate_threshold = None
    """None is measured: the operator chooses the model, and may set `system_config.dedup_threshold`."""

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
        timeout_s: float = REQUEST_TIMEOUT_S,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`timeout_s`: seconds for one request. `dimensions` is checked on every answer."""
        self.dimensions = dimensions
        self.space = f"{re.sub(r'[^a-z0-9.]+', '-', model.lower()).strip('-')}-{dimensions}"
        self._url = base_url.rstrip("/") + "/embeddings"
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = timeout_s
        import httpx  # 0.1 s, which a start with a local embedder need not spend

        self._client = httpx.AsyncClient()
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
        import httpx

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


# --- the one that the settings name --------------------------------------------------------------------------------------


def build_embedder(settings: Settings) -> Embedder:
    """The embedder that the settings name. Raises `NotReady` when they are incomplete."""
    if settings.embedder == "none":
        return NoEmbedder()
    if settings.embedder == "wordllama":
        return WordLlamaEmbedder()
    if settings.embedder == "minilm":
        made: Embedder = needed("minilm", "MNEME_EMBEDDER=minilm").open_minilm()
        return made
    key, base_url = settings.embedder_api_key, settings.embedder_base_url
    if base_url is None or base_url == _OPENAI_URL:
        base_url, key = _OPENAI_URL, key or settings.openai_api_key  # that key goes nowhere but to OpenAI
        if key is None:
            raise NotReady("MNEME_EMBEDDER=openai needs MNEME_EMBEDDER_BASE_URL, or a key for OpenAI itself")
    return OpenAIEmbedder(
        base_url,
        model=settings.embedder_model,
        dimensions=settings.embedder_dimensions,
        api_key=key.get_secret_value() if key else None,
    )


def package_folder(name: str) -> Path:
    """Return the folder of an installed package. Raises NotReady."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise NotReady(f"the package {name} is not installed: install it, or set MNEME_EMBEDDER=openai or none")
    return Path(spec.origin).parent
