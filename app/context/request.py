"""What a compile or a search is asked for, and what comes of it; and the ports of the cards that a message asks for, which
whoever keeps them (`Feature.cards`) tells."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct, field

from app.context.assemble import Block, Edit, neutralise
from app.context.candidates import Candidate
from app.context.notes import Count, NoteLines
from app.context.resolution import Inquiry
from app.context.retrieve import RAW_KINDS, Scope
from app.context.score import Scored
from app.context.transcript import Transcript
from app.sources import Placement, Price
from app.store.user_profile import NOTHING, Standing

# --- the cards that a message asks for -----------------------------------------------------------------------------------


class TellsCards(Protocol):
    """Of cards what there is to tell beside the blocks that stay in the prompt."""

    @property
    def new(self) -> bool:
        """Whether there is one that no earlier block tells."""

    def wants(self, count: Count, budget: int) -> int:
        """Tokens that it would take, as far as they matter: beyond `budget` nothing is counted."""

    def tell(self, said: NoteLines, budget: int, count: Count) -> None:
        """Add those that fit to what is said, and their figures to its account. After all other lines: see
        `facts_section.shown`."""


class CardsRead(Protocol):
    """The cards that were found, in their order."""

    @property
    def ids(self) -> Sequence[UUID]:
        """Theirs, whether they are told or not."""

    def beside(self, blocks: Sequence[Block]) -> TellsCards:
        """Of them what is to be told beside the blocks that stay in the prompt."""


class AskedCards(Protocol):
    """The cards that one request asks for. Nothing here raises."""

    async def cards(self) -> CardsRead | None:
        """They, in their order; None: they were not read in time."""

    def close(self) -> None:
        """Nobody waits any more."""


# --- values --------------------------------------------------------------------------------------------------------------

NAMED = "{named}"


class Deed(NamedTuple):
    """What Mneme did because the user's message asked for it, as a block tells it. `words`: a sentence of Mneme's own, with
    `NAMED` where it names `items` (id and text). Without the texts it quotes nobody, and may be kept."""

    words: str
    items: tuple[tuple[UUID, str], ...] = ()

    @property
    def sentence(self) -> str:
        """As the block says it."""
        return self.words.replace(NAMED, "; ".join(neutralise(text) for _, text in self.items))


class PathMessage(NamedTuple):
    """A stored message that Mneme supplies: as it goes out, with its stored count (tokens of its text, o200k) and hash."""

    message: Mapping[str, Any]
    token_count: int
    message_hash: bytes | None
    turn_index: int = 0
    message_id: UUID | None = None
    reasoning: Mapping[str, Any] | None = None
    """The reasoning that goes out with the message; `token_count` does not include it."""


class CompileRequest(Struct, frozen=True):
    """Plain values; see `gateway.reconcile.Place` for where the request stands.

    `schemas`: what else of the request costs tokens, such as tools and a response format. `system_prompt`: the session's own,
    where the client sent none; it is supplied like the path. `path_complete`: the path is all that came before.
    `upstream_holds`: earlier turns stand in the prompt with the blocks that they were given, whatever is done here. `gone`:
    items of the blocks that must not be shown any more. `standing`: what is said whatever is asked. `learns`: what the user
    answers will be learned from, so that something may be asked. `inquiry`: what is being found out of the things that the
    question names; None: the tenant has none. `cards`: those that the message asks for, as they are being read; None: it asks
    for none. `costs`: tokens of each message as it goes out, where that is not as it came, and where they are counted already;
    `window`: tokens that the prompt and its answer may take, where that is less than the model's.
    """

    scope: Scope
    session_id: UUID
    new_session: bool
    messages: Sequence[Mapping[str, Any]]
    transcript: Transcript
    model: str
    now: datetime
    placement: Placement
    answer_limit: int | None = None
    has_tools: bool = False
    schemas: Sequence[object] = ()
    path: Sequence[PathMessage] = ()
    path_complete: bool = True
    server_managed: bool = False
    start_chain: bytes = b""
    upstream_holds: bool = False
    system_prompt: str | None = None
    system_prompt_tokens: int = 0
    summary: str | None = None
    summary_tokens: int = 0
    blocks: Sequence[Block] = ()
    block_epoch: int = 0
    gone: Collection[UUID] = frozenset()
    standing: Standing = NOTHING
    learns: bool = False
    profile: str = "auto"
    price: Price | None = None
    """None: the compiler's own."""
    inquiry: Inquiry | None = None
    cards: AskedCards | None = None
    costs: Sequence[int] | None = None
    window: int | None = None
    deeds: Sequence[Deed] = ()
    """What Mneme has just done because the user's message asked for it: the block says it first."""
    search: bool = True
    """False: nothing is looked for; history and earlier blocks are all there is."""


class Compilation(Struct, frozen=True):
    """What to change in the request, and why.

    The prompt is: the client's leading system messages (`lead` of them), `history`, the rest of the client's messages; `edits`
    count along that list. `tokens`: what was added to the client's own; `budget`: B of seed 000 §6.1.
    """

    edits: Sequence[Edit]
    history: Sequence[Mapping[str, Any]]
    lead: int
    new_block: Block | None
    epoch: int
    memories: int
    tokens: int
    budget: int
    eta: float | None
    audit: dict[str, Any]
    reason: str | None = None
    """Why the search was poorer than it should be, as `x-mneme-reason` calls it."""
    considered: Sequence[Candidate] = ()
    claimed: Mapping[UUID, str] = field(default_factory=dict)
    """What memories say that differ from something: the explanation names them by their ids (`audit.fill`)."""
    attainable: float | None = None
    """The field of the same name of `pack.Efficiency`, as is `eta`."""


class SearchRequest(Struct, frozen=True):
    """`k`: most items; `token_budget`: most tokens of their texts together."""

    scope: Scope
    query: str
    now: datetime
    k: int | None = None
    token_budget: int | None = None
    tiers: Collection[int] | None = None
    kinds: Collection[str] | None = None
    profile: str = "auto"
    price: Price | None = None
    """What is found has to be worth its tokens, as in a prompt; None: the best, as much as is asked for."""
    inquiry: Inquiry | None = None
    """Only what the mentions mean is asked of it."""

    @property
    def only(self) -> int | None:
        """Whether only memories (1), or only raw turns (0), are asked for."""
        if self.tiers is not None or (self.kinds is not None and not RAW_KINDS & set(self.kinds)):
            return 1
        return 0 if self.kinds is not None and set(self.kinds) <= RAW_KINDS else None


class SearchResult(Struct, frozen=True):
    """The chosen items, best first, and what they cost. `statuses`: of items that are not in force. `widened`: by which
    procedures, and words, more was looked for."""

    items: Sequence[Scored]
    tokens: int
    statuses: Mapping[UUID, str] = field(default_factory=dict)
    widened: Sequence[tuple[UUID, Sequence[str]]] = ()
