"""The pure core as a whole: a session that grows past its window, as it would be sent."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from app.context.transcript import Transcript
from app.features.paging.answering import AnswerSource, answer, text_score
from app.features.paging.fidelity import Moment, applied, decide
from app.features.paging.preview import handle_of, render, render_rest
from app.features.paging.segment import Segmentation, segment
from app.features.paging.shrink import shrink
from app.features.paging.values import Fidelity, Relationship, SemanticObject, Zone
from app.features.paging.words import terms
from app.providers.tokens import MESSAGE_TOKENS
from tests.unit.paging.made import COUNT, LONG_CODE, SESSION, called, places, user

BUDGET = 24_000
RESULTS = 30
NONCE = "5f0c1d9a"


def sent(messages: list[dict[str, Any]], objects: list[SemanticObject]) -> list[str]:
    """The texts of the messages as they would be sent: each object at its level, in its place."""
    texts = [str(each.get("content") or "") for each in messages]
    where = places(Transcript.of(messages), objects)
    for each in objects:
        if each.fidelity == Fidelity.FULL:
            continue
        for number, (index, part) in enumerate(where[each.id]):
            handle = handle_of(each.id)
            shown = render_rest(handle, NONCE, COUNT) if number else render(each, each.fidelity, handle, NONCE, COUNT)
            whole = str(messages[index]["content"])
            texts[index] = texts[index].replace(whole[part.start : part.stop], shown.text)
    return texts


def bird(number: int) -> str:
    """A name that no other object has."""
    return f"KESTREL{chr(65 + number % 26)}{chr(75 + number // 26)}"


def tokens(texts: list[str]) -> int:
    return sum(COUNT(each) + MESSAGE_TOKENS for each in texts)


def test_a_session_that_outgrows_its_window_stays_in_it_and_can_be_asked() -> None:
    messages: list[dict[str, Any]] = [user("Repair the money module.")]
    objects: list[SemanticObject] = []
    relations: list[Relationship] = []
    marks: frozenset[bytes] = frozenset()
    zone = Zone.NORMAL
    changed = 0
    for i in range(RESULTS):
        text = LONG_CODE.replace("helper_", f"part{i}_") + f"\n\nSECRET_{bird(i)} = 'w{i * 7919}'\n"
        messages += called("Read", {"file_path": f"src/part{i}.py"}, text, f"c{i}")
        transcript = Transcript.of(messages)
        found: Segmentation = segment(SESSION, messages, transcript, COUNT, known=marks, objects=objects)
        marks |= found.marks
        relations += found.relationships
        for each in found.objects:
            made = shrink(each.content, each.kind, COUNT, each.source_key, each.tokens_l0)
            objects.append(replace(each, detailed=made.detailed, compact=made.compact, fault_when=made.fault_when))
        whole = tokens([str(each.get("content") or "") for each in messages])
        moment = Moment(i, BUDGET, whole - sum(each.tokens_l0 for each in objects), zone)
        decision = decide(objects, relations, moment)
        objects, zone = applied(objects, decision, moment), decision.zone
        changed += bool(decision.transitions)
        really = tokens(sent(messages, objects))
        assert really <= decision.tokens <= BUDGET, "what is decided on is an upper bound of what is sent"
    assert whole > 3 * BUDGET, "it did outgrow it"
    assert changed <= RESULTS // 2
    assert sum(each.fidelity >= Fidelity.STUB for each in objects) > RESULTS // 2
    for i in range(RESULTS):
        question = f"What is the secret of the {bird(i)}?"
        held = [dict.fromkeys(terms(each.content), 1) for each in objects]
        sources = [
            AnswerSource(
                each.id,
                str(each.source_key),
                each.kind,
                each.content,
                0.0,
                text_score(question, words),
                each.source_key,
            )
            for each, words in zip(objects, held, strict=True)
        ]
        assert f"w{i * 7919}" in answer(question, sources, COUNT).text, question
