"""A role play begins and ends by the user's words, in the languages of `role_play.txt`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from app.jobs.learn import RolePlay, mark_role_play, split_exchanges
from app.memory.role_play import is_play_end, is_play_start
from app.store.learning import SourceMessage
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def make_messages(texts: Sequence[str]) -> list[SourceMessage]:
    return [SourceMessage(UUID(int=n), 2 * n, "user", text, [], NOW, {}) for n, text in enumerate(texts)]


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
        "Lass uns ein Rollenspiel machen: du bist Kellner, ich bin gegen Nüsse allergisch",
        "Tu so, als wärst du meine Oma und ich acht Jahre alt",
        "Du bist der Spielleiter. Ich bin Thorin, ein Zwerg aus Erebor.",
        "Spiel einen Personalchef, ich bin der Bewerber.",
        "Stell dir vor, ich bin Arzt im Jahr 1850 und du bist mein Patient",
        "Wir spielen ein Text-Adventure: Ich bin ein Zauberer und wohne in einem Turm",
        "Du spielst jetzt Sherlock, ich bin Watson.",
        "Verhalte dich wie ein Pirat, ich bin dein Papagei",
        "Faisons un jeu de rôle : tu es serveur, je suis allergique aux noix",
        "Fais comme si tu étais ma grand-mère et que j'avais huit ans",
        "Tu es le maître du jeu. Je suis Thorin, un nain d'Erebor.",
        "Joue le rôle d'un recruteur, je suis le candidat.",
        "Imagine que je suis médecin en 1850 et que tu es mon patient",
        "On joue à une aventure textuelle : je suis un sorcier qui habite une tour",
        "Tu incarnes Sherlock, moi je suis Watson.",
        "Mets-toi dans la peau d'un pirate, je suis ton perroquet",
        "Hagamos un juego de rol: tú eres camarero, yo soy alérgico a las nueces",
        "Haz como si fueras mi abuela y yo tuviera ocho años",
        "Eres el máster del juego. Soy Thorin, un enano de Erebor.",
        "Haz el papel de entrevistador, yo soy el candidato.",
        "Imagina que soy médico en 1850 y tú eres mi paciente",
        "Jugamos a una aventura de texto: soy un mago que vive en una torre",
        "Tú interpretas a Sherlock, yo soy Watson.",
        "Actúa como un pirata, yo soy tu loro",
        "Vamos fazer um roleplay: você é garçom, eu sou alérgico a nozes",
        "Finja que é minha avó e eu tenho oito anos",
        "Você é o mestre do jogo. Eu sou Thorin, um anão de Erebor.",
        "Faça o papel de entrevistador, eu sou o candidato.",
        "Imagine que sou médico em 1850 e você é meu paciente",
        "Vamos jogar uma aventura de texto: sou um mago que mora numa torre",
        "Você interpreta Sherlock, eu sou Watson.",
        "Aja como um pirata, eu sou seu papagaio",
        "我们来玩角色扮演：你是服务员，我对花生过敏",
        "假装你是我奶奶，我八岁",
        "你是游戏主持人。我是索林，来自孤山的矮人。",
        "想象我是1850年的医生，你是我的病人",
        "我们玩文字冒险游戏：我是住在塔里的巫师",
        "你来演福尔摩斯，我是华生。",
        "你现在是海盗，我是你的鹦鹉",
        "Stay in character as Sherlock. I'm Watson.",
    ],
)
def test_a_role_for_each_begins_one(message: str) -> None:
    assert is_play_start(message)


@each_of(
    "message",
    [
        "Let's play a game of chess tomorrow",
        "I play the violin",
        "we're playing tennis on Sunday with my boss",
        "I act in an amateur theatre, we do Hamlet in May",
        "What's a good role-playing game for six people? I own D&D 5e.",
        "My son is playing a tree in the school play",
        "I'd like to imagine we're done by Friday. I'm off to Rome then.",
        "I play a paladin in our weekly D&D group",
        "Lass uns morgen Schach spielen",
        "Ich spiele Geige",
        "wir spielen am Sonntag Tennis mit meinem Chef",
        "Ich spiele im Theaterverein, im Mai kommt Hamlet",
        "Welches Rollenspiel passt für sechs Leute? Ich habe D&D.",
        "Mein Sohn spielt im Schultheater einen Baum",
        "Ich spiele in unserer D&D-Runde einen Paladin",
        "Kannst du mir eine Rolle bei dem Umzug erklären? Ich ziehe nach Rom.",
        "On joue aux échecs demain",
        "Je joue du violon",
        "on joue au tennis dimanche avec mon patron",
        "Je joue dans une troupe amateur, Hamlet en mai",
        "Quel jeu de rôle pour six personnes ? J'ai D&D.",
        "Mon fils joue un arbre dans la pièce de l'école",
        "Je joue un paladin dans notre groupe de D&D",
        "Imagine, je déménage à Rome !",
        "Vamos a jugar al ajedrez mañana",
        "Toco el violín",
        "jugamos al tenis el domingo con mi jefe",
        "Actúo en un grupo de teatro, en mayo hacemos Hamlet",
        "¿Qué juego de rol va bien para seis? Tengo D&D.",
        "Mi hijo hace de árbol en la obra del cole",
        "Juego un paladín en nuestro grupo de D&D",
        "¡Imagínate, me mudo a Roma!",
        "Vamos jogar xadrez amanhã",
        "Toco violino",
        "jogamos tênis no domingo com meu chefe",
        "Atuo num grupo de teatro, em maio fazemos Hamlet",
        "Qual RPG é bom para seis pessoas? Tenho D&D.",
        "Meu filho faz uma árvore na peça da escola",
        "Jogo com um paladino no nosso grupo de D&D",
        "Imagina só, vou me mudar para Roma!",
        "明天一起下棋吧",
        "我拉小提琴",
        "我们周日和老板打网球",
        "我在业余剧团演戏，五月演哈姆雷特",
        "六个人玩什么角色扮演游戏好？我有龙与地下城。",
        "我儿子在学校话剧里演一棵树",
        "我在跑团里玩圣骑士",
        "想不到吧，我要搬去罗马了！",
        "Let's play some cards on Friday!",
        "Juguemos al parchís mañana",
        "Jouons à la pétanque dimanche",
        "Giochiamo a carte domani",
        "Laten we morgen schaken spelen",
        "Давай сыграем в шахматы завтра",
        "我们来玩扑克吧",
        "We're playing Monopoly tonight, I always take the dog",
        "I'm directing a play about Joan of Arc",
        "Let's play it safe: I keep 10k in savings",
        "Wir spielen heute Abend Monopoly, ich nehme immer den Hund",
        "Das spielt für mich keine Rolle, ich fahre Rad",
        "Lass uns mit offenen Karten spielen: ich habe Schulden",
        "Ce soir on joue au Monopoly, je prends toujours le chien",
        "Je monte une pièce sur Jeanne d'Arc",
        "Ça ne joue aucun rôle, je roule à vélo",
        "Esta noche jugamos al Monopoly, siempre cojo el perro",
        "Dirijo una obra sobre Juana de Arco",
        "Haz como quieras, yo soy vegano",
        "Hoje jogamos Monopoly, fico sempre com o cão",
        "Dirijo uma peça sobre Joana d'Arc",
        "Você é o melhor! Eu sou um desastre na cozinha",
        "今晚玩大富翁，我总选小狗",
        "我在排一出关于贞德的话剧",
        "你是对的，我是素食者",
        "Let's play some Mozart at my wedding",
        "Stell dir vor, ich habe im Lotto gewonnen!",
        "Jouons la carte de la prudence, j'ai des dettes",
        "Vamos a jugar un partido el lunes",
        "Vamos brincar no parque com meus filhos",
        "我和儿子玩过家家",
    ],
)
def test_a_game_an_instrument_or_a_theatre_is_no_role_play(message: str) -> None:
    assert not is_play_start(message)
    assert mark_role_play(split_exchanges(make_messages([message])), RolePlay())[2] == RolePlay()


@each_of(
    "message",
    [
        "ok stop the game. suggest a snack",
        "Let's end the role play here.",
        "you can drop the character now",
        "out of character: what time zone are you in?",
        "Game over. Thanks! Now help me with my CV.",
        "no more roleplay please",
        "exit the roleplay",
        "That's enough pretending, back to normal.",
        "Ok, hör auf mit dem Spiel. Schlag einen Snack vor",
        "Das Rollenspiel ist vorbei.",
        "Du kannst die Rolle jetzt ablegen.",
        "Rollenspiel Ende",
        "Schluss mit dem Rollenspiel",
        "Lass uns das Rollenspiel beenden",
        "Genug gespielt, zurück zum Thema",
        "Du bist jetzt wieder du selbst",
        "Ok, arrête le jeu. Propose un goûter",
        "Le jeu de rôle est terminé.",
        "Tu peux sortir du personnage maintenant",
        "Fin du jeu de rôle",
        "On arrête le jeu de rôle",
        "Stop le jeu",
        "Assez joué, revenons au sujet",
        "Redeviens toi-même",
        "Vale, para el juego. Sugiere un tentempié",
        "El juego de rol ha terminado.",
        "Puedes salir del personaje",
        "Fin del juego de rol",
        "Dejemos el juego de rol",
        "Basta de jugar, volvamos al tema",
        "Deja de actuar",
        "Ya puedes volver a ser tú",
        "Ok, pare o jogo. Sugira um lanche",
        "O roleplay acabou.",
        "Pode sair do personagem",
        "Fim do jogo",
        "Vamos parar com o roleplay",
        "Chega de brincadeira, voltemos ao assunto",
        "Pare de atuar",
        "Volte a ser você mesmo",
        "好了，游戏结束。推荐个零食",
        "角色扮演结束",
        "不玩了",
        "别演了",
        "退出角色扮演",
        "停止扮演",
        "你可以恢复正常了",
        "到此为止，别再扮演了",
        "okay, enough role-playing for today",
        "let's stop pretending. what's 20% of 80?",
        "End scene.",
        "Okay, genug Rollenspiel für heute",
        "Stopp das Spiel",
        "Hören wir auf mit dem Rollenspiel",
        "Bon, assez de jeu de rôle pour aujourd'hui",
        "Arrêtons de jouer",
        "On sort du jeu de rôle",
        "Bueno, basta de juego de rol por hoy",
        "Terminemos la escena",
        "Paremos el rol",
        "Bom, chega de roleplay por hoje",
        "Vamos parar de fingir",
        "Fim da cena",
        "今天的角色扮演就到这里",
        "结束游戏吧",
        "不演了",
        "please end the roleplay now",
        "ok scene over",
        "Schluss jetzt mit dem Spiel",
        "Beende das Rollenspiel",
        "Termine le jeu de rôle",
        "Acaba con el juego de rol",
        "Encerra o roleplay",
        "结束角色扮演，谢谢",
    ],
)
def test_a_role_play_is_stopped(message: str) -> None:
    assert is_play_end(message)


@each_of(
    "message",
    [
        "I have two kids and live in Leeds, can I get the nut-free menu?",
        "Stop right there, dragon!",
        "My character stops at the inn and ends the fight",
        "I no longer live in the tower",
        "Ich habe zwei Kinder und wohne in Leipzig, gibt es ein Menü ohne Nüsse?",
        "Halt, Drache, hör auf!",
        "J'ai deux enfants et j'habite à Lille, y a-t-il un menu sans noix ?",
        "Arrête-toi, dragon !",
        "Tengo dos hijos y vivo en Sevilla, ¿hay menú sin nueces?",
        "¡Para, dragón!",
        "Tenho dois filhos e moro em Recife, tem cardápio sem nozes?",
        "Pare, dragão!",
        "我有两个孩子，住在成都，有没有不含坚果的菜单？",
        "住手，恶龙！",
    ],
)
def test_words_of_a_role_stop_no_play(message: str) -> None:
    assert not is_play_end(message)


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
    own_exchanges, played, after = mark_role_play(split_exchanges(make_messages(texts)), RolePlay())
    assert [exchange.user_text for exchange, _ in own_exchanges] == [texts[0], texts[3], texts[4]]
    assert played == [UUID(int=1), UUID(int=2)]
    assert not after.is_playing


@each_of("stop", ["Stop the role play, please.", "Schluss mit dem Rollenspiel.", "角色扮演结束"])
def test_a_role_play_that_only_the_tagger_notices_ends_by_the_same_words(stop: str) -> None:
    begins = "I want you to act as a text adventure game. I will type what I do, and you tell me what happens."
    assert not is_play_start(begins)
    assert mark_role_play(split_exchanges(make_messages([begins])), RolePlay())[2].noticed
    assert mark_role_play(split_exchanges(make_messages([begins, stop])), RolePlay())[2] == RolePlay()


@each_of(
    "message",
    [
        "You are the expert and I'm a beginner gardener from Hull. Where do I start?",
        "You're a star, and I'm a happy customer!",
        "You are my coach and I am your client, so be strict",
        "Du bist der Experte und ich bin der Anfänger, wo fange ich an?",
        "Tu es un expert et moi je suis un débutant, aide-moi",
        "Tú eres el experto y yo soy la principiante",
        "Let's pretend money is no issue: where should I travel?",
        "Você é o especialista e eu sou o iniciante",
        "Lass uns so tun, als wäre Geld egal: wohin reise ich?",
        "Faisons semblant que l'argent ne compte pas",
        "Hagamos como que el dinero no importa",
        "Vamos fingir que dinheiro não importa",
        "Tu sei l'esperto e io sono il principiante",
        "Jij bent de expert en ik ben de beginner",
        "Let's pretend it's summer. What do I cook?",
        "Du bist mein Coach und ich bin dein Kunde",
        "You're a lifesaver and I'm a nurse from Hull. Let's start with the budget.",
        "Du bist der Experte und ich bin der Anfänger, ich spiele Tuba",
        "You are a great teacher and I'm a student who loves to play chess",
    ],
)
def test_a_polite_comparison_or_supposition_begins_no_play(message: str) -> None:
    assert not is_play_start(message)
    own_exchanges, _, _ = mark_role_play(split_exchanges(make_messages([message, "I live in Hull."])), RolePlay())
    assert [exchange.user_text for exchange, _ in own_exchanges] == [message, "I live in Hull."]


@each_of(
    "message",
    [
        "Let's start. You are the seller and I'm the buyer.",
        "Scene: you are a cop and I'm the thief",
        "You be the waiter and I'll be the guest",
        "Let's pretend you're my boss",
        "Lass uns so tun, als wärst du mein Chef",
        "Faisons semblant que tu es mon chef",
        "Hagamos como que eres mi jefe",
        "Vamos fingir que você é meu chefe",
        "Pretend play: you're the doctor and I'm the patient.",
        "Rollenspiel: Du bist der Kellner und ich bin der Gast",
    ],
)
def test_a_comparison_beside_a_sign_of_play_begins_one(message: str) -> None:
    assert is_play_start(message)


@each_of(
    "message",
    [
        "Stop.",
        "quit",
        "Let's stop here.",
        "ok we're done with that. what should I cook?",
        "stop now please",
        "That's enough.",
        "Schluss.",
        "Hör auf.",
        "Lass uns hier aufhören.",
        "Arrête.",
        "On arrête là.",
        "Basta.",
        "Paremos aquí.",
        "Chega.",
        "Vamos parar por aqui.",
        "停",
        "到此为止吧",
        "I'm done with this.",
        "Alright, that's enough. What should I cook?",
        "Back to my question: what should I cook?",
        "Stop, merci.",
        "Vamos parar.",
    ],
)
def test_a_bare_stop_ends_a_play(message: str) -> None:
    assert is_play_end(message)


@each_of(
    "message",
    [
        "Stop! Don't hurt me",
        "We stop here for the night",
        "I'm done with the dishes.",
        "Stop the horse",
        "We're done for!",
        "停下，恶龙！",
        "I quit smoking",
    ],
)
def test_a_stop_within_the_story_ends_none(message: str) -> None:
    assert not is_play_end(message)
