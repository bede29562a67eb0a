"""Before the upstream is called: find the conversation, compile the context, and make the bytes that go out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.capture.record import CompileFacts
from app.context.assemble import Block
from app.context.compile import Compilation, Compiler, CompileRequest
from app.context.retrieve import Scope
from app.context.transcript import Transcript
from app.gateway.identify import Identity, Switches
from app.gateway.reconcile import Place, reconcile
from app.gateway.splice import Envelope, splice
from app.gateway.upstream import Target
from app.gateway.weave import outgoing, weave
from app.store.turns import TurnStore


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat request as far as Mneme understands it."""

    body: bytes
    document: Mapping[str, Any]
    envelope: Envelope
    messages: Sequence[Mapping[str, Any]]
    transcript: Transcript
    model: str
    stream: bool
    answer_limit: int | None

    @classmethod
    def of(cls, body: bytes, document: Mapping[str, Any], envelope: Envelope) -> ChatRequest:
        messages = document["messages"]
        model = document.get("model")
        return cls(
            body=body,
            document=document,
            envelope=envelope,
            messages=messages,
            transcript=Transcript.of(messages),
            model=model if isinstance(model, str) else "",
            stream=document.get("stream") is True,
            answer_limit=_positive(document.get("max_completion_tokens")) or _positive(document.get("max_tokens")),
        )

    def number(self, name: str) -> float | None:
        """A sampling parameter, where it is a number."""
        value = self.document.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def system_prompt(self) -> str | None:
        """The text of the leading system messages, joined; None where there is none."""
        texts = []
        for each in self.messages:
            if each.get("role") not in ("system", "developer"):
                break
            content = each.get("content")
            if isinstance(content, str):
                texts.append(content)
            elif isinstance(content, list):
                texts += [
                    part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)
                ]
        return "\n\n".join(texts) if texts else None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that is ready to go out. `place` and `compilation` are None where memory was not asked, or failed."""

    body: bytes
    place: Place | None = None
    compilation: Compilation | None = None

    @property
    def facts(self) -> CompileFacts | None:
        compiled = self.compilation
        return CompileFacts(compiled.inputs, compiled.audit, compiled.eta) if compiled else None

    def stable_elements(self, total: int) -> int | None:
        """How many elements of the sent array the next request will repeat: all but the client's own new ones, where
        Mneme supplies the history (they come back in our own writing)."""
        place, compiled = self.place, self.compilation
        if place is None or compiled is None or not place.server_managed:
            return None
        return min(total, compiled.lead + len(compiled.history))


class Preparer:
    """Reconcile and compile, in that order."""

    def __init__(self, store: TurnStore, compiler: Compiler) -> None:
        self._store = store
        self._compiler = compiler

    async def place(self, identity: Identity, chat: ChatRequest, switches: Switches, now: datetime) -> Place:
        """Where the request stands. Raises NotFound (another user's session), StoreUnavailable."""
        return await reconcile(self._store, identity, chat.transcript, switches.history, now)

    async def compile(
        self, identity: Identity, chat: ChatRequest, place: Place, target: Target, now: datetime
    ) -> Prepared:
        """The context and the body with it. Raises StoreUnavailable, Unavailable."""
        found = place.recognised
        own_system = place.server_managed and not any(
            each.get("role") in ("system", "developer") for each in chat.messages
        )
        system = found.system_prompt if found is not None and own_system else None
        blocks: tuple[Block, ...] = ()
        if found is not None and found.known and place.how != "branch":
            blocks = tuple(
                Block(b.chain_hash, b.message_hash, b.message_id, b.text, b.item_ids, b.token_count)
                for b in found.blocks
            )
        compiled = await self._compiler.compile(
            CompileRequest(
                scope=Scope(
                    tenant_id=identity.tenant_id,
                    user_id=identity.user_id,
                    confine=place.retrieval_session if identity.confined else None,
                    session=place.retrieval_session,
                    visible_from=place.visible_from,
                    ancestors=place.ancestors,
                ),
                session_id=place.session_id,
                new_session=place.new and place.how == "new",
                messages=chat.messages,
                transcript=chat.transcript,
                model=chat.model,
                now=now,
                placement=target.placement,
                answer_limit=chat.answer_limit,
                tools=chat.document.get("tools"),
                path=[outgoing(each) for each in place.path],
                path_complete=place.path_complete,
                server_managed=place.server_managed,
                start_chain=place.start_chain,
                system_prompt=system,
                system_prompt_tokens=found.system_prompt_tokens if found is not None else 0,
                summary=found.summary_text if found is not None else None,
                summary_tokens=found.summary_token_count if found is not None else 0,
                blocks=blocks,
                block_epoch=found.block_epoch if found is not None else 0,
                gone=found.gone_items if found is not None else frozenset(),
            )
        )
        insertions = weave(
            chat.body,
            chat.envelope,
            compiled.edits,
            lead=compiled.lead,
            history=compiled.history,
            system_prompt=system,
            model=target.model_alias,
        )
        return Prepared(splice(chat.body, insertions) if insertions else chat.body, place, compiled)


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
