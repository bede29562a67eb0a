"""Token counting without a network.

The two encodings of OpenAI's present models are shipped (`app/providers/encodings`). Models of others are counted with
a Hugging Face `tokenizer.json` if one is given, else with OpenAI's encodings and a safety margin.

Counting is linear in the text. Two guards make it so: tiktoken's regular expressions overflow their stack on some 10⁶
white-space characters in a row, and a run without any space is one single piece to a merge table. Runs longer than
`RUN_LIMIT` are therefore cut; each cut may add a token or two to the count, and never takes one away.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import orjson
import tiktoken
from tiktoken.model import encoding_name_for_model
from tokenizers import Tokenizer

from app.errors import NotReady
from app.providers import encodings

log = logging.getLogger(__name__)

RUN_LIMIT = 16_384
"""Characters of one run (all space, or no space at all) that are given to a tokenizer in one piece: a sixteenth of
the shortest run that was seen to overflow tiktoken 0.14 (2¹⁸ spaces still pass)."""

WINDOW = 65_536
"""Characters of a long text that are looked at in one go: no other Python runs meanwhile, for some 5 ms."""

_UNKNOWN_MARGIN = 0.30
"""Share added to a count made with OpenAI's encodings for a model of someone else. Measured against four other
vocabularies (32,000 to 128,000 entries) on English chat, work and code: 1.01 to 1.29 times o200k's count."""

_NEW_OPENAI_MARGIN = 0.10
"""The same for a model that has OpenAI's naming but is unknown to the installed tiktoken: OpenAI's last change of
encoding (cl100k to o200k) moved English counts by less than 5 %."""

_SHIPPED = {"o200k_base": "o200k_base", "o200k_harmony": "o200k_base", "cl100k_base": "cl100k_base"}
"""Encoding that tiktoken names → the shipped one with the same merges (harmony only adds special tokens)."""

_OPENAI_NAME = re.compile(r"(?:ft:)?(?:gpt-\d|chatgpt-|o\d|codex-)")
_LONG_RUN = re.compile(rf"\s?\S{{{RUN_LIMIT},}}|\s{{{RUN_LIMIT},}}")


STORED_COUNTS = "gpt-4o"
"""A model counted by o200k_base: the encoding of every stored token count."""


class TokenCounter(Protocol):
    """Counts tokens as one model's tokenizer does, or as near as can be had."""

    @property
    def name(self) -> str:
        """Which tokenizer this is; part of cache keys."""

    @property
    def exact(self) -> bool:
        """False when this is another model's tokenizer with a margin."""

    @property
    def margin(self) -> float:
        """Share already added to every count; 0.0 when exact."""

    def count(self, text: str) -> int:
        """Tokens of `text`, special tokens in it counted as the ordinary text that a user typed."""


class EncodingCounter:
    """Counts with one of OpenAI's encodings, or the larger of several, plus a margin."""

    def __init__(
        self, load: Callable[[str], tiktoken.Encoding], encodings: tuple[str, ...], name: str, margin: float = 0.0
    ) -> None:
        self._load = load
        self.encodings = encodings
        self.name = name
        self.margin = margin
        self.exact = margin == 0.0

    def count(self, text: str) -> int:
        if not text:
            return 0
        # The encodings differ little on ASCII; on other scripts the older one is nearer to foreign vocabularies.
        used = self.encodings[:1] if text.isascii() else self.encodings
        tokens = max(_count_bounded(text, self._load(each).encode_ordinary) for each in used)
        return math.ceil(tokens * (1.0 + self.margin))


class JsonCounter:
    """Counts with a Hugging Face `tokenizer.json`."""

    exact = True
    margin = 0.0

    def __init__(self, path: Path) -> None:
        try:
            data = path.read_bytes()
            self._tokenizer = Tokenizer.from_buffer(data)
        except (OSError, ValueError) as error:
            raise NotReady(f"MNEME_TOKENIZER_JSON: {path} is no readable tokenizer.json ({error})") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self.name = "json-" + hashlib.sha256(data).hexdigest()[:16]

    def count(self, text: str) -> int:
        return _count_bounded(text, self._ids) if text else 0

    def _ids(self, text: str) -> list[int]:
        try:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        except (UnicodeEncodeError, TypeError):  # a lone surrogate, which JSON allows and UTF-8 does not
            clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return self._tokenizer.encode(clean, add_special_tokens=False).ids


def _count_bounded(text: str, encode: Callable[[str], list[int]]) -> int:
    if len(text) < RUN_LIMIT:
        return len(encode(text))
    return sum(len(encode(piece)) + cuts for window in _windows(text) for piece, cuts in _pieces(window))


def _windows(text: str) -> Iterator[str]:
    """The text in stretches of at most `WINDOW`, cut before a space where there is one: hardly a token reaches over that."""
    done = 0
    while len(text) - done > WINDOW:
        space = text.rfind(" ", done + 1, done + WINDOW)
        end = space if space > 0 else done + WINDOW
        yield text[done:end]
        done = end
    yield text[done:]


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """The text in pieces whose runs are short, each with the number of cuts it stands for (0 or 1)."""
    done = 0
    for run in _LONG_RUN.finditer(text):
        if run.start() > done:
            yield text[done : run.start()], 0
        for at in range(run.start(), run.end(), RUN_LIMIT):
            yield text[at : min(at + RUN_LIMIT, run.end())], 1
        done = run.end()
    if done < len(text):
        yield text[done:], 0


class Tokenizers:
    """Finds the counter for a model. Loading is lazy, once a process, and safe among threads."""

    MODELS_KEPT = 1024  # names come from clients: the look-up table must not grow without end

    def __init__(self, tokenizer_json: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[str, tiktoken.Encoding] = {}
        self._by_model: OrderedDict[str, TokenCounter] = OrderedDict()
        self._json = JsonCounter(tokenizer_json) if tokenizer_json is not None else None
        self._exact = {name: EncodingCounter(self.encoding, (name,), name) for name in set(_SHIPPED.values())}
        both = ("o200k_base", "cl100k_base")
        self._new_openai = EncodingCounter(self.encoding, both, "o200k_base+10%", _NEW_OPENAI_MARGIN)
        self._unknown = EncodingCounter(self.encoding, both, "o200k_base+30%", _UNKNOWN_MARGIN)

    def warm(self) -> None:
        """Load every shipped encoding, in some 0.4 s of CPU."""
        for name in self._exact:
            self.encoding(name)

    async def ready(self, model: str) -> None:
        """Load what counting for `model` needs, in a thread, unless `warm` was called: some 0.1 s for each encoding."""
        counter = self.for_model(model)
        if isinstance(counter, EncodingCounter):
            for name in counter.encodings:
                if name not in self._loaded:
                    await asyncio.to_thread(self.encoding, name)

    def encoding(self, name: str) -> tiktoken.Encoding:
        """The shipped encoding `o200k_base` or `cl100k_base`.

        Raises `NotReady` when its file is missing or is not what tiktoken expects.
        """
        found = self._loaded.get(name)
        if found is None:
            with self._lock:
                found = self._loaded.get(name)
                if found is None:
                    found = self._loaded[name] = encodings.load(name)
        return found

    def for_model(self, model: str) -> TokenCounter:
        """The counter for `model`, with or without a vendor's prefix (`openai/gpt-4o`)."""
        counter = self._by_model.get(model)
        if counter is None:
            counter = self._choose(model)
            with self._lock:
                if len(self._by_model) >= self.MODELS_KEPT:
                    self._by_model.popitem(last=False)
                self._by_model[model] = counter
            if not counter.exact:
                log.warning(
                    "no tokenizer is known for model %r: counting with %s, margin %d %%; set MNEME_TOKENIZER_JSON",
                    model[:200],
                    counter.name,
                    round(counter.margin * 100),
                )
        return counter

    def _choose(self, model: str) -> TokenCounter:
        name = model.rpartition("/")[2]
        try:
            shipped = _SHIPPED.get(encoding_name_for_model(name))
        except KeyError:
            shipped = None
        if shipped is not None:
            return self._exact[shipped]
        if _OPENAI_NAME.match(name):
            return self._new_openai
        return self._json or self._unknown


class CountCache:
    """A bounded memory of counts, so that no message is tokenized twice in a process. Safe among threads."""

    def __init__(self, size: int = 65_536) -> None:
        """`size`: entries kept, some 150 bytes each (10 MB when full)."""
        self._size = size
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._counts)

    def get(self, key: bytes, compute: Callable[[], int]) -> int:
        """The count kept under `key` (16 bytes and more), else `compute()`, which is then kept."""
        with self._lock:
            found = self._counts.get(key)
            if found is not None:
                self._counts.move_to_end(key)
                return found
        found = compute()  # outside the lock: a long message must not stop the others
        with self._lock:
            self._counts[key] = found
            if len(self._counts) > self._size:
                self._counts.popitem(last=False)
        return found

    def text(self, text: str, counter: TokenCounter) -> int:
        """`counter.count(text)`, remembered."""
        key = _key(counter, b"text", text.encode("utf-8", "surrogatepass"))
        return self.get(key, lambda: counter.count(text))

    def message(self, message: Mapping[str, Any], counter: TokenCounter, hashed: bytes | None = None) -> int:
        """`message_tokens(message, counter)`, remembered. `hashed`: the message's hash in its transcript, where there is one,
        which is over its role and text, but not over white space around that."""
        text = message.get("content")
        if hashed is not None and type(text) is str and message.keys() <= HASHED:
            key = hashed + counter.name.encode() + _around(text)
        else:
            key = _key(counter, b"message", _canonical(message))
        return self.get(key, lambda: message_tokens(message, counter))

    def tools(self, tools: Any, counter: TokenCounter) -> int:
        """`tools_tokens(tools, counter)`, remembered."""
        return self.get(_key(counter, b"tools", _canonical(tools)), lambda: tools_tokens(tools, counter))


HASHED = frozenset({"role", "content", "tool_call_id"})
"""Members of a message whose tokens its hash and the white space around its text tell: an id costs nothing."""


def _around(text: str) -> bytes:
    """The white space around a text; nothing where there is none."""
    if not (text[:1].isspace() or text[-1:].isspace()):
        return b""
    end = len(text.rstrip())
    return text[: end - len(text[:end].lstrip())].encode() + b"\0" + text[end:].encode()


def _key(counter: TokenCounter, kind: bytes, data: bytes) -> bytes:
    digest = hashlib.blake2b(counter.name.encode(), digest_size=16, person=kind)
    digest.update(data)
    return digest.digest()


def _canonical(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # lone surrogates and integers beyond 64 bits, both legal JSON
        return json.dumps(value).encode()


# --- the framing of chat messages ----------------------------------------------------------------------------------------
# OpenAI's cookbook, "How to count tokens with tiktoken", gives 3 tokens a message, 1 more for a name and 3 for the
# start of the answer, for every model since gpt-3.5-turbo-0613. Other chat templates cost about as much (ChatML: 4, 5).

MESSAGE_TOKENS = 3
NAME_TOKENS = 1
REPLY_TOKENS = 3
"""Tokens that open the answer; once a request, not once a message."""

_TOOL_CALL_TOKENS = 8
"""Framing of one tool call beside its name and arguments, the call id included; an estimate on the high side."""

IMAGE_TOKENS = 1445
"""The most that an image costs on the gpt-4o family at high detail: 85 + 8 tiles of 170 (OpenAI, "Images and vision").
The picture's size is not looked up, so the count is rather too high than too low."""

IMAGE_TOKENS_LOW = 85
"""The same with `detail: low`."""

_AUDIO_BASE64_PER_TOKEN = {"wav": 6400, "": 1066}
"""Base64 characters of input audio per token: 10 tokens a second; WAV at 24 kHz of 16 bits is 48,000 bytes a second,
others are taken to have 64 kbit/s; base64 has 4 characters for 3 bytes."""

_FILE_TOKENS = IMAGE_TOKENS
"""Of a `file` part that brings only an id."""

_FILE_BASE64_PER_TOKEN = 8
"""Of a `file` part with its content: a PDF's text and page images come to less than this; an estimate."""

_UNKNOWN_PART_CHARS = 65_536
"""Parts of unknown type are counted as their JSON text up to this length, beyond it as a token per 4 characters."""


def message_tokens(message: Mapping[str, Any], counter: TokenCounter) -> int:
    """Tokens of one chat message inside a prompt, framing included.

    `message` is what a client sent under `messages[i]`, valid or not: what is not understood is counted as text.
    """
    total = MESSAGE_TOKENS + counter.count(str(message.get("role") or ""))
    total += _content_tokens(message.get("content"), counter)
    for key in ("refusal", "reasoning", "reasoning_content"):
        if isinstance(value := message.get(key), str):
            total += counter.count(value)
    if name := message.get("name"):
        total += counter.count(str(name)) + NAME_TOKENS
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        total += _call_tokens(call, counter)
    if isinstance(legacy := message.get("function_call"), dict):
        total += _call_tokens({"function": legacy}, counter)
    return total


def supplied_tokens(stored: int, role_tokens: int, counter: TokenCounter) -> int:
    """Tokens of a message that Mneme supplies, framing included. `stored`: o200k's count of its text and calls; `role_tokens`:
    the counter's of its role.

    As `message_tokens` counts it, to the last token: what is rounded down for each message of a long session adds up.
    """
    return math.ceil(stored * (1.0 + counter.margin)) + MESSAGE_TOKENS + role_tokens


def prompt_tokens(messages: Iterable[Mapping[str, Any]], counter: TokenCounter) -> int:
    """Tokens of a whole list of messages, the opening of the answer included."""
    return sum(message_tokens(message, counter) for message in messages) + REPLY_TOKENS


def tools_tokens(tools: Any, counter: TokenCounter) -> int:
    """Tokens of `tools` (or `functions`, or a `response_format`), counted as their compact JSON.

    OpenAI renders schemas in a shorter form of its own; open chat templates print the JSON. This is the larger of both.
    """
    return counter.count(json.dumps(tools, ensure_ascii=False)) + MESSAGE_TOKENS if tools else 0


def _content_tokens(content: Any, counter: TokenCounter) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return counter.count(content)
    if isinstance(content, list):
        return sum(_part_tokens(part, counter) for part in content)
    return _json_tokens(content, counter)


def _part_tokens(part: Any, counter: TokenCounter) -> int:
    if isinstance(part, str):
        return counter.count(part)
    if not isinstance(part, dict):
        return _json_tokens(part, counter)
    kind = part.get("type")
    for key in ("text", "refusal"):
        if kind == key and isinstance(part.get(key), str):
            return counter.count(part[key])
    body = part.get(str(kind))
    if kind == "image_url":
        low = isinstance(body, dict) and body.get("detail") == "low"
        return IMAGE_TOKENS_LOW if low else IMAGE_TOKENS
    if kind == "input_audio" and isinstance(body, dict):
        rate = _AUDIO_BASE64_PER_TOKEN.get(str(body.get("format")), _AUDIO_BASE64_PER_TOKEN[""])
        return math.ceil(len(str(body.get("data") or "")) / rate)
    if kind == "file" and isinstance(body, dict):
        return max(_FILE_TOKENS, len(str(body.get("file_data") or "")) // _FILE_BASE64_PER_TOKEN)
    return _json_tokens(part, counter)


def _call_tokens(call: Any, counter: TokenCounter) -> int:
    if not isinstance(call, dict):
        return _json_tokens(call, counter)
    body = call.get("function") or call.get("custom")
    if not isinstance(body, dict):
        return _json_tokens(call, counter)
    text = f"{body.get('name') or ''} {body.get('arguments') or body.get('input') or ''}"
    return _TOOL_CALL_TOKENS + counter.count(text)


def _json_tokens(value: Any, counter: TokenCounter) -> int:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return counter.count(text) if len(text) <= _UNKNOWN_PART_CHARS else len(text) // 4
