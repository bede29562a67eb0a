"""Which part of a long message is shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.context.retrieve import PASSAGE_TOKENS, WHOLE_TOKENS, PassageCutter
from app.providers.tokens import Tokenizers
from tests.support.properties import examples
from tests.support.tables import each_of

COUNT = Tokenizers().for_model("gpt-4o").count
FILLER = "This sentence is one of many that say little about anything at all. "
POINT = "The harbour of Trieste was painted in green by the brothers last spring. "


def cut(text: str, words: dict[str, float]) -> str:
    passage = PassageCutter(list(words), list(words.values()), COUNT).cut(text, COUNT(text))
    assert passage is not None
    start, stop, tokens = passage
    shown = text[start:stop]
    assert tokens == COUNT(shown) <= WHOLE_TOKENS
    return shown


def test_a_short_message_is_shown_whole() -> None:
    assert PassageCutter(["cat"], [1.0], COUNT).cut("a cat", WHOLE_TOKENS) is None
    assert PassageCutter(["cat"], [1.0], COUNT).cut(FILLER * 20, WHOLE_TOKENS + 1) is not None


@each_of("before", [1, 10, 60])
def test_the_part_that_answers(before: int) -> None:
    shown = cut(FILLER * before + POINT + FILLER * 40, {"harbour": 5.0, "triest": 6.0, "paint": 4.0})
    assert POINT.strip() in shown
    assert shown[0].isupper(), "from the beginning of a sentence"
    assert shown.endswith("."), "to the end of one"
    assert COUNT(shown) >= PASSAGE_TOKENS // 2


def test_else_the_beginning() -> None:
    text = "I would like to ask about something. " + FILLER * 40
    assert cut(text, {}).startswith("I would like")
    assert cut(text, {"nowher": 3.0}).startswith("I would like")
    # One word further down is not worth leaving what is said first, if the beginning has a better one.
    assert cut("The lamp is broken. " + FILLER * 30 + "A chair. " + FILLER, {"lamp": 3.0, "chair": 2.0}).startswith(
        "The lamp"
    )


def test_stems_find_their_words() -> None:
    assert "happy" in cut(FILLER * 20 + "She was very happy there. " + FILLER * 20, {"happi": 5.0})


def test_words_without_spaces_between_them_are_found_within_a_run_of_letters() -> None:
    filler = "我们今天谈了很多别的事情。\n" * 30
    assert "杭州" in cut(filler + "他去年搬到杭州工作。\n" + filler, {"杭州": 5.0})
    # A word of a script with spaces still begins where a word does.
    mixed = filler + "concatenated\n" + filler + "她养了一只 cat 在杭州。\n" + filler
    assert "她养了" in cut(mixed, {"cat": 5.0, "杭州": 0.1})


def test_different_words_beat_one_that_is_repeated() -> None:
    text = FILLER * 8 + "Cats, cats, cats and cats! " + FILLER * 12 + "A cat sat on the moon. " + FILLER * 8
    assert "moon" in cut(text, {"cat": 2.0, "moon": 2.0})


@each_of("text", ["x" * 3000, "日本語" * 500, "\n" * 2000 + "a b" * 300, " ".join(["word"] * 900), "🙂" * 400])
def test_text_without_sentences(text: str) -> None:
    shown = cut(text, {"word": 1.0})
    assert shown == shown.strip() != ""


def test_only_the_beginning_of_a_very_long_message_is_looked_at() -> None:
    shown = cut(FILLER * 900 + POINT, {"triest": 5.0})
    assert shown.startswith("This sentence")


@examples(50)
@given(st.text(min_size=1, max_size=3000), st.lists(st.text(min_size=1, max_size=8), max_size=4))
def test_whatever_it_says(text: str, words: list[str]) -> None:
    passage = PassageCutter(words, [1.0] * len(words), COUNT).cut(text, 500)
    assert passage is not None
    start, stop, tokens = passage
    assert 0 <= start <= stop <= len(text)
    shown = text[start:stop]
    assert shown == shown.strip()
    assert tokens == COUNT(shown)
