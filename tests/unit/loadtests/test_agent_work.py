"""The session of an agent that paging is tried on: what it promises of itself."""

from __future__ import annotations

import pytest

from app.providers.tokens import Tokenizers
from tests.support.agent_client import expected, play
from tests.support.agent_model import ScriptedModel
from tests.support.agent_work import LEAST_TOKENS, Work, work
from tests.support.scripted import ScriptedUpstream

COUNTER = Tokenizers().for_model("gpt-4o")
TOKENS, GIANT, APART = 60_000, 8_000, 4


@pytest.fixture(scope="module")
def made() -> Work:
    return work(3, COUNTER.count, results=40, tokens=TOKENS, questions=8, apart=APART, giant=GIANT, again=1)


def test_it_is_as_long_as_it_was_asked_to_be_and_the_same_for_its_seed(made: Work) -> None:
    sizes = [COUNTER.count(each.text) for each in made.results]
    assert len(sizes) == 40
    assert sum(sizes) == pytest.approx(TOKENS, rel=0.05)
    assert max(sizes) == pytest.approx(GIANT, rel=0.05)
    assert min(sizes) >= LEAST_TOKENS
    assert made == work(3, COUNTER.count, results=40, tokens=TOKENS, questions=8, apart=APART, giant=GIANT, again=1)


def test_a_detail_stands_in_the_one_result_that_it_is_asked_about(made: Work) -> None:
    assert len(made.questions) == 8
    assert len({each.kind for each in made.questions}) > 5
    for each in made.questions:
        assert each.question is not None
        having = [n for n, one in enumerate(made.results) if all(word in one.text for word in each.question.needed)]
        assert having == [each.source]
        asked_at = sum(len(step.results) for before in made.rounds[: each.number] for step in before.steps)
        assert asked_at - each.source >= APART
        assert not any(all(word in told.said for word in each.question.needed) for told in made.rounds)


def test_without_anything_between_the_model_answers_all_from_its_prompt(made: Work) -> None:
    model = ScriptedModel(made, COUNTER, window=1_000_000)
    with ScriptedUpstream(model) as upstream:
        played = play(upstream.url.removesuffix("/v1"), made, model, headers={})
    assert played.wrong == []
    assert played.messages == expected(made)
    assert set(model.ways.values()) == {"prompt"}
    assert model.prompts[-1].tokens == played.turns[-1].bare_tokens > TOKENS
    assert all(each.legs == 1 for each in played.turns)
