"""What the recorder is given: a request body as a recipe (`make`), what happened (`CallFacts`, `Exchange`), and the labels by
which calls are found again (`labels_of`). Plain values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from hashlib import blake2b, sha256
from itertools import pairwise
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.context.assemble import Block
from app.context.transcript import HASH_BYTES
from app.store.records import PartRecord, StreamRecord
from mneme_replay.paths import MASK

# --- a request body as a recipe ------------------------------------------------------------------------------------------
#
# The elements of its `messages` array, each kept once, and the bytes around them. A client that manages its own history
# sends the whole transcript every time. Kept whole, a conversation of n turns would take n² of space; as a chain of what
# each request added, it takes what was said. The leading system messages stand apart from the chain: they often carry a
# clock, and what changes at the front would make all that follows new. Joined again the bytes are the body, to the last
# space.


class Position(Struct, frozen=True):
    """A place in a chain that is stored: the hash over its first `count` elements."""

    chain: bytes
    count: int


class Node(Struct, frozen=True):
    """One row of `request_chains`: what it adds to its parent, behind it (`blobs`) and in front of it (`lead`)."""

    chain: bytes
    parent: bytes | None
    blobs: tuple[bytes, ...]
    lead: tuple[bytes, ...] = ()


class Recipe(Struct, frozen=True):
    """`prefix` + elements of the chain + `suffix` = the body; `nodes` and `blobs` are what is not stored yet.

    `resume` is the position from which the next request of the conversation is likely to go on.
    """

    prefix: bytes
    suffix: bytes
    chain: bytes | None
    count: int
    sha256: bytes
    size: int
    nodes: tuple[Node, ...]
    blobs: dict[bytes, bytes]
    resume: Position | None


def blob_hash(body: bytes) -> bytes:
    """The key of one element."""
    return blake2b(body, digest_size=HASH_BYTES).digest()


def make(
    body: bytes,
    array_start: int,
    spans: Sequence[tuple[int, int]],
    known: Position | None = None,
    stable: int | None = None,
    lead: int = 0,
) -> Recipe:
    """The recipe of `body`.

    `array_start` is the offset just after the `[`; `spans` the (start, end) of each element, the first `lead` of which are
    kept apart. The rest is a chain: `known` is a stored position to build on, used when its first elements are the same;
    `stable`: how many elements in all the next request will probably repeat byte for byte (default: all of them).
    """
    digest = sha256(body).digest()
    if not spans:
        return Recipe(body, b"", None, 0, digest, len(body), (), {}, None)
    ends = [array_start, *(end for _, end in spans)]
    elements = [body[start:end] for start, end in pairwise(ends)]  # each with the separator before it
    front, elements = elements[:lead], elements[lead:]
    chains = _chain(elements)
    at, parent = 0, None
    if known is not None and 0 < known.count <= len(elements) and chains[known.count] == known.chain:
        at, parent = known.count, known.chain
    cut = len(elements) if stable is None else max(at, min(stable - len(front), len(elements)))
    nodes: list[Node] = []
    blobs: dict[bytes, bytes] = {}
    for end in sorted({cut, len(elements)}):
        if end > at:
            hashes = _keep(elements[at:end], blobs)
            nodes.append(Node(chains[end], parent, hashes))
            at, parent = end, chains[end]
    top = chains[-1]
    if front:
        top = blake2b(_chain(front)[-1] + top, digest_size=HASH_BYTES, person=b"mneme front").digest()
        nodes.append(Node(top, parent, (), _keep(front, blobs)))
    return Recipe(
        prefix=body[:array_start],
        suffix=body[spans[-1][1] :],
        chain=top,
        count=len(spans),
        sha256=digest,
        size=len(body),
        nodes=tuple(nodes),
        blobs=blobs,
        resume=Position(chains[cut], cut) if cut else None,
    )


def _chain(elements: Sequence[bytes]) -> list[bytes]:
    """The hash over the first 0, 1, 2 … elements."""
    running = blake2b(digest_size=HASH_BYTES)
    chains = [running.digest()]
    for element in elements:
        running.update(len(element).to_bytes(4, "big"))
        running.update(element)
        chains.append(running.digest())
    return chains


def _keep(elements: Sequence[bytes], blobs: dict[bytes, bytes]) -> tuple[bytes, ...]:
    hashes = tuple(blob_hash(element) for element in elements)
    blobs.update(zip(hashes, elements, strict=True))
    return hashes


def rebuild(prefix: bytes, elements: Sequence[bytes], suffix: bytes, digest: bytes) -> bytes:
    """The body again. Raises ValueError when it is not the one whose SHA-256 was kept."""
    body = b"".join([prefix, *elements, suffix])
    if sha256(body).digest() != digest:
        raise ValueError("the stored parts of this request do not make the body that was captured")
    return body


# --- what happened: a call, its usage, and what it adds to a conversation ------------------------------------------------


class Outcome(IntEnum):
    """How a call ended: `call_outcome` in `enumerations`."""

    COMPLETE = 0
    BROKEN = 1
    GONE = 2
    CANCELLED = 3
    FAILED = 4


class Usage(Struct, frozen=True):
    """Tokens of a call. `counted`: by Mneme, because the upstream told nothing."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    counted: bool = False


class Leg(Struct, frozen=True):
    """One of the upstream's answers that a call's own answer was made of: a call by itself, whose figures
    stand with the client's. `call_id`: of the client's call; `number`: which, from 1."""

    leg_id: UUID
    call_id: UUID
    number: int
    usage: Usage = Usage()
    cost_microcents: int = 0
    priced: bool = True

    @property
    def metadata(self) -> dict[str, Any]:
        figures = {
            "prompt_tokens": self.usage.prompt,
            "completion_tokens": self.usage.completion,
            "cached_tokens": self.usage.cached,
            "counted": self.usage.counted,
        }
        own = {"leg_of": str(self.call_id), "leg": self.number}
        return {**own, "usage": figures, "cost_microcents": self.cost_microcents}


class CallFacts(Struct, frozen=True):
    """One upstream call. A request is kept as a recipe, or whole (`body`) where it has no messages. Of one that is not
    `captured` there is only the row, without which its turn could come twice."""

    call_id: UUID
    tenant_id: UUID
    user_id: UUID
    created_at: datetime
    method: str
    path: str
    upstream: str
    outcome: Outcome
    memory_status: str
    model: str = ""
    answered_model: str | None = None
    streamed: bool = False
    status: int | None = None
    reason: str | None = None
    request_headers: Sequence[tuple[bytes, bytes]] = ()
    response_headers: Sequence[tuple[bytes, bytes]] = ()
    request: Recipe | None = None
    body: bytes | None = None
    body_size: int = 0
    body_truncated: bool = False
    sent: Recipe | None = None
    usage: Usage = Usage()
    cost_microcents: int = 0
    latency_ms: int | None = None
    first_byte_us: int | None = None
    overhead_us: int | None = None
    idempotency_key: str | None = None
    repeat_key: bytes | None = None
    """By which a repetition of this call is known (`gateway.identify.repeat_key`); None: it has no Idempotency-Key, or no
    turn."""
    retry_count: int = 0
    error: str | None = None
    stream: StreamRecord | None = None
    session_id: UUID | None = None
    captured: bool = True
    key_id: UUID | None = None
    priced: bool = True
    """The model's price is known; else the cost says 0."""
    redacted: Sequence[str] = ()
    """What of it lacks values that the settings say are not to be stored: request, sent, response."""
    tool_calls: int = 0
    """Tools that the answer called."""
    labels: Sequence[str] = ()
    """By which it is found, sorted, each once."""
    imported: Mapping[str, Any] | None = None
    """What its cassette says of it, where it came from one."""
    part: PartRecord | None = None
    """What else it leaves behind."""
    leg: Leg | None = None
    """It is a leg of another call."""
    legs: Sequence[Leg] = ()
    """What its answer was made of; empty where it is the upstream's own."""

    def figures(self) -> dict[str, Any]:
        """What the log line of a call says: figures and ids, never content."""
        return {
            "call_id": str(self.call_id),
            "session_id": str(self.session_id) if self.session_id else None,
            "path": self.path.partition("?")[0],
            "upstream": self.upstream,
            "model": self.model,
            "status": self.status,
            "outcome": self.outcome.name.lower(),
            "memory": self.memory_status,
            "reason": self.reason,
            "prompt_tokens": self.usage.prompt,
            "completion_tokens": self.usage.completion,
            "latency_ms": self.latency_ms,
            "overhead_us": self.overhead_us,
        }

    @property
    def metadata(self) -> dict[str, Any]:
        """What is to be known of a capture that is not whole, and by what else it is looked for."""
        kept: dict[str, Any] = {} if self.captured else {"captured": False}
        if self.tool_calls and self.captured:
            kept["tool_calls"] = self.tool_calls
        kept |= {"imported": dict(self.imported)} if self.imported is not None else {}
        kept |= self.leg.metadata if self.leg is not None else {}
        kept |= {"legs": [str(each.leg_id) for each in self.legs]} if self.legs and self.captured else {}
        return kept | ({"redacted": list(self.redacted)} if self.redacted else {})

    def made_of(self, legs: Sequence[Leg]) -> CallFacts:
        """With what all its legs took together, whatever of it the client was told."""
        cached = [each.usage.cached for each in legs if each.usage.cached is not None]
        usage = Usage(
            sum(each.usage.prompt or 0 for each in legs),
            sum(each.usage.completion or 0 for each in legs),
            sum(cached) if cached else None,
            any(each.usage.counted for each in legs),
        )
        cost, priced = sum(each.cost_microcents for each in legs), all(each.priced for each in legs)
        return replace(self, usage=usage, cost_microcents=cost, priced=priced, legs=legs)

    def as_leg(self, call_id: UUID, number: int) -> CallFacts:
        """A leg's own. Its figures stand in the client's call: nothing is spent twice."""
        leg = Leg(self.call_id, call_id, number, self.usage, self.cost_microcents, self.priced)
        return replace(self, usage=Usage(), cost_microcents=0, priced=True, leg=leg)


class NewTurnMessage(Struct, frozen=True):
    """A message that is new to the store, with its canonical hash (None: it is not part of the conversation)."""

    message: Mapping[str, Any]
    hash: bytes | None


class AnsweredChoice(Struct, frozen=True):
    """One choice of the answer. `whole`: it came to its end."""

    message: Mapping[str, Any]
    hash: bytes
    finish_reason: str | None
    whole: bool = True


class Exchange(Struct, frozen=True):
    """What a call adds to a conversation.

    `question_chain`: the chain hash up to the last message asked; `answer_chains`: with each answer. `tails`: for the first
    answer, the hash of the last one and two answered turns with it. `asked_index`: the turn index of the answers to a
    question that is stored already, which is `parent_message_id` then. `visible_from`: the turn index of the first message
    that stood in the prompt. `block`: the memory block that was put into the last user message; `epoch`: of the session's
    blocks. `answer_mark`: by which a later request may name the first answer, where its dialect has names for answers.
    """

    session_id: UUID
    user: str
    said: Sequence[NewTurnMessage]
    answers: Sequence[AnsweredChoice]
    question_chain: bytes
    tails: tuple[bytes | None, bytes | None]
    answer_chains: Sequence[bytes]
    ended_at: datetime
    expires_at: datetime
    session_name: str | None = None
    parent_session_id: UUID | None = None
    branch_turn_index: int | None = None
    parent_message_id: UUID | None = None
    asked_index: int | None = None
    model: str = ""
    window: int | None = None
    system_prompt: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_response_tokens: int | None = None
    block: Block | None = None
    epoch: int | None = None
    visible_from: int = 1
    confined: bool = False
    learn: bool = True
    answer_mark: bytes | None = None
    private: int = 0
    """How many of `said`, from the end, are not to be learned from, nor found: the user asked in them that something be
    forgotten. Nor are the answers, then (`private_answers`), nor simulated ones."""
    private_answers: bool = False
    shares: bool = False
    """What it says anew (`private` of `said`) is said to a shared space, and not to the user's own memory."""


class CompileFacts(Struct, frozen=True):
    """A compile's explanation and efficiency."""

    audit: Mapping[str, Any]
    eta: float | None


# --- labels: names by which sets of calls are found again ----------------------------------------------------------------

LABEL_HEADER = b"x-mneme-label"
"""The header by which an application labels a call as it makes it; commas stand between several."""
MAX_LABELS = 32
"""Labels of one call: each names a set of calls, and nobody looks through more."""
MAX_LABEL_CHARS = 256
"""As of any word that is looked for."""

_NOT_SHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_label(text: str) -> bool:
    """1 to 256 characters without control characters, with no white space around them."""
    return 0 < len(text) <= MAX_LABEL_CHARS and text == text.strip() and _NOT_SHOWN.search(text) is None


def labels_of(headers: Sequence[tuple[bytes, bytes]]) -> tuple[str, ...]:
    """The labels that a request's headers give it, sorted, each once.

    What is no label is left out, and so is what comes after the 32nd: no reason to refuse a call, whose captured headers still
    show it. So is a value that is not to be stored.
    """
    found: dict[str, None] = {}
    for name, value in headers:
        if len(name) == len(LABEL_HEADER) and name.lower() == LABEL_HEADER and value != MASK.encode():
            found |= dict.fromkeys(each for part in header_text(value).split(",") if is_label(each := part.strip()))
    return settled(list(found)[:MAX_LABELS]) if found else ()


def settled(labels: Iterable[str]) -> tuple[str, ...]:
    """As they are kept: sorted, each once."""
    return tuple(sorted(set(labels)))


def header_text(value: bytes) -> str:
    """A header's value as UTF-8, or, where it is not, as ISO 8859-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
