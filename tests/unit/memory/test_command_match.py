"""What a command to forget is about."""

from __future__ import annotations

from uuid import UUID

from app.features.commands.grammar import StoredMemory, aim_of, matched, says, value_keys
from app.memory.candidate import Triple
from tests.support.tables import each_of

STORED = [
    ("Works as a data engineer at Acme in Porto", "user", "occupation", "a data engineer at Acme in Porto"),
    ("Left Acme", None, None, None),
    ("Wife works at Acme", "wife", "works_at", "Acme"),
    ("Wife is allergic to peanuts", "wife", "allergic_to", "peanuts"),
    ("Wife's name is Maria", "wife", "name", "Maria"),
    ("Lives in Berlin", "user", "lives_in", "Berlin"),
    ("Has a dentist appointment on May 3", None, None, None),
    ("Has an appointment with the bank", None, None, None),
    ("住在里斯本", "user", "lives_in", "里斯本"),
    ("Wife has depression", "wife", "condition", "depression"),
    ("Loves hiking in Porto", "user", "likes", "hiking in Porto"),
    ("Was born in Porto", "user", "born_in", "Porto"),
    ("Met Maria in Paris", None, None, None),
]
ENDED = {1}
MEMORIES = [
    StoredMemory(UUID(int=n), *row, True, "correction" if n in ENDED else "fact") for n, row in enumerate(STORED)
]


@each_of(
    ("about", "meant"),
    [
        ("I worked at Acme", [0, 1]),
        ("i worked at acme", [0, 1]),
        ("my wife works at Acme", [2]),
        ("my wife's peanut allergy", [3]),
        ("Maria", [4, 12]),
        ("Maria has depression", [9]),
        ("I met Maria in Paris", [12]),
        ("where I live", [5]),
        ("que vivo en Berlin", [5]),
        ("dass ich in Berlin wohne", [5]),
        ("我住在里斯本", [8]),
        ("I own a submarine", []),
        ("my address", []),
    ],
)
def test_what_clearly_is_meant(about: str, meant: list[int]) -> None:
    found = matched(aim_of(about, ()), MEMORIES)
    assert sorted(each.memory_id.int for each in found.memories) == meant
    assert not found.unlike


def test_one_common_word_that_fits_several_things_is_unclear() -> None:
    assert matched(aim_of("the appointment", ()), MEMORIES).unlike


GERMAN = [
    StoredMemory(UUID(int=n), text, "wife", predicate, value, True)
    for n, (text, predicate, value) in enumerate(
        [
            ("Frau ist allergisch gegen Erdnüsse", "allergic_to", "Erdnüsse"),
            ("Frau heißt Maria", "name", "Maria"),
            ("Meine Frau wohnt in Bonn", "lives_in", "Bonn"),
        ]
    )
]


@each_of(
    ("about", "names", "unlike"),
    [
        ("meine Frau", [], True),
        ("meine alte Tante", [], False),
        ("dass meine Frau in Bonn wohnt", ["bonn"], False),
        ("dass ich bei Bosch arbeite", ["bosch"], False),
        ("meine Frau Maria", ["maria"], False),
    ],
)
def test_a_german_noun_is_no_name(about: str, names: list[str], unlike: bool) -> None:
    aim = aim_of(about, (), "de")
    assert (sorted(aim.names), matched(aim, GERMAN).unlike) == (names, unlike)


def test_what_a_rule_reads_out_of_it_counts_before_its_words() -> None:
    triple = Triple("wife", "works_at", "Acme")
    assert [each.memory_id.int for each in matched(aim_of("she works at Acme", [triple]), MEMORIES).memories] == [2]


def test_another_memory_with_the_same_name_stays() -> None:
    for about, triple, meant in (
        ("I was born in Porto", Triple("user", "born_in", "Porto"), [11]),
        ("I work at Acme", Triple("user", "works_at", "Acme"), [0, 1]),
    ):
        found = matched(aim_of(about, [triple]), MEMORIES)
        assert [each.memory_id.int for each in found.memories] == meant


@each_of(("text", "said"), [("I left ACME!", True), ("Acmeville is nice", False), ("nothing of the kind", False)])
def test_a_message_says_a_name_as_a_whole_word(text: str, said: bool) -> None:
    assert says(matched(aim_of("Acme", ()), MEMORIES).keys, text) is said


@each_of(
    ("value", "keys"),
    [
        ("diabetes", {"diabetes"}),
        ("a data engineer at Acme", {"data", "engineer", "acme"}),
        ("腾讯", {"腾讯"}),
        ("30", set()),
        (None, set()),
    ],
)
def test_a_memory_is_said_by_the_words_of_its_value(value: str | None, keys: set[str]) -> None:
    assert value_keys(StoredMemory(UUID(int=0), "", "user", "x", value, True)) == keys
