"""What a prompt holds in any case: its figures, and what Mneme supplies of the session's earlier messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.context.budget import Split, TaskType
from app.context.pack import history_suffix
from app.context.request import CompileRequest, PathMessage
from app.context.transcript import Transcript, chain
from app.providers.tokens import NAME_TOKENS, TokenCounter, message_tokens, supplied_tokens

SYSTEM_ROLES = frozenset({"system", "developer"})

VERBATIM_TURNS = 4
"""The last turns, which stay as they were said whatever history's budget is (seed 001 §6, overflow)."""


class Figures(Struct, frozen=True):
    """Tokens, by the model's tokenizer. `scale` turns stored counts (o200k) into what the model may count."""

    window: int
    system: int
    reserve: int
    tools: int
    available: int
    client: int
    task: TaskType
    split: Split
    scale: float

    def report(self) -> dict[str, int]:
        names = ("window", "system", "reserve", "tools", "available", "client")
        return {name: getattr(self, name) for name in names}


class Story(Struct, frozen=True):
    """What is supplied of the session's earlier messages: the first `first` and those from `start` on. `transcript`: as the
    upstream will see it."""

    messages: Sequence[Mapping[str, Any]]
    tokens: int
    start: int
    first: int
    lead: int
    transcript: Transcript
    cut: bool


def tell(request: CompileRequest, figures: Figures, counter: TokenCounter) -> Story:
    """Phase 2: the first turn and the longest suffix of the stored messages that fit, for a server-managed request; before
    them the session's own system prompt, where the client sent none. The last turns stay beyond the history's own budget, as
    long as they fit the prompt."""
    lead = next(
        (i for i, each in enumerate(request.messages) if each.get("role") not in SYSTEM_ROLES), len(request.messages)
    )
    path = request.path
    roles = [str(each.message.get("role") or "") for each in path]
    words = {
        role: counter.count(role) for role in set(roles)
    }  # some µs each: once, not for each of hundreds of messages
    costs = [_cost(each, words[role], counter) for each, role in zip(path, roles, strict=True)]
    room = min(figures.split.history, max(0, figures.available - figures.client))
    chosen = history_suffix(costs, room, True, roles=roles)
    last = _last_turns(roles)
    if chosen.start > last:
        whole = max(0, figures.available - figures.client)
        chosen = history_suffix(costs, min(whole, sum(costs[last:])), False, roles=roles)
    kept = [*path[: chosen.first], *path[chosen.start :]]
    cut = len(kept) < len(path) or not request.path_complete
    messages = [each.message for each in kept]
    system: list[Mapping[str, Any]] = []
    if request.system_prompt is not None:
        system = [{"role": "system", "content": request.system_prompt}]
    full = _full_transcript(request, kept, len(system), lead, cut)
    return Story([*system, *messages], chosen.tokens, chosen.start, chosen.first, lead, full, bool(path) and cut)


def _last_turns(roles: Sequence[str]) -> int:
    """Where the last turns begin that stay verbatim."""
    asked = [i for i, role in enumerate(roles) if role == "user"]
    return asked[-VERBATIM_TURNS] if len(asked) >= VERBATIM_TURNS else 0


def visible_from(request: CompileRequest, story: Story) -> int:
    """The turn from which on all of the session is in the prompt. What does not fit any more may be found again, and what
    was not even read, between the first turn and the rest."""
    path, start = request.path, story.start
    if not request.path_complete:
        jumps = (i for i in range(1, len(path)) if path[i].turn_index > path[i - 1].turn_index + 1)
        start = max(start, next(jumps, 0))
    return path[start].turn_index if start < len(path) else path[-1].turn_index + 1


def _cost(each: PathMessage, role_tokens: int, counter: TokenCounter) -> int:
    """Tokens of a stored message in a prompt."""
    cost = supplied_tokens(each.token_count, role_tokens, counter)
    if each.message.get("name"):
        cost += NAME_TOKENS + counter.count(str(each.message["name"]))
    content = each.message.get("content")
    if isinstance(content, list):
        others = [part for part in content if not (isinstance(part, Mapping) and part.get("type") == "text")]
        cost += message_tokens({"content": others}, counter)
    return cost


def _full_transcript(
    request: CompileRequest, kept: Sequence[PathMessage], systems: int, lead: int, cut: bool
) -> Transcript:
    """The transcript as the upstream will see it: with what is supplied behind the leading system messages."""
    own = request.transcript
    if not request.server_managed:
        return own
    hashes = [each.message_hash for each in kept]
    known = [each for each in hashes if each is not None]
    whole = not cut and len(known) == len(hashes)
    before: list[bytes | None] = [*chain(known)] if whole else [None] * len(hashes)
    spoken = [each for each in own.hashes[lead:] if each is not None]
    links = iter(chain(spoken, request.start_chain))
    after = [None if each is None else next(links) for each in own.hashes[lead:]]
    gap = [None] * systems
    roles = (
        *own.roles[:lead],
        *["system"] * systems,
        *(str(each.message.get("role")) for each in kept),
        *own.roles[lead:],
    )
    return Transcript(
        roles=roles,
        hashes=(*own.hashes[:lead], *gap, *hashes, *own.hashes[lead:]),
        chains=(*own.chains[:lead], *gap, *before, *after),
        answered=tuple(i for i, role in enumerate(roles) if role == "assistant"),
    )
