"""Where a feature takes part in chats beside memory: an addon to the pipeline, and its part in one call.

    compile ─ what it puts into the prompt ─→ forward ─ what becomes of the answer ─→ record ─→ explain

The core knows none by name. A call has a part where an addon made one, and takes it along through its stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from uuid import UUID

from msgspec import Struct, field

from app.capture.facts import Leg
from app.gateway.dialects.base import ChatRequest
from app.gateway.dialects.splice import Insertion
from app.gateway.headers import Redactor
from app.gateway.relay import Ending
from app.store.records import PartRecord

if TYPE_CHECKING:
    from app.gateway.call import Forwarded, Parsed
    from app.gateway.finalize import Finalizer
    from app.gateway.forward import Forwarder
    from app.gateway.reconcile import Place


class Joint(Protocol):
    """What an answer is made of, where that is more than one of the upstream's."""

    whole: bool
    """The client gets it in one piece: all that it came to is known before its head."""

    async def end(self, ending: Ending) -> tuple[bool, Sequence[Leg]]:
        """Record what is not recorded yet: whether all of it could be stored, and what its legs took."""


class CallPart(Struct, kw_only=True):
    """What an addon makes of one call. Its own to change, until the call is recorded."""

    name: ClassVar[str]
    """By which the call's explanation, and the call on disk, keep it."""
    insertions: Sequence[Insertion] = ()
    """Into the client's own bytes."""
    costs: Sequence[int] | None = None
    """Tokens of each message as it goes out, with what is put beside it; None: as the client wrote it."""
    schemas: Sequence[object] = ()
    """Of tools that it adds."""
    window: int | None = None
    """Tokens that prompt and answer may take together; None: the model's."""
    explained: Mapping[str, Any] = field(default_factory=dict)
    """For the call's explanation."""

    @property
    def shown_tokens(self) -> int:
        """Of the whole prompt as it went out; 0: not known."""
        return 0

    @property
    def has_tools(self) -> bool:
        """The model may call tools of its."""
        return False

    def compiled(self, tokens: int) -> None:
        """What memory took of the prompt is known."""

    def without_tools(self, chat: ChatRequest, sent: bytes) -> bytes:
        """The body without its tools, where it has some: the upstream takes none."""
        return sent

    def headers(self, joint: Joint | None) -> Mapping[str, str]:
        """What the head of the answer says of it."""
        return {}

    def recorded(self, chat: ChatRequest, answer_chain: bytes | None, redactor: Redactor) -> PartRecord | None:
        """What is stored of it with the call. `answer_chain`: of the first answer; None: nothing came that a client could send
        back."""
        return None

    def frozen(self, chat: ChatRequest, redactor: Redactor) -> dict[str, Any]:
        """What a call that waits for Postgres keeps of it, as JSON."""
        return {}


class Addon(Protocol):
    """Takes part in chats."""

    name: str
    """Of its parts."""

    async def compile(self, call: Parsed, chat: ChatRequest, place: Place) -> CallPart | str | None:
        """Its part in a call; why it has none though it is asked for; None: it is not. What it raises leaves it out, and the
        call goes on."""

    async def repeated(self, call: Parsed, sent: bytes, place: Place) -> CallPart | None:
        """The same for a body that goes out once more as it was. Never raises."""

    async def answered(self, call: Forwarded, forwarder: Forwarder, finalizer: Finalizer) -> Forwarded:
        """The answer that the client gets, as soon as its head is known. Raises UpstreamError, ClientGone; the call is recorded
        then."""

    def thawed(self, frozen: Mapping[str, Any], tenant: UUID, user: UUID) -> CallPart:
        """The part of a call that has waited on disk. Raises ValueError, KeyError, TypeError for what no Mneme has written."""

    def shown(self, explained: Mapping[str, Any]) -> dict[str, Any]:
        """`CallPart.explained` as the API shows it."""
