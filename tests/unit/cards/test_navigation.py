"""app/features/cards/navigation.py: which card a sentence asks for, and finding it."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from app.features.cards.navigation import MAX_ASKED_CHARS, CardRequest, pick, understand, words_of
from app.features.cards.store import Indexed
from tests.support.tables import each_of

ABOUT_CARDS: list[tuple[str, dict[str, Any]]] = [
    # Seed 003: its query, and its verification plan.
    ("Show me the second card from 3 questions ago", {"order": 2, "ago": 3}),
    ("Show me the second card from the first question", {"order": 2, "question": 1}),
    # A place and a question, in words and digits.
    ("the second card from three questions ago", {"order": 2, "ago": 3}),
    ("2nd card from 3 questions ago", {"order": 2, "ago": 3}),
    ("the second card from the first question", {"order": 2, "question": 1}),
    ("card 3 from the previous question", {"order": 3, "ago": 1}),
    ("Card #3 of question #2", {"order": 3, "question": 2}),
    ("card number three from question number two", {"order": 3, "question": 2}),
    ("please show me the third card of the second question", {"order": 3, "question": 2}),
    ("could you bring up the first card from the 2nd question?", {"order": 1, "question": 2}),
    ("the last card of the first question", {"order": -1, "question": 1}),
    ("the second to last card from question 4", {"order": -2, "question": 4}),
    ("the next to last card from question 4", {"order": -2, "question": 4}),
    ("the twelfth card from question eleven", {"order": 12, "question": 11}),
    ("the second card from the last question", {"order": 2, "question": -1}),
    ("the first card from the question before last", {"order": 1, "question": -2}),
    ("the first card from the second to last question", {"order": 1, "question": -2}),
    ("the first card from my penultimate question", {"order": 1, "question": -2}),
    ("second card from a question ago", {"order": 2, "ago": 1}),
    ("the second card from two turns ago", {"order": 2, "ago": 2}),
    ("the second card two answers back", {"order": 2, "ago": 2}),
    ("the second card from this question", {"order": 2, "ago": 0}),
    ("the fourth card that you showed me in the second answer", {"order": 4, "question": 2}),
    ("from question two, show me the third card", {"order": 3, "question": 2}),
    ("three questions ago you showed me the second card", {"order": 2, "ago": 3}),
    ("go back three questions and open the second card", {"order": 2, "ago": 3}),
    ("In the first question, what was on the second card?", {"order": 2, "question": 1}),
    ("the second one from three questions ago", {"order": 2, "ago": 3}),
    ("I want to see the second card from the question before this one", {"order": 2, "ago": 1}),
    ("Let's see the first card of the question before", {"order": 1, "ago": 1}),
    # Types.
    ("the second chart from the first question", {"order": 2, "kind": ("chart",), "question": 1}),
    ("the comparison table from two questions ago", {"order": None, "kind": ("comparison", "table"), "ago": 2}),
    ("the second product card from question 1", {"order": 2, "kind": ("product",), "question": 1}),
    ("the credit card from question 2", {"order": None, "kind": ("credit",), "question": 2}),
    ("charts from the last question", {"order": None, "kind": ("chart",), "question": -1}),
    ("the last chart", {"order": -1, "kind": ("chart",), "anywhere": True}),
    ("show me the last chart again", {"order": -1, "kind": ("chart",), "anywhere": True}),
    ("the most recent map", {"order": -1, "kind": ("map",), "anywhere": True}),
    ("that table again", {"order": -1, "kind": ("table",), "anywhere": True}),
    (
        "Can you show me that comparison table again, please?",
        {"order": -1, "kind": ("comparison", "table"), "anywhere": True},
    ),
    ("show me the chart again", {"order": -1, "kind": ("chart",), "anywhere": True}),
    ("the first product card you showed me", {"order": 1, "kind": ("product",), "anywhere": True}),
    ("the first chart in this conversation", {"order": 1, "kind": ("chart",), "anywhere": True}),
    ("what does the last chart say?", {"order": -1, "kind": ("chart",), "anywhere": True}),
    ("the previous picture", {"order": -1, "kind": ("picture",), "anywhere": True}),
    # Of the newest question that showed such a card.
    ("show me the second card", {"order": 2}),
    ("Open card 2", {"order": 2}),
    ("card two", {"order": 2}),
    ("the third card please", {"order": 3}),
    ("tell me more about the second card", {"order": 2}),
    ("what was the price on the second card?", {"order": 2}),
    ("go back to the first card", {"order": 1}),
    ("the second to last card", {"order": -2, "anywhere": True}),
    ("the last card", {"order": -1, "anywhere": True}),
    ("this card", {"order": -1, "anywhere": True}),
    ("show me those cards again", {"order": None}),
    ("the second last card", {"order": -2, "anywhere": True}),
    ("show me this chart again", {"order": -1, "kind": ("chart",), "anywhere": True}),
    ("show me the two cards again", {"order": None}),
    ("the two cards from question 1", {"order": None, "question": 1}),
    ("Which of the cards from the first question was the cheapest?", {"order": None, "question": 1}),
    ("add the second card from the first question to my cart", {"order": 2, "question": 1}),
    ("how much was the second one in the last answer?", {"order": 2, "question": -1}),
    ("the second card from the second-to-last question", {"order": 2, "question": -2}),
    # Several.
    ("all cards from question two", {"order": None, "question": 2}),
    ("all the cards from two questions ago", {"order": None, "ago": 2}),
    ("all of the charts from question 1", {"order": None, "kind": ("chart",), "question": 1}),
    ("cards from question three", {"order": None, "question": 3}),
    ("show me all cards", {"order": None, "anywhere": True}),
    ("all charts you showed me", {"order": None, "kind": ("chart",), "anywhere": True}),
    ("the first two cards from question 1", {"order": 1, "take": 2, "question": 1}),
    ("the last two cards of the first question", {"order": -2, "take": 2, "question": 1}),
    ("both cards from the previous question", {"order": None, "ago": 1}),
]

NOT_ABOUT_CARDS = [
    "",
    "What is the capital of Portugal?",
    "I lost my credit card yesterday",
    "What's my credit card number?",
    "Show me the second credit card",
    "the last business card I got was yours",
    "Which card should I use at the ATM?",
    "Can I pay by card?",
    "Put it on the table",
    "Book the second table for two at eight",
    "Book a table for two",
    "show me the table of contents",
    "Show me a chart of sales by region",
    "show me the chart of sales by region",
    "Draw a chart",
    "make me a table of the last three months",
    "Create the second table in SQL",
    "show me the second table of the SQL schema",
    "My second card was declined",
    "show me my cards",
    "the first question is the hardest",
    "three questions ago I asked about Rome",
    "What did I ask three questions ago?",
    "What did you say in the previous answer?",
    "Question 2: what is a business card?",
    "The third question on the exam had a chart in it",
    "Answer the first question about the table",
    "In the first question, I asked for a table",
    "How many cards are in a deck?",
    "She played her last card",
    "the first card game I ever learned",
    "He scored in the second minute and got a yellow card",
    "Is this a picture of a cat?",
    "Map the first column to the second one",
    "second one",
    "I have three questions about cards",
    "the last two questions",
    "Please describe the image",
    "Delete the last table row",
    "Describe this image",
    "What's in this picture?",
    "Explain this chart to me",
    "Send the last picture to my mother",
    "Can you explain the first table in the paper I pasted?",
    "What did the chart on page two of the report show?",
    "tell me the last 4 digits of my card",
    "pick a card, any card",
    "give me that table as CSV",
    "show me two cards",
    "show the last answer again",
    "cards",
    "card",
    "\u00a7 card",
]


@each_of(("text", "fields"), ABOUT_CARDS)
def test_what_is_asked_for(text: str, fields: dict[str, Any]) -> None:
    assert understand(text) == CardRequest(**fields)


@each_of("text", NOT_ABOUT_CARDS)
def test_what_is_not_about_cards(text: str) -> None:
    assert understand(text) is None


@each_of(
    ("text", "fields"),
    [
        ("the second product from the first question", {"order": 2, "kind": ("product",), "question": 1}),
        ("show me the last invoice", {"order": -1, "kind": ("invoice",), "anywhere": True}),
    ],
)
def test_the_types_of_a_conversation_are_things_to_ask_for(text: str, fields: dict[str, Any]) -> None:
    assert understand(text) is None
    assert understand(text, ("product_card", "unpaidInvoices")) == CardRequest(**fields)


@given(st.text(max_size=MAX_ASKED_CHARS + 5))
def test_any_text_is_understood_or_not(text: str) -> None:
    understand(text)


OWN_WORDS = re.findall(
    r"\S+", "the second last card cards to from question questions ago 3 two # all that § of next number"
)


@given(
    st.lists(
        st.sampled_from(OWN_WORDS),
        max_size=12,
    )
)
def test_any_order_of_its_own_words_is_understood_or_not(words: list[str]) -> None:
    wanted = understand(" ".join(words))
    assert wanted is None or wanted.take >= 1


def test_a_long_text_asks_for_no_card() -> None:
    text = "Show me the second card from the first question"
    assert understand(text + "." * (MAX_ASKED_CHARS - len(text))) is not None
    assert understand(text + "." * (MAX_ASKED_CHARS - len(text) + 1)) is None


# --- picking ----------------------------------------------------------------------------------------------------------

SESSION = UUID(int=1)


def card(
    question: int, order: int, kind: str = "product_card", *, sibling: int = 0, session: UUID = SESSION
) -> Indexed:
    place = (question * 10 + order) * 10 + sibling
    return Indexed(UUID(int=place), session, question, 2 * question, sibling, order, kind)


CARDS = [
    card(1, 1), card(1, 2, "comparison_table"), card(1, 3, "chart"),
    card(2, 1, "chart"),
    card(4, 1), card(4, 2),
]  # fmt: skip
"""Five questions; the third and the fifth showed nothing."""


@each_of(
    ("text", "found"),
    [
        ("the second card from the first question", [(1, 2)]),
        ("the second card from 4 questions ago", [(1, 2)]),  # seed 003: MAX(turn) − 4
        ("the second card from one question ago", [(4, 2)]),
        ("the last card of question 1", [(1, 3)]),
        ("the second to last card of question 1", [(1, 2)]),
        ("the last two cards of question 1", [(1, 2), (1, 3)]),
        ("all cards from question 1", [(1, 1), (1, 2), (1, 3)]),
        ("the first chart of question 1", [(1, 3)]),
        ("the last chart", [(2, 1)]),
        ("the first chart you showed me", [(1, 3)]),
        ("that table again", [(1, 2)]),
        ("the second card", [(4, 2)]),
        ("card 2 from the last question", [(4, 2)]),
        ("the first card from the question before last", []),
        ("all charts you showed me", [(1, 3), (2, 1)]),
        ("those cards again", [(4, 1), (4, 2)]),
        ("the last two charts", [(1, 3), (2, 1)]),
    ],
)
def test_what_is_picked(text: str, found: list[tuple[int, int]]) -> None:
    wanted = understand(text)
    assert wanted is not None
    assert [(each.question, each.order) for each in pick(wanted, reversed(CARDS), 5).cards] == found


@each_of(
    ("text", "why"),
    [
        ("the second card from question 2", "Question 2 showed 1 card."),
        ("the third card from the third question", "Question 3 showed no card."),
        ("the second map from question 1", "Question 1 showed 3 cards, but no map card."),
        ("the second chart from question 1", "Question 1 showed 1 chart card."),
        ("the first card from question 9", "Only 5 questions were asked in this conversation."),
        (
            "the first card from 7 questions ago",
            "That is before the first question: 5 questions were asked in this conversation.",
        ),
        ("the last map", "This conversation showed no map card."),
        ("the second map", "Question 4 showed 2 cards, but no map card."),
    ],
)
def test_why_nothing_is_picked(text: str, why: str) -> None:
    wanted = understand(text)
    assert wanted is not None
    assert pick(wanted, CARDS, 5) == ((), pick(wanted, CARDS, 5).question, why)


def test_a_conversation_without_cards_says_so() -> None:
    assert pick(CardRequest(2, question=1), [], 3) == ((), None, "No card was shown in this conversation.")


def test_of_answers_given_anew_the_newest_that_showed_cards_counts() -> None:
    again = [card(1, 1, sibling=1), card(1, 2, sibling=1)]
    assert pick(CardRequest(1, question=1), [*CARDS, *again], 5).cards == (again[0],)
    assert pick(CardRequest(3, question=1), [*CARDS, *again], 5).why == "Question 1 showed 2 cards."


def test_orders_are_counted_as_they_were_shown_whatever_their_numbers() -> None:
    shown = [card(1, 7), card(1, 3)]
    assert [each.order for each in pick(CardRequest(2, question=1), shown, 1).cards] == [7]


@each_of(
    ("kind", "words"),
    [
        ("comparison_table", ("comparison", "table")),
        ("productCards", ("product", "card")),
        ("sales-charts", ("sale", "chart")),
        ("Boxes", ("box",)),
        ("", ()),
    ],
)
def test_words_of_a_type(kind: str, words: tuple[str, ...]) -> None:
    assert words_of(kind) == words
