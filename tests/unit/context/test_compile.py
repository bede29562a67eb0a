from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.context import compile as compiling
from app.context.assemble import FRAME_TOKENS, NOTE, SEPARATOR, AppendTo, Block, InsertMessage, Prepend
from app.context.audit import expand
from app.context.budget import Budgets
from app.context.candidates import Candidate
from app.context.compile import DEFAULT_BUDGETS, Compiler
from app.context.notes import LEFT_OUT_LINE
from app.context.question import Asked
from app.context.request import Compilation, CompileRequest, PathMessage, SearchRequest
from app.context.retrieve import NoVector, Retrieved, Scope, Wanted
from app.context.score import Profile
from app.context.transcript import Transcript, canonical, chain, message_hash
from app.context.worth import PRICES, PROFILE_TOKENS
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache, message_tokens, prompt_tokens
from app.sources import Price
from app.store.user_profile import NOTHING, Procedure, Standing, StandingFact
from tests.support.context_samples import NOW, memory, message, source
from tests.support.journey import TOKENIZERS
from tests.support.properties import examples
from tests.support.tables import each_of

SESSION = UUID(int=77)
CAP = 300
Message = dict[str, Any]


class Found:
    """A retriever that finds these."""

    def __init__(self, *candidates: Candidate, listed: Retrieved | None = None) -> None:
        self.candidates_given = list(candidates)
        self.listed = listed or Retrieved([], {})
        self.standing = NOTHING
        self.asked: list[tuple[Asked, Scope, Wanted]] = []

    async def habits(self, scope: Scope) -> Standing:
        return self.standing

    async def candidates(self, asked: Asked, scope: Scope, wanted: Wanted, profile: Profile) -> Retrieved:
        self.asked.append((asked, scope, wanted))
        return Retrieved(self.candidates_given, {UUID(int=1): "superseded"})

    async def list_statements(self, scope: Scope, fact_memories: Sequence[UUID]) -> Retrieved:
        return self.listed


def compiler(
    found: Found | None = None,
    windows: dict[str, int] | None = None,
    cap: int = CAP,
    wait_s: float | None = None,
    budgets: Budgets = DEFAULT_BUDGETS,
) -> Compiler:
    return Compiler(
        found or Found(),  # type: ignore[arg-type]  # all it needs of a retriever
        ModelRegistry(windows=windows or {"gpt-4o": 8000}, default_response=100),
        TOKENIZERS,
        CountCache(),
        nonce_key=lambda: b"key",
        memory_cap=cap,
        vector_wait_s=wait_s,
        budgets=budgets,
    )


def said(role: str, content: Any) -> Message:
    return {"role": role, "content": content}


def request(messages: Sequence[Message] = (said("user", "What is number 5?"),), **given: Any) -> CompileRequest:
    plain: dict[str, Any] = {
        "scope": Scope(UUID(int=1), UUID(int=2), session=SESSION),
        "session_id": SESSION,
        "new_session": False,
        "messages": messages,
        "transcript": Transcript.of(messages),
        "model": "gpt-4o",
        "now": NOW,
        "placement": "tail",
    }
    return CompileRequest(**plain | given)


def hash_of(given: Message) -> bytes:
    form = canonical(given)
    assert form is not None
    return message_hash(form)


def path_of(messages: Sequence[Message], tokens: int = 10, begin: int = 1) -> list[PathMessage]:
    return [PathMessage(each, tokens, hash_of(each), n) for n, each in enumerate(messages, begin)]


def shown(compiled: Compilation, asked: CompileRequest) -> list[Message]:
    """The prompt as the upstream gets it."""
    lead = compiled.lead
    messages = [dict(each) for each in (*asked.messages[:lead], *compiled.history, *asked.messages[lead:])]
    for edit in compiled.edits:
        if isinstance(edit, InsertMessage):
            messages.insert(edit.index, said(edit.role, edit.text))
        else:
            content = str(messages[edit.message_index]["content"] or "")
            messages[edit.message_index]["content"] = (
                edit.text + content if isinstance(edit, Prepend) else content + edit.text
            )
    return messages


FACTS = [memory(n, f"Number {n} is lucky", similarity=n / 20, near_vector=n / 8, token_count=5) for n in range(1, 9)]


# --- the block ------------------------------------------------------------------------------------------------------------


async def test_what_was_found_goes_before_the_question() -> None:
    found = Found(*FACTS)
    asked = request()
    compiled = await compiler(found).compile(asked)
    (edit,) = compiled.edits
    assert isinstance(edit, Prepend)
    assert edit.message_index == 0
    assert "Number 8 is lucky" in edit.text
    assert edit.text.endswith(SEPARATOR)
    block = compiled.new_block
    assert block is not None
    assert block.text + SEPARATOR == edit.text
    assert block.anchor == asked.transcript.chains[0]
    assert (compiled.memories, compiled.tokens) == (8, block.token_count)
    assert set(block.item_ids) == {each.id for each in FACTS}
    assert found.asked[0][0].text == "What is number 5?"
    assert found.asked[0][2] == Wanted(compiled.audit["budget"]["memory"], price=PRICES["balanced"], fact_memories=[])
    assert [each.id for each in compiled.considered] == [UUID(int=n) for n in range(8, 0, -1)]


async def test_nothing_found_adds_nothing() -> None:
    compiled = await compiler().compile(request())
    assert (compiled.edits, compiled.new_block, compiled.tokens) == ([], None, 0)
    assert (compiled.eta, compiled.attainable) == (None, None), "there is nothing to measure"


class Vectorless(Found):
    """Has nothing to find by vectors with."""

    async def candidates(self, asked: Asked, scope: Scope, wanted: Wanted, profile: Profile) -> Retrieved:
        found = await super().candidates(asked, scope, wanted, profile)
        if wanted.wait_s != 0:
            raise NoVector("away")
        return found


async def test_without_a_vector_of_the_question_words_find() -> None:
    found = Vectorless(*FACTS)
    compiled = await compiler(found, wait_s=0.03).compile(request())
    assert [wanted.wait_s for _, _, wanted in found.asked] == [0.03, 0]
    assert compiled.memories == 8
    assert compiled.reason == "embeddings"
    assert (compiled.audit["status"], compiled.audit["reason"]) == ("degraded", "embeddings")
    with pytest.raises(NoVector):  # whoever searches can wait, and is told
        await compiler(found).search(search())


async def test_without_words_nothing_is_looked_for() -> None:
    found = Found(*FACTS)
    picture = [{"type": "image_url", "image_url": {"url": "u"}}]
    compiled = await compiler(found).compile(request([said("user", picture)]))
    assert (found.asked, compiled.edits) == ([], [])


@each_of("content", ["I said so: Number 5 is lucky", [{"type": "text", "text": "Tea, please"}]])
async def test_what_stands_in_the_prompt_is_not_quoted_again(content: Any) -> None:
    words = "Tea, please" if isinstance(content, list) else content
    found = Found(message(50, words, similarity=0.9), message(51, "Coffee, please", similarity=0.8))
    messages = [said("user", content), said("assistant", "Fine"), said("user", "What do I drink?")]
    compiled = await compiler(found).compile(request(messages))
    assert compiled.new_block is not None
    assert "Coffee" in compiled.new_block.text
    assert words not in compiled.new_block.text


async def test_the_account_says_what_became_of_each() -> None:
    compiled = await compiler(Found(*FACTS), cap=80).compile(request())
    audit = compiled.audit
    assert audit["tokens"] == compiled.tokens
    assert audit["counts"]["chosen"] == compiled.memories < 8
    assert audit["counts"]["over_budget"] == 8 - compiled.memories
    assert audit["budget"]["memory"] == 80
    assert audit["budget"]["available"] == compiled.budget
    assert audit["history"]["source"] == "none"
    chosen = sum(item["token_count"] for item in expand(audit)["items"] if item["chosen"])
    assert audit["eta"]["fill"] == pytest.approx(chosen / 80, abs=1e-4)
    assert compiled.eta == pytest.approx(audit["eta"]["quality"] * audit["eta"]["fill"], abs=1e-3)
    assert compiled.attainable == pytest.approx(audit["eta"]["attainable"], abs=1e-4)


# --- the budget -----------------------------------------------------------------------------------------------------------


@examples(60)
@given(
    st.integers(150, 900),
    st.integers(0, 120),
    st.lists(st.integers(1, 60), max_size=12),
    st.sampled_from(["tail", "system", "second_system"]),
    st.sampled_from(["gpt-4o", "llama"]),
    st.integers(0, 8),
)
@example(180, 2, [], "tail", "llama", 2)  # a token too little for every role, and for every share that was rounded down
@example(150, 34, [], "tail", "llama", 1)
async def test_the_prompt_never_exceeds_the_budget_by_what_was_added(
    window: int, words: int, sizes: list[int], placement: Any, model: str, turns: int
) -> None:
    counter = TOKENIZERS.for_model(model)
    stored = TOKENIZERS.for_model("gpt-4o")
    items = [
        memory(n, text, similarity=1 / n, token_count=stored.count(text))
        for n, size in enumerate(sizes, 1)
        if (text := f"fact {n} " * size)
    ]
    past = [said(role, f"{role} {n} " * 9) for n in range(turns) for role in ("user", "assistant")]
    path = [PathMessage(each, stored.count(each["content"]), hash_of(each), n) for n, each in enumerate(past, 1)]
    own = [said("user", "question " * words + "What is fact 1?")]
    asked = request(
        own, placement=placement, model=model, answer_limit=40, path=path, server_managed=True, system_prompt="Be kind.",
        system_prompt_tokens=stored.count("Be kind."),
    )  # fmt: skip
    compiled = await compiler(Found(*items), {model: window}).compile(asked)
    spent = prompt_tokens(shown(compiled, asked), counter)
    alone = prompt_tokens([said("system", "Be kind."), *own], counter)
    assert spent <= max(window - 40, alone)


async def test_a_margin_is_taken_once() -> None:
    counter = TOKENIZERS.for_model("llama")
    asked = request(
        [said("system", "S " * 50), said("user", "word " * 100)], model="llama", schemas=[[{"a": "b " * 30}]]
    )
    audit = (await compiler(windows={"llama": 8000}).compile(asked)).audit
    assert audit["budget"]["client"] == message_tokens(asked.messages[1], counter) + 3
    assert audit["budget"]["system"] == message_tokens(asked.messages[0], counter)
    assert 30 < audit["budget"]["tools"] < 100


async def test_a_full_window_gets_nothing() -> None:
    found = Found(*FACTS)
    compiled = await compiler(found, {"gpt-4o": 200}).compile(request([said("user", "number " * 150)]))
    assert (compiled.edits, compiled.memories, found.asked) == ([], 0, [])


async def test_schemas_and_the_reserve_take_their_room() -> None:
    plain = await compiler().compile(request())
    schemas = await compiler().compile(request(schemas=[[{"name": "f", "description": "x " * 50}], {"type": "json"}]))
    limited = await compiler().compile(request(answer_limit=1100))
    assert plain.budget - schemas.budget > 50
    assert plain.budget - limited.budget == 1000


async def test_a_prompt_that_is_shown_shorter_has_the_room_of_what_it_is() -> None:
    """Its costs come with it, and what prompt and answer may take together can be less than the window."""
    messages = [said("system", "s"), said("user", "number " * 7800), said("user", "What is number 5?")]
    whole = await compiler(Found(*FACTS)).compile(request(messages))
    assert whole.memories == 0, "it has no room"
    shown = await compiler(Found(*FACTS)).compile(request(messages, costs=[40, 60, 9]))
    assert shown.memories > 0
    assert (shown.audit["budget"]["system"], shown.audit["budget"]["client"]) == (40, 60 + 9 + 3)
    less = await compiler(Found(*FACTS)).compile(request(messages, costs=[40, 60, 9], window=1100))
    assert (less.audit["budget"]["window"], less.budget) == (1100, 1100 - 100 - 40)
    more = await compiler(Found(*FACTS)).compile(request(messages, costs=[40, 60, 9], window=99_000))
    assert more.budget == shown.budget, "never more than the model has"


async def test_long_requests_are_counted_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    real = Compiler._figures

    def watching(self: Compiler, *arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return real(self, *arguments)

    monkeypatch.setattr(Compiler, "_figures", watching)
    monkeypatch.setattr(compiling, "LONG_TEXT", 100)
    await compiler().compile(request())
    await compiler().compile(request([said("user", "x" * 101)]))
    assert threads[0] == threading.get_ident() != threads[1]


# --- history ----------------------------------------------------------------------------------------------------------------

PAST = [said("user", "q1"), said("assistant", "a1"), said("user", "q2"), said("assistant", "a2")]
NEW = [said("user", "q3, and number 5?")]


async def test_the_history_is_supplied_behind_the_system_messages() -> None:
    asked = request([said("system", "S"), *NEW], path=path_of(PAST), server_managed=True)
    compiled = await compiler().compile(asked)
    assert shown(compiled, asked) == [said("system", "S"), *PAST, *NEW]
    assert compiled.lead == 1
    assert compiled.tokens == compiled.audit["budget"]["history"] > 40, "with what stands around each message"
    assert compiled.audit["history"] == {
        "source": "server", "messages": 4, "tokens": compiled.tokens, "dropped": 0, "first_kept": 0, "summary": False,
    }  # fmt: skip


async def test_the_first_turn_and_a_suffix_are_kept_where_not_all_fits() -> None:
    past = [each for n in range(40) for each in (said("user", f"q{n}"), said("assistant", f"a{n}"))]
    found = Found(*FACTS)
    asked = request(NEW, path=path_of(past, tokens=50), server_managed=True)
    compiled = await compiler(found, {"gpt-4o": 1500}).compile(asked)
    kept = [each["content"] for each in compiled.history]
    assert kept[:2] == ["q0", "a0"]
    assert kept[-1] == "a39"
    assert kept[2].startswith("q")
    assert 4 < len(kept) < 40
    first = int(kept[2][1:])
    assert found.asked[0][1].visible_from == 2 * first + 1, "what was left out may be found again"
    assert compiled.audit["history"]["dropped"] == 80 - len(kept)


async def test_what_was_not_even_read_may_be_found_again() -> None:
    path = [*path_of(PAST[:2]), *path_of(PAST, begin=101)]
    found = Found(*FACTS)
    await compiler(found).compile(request(NEW, path=path, path_complete=False, server_managed=True))
    assert found.asked[0][1].visible_from == 101
    await compiler(found).compile(request(NEW, path=path_of(PAST, begin=101), server_managed=True))
    assert found.asked[1][1].visible_from == 101


async def test_pictures_in_the_history_have_their_price() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "u"}}]
    plain = await compiler().compile(request(NEW, path=path_of(PAST), server_managed=True))
    picture = await compiler().compile(
        request(NEW, path=path_of([said("user", parts), *PAST[1:]]), server_managed=True)
    )
    assert picture.tokens - plain.tokens > 1000


async def test_what_is_supplied_is_where_the_blocks_belong() -> None:
    """Anchors are chain hashes of the whole conversation, whoever sends it."""
    client = Transcript.of([*PAST, *NEW])
    block = Block(client.chains[2] or b"", b"", UUID(int=5), "<old>", (), 9)
    whole = await compiler().compile(request([*PAST, *NEW], blocks=[block]))
    start = chain([hash_of(each) for each in PAST])[-1]
    supplied = await compiler().compile(
        request(NEW, path=path_of(PAST), server_managed=True, start_chain=start, blocks=[block])
    )
    assert list(whole.edits) == list(supplied.edits) == [Prepend(2, "<old>" + SEPARATOR)]
    found = await compiler(Found(*FACTS)).compile(
        request(NEW, path=path_of(PAST), server_managed=True, start_chain=start)
    )
    assert found.new_block is not None
    assert found.new_block.anchor == client.chains[4]


async def test_a_summary_is_told_once_and_only_where_something_is_missing() -> None:
    past = [each for n in range(40) for each in (said("user", f"q{n}"), said("assistant", f"a{n}"))]
    long = {
        "path": path_of(past, tokens=50),
        "server_managed": True,
        "summary": "They met in Rome.",
        "summary_tokens": 5,
    }
    small = compiler(windows={"gpt-4o": 1500})
    told = await small.compile(request(NEW, **long))
    assert told.new_block is not None
    assert "They met in Rome." in told.new_block.text
    assert told.audit["history"]["summary"]
    start = chain([hash_of(each) for each in past])[-1]
    block = replace(told.new_block, anchor=b"elsewhere", message_hash=hash_of(past[-2]), token_count=40)
    again = await small.compile(request(NEW, **long, blocks=[block], start_chain=start))
    assert again.new_block is None
    short = await compiler().compile(request(NEW, **{**long, "path": path_of(PAST)}))
    assert short.new_block is None


async def test_the_summary_of_the_session_itself_is_no_memory_of_its_prompt() -> None:
    given = {"kind": "summary", "token_count": 20, "near_vector": 1.0}
    own = memory(1, "They met in Rome", session_id=SESSION, **given)
    other = memory(2, "They parted in Oslo", session_id=UUID(int=78), **given)
    compiled = await compiler(Found(own, other)).compile(request((said("user", "What did we talk about?"),)))
    assert compiled.new_block is not None
    assert "Oslo" in compiled.new_block.text
    assert "Rome" not in compiled.new_block.text
    told = {each["id"]: each for each in expand(compiled.audit)["items"]}
    assert (told[str(own.id)]["chosen"], told[str(own.id)]["reason"]) == (False, "visible")
    assert told[str(other.id)]["chosen"]
    assert told[str(other.id)]["signals"]["recap"] == 1.0
    assert told[str(other.id)]["signals"]["digest"] == 0.0


async def test_summaries_take_a_third_of_a_block_and_two_where_they_are_asked_for() -> None:
    found = [
        memory(n, f"Summary number {n}", kind="summary", session_id=UUID(int=80 + n), token_count=50, near_text=1.0)
        for n in range(1, 7)
    ]
    for question, many in (("Where is Rome?", 2), ("What did we talk about in May?", 4)):
        result = await compiler(Found(*found)).search(search(query=question, token_budget=310))
        assert len(result.items) == many, question
    # Who wants summaries gets them.
    result = await compiler(Found(*found)).search(search(query="Where is Rome?", token_budget=310, kinds=["summary"]))
    assert len(result.items) == 6


# --- blocks of earlier turns ------------------------------------------------------------------------------------------------

TALK = [said("user", "q1"), said("assistant", "a1"), said("user", "q2, number 5?")]


def block_at(messages: Sequence[Message], index: int, tokens: int = 50, *items: int) -> Block:
    transcript = Transcript.of(messages)
    return Block(
        transcript.chains[index] or b"", transcript.hashes[index] or b"", UUID(int=index), f"<block {index}>",
        tuple(UUID(int=n) for n in items), tokens,
    )  # fmt: skip


async def test_blocks_are_emitted_again_and_what_they_hold_is_not_repeated() -> None:
    asked = request(TALK, blocks=[block_at(TALK, 0, 50, 8, 7)], block_epoch=3)
    compiled = await compiler(Found(*FACTS)).compile(asked)
    first, second = compiled.edits
    assert first == Prepend(0, "<block 0>" + SEPARATOR)
    assert isinstance(second, Prepend)
    assert "Number 6" in second.text
    assert "Number 8" not in second.text
    assert compiled.epoch == 3
    assert compiled.new_block is not None
    assert compiled.tokens == 50 + compiled.new_block.token_count
    assert (compiled.audit["live_blocks"], compiled.audit["rebased"]) == (1, None)


async def test_forgetting_begins_a_new_epoch() -> None:
    asked = request(TALK, blocks=[block_at(TALK, 0, 50, 8, 7)], block_epoch=3, gone=[UUID(int=8)])
    compiled = await compiler(Found(*FACTS)).compile(asked)
    (edit,) = compiled.edits
    assert isinstance(edit, Prepend)
    assert edit.message_index == 2
    assert "Number 7" in edit.text
    assert "Number 8" not in edit.text
    assert (compiled.epoch, compiled.audit["rebased"]) == (4, "items_gone")


async def test_a_spent_budget_begins_a_new_epoch() -> None:
    asked = request(TALK, blocks=[block_at(TALK, 0, 8 * CAP + 1)], block_epoch=0)
    compiled = await compiler(Found(*FACTS)).compile(asked)
    assert (compiled.epoch, compiled.audit["rebased"]) == (1, "budget_spent")
    assert len(compiled.edits) == 1


async def test_what_needs_nothing_leaves_a_spent_budget_as_it_is() -> None:
    """Forgetting rebases, and a need for what does not fit any more; talk does not."""
    spent = block_at(TALK, 0, 8 * CAP - 10, *(each.id.int for each in FACTS))
    compiled = await compiler(Found(*FACTS)).compile(request(TALK, blocks=[spent], block_epoch=3))
    assert (list(compiled.edits), compiled.new_block) == ([Prepend(0, "<block 0>" + SEPARATOR)], None)
    assert (compiled.epoch, compiled.audit["rebased"]) == (3, None)
    more = await compiler(Found(*FACTS, memory(9, "Number 9 is new"))).compile(request(TALK, blocks=[spent]))
    assert (more.epoch, more.audit["rebased"]) == (1, "budget_spent")


LOOP = [*TALK, {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]}]
LOOP = [*LOOP, {"role": "tool", "tool_call_id": "c", "content": "r"}]


async def test_in_a_tool_loop_the_prompt_stays_as_it_is() -> None:
    block = block_at(LOOP, 2, 8 * CAP + 1)
    compiled = await compiler(Found(*FACTS)).compile(request(LOOP, blocks=[block]))
    assert list(compiled.edits) == [Prepend(2, "<block 2>" + SEPARATOR)]
    assert (compiled.new_block, compiled.epoch) == (None, 0)
    none = await compiler(Found(*FACTS)).compile(request(LOOP))
    assert none.edits == []
    gone = await compiler().compile(request(LOOP, blocks=[block_at(LOOP, 2, 5, 1)], gone=[UUID(int=1)]))
    assert (gone.edits, gone.epoch) == ([], 1), "but forgetting goes first"


async def test_a_loop_that_is_first_seen_gets_its_context() -> None:
    compiled = await compiler(Found(*FACTS)).compile(request(LOOP, new_session=True))
    assert [each.message_index for each in compiled.edits if isinstance(each, Prepend)] == [2]


async def test_a_question_keeps_the_block_that_it_has() -> None:
    block = block_at(TALK, 2)
    compiled = await compiler(Found(*FACTS)).compile(request(TALK, blocks=[block]))
    assert list(compiled.edits) == [Prepend(2, "<block 2>" + SEPARATOR)]
    assert compiled.new_block is None


async def test_without_a_user_message_there_is_no_place() -> None:
    compiled = await compiler(Found(*FACTS)).compile(request([said("system", "S"), said("assistant", "a")]))
    assert compiled.edits == []


@each_of("placement", ["system", "second_system"])
async def test_other_placements_have_all_in_one_block_each_time(placement: Any) -> None:
    messages = [said("system", "S"), *TALK]
    compiled = await compiler(Found(*FACTS)).compile(
        request(messages, placement=placement, blocks=[block_at(messages, 1, 50, 8)])
    )
    (edit,) = compiled.edits
    assert isinstance(edit, AppendTo if placement == "system" else InsertMessage)
    assert "Number 8" in edit.text


# --- search -----------------------------------------------------------------------------------------------------------------


def search(**given: Any) -> SearchRequest:
    plain: dict[str, Any] = {"scope": Scope(UUID(int=1), UUID(int=2)), "query": "number", "now": NOW}
    return SearchRequest(**plain | given)


async def test_a_search_is_what_the_compiler_would_choose() -> None:
    found = Found(*FACTS)
    result = await compiler(found).search(search())
    compiled = await compiler(found).compile(request())
    assert compiled.new_block is not None
    assert [each.candidate.id for each in result.items] == list(compiled.new_block.item_ids)
    assert result.tokens == 40
    assert result.statuses == {UUID(int=1): "superseded"}
    assert found.asked[0][2] == Wanted(CAP)


async def test_a_habit_widens_a_search_as_it_widens_a_prompt() -> None:
    details = {"trigger": {"topics": ["number"]}, "action": {"topics": ["invoice", "receipt"]}}
    found = Found(*FACTS)
    found.standing = Standing(procedures=(Procedure(UUID(int=77), details),))
    result = await compiler(found).search(search())
    compiled = await compiler(found).compile(request(standing=found.standing))
    assert [wanted.further for _, _, wanted in found.asked] == ["invoice receipt"] * 2
    assert result.widened == [(UUID(int=77), ["invoice", "receipt"])]
    assert compiled.audit["widened"] == [{"procedure": UUID(int=77), "words": ["invoice", "receipt"]}]
    other = await compiler(found).search(search(query="Good morning"))
    assert (other.widened, found.asked[-1][2].further) == ([], "")


async def test_a_search_has_its_own_limits() -> None:
    assert len((await compiler(Found(*FACTS)).search(search(k=3))).items) == 3
    assert (await compiler(Found(*FACTS)).search(search(token_budget=12))).tokens == 10
    assert (await compiler(Found(*FACTS)).search(search(token_budget=0))).items == ()


@each_of(
    ("given", "found", "only"),
    [
        ({"tiers": [3]}, {11}, 1),
        ({"kinds": ["preference"]}, {12}, 1),
        ({"kinds": ["turn"]}, {13}, 0),
        ({"kinds": ["message"]}, set(), 0),
        ({"kinds": ["turn", "preference"]}, {12, 13}, None),
        ({"kinds": ["preference"], "tiers": [3]}, set(), 1),
        ({}, {11, 12, 13}, None),
    ],
)
async def test_a_search_asks_only_for_what_it_wants(given: dict[str, Any], found: set[int], only: int | None) -> None:
    shelf = Found(memory(11, tier=3), memory(12, tier=1, kind="preference"), message(13))
    result = await compiler(shelf).search(search(**given))
    assert {each.candidate.id.int for each in result.items} == found
    assert shelf.asked[0][2].only == only


# --- what is said whatever is asked ---------------------------------------------------------------------------------------

STANDING = Standing(
    "Business: bakery\nPlan: Pro",
    UUID(int=0x8 << 76 | 1),
    tuple(
        StandingFact(
            UUID(int=900 + n), UUID(int=0x8 << 76 | 100 + n), f"key_{n}", False, f"value {n}", None, None, None
        )
        for n in range(40)
    ),
)


ABOUT_ME = [said("user", "What do you know about me?")]


async def test_sections_have_room_beside_the_memories() -> None:
    asked = request(ABOUT_ME, standing=STANDING)
    compiled = await compiler(Found(*FACTS)).compile(asked)
    (edit,) = compiled.edits
    assert isinstance(edit, Prepend)
    lines = edit.text.split("\n")
    assert lines[1:4] == ["About the user:", "- key 0: value 0", "- key 1: value 1"]
    quoted = lines.index(NOTE)
    assert lines[quoted + 1] == "Tenant context: Business: bakery Plan: Pro"
    assert lines[quoted + 2].startswith("- [fact] Number")
    told = compiled.audit["sections"]
    assert told["memories"]["budget"] == compiled.audit["budget"]["memory"] == CAP
    assert told["facts"]["tokens"] <= PROFILE_TOKENS["balanced"]
    assert not told["facts"]["dropped"]
    block = compiled.new_block
    assert block is not None
    assert TOKENIZERS.for_model("gpt-4o").count(edit.text) <= block.token_count == compiled.tokens
    assert set(block.item_ids) >= {STANDING.profile_note, STANDING.facts[0].note, *(each.id for each in FACTS)}
    assert compiled.memories == 8


def list_statements(count: int) -> list[Candidate]:
    """Return statements in the order of importance, no two of which have all words in common."""
    texts = [f"Keeps bee hive {n} in garden {n}" for n in range(count)]
    tokens = TOKENIZERS.for_model("gpt-4o")
    return [
        memory(500 + n, text, provenance=[source(700 + n)], token_count=tokens.count(text))
        for n, text in enumerate(texts)
    ]


async def test_all_that_is_known_is_listed_in_order_without_a_search() -> None:
    retriever = Found(*FACTS, listed=Retrieved(list_statements(5), {}, unlisted_count=0))
    compiled = await compiler(retriever, cap=1_500).compile(request(ABOUT_ME))
    assert compiled.new_block is not None
    assert compiled.new_block.text.split("\n")[1:-1] == [
        "About the user:",
        *[f"- Keeps bee hive {n} in garden {n}" for n in range(5)],
    ]
    assert not retriever.asked


@each_of("price", ["frugal", "balanced", "thorough"])
async def test_what_the_price_leaves_out_of_all_that_is_known_is_counted(price: Price) -> None:
    statements = list_statements(150)
    retriever = Found(listed=Retrieved(statements, {}, unlisted_count=7))
    compiled = await compiler(retriever, cap=1_500).compile(request(ABOUT_ME, price=price))
    assert compiled.new_block is not None
    lines = compiled.new_block.text.split("\n")[2:-1]
    listed_count = len(lines) - 1
    assert lines[:-1] == [f"- {statement.text}" for statement in statements[:listed_count]]
    assert lines[-1] == LEFT_OUT_LINE.format(150 - listed_count + 7)
    spent = TOKENIZERS.for_model("gpt-4o").count(compiled.new_block.text)
    assert 0.6 * PROFILE_TOKENS[price] <= spent <= PROFILE_TOKENS[price] + FRAME_TOKENS


async def test_without_a_search_they_are_there_as_well() -> None:
    compiled = await compiler(Found(*FACTS)).compile(request(ABOUT_ME, standing=STANDING, search=False))
    assert compiled.new_block is not None
    assert "key 0: value 0" in compiled.new_block.text
    assert "Number" not in compiled.new_block.text


async def test_in_a_tool_loop_nothing_is_said_anew() -> None:
    compiled = await compiler(Found(*FACTS)).compile(request(LOOP, standing=STANDING))
    assert (compiled.edits, compiled.new_block) == ([], None)


@examples(40)
@given(
    st.integers(150, 900), st.integers(0, 80), st.sampled_from(["tail", "system"]), st.sampled_from(["gpt-4o", "llama"])
)
async def test_with_all_sections_the_prompt_stays_within_the_budget(
    window: int, words: int, placement: Any, model: str
) -> None:
    counter, stored = TOKENIZERS.for_model(model), TOKENIZERS.for_model("gpt-4o")
    items = [
        memory(n, f"fact {n} " * n, similarity=1 / n, token_count=stored.count(f"fact {n} " * n)) for n in range(1, 9)
    ]
    own = [said("user", "question " * words + "What is fact 1?")]
    due = {each.id: NOW for each in items}
    asked = request(
        own, placement=placement, model=model, answer_limit=40, standing=replace(STANDING, due=due), learns=True
    )
    compiled = await compiler(Found(*items), {model: window}).compile(asked)
    spent = prompt_tokens(shown(compiled, asked), counter)
    assert spent <= max(window - 40, prompt_tokens(own, counter))
    assert spent <= prompt_tokens(own, counter) + compiled.tokens + 1


# --- the history's own budget ---------------------------------------------------------------------------------------------


@each_of(
    ("history", "texts"),
    [
        (None, [f"q{n}" for n in range(8)]),
        (150, ["q0", "q4", "q5", "q6", "q7"]),  # the first turn, and the last four
        (60, ["q4", "q5", "q6", "q7"]),  # never less than the last four (seed 001 §6)
        (0, ["q4", "q5", "q6", "q7"]),
    ],
)
async def test_the_last_four_turns_stay_verbatim(history: int | None, texts: list[str]) -> None:
    past = [said(role, f"{role[0].replace('u', 'q')}{n}") for n in range(8) for role in ("user", "assistant")]
    asked = request(
        [said("user", "And now?")], path=path_of(past, 10), server_managed=True, summary="So far", summary_tokens=2
    )
    made = Compiler(
        Found(),  # type: ignore[arg-type]  # all it needs of a retriever
        ModelRegistry(windows={"gpt-4o": 8000}, default_response=100),
        TOKENIZERS,
        CountCache(),
        nonce_key=lambda: b"key",
        memory_cap=CAP,
        budgets=Budgets(history=history),
    )
    compiled = await made.compile(asked)
    kept = [each["content"] for each in compiled.history if each["role"] == "user"]
    assert kept == texts
    assert (compiled.new_block is not None) == (len(kept) < 8)  # the summary stands for the rest
