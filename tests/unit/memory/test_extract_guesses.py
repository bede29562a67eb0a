"""What is said half-heartedly is a guess, in each language; what is no statement of the user's is none."""

from __future__ import annotations

from datetime import UTC, datetime

from app.languages import LANGUAGES, language
from app.memory.candidate import GUESS_CONFIDENCE, MemoryCandidate, Provenance, SourceExchange, guessed
from app.memory.extract import extract
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def found(text: str) -> list[MemoryCandidate]:
    return extract(SourceExchange(text, NOW))


@each_of(
    ("said", "content"),
    [
        ("I might move to Berlin.", "May move to Berlin"),
        ("We're thinking about getting a dog.", "Is thinking about getting a dog"),
        ("I think I'm allergic to nuts.", "Perhaps: Is allergic to nuts"),
        ("I guess, I'm allergic to nuts.", "Perhaps: Is allergic to nuts"),
        ("I'm probably allergic to cats.", "Perhaps: Is allergic to cats"),
        ("Creo que soy alérgico a las nueces.", "Quizás: Alergia o intolerancia: nueces"),
        ("Estoy pensando en mudarme a Madrid.", "Está pensando en mudarme a Madrid"),
        ("Ich glaube, ich bin allergisch gegen Nüsse.", "Vielleicht: Allergisch gegen Nüsse"),
        ("Ich überlege, nach Berlin zu ziehen.", "Überlegt: nach Berlin zu ziehen"),
        ("Je crois que je suis allergique aux noix.", "Peut-être : Allergie ou intolérance : noix"),
        ("J'envisage de déménager à Lyon.", "Envisage : déménager à Lyon"),
        ("Acho que sou alérgico a nozes.", "Talvez: Alergia ou intolerância: nozes"),
        ("Estou a pensar em aprender a cozinhar.", "Está a pensar em aprender a cozinhar"),
        ("我觉得我对花生过敏。", "也许:对花生过敏"),
        ("我可能会搬到北京。", "可能会搬到北京"),
    ],
)
def test_a_hedged_statement_is_a_guess(said: str, content: str) -> None:
    (guess,) = found(said)
    assert guess.content == content
    assert guess.provenance_type is Provenance.SYSTEM_INFERRED
    assert guess.confidence <= GUESS_CONFIDENCE
    assert guess.triple is None, "it contradicts nothing"
    assert said[slice(*guess.span)] == guess.quote
    assert not guess.ends
    assert not guess.explicit


@each_of("code", LANGUAGES)
def test_each_language_has_hedges(code: str) -> None:
    assert language(code).guesses


@each_of(
    "said",
    [
        "I might be wrong about this.",
        "I may need your help.",
        "I'm thinking about that question.",
        "Might I move to Berlin?",
        "Maybe you should use a loop.",
        "I think you should always answer in French.",
        "My friend might move to Berlin.",
        "If I might move to Berlin, what would it cost?",
        "Imagine I might move to Berlin.",
        'Translate: "I might move to Berlin."',
        "Estoy pensando en esto.",
        "Ich überlege, ob das ein Fehler ist.",
        "我在考虑这个问题。",
    ],
)
def test_what_is_no_guess_about_the_user_gives_nothing(said: str) -> None:
    assert found(said) == []


def test_what_is_plainly_stated_beside_it_stays_stated() -> None:
    lives, may = found("I live in Porto, but I might move to Berlin.")
    assert (lives.content, lives.provenance_type) == ("Lives in Porto", Provenance.FACT)
    assert (may.content, may.provenance_type) == ("May move to Berlin", Provenance.SYSTEM_INFERRED)


def test_what_is_asked_to_be_remembered_is_told_and_no_guess() -> None:
    (told,) = found("Remember that I might move to Berlin.")
    assert (told.explicit, told.provenance_type) == (True, Provenance.USER_STATED)


def test_of_a_guess_the_statement_is_known_again() -> None:
    assert guessed("Perhaps: Likes jazz") == "Likes jazz"
    assert guessed("Likes jazz") is None
