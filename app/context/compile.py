"""The prefill compiler (seed 000 §6.4): budget, history, retrieval, packing, placement, and the account of it all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat
from math import ceil
from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from app.context.assemble import (
    FRAME_TOKENS,
    NOTE_TOKENS,
    SUMMARY_LABEL,
    Block,
    BlockMeter,
    Marks,
    neutralise,
    plan,
    render,
    session_nonce,
    states,
)
from app.context.audit import DIGITS, explain
from app.context.bearing import read
from app.context.budget import Budgets, allocate, available, classify
from app.context.candidates import Candidate
from app.context.facts_section import ENDED, learn, naming, shown, told_id
from app.context.later_words import NONE_SHOWN, LaterWordsShown, attach_later_words
from app.context.layout import (
    Finds,
    Layout,
    Layouts,
    Live,
    Reading,
    SuppliedHistory,
    TokenFigures,
    supply_history,
    visible_from,
)
from app.context.notes import (
    LEFT_OUT_TOKENS,
    NOTHING_SINCE,
    EndedSince,
    NoteLines,
    add_left_out_line,
    doubtful,
    habits_for,
    since_then,
)
from app.context.pack import UNDEFINED, Packed, PlainMeter, digest_room, efficiency, pack
from app.context.question import Asked, understand
from app.context.request import Compilation, CompileRequest, SearchRequest, SearchResult
from app.context.resolution import Inquiry
from app.context.retrieve import RAW_KINDS, NoVector, Retriever, Scope, Wanted
from app.context.score import PROFILES, STRATEGY, Profile, QuerySignals, Scored, of_things, score
from app.context.transcript import LONG_TEXT, RESULT_ROLES, SYSTEM_ROLES, Transcript, answer_text, query_of, text_of
from app.context.worth import PRICES, PROFILE_TOKENS, Rate
from app.languages import heard
from app.memory.candidate import Provenance
from app.providers.models import ModelRegistry
from app.providers.tokens import REPLY_TOKENS, STORED_COUNTS, CountCache, TokenCounter, Tokenizers, supplied_tokens
from app.sources import Price
from app.store.user_profile import Standing
from app.text_cache import of_texts

FILTERED = 8
"""How many times the budget is looked through where only some tiers or kinds are wanted."""
NOTES_COUNTED = 8192
"""Lines of notes whose counts are kept: those of some hundred users."""
DEFAULT_BUDGETS = Budgets()


class _Chosen(NamedTuple):
    """The content of a layout's block. `since`: the present values beside ended ones; `later`: the user's later words."""

    layout: Layout
    summary: str | None
    packed: Packed
    scored: Sequence[Scored] = ()
    since: EndedSince = NOTHING_SINCE
    later: LaterWordsShown = NONE_SHOWN


class Compiler:
    """Compiles prompts and answers searches by the same retrieval, scoring and packing."""

    def __init__(
        self,
        retriever: Retriever,
        models: ModelRegistry,
        tokenizers: Tokenizers,
        counts: CountCache,
        *,
        nonce_key: Callable[[], bytes],
        memory_cap: int,
        profiles: Mapping[str, Profile] = PROFILES,
        budgets: Budgets = DEFAULT_BUDGETS,
        questions: int = 1,
        vector_wait_s: float | None = None,
        price: Price = "balanced",
    ) -> None:
        """`memory_cap`: most tokens that memories take in one turn's block; `budgets`: the other sections. `nonce_key`: what
        keys the delimiters (up to 64 bytes). `questions`: most
        questions to the user in a turn. `vector_wait_s`: most seconds that a prompt waits for the question's vector, where the
        embedder is no local one; then words find alone. None: as long as it takes. `price`: of a token, in prompts that name
        none."""
        self._profiles = profiles
        self._retriever = retriever
        self._models = models
        self._tokenizers = tokenizers
        self._counts = counts
        self._nonce_key = nonce_key
        self._vector_wait_s = vector_wait_s
        self._price: Price = price
        note_tokens = of_texts(NOTES_COUNTED)(tokenizers.for_model(STORED_COUNTS).count)
        self._layouts = Layouts(memory_cap, budgets, questions, note_tokens, self._price)

    def _price_of(self, request: CompileRequest, profile: Profile) -> Rate | None:
        """Of this prompt; None where the profile knows no likelihoods, and fills what there is."""
        return PRICES[request.price or self._price] if profile.priced else None

    def _profile(self, name: str, asked: Asked) -> Profile:
        """The profile of that name; of `strategy`, the one that the question calls for."""
        profile = self._profiles[asked.strategy if name == STRATEGY else name]
        return of_things(profile) if asked.things else profile

    async def search(self, request: SearchRequest) -> SearchResult:
        """Memories and raw turns for a question, as the compiler would choose them."""
        asked = _named(understand(request.query, request.now), request.inquiry)
        profile = self._profile(request.profile, asked)
        budget = request.token_budget if request.token_budget is not None else self._layouts.cap
        filtered = request.tiers is not None or request.kinds is not None
        habits = habits_for(await self._retriever.habits(request.scope), asked)
        most = None if filtered else request.k
        price = PRICES[request.price] if request.price is not None and profile.priced else None
        tokens = budget * (FILTERED if filtered else 1)
        wanted = Wanted(tokens, most, request.only, " ".join(habits.further), habits.claims, price=price)
        retrieved = await self._retriever.candidates(asked, request.scope, wanted, profile)
        found, statuses = retrieved.candidates, retrieved.statuses
        if request.tiers is not None:
            found = [each for each in found if each.tier in request.tiers]
        if request.kinds is not None:
            kinds = {*request.kinds, *(("passage",) if RAW_KINDS & set(request.kinds) else ())}
            found = [each for each in found if each.kind in kinds]
        signals = QuerySignals.of(asked)
        if retrieved.asked is None:
            price = None
        scored = score(found, signals, profile, request.now, likely=price is not None)
        digests = None if filtered else digest_room(budget, asked.recap)  # who asks for summaries gets nothing else
        packed = pack(
            scored, budget, PlainMeter(), order=profile.order, limit=request.k, digests=digests,
            price=price,
        )  # fmt: skip
        return SearchResult(packed.chosen, packed.tokens, statuses, habits.words)

    async def compile(self, request: CompileRequest) -> Compilation:
        """The prompt of a request. Raises StoreUnavailable, Unavailable."""
        try:
            return await self._compile(request)
        finally:
            for beside in (request.inquiry, request.cards):
                if beside is not None:
                    beside.close()

    async def _compile(self, request: CompileRequest) -> Compilation:
        """The phases of seed 000 §6.4, each made of what those before it came to."""
        reading = await self._read(request)
        layout = self._layouts.of(reading, Finds())
        found = await self._find(reading, layout)
        bears = not found.retrieved.worths.keys().isdisjoint([each.memory for each in request.standing.facts])
        if found.learned is not None or found.cards is not None or bears:
            layout = self._layouts.of(reading, found)
        chosen = self._choose(reading, found, layout)
        if layout.spent and layout.live.rebased:
            kept = self._layouts.of(reading, found, anew=False)
            if not kept.needs(chosen.packed):  # nothing new is needed: what is there stays, byte for byte
                chosen = self._choose(reading, found, kept)
        return self._account(reading, found, self._attach_later(reading, found, self._since(reading, chosen)))

    async def _read(self, request: CompileRequest) -> Reading:
        """Phases 1 and 2: the budget, and the history."""
        await self._tokenizers.ready(request.model)
        counter = self._tokenizers.for_model(request.model)
        query = query_of(request.messages)
        asked = _named(understand(query, request.now), request.inquiry)
        if request.costs is None and sum(len(text_of(each)) for each in request.messages) > LONG_TEXT:
            figures = await asyncio.to_thread(self._figures, request, counter, query)
        else:
            figures = self._figures(request, counter, query)
        story = supply_history(request, figures, counter)
        profile, habits = self._profile(request.profile, asked), habits_for(request.standing, asked)
        return Reading(request, counter, query, asked, profile, figures, story, read(query), habits)

    def _figures(self, request: CompileRequest, counter: TokenCounter, query: str) -> TokenFigures:
        """Phase 1 of seed 000 §6.4. The counter has its margin in it; stored counts have none."""
        scale = 1.0 + counter.margin
        system, client = 0, REPLY_TOKENS
        roles, costs = request.transcript.roles, request.costs
        if costs is None:
            costs = list(map(self._counts.message, request.messages, repeat(counter), request.transcript.hashes))
        for count, role in zip(costs, roles, strict=True):
            if role in SYSTEM_ROLES:
                system += count
            else:
                client += count
        if request.system_prompt is not None:
            system += supplied_tokens(request.system_prompt_tokens, counter.count("system"), counter)
        schemas = sum(self._counts.tools(each, counter) for each in request.schemas if each)
        window = self._models.window(request.model)
        if request.window is not None:
            window = min(window, request.window)
        reserve = self._models.response_reserve(request.model, request.answer_limit)
        budget = available(window, system, reserve, schemas)
        results = sum(1 for role in roles[(request.transcript.last_user() or 0) :] if role in RESULT_ROLES)
        task = classify(
            query,
            new_session=request.new_session,
            has_tools=request.has_tools,
            last_role=roles[-1] if roles else None,
            tool_results=results,
        )
        split = allocate(budget, task, self._layouts.budgets.history)
        return TokenFigures(window, system, reserve, schemas, budget, client, task, split, scale)

    async def _find(self, reading: Reading, layout: Layout) -> Finds:
        """Phase 3: candidates, and beside the search what is known of the things that the question names, and the cards that it
        asks for."""
        request, habits, inquiry = reading.request, reading.habits, reading.request.inquiry
        if inquiry is not None and not layout.blocked:
            inquiry.begin(habits.further, habits.rows)
        retrieved, reason = Finds().retrieved, None
        fact_memories = [fact.memory for fact in layout.opened.facts if fact.memory is not None]
        if not layout.room and fact_memories and request.search:  # the facts say all that is asked for
            later = await self._retriever.find_later(request.scope, fact_memories)
            retrieved = retrieved._replace(later=later) if later else retrieved
        lists_all = reading.topics.whole and layout.room > 0 and request.search
        if lists_all:
            retrieved = await self._retriever.list_statements(_build_scope(request, reading), fact_memories)
        if layout.room > 0 and reading.asked.text and request.search and not retrieved.candidates:
            scope = replace(_build_scope(request, reading), history=reading.topics.past)
            sought = Wanted(
                layout.room,
                further=" ".join(habits.further),
                claims=habits.claims,
                price=self._price_of(request, reading.profile),
                bears=bool(layout.opened.facts),
                wait_s=self._vector_wait_s,
                fact_memories=fact_memories,
            )
            if inquiry is not None:
                sought = sought._replace(related=lambda: inquiry.related)
            try:
                retrieved = await self._retriever.candidates(reading.asked, scope, sought, reading.profile)
            except NoVector:
                retrieved = await self._retriever.candidates(
                    reading.asked, scope, sought._replace(wait_s=0), reading.profile
                )
                reason = "embeddings"
        cards = await request.cards.cards() if request.cards is not None and not layout.blocked else None
        if request.cards is not None and cards is None and not layout.blocked:
            reason = reason or "cards"
        if inquiry is None:
            return Finds(retrieved, reason, None, cards)
        memories = [item.id for item in retrieved.candidates if item.source == "memory"]
        learned = await learn(inquiry, request.scope.user_id, [*fact_memories, *memories])
        return Finds(retrieved, reason or learned.known.reason, learned, cards)

    def _choose(self, reading: Reading, found: Finds, layout: Layout) -> _Chosen:
        """Phase 3: scores, and the greedy choice within the room."""
        request, asked, counter, profile = reading.request, reading.asked, reading.counter, reading.profile
        room, items, learned = layout.shares.memories, found.retrieved.candidates, found.learned
        summary = _summary(request, reading.story, layout.live, room, counter)
        marks = _marks(items, asked, request.standing)
        meter = BlockMeter(counter.count, summary, request.summary_tokens if summary else 0, marks)
        if layout.room <= 0 or not asked.text or not request.search:
            return _Chosen(layout, summary, Packed((), (), meter.used))
        related = learned.known.related if learned is not None else frozenset[str]()
        price = self._price_of(request, profile) if found.retrieved.asked else None
        scored = score(items, QuerySignals.of(asked, related), profile, request.now, likely=price is not None)
        order = profile.order
        if found.retrieved.unlisted_count is not None:  # the order of the list is the order of importance
            scored = [item._replace(score=float(len(scored) - number)) for number, item in enumerate(scored)]
            order = "score"
            room = min(room, PROFILE_TOKENS[request.price or self._price] - layout.shares.facts) - LEFT_OUT_TOKENS
        visible, opened, own = shown(layout.live.blocks), layout.opened, request.scope.session
        # Of its own session the prompt has the turns, and the summary of those that it leaves out (`_summary`).
        visible.update([each.id for each in items if each.session_id == own and each.of_session])
        if opened.memories or opened.messages:  # a fact and its message are one
            fuller = opened.find_fuller_messages(items)
            visible.update([item.id for item in items if opened.said_by(item) and item.id not in fuller])
        packed = pack(
            scored,
            int((room - (NOTE_TOKENS if layout.notes else 0)) / (1.0 + counter.margin)),
            meter,
            order=order,
            visible=visible,
            visible_hashes=_standing_there(items, [*request.messages, *reading.story.messages]),
            suppressed=request.gone,
            outranked=learned.outranked if learned is not None else (),
            digests=digest_room(room, asked.recap),
            price=price,
            told=layout.lines,
        )
        return _Chosen(layout, summary, packed, scored)

    def _since(self, reading: Reading, chosen: _Chosen) -> _Chosen:
        """What was chosen, with what is so since where it says what is so no more."""
        scale, packed = reading.figures.scale, chosen.packed
        ended = doubtful(packed, reading.topics.past)
        if not ended:
            return chosen
        left = chosen.layout.shares.memories - ceil(packed.tokens * scale)
        packed, since = since_then(packed, ended, left, self._layouts.counted(scale))
        return chosen._replace(packed=packed, since=since)

    def _attach_later(self, reading: Reading, found: Finds, chosen: _Chosen) -> _Chosen:
        """Quote the user's later own words in the lines that they concern, or leave those lines out."""
        later, layout = found.retrieved.later, chosen.layout
        if not later or layout.blocked:
            return chosen
        scale, visible = reading.figures.scale, shown(layout.live.blocks)
        room = layout.shares.memories - ceil(chosen.packed.tokens * scale) - chosen.since.tokens
        packed, words = attach_later_words(
            chosen.packed,
            layout.opened.facts,
            later,
            {*visible, *reading.request.gone},
            room,
            self._layouts.counted(scale),
            asks_about_user=heard(reading.query).first_person,
        )
        return chosen._replace(packed=packed, later=words)

    def _write(self, reading: Reading, found: Finds, chosen: _Chosen) -> tuple[Block | None, NoteLines, dict[str, Any]]:
        """Phase 4: the block, the lines in it beside memories, and what the account tells of what is known."""
        request, packed, scale = reading.request, chosen.packed, reading.figures.scale
        later = chosen.later
        lines, account = self._layouts.say(reading, found.learned, chosen.layout, packed, later)
        if (unlisted_count := found.retrieved.unlisted_count) is not None:
            add_left_out_line(lines, packed, unlisted_count, self._layouts.counted(scale))
        items = [each.candidate for each in packed.chosen]
        deeds = [each.sentence for each in request.deeds]
        text = render(
            session_nonce(self._nonce_key(), request.session_id),
            items,
            chosen.summary,
            deeds=deeds,
            wishes=lines.wishes,
            about=lines.about,
            before=lines.before,
            after=lines.after,
            marks=_marks(items, reading.asked, request.standing)._replace(
                ended=_join_words(chosen.since.words, later.words)
            ),
        )
        lines.tokens += ceil(sum(map(reading.counter.count, deeds)) * scale)
        lines.tokens += later.tokens
        lines.ids += [*later.messages, *(item for deed in request.deeds for item, _ in deed.items)]
        return _block(text, chosen, lines, reading.story.transcript, scale) if text else None, lines, account

    def _account(self, reading: Reading, found: Finds, chosen: _Chosen) -> Compilation:
        """The block, and the account of it all."""
        block, said, known = self._write(reading, found, chosen)
        request, figures, story, learned = reading.request, reading.figures, reading.story, found.learned
        packed, live, room = chosen.packed, chosen.layout.live, chosen.layout.shares.memories
        eta = UNDEFINED
        if chosen.scored or found.retrieved.beyond:
            worthy = packed.afforded if found.retrieved.asked else None
            eta = efficiency(packed.chosen, packed.eligible, room, packed.tokens, worthy, found.retrieved.beyond)
        tokens = story.tokens + live.tokens + (block.token_count if block else 0)
        explained = explain(
            packed,
            eta,
            {
                "status": "degraded" if found.reason else "ok",
                "reason": found.reason,
                "budget": figures.report() | {"memory": room, "live": live.tokens, "history": story.tokens},
                "task": figures.task,
                "strategy": reading.profile.name,
                "placement": request.placement,
                "rebased": live.rebased,
                "live_blocks": len(live.blocks),
                "tokens": tokens,
                "sections": said.account
                | {
                    "memories": {"budget": room, "tokens": packed.tokens + chosen.since.tokens},
                    "history": {"budget": figures.split.history, "tokens": story.tokens},
                    "tools": {"budget": figures.split.tools, "tokens": figures.tools},
                },
                "widened": [{"procedure": each, "words": words} for each, words in reading.habits.words],
                "history": _report(request, figures, story, chosen.summary),
            }
            | _report_later(chosen.later)
            | known
            | _report_in_prompt(found.retrieved.in_prompt),
        )
        considered = [each.candidate for each in chosen.scored]
        return Compilation(
            edits=plan(request.placement, story.transcript, live.blocks, block),
            history=story.messages,
            lead=story.lead,
            new_block=block,
            epoch=live.epoch,
            memories=len(packed.chosen),
            tokens=tokens,
            budget=figures.available,
            eta=eta.eta,
            attainable=eta.attainable,
            audit=explained,
            reason=found.reason,
            considered=considered,
            claimed=learned.values if learned is not None else {},
        )


def _build_scope(request: CompileRequest, reading: Reading) -> Scope:
    """Return the scope to search, with the turn from which the prompt has the session."""
    return replace(request.scope, visible_from=visible_from(request, reading.story)) if request.path else request.scope


def _report_in_prompt(memories: Sequence[tuple[UUID, float]]) -> dict[str, Any]:
    """Return the account's entry for memories whose own messages are in the prompt; empty if there are none."""
    return {"in_prompt": [[str(memory), round(p, DIGITS)] for memory, p in memories]} if memories else {}


def _report_later(later: LaterWordsShown) -> dict[str, Any]:
    """Return the account's entry for the user's later words; empty where there are none."""
    if later is NONE_SHOWN:
        return {}
    return {
        "later": {
            "messages": list(map(str, later.messages)),
            "left_out": list(map(str, later.left_out)),
            "tokens": later.tokens,
        }
    }


def _join_words(ended: Mapping[UUID, str], later: Mapping[UUID, str]) -> Mapping[UUID, str]:
    """Return the texts behind items by their ids; an item may have both texts."""
    return {item: ended.get(item, "") + later.get(item, "") for item in {**ended, **later}} if later else ended


def _named(asked: Asked, inquiry: Inquiry | None) -> Asked:
    return naming(asked, inquiry.resolutions) if inquiry is not None else asked


def _marks(items: Sequence[Candidate], asked: Asked, standing: Standing) -> Marks:
    """`sure`: memories of what the question names (seed 004, stage 4); of others that would cost tokens alone. `since`: as
    the fact knows it that a memory stands behind; what corrected something is so since it was said."""
    sure: set[UUID] = set()
    if asked.things:
        names = frozenset(asked.things).union(*asked.things.values())
        sure = {each.id for each in items if each.source == "memory" and not names.isdisjoint(each.entity_ids)}
    since = {each.id: each.created_at for each in items if each.provenance_type == Provenance.CORRECTION}
    since |= {each.memory: each.since for each in standing.facts if each.memory is not None and each.since is not None}
    return Marks(sure, since, doubted=standing.doubted)


def _summary(
    request: CompileRequest, story: SuppliedHistory, live: Live, room: int, counter: TokenCounter
) -> str | None:
    """The session's summary, where history was left out, it fits, and no earlier block has it."""
    if not request.summary or not story.cut:
        return None
    line = SUMMARY_LABEL + neutralise(request.summary)
    if any(line in block.text for block in live.blocks):
        return None
    cost = BlockMeter(counter.count, request.summary, request.summary_tokens).used * (1.0 + counter.margin)
    return request.summary if cost <= room else None


def _standing_there(items: Sequence[Candidate], prompt: Iterable[Mapping[str, Any]]) -> Collection[bytes]:
    """Hashes of the messages whose text, or passage, stands in the prompt already, wherever else it was stored."""
    texts = {text for message in prompt if (text := answer_text(message).strip())}
    messages = [item for item in items if item.source == "message"]
    whole = [item.content_hash for item in messages if item.span is None and item.text.strip() in texts]
    joined = "\0".join(texts)  # no text contains NUL, which Postgres refuses
    return {*whole, *[item.content_hash for item in messages if item.span is not None and item.text in joined]}


def _block(text: str, chosen: _Chosen, said: NoteLines, full: Transcript, scale: float) -> Block:
    packed, since, last = chosen.packed, chosen.since, full.last_user()
    anchor = full.chains[last] if last is not None else None
    hashed = full.hashes[last] if last is not None else None
    note = NOTE_TOKENS if said.before and not chosen.summary and all(map(states, packed.candidates)) else 0
    old = {each.memory for each in since.used}
    ids = [each.candidate.id for each in packed.chosen if each.candidate.id not in old]
    # What they say goes with the block when it is forgotten, but that it is in force no more is what the line says (`shown`).
    behind = [told_id("ended", "", ENDED), *old] if old else []
    heirs = [each.heir for each in since.used if each.heir is not None]
    items = tuple(dict.fromkeys([*ids, *heirs, *said.ids, *behind]))
    spaces = {
        each.candidate.id: each.candidate.space_id for each in packed.chosen if each.candidate.space_id is not None
    }
    spaces |= {each.heir: spaces[each.item] for each in since.used if each.heir is not None and each.item in spaces}
    return Block(
        anchor=anchor or b"",
        message_hash=hashed or b"",
        message_id=None,
        text=text,
        item_ids=items,
        item_spaces=tuple(map(spaces.get, items)) if spaces else (),
        token_count=ceil(((packed.tokens or FRAME_TOKENS) + note) * scale) + said.tokens + since.tokens,
    )


def _report(
    request: CompileRequest, figures: TokenFigures, story: SuppliedHistory, summary: str | None
) -> dict[str, Any]:
    """What became of the session's earlier messages. `source`: who sent them. Tokens are stored counts."""
    server = request.server_managed
    supplied = len(story.messages) - int(request.system_prompt is not None)
    return {
        "source": "server" if server else "client" if story.transcript.answered else "none",
        "messages": supplied if server else len(request.messages),
        "tokens": story.tokens if server else figures.client,
        "dropped": len(request.path) - supplied,
        "first_kept": story.first,
        "summary": summary is not None,
    }
