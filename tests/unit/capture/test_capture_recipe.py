import json
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.capture.facts import Position, Recipe, make, rebuild


def spans_of(messages: list[str], prefix: str, separator: str) -> tuple[bytes, int, list[tuple[int, int]], bytes]:
    at = len(prefix.encode())
    body, spans = prefix, []
    for i, message in enumerate(messages):
        body += (separator if i else "") + message
        spans.append((len((prefix + "").encode()) if i == 0 else at, len(body.encode())))
        at = len(body.encode())
    body += '], "n": 1.0}'
    return body.encode(), len(prefix.encode()), spans, b'], "n": 1.0}'


def stored(recipes: list[Recipe]) -> tuple[dict[bytes, tuple[bytes | None, tuple[bytes, ...]]], dict[bytes, bytes]]:
    nodes, blobs = {}, {}
    for recipe in recipes:
        nodes.update({node.chain: (node.parent, node.blobs) for node in recipe.nodes})
        blobs.update(recipe.blobs)
    return nodes, blobs


def read(recipe: Recipe, recipes: list[Recipe]) -> bytes:
    nodes, blobs = stored(recipes)
    elements: list[bytes] = []
    chain = recipe.chain
    while chain is not None:
        parent, hashes = nodes[chain]
        elements[:0] = [blobs[each] for each in hashes]
        chain = parent
    return rebuild(recipe.prefix, elements, recipe.suffix, recipe.sha256)


texts = st.lists(
    st.text(max_size=20).map(lambda text: json.dumps({"role": "user", "content": text})), min_size=1, max_size=12
)


@given(texts, st.sampled_from([",", ", ", " ,\n  "]), st.integers(0, 12))
def test_any_conversation_is_rebuilt_to_the_byte(messages: list[str], separator: str, stable: int) -> None:
    recipes: list[Recipe] = []
    known: Position | None = None
    for count in range(1, len(messages) + 1):
        body, start, spans, _ = spans_of(messages[:count], '{"model":"m","messages":[', separator)
        recipe = make(body, start, spans, known, stable=min(stable, count) or None)
        recipes.append(recipe)
        known = recipe.resume
        assert read(recipe, recipes) == body
        assert recipe.sha256 == sha256(body).digest()


def test_a_changed_beginning_starts_a_chain_of_its_own() -> None:
    body, start, spans, _ = spans_of(['{"a":1}', '{"b":2}'], '{"messages":[', ",")
    first = make(body, start, spans)
    other, start, spans, _ = spans_of(['{"a":2}', '{"b":2}', '{"c":3}'], '{"messages":[', ",")
    second = make(other, start, spans, first.resume)
    assert second.nodes[0].parent is None
    assert read(second, [first, second]) == other


def test_a_repeated_request_adds_nothing() -> None:
    body, start, spans, _ = spans_of(['{"a":1}', '{"b":2}'], '{"messages":[', ",")
    first = make(body, start, spans)
    again = make(body, start, spans, first.resume)
    assert again.nodes == ()
    assert again.blobs == {}
    assert again.chain == first.chain


def test_without_messages_the_whole_body_is_the_prefix() -> None:
    recipe = make(b'{"messages":[]}', 13, [])
    assert (recipe.prefix, recipe.suffix, recipe.chain) == (b'{"messages":[]}', b"", None)


def test_what_was_changed_in_the_store_is_not_passed_off_as_the_request() -> None:
    with pytest.raises(ValueError, match="do not make the body"):
        rebuild(b"[", [b"1"], b"]", sha256(b"[2]").digest())
