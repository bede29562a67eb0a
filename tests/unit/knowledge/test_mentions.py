"""Where a text may name a thing: what is found, what is not, and that nothing makes it dear."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from app.features.knowledge import resolution
from app.features.knowledge.ontology import EntityType, Ontology
from app.features.knowledge.resolution import (
    MAX_GRAM_WORDS,
    MAX_MENTION_CHARS,
    MAX_WORDS,
    find,
    normalise,
    plain,
    whole,
)
from tests.support.labelled_mentions import ONTOLOGY
from tests.support.tables import each_of

HOSTILE = {
    "ten thousand names": ", ".join(f"Name{n} Smith{n}" for n in range(10_000)),
    "a flood of wildcards": "%_%" * 50_000,
    "SQL": "'; DROP TABLE canonical_entities; --" * 5_000,
    "control characters": "\x00\x01\x1b a" * 50_000,
    "one endless word": "a" * 300_000,
    "a word of full stops": "a." * 100_000,
    "what grows when it is normalised": "\ufdfa" * 50_000,
    "punctuation before a letter": "! " * 150_000 + "a",
    "lone surrogates": "\ud800\udfff x" * 50_000,
    "ten thousand keys": "SO-1 " * 10_000,
    "ten thousand pointers": "they it the customer " * 10_000,
    "invisible characters": "G\u200ba\u200bi " * 50_000,
}


@each_of(
    ("text", "norm"),
    [
        ("  Gai   Media\n", "gai media"),
        ("Gai Media's", "gai media"),
        ("Gai Media’s", "gai media"),
        ("GAI MEDIA", "gai media"),
        ("“Gai Media”,", "gai media"),
        ("(SO-1001)", "so-1001"),
        ("Straße", "strasse"),
        ("Ｇａｉ　Ｍｅｄｉａ", "gai media"),
        ("G\u200bai\u00ad Media", "gai media"),
        ("Gai\x00Media", "gai media"),
        ("Smith's Bakery", "smith's bakery"),
        ("AT&T", "at&t"),
        ("%%%", ""),
        ("'s", "s"),
        ("", ""),
        ("x" * 500, "x" * MAX_MENTION_CHARS),
    ],
)
def test_names_are_compared_so(text: str, norm: str) -> None:
    assert normalise(text) == norm


@given(st.text(max_size=300))
def test_what_is_normal_stays_so_and_is_short_and_clean(text: str) -> None:
    norm = normalise(text)
    assert normalise(norm) == norm
    assert len(norm) <= MAX_MENTION_CHARS
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]|  |^\s|\s$", norm)


@given(st.text(max_size=200))
def test_what_is_told_can_be_stored(text: str) -> None:
    told = plain(text)
    assert "\0" not in told
    told.encode()
    assert len(told) <= MAX_MENTION_CHARS


@given(st.text(alphabet="Ab '.-\n&1SO,é", max_size=120))
def test_every_piece_is_where_it_says(text: str) -> None:
    found = find(text, ONTOLOGY)
    pieces = [*found.grams, *found.names, *(key.piece for key in found.keys), *(each.piece for each in found.pointers)]
    for piece in pieces:
        assert text[piece.start : piece.end] == piece.text
        assert piece.norm
    # A stretch of words is looked up as a name of these words is stored.
    for gram in found.grams:
        if not re.search(r"['.\n_]", gram.text):
            assert gram.norm == normalise(gram.text)


@given(st.one_of(st.text(max_size=5000), st.sampled_from(sorted(HOSTILE.values(), key=len))))
def test_what_is_looked_up_is_bounded(text: str) -> None:
    found = find(text, ONTOLOGY)
    assert len(found.grams) <= MAX_WORDS * MAX_GRAM_WORDS
    assert len(found.keys) <= resolution.MAX_KEYS
    assert len(found.names) <= resolution.MAX_NAMES
    assert len(found.pointers) <= resolution.MAX_POINTERS
    assert all(len(each.norm) <= MAX_MENTION_CHARS for each in (*found.grams, *found.names))


@each_of("name", HOSTILE)
def test_hostile_texts_are_cheap(name: str) -> None:
    began = time.process_time()
    find(HOSTILE[name], ONTOLOGY)
    whole(HOSTILE[name], ONTOLOGY)
    assert time.process_time() - began < 0.5, "some 10 ms; what grew with the text would take seconds"


def test_of_a_long_text_both_ends_are_looked_at_and_no_name_goes_across() -> None:
    text = "Gai Media wrote: " + "and so on " * 2000 + " What does Acme Corporation owe?"
    norms = {each.norm for each in find(text).grams}
    assert {"gai media", "acme corporation"} <= norms
    many = "Gai Media " + "word " * 400 + "Acme Corporation"
    assert {"gai media", "acme corporation"} <= {each.norm for each in find(many).grams}
    assert not any("\n" not in each.norm and each.end - each.start > 121 for each in find(many).grams)


def names(text: str, ontology: Ontology = ONTOLOGY) -> list[str]:
    return [plain(each.text) for each in find(text, ontology).names]


@each_of(
    ("text", "expected"),
    [
        ("What did Gai Media order?", ["Gai Media"]),
        ("Please send it on Monday in May.", []),
        ("Thanks! Great.", []),
        ("Reorder the lamp for Ana.", ["Ana"]),
        ("Reorder Ana's lamp.", ["Reorder Ana", "Ana"]),
        ("João says hello.", ["João"]),
        ("Kai's address changed.", ["Kai"]),
        ("Where is it? Kai knows. I asked Kai.", ["Kai", "Kai"]),
        ("I met Ana. Delta called.", ["Ana", "Delta"]),
        ("St. Mary & Co is here", ["St. Mary & Co", "Mary & Co"]),
        ("the Bank of Portugal and the rest", ["Bank of Portugal"]),
        ("THIS IS ALL IN CAPITALS NOW", []),
        ("what does customer gai meida owe", ["gai meida"]),
        ("the customer service is slow", []),
        ("iPhone and eBay", ["iPhone", "eBay"]),
    ],
)
def test_what_is_written_like_a_name(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@each_of(
    ("text", "expected"),
    [
        ("Where is SO-1001?", [("SO-1001", ("sales_order",))]),
        ("where is so-1001's invoice INV-2024-001", [("INV-2024-001", ("invoice",))]),
        ("XSO-1001 and SO-1001X", []),
        ("AB-100 and AB-200A", [("AB-100", ("product",)), ("AB-200A", ("product",))]),
    ],
)
def test_what_has_the_form_of_a_key(text: str, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    assert [(each.piece.text, each.types) for each in find(text, ONTOLOGY).keys] == expected


def of_pattern(pattern: str) -> Ontology:
    return Ontology({"thing": EntityType("thing", "d", "t", "id", "name", "{id}", identifier=pattern)})


def test_a_pattern_that_is_none_finds_nothing() -> None:
    assert find("SO-1001", of_pattern("(")).keys == ()


def test_a_pattern_that_could_run_for_ever_does_not() -> None:
    began = time.process_time()
    assert find(("a" * 47 + "! ") * 50, of_pattern("(a+)+")).keys == ()
    assert time.process_time() - began < 0.5
    assert [each.piece.text for each in find("SO-1-22", of_pattern(r"SO(-\d+)+")).keys] == ["SO-1-22"]


def test_a_key_of_two_words_has_a_digit() -> None:
    assert [each.piece.text for each in find("pay PO 1234 now", of_pattern(r"PO \d+")).keys] == ["PO 1234"]


@each_of(
    ("text", "expected"),
    [
        ("Do they pay?", [("they", "they", ())]),
        ("Did it ship, and when's its invoice due?", [("it", "it", ()), ("its", "it", ())]),
        ("It's broken.", [("It", "it", ())]),
        ("Is it possible? It is raining. It depends.", []),
        ("IT IS THE IT DEPARTMENT", []),
        ("Call her.", [("her", "person", ())]),
        ("What does the customer owe?", [("the customer", "type", ("customer",))]),
        ("Cancel this sales order.", [("this sales order", "type", ("sales_order",))]),
        ("Cancel the order, please", [("the order", "type", ("sales_order",))]),
        ("the customer Gai and the order SO-1 and the customer 12", []),
        ("the customer service", []),
        ("customers", []),
    ],
)
def test_what_points_back(text: str, expected: list[tuple[str, str, tuple[str, ...]]]) -> None:
    found = find(text, ONTOLOGY).pointers
    assert [(each.piece.text, each.kind, each.types) for each in found] == expected


def test_a_whole_mention_is_a_name_whatever_it_is_written_like() -> None:
    found = whole("gai media’s", ONTOLOGY)
    assert [each.norm for each in found.grams] == [each.norm for each in found.names] == ["gai media"]
    assert whole("so-1001", ONTOLOGY).keys[0].types == ("sales_order",)
    assert whole("they", ONTOLOGY).pointers[0].kind == "they"
    assert whole("they", ONTOLOGY).names == ()
    assert whole("they paid", ONTOLOGY).pointers == ()
    assert whole("%%", ONTOLOGY) == resolution.Mentions()
