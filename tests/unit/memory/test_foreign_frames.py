"""Documents, pasted chats and texts to work on say nothing of the user; decoration hides nothing."""

from __future__ import annotations

from datetime import UTC, datetime

from app.memory.candidate import SourceExchange
from app.memory.extract import extract
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def read_contents(message: str) -> list[str]:
    return [candidate.content for candidate in extract(SourceExchange(message, NOW))]


@each_of(
    "message",
    [
        "Context information is below.\n---\nI live in Gdansk.\n---\nQuery: what does the author do?",
        "Context:\nMy name is Orlando Pruitt. I drive a Saab.\n\nQuestion: What car does the writer have?",
        "Context: I am allergic to walnuts.\nQuestion: What is the writer allergic to?",
        "BEGIN DOCUMENT\nI was born in Tromsø. My wife Ingrid is a dentist.\nEND DOCUMENT\nSummarize it.",
        "=== notes/diary.txt ===\nI moved to Porto and I have two cats.\n=== end ===\nfix it",
        "[1] I'm a vegan.\n[2] I live in Hull.\nWhich of these mentions food?",
        "Document 1:\nI live in Hull.\nDocument 2:\nI have a dog.",
        "Traduci in inglese:\nAbito a Matera e faccio il falegname.",
        "Vertaal naar het Engels:\nIk woon in Zwolle.",
        "Переведи на английский:\nЯ живу в Томске.",
        "Maria  10:14 AM\nhey all\nKofi  10:15 AM\nI moved to Accra and I have three kids",
        "Nadia — Today at 3:12 PM\nI'm allergic to kiwis\nBoris — Today at 3:13 PM\nI work for NASA",
        "Luc, [05.02.24 20:10]\nJ'habite à Dax\nZoé, [05.02.24 20:11]\nMoi j'ai un chien",
        "[21/03/2024, 18:03:40] Zoltan: I live in Kosice now\nis he flirting?",
        "12.03.24, 09:12 - Bernd: Ich wohne jetzt in Hof und bin Maurer.\nWas meint er?",
    ],
)
def test_what_others_wrote_says_nothing_of_the_user(message: str) -> None:
    assert read_contents(message) == []


@each_of(
    "message, content",
    [
        ("<message>I live in Bergen.</message>", "Lives in Bergen"),
        ("<user_input>I'm a nurse.</user_input>", "Is a nurse"),
        ("[12:04] I live in Truro", "Lives in Truro"),
        ("🙌 Hallo, ich wohne in Passau 🥨", "Wohnt in Passau"),
        ("For context: I live in Hull.", "Lives in Hull"),
        ("lol I live in Truro", "Lives in Truro"),
        ("@bot I live in Truro", "Lives in Truro"),
        ("2024-05-01 09:13:22 – I work at Ocado", "Works at Ocado"),
        ("Dentist 10:15", None),
        ("I like Iron Man.", "Likes Iron Man"),
        ("My favourite film is Apocalypse Now.", "Favourite film is Apocalypse Now"),
        ("I like Ant Man, dude.", "Likes Ant Man"),
        ("I like tea now.", "Likes tea"),
        ("Ya no soy alérgico al marisco.", None),
    ],
)
def test_decoration_hides_nothing(message: str, content: str | None) -> None:
    positive = [text for text in read_contents(message) if not any(word in text.lower() for word in ("no es", "ya no"))]
    assert content in positive if content else not any("soy" in text.lower() for text in positive)
