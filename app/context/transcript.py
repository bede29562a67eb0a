"""Chat messages in canonical form, and the hashes that recognise a conversation by what was said in it.

A client that sends its whole transcript sends it slightly changed: null for an empty text, white space trimmed, tool
arguments serialised anew, fields of its own added, system messages with a clock in them. The canonical form keeps
role, text and tool calls, and nothing else; each message's hash is chained on the one before, so that one look-up by
the chain hash of the last answered turn finds the session.

Nothing here raises, whatever the messages look like: what a proxy cannot read it must still pass on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeGuard

import orjson
from msgspec import Struct

from app.context.reasoning import THOUGHT_PARTS
from app.context.thoughts import split_thought
from app.json_text import read_json

HASH_BYTES = 16
"""Bytes of every hash here: 128 bits leave no chance collision within one user's history."""

QUERY_CHARS = 4000
"""Longest query taken from a message, characters (about 1,000 tokens): a pasted document is not a question."""

SYSTEM_ROLES = frozenset({"system", "developer"})
"""Roles of the application's own messages. They are left out of the chain: they often carry a clock."""

RESULT_ROLES = frozenset({"tool", "function"})
"""Roles of what tools gave."""

LONG_TEXT = 100_000
"""Characters of messages from which they are counted and analysed in a thread, so that other requests do not wait: some 50
ms."""

TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
# A number that another serialiser may have written differently: 1.0 against 1, 1e16 against 10000000000000000.
_FLOATY = re.compile(rb"\.0(?![0-9])|[0-9][eE][0-9+-]")
_MAX_INT = 2**64  # what orjson reads as an integer; beyond it every parser here makes a float
_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether it is a mapping; for a dict, which nearly every message is, without the slow question for an abstract class."""
    return type(value) is dict or isinstance(value, Mapping)


def canonical(message: object) -> bytes | None:
    """The bytes of a message that identify it; None for system and developer messages.

    Kept: role, text (stripped, null as empty, text parts joined by newlines), the other parts as sorted JSON, tool
    calls as name and arguments (compared by value where they are JSON). Left out: ids, reasoning (also that in front of
    an assistant's text), names and all unknown fields.
    """
    if not _is_mapping(message):
        return b"?" + _json(message)
    role = message.get("role")
    if type(role) is not str:
        role = "?" + _json(role).decode("utf-8", "replace")
    elif role in SYSTEM_ROLES:
        return None
    content = message.get("content")
    if type(content) is str:
        text, others = content, None
    elif content is None:
        text, others = "", None
    else:
        text, others = _read_parts(content)
    if role == "assistant" and text:
        text = split_thought(text, calls=_calls_tools(message))[1]
    text = text.strip()
    head = f"{len(role)}:{role}{len(text)}:{text}".encode("utf-8", "surrogatepass")
    calls = _tool_calls(message) if "tool_calls" in message or "function_call" in message else None
    if not others and not calls:
        return head
    return b"".join([head, b"\0parts", _json(others or []), b"\0calls", *(calls or [])])


def message_hash(canonical_bytes: bytes) -> bytes:
    """The 16-byte hash of one message's canonical form."""
    return blake2b(canonical_bytes, digest_size=HASH_BYTES).digest()


def chain(hashes: Iterable[bytes], start: bytes = b"") -> list[bytes]:
    """Each message's hash chained on those before it; `start` is the chain hash to go on from."""
    chained = []
    for each in hashes:
        start = blake2b(start + each, digest_size=HASH_BYTES).digest()
        chained.append(start)
    return chained


def tail_hash(hashes: Sequence[bytes | None], answered: Sequence[int], turns: int) -> bytes | None:
    """One hash over the last `turns` answered turns, whatever came before: finds the session of a client that cuts
    the head off its transcript.

    A turn is an assistant message with all messages since the assistant message before it. None when there are fewer
    turns.
    """
    if turns < 1 or len(answered) < turns:
        return None
    begin = answered[-turns - 1] + 1 if len(answered) > turns else 0
    window = [each for each in hashes[begin : answered[-1] + 1] if each is not None]
    return blake2b(b"".join(window), digest_size=HASH_BYTES, person=b"mneme tail").digest()


class Transcript(Struct, frozen=True):
    """A request's messages as hashes; every tuple but `answered` runs along the messages (None: a system message)."""

    roles: tuple[str, ...]
    hashes: tuple[bytes | None, ...]
    chains: tuple[bytes | None, ...]
    answered: tuple[int, ...]

    @classmethod
    def of(cls, messages: Sequence[object]) -> Transcript:
        roles: list[str] = []
        hashes: list[bytes | None] = []
        chains: list[bytes | None] = []
        answered: list[int] = []
        last = b""
        for position, message in enumerate(messages):
            role = message.get("role") if _is_mapping(message) else None
            roles.append(role if isinstance(role, str) else "")
            if role == "assistant":
                answered.append(position)
            form = canonical(message)
            if form is None:
                hashes.append(None)
                chains.append(None)
                continue
            # `message_hash` and `chain`, without the two calls: this runs for every message of every request.
            hashed = blake2b(form, digest_size=HASH_BYTES).digest()
            last = blake2b(last + hashed, digest_size=HASH_BYTES).digest()
            hashes.append(hashed)
            chains.append(last)
        return cls(tuple(roles), tuple(hashes), tuple(chains), tuple(answered))

    def with_earlier(
        self,
        lead: int,
        roles: Sequence[str],
        hashes: Sequence[bytes | None],
        start: bytes,
        *,
        whole: bool,
        systems: int = 0,
    ) -> Transcript:
        """With earlier messages of these `roles` and `hashes` behind the first `lead` ones, after `systems` system messages.
        `whole`: nothing else came before, so that their chain is known. `start`: the chain hash that the rest goes on from."""
        known = [each for each in hashes if each is not None]
        before = chain(known) if whole and len(known) == len(hashes) else [None] * len(hashes)
        rest = self.hashes[lead:]
        links = iter(chain([each for each in rest if each is not None], start))
        after = (None if each is None else next(links) for each in rest)
        gap = [None] * systems
        every = (*self.roles[:lead], *["system"] * systems, *roles, *self.roles[lead:])
        return Transcript(
            roles=every,
            hashes=(*self.hashes[:lead], *gap, *hashes, *rest),
            chains=(*self.chains[:lead], *gap, *before, *after),
            answered=tuple(i for i, role in enumerate(every) if role == "assistant"),
        )

    @property
    def lead(self) -> int:
        """How many system messages it begins with."""
        return next((i for i, role in enumerate(self.roles) if role not in SYSTEM_ROLES), len(self.roles))

    def last_user(self) -> int | None:
        """Index of the last user message."""
        return next((i for i in range(len(self.roles) - 1, -1, -1) if self.roles[i] == "user"), None)

    def mid_turn(self) -> bool:
        """Whether the last user message has an assistant's message after it: a tool loop, or a prefill, goes on."""
        last = self.last_user()
        return last is not None and bool(self.answered) and self.answered[-1] > last


def text_of(message: object) -> str:
    """The plain text of a message of any shape: its string, its text parts joined by newlines, its refusal; else
    empty."""
    if not _is_mapping(message):
        return ""
    content = message.get("content")
    if type(content) is str:
        return content
    text = _read_parts(content)[0] if content is not None else ""
    refusal = message.get("refusal")
    return text if text or not isinstance(refusal, str) else refusal


def answer_text(message: object) -> str:
    """Return the plain text of a message, without the thoughts in front of an assistant's answer."""
    text = text_of(message)
    if not _is_mapping(message) or message.get("role") != "assistant":
        return text
    return split_thought(text, calls=_calls_tools(message))[1]


def _calls_tools(message: Mapping[str, Any]) -> bool:
    return bool(message.get("tool_calls") or message.get("function_call"))


def query_of(messages: Sequence[object]) -> str:
    """What to look for: the last user message's own text.

    Of a text over `QUERY_CHARS` characters the two ends are kept, for a question stands before or after what it is about.
    """
    for message in reversed(messages):
        if isinstance(message, Mapping) and message.get("role") == "user":
            text = text_of(message).strip()
            if len(text) <= QUERY_CHARS:
                return text
            half = (QUERY_CHARS - 1) // 2
            return f"{text[:half]}\n{text[-half:]}"
    return ""


def _read_parts(content: object) -> tuple[str, list[Any]]:
    """The text of a content that is not a plain string, and its parts that are not text."""
    texts: list[str] = []
    others: list[Any] = []
    for part in content if isinstance(content, list | tuple) else [content]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping):
            kind = part.get("type", "text")
            text = part.get("refusal") if kind == "refusal" else part.get("text")
            if isinstance(text, str) and isinstance(kind, str) and (kind in TEXT_PARTS or kind == "refusal"):
                texts.append(text)
            elif not (isinstance(kind, str) and kind in THOUGHT_PARTS):
                # Cache marks wander from message to message as a conversation grows; they are not part of what was said.
                others.append({key: value for key, value in part.items() if key != "cache_control"})
        elif part is not None:
            others.append(part)
    return "\n".join(texts), others


def _tool_calls(message: Mapping[str, Any]) -> list[bytes]:
    """Each call's name and arguments; custom tools have an `input`, the old form a single `function_call`."""
    calls = message.get("tool_calls")
    found = list(calls) if isinstance(calls, list | tuple) else [calls] if calls else []
    legacy = message.get("function_call")
    if legacy:
        found.append({"function": legacy})
    forms = []
    for call in found:
        body = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
        if not isinstance(body, Mapping):
            forms.append(_json(call))
            continue
        given = body["arguments"] if "arguments" in body else body.get("input")
        forms += [b"\0", _json(body.get("name")), b"\0", _arguments(given)]
    return forms


def _arguments(given: object) -> bytes:
    """Arguments by value: clients serialise them anew, with other spacing, key order and number forms."""
    value: object = given
    if isinstance(given, str):
        try:
            value = read_json(given) if given.strip() else {}
        except ValueError:
            return given.strip().encode("utf-8", "surrogatepass")
    elif given is None:
        value = {}
    form = _json(value)
    return _json(_plain_numbers(value)) if _FLOATY.search(form) else form


def _plain_numbers(value: object) -> object:
    """A copy in which whole floats are integers. A loop, not a recursion: the depth is the client's."""
    root: list[Any] = [value]
    todo: list[tuple[Any, Any]] = [(root, 0)]
    while todo:
        holder, key = todo.pop()
        item = holder[key]
        if isinstance(item, float) and item.is_integer() and abs(item) < _MAX_INT:
            holder[key] = int(item)
        elif isinstance(item, dict):
            holder[key] = dict(item)
            todo += [(holder[key], each) for each in item]
        elif isinstance(item, list | tuple):
            holder[key] = list(item)
            todo += [(holder[key], each) for each in range(len(item))]
    return root[0]


def _json(value: object) -> bytes:
    try:
        return orjson.dumps(value, option=_SORTED)
    except TypeError:
        return _flatten(value)


def _flatten(value: object) -> bytes:
    """A stand-in for the JSON of what has none: too deep, lone surrogates, objects that are not JSON."""
    pieces: list[str] = []
    todo: list[object] = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, Mapping):
            pieces.append(f"{{{len(item)}")
            for key in sorted(item, key=str, reverse=True):
                todo += [item[key], str(key)]
        elif isinstance(item, list | tuple):
            pieces.append(f"[{len(item)}")
            todo += reversed(item)
        else:
            pieces.append(f"{type(item).__name__}:{item}")
    return "\0".join(pieces).encode("utf-8", "surrogatepass")


def mark_of_answer(response_id: str) -> bytes:
    """The id of an answer that the upstream keeps, as a hash among those by which a conversation is found."""
    given = response_id.encode("utf-8", "surrogatepass")
    return blake2b(given, digest_size=HASH_BYTES, person=b"mneme response").digest()
