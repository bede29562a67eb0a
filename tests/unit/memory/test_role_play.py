"""A role play begins and ends by the user's words, in the languages of `role_play.txt`."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from app.jobs.learn import RolePlay, mark_role_play, split_exchanges
from app.memory.role_play import is_play_end, is_play_start
from app.store.learning import SourceMessage
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@each_of(
    "message",
    [
        "Let's role-play: you are a waiter, I'm allergic to peanuts",
        "Let's role-play: you're a doctor and I'm the patient.",
        "Let's play a game: you are a dungeon master. I am Thorgrim the dwarf.",
        "Pretend you're interviewing me for a job as a chef.",
        "Lass uns ein Rollenspiel machen: Du bist der Kellner, ich der Gast.",
        "Jouons un jeu de rôle : tu es le boulanger et je suis le client.",
        "Hagamos un juego de rol: tú eres el médico.",
        "Facciamo un gioco di ruolo: tu sei il cameriere.",
        "Laten we een rollenspel doen: jij bent de ober.",
        "Vamos fazer um jogo de papéis: você é o garçom.",
        "Давай поиграем: ты официант.",
        "ロールプレイをしましょう。あなたは店員です。",
        "我们来玩角色扮演，你是服务员。",
        "역할극을 하자. 너는 웨이터야.",
    ],
)
def test_a_role_play_begins(message: str) -> None:
    assert is_play_start(message)
    assert not is_play_end(message)


@each_of(
    "message",
    [
        "Act as a career coach. I'm a nurse in Leeds.",
        "I want you to act as a translator.",
        "I play the cello and my sister plays the oboe.",
        "What is a good role model?",
        "We played a game yesterday.",
        "Ich spiele Tuba.",
        "Je joue du violon.",
        "I love role-playing games like Baldur's Gate.",
        "My hobby is role-play.",
        "Role-playing is how I train nurses.",
        "In our sales training we did a role-play.",
        "Can you recommend a role-playing game?",
        "Can you explain what a role-play exercise is?",
        "Ich spiele gern Rollenspiele am Wochenende.",
        "J'adore les jeux de rôle.",
        "Me gustan los juegos de rol.",
        "Jogo de RPG é o meu passatempo.",
        "Mi piacciono i giochi di ruolo.",
        "Ik hou van rollenspellen.",
        "Я люблю ролевые игры.",
        "ロールプレイングゲームが好きです。",
        "我喜欢玩角色扮演游戏。",
        "저는 롤플레이 게임을 좋아해요.",
    ],
)
def test_an_order_to_the_assistant_or_the_name_of_the_thing_begins_none(message: str) -> None:
    assert not is_play_start(message)


@each_of(
    "message",
    [
        "Translate into French:\nLet's role-play: you are a waiter and I'm the guest.",
        'What does "let\'s do a role-play" mean?',
        "Summarize the following text:\n\nRole-play: you are a thief.",
        "Context:\nLet's role-play, you are a bank.\n\nQuestion: who says that?",
        "> Let's role-play\nWhat shall I answer him?",
    ],
)
def test_a_pasted_text_begins_none(message: str) -> None:
    assert not is_play_start(message)


@each_of(
    "message",
    [
        "Roleplay as a waiter.",
        "Start a role-play: you are the boss.",
        "Can we do a little role-play about job interviews?",
        "I want you to role-play as my landlord.",
        "In this role-play, you are a bank clerk.",
        "Können wir ein Rollenspiel machen?",
        "Faisons un petit jeu de rôle.",
        "Empecemos un juego de rol.",
        "Iniziamo un gioco di ruolo.",
        "ロールプレイしよう。",
        "我们开始角色扮演。",
    ],
)
def test_an_invitation_begins_one(message: str) -> None:
    assert is_play_start(message)


@each_of(
    "message",
    [
        "ok stop the game. suggest a snack",
        "end of role play. what's a good lunch?",
        "ok, interview over. Thanks!",
        "Let's stop the role play now.",
        "Ende des Rollenspiels. Was koche ich heute?",
        "Fin du jeu. Merci !",
        "Se acabó el juego.",
        "Fine del gioco, grazie.",
        "Het rollenspel is voorbij.",
        "Конец игры.",
        "ゲームは終わり。",
        "游戏结束。",
        "역할극 끝!",
    ],
)
def test_a_role_play_ends(message: str) -> None:
    assert is_play_end(message)
    assert not is_play_start(message)


def test_what_a_role_says_is_none_of_the_users_own() -> None:
    texts = [
        "I live in Hull.",
        "Let's role-play: you are a waiter.",
        "I'm allergic to figs.",
        "Stop the game.",
        "I have a cat.",
    ]
    messages = [SourceMessage(UUID(int=n), 2 * n, "user", text, [], NOW, {}) for n, text in enumerate(texts)]
    own_exchanges, played, after = mark_role_play(split_exchanges(messages), RolePlay())
    assert [exchange.user_text for exchange, _ in own_exchanges] == [texts[0], texts[3], texts[4]]
    assert played == [UUID(int=1), UUID(int=2)]
    assert not after.is_playing
