from __future__ import annotations

from app.memory.claims import AskedMemory, Reply, may_answer, puts, reply_to
from tests.support.tables import each_of

FRIDAYS = AskedMemory("Prefers Friday deliveries", "Friday deliveries", "prefers")
LISBON = AskedMemory("Lives in Lisbon", "Lisbon", "lives_in")


@each_of(
    "said",
    [
        "I have a note from 3 May 2026 that says “Prefers Friday deliveries”; is that still right?",
        "It is on its way. By the way, I have a note from May that you prefer Friday deliveries—is that still accurate?",
        "Booked! You used to prefer deliveries on Fridays. Is that still so?",
        "You prefer Friday deliveries, as I have noted. Could you confirm that this is still correct?",
        "Do you still prefer Friday deliveries? Just let me know.",
    ],
)
def test_a_question_about_the_note_is_one(said: str) -> None:
    assert puts(said, FRIDAYS)


@each_of(
    "said",
    [
        "Your order is on its way.",
        "Shall I book the flight?",
        "You prefer Friday deliveries.",  # no question
        "I noted that you prefer Friday deliveries. Shall I send it then?",
        "Shall I book the Friday deliveries?",
        "You prefer Friday deliveries. Is the parcel for your sister?",
        "You prefer Friday deliveries. Want me to order?",
        "You prefer Friday deliveries, is that right? Then there is one more thing. Shall I book the flight to Rome?",
        "",
    ],
)
def test_any_other_is_not(said: str) -> None:
    assert not puts(said, FRIDAYS)


@each_of(
    "text",
    ["Yes", "yes, that's right.", "Yep!", "That's still correct", "Correct. And what's the weather?", "It is.", "No change",
     "I still do", "still right", "Right."],
)  # fmt: skip
def test_yes(text: str) -> None:
    assert reply_to(FRIDAYS, text) == Reply("yes")


@each_of(
    ("text", "expected"),
    [
        # Seed 004, active validation flow: "No, Thursday now".
        ("No, Thursday now", Reply("no", "Prefers Thursday deliveries", "Thursday deliveries")),
        ("Nope, it's Thursday these days.", Reply("no", "Prefers Thursday deliveries", "Thursday deliveries")),
        ("No. Thursdays.", Reply("no", "Prefers Thursday deliveries", "Thursday deliveries")),
        ("Not any more", Reply("no")),
        ("No", Reply("no")),
        ("That's outdated, please forget it", Reply("no")),
        ("No, Friday", Reply("no")),  # it says the same: no correction
        ("No, I changed the whole thing when we moved the office last year", Reply("no")),
    ],
)
def test_no(text: str, expected: Reply) -> None:
    assert reply_to(FRIDAYS, text) == expected


@each_of(
    ("note", "text", "expected"),
    [
        (LISBON, "No, Porto now", Reply("no", "Lives in Porto", "Porto")),
        (LISBON, "No, I live in Porto now", Reply("no")),  # a statement of its own: learned as one
        (LISBON, "No, 5 of them", Reply("no")),
        (AskedMemory("Has 3 employees", None, None), "No, 5 now", Reply("no", "Has 5 employees", None)),
        (AskedMemory("Meets every 3 to 4 weeks"), "No, 5", Reply("no")),  # which of the two?
        (AskedMemory("Likes tea", "tea", "likes"), "No, coffee", Reply("no")),  # of several: it may be one more
        (LISBON, "No, porto now", Reply("no", "Lives in porto", "porto")),
        # What goes on with something else names no value.
        (LISBON, "No, what is the weather?", Reply("no")),
        (LISBON, "No, tell me a joke", Reply("no")),
        (LISBON, "No, Send it to Porto", Reply("no")),
        (LISBON, "No, Porto?", Reply("no")),
        (LISBON, "No, hang on a second", Reply("no")),
        (AskedMemory("Closes on Fridays"), "No, Thursday", Reply("no", "Closes on Thursdays", None)),
    ],
)
def test_what_is_right_instead(note: AskedMemory, text: str, expected: Reply) -> None:
    assert reply_to(note, text) == expected


@each_of(
    "text",
    ["What is the weather?", "No problem", "No thanks", "No, thanks.", "No idea", "Not sure", "I don't know", "Yes?", "",
     "Yes, but only in summer", "Yes and no, it is not quite so any more", "Nothing else", "Yesterday I was in Faro",
     "Right, where is my parcel", "Notes are fine", "Book it for Thursday", "Yes. But one more thing: book a table."],
)  # fmt: skip
def test_what_is_unclear_is_no_answer(text: str) -> None:
    assert reply_to(FRIDAYS, text) is None


def test_most_messages_cost_a_look_at_their_first_words() -> None:
    assert may_answer("No, Thursday now")
    assert not may_answer("Please send the parcel. Yes, that one.")
