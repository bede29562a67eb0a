"""Text → terms: six languages and scripts without spaces, whatever the text holds."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.index.analyse import (
    HASH_BYTES,
    HEAD_BYTES,
    LANGUAGES,
    READ_CHARS,
    VERSION,
    asked,
    pack,
    stop_words,
)
from app.text_cache import forget
from tests.support.properties import examples

TEXTS = st.text(st.characters(exclude_categories=()), max_size=80) | st.text(
    "aeé die的了猫กา가ア\u0301\u200d\0'’-_ .", max_size=80
)


def terms(text: str) -> dict[int, int]:
    """The terms of a text, each with its count."""
    packed = pack(text)
    many = (len(packed) - HEAD_BYTES) // (HASH_BYTES + 1)
    end = HEAD_BYTES + HASH_BYTES * many
    hashes = [int.from_bytes(packed[at : at + HASH_BYTES], "little") for at in range(HEAD_BYTES, end, HASH_BYTES)]
    return dict(zip(hashes, packed[end:], strict=True))


def language(text: str) -> str:
    return LANGUAGES[pack(text)[1]]


def found(question: str, text: str, *languages: str) -> list[str]:
    """The words of the question that the text has."""
    there = terms(text)
    return [word for word, hashes, _ in asked(question, languages) if any(each in there for each in hashes)]


@pytest.mark.parametrize(
    ("question", "text", "words"),
    [
        ("war", "The war was long.", ["war"]),
        ("die?", "All of them die in the end.", ["die"]),
        ("son", "My son is called Ben.", ["son"]),
        ("die man", "The man is not going to die of it.", ["die", "man"]),
        ("the who", "The Who are on the radio.", []),
    ],
)
def test_what_says_nothing_in_a_questions_language_is_asked_for_in_the_users(
    question: str, text: str, words: list[str]
) -> None:
    """Where that leaves nothing at all; and nothing is found by what says nothing in either."""
    assert found(question, text, "en") == words


@pytest.mark.parametrize(
    ("question", "text", "words"),
    [
        ("Which cities did we visit?", "We were visiting the city of Bergen.", ["citi", "visit"]),
        ("¿Qué libros tengo en casa?", "Me gustó mucho el libro que me dio mi hermana.", ["libr"]),
        ("Wie heißen meine Katzen?", "Ich habe eine Katze und einen Hund.", ["katz"]),
        ("Quels sont mes animaux ?", "J'ai un animal chez moi, et c'est une tortue.", ["animal"]),
        ("Quais são os meus livros?", "Eu tenho um livro novo do meu pai.", ["livr"]),
        ("我的猫叫什么名字？", "我家的黑猫叫小米，名字是妹妹起的。", ["猫叫", "名字"]),
        ("東京のホテルはどこ？", "来週、東京のホテルに泊まります。", ["東京", "京の", "のホ", "ホテ", "テル"]),
        ("โรงแรมที่ไหน", "ผมพักที่โรงแรมริมทะเล", ["โร", "รง", "งแ", "แร", "รม"]),
        ("학교는 어디예요?", "저는 학교에서 일해요.", ["학교"]),
        ("Где мои кошки?", "У меня дома живёт кошка.", ["кошк"]),
        ("मेरी किताब कहाँ है", "किताबें मेज पर हैं", ["किताब"]),
        ("Où est mon hotel ?", "C'est un hôtel dans la rue de la gare.", ["hotel"]),
        ("l’hôtel", "J'ai réservé l'hôtel pour nous deux.", ["hôtel"]),
        ("ＡＢＣ １２３", "The code is abc-123.", ["abc", "123"]),
        ("STRASSE", "Die Straße ist gesperrt.", ["strass"]),
        ("ho\u0302tel", "Nous étions dans un hôtel.", ["hôtel"]),
        ("co\u00adoperate", "We cooperate.", ["cooper"]),
        ("order_id of user.name", "the order id; name and user", ["order", "id", "user", "name"]),
    ],
)
def test_a_question_finds_other_forms_of_its_words(question: str, text: str, words: list[str]) -> None:
    assert [each for each in found(question, text, language(text)) if each in words] == words


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Katzen", "Ich habe eine Katze, und sie heißt Mia."),
        ("libros", "Tengo muchos amigos y un libro que me gusta."),
        ("chevaux", "J'ai vu les chevaux de mon oncle."),
        ("livros", "Eu gosto muito de um livro que o meu pai me deu."),
        ("biciclette", "Ho comprato una bicicletta per mia figlia, ma non è nuova."),
        ("fietsen", "Ik heb twee fietsen en een auto, maar geen boot."),
    ],
)
def test_a_word_alone_is_found_whatever_its_language_seems_to_be(question: str, text: str) -> None:
    assert found(question, text, "en", language(text))


def test_one_character_stands_alone_and_a_few_cut_the_rest() -> None:
    assert [each.word for each in asked("猫")] == ["猫"]
    assert [each.word for each in asked("我的猫和狗")] == ["猫和", "和狗"]
    assert [each.pair for each in asked("小米 tv")] == [True, False]
    assert terms("是的吗") == {}


def test_what_says_nothing_is_left_out() -> None:
    assert terms("It is what it is, and we don't.") == {}
    assert terms("Das ist es, und wir auch nicht.") == {}
    assert [each.word for each in asked("What did we say about the die?")] == ["say", "die"]
    assert asked("?! \0 …") == asked("") == []
    assert pack("") == bytes((VERSION, LANGUAGES.index("en")))
    assert stop_words("tlh") == frozenset()


def test_what_was_read_can_be_forgotten() -> None:
    before = pack("Xylocarpus")
    forget()
    assert pack("Xylocarpus") == before


def test_counts_end_where_a_byte_does() -> None:
    assert list(terms("apple " * 3 + "apples pear").values()) == [4, 1]
    assert list(terms("apple " * 5000).values()) == [255]


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "word " * 20_000,
        " ".join(f"w{n}" for n in range(15_000)),
        "一" * 100_000,
        "\ufdfa" * 33_000,  # each eighteen characters in its normal form
        "a" + "\u0301" * 100_000,
        "\u0301" * 100_000,
        "\ud800\udfff\0" * 33_000,
        "'" * 100_000,
        "ก" + "\u0e34" * 100_000,
        "".join(chr(33 + n * 7919 % 60_000) for n in range(100_000)),
    ],
)
def test_what_is_long_or_hostile_takes_bounded_time_and_room(text: str) -> None:
    began = time.process_time()
    packed = pack(text)
    assert time.process_time() - began < 2  # of CPU: .1 s on a quiet machine
    assert len(packed) <= HEAD_BYTES + (HASH_BYTES + 1) * READ_CHARS
    assert len(asked(text)) <= READ_CHARS


def test_all_processes_agree() -> None:
    """Sets are in another order in each."""
    text = "Oh no, me too! Vi bor i Oslo og hedder Anna. 猫が好き"
    code = f"from app.index.analyse import *; print(pack({text!r}).hex())"
    for seed in ("1", "2", "3"):
        out = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert out.stdout.strip() == pack(text).hex()


@given(TEXTS)
@examples(200)
def test_every_text_finds_itself(text: str) -> None:
    there = terms(text)
    own = asked(text)
    assert {each.hashes[0] for each in own} == there.keys()
    assert len({each.hashes[0] for each in own}) == len(own)
    assert all(1 <= count <= 255 for count in there.values())


@given(TEXTS, TEXTS)
@examples(100)
def test_what_follows_a_line_adds_and_takes_nothing_away(first: str, second: str) -> None:
    """While the language stays the same."""
    joined = f"{first}\n.\n{second}"
    if language(first) == language(second) == language(joined):
        both = terms(joined)
        for text in (first, second):
            assert terms(text).keys() <= both.keys()
