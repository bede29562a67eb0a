from __future__ import annotations

from app.languages import Speech, heard
from tests.support.tables import each_of


@each_of(
    ("text", "first_person", "mine"),
    [
        ("Where did I park?", True, False),
        ("Tell me what Ana said", False, False),
        ("Tell me where I parked", True, False),
        ("给我讲个笑话", False, False),
        ("What's my sister's name?", True, True),
        ("When do we deploy?", True, True),
        ("Was weiß Ana über mich?", True, False),
        ("Wie heißt mein Hund?", True, True),
        ("¿Cómo se llama mi perro?", True, True),
        ("Comment s'appelle ma femme ?", True, True),
        ("Como se chama o meu gato?", True, True),
        ("我住在哪里？", True, False),
        ("我们的车是什么颜色？", True, True),
        ("Where does Ana live?", False, False),
        ("Translate 'good morning' into Welsh.", False, False),
    ],
)
def test_of_whom_it_speaks(text: str, first_person: bool, mine: bool) -> None:
    assert heard(text)[:2] == (first_person, mine)


@each_of(
    "text",
    ["Continue", "Go on, please", "Make it shorter", "Say hi", "Hello", "ok", "Sure, do it", "Weiter", "Plus court", "Obrigada",
     "Sigue", "继续", "谢谢！", "", "?!"],
)  # fmt: skip
def test_what_is_of_the_talk_alone(text: str) -> None:
    assert heard(text) == Speech(heard(text).first_person, False, True)


@each_of(
    "text",
    [
        "Who am I?",
        "What do you know about me?",
        "What did we say?",
        "Where is the key?",
        "17 * 23",
        "Wo wohne ich?",
        "我是谁？",
    ],
)
def test_what_is_of_something(text: str) -> None:
    assert not heard(text).talk
