"""Messages that ask for all that is known of the user, and others that are like them. Sentences of our own."""

from __future__ import annotations

from app.context.bearing import read
from tests.support.tables import each_of

QUESTIONS = """
What do you know about me?
wat do u know about me
whatcha know about me?
hey, so what all do you know about me so far?
tell me everything that you remember of me
summarise what you know about me
who am I?
What info do you have on me?
show me everything you've saved about me
How well do you know me?
Do you remember anything about me?
What have I told you about myself?
Was weißt du über mich?
wat weeßte über mich
Fass zusammen, was du über mich weißt
Erzähl mir alles, woran du dich von mir erinnerst
Was haben Sie über mich gespeichert?
Wer bin ich?
¿Qué sabes de mí?
qué sabés de mí
Resume lo que sabes de mí
¿Quién soy?
Que sais-tu de moi ?
T'sais quoi sur moi
Dis-moi tout ce dont tu te souviens à mon sujet
Qui suis-je ?
O que você sabe sobre mim?
o que vc sabe de mim
Conta-me tudo o que te lembras de mim
Quem sou eu?
你知道我什么？
你對我了解多少
告诉我你记得的关于我的一切
我是谁？
Cosa sai di me?
Chi sono io?
Wat weet je over mij?
Wie ben ik?
Co o mnie wiesz?
Что ты знаешь обо мне?
Кто я?
私について何を知っていますか？
나에 대해 무엇을 알고 있어?
Benim hakkımda ne biliyorsun?
Vad vet du om mig?
Hvad ved du om mig?
ماذا تعرف عني؟
मेरे बारे में जो कुछ याद है सब बताओ
"""
OTHER_MESSAGES = """
What do you think of me?
What do you know about my job?
What do you know about Ann?
What do you know about meditation?
Tell me everything you know about Python
Play All of Me by John Legend
who am i to judge him
What does he know about me?
Do you know what people say about me?
summarize the email he wrote about me
Do you remember me telling you about the Golf?
My boss said everything about me is wrong
Update my profile picture component in React
Was weißt du über Berlin?
was hast du von Merkel gehört
Qué sabes de Madrid?
Qui suis-je censé appeler ?
Chi sono i Beatles?
wat weet je over melk
你知道我什么时候出生吗
나를 기억하는 사람
"""


@each_of("message", QUESTIONS.strip().splitlines())
def test_all_that_is_known_is_asked_for(message: str) -> None:
    assert read(message).whole


@each_of("message", OTHER_MESSAGES.strip().splitlines())
def test_something_else_is_asked_for(message: str) -> None:
    assert not read(message).whole


def test_a_long_message_only_mentions_it() -> None:
    assert not read("I wrote this on a train to Leeds. " * 5 + "What do you know about me?").whole
