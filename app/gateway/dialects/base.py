"""The forms in which clients speak to models, as far as the pipeline has to know them.

A dialect reads a request as messages in the shape of chat completions, says where text and messages go in its own bytes, and
puts its answers together. All else (the place, the compile, the record) works on what comes of that and is the same for all:
a conversation begun in one dialect goes on in another. `chat.py` is one, the features `responses` and `messages` are
others; `dialects/__init__.py` knows which path speaks which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from msgspec import Struct

from app.context.transcript import SYSTEM_ROLES, Transcript
from app.errors import MnemeError
from app.gateway.dialects.splice import Envelope, Insertion, replace_value, scan
from app.gateway.dialects.sse import UpstreamAnswer

DialectName = Literal["chat", "responses", "messages"]

NAMING = frozenset({"user", "safety_identifier", "metadata"})
"""Fields of a body that may name its user or its session."""


class Guard(Protocol):
    """Decides which bytes of an answer may be sent before it is stored."""

    @property
    def ended(self) -> bool:
        """All that means something has come."""

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that may be sent now."""

    def rest(self) -> bytes:
        """What is held back; given out once."""


class Canvas(Protocol):
    """Where the client's own bytes can be changed. `index`: of a message as the client sent it."""

    def insert(self, index: int, messages: Sequence[Mapping[str, Any]]) -> list[Insertion]:
        """Put messages before the one at `index` (at the end, if there is none): what Mneme supplies of the history, with
        system messages. A dialect without a place for them puts them in as text."""

    def prepend(self, index: int, text: str) -> list[Insertion]:
        """Put `text` at the beginning of a message; nothing where it takes none."""

    def append(self, index: int, text: str) -> list[Insertion]:
        """Put `text` at the end of a message; nothing where it takes none."""


class ChatRequest(Struct, frozen=True):
    """A request as far as Mneme understands it. `messages` are in the shape of chat completions, whatever the dialect.

    `places`: for each message the elements of the request's array that it is made of, from and up to; empty where each is one.
    `upstream_holds`: the upstream itself puts earlier messages before these; `follows`: those up to its answer with this id.
    """

    dialect: Dialect
    body: bytes
    document: Mapping[str, Any]
    envelope: Envelope
    messages: Sequence[Mapping[str, Any]]
    transcript: Transcript
    model: str
    stream: bool
    answer_limit: int | None
    places: Sequence[tuple[int, int]] = ()
    upstream_holds: bool = False
    follows: str | None = None

    def number(self, name: str) -> float | None:
        """A sampling parameter, where it is a number."""
        value = self.document.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def has_tools(self) -> bool:
        """Whether the model may call something."""
        return bool(self.document.get("tools") or self.document.get("functions"))

    @property
    def schemas(self) -> list[object]:
        """What stands in the prompt beside the messages."""
        return self.dialect.schemas(self.document)

    def system_prompt(self) -> str | None:
        """The text of the leading system messages, joined; None where there is none."""
        texts = []
        for each in self.messages[: leading(self.messages)]:
            content = each.get("content")
            if isinstance(content, str):
                texts.append(content)
            elif isinstance(content, list):
                texts += [
                    part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)
                ]
        return "\n\n".join(texts) if texts else None


class Dialect(Protocol):
    """One way of asking for an answer. What has a value, or an answer, here is what most of them have."""

    naming: ClassVar[frozenset[str]] = NAMING
    """Fields of a body that may name its user or its session."""
    x_api_key: ClassVar[bool] = False
    """Whether the key of an upstream goes into `X-Api-Key`, too."""

    @property
    def name(self) -> DialectName: ...

    def session(self, document: Mapping[str, Any]) -> str | None:
        """What the body names as its conversation in the dialect's own words."""
        return None

    def unfit(self, document: Mapping[str, Any]) -> str | None:
        """Why a request gets no memory though it could be read, as `x-mneme-reason` calls it."""
        return None

    def read(self, body: bytes, document: Mapping[str, Any]) -> ChatRequest | None:
        """A body that orjson has read as an object; None where it has no messages that Mneme understands."""

    def messages(self, document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
        """The messages alone."""

    def scan(self, body: bytes) -> Envelope | None:
        """Where the elements of the request's array lie, for a capture: of `messages`."""
        return scan(body)

    def elements(self, document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """These elements."""
        found: Sequence[Mapping[str, Any]] = document["messages"]
        return found

    def schemas(self, document: Mapping[str, Any]) -> list[object]:
        """What stands in the prompt beside the messages."""

    def canvas(self, chat: ChatRequest) -> Canvas: ...

    def guard(self) -> Guard:
        """Holds back the end of a stream."""

    def fold(self, events: Iterable[bytes]) -> UpstreamAnswer:
        """A stream put together again. `events` are the data of its events, see `sse.payloads`."""

    def whole(self, body: bytes) -> UpstreamAnswer | None:
        """The answer in a body that came in one piece; None when it is not a JSON object."""

    def mark(self, chat: ChatRequest, answer: UpstreamAnswer) -> bytes | None:
        """By which a later request names this answer as the one that it follows; None where none can."""
        return None

    def refusal(self, error: MnemeError) -> dict[str, Any]:
        """An error of Mneme's own in the shape of this API, ready to be serialised."""
        return error.body()


def is_system(message: Mapping[str, Any]) -> bool:
    """Whether it is a system message, whatever its role is."""
    role = message.get("role")
    return isinstance(role, str) and role in SYSTEM_ROLES


def leading(messages: Sequence[Mapping[str, Any]]) -> int:
    """How many system messages stand before everything else."""
    return next((i for i, each in enumerate(messages) if not is_system(each)), len(messages))


def renamed(chat: ChatRequest, model: str | None) -> list[Insertion]:
    """What gives a request's model another name; nothing where it names none."""
    made = replace_value(chat.envelope, "model", model) if model is not None else None
    return [made] if made is not None else []


def positive(value: object) -> int | None:
    """A limit of tokens, where it is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
