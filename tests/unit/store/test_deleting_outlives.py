"""app/store/erasure.py: which memories stay when one of their sources goes."""

from __future__ import annotations

from uuid import UUID

from app.store.erasure import SourcedMemory, outlives
from tests.support.tables import each_of

GONE, LEFT, THIRD = UUID(int=1), UUID(int=2), UUID(int=3)


def learned(text: str, quotes: dict[UUID, str | None], *, kind: str = "fact", stated: bool = False) -> SourcedMemory:
    sources = [{"message_id": str(message), "quote": quote} for message, quote in quotes.items()]
    return SourcedMemory(UUID(int=9), kind, text, sources, list(quotes), stated)


@each_of(
    ("text", "quotes", "stays"),
    [
        ("Likes tea", {GONE: "I like tea"}, False),
        ("Likes tea", {GONE: "I like tea", LEFT: "I really like tea!"}, True),
        ("Likes tea", {GONE: "I like tea", LEFT: "TEA is what I like"}, True),
        ("Likes green tea", {LEFT: "I like tea", GONE: "I like green tea"}, False),
        ("Likes green tea", {LEFT: "I like tea", GONE: "I like green tea", THIRD: "green, as I said"}, True),
        ("Has a parrot, Barnaby", {GONE: "my parrot is called Barnaby", LEFT: "the parrot"}, False),
        ("Likes tea", {GONE: None, LEFT: None}, True),
    ],
)
def test_a_memory_stays_as_far_as_others_say_what_it_says(
    text: str, quotes: dict[UUID, str | None], stays: bool
) -> None:
    assert outlives(learned(text, quotes), GONE, "") is stays


@each_of(
    ("text", "said", "quotes", "stays"),
    [
        (
            "Called weather: city Porto",
            ' [{"name": "weather", "arguments": "{\\"city\\": \\"Porto\\"}"}]',
            ("", ""),
            False,
        ),
        ("Has a parrot, Barnaby", "I have a parrot. Barnaby is its name.", ("a parrot", "a parrot"), False),
        ("Has a parrot, Barnaby", "I have a parrot, Barnaby", ("a parrot", "my parrot Barnaby has a cold"), True),
    ],
)
def test_what_only_the_message_said_goes_though_its_source_does_not_quote_it(
    text: str, said: str, quotes: tuple[str, str], stays: bool
) -> None:
    assert outlives(learned(text, dict(zip((GONE, LEFT), quotes, strict=True))), GONE, said) is stays


def test_what_tells_of_all_its_sources_at_once_does_not_stay() -> None:
    quotes: dict[UUID, str | None] = {GONE: "tea", LEFT: "tea"}
    assert outlives(learned("tea", quotes, kind="summary"), GONE, "tea") is False
    assert outlives(learned("tea", quotes, kind="episode"), GONE, "tea") is False


def test_what_a_client_said_outright_was_not_learned_from_it() -> None:
    assert outlives(learned("Likes tea", {GONE: "I like tea"}, stated=True), GONE, "I like tea") is True
