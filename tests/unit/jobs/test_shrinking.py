"""The job that makes levels and vectors, over a shelf in memory: portions, the helper's failures, and what comes twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, cast
from uuid import UUID

import numpy as np
import orjson
import pytest
from msgspec.structs import replace
from pydantic import BaseModel

from app.errors import BadBody, HelperError, Unavailable
from app.features.paging.store import PagingStore
from app.features.paging.summaries import (
    AT_ONCE,
    FAILURES,
    MOST_CHARS,
    PIECE_CHARS,
    PIECES,
    HelperLevel,
    HelperSummary,
    Shrinker,
    by_structure,
    pieces,
)
from app.features.paging.values import Levels, SemanticObject
from app.providers.embeddings import NoEmbedder, Vectors
from app.store.records import Vector
from tests.unit.paging.made import COUNT, LONG_CODE, called, cut

Shape = TypeVar("Shape", bound=BaseModel)
CODE = cut(called("Read", {"file_path": "src/money.py"}, LONG_CODE)).objects[0]
PAYLOAD = orjson.dumps({"tenant": UUID(int=1), "user": UUID(int=2), "session": UUID(int=3)})

DETAILED = (
    "Money: the class MoneyError is raised by convert_currency when a rate is not positive; helper_1 to helper_29 each add "
    "their number to a total of value, step by step, and print names."
)
GOOD = HelperSummary(
    detailed=HelperLevel(text=DETAILED, losses=["bodies"], can_answer=["what convert_currency raises"]),
    compact=HelperLevel(
        text="convert_currency raises MoneyError; helper_29 adds to a total.", losses=["more"], can_answer=[]
    ),
    fault_when=["you need a body"],
)
LYING = GOOD.model_copy(update={"compact": HelperLevel(text="It takes 4711 ms.", losses=[], can_answer=[])})


def objects(number: int) -> list[SemanticObject]:
    return [replace(CODE, id=UUID(int=n + 1)) for n in range(number)]


class Shelf:
    """Objects in memory, as `PagingStore` keeps them."""

    def __init__(self, made: Sequence[SemanticObject], *, deaf: bool = False) -> None:
        self.made = {each.id: each for each in made}
        self.levels: dict[UUID, Levels] = {}
        self.vectors: dict[UUID, Vector] = {}
        self.asked: list[int] = []
        self.spaces: set[int | None] = set()
        self.deaf = deaf

    async def unshrunk(self, tenant: UUID, user: UUID, session: UUID, limit: int) -> list[SemanticObject]:
        assert (tenant, user, session) == (UUID(int=1), UUID(int=2), UUID(int=3))
        left = [each for key, each in self.made.items() if key not in self.levels][:limit]
        self.asked.append(len(left))
        return left

    async def store_levels(
        self, tenant: UUID, user: UUID, levels: Sequence[Levels], vectors: Mapping[UUID, Vector], space: int | None
    ) -> None:
        self.spaces.add(space)
        if not self.deaf:
            self.levels |= {each.object_id: each for each in levels}
            self.vectors |= vectors


class Scripted:
    """A helper that answers what it is told to, in turn; the last for ever."""

    def __init__(self, *answers: HelperSummary | HelperError) -> None:
        self.answers = list(answers)
        self.questions: list[str] = []

    async def ask(self, shape: type[Shape], *, system: str, user: str, max_tokens: int) -> Shape:
        self.questions.append(user)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, HelperError):
            raise answer
        assert isinstance(answer, shape)
        return answer


class Lengths(NoEmbedder):
    """A vector of a text's beginning and its length; noted."""

    dimensions = 2

    def __init__(self, error: Exception | None = None) -> None:
        self.texts: list[str] = []
        self.error = error

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if self.error is not None:
            raise self.error
        self.texts += texts
        return np.array([[len(each), 1.0] if each else [0.0, 0.0] for each in texts], np.float32)


def shrinker(shelf: Shelf, helper: Scripted | None = None, embedder: NoEmbedder | None = None) -> Shrinker:
    return Shrinker(cast("PagingStore", shelf), embedder=embedder or NoEmbedder(), space=3, count=COUNT, helper=helper)


async def test_what_is_not_kept_does_not_keep_the_job() -> None:
    """The user may be erased meanwhile: then nothing is written, and the same objects must not come for ever."""
    shelf = Shelf(objects(2), deaf=True)
    await shrinker(shelf).shrink(PAYLOAD)
    assert shelf.asked == [2, 2]
    assert not shelf.levels


async def test_levels_in_the_helpers_words_where_they_hold() -> None:
    shelf = Shelf(objects(3))
    helper = Scripted(GOOD, LYING, GOOD)
    await shrinker(shelf, helper).shrink(PAYLOAD)
    texts = [each.detailed.text if each.detailed else "" for each in shelf.levels.values()]
    structural = by_structure(CODE, COUNT).detailed
    assert structural is not None
    assert texts == [DETAILED, structural.text, DETAILED]
    assert shelf.levels[UUID(int=1)].fault_when == ("you need a body",)


async def test_a_helper_that_fails_is_asked_no_more_in_this_job() -> None:
    shelf = Shelf(objects(3 * AT_ONCE))
    helper = Scripted(HelperError("the helper LLM answered status 500: boom"))
    await shrinker(shelf, helper).shrink(PAYLOAD)
    assert len(shelf.levels) == 3 * AT_ONCE
    assert FAILURES <= len(helper.questions) <= AT_ONCE
    again = Scripted(GOOD)
    await shrinker(Shelf(objects(1)), again).shrink(PAYLOAD)
    assert len(again.questions) == 1


async def test_a_single_failure_is_forgiven() -> None:
    shelf = Shelf(objects(3 * AT_ONCE))
    helper = Scripted(HelperError("it was busy"), GOOD)
    await shrinker(shelf, helper).shrink(PAYLOAD)
    assert len(helper.questions) == 3 * AT_ONCE
    assert sum(1 for each in shelf.levels.values() if each.detailed and each.detailed.text == DETAILED) == 11


async def test_a_helper_is_not_asked_about_what_is_too_long() -> None:
    long = replace(CODE, content=LONG_CODE + "# x\n" * (MOST_CHARS // 4))
    shelf, helper = Shelf([long]), Scripted(GOOD)
    await shrinker(shelf, helper).shrink(PAYLOAD)
    assert not helper.questions
    assert len(shelf.levels) == 1


async def test_an_embedder_that_cannot_answer_costs_no_levels() -> None:
    """The job is tried again: what the helper would have said is not asked before."""
    shelf, helper = Shelf(objects(1)), Scripted(GOOD)
    with pytest.raises(Unavailable):
        await shrinker(shelf, helper, Lengths(Unavailable("no endpoint"))).shrink(PAYLOAD)
    assert not shelf.levels
    assert not helper.questions


async def test_a_content_without_words_has_no_vector() -> None:
    class Zeros(Lengths):
        async def embed(self, texts: Sequence[str]) -> Vectors:
            return np.zeros((len(texts), 2), np.float32)

    shelf = Shelf(objects(1))
    await shrinker(shelf, embedder=Zeros()).shrink(PAYLOAD)
    assert shelf.vectors == {}
    assert len(shelf.levels) == 1


@pytest.mark.parametrize("length", [0, 1, PIECE_CHARS, PIECE_CHARS + 1, PIECE_CHARS * PIECES, PIECE_CHARS * 1000 + 7])
def test_pieces_are_spread_over_the_whole(length: int) -> None:
    text = "".join(f"{n:08d}" for n in range(length // 8 + 1))[:length]
    found = pieces(replace(CODE, content=text))
    assert found[0] == f"{CODE.stub}\n{text[:PIECE_CHARS]}"
    assert len(found) == min(PIECES, max(1, -(-length // PIECE_CHARS)))
    assert found[-1].endswith(text[-8:])
    assert all(len(each) <= PIECE_CHARS for each in found[1:])


def test_a_level_that_saves_nothing_is_none() -> None:
    short = replace(CODE, content="one line\nand another", tokens_l0=2)
    assert by_structure(short, COUNT) == Levels(short.id, None, None)


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"{}", b'{"tenant": 1}', b'{"tenant": "a", "user": "b", "session": "c"}']
)
async def test_a_payload_that_is_none(payload: bytes) -> None:
    with pytest.raises(BadBody):
        await shrinker(Shelf([])).shrink(payload)
