"""Compiles that are told what is known of the things that the question names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.context.audit import expand, fill
from app.context.budget import Budgets
from app.context.compile import Compiler
from app.context.request import Compilation, CompileRequest
from app.context.resolution import Clash, Known, Resolution
from app.context.transcript import Transcript
from app.memory.episodes import SoughtRows
from app.providers.tokens import prompt_tokens
from app.store.user_profile import Standing, StandingFact
from tests.support.context_samples import NOW, memory, message
from tests.support.journey import TOKENIZERS
from tests.support.knowledge import GAI, RESOLVED, UNCLEAR, clash, fact, query, terms
from tests.support.properties import examples
from tests.unit.context.test_compile import Found, Message, compiler, request, said, search, shown

QUESTION = "What are the terms of Gai Media?"


class Inquiring:
    """Knows this, and what contradicts the memories that it is shown. Notes what is asked of it."""

    def __init__(self, known: Known, fresh: Sequence[Clash] = ()) -> None:
        self._known = known
        self.fresh = fresh
        self.steps: list[Any] = []
        self.compared: list[UUID] = []

    @property
    def resolutions(self) -> Sequence[Resolution]:
        return self._known.resolutions

    @property
    def related(self) -> frozenset[str]:
        return self._known.related

    def begin(self, widened: Sequence[str] = (), rows: Sequence[SoughtRows] = ()) -> None:
        self.steps.append("begin")

    async def known(self) -> Known:
        self.steps.append("known")
        return self._known if "begin" in self.steps else Known(self._known.resolutions)

    async def against(self, user: UUID, memories: Sequence[UUID]) -> Sequence[Clash]:
        self.compared = list(memories)
        return [each for each in self.fresh if each.memory_id in memories]

    def close(self) -> None:
        self.steps.append("close")


def inquiring(*fresh: Clash, **given: Any) -> Inquiring:
    plain: dict[str, Any] = {
        "resolutions": (RESOLVED,),
        "facts": (fact(),),
        "queries": (query(),),
        "rows": {GAI.id: {"payment_terms": terms()}},
    }
    return Inquiring(Known(**plain | given), fresh)


def asking(inquiry: Inquiring | None, text: str = QUESTION, **given: Any) -> CompileRequest:
    return request([said("user", text)], inquiry=inquiry, **given)


def text_of(compiled: Compilation) -> str:
    assert compiled.new_block is not None
    return compiled.new_block.text


OURS = memory(5, "Gai Media pays NET30", entity_ids=["gai-media", GAI.id], confidence=0.8, near_vector=0.9)
OTHER = memory(6, "The weather is fine", near_vector=0.5)


# --- the block ------------------------------------------------------------------------------------------------------------


async def test_what_the_records_say_comes_first_and_what_they_contradict_goes() -> None:
    """Seed 004: the row wins, the prompt says so, and the memory is in the account, outranked."""
    inquiry = inquiring(clash(5))
    talk = message(8, "Gai Media pays NET30, they said", near_text=1.0)
    compiled = await compiler(Found(OURS, OTHER, talk)).compile(asking(inquiry))
    lines = text_of(compiled).split("\n")[2:-1]
    assert lines == [
        "From the company's own records (authoritative, read 2026-11-20 12:00 UTC):",
        "  Customer Gai Media Entertainment: payment terms NET15",
        "Conflict: Gai Media Entertainment, payment terms: the company's records say NET15 (authoritative, read 2024-10-15);"
        " a memory of 2024-08-01 said NET30",
        "- [fact] The weather is fine (2026-11-19)",
        "2026-11-19:",
        "user: Gai Media pays NET30, they said",  # what was said is not taken back
    ]
    told = expand(compiled.audit)
    assert {each["id"]: each["reason"] for each in told["items"]}[str(UUID(int=5))] == "outranked"
    assert [each["memory"]["memory_id"] for each in told["conflicts"]] == [UUID(int=5)]
    assert [each["canonical_id"] for each in told["entities"]] == [GAI.id]
    assert (told["domain"]["status"], told["domain"]["facts"][0]["chosen"]) == ("ok", True)
    assert told["query"]["strategy"] == "factual_entity_focused"
    assert compiled.reason is None
    fill(told, compiled.claimed)
    assert told["conflicts"][0]["memory"]["value"] == "NET30"
    assert inquiry.steps == ["begin", "known", "close"]
    assert inquiry.compared == [UUID(int=5), UUID(int=6)]


async def test_a_fact_of_the_user_whose_memory_is_outranked_is_not_said() -> None:
    note = UUID("00000000-0000-8000-a000-000000000001")
    known = StandingFact(UUID(int=70), note, "gai-media.payment_terms", False, "NET30", UUID(int=5), None, None)
    inquiry = inquiring(clash(5))
    compiled = await compiler().compile(asking(inquiry, standing=Standing(facts=(known,))))
    assert "About the user" not in text_of(compiled)
    assert "Conflict: " in text_of(compiled)
    assert compiled.audit["sections"]["facts"]["dropped"] == [[UUID(int=70), "outranked", UUID(int=5)]]


@pytest.mark.parametrize(("strategy", "stands"), [("ask_user", None), ("both", "both"), ("trust_recent", "memory")])
async def test_where_the_records_are_no_authority_the_memory_stays_and_the_clash_is_told(
    strategy: str, stands: Any
) -> None:
    differs = clash(5, strategy=strategy, stands=stands)
    compiled = await compiler(Found(OURS)).compile(asking(inquiring(differs), learns=True))
    text = text_of(compiled)
    assert "- [fact] Gai Media pays NET30 (2026-11-19, confidence 0.80)" in text
    assert "Conflict: Gai Media Entertainment, payment terms: " in text
    assert ("is the note still right?" in text) is (strategy == "ask_user")
    assert compiled.audit["sections"].get("questions", {}).get("asked", []) == (
        [UUID(int=5)] if strategy == "ask_user" else []
    )


async def test_who_learns_nothing_is_not_asked_to_decide() -> None:
    compiled = await compiler(Found(OURS)).compile(asking(inquiring(clash(5, strategy="ask_user", stands=None))))
    assert "To be confirmed" not in text_of(compiled)


async def test_only_memories_of_what_is_named_say_how_sure_they_are() -> None:
    by_name = memory(7, "They like tea", entity_ids=["gai-media"], near_vector=0.8)
    compiled = await compiler(Found(OURS, OTHER, by_name)).compile(asking(inquiring(rows={})))
    lines = [line for line in text_of(compiled).split("\n") if line.startswith("- ")]
    assert ["confidence" in line for line in lines] == [True, True, False]


async def test_a_memory_of_what_is_named_says_how_often_it_was_said_again() -> None:
    """Seed 004, stage 4: "Reinforced: 3x"."""
    again = memory(7, "They like tea", entity_ids=["gai-media"], near_vector=0.8, reinforcements=3)
    named = text_of(await compiler(Found(OURS._replace(reinforcements=3))).compile(asking(inquiring(rows={}))))
    assert ", reinforced 3x)" in named
    plain = text_of(await compiler(Found(again)).compile(asking(None)))
    assert "reinforced" not in plain


async def test_what_is_unclear_is_asked() -> None:
    inquiry = Inquiring(Known(resolutions=(UNCLEAR,)))
    compiled = await compiler(Found(OTHER)).compile(asking(inquiry, "And Gai?"))
    assert text_of(compiled).split("\n")[-2].startswith("Unclear: 'Gai' may be Gai Media Entertainment or Gail")
    assert compiled.audit["domain"]["status"] == "none"


@pytest.mark.parametrize("reason", ["domain", "entities"])
async def test_what_is_missing_is_said(reason: str) -> None:
    compiled = await compiler(Found(OTHER)).compile(asking(inquiring(facts=(), queries=(), rows={}, reason=reason)))
    assert (compiled.reason, compiled.audit["status"], compiled.audit["reason"]) == (reason, "degraded", reason)
    assert compiled.audit["domain"]["reason"] == reason


async def test_facts_are_told_where_nothing_is_searched_for() -> None:
    """A search that came too late: what the database said meanwhile is there."""
    compiled = await compiler(Found(OURS)).compile(asking(inquiring(), search=False))
    assert "payment terms NET15" in text_of(compiled)


async def test_a_compile_that_fails_closes_its_inquiry() -> None:
    class Broken(Found):
        async def candidates(self, *given: Any) -> Any:
            raise RuntimeError("no search")

    inquiry = inquiring()
    with pytest.raises(RuntimeError, match="no search"):
        await compiler(Broken()).compile(asking(inquiry))
    assert inquiry.steps == ["begin", "close"]


async def test_in_a_tool_loop_nobody_is_asked() -> None:
    messages = [said("user", QUESTION), {"role": "assistant", "content": None, "tool_calls": []}, said("tool", "7")]
    inquiry = inquiring()
    compiled = await compiler(Found(OURS)).compile(request(messages, inquiry=inquiry))
    assert compiled.new_block is None
    assert "begin" not in inquiry.steps
    assert compiled.audit["domain"]["status"] == "none"


async def test_the_search_knows_what_is_named_and_what_that_leads_to() -> None:
    found = Found(OURS)
    related = frozenset({"sales_order:SO-1045"})
    await compiler(found).compile(asking(inquiring(related=related), "what do they pay?"))
    (asked, _, wanted), *_ = found.asked
    assert asked.named
    assert asked.entities == {GAI.id}
    assert wanted.related() == related
    await compiler(found).search(replace(search(), inquiry=inquiring()))
    assert found.asked[-1][0].things == {GAI.id: {"gai-media", "gai-media-entertainment"}}


# --- budgets --------------------------------------------------------------------------------------------------------------


@examples(40)
@given(
    st.integers(400, 8000),
    st.lists(st.integers(1, 400), max_size=5),
    st.integers(0, 4),
    st.integers(0, 12),
    st.sampled_from(["tail", "system"]),
)
async def test_the_prompt_stays_within_the_budget(
    window: int, sizes: list[int], clashes: int, memories: int, placement: str
) -> None:
    facts = tuple(fact("order SO-1 " * size, f"erp/{n}") for n, size in enumerate(sizes))
    inquiry = inquiring(
        *(clash(n + 1, predicate=f"p{n}") for n in range(clashes)), facts=facts, resolutions=(RESOLVED, UNCLEAR)
    )
    found = Found(*(memory(n + 1, f"Number {n} is lucky", token_count=5) for n in range(memories)))
    asked = asking(inquiry, placement=placement)
    compiled = await compiler(found, {"gpt-4o": window}, cap=1500).compile(asked)
    counter = TOKENIZERS.for_model("gpt-4o")
    before = prompt_tokens(asked.messages, counter)
    after = prompt_tokens(shown(compiled, asked), counter)
    assert after - before <= compiled.tokens
    assert after <= max(before, window - 100)
    limits = {"domain": 2000, "conflicts": 200, "unclear": 80}
    for name, limit in limits.items():
        section = compiled.audit["sections"].get(name, {"tokens": 0, "budget": 0})
        assert section["tokens"] <= section["budget"] <= limit


async def test_a_budget_of_nothing_says_nothing() -> None:
    quiet = Compiler(
        Found(),  # type: ignore[arg-type]  # all it needs of a retriever
        compiler()._models,
        TOKENIZERS,
        compiler()._counts,
        nonce_key=lambda: b"key",
        memory_cap=300,
        budgets=Budgets(domain=0, conflicts=0, unclear=0),
    )
    compiled = await quiet.compile(asking(inquiring(clash(5), clashes=(clash(5),))))
    assert compiled.new_block is None
    assert compiled.audit["sections"]["domain"]["dropped"] == [["erp/customer:gai_123", "over_budget"]]


# --- once, and up to date -----------------------------------------------------------------------------------------------


class Talk:
    """A conversation whose requests carry the blocks of the turns before."""

    def __init__(self, found: Found) -> None:
        self.compiler = compiler(found, {"gpt-4o": 128_000}, cap=1500)
        self.messages: list[Message] = []
        self.blocks: list[Any] = []
        self.epoch = 0
        self.prompts: list[list[Message]] = []

    async def ask(self, text: str, inquiry: Inquiring) -> Compilation:
        self.messages.append(said("user", text))
        asked = request(
            list(self.messages), transcript=Transcript.of(self.messages), inquiry=inquiry, blocks=list(self.blocks),
            block_epoch=self.epoch, now=NOW + timedelta(minutes=len(self.messages)),
        )  # fmt: skip
        compiled = await self.compiler.compile(asked)
        self.blocks = [] if compiled.epoch != self.epoch else self.blocks
        self.epoch = compiled.epoch
        if compiled.new_block is not None:
            self.blocks.append(replace(compiled.new_block, message_id=UUID(int=len(self.messages))))
        self.prompts.append(shown(compiled, asked))
        self.messages.append(said("assistant", f"answer {len(self.messages)}"))
        return compiled


async def test_twenty_turns_share_their_prefix_but_for_the_one_change() -> None:
    """What stands in an earlier block and still is so is not said again; a row that changed begins the blocks anew, when it is
    asked about."""
    talk = Talk(Found(*(memory(n, f"Number {n} is lucky") for n in range(1, 9))))
    nothing = Inquiring(Known())
    rebased = []
    for turn in range(20):
        value = "NET15" if turn < 9 else "NET45"
        about = turn not in (9, 10)  # changed by then, and not asked about
        inquiry = inquiring(
            clashes=(clash(50, row=terms(value)._replace(queried_at=NOW + timedelta(days=turn))),),
            facts=(fact(f"Customer Gai Media Entertainment: payment terms {value}"),),
        )
        compiled = await talk.ask(f"Turn {turn}, Gai Media?", inquiry if about else nothing)
        rebased.append(compiled.audit["rebased"])
    assert rebased == [None] * 11 + ["items_gone"] + [None] * 8
    for turn, (earlier, later) in enumerate(itertools.pairwise(talk.prompts)):
        if turn + 1 != 11:
            assert later[: len(earlier)] == earlier
    for turn, prompt in enumerate(talk.prompts):
        whole = str(prompt)
        value = "NET15" if turn < 11 else "NET45"
        assert whole.count("payment terms NET") == 1
        assert whole.count(f"payment terms {value}") == 1
        assert whole.count("Conflict: ") == 1
    last = talk.prompts[-1]
    assert "From the company's own records" in last[22]["content"]


async def test_a_memory_that_ceases_to_be_in_force_leaves_the_conflict_as_it_stands() -> None:
    """The job that resolves it takes the memory out of force; the line about it is still true."""
    talk = Talk(Found())
    differs = (clash(50),)
    await talk.ask("Gai Media?", inquiring(clashes=differs))
    again = await talk.ask("Gai Media, again?", inquiring(clashes=(clash(50, conflict_id=UUID(int=3)),)))
    assert again.audit["rebased"] is None
    assert UUID(int=50) in talk.blocks[0].item_ids


# --- nothing known --------------------------------------------------------------------------------------------------------


async def test_without_knowledge_nothing_of_it_is_kept() -> None:
    compiled = await compiler(Found(OURS, OTHER)).compile(asking(None))
    assert not {"entities", "query", "domain", "conflicts"} & compiled.audit.keys()
    assert not {"domain", "conflicts", "unclear"} & compiled.audit["sections"].keys()
    assert "confidence" not in text_of(compiled)
